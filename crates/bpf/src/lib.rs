// SPDX-License-Identifier: Apache-2.0 OR MIT
//! deburr's BPF programs, their loaders, and the kernel facts that decide what is loaded.
//!
//! - [`Ground`]: privileges, type information and the fields that a probe reads: what may stand in its way.
//! - [`facts`]: what this kernel offers, found by looking, never by version numbers.
//! - [`plan`]: from facts to which programs are loaded, or why none can be; pure.
//! - [`sched`]: the scheduler probe: open, then read threads, blame, CPUs and runs as safe types.
//! - [`io_facts`]: the same look for the probes of block IO.
//! - [`block`]: the block probe: every transfer, by whom, for which file, why, how long.
//! - [`writeback`]: the writeback probe: why there was something to write, and what was held up by it.
//! - [`syscalls`]: the system call probe: what the system calls of chosen threads cost, by call and by file.
//! - [`empty`]: a program that does nothing, to measure the others against.
//!
//! C programs are in `src/bpf`, one object a question; types shared with them are generated from their headers.
//! `unsafe` is for memory that the kernel writes while it is read.

pub mod block;
pub mod empty;
pub mod facts;
mod ground;
pub mod io_facts;
mod log;
mod mapped;
mod object;
pub mod plan;
pub mod sched;
mod skel;
mod stats;
pub mod syscalls;
mod verdict;
pub mod writeback;

pub use ground::Ground;
pub use stats::RunStats;

/// Keeps libbpf from printing to stderr. What of its messages is of use is part of the errors returned here.
pub fn silence_libbpf() {
    verdict::listen();
}
