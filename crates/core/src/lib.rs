// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Data model and analysis of deburr: everything that needs no access to the host.
//!
//! Data flows in one direction:
//!
//! ```text
//! kernel text --procfs--> recording::Record --view::View--> rules --> finding::Report --render--> text, JSON
//! ```
//!
//! - [`text`]: names and numbers as text; used by all other modules.
//! - [`limits`]: how much CPU a process may use, and how much its language runtime assumes it may use.
//! - [`sqlite`]: the tables of an SQLite file, read without SQLite, because the file may be anybody's.
//! - [`filesystem`]: which filesystem a disk holds, and which file a block of it belongs to.
//! - [`recording`]: observations: raw amounts and counters with their time range, never rates or conclusions.
//! - [`procfs`]: parsers of the kernel's text files, bytes in, typed values out.
//! - [`host_diff`]: which settings and capabilities differ between hosts, and which differences matter.
//! - [`snapshot`]: the hardware and configuration of a host, as typed facts.
//! - [`compare`]: two recordings side by side: what is lost in one that is not lost in the other.
//! - [`sweep`]: load sweeps of a service: runs in; points, knees and a verdict out.
//! - [`transcript`]: the output of other tools: what it was taken for, and what it means.
//! - [`view`]: arithmetic over a recording: totals, histograms, joins, shares.
//! - [`stats`]: significance of bursts, periods and coincidences.
//! - [`rules`]: the detectors, one per file; each answers `Fired`, `Quiet` or `NoData`.
//! - [`cpu_check`]: the plan of a check of this machine's CPUs, and the evaluation of its measurements.
//! - [`syscalls`]: the cost of system calls, by call and by file, and the difference of two measurements.
//! - [`finding`]: the report, as data only.
//! - [`render`]: output formats: [`finding::Report`] in, bytes out.
//!
//! Nothing here reads files, the environment or a clock (`clippy.toml` of this crate enforces it), so every conclusion
//! can be reproduced from a recording on any machine.
#![forbid(unsafe_code)]

pub mod compare;
pub mod cpu_check;
pub mod filesystem;
pub mod finding;
pub mod host_diff;
pub mod limits;
pub mod procfs;
pub mod prove;
pub mod recording;
pub mod render;
pub mod rules;
pub mod snapshot;
pub mod sqlite;
pub mod stats;
pub mod sweep;
pub mod syscalls;
#[cfg(any(test, feature = "testkit"))]
pub mod testkit;
pub mod text;
pub mod transcript;
pub mod view;
