// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Claims the file of a new recording, without harm to any other file.

use super::{Writer, companion, table};
use crate::claim::{Destination, is_stdout};
use crate::failure::Failure;
use deburr_core::sqlite::MAGIC;
use rustix::fs::{FlockOperation, OFlags, fcntl_lock};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Suffixes of files that SQLite may have put beside a file, and would read as a part of it.
const COMPANIONS: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Offset of the application id in SQLite files.
const APPLICATION_ID_AT: u64 = 68;

/// The file that a recording is to become. Until the recording begins, what is there stays as it is.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(super) destination: Destination,
    /// The file that is there. Its lock is held until the recording has taken its place.
    old: Option<File>,
}

impl Claim {
    /// Claims a file. An existing one is replaced only with `force`, and never while another process uses it.
    pub(crate) fn new(path: &Path, force: bool) -> anyhow::Result<Self> {
        if is_stdout(path) {
            return Err(Failure::bad_input(
                "a recording cannot go to standard output, because what was written is read and changed again; \
                 name a file",
            ));
        }
        let destination = Destination::new(path, force)?;
        let old = path.symlink_metadata().is_ok().then(|| lock(path)).transpose()?;
        let claim = Self { destination, old };
        if let Some(file) = claim.stale().find(|_| !claim.replaces_recording()) {
            return Err(Failure::bad_input(format!(
                "`{}` exists and would be taken for a part of `{}`; move it away, or name another file",
                file.display(),
                path.display()
            )));
        }
        Ok(claim)
    }

    /// The path of the recording.
    pub(crate) fn path(&self) -> &Path {
        self.destination.path()
    }

    /// Replaces what is there by an empty recording.
    pub(crate) fn begin(self) -> anyhow::Result<Writer> {
        Writer::begin(&self)
    }

    /// Removes what SQLite put beside the recording that is replaced.
    pub(super) fn remove_stale(&self) -> anyhow::Result<()> {
        self.stale().try_for_each(|file| match std::fs::remove_file(&file) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(cannot_replace(&file, &error)),
            _ => Ok(()),
        })
    }

    fn stale(&self) -> impl Iterator<Item = PathBuf> {
        let all = COMPANIONS.iter().map(|suffix| companion(self.path(), suffix));
        all.filter(|file| file.symlink_metadata().is_ok())
    }

    fn replaces_recording(&self) -> bool {
        self.old.as_ref().is_some_and(is_recording)
    }
}

/// Locks a file as SQLite does. Fails while a session writes to it or another process reads it.
fn lock(path: &Path) -> anyhow::Result<File> {
    let mut open = OpenOptions::new();
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let open = open.read(true).write(true).custom_flags(flags.bits().cast_signed());
    let file = open.open(path).map_err(|error| cannot_replace(path, &error))?;
    match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::AGAIN | Errno::ACCESS) => Err(in_use(path)),
        // Where the filesystem does not support locks, no process holds one.
        _ if is_at(&file, path) => Ok(file),
        _ => Err(in_use(path)),
    }
}

/// Whether the path leads to this open file.
pub(super) fn is_at(file: &File, path: &Path) -> bool {
    let id = |meta: &std::fs::Metadata| (meta.dev(), meta.ino());
    matches!((file.metadata(), path.symlink_metadata()), (Ok(a), Ok(b)) if id(&a) == id(&b))
}

fn is_recording(file: &File) -> bool {
    let (mut magic, mut id) = ([0; MAGIC.len()], [0; 4]);
    file.read_exact_at(&mut magic, 0).is_ok()
        && file.read_exact_at(&mut id, APPLICATION_ID_AT).is_ok()
        && magic == *MAGIC
        && i32::from_be_bytes(id) == table::APPLICATION_ID
}

fn cannot_replace(file: &Path, error: &io::Error) -> anyhow::Error {
    Failure::bad_input(format!("cannot replace `{}`: {error}; name another file", file.display()))
}

/// The error for a file that another session writes to, or that another process reads right now.
pub(super) fn in_use(path: &Path) -> anyhow::Error {
    let shown = path.display();
    Failure::bad_input(format!("`{shown}` is in use by another process; name another file"))
}
