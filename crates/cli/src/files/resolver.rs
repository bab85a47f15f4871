// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The name of a file: the path that a probe saw, completed by its mount, and confirmed or corrected by the filesystem.

use super::handles::{self, InodeLookup, OpenMount};
use super::mounts::{FilesystemMount, Mounts, strip_directory};
use deburr_core::recording::{DevId, FileState, Mount};
use deburr_core::text::name;
use rustix::fs::{AtFlags, CWD, Stat};
use std::fs;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

/// Files that are looked up in the kernel per second; each costs some 10 us.
const LOOKUPS_PER_SECOND: u32 = 100;
/// The same in the last second, when all names are looked up again: some 10 ms.
const LOOKUPS_AT_THE_END: u32 = 1000;
/// Mounts of a filesystem that are tried.
const MAX_PLACES: usize = 8;
/// What the kernel appends to the name of a deleted file.
const DELETED: &[u8] = b" (deleted)";

/// A file as a probe saw it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ObservedFile<'a> {
    /// `s_dev` of its filesystem.
    pub(crate) fs: DevId,
    /// Inode number.
    pub(crate) ino: u64,
    /// Inode generation; 0 = not known.
    pub(crate) generation: u32,
    /// Subvolume of btrfs; 0 = not known.
    pub(crate) subvolume: u64,
    /// Its path from the root of the filesystem, with or without a leading `/`.
    pub(crate) in_fs: Option<&'a [u8]>,
    /// Whether `in_fs` is the whole path, not the end of a longer one.
    pub(crate) complete: bool,
    /// Whether it was deleted.
    pub(crate) deleted: bool,
}

impl ObservedFile<'_> {
    /// An inode of which nothing but these is known.
    pub(crate) fn new(fs: DevId, ino: u64, generation: u32) -> Self {
        Self { fs, ino, generation, subvolume: 0, in_fs: None, complete: true, deleted: false }
    }
}

/// The name of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    /// As in [`deburr_core::recording::File::path`].
    pub(crate) path: String,
    /// As in [`deburr_core::recording::File::state`].
    pub(crate) state: FileState,
    /// Whether the filesystem confirmed it. If not, a later look-up may.
    pub(crate) confirmed: bool,
}

/// Finds the names of files, with a limited number of look-ups per second.
#[derive(Debug)]
pub(crate) struct Resolver {
    mounts: Mounts,
    left: u32,
    open: OpenMount,
}

/// A name before it is decoded.
#[derive(Clone, Debug)]
struct RawName {
    path: Vec<u8>,
    state: FileState,
}

impl RawName {
    fn name(&self, confirmed: bool) -> Name {
        Name { path: name::decode(&self.path), state: self.state, confirmed }
    }

    /// Whether its path can be looked up, because its mount is known.
    fn has_place(&self) -> bool {
        matches!(self.state, FileState::Linked | FileState::Deleted)
    }

    fn deleted(&self) -> Self {
        let state = if self.has_place() { FileState::Deleted } else { self.state };
        Self { path: self.path.clone(), state }
    }
}

impl Resolver {
    /// Reads the mounts. `proc` is `/proc` except in tests.
    pub(crate) fn new(proc: &Path) -> Self {
        Self { mounts: Mounts::read(proc), left: LOOKUPS_PER_SECOND, open: OpenMount::default() }
    }

    /// Called once a second: renews the budget of look-ups.
    pub(crate) fn second(&mut self) {
        self.left = LOOKUPS_PER_SECOND;
        self.rest();
        self.mounts.second();
    }

    /// Called in place of [`Self::second`] for the last second.
    pub(crate) fn last_second(&mut self) {
        self.second();
        self.left = LOOKUPS_AT_THE_END;
    }

    /// The mount of a filesystem, as a fact of a recording.
    pub(crate) fn mount(&mut self, fs: DevId) -> Option<Mount> {
        self.mounts.fact(fs)
    }

    /// Whether mounts were left out, because there are too many.
    pub(crate) fn mounts_are_cut(&self) -> bool {
        self.mounts.is_cut()
    }

    /// The name of the file.
    pub(crate) fn name(&mut self, seen: &ObservedFile<'_>) -> Name {
        let name = self.name_in_a_row(seen);
        self.rest();
        name
    }

    /// Closes the mount that was kept open.
    pub(crate) fn rest(&mut self) {
        self.open.close();
    }

    /// The name of the file. The mount is kept open for the next file until [`Self::rest`].
    pub(crate) fn name_in_a_row(&mut self, seen: &ObservedFile<'_>) -> Name {
        if self.mounts.of(seen.fs).is_empty() {
            // Unmounted since: its name while it was mounted.
            return path_seen(self.mounts.former(seen.fs), seen).name(false);
        }
        let places = self.mounts.of(seen.fs);
        let as_seen = path_seen(places, seen);
        if self.left == 0 {
            return as_seen.name(false);
        }
        self.left -= 1;
        let mut gone = false;
        let mut moved = false;
        for place in places.iter().filter(|place| !place.covered).take(MAX_PLACES) {
            match handles::open(&mut self.open, place, seen) {
                InodeLookup::Opened(file) => return ask(places, place, &file, seen, &as_seen),
                InodeLookup::Gone => gone = true,
                InodeLookup::Moved => moved = true,
                InodeLookup::Unable => continue,
            }
            break;
        }
        if gone {
            return as_seen.deleted().name(true);
        }
        if moved {
            self.mounts.forget(seen.fs);
        }
        // The same inode number at that path is nearly as good a confirmation.
        let there =
            as_seen.has_place() && stat(&as_seen.path).is_some_and(|s| s.st_ino == seen.ino);
        if there {
            RawName { state: FileState::Linked, ..as_seen }.name(true)
        } else {
            as_seen.name(false)
        }
    }
}

/// The name that the probe saw, completed by the mount.
fn path_seen(places: &[FilesystemMount], seen: &ObservedFile<'_>) -> RawName {
    let Some(in_fs) = seen.in_fs.filter(|path| !path.is_empty()) else {
        return RawName { path: Vec::new(), state: FileState::Nameless };
    };
    if !seen.complete {
        let path = [b".../", in_fs.strip_prefix(b"/").unwrap_or(in_fs)].concat();
        return RawName { path, state: FileState::InFilesystem };
    }
    match places.iter().find_map(|place| place.join(in_fs)) {
        Some(path) if seen.deleted => RawName { path, state: FileState::Deleted },
        Some(path) => RawName { path, state: FileState::Linked },
        None => RawName { path: in_fs.to_vec(), state: FileState::InFilesystem },
    }
}

/// The name of an open file, from the kernel or from what the probe saw (`as_seen`).
fn ask(
    places: &[FilesystemMount],
    place: &FilesystemMount,
    file: &OwnedFd,
    seen: &ObservedFile<'_>,
    as_seen: &RawName,
) -> Name {
    let Ok(own) = rustix::fs::fstat(file.as_fd()) else { return as_seen.name(false) };
    let is_it = |path: &[u8]| {
        stat(path).is_some_and(|there| (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino))
    };
    // Of several names (hard links), the one that was seen in use is kept.
    if as_seen.has_place() && is_it(&as_seen.path) {
        return RawName { path: as_seen.path.clone(), state: FileState::Linked }.name(true);
    }
    let link = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let link = link.map(|link| link.into_os_string().into_vec()).unwrap_or_default();
    match named(places, place, &link, is_it) {
        // Also a deleted name while links are left: the file has other names, which the kernel does not have cached.
        Some(known) => known.name(true),
        None if own.st_nlink == 0 => as_seen.deleted().name(true),
        // The kernel has no name cached, or the file was renamed since: the name that was seen is the best known.
        None if seen.deleted => as_seen.name(true),
        None => as_seen.name(false),
    }
}

/// The name from the kernel's link in `/proc/self/fd`; `None` if the kernel has no name cached.
fn named(
    places: &[FilesystemMount],
    place: &FilesystemMount,
    link: &[u8],
    is_it: impl Fn(&[u8]) -> bool,
) -> Option<RawName> {
    let shown = place.shown(link);
    if link == b"/" || link.is_empty() {
        // The root itself, or a file whose directory the kernel does not have cached.
        return (is_it(&shown)).then_some(RawName { path: shown, state: FileState::Linked });
    }
    let (link, state) = match link.strip_suffix(DELETED) {
        // A name may really end in this.
        Some(bare) if !is_it(&shown) => (bare, FileState::Deleted),
        _ => (link, FileState::Linked),
    };
    let inside = strip_directory(link, &place.point).is_some();
    let whole = place.root == b"/" || (state == FileState::Linked && is_it(&shown));
    if inside && (whole || state == FileState::Deleted) {
        return Some(RawName { path: place.shown(link), state });
    }
    // Outside of what is mounted there: the kernel shows the path from the root of the filesystem.
    let elsewhere = places.iter().find_map(|other| other.join(link));
    Some(elsewhere.map_or_else(
        || RawName { path: link.to_vec(), state: FileState::InFilesystem },
        |path| RawName { path, state },
    ))
}

fn stat(path: &[u8]) -> Option<Stat> {
    rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::linux::fs::MetadataExt as _;

    #[test]
    fn only_so_many_files_are_asked_for_in_a_second_and_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let here = fs::metadata(dir.path()).unwrap();
        let dev = here.st_dev();
        let fs = DevId { major: rustix::fs::major(dev), minor: rustix::fs::minor(dev) };
        let mut resolver = Resolver::new(Path::new("/proc"));
        let seen = ObservedFile::new(fs, here.st_ino(), 0);
        for (is_last, most) in [(false, LOOKUPS_PER_SECOND), (true, LOOKUPS_AT_THE_END)] {
            if is_last {
                resolver.last_second();
            } else {
                resolver.second();
            }
            for asked in 0..most {
                assert_eq!(resolver.left, most - asked, "asked for {asked} files");
                resolver.name_in_a_row(&seen);
            }
            resolver.name_in_a_row(&seen);
            assert_eq!(resolver.left, 0);
        }
    }
}
