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
    let text = information(program)?;
    Some((item(&text, "run_time_ns:")?, item(&text, "run_cnt:")?))
}

/// Events that a program was not run for, because it was already running on that CPU. Counted from 5.12 on.
pub(crate) fn missed(program: BorrowedFd<'_>) -> Option<u64> {
    item(&information(program)?, "recursion_misses:")
}

/// Instructions that the verifier looked at when the program was loaded. Told from 5.16 on.
pub(crate) fn verified_instructions(program: BorrowedFd<'_>) -> Option<u64> {
    item(&information(program)?, "verified_insns:")
}

fn information(program: BorrowedFd<'_>) -> Option<String> {
    std::fs::read_to_string(format!("/proc/self/fdinfo/{}", program.as_raw_fd())).ok()
}

fn item(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
}
