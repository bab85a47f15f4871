// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files of a recording, opened for reading only.
//!
//! A session may still be writing. Its log must then not be written back into the file, and not be started anew, while
//! both are read. SQLite prevents that with locks, which need no right to write: the same ones are taken here.

use super::companion;
use deburr_core::sqlite::{MAGIC, Source};
use rustix::io::Errno;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

/// Bytes of the file that SQLite's readers lock, so that no writer ends and removes its log.
const READERS: (i64, i64) = (0x4000_0002, 510);
/// Bytes of the log's index: the lock of whoever writes the log back, and one of those of readers of the log, without
/// which the log is not started anew.
const INDEX: [(i64, i64); 2] = [(121, 1), (127, 1)];
/// How often a lock that another process holds is tried: for a second.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);

/// The files of a recording.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) file: Box<dyn Source>,
    pub(super) log: Option<Box<dyn Source>>,
    /// The index of the log, for its locks. Its contents are not read.
    pub(super) index: Option<File>,
}

/// A file that has a size from here on, whatever is added to it.
#[derive(Debug)]
struct Fixed {
    file: File,
    bytes: u64,
}

impl Source for Fixed {
    fn size(&self) -> u64 {
        self.bytes
    }

    fn read_exact_at(&self, to: &mut [u8], at: u64) -> Result<(), String> {
        self.file.read_exact_at(to, at).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => "it became shorter while it was read".into(),
            _ => error.to_string(),
        })
    }
}

impl Fixed {
    fn boxed(file: File) -> Result<Box<dyn Source>, String> {
        let bytes = file.metadata().map_err(|error| format!("cannot be read: {error}"))?.len();
        Ok(Box::new(Self { file, bytes }))
    }
}

/// Opens the files. The error says of the file what is wrong with it.
pub(super) fn open(path: &Path) -> Result<Opened, String> {
    let fail = |error: io::Error| match error.kind() {
        ErrorKind::NotFound => "does not exist".to_owned(),
        _ => format!("cannot be opened: {error}"),
    };
    // SQLite's files are beside the file itself, not beside a link to it.
    let path = &path.canonicalize().map_err(fail)?;
    // Checked before it is opened: opening may start a device.
    check_kind(&path.metadata().map_err(fail)?)?;
    let file = quietly(path).map_err(fail)?;
    let meta = file.metadata().map_err(fail)?;
    check_kind(&meta)?;
    check_head(&file)?;
    lock(&file, &[READERS])?;
    let index = index(path, &meta);
    if let Some(index) = &index {
        lock(index, &INDEX)?;
    }
    Ok(Opened { log: log(path)?, file: Fixed::boxed(file)?, index })
}

/// Opens a file for reading. Waits for nothing, and follows no link in its place.
fn quietly(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
    let flags = (flags | rustix::fs::OFlags::NOCTTY).bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// The write-ahead log, if there is one.
fn log(path: &Path) -> Result<Option<Box<dyn Source>>, String> {
    let path = companion(path, "-wal");
    let meta = match path.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        meta => meta,
    };
    let file = match meta {
        Ok(meta) if !meta.is_file() => Err(io::Error::other("it is not a regular file")),
        Ok(_) => quietly(&path),
        Err(error) => Err(error),
    };
    match file.and_then(|file| Ok((file.metadata()?.is_file(), file))) {
        Ok((true, file)) => Fixed::boxed(file).map(Some),
        Ok((false, _)) => Ok(None),
        Err(error) => Err(format!("cannot be read: its log, `{}`: {error}", path.display())),
    }
}

/// The log's index, if a session may have made it: others may have put any file of that name there.
fn index(path: &Path, of: &Metadata) -> Option<File> {
    let path = companion(path, "-shm");
    let is_its = |meta: &Metadata| meta.is_file() && meta.nlink() == 1 && meta.uid() == of.uid();
    path.symlink_metadata().ok().filter(is_its)?;
    let file = quietly(&path).ok()?;
    file.metadata().is_ok_and(|meta| is_its(&meta)).then_some(file)
}

/// Shares locks with other readers. Where a filesystem has no locks, no process holds one.
fn lock(file: &File, places: &[(i64, i64)]) -> Result<(), String> {
    for &(start, bytes) in places {
        let mut tries = 0;
        while let Err(error) = deburr_sys::lock::share(file, start, bytes) {
            match Errno::from_io_error(&error) {
                Some(Errno::AGAIN | Errno::ACCESS) if tries == TRIES => {
                    return Err("is in use by another process, which writes to it".into());
                }
                Some(Errno::AGAIN | Errno::ACCESS) => {}
                _ => break,
            }
            tries += 1;
            std::thread::sleep(PAUSE);
        }
    }
    Ok(())
}

fn check_kind(meta: &Metadata) -> Result<(), String> {
    if meta.is_dir() {
        return Err("is a directory, not a recording".into());
    }
    if !meta.is_file() {
        return Err("is not a regular file".into());
    }
    if meta.len() == 0 {
        return Err("is empty: no recording".into());
    }
    Ok(())
}

/// Checks the first bytes, so that the error for other files says what they are.
fn check_head(file: &File) -> Result<(), String> {
    let mut head = [0; MAGIC.len()];
    match file.read_exact_at(&mut head, 0) {
        Ok(()) if head == *MAGIC => Ok(()),
        Err(error) if error.kind() != ErrorKind::UnexpectedEof => {
            Err(format!("cannot be read: {error}"))
        }
        _ => Err("is not a recording of deburr".into()),
    }
}
