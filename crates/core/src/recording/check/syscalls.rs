// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Invariants of system calls: parts do not exceed their whole.

use super::{Faults, Invariant};
use crate::recording::SyscallRecord;

const PARTS: Invariant =
    "system calls fail no more often than they return, and wait no longer than they last";

pub(super) fn check(record: &SyscallRecord, faults: &mut Faults) {
    let (what, holds) = match record {
        SyscallRecord::Span(_) => return,
        SyscallRecord::Call(it) => (
            &it.name,
            it.errors <= it.calls
                && it.wait_ns <= it.off_ns
                && it.off_ns <= it.ns
                && it.max_ns <= it.ns,
        ),
        SyscallRecord::File(it) => {
            let (calls, ns) = (it.all_calls(), it.all_ns());
            (&it.path, it.errors <= calls && it.wait_ns <= it.off_ns && it.off_ns <= ns)
        }
    };
    faults.unless(holds, PARTS, || what.escape_debug().to_string());
}
