// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Asks a filesystem for files. This may wait for the disk, and for the servers of all filesystems that the path of its
//! mount leads through: [`answer`] is for a process that can be given up.

use super::handles::{self, InodeLookup, OpenMount};
use super::mounts::{FilesystemMount, strip_directory};
use super::octets;
use super::resolver::ObservedFile;
use deburr_core::recording::DevId;
use rustix::fs::{AtFlags, CWD, Stat};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::time::{Duration, Instant};

/// Mounts of a filesystem that are tried.
const MAX_PLACES: usize = 8;
/// Size of the mounts of an inquiry, and of its files; together less than the buffer of a pipe.
const MAX_PLACES_BYTES: usize = 28 << 10;
const MAX_FILES_BYTES: usize = 28 << 10;
/// Files after which an answer is given, and the time after which it is given with fewer.
const MAX_FILES: usize = 128;
const ANSWERS_AFTER: Duration = Duration::from_millis(100);
/// `PATH_MAX`: length of a path and the zero after it.
const PATH_MAX_BYTES: usize = 4096;
/// What the kernel appends to the name of a deleted file.
const DELETED: &[u8] = b" (deleted)";

/// Files of a filesystem that are to be found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Inquiry {
    pub(crate) fs: DevId,
    places: Vec<FilesystemMount>,
    files: Vec<WantedFile>,
}

/// A file that is to be found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WantedFile {
    pub(super) ino: u64,
    pub(super) generation: u32,
    pub(super) subvolume: u64,
    /// The path at which it was seen, as this process can use it; empty = not known.
    #[serde(with = "octets")]
    seen_at: Vec<u8>,
}

impl WantedFile {
    pub(super) fn new(seen: &ObservedFile<'_>, seen_at: Option<&[u8]>) -> Self {
        let ObservedFile { ino, generation, subvolume, .. } = *seen;
        // The kernel takes no longer path.
        let seen_at = seen_at.filter(|path| path.len() < PATH_MAX_BYTES).unwrap_or_default();
        Self { ino, generation, subvolume, seen_at: seen_at.to_vec() }
    }
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Lookup {
    /// It is where it was seen.
    AsSeen,
    /// It has that name, or had it before it was deleted.
    At {
        #[serde(with = "octets")]
        path: Vec<u8>,
        deleted: bool,
    },
    /// The same, but the path begins at the root of the filesystem, and is not below the mount that was asked.
    Elsewhere {
        #[serde(with = "octets")]
        path: Vec<u8>,
        deleted: bool,
    },
    /// It is open somewhere, and has no name any more.
    Unlinked,
    /// It exists, and the kernel has none of its names cached.
    NoName,
    /// There is no such inode (any more).
    Gone,
    /// The filesystem could not be asked. Whether a file with that inode number is where it was seen.
    Unable { is_there: bool },
    /// The same, because another filesystem is mounted there by now.
    Moved { is_there: bool },
}

/// Asks filesystems. The answers are those for the first of the files, at least for one; `None` = there is no answer.
pub(crate) trait AskFilesystem: fmt::Debug {
    /// Puts one question.
    fn ask(&mut self, inquiry: &Inquiry) -> Option<Vec<Lookup>>;
}

/// Asks from this process, however long it takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskHere;

impl AskFilesystem for AskHere {
    fn ask(&mut self, inquiry: &Inquiry) -> Option<Vec<Lookup>> {
        Some(answer(inquiry))
    }
}

impl Inquiry {
    /// An inquiry about the first of these files, as many as fit, at the best of these mounts.
    pub(super) fn new(fs: DevId, places: &[FilesystemMount], files: &[WantedFile]) -> Self {
        let places = places.iter().filter(|place| !place.covered).take(MAX_PLACES);
        Self {
            fs,
            places: first(places, MAX_PLACES_BYTES),
            files: first(files.iter().take(MAX_FILES), MAX_FILES_BYTES),
        }
    }

    /// An inquiry about a filesystem without mounts.
    #[cfg(test)]
    pub(crate) fn nowhere(fs: DevId) -> Self {
        Self::new(fs, &[], &[])
    }

    /// The best mount of the filesystem.
    pub(crate) fn point(&self) -> &[u8] {
        self.places.first().map_or(&[], |place| &place.point)
    }
}

/// The first of them that take no more than so many bytes.
fn first<'a, T: Clone + Serialize + 'a>(
    all: impl Iterator<Item = &'a T>,
    most_bytes: usize,
) -> Vec<T> {
    let mut bytes = 0;
    let fits = |one: &&T| {
        bytes += serde_json::to_vec(one).map_or(most_bytes, |text| text.len() + 1);
        bytes <= most_bytes
    };
    all.take_while(fits).cloned().collect()
}

/// Looks for the files, in turn, until some time has passed.
pub(crate) fn answer(inquiry: &Inquiry) -> Vec<Lookup> {
    let begin = Instant::now();
    let mut open = OpenMount::default();
    let mut found = Vec::new();
    for file in &inquiry.files {
        if !found.is_empty() && begin.elapsed() >= ANSWERS_AFTER {
            break;
        }
        found.push(look_up(&mut open, &inquiry.places, file));
    }
    found
}

fn look_up(open: &mut OpenMount, places: &[FilesystemMount], file: &WantedFile) -> Lookup {
    let mut moved = false;
    for place in places {
        match handles::open(open, place, file) {
            InodeLookup::Opened(opened) => return name(place, &opened, file),
            InodeLookup::Gone => return Lookup::Gone,
            InodeLookup::Moved => moved = true,
            InodeLookup::Unable => continue,
        }
        break;
    }
    // The same inode number at that path is nearly as good a confirmation.
    let is_there = stat(&file.seen_at).is_some_and(|there| there.st_ino == file.ino);
    if moved { Lookup::Moved { is_there } } else { Lookup::Unable { is_there } }
}

/// The name of an open file: the one that was seen, or the one that the kernel has.
fn name(place: &FilesystemMount, opened: &OwnedFd, file: &WantedFile) -> Lookup {
    let Ok(own) = rustix::fs::fstat(opened.as_fd()) else {
        return Lookup::Unable { is_there: false };
    };
    let is_it = |path: &[u8]| {
        stat(path).is_some_and(|there| (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino))
    };
    // Of several names (hard links), the one that was seen in use is kept.
    if is_it(&file.seen_at) {
        return Lookup::AsSeen;
    }
    let link = fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd()));
    let link = link.map(|link| link.into_os_string().into_vec()).unwrap_or_default();
    match named(place, &link, is_it) {
        // Also a deleted name while links are left: the file has other names, which the kernel does not have cached.
        Some(known) => known,
        None if own.st_nlink == 0 => Lookup::Unlinked,
        None => Lookup::NoName,
    }
}

/// The name from the kernel's link in `/proc/self/fd`; `None` if the kernel has no name cached.
fn named(place: &FilesystemMount, link: &[u8], is_it: impl Fn(&[u8]) -> bool) -> Option<Lookup> {
    let shown = place.shown(link);
    if link == b"/" || link.is_empty() {
        // The root itself, or a file whose directory the kernel does not have cached.
        return is_it(&shown).then_some(Lookup::At { path: shown, deleted: false });
    }
    let (link, deleted) = match link.strip_suffix(DELETED) {
        // A name may really end in this.
        Some(bare) if !is_it(&shown) => (bare, true),
        _ => (link, false),
    };
    let inside = strip_directory(link, &place.point).is_some();
    let whole = place.root == b"/" || (!deleted && is_it(&shown));
    if inside && (whole || deleted) {
        return Some(Lookup::At { path: place.shown(link), deleted });
    }
    // Outside of what is mounted there: the kernel shows the path from the root of the filesystem.
    Some(Lookup::Elsewhere { path: link.to_vec(), deleted })
}

fn stat(path: &[u8]) -> Option<Stat> {
    if path.is_empty() {
        return None;
    }
    rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use deburr_core::procfs::mountinfo;
    use std::os::linux::fs::MetadataExt as _;

    #[test]
    fn an_inquiry_fits_into_a_pipe_whatever_its_paths_are() {
        let line = b"21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,data=ordered\n";
        let mount = mountinfo::parse(line).unwrap().remove(0);
        let mut long = FilesystemMount::new(&mount, false, b"");
        long.point = vec![7; 4095];
        let seen = ObservedFile::new(DevId { major: 8, minor: 1 }, u64::MAX, u32::MAX);
        let file = WantedFile::new(&seen, Some(&[1; 4095]));
        let of = |files: &[WantedFile]| Inquiry::new(seen.fs, &vec![long.clone(); 64], files);
        let inquiry = of(&vec![file; 1000]);
        assert!(!inquiry.files.is_empty() && !inquiry.places.is_empty());
        assert!(serde_json::to_vec(&inquiry).unwrap().len() < 60 << 10);
        let plain = WantedFile::new(&seen, Some(b"/srv/data"));
        assert_eq!(of(&vec![plain; 1000]).files.len(), MAX_FILES);
    }

    #[test]
    fn files_are_found_where_they_were_seen_or_not() {
        let dir = tempfile::tempdir().unwrap();
        let here = fs::metadata(dir.path()).unwrap();
        let path = dir.path().to_str().unwrap().as_bytes();
        // A mount that cannot be opened: the path alone is left.
        let fs = DevId { major: 0, minor: 0 };
        let ask = |ino, at| {
            let wanted = WantedFile::new(&ObservedFile::new(fs, ino, 0), at);
            answer(&Inquiry::new(fs, &[], &[wanted]))
        };
        let (there, not) = (Lookup::Unable { is_there: true }, Lookup::Unable { is_there: false });
        assert_eq!(ask(here.st_ino(), Some(path)), [there]);
        for found in [ask(here.st_ino() + 1, Some(path)), ask(here.st_ino(), None)] {
            assert_eq!(found, std::slice::from_ref(&not));
        }
    }
}
