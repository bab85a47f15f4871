// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The recording file: writes the records of a session to disk, and reads them again.
//!
//! One SQLite file, because every machine has something that reads it, it can be appended to while it is
//! read, and it survives a SIGKILL of its writer. The writer commits once a second in WAL mode without
//! fsync: a tool that looks for latency must not add flushes to the disk under diagnosis. So a killed
//! session loses at most its last second; a power cut may lose more. An orderly end folds the log into the
//! file, and one file is left.
//!
//! `docs/recording-format.md` describes the tables.

mod bounds;
mod column;
mod create;
mod encodings;
mod io_pace;
mod opened;
mod packed;
mod plain;
mod reader;
mod records;
mod table;
mod values;
mod writer;

pub(crate) use column::Column;
pub(crate) use create::Claim;
pub(crate) use encodings::COMPRESSED;
pub(crate) use plain::{Plain, plain};
pub(crate) use reader::{Reader, StoredRow};
pub(crate) use table::{TICK, Table, all as tables};
pub(crate) use writer::Writer;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// SQLite's companion of a file: its write-ahead log (`-wal`) or that log's index (`-shm`).
fn companion(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// A path as a URI for SQLite, escaped so that SQLite interprets no part of the name: `file:x?mode=memory` may be the
/// name of a file. `query` holds SQLite's own parameters.
fn uri(path: &Path, query: &str) -> String {
    // With the empty authority, an absolute path may begin with two slashes.
    let mut uri = String::from(if path.is_absolute() { "file://" } else { "file:./" });
    for &byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(uri, "%{byte:02x}");
        }
    }
    uri + "?" + query
}

/// SQLite's error message, without the statement that failed.
pub(crate) fn reason(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        error => error.to_string(),
    }
}

#[cfg(test)]
pub(crate) mod tests;
