// SPDX-License-Identifier: Apache-2.0 OR MIT
//! deburr's BPF programs, their loaders, and the kernel facts that decide what is loaded.
//!
//! - [`facts`]: what this kernel offers and these privileges allow, found by inspection, never from version numbers: one
//!   table for all probes.
//! - [`sched`]: the scheduler probe: open it, then read threads, blame, CPUs and runs as safe types. Its
//!   [`plan`](sched::plan), like that of every probe, decides from the facts which programs are loaded, or why none can
//!   be; pure.
//! - [`block`]: the block probe: every transfer, its submitter, file, reason and duration.
//! - [`writeback`]: the writeback probe: why there was something to write, and what was delayed by it.
//! - [`reclaim`]: the reclaim probe: how long threads free memory before they get some, and whose limit makes them.
//! - [`net`]: the network probe: which connections of TCP had to send again, and why.
//! - [`irq`]: the probe of interrupts: how long they took, on which CPU, and whose thread held it meanwhile.
//! - [`profile`]: the profile probe: in what functions CPUs are found at the beats of a clock.
//! - [`syscalls`]: the system call probe: what the system calls of chosen threads cost, by call and by file.
//! - [`empty`]: programs that do nothing, as the baseline for overhead measurements.
//!
//! The C programs are in `src/bpf`, one object per question; the types shared with them are generated from their
//! headers. `unsafe` code is here for memory that the kernel writes while we read it; all other `unsafe` code of deburr is
//! in `crates/sys`.

pub mod block;
pub mod empty;
pub mod facts;
pub mod irq;
mod iterate;
mod log;
mod mapped;
pub mod net;
mod object;
pub mod profile;
pub mod reclaim;
pub mod sched;
mod skel;
pub mod stacks;
mod stats;
pub mod syscalls;
mod verdict;
pub mod writeback;

pub use stats::{RunStats, TimedRuns};

/// Keeps libbpf from printing to stderr. The useful part of its messages is included in the errors returned here.
pub fn silence_libbpf() {
    verdict::listen();
}
