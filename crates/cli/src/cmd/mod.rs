// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The subcommands, one per file.

pub(crate) mod bench_empty;
pub(crate) mod check;
pub(crate) mod compare;
pub(crate) mod cpu_check;
pub(crate) mod diagnose;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod generate;
pub(crate) mod lab;
pub(crate) mod limits;
mod page;
pub(crate) mod prove;
pub(crate) mod read;
pub(crate) mod record;
pub(crate) mod report;
pub(crate) mod sector;
pub(crate) mod snapshot;
pub(crate) mod sweep;
pub(crate) mod syscalls;

mod show;
