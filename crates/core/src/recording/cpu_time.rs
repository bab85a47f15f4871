// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU time of processes, in the program and in the kernel.

use super::ProcId;
use super::observed::observed;
use serde::{Deserialize, Serialize};

/// CPU time of all threads of a process of the target so far, cumulative (`/proc/PID/stat`, fields 14 and 15). Where the
/// kernel takes the difference from its clock tick only, it is a sample of each tick; the sum is exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTimeReading {
    /// When.
    pub t_ns: u64,
    /// The process.
    pub proc: ProcId,
    /// In the program itself.
    pub user_ns: u64,
    /// In the kernel on its behalf: system calls, page faults; and interrupts that came meanwhile, where the kernel does not
    /// tell them apart.
    pub system_ns: u64,
}

observed! { it: CpuTimeReading at t_ns; to [it.proc] }
