// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Facts that are made from several files together, and facts from a database.

use super::files::Files;
use deburr_core::snapshot::Value;
use deburr_core::snapshot::parts::{
    EntryValue, loader, modprobe as settings, packages, rpm as header,
};
use deburr_core::snapshot::whitelist::Entry;
use rusqlite::{Connection, OpenFlags};
use std::collections::BTreeMap;
use std::os::fd::AsRawFd as _;

/// Largest configuration file that is read.
const CAP_BYTES: usize = 64 << 10;
/// Maximum number of files that are read in one directory.
const MAX_FILES: usize = 512;
/// Largest package header that is read. Headers grow with the number of files: those of kernels have some hundreds
/// of kB.
const MAX_HEADER_BYTES: usize = 16 << 20;

/// Contents of the files in a directory whose names have that ending, by name; the first error counts for all of them.
fn contents(
    directory: &str,
    ending: &str,
    files: &mut Files,
) -> Result<BTreeMap<String, Vec<u8>>, Value> {
    let names = files.names(directory)?;
    let mut contents = BTreeMap::new();
    for name in names.into_iter().filter(|name| name.ends_with(ending)).take(MAX_FILES) {
        match files.content(&format!("{directory}/{name}"), directory, CAP_BYTES) {
            Ok(content) => _ = contents.insert(name, content),
            // Vanished meanwhile.
            Err(Value::Absent) => {}
            Err(value) => return Err(value),
        }
    }
    Ok(contents)
}

/// The settings of modprobe, from all of its directories together.
pub(super) fn modprobe(files: &mut Files) -> Vec<EntryValue> {
    let mut by_name: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut there = false;
    // A file in an earlier directory replaces one of the same name in a later one, so the last directory is read first.
    for directory in settings::DIRECTORIES.iter().rev() {
        match contents(directory, ".conf", files) {
            Ok(contents) => {
                there = true;
                by_name.extend(contents);
            }
            Err(Value::Absent) => {}
            Err(value) => return whole(value),
        }
    }
    if !there {
        return whole(Value::Absent);
    }
    let contents: Vec<Vec<u8>> = by_name.into_values().collect();
    settings::settings(&contents)
}

/// The entries of a boot loader.
pub(super) fn loader(entry: &Entry, files: &mut Files) -> Vec<EntryValue> {
    match contents(entry.path, ".conf", files) {
        Ok(contents) => {
            let contents: Vec<Vec<u8>> = contents.into_values().collect();
            loader::entries(&contents)
        }
        Err(value) => whole(value),
    }
}

/// The packages in the database of rpm.
pub(super) fn rpm(entry: &Entry, files: &mut Files) -> Vec<EntryValue> {
    let file = match files.open(entry.path) {
        Ok(file) => file,
        Err(value) => return whole(value),
    };
    // Opened through the descriptor, so that it is the file that was checked. `immutable` avoids locks, log and
    // index: nothing is written.
    let uri = format!("file:///proc/self/fd/{}?immutable=1", file.as_raw_fd());
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let packages =
        Connection::open_with_flags(uri, flags).and_then(|database| installed(&database));
    match packages {
        Ok(packages) => packages::values(packages),
        Err(error) => whole(Value::Unreadable(format!(
            "it is no database of rpm: {}",
            crate::store::reason(&error)
        ))),
    }
}

fn installed(database: &Connection) -> rusqlite::Result<Vec<(String, String)>> {
    let mut names = database.prepare("SELECT key, hnum FROM Name")?;
    let rows = names.query_map([], |row| {
        // Names are texts in some versions and bytes in others.
        let name = row.get_ref(0)?.as_bytes().map(deburr_core::text::name::decode)?;
        Ok((name, row.get::<_, i64>(1)?))
    })?;
    let mut header =
        database.prepare("SELECT blob FROM Packages WHERE hnum = ? AND length(blob) <= ?")?;
    let mut packages = Vec::new();
    for row in rows {
        let (name, number) = row?;
        if !packages::is_kept(&name) {
            continue;
        }
        let mut blobs = header.query((number, MAX_HEADER_BYTES as i64))?;
        while let Some(row) = blobs.next()? {
            packages.extend(header::package(row.get_ref(0)?.as_bytes()?));
        }
    }
    Ok(packages)
}

/// One value for the whole fact.
fn whole(value: Value) -> Vec<EntryValue> {
    vec![EntryValue { part: None, class: deburr_core::snapshot::Class::Configuration, value }]
}
