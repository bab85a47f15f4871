// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The recording's file: what a session saw, on disk, and back.
//!
//! One SQLite file, because every machine has something that reads it, it can be appended to while it is
//! read, and it survives a SIGKILL of its writer. The writer commits once a second in WAL mode without
//! fsync: a tool that looks for latency must not add flushes to the disk under diagnosis. So a killed
//! session loses at most its last second; a power cut may lose more. An orderly end folds the log into the
//! file, and one file is left.
//!
//! `docs/recording-format.md` describes the tables.

mod decode;
mod encode;
mod reader;
mod schema;
mod writer;

pub(crate) use reader::Reader;
pub(crate) use writer::Writer;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// SQLite's companion of a file: its write-ahead log (`-wal`) or that log's index (`-shm`).
fn companion(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests;
