// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What deburr knows and what it concludes, without touching the host.
//!
//! Data flows one way:
//!
//! ```text
//! kernel text --procfs--> recording::Record --view::View--> rules --> finding::Report --render--> text, JSON
//! ```
//!
//! - [`text`]: names and numbers as text; used by all others.
//! - [`limits`]: what a process may use of the CPUs, and what its runtime believes.
//! - [`recording`]: what was seen: raw amounts and counters with their time range, never rates or opinions.
//! - [`procfs`]: parsers of the kernel's text files, `&str` in, typed values out.
//! - [`host_diff`]: what differs between hosts, and what of it matters.
//! - [`snapshot`]: what a host is and how it is set up, as typed facts.
//! - [`sweep`]: what an experiment with a service under load says: runs in, points, knees and verdict out.
//! - [`view`]: what it means arithmetically: totals, histograms, joins, shares.
//! - [`stats`]: what is no chance: bursts, periods, coincidences.
//! - [`rules`]: what is wrong: one detector a file; each answers `Fired`, `Quiet` or `NoData`.
//! - [`cpu_check`]: what a check of this machine's CPUs does, and what comes of it.
//! - [`syscalls`]: what system calls cost: rows by call and by file, and the difference of two measurements.
//! - [`finding`]: what we say: data only.
//! - [`render`]: how it looks: [`finding::Report`] in, bytes out.
//!
//! Nothing here reads files, the environment or a clock (`clippy.toml` of this crate enforces it), so
//! every judgement can be replayed from a recording on any machine.
#![forbid(unsafe_code)]

pub mod cpu_check;
pub mod finding;
pub mod host_diff;
pub mod limits;
pub mod procfs;
pub mod recording;
pub mod render;
pub mod rules;
pub mod snapshot;
pub mod stats;
pub mod sweep;
pub mod syscalls;
#[cfg(any(test, feature = "testkit"))]
pub mod testkit;
pub mod text;
pub mod view;
