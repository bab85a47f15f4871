// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a run of a BPF program costs, from the kernel's own statistics.

use libbpf_rs::libbpf_sys::{bpf_obj_get_info_by_fd, bpf_prog_info};
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// While this exists, the kernel counts runs and run time of BPF programs (`BPF_ENABLE_STATS`). It is bound to a file
/// descriptor: counting ends with this process, however that ends. Counting costs two clock reads per run, some
/// 50 ns, which are included in the counted time.
#[derive(Debug)]
pub struct RunStats {
    _fd: OwnedFd,
}

impl RunStats {
    /// Starts counting.
    ///
    /// # Errors
    /// The error of the kernel, as without privileges.
    pub fn start() -> io::Result<Self> {
        // SAFETY: a plain system call; the result is a new descriptor or a negative errno.
        let fd = unsafe {
            libbpf_rs::libbpf_sys::bpf_enable_stats(libbpf_rs::libbpf_sys::BPF_STATS_RUN_TIME)
        };
        if fd < 0 {
            return Err(io::Error::from_raw_os_error(-fd));
        }
        // SAFETY: the descriptor is new, and nothing else owns it.
        Ok(Self { _fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }
}

/// Runs of BPF programs that the kernel timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimedRuns {
    /// Their number.
    pub runs: u64,
    /// Their total time, in nanoseconds.
    pub ns: u64,
}

impl std::ops::Add for TimedRuns {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self { runs: self.runs + more.runs, ns: self.ns + more.ns }
    }
}

/// The timed runs of a program so far; `None` where the kernel does not report them.
pub(crate) fn timed_runs(program: BorrowedFd<'_>) -> Option<TimedRuns> {
    let (info, filled_bytes) = information(program)?;
    (filled_bytes > offset_of!(bpf_prog_info, run_cnt))
        .then_some(TimedRuns { runs: info.run_cnt, ns: info.run_time_ns })
}

/// Events that a program was not run for, because it was already running on that CPU. Counted from 5.12 on.
pub(crate) fn missed(program: BorrowedFd<'_>) -> Option<u64> {
    let (info, filled_bytes) = information(program)?;
    (filled_bytes > offset_of!(bpf_prog_info, recursion_misses)).then_some(info.recursion_misses)
}

/// Instructions that the verifier processed when the program was loaded. Reported from 5.16 on.
pub(crate) fn verified_instructions(program: BorrowedFd<'_>) -> Option<u64> {
    let (info, filled_bytes) = information(program)?;
    (filled_bytes > offset_of!(bpf_prog_info, verified_insns)).then(|| info.verified_insns.into())
}

/// The kernel's information about a program, and how many bytes of it were filled in: older kernels know fewer
/// fields. Costs a tenth of reading `fdinfo`.
fn information(program: BorrowedFd<'_>) -> Option<(bpf_prog_info, usize)> {
    let mut info = bpf_prog_info::default();
    let mut length = size_of::<bpf_prog_info>() as u32;
    // SAFETY: the kernel writes at most `length` bytes, into a struct of integers; no pointer in it is set.
    let failed = unsafe {
        bpf_obj_get_info_by_fd(program.as_raw_fd(), (&raw mut info).cast(), &raw mut length)
    };
    (failed == 0).then_some((info, length as usize))
}
