// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Claims a file for output before anything is observed or run, and writes it whole or not at all.
//!
//! An output is a regular file in a directory that exists. Links are not followed and devices are not written to. The
//! content goes into a temporary file in the same directory, which then takes the name: what was there before stays
//! until its replacement is complete. Only the owner can read it, because command lines, paths and settings are in it.

mod folder;

pub(crate) use folder::{Folder, create};

use crate::failure::{Exit, Failure};
use crate::output;
use rustix::fs::{AtFlags, CWD, RenameFlags, StatxAttributes, StatxFlags, renameat_with, statx};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Mode of every file that is written.
const MODE: u32 = 0o600;
/// Bytes that are written to find out whether the disk is full.
const PROBE: [u8; 4096] = [0; 4096];
/// Number of random names that are tried. A name is taken only if somebody else chose the same 64 bits.
const TRIES: u32 = 8;

/// Whether a path means standard output.
pub(crate) fn is_stdout(path: &Path) -> bool {
    [Path::new("-"), Path::new("/dev/stdout")].contains(&path)
}

/// Where a document goes: a file, or standard output.
#[derive(Debug)]
pub(crate) enum Claim {
    /// Standard output, which was named as `-` or `/dev/stdout`.
    Stdout,
    /// A file.
    File(Destination),
}

impl Claim {
    /// Claims the destination of a document. With `force`, an existing file is to be replaced.
    ///
    /// # Errors
    /// As for [`Destination::new`].
    pub(crate) fn new(path: &Path, force: bool) -> anyhow::Result<Self> {
        if is_stdout(path) {
            return Ok(Self::Stdout);
        }
        Ok(Self::File(Destination::new(path, force)?))
    }

    /// Whether the document goes to standard output.
    pub(crate) fn is_stdout(&self) -> bool {
        matches!(self, Self::Stdout)
    }

    /// Writes the document.
    pub(crate) fn keep(&self, document: &[u8]) -> anyhow::Result<()> {
        match self {
            Self::Stdout => output::print(document),
            Self::File(destination) => destination.keep(document),
        }
    }
}

/// A file that can be made, or replaced.
#[derive(Debug)]
pub(crate) struct Destination {
    path: PathBuf,
    force: bool,
}

impl Destination {
    /// Checks that the file can be made, by making another one beside it for a moment.
    ///
    /// # Errors
    /// With [`Exit::BadInput`] if the path is a directory, a link, a device or anything else than a regular file, exists
    /// (without `force`) or cannot be replaced, or lies in a directory that does not exist or in which no file can be
    /// made. With [`Exit::Output`] if a file can be made, but not written.
    pub(crate) fn new(path: &Path, force: bool) -> anyhow::Result<Self> {
        let destination = Self { path: path.to_owned(), force };
        destination.look()?;
        let mut probe = destination.temporary()?;
        probe.write(&PROBE).map_err(|error| destination.not_written(&error))?;
        Ok(destination)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the whole content.
    pub(crate) fn keep(&self, content: &[u8]) -> anyhow::Result<()> {
        let mut file = self.temporary()?;
        file.write(content).map_err(|error| self.not_written(&error))?;
        self.put(file).map(drop)
    }

    /// A temporary file that [`Self::put`] can give the name to.
    pub(crate) fn temporary(&self) -> anyhow::Result<Temporary> {
        Temporary::create(self.directory()).map_err(|error| self.not_created(&error))
    }

    /// Gives a temporary file its name. What is there now is replaced only with `force`.
    pub(crate) fn put(&self, file: Temporary) -> anyhow::Result<File> {
        // Somebody may have put something else there since.
        self.look()?;
        match file.persist(&self.path, self.force) {
            Ok(file) => Ok(file),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                self.look()?;
                Err(self.not_created(&error))
            }
            Err(error) => Err(self.not_created(&error)),
        }
    }

    /// Looks at what is there.
    fn look(&self) -> anyhow::Result<()> {
        let shown = self.path.display();
        let refuse = |why: &str| Err(Failure::bad_input(format!("`{shown}` {why}")));
        let meta = match self.path.symlink_metadata() {
            Ok(meta) => meta,
            Err(error) if error.kind() == ErrorKind::NotFound => return self.look_at_directory(),
            Err(error) => return Err(self.not_created(&error)),
        };
        match kind(&meta) {
            "regular file" if !self.force => {
                refuse("exists; name another file, or replace it with --force")
            }
            "regular file" => self.can_be_replaced(&meta).map_or_else(refuse, Ok),
            "directory" => refuse("is a directory; name a file in it"),
            "symbolic link" => {
                refuse("is a symbolic link, which is not followed; name the file that it leads to")
            }
            kind => refuse(&format!("is a {kind}, not a regular file; name another one")),
        }
    }

    fn look_at_directory(&self) -> anyhow::Result<()> {
        let (shown, directory) = (self.path.display(), self.directory());
        if !directory.is_dir() {
            let directory = directory.display();
            return Err(Failure::bad_input(format!(
                "cannot create `{shown}`: there is no directory `{directory}`"
            )));
        }
        if self.path.as_os_str().as_bytes().ends_with(b"/") {
            return Err(Failure::bad_input(format!("`{shown}` does not name a file")));
        }
        Ok(())
    }

    /// Why a rename over this file would fail, as far as that can be known beforehand.
    fn can_be_replaced(&self, meta: &Metadata) -> Result<(), &'static str> {
        let flags = (AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS);
        if let Ok(more) = statx(CWD, &self.path, flags.0, flags.1) {
            let has = |attribute| more.stx_attributes.contains(attribute);
            if has(StatxAttributes::MOUNT_ROOT) {
                return Err("is a mount point, which cannot be replaced; name another file");
            }
            if has(StatxAttributes::IMMUTABLE) || has(StatxAttributes::APPEND) {
                return Err("may not be replaced (`lsattr` shows why); name another file");
            }
        }
        let (user, directory) = (rustix::process::geteuid(), self.directory().metadata());
        let sticky = directory.is_ok_and(|it| it.mode() & 0o1000 != 0 && it.uid() != user.as_raw());
        if sticky && !user.is_root() && meta.uid() != user.as_raw() {
            return Err("belongs to another user, and cannot be replaced; name another file");
        }
        Ok(())
    }

    /// The directory part of the path.
    pub(crate) fn directory(&self) -> &Path {
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        parent.unwrap_or(Path::new("."))
    }

    /// The error for a file that cannot be made. A full disk is no fault of the path.
    fn not_created(&self, error: &io::Error) -> anyhow::Error {
        let shown = self.path.display();
        if is_full(error) {
            return self.not_written(error);
        }
        Failure::bad_input(match error.kind() {
            ErrorKind::NotFound => {
                let directory = self.directory().display();
                format!("cannot create `{shown}`: no file can be made in `{directory}`")
            }
            _ => format!("cannot create `{shown}`: {error}"),
        })
    }

    /// The error for a file that cannot be written.
    pub(crate) fn not_written(&self, error: &io::Error) -> anyhow::Error {
        Failure::error(Exit::Output, format!("cannot write `{}`: {error}", self.path.display()))
    }
}

/// Opens a file that lines are added to, and makes it if it is missing.
///
/// # Errors
/// If it is anything else than a regular file, or cannot be made or written to.
pub(crate) fn append(path: &Path) -> anyhow::Result<File> {
    let destination = Destination { path: path.to_owned(), force: true };
    destination.look()?;
    let mut open = OpenOptions::new();
    let open = open.append(true).create(true).mode(MODE);
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let open = open.custom_flags(flags.bits().cast_signed());
    let file = open.open(path).map_err(|error| destination.not_created(&error))?;
    // Another process may have put something else there.
    destination.look()?;
    Ok(file)
}

/// Whether an error means that there is no room, rather than that the file may not be made.
fn is_full(error: &io::Error) -> bool {
    let full = [ErrorKind::StorageFull, ErrorKind::QuotaExceeded, ErrorKind::FileTooLarge];
    full.contains(&error.kind()) || error.raw_os_error() == Some(Errno::IO.raw_os_error())
}

/// What a file is, in words.
fn kind(meta: &Metadata) -> &'static str {
    let kind = meta.file_type();
    match () {
        () if kind.is_file() => "regular file",
        () if kind.is_dir() => "directory",
        () if kind.is_symlink() => "symbolic link",
        () if kind.is_fifo() => "named pipe",
        () if kind.is_socket() => "socket",
        () => "device",
    }
}

/// A new file with a random name. Dropped, it is removed.
#[derive(Debug)]
pub(crate) struct Temporary {
    file: Option<File>,
    path: PathBuf,
}

impl Temporary {
    /// Makes a file in a directory. Errors do not mention its name, which says nothing to anybody.
    fn create(directory: &Path) -> io::Result<Self> {
        for _ in 0..TRIES {
            let path = directory.join(format!(".deburr-{}", random_name()?));
            let mut open = OpenOptions::new();
            let open = open.read(true).write(true).create_new(true).mode(MODE);
            match open.open(&path) {
                Ok(file) => {
                    give_to_caller_of_sudo(&file);
                    return Ok(Self { file: Some(file), path });
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Another handle of the open file, for what writes it piece by piece.
    pub(crate) fn handle(&self) -> io::Result<File> {
        self.file.as_ref().ok_or(ErrorKind::NotFound)?.try_clone()
    }

    fn write(&mut self, content: &[u8]) -> io::Result<()> {
        self.file.as_mut().ok_or(ErrorKind::NotFound)?.write_all(content)
    }

    /// Renames it. Without `replace`, it fails if the name is taken.
    fn persist(mut self, to: &Path, replace: bool) -> io::Result<File> {
        if replace {
            std::fs::rename(&self.path, to)?;
        } else {
            match renameat_with(CWD, &self.path, CWD, to, RenameFlags::NOREPLACE) {
                // The filesystem does not know this flag.
                Err(Errno::INVAL | Errno::NOSYS) => {
                    std::fs::hard_link(&self.path, to)?;
                    std::fs::remove_file(&self.path)?;
                }
                renamed => renamed?,
            }
        }
        self.file.take().ok_or_else(|| ErrorKind::NotFound.into())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if self.file.is_some() {
            // If it cannot be removed, it is empty or was not finished: nobody takes it for an output.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A name that nobody can guess, of 16 hexadecimal digits.
pub(crate) fn random_name() -> io::Result<String> {
    let mut bytes = [0; 8];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
}

/// Lets the user who called `sudo` read what root wrote for them.
fn give_to_caller_of_sudo(file: &impl std::os::fd::AsFd) {
    let id = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    if rustix::process::geteuid().is_root()
        && let (Some(user), Some(group)) = (id("SUDO_UID"), id("SUDO_GID"))
    {
        // Otherwise it stays root's, who can give it away.
        let _ = std::os::unix::fs::fchown(file, Some(user), Some(group));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn refusal(path: &Path, force: bool) -> String {
        Claim::new(path, force).unwrap_err().to_string()
    }

    fn count(directory: &Path) -> usize {
        std::fs::read_dir(directory).unwrap().count()
    }

    #[test]
    fn what_is_there_is_replaced_whole_and_only_if_asked_for() {
        let here = tempfile::tempdir().unwrap();
        let path = here.path().join("a.json");
        Claim::new(&path, false).unwrap().keep(b"a long one").unwrap();
        assert!(refusal(&path, false).contains("--force"));
        let before = path.metadata().unwrap().ino();
        Claim::new(&path, true).unwrap().keep(b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_ne!(path.metadata().unwrap().ino(), before, "replaced, not written over");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, MODE);
        assert_eq!(count(here.path()), 1, "no temporary file is left");
    }

    #[test]
    fn what_came_since_the_claim_stays() {
        let here = tempfile::tempdir().unwrap();
        let path = here.path().join("a.json");
        let claim = Claim::new(&path, false).unwrap();
        std::fs::write(&path, "of somebody else").unwrap();
        let error = claim.keep(b"new").unwrap_err();
        assert!(error.to_string().contains("exists"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"of somebody else");
        assert_eq!(count(here.path()), 1);
    }

    #[test]
    fn links_are_never_followed() {
        let here = tempfile::tempdir().unwrap();
        let (path, link) = (here.path().join("a.json"), here.path().join("link"));
        std::fs::write(&path, "mine").unwrap();
        symlink(&path, &link).unwrap();
        let dangling = here.path().join("dangling");
        symlink(here.path().join("nothing"), &dangling).unwrap();
        for force in [false, true] {
            assert!(refusal(&link, force).contains("symbolic link"));
            assert!(refusal(&dangling, force).contains("symbolic link"));
            assert!(append(&link).is_err());
        }
        let later = here.path().join("later");
        let claim = Claim::new(&later, true).unwrap();
        symlink(&path, &later).unwrap();
        assert!(claim.keep(b"new").is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
        assert_eq!(count(here.path()), 4);
    }

    #[test]
    fn only_regular_files_are_replaced() {
        let here = tempfile::tempdir().unwrap();
        // A pipe stands for the device: run as root, a faulty test would replace /dev/null for the whole host.
        let pipe = here.path().join("pipe");
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(CWD, &pipe, kind, 0o600.into(), 0).unwrap();
        for force in [false, true] {
            assert!(refusal(&pipe, force).contains("not a regular file"));
            assert!(refusal(here.path(), force).contains("is a directory"));
            assert!(refusal(&here.path().join("no/b.json"), force).contains("no directory"));
            assert!(refusal(&here.path().join("b/"), force).contains("does not name a file"));
        }
        assert!(append(&pipe).is_err());
        assert!(pipe.symlink_metadata().unwrap().file_type().is_fifo());
        assert!(refusal(Path::new("/dev/null"), true).contains("device"));
    }

    #[test]
    fn lines_are_added_to_a_file_of_ones_own() {
        let here = tempfile::tempdir().unwrap();
        let log = here.path().join("log");
        for _ in 0..2 {
            append(&log).unwrap().write_all(b"line\n").unwrap();
        }
        assert_eq!(std::fs::read(&log).unwrap(), b"line\nline\n");
        assert_eq!(log.metadata().unwrap().permissions().mode() & 0o777, MODE);
    }
}
