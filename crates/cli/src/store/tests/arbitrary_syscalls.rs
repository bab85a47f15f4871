// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arbitrary records of system calls.

use super::arbitrary::maybe;
use deburr_core::recording::{
    FileClass, ProcId, Record, SyscallFile, SyscallRecord, SyscallSpan, SyscallTotal,
};
use proptest::prelude::*;

fn process() -> impl Strategy<Value = Option<ProcId>> {
    maybe(any::<u32>().prop_map(ProcId))
}

pub(super) fn record() -> impl Strategy<Value = Record> {
    let span = (process(), any::<([u64; 9], bool)>()).prop_map(|(process, (n, waits_known))| {
        SyscallRecord::Span(SyscallSpan {
            t0_ns: n[0],
            t1_ns: n[1],
            process,
            processes: n[2],
            threads: n[3],
            waits_known,
            beyond_calls: n[4],
            beyond_ns: n[5],
            unread_calls: n[6],
            unread_ns: n[7],
            lost: n[8],
        })
    });
    let hist = prop::collection::vec(any::<u32>(), 0..120);
    let call = (process(), any::<[u64; 10]>(), ".*", hist).prop_map(|(process, n, name, hist)| {
        SyscallRecord::Call(SyscallTotal {
            t0_ns: n[0],
            t1_ns: n[1],
            process,
            name,
            calls: n[2],
            errors: n[3],
            unfinished: n[4],
            under_way: n[5],
            ns: n[6],
            off_ns: n[7],
            wait_ns: n[8],
            max_ns: n[9],
            hist,
        })
    });
    let classes = prop::sample::select(vec![
        FileClass::Proc,
        FileClass::Sys,
        FileClass::Debug,
        FileClass::Cgroup,
        FileClass::Fuse,
        FileClass::Nameless,
        FileClass::Ordinary,
        FileClass::Unknown,
    ]);
    let file = (process(), any::<([u64; 7], [u64; 8], [u64; 8], bool)>(), ".*", classes).prop_map(
        |(process, (n, calls, ns, complete), path, class)| {
            SyscallRecord::File(SyscallFile {
                t0_ns: n[0],
                t1_ns: n[1],
                process,
                path,
                complete,
                class,
                calls,
                ns,
                errors: n[2],
                max_ns: n[3],
                off_ns: n[4],
                wait_ns: n[5],
                bytes: n[6],
            })
        },
    );
    prop_oneof![span, call, file].prop_map(|record| Record::Syscalls(Box::new(record)))
}
