// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The file tree that is read: that of this host, or a captured one, which no symbolic link can lead out of.

use deburr_core::snapshot::Value;
use deburr_core::text::name;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, open, openat2, readlinkat,
    statat,
};
use rustix::io::{Errno, read};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Size of a read. Procfs allocates as much as it is asked for, so a larger size would cost more; a sysfs file is not
/// larger.
const READ_BYTES: usize = 4096;

/// A directory that is read in place of `/`.
#[derive(Debug)]
pub(crate) struct Tree {
    root: OwnedFd,
    path: PathBuf,
    /// Whether the kernel can confine path look-ups to a directory (`openat2`).
    confined: bool,
}

impl Tree {
    /// Opens the directory.
    pub(crate) fn open(path: &Path) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = open(path, flags, Mode::empty())?;
        let mut tree = Self { root, path: path.into(), confined: true };
        if tree.at(".", flags).is_err() {
            // `openat2` fails only where a sandbox forbids it. That is acceptable only for this host.
            if !tree.is_this_host() {
                return Err(Errno::NOSYS);
            }
            tree.confined = false;
        }
        Ok(tree)
    }

    /// Whether it is the tree of the host that this program runs on.
    pub(crate) fn is_this_host(&self) -> bool {
        self.path == Path::new("/")
    }

    fn at(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC;
        if self.confined {
            // Links with absolute targets stay inside the tree, too.
            return openat2(
                &self.root,
                path.trim_start_matches('/'),
                flags,
                Mode::empty(),
                ResolveFlags::IN_ROOT,
            );
        }
        rustix::fs::openat(CWD, path, flags, Mode::empty())
    }

    /// Opens a regular file for reading.
    pub(crate) fn file(&self, path: &str) -> Result<OwnedFd, Value> {
        // Opening must not block, as it would on a FIFO; other files than regular ones are refused below.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = self.at(path, flags).map_err(refused)?;
        let kind = FileType::from_raw_mode(fstat(&file).map_err(refused)?.st_mode);
        match kind {
            FileType::RegularFile => Ok(file),
            kind => {
                Err(Value::Unreadable(format!("it is {}, not a regular file", kind_name(kind))))
            }
        }
    }

    /// Content of a regular file of at most `cap` bytes.
    pub(crate) fn content(&self, path: &str, cap: usize) -> Result<Vec<u8>, Value> {
        let file = self.file(path)?;
        let mut content = Vec::new();
        let mut chunk = [0; READ_BYTES];
        loop {
            match read(&file, &mut chunk) {
                Ok(0) => return Ok(content),
                Ok(length) => content.extend_from_slice(&chunk[..length]),
                Err(Errno::INTR) => {}
                Err(error) => return Err(refused(error)),
            }
            if content.len() > cap {
                return Err(Value::Unreadable(format!("it is larger than {} KiB", cap >> 10)));
            }
        }
    }

    /// Names in a directory, sorted, without `.` and `..`.
    pub(crate) fn names(&self, path: &str) -> Result<Vec<String>, Value> {
        let directory = self.at(path, OFlags::RDONLY | OFlags::DIRECTORY).map_err(refused)?;
        let mut names = Vec::new();
        for entry in Dir::read_from(&directory).map_err(refused)? {
            let entry = entry.map_err(refused)?;
            let bytes = entry.file_name().to_bytes();
            if bytes != b"." && bytes != b".." {
                names.push(name::decode(bytes));
            }
        }
        names.sort();
        Ok(names)
    }

    /// Last path component of the target of a symbolic link.
    pub(crate) fn link(&self, path: &str) -> Result<String, Value> {
        let (directory, link) = path.rsplit_once('/').unwrap_or((".", path));
        let directory = self.at(directory, OFlags::PATH | OFlags::DIRECTORY).map_err(refused)?;
        let target = readlinkat(&directory, link, Vec::new()).map_err(refused)?;
        let target = Path::new(OsStr::from_bytes(target.to_bytes()));
        let last = target.file_name().unwrap_or_default();
        Ok(name::decode(last.as_bytes()))
    }

    /// Whether the path exists.
    pub(crate) fn exists(&self, path: &str) -> Result<bool, Value> {
        let (directory, last) = path.rsplit_once('/').unwrap_or((".", path));
        let directory = if directory.is_empty() { "." } else { directory };
        let there = self
            .at(directory, OFlags::PATH | OFlags::DIRECTORY)
            .and_then(|directory| statat(&directory, last, AtFlags::SYMLINK_NOFOLLOW));
        match there.map_err(refused) {
            Ok(_) => Ok(true),
            Err(Value::Absent) => Ok(false),
            Err(value) => Err(value),
        }
    }
}

/// The value of a fact whose file could not be read.
pub(crate) fn refused(error: Errno) -> Value {
    match error {
        // A file that vanishes meanwhile counts as absent, too.
        Errno::NOENT | Errno::NOTDIR | Errno::NODEV | Errno::NXIO => Value::Absent,
        error => {
            let text = std::io::Error::from(error).to_string();
            let text = text.rsplit_once(" (os error").map_or(text.as_str(), |(text, _)| text);
            Value::Unreadable(text.to_lowercase())
        }
    }
}

fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::Directory => "a directory",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "something else",
    }
}
