// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a run of a BPF program costs, from the kernel's own count.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The kernel counts runs and time of BPF programs while this lives (`BPF_ENABLE_STATS`). It is bound to a file
/// descriptor: whatever ends this process also ends the counting. Counting itself costs two clock reads a run,
/// some 50 ns, which are part of what it counts.
#[derive(Debug)]
pub struct RunStats {
    _fd: OwnedFd,
}

impl RunStats {
    /// Starts counting.
    ///
    /// # Errors
    /// Without privileges.
    pub fn start() -> io::Result<Self> {
        // SAFETY: a plain system call; the result is a new descriptor or a negative errno.
        let fd = unsafe {
            libbpf_rs::libbpf_sys::bpf_enable_stats(libbpf_rs::libbpf_sys::BPF_STATS_RUN_TIME)
        };
        if fd < 0 {
            return Err(io::Error::from_raw_os_error(-fd));
        }
        // SAFETY: the descriptor is new and ours.
        Ok(Self { _fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }
}

/// Time in nanoseconds and number of counted runs of a program so far.
pub(crate) fn run_time(program: BorrowedFd<'_>) -> Option<(u64, u64)> {
    let path = format!("/proc/self/fdinfo/{}", program.as_raw_fd());
    let text = std::fs::read_to_string(path).ok()?;
    let item = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
    };
    Some((item("run_time_ns:")?, item("run_cnt:")?))
}
