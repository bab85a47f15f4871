// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Creates the file of a new recording, without destroying any other file.

use super::reader::MAGIC;
use super::{companion, table};
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Suffixes of files that SQLite may have put beside a file, and would read as a part of it.
const COMPANIONS: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Offset of the application id in SQLite files.
const APPLICATION_ID_AT: u64 = 68;

/// Why a recording cannot be created at that path. The text names the file and a way out.
#[derive(Debug)]
pub(crate) struct CreateError(pub(super) String);

impl std::fmt::Display for CreateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CreateError {}

/// Creates an empty file. An existing one is replaced only with `force`, and never while another process uses it.
pub(super) fn claim(path: &Path, force: bool) -> Result<File, CreateError> {
    let shown = path.display();
    let refuse = |why: String| Err(CreateError(why));
    let old = match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => {
            return refuse(format!("`{shown}` is a directory; name a file in it"));
        }
        Ok(meta) if !meta.is_file() => {
            return refuse(format!("`{shown}` is not a regular file; name another one"));
        }
        Ok(_) if !force => {
            return refuse(format!(
                "`{shown}` exists; name another file, or replace it with --force"
            ));
        }
        // Its lock is held until the new file exists.
        Ok(_) => Some(lock(path)?),
        Err(_) => None,
    };
    let was_recording = old.as_ref().is_some_and(is_recording);
    for file in companions(path).filter(|file| file.symlink_metadata().is_ok()) {
        if !was_recording {
            return refuse(format!(
                "`{}` exists and would be taken for a part of `{shown}`; move it away, or name another file",
                file.display()
            ));
        }
        replace(&file)?;
    }
    if old.is_some() {
        replace(path)?;
    }
    // Command lines and paths of all users are in it.
    let mut create = OpenOptions::new();
    let create = create.read(true).write(true).create_new(true).mode(0o600).open(path);
    let file = create.map_err(|error| cannot_create(path, &error))?;
    give_to_caller_of_sudo(&file);
    Ok(file)
}

/// Lets the user who called `sudo` read what root recorded for them. SQLite gives the files beside it the same owner.
fn give_to_caller_of_sudo(file: &File) {
    let id = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    if rustix::process::geteuid().is_root()
        && let (Some(user), Some(group)) = (id("SUDO_UID"), id("SUDO_GID"))
    {
        // Otherwise it stays root's, who can give it away.
        let _ = std::os::unix::fs::fchown(file, Some(user), Some(group));
    }
}

/// Locks a file as SQLite does. Fails while a session writes to it or another process reads it.
fn lock(path: &Path) -> Result<File, CreateError> {
    let open = OpenOptions::new().read(true).write(true).open(path);
    let file = open.map_err(|error| cannot_replace(path, &error))?;
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

/// Removes a recording that holds nothing yet.
pub(super) fn remove(path: &Path) {
    for file in companions(path).chain([path.to_owned()]) {
        // A missing file need not be removed, and a file that cannot be removed is empty.
        let _ = std::fs::remove_file(file);
    }
}

fn companions(path: &Path) -> impl Iterator<Item = PathBuf> {
    COMPANIONS.iter().map(|suffix| companion(path, suffix))
}

fn is_recording(file: &File) -> bool {
    let (mut magic, mut id) = ([0; MAGIC.len()], [0; 4]);
    file.read_exact_at(&mut magic, 0).is_ok()
        && file.read_exact_at(&mut id, APPLICATION_ID_AT).is_ok()
        && magic == MAGIC
        && i32::from_be_bytes(id) == table::APPLICATION_ID
}

fn replace(file: &Path) -> Result<(), CreateError> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(cannot_replace(file, &error)),
        _ => Ok(()),
    }
}

fn cannot_replace(file: &Path, error: &io::Error) -> CreateError {
    CreateError(format!("cannot replace `{}`: {error}; name another file", file.display()))
}

/// The error for a file that another session writes to, or that another process reads right now.
pub(super) fn in_use(path: &Path) -> CreateError {
    CreateError(format!("`{}` is in use by another process; name another file", path.display()))
}

fn cannot_create(path: &Path, error: &io::Error) -> CreateError {
    let shown = path.display();
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    CreateError(match (error.kind(), directory.is_dir()) {
        (ErrorKind::NotFound, false) => {
            format!("cannot create `{shown}`: there is no directory `{}`", directory.display())
        }
        (ErrorKind::NotFound, true) => {
            format!("cannot create `{shown}`: no file can be made in `{}`", directory.display())
        }
        _ => format!("cannot create `{shown}`: {error}"),
    })
}
