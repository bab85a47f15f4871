// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The name of a file: the path that a probe saw, completed by its mount, and confirmed or corrected by the filesystem.

use super::lookup::{AskFilesystem, Inquiry, Lookup, WantedFile};
use super::mounts::{FilesystemMount, Mounts};
use deburr_core::recording::{DevId, FileState, Mount};
use deburr_core::text::name;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Files that are looked up in the kernel per second; each costs some 10 us.
const LOOKUPS_PER_SECOND: u32 = 100;
/// The same in the last second, when all names are looked up again: some 10 ms.
const LOOKUPS_AT_THE_END: u32 = 1000;
/// Time that answers may take per second, and in the last second: filesystems may have to read from a busy disk.
const TIME_PER_SECOND: Duration = Duration::from_millis(300);
const TIME_AT_THE_END: Duration = Duration::from_secs(2);

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
    asked: Box<dyn AskFilesystem>,
    left: u32,
    time_left: Duration,
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
    /// Reads the mounts. `proc` is `/proc` except in tests; filesystems are asked through `asked`.
    pub(crate) fn new(proc: &Path, asked: impl AskFilesystem + 'static) -> Self {
        Self {
            mounts: Mounts::read(proc),
            asked: Box::new(asked),
            left: LOOKUPS_PER_SECOND,
            time_left: TIME_PER_SECOND,
        }
    }

    /// Called once a second: renews the budget of look-ups.
    pub(crate) fn second(&mut self) {
        (self.left, self.time_left) = (LOOKUPS_PER_SECOND, TIME_PER_SECOND);
        self.mounts.second();
    }

    /// Called in place of [`Self::second`] for the last second.
    pub(crate) fn last_second(&mut self) {
        self.second();
        (self.left, self.time_left) = (LOOKUPS_AT_THE_END, TIME_AT_THE_END);
    }

    /// The mount of a filesystem, as a fact of a recording.
    pub(crate) fn mount(&mut self, fs: DevId) -> Option<Mount> {
        self.mounts.fact(fs)
    }

    /// Whether mounts were left out, because there are too many.
    pub(crate) fn mounts_are_cut(&self) -> bool {
        self.mounts.is_cut()
    }

    /// The name of one file.
    pub(crate) fn name(&mut self, seen: &ObservedFile<'_>) -> Name {
        let unknown = || Name { path: String::new(), state: FileState::Nameless, confirmed: false };
        self.names(std::slice::from_ref(seen)).pop().unwrap_or_else(unknown)
    }

    /// The names of files, in their order.
    pub(crate) fn names(&mut self, seen: &[ObservedFile<'_>]) -> Vec<Name> {
        let mut as_seen = Vec::with_capacity(seen.len());
        let mut asked: BTreeMap<DevId, Vec<usize>> = BTreeMap::new();
        for (index, file) in seen.iter().enumerate() {
            let places = self.mounts.of(file.fs);
            if places.is_empty() {
                // Unmounted since: its name while it was mounted.
                as_seen.push(path_seen(self.mounts.former(file.fs), file));
                continue;
            }
            as_seen.push(path_seen(places, file));
            if self.left > 0 {
                self.left -= 1;
                asked.entry(file.fs).or_default().push(index);
            }
        }
        let mut names: Vec<Name> = as_seen.iter().map(|raw| raw.name(false)).collect();
        for (fs, indexes) in asked {
            let wanted = indexes.iter().map(|&index| {
                let raw = &as_seen[index];
                WantedFile::new(&seen[index], raw.has_place().then_some(&*raw.path))
            });
            let found = self.ask(fs, &wanted.collect::<Vec<_>>());
            for (&index, found) in indexes.iter().zip(found) {
                names[index] = self.confirm(&seen[index], &as_seen[index], found);
            }
        }
        names
    }

    /// What the filesystem answers about the first of these files, as far as the time reaches.
    fn ask(&mut self, fs: DevId, wanted: &[WantedFile]) -> Vec<Lookup> {
        let mut found = Vec::new();
        while found.len() < wanted.len() && !self.time_left.is_zero() {
            let inquiry = Inquiry::new(fs, self.mounts.of(fs), &wanted[found.len()..]);
            let begin = Instant::now();
            let answer = self.asked.ask(&inquiry);
            self.time_left = self.time_left.saturating_sub(begin.elapsed());
            match answer {
                Some(answer) if !answer.is_empty() => found.extend(answer),
                _ => break,
            }
        }
        found
    }

    /// The name of a file after the filesystem was asked.
    fn confirm(&mut self, seen: &ObservedFile<'_>, as_seen: &RawName, found: Lookup) -> Name {
        let linked = || RawName { state: FileState::Linked, ..as_seen.clone() }.name(true);
        let state = |deleted| if deleted { FileState::Deleted } else { FileState::Linked };
        if matches!(found, Lookup::Moved { .. }) {
            self.mounts.forget(seen.fs);
        }
        match found {
            Lookup::AsSeen
            | Lookup::Unable { is_there: true }
            | Lookup::Moved { is_there: true } => linked(),
            Lookup::At { path, deleted } => RawName { path, state: state(deleted) }.name(true),
            Lookup::Elsewhere { path, deleted } => {
                let joined = self.mounts.of(seen.fs).iter().find_map(|place| place.join(&path));
                let raw = joined.map_or(RawName { path, state: FileState::InFilesystem }, |path| {
                    RawName { path, state: state(deleted) }
                });
                raw.name(true)
            }
            Lookup::Unlinked | Lookup::Gone => as_seen.deleted().name(true),
            // The kernel has no name cached, or the file was renamed since: the name that was seen is the best known.
            Lookup::NoName => as_seen.name(seen.deleted),
            Lookup::Unable { is_there: false } | Lookup::Moved { is_there: false } => {
                as_seen.name(false)
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::AskHere;
    use std::cell::Cell;
    use std::fs;
    use std::os::linux::fs::MetadataExt as _;
    use std::rc::Rc;

    /// A file of a filesystem that is mounted everywhere.
    fn own() -> ObservedFile<'static> {
        let here = fs::metadata("/proc").unwrap();
        let dev = here.st_dev();
        let fs = DevId { major: rustix::fs::major(dev), minor: rustix::fs::minor(dev) };
        ObservedFile { in_fs: Some(b"/a"), ..ObservedFile::new(fs, here.st_ino(), 0) }
    }

    #[test]
    fn only_so_many_files_are_asked_for_in_a_second_and_at_the_end() {
        let mut resolver = Resolver::new(Path::new("/proc"), AskHere);
        let seen = own();
        for (is_last, most) in [(false, LOOKUPS_PER_SECOND), (true, LOOKUPS_AT_THE_END)] {
            if is_last {
                resolver.last_second();
            } else {
                resolver.second();
            }
            for asked in 0..most {
                assert_eq!(resolver.left, most - asked, "asked for {asked} files");
                resolver.name(&seen);
            }
            assert_eq!(resolver.names(&[seen, seen]).len(), 2);
            assert_eq!(resolver.left, 0);
        }
    }

    /// Answers slowly about one file at a time, and counts the questions; or does not answer.
    #[derive(Debug)]
    struct Slow {
        asked: Rc<Cell<usize>>,
        answers: bool,
    }

    impl AskFilesystem for Slow {
        fn ask(&mut self, _: &Inquiry) -> Option<Vec<Lookup>> {
            self.asked.set(self.asked.get() + 1);
            std::thread::sleep(TIME_PER_SECOND / 4);
            self.answers.then(|| vec![Lookup::AsSeen])
        }
    }

    #[test]
    fn a_filesystem_that_is_slow_or_silent_leaves_files_as_they_were_seen() {
        for (answers, most_asked, some) in [(true, 5, true), (false, 1, false)] {
            let asked = Rc::new(Cell::new(0));
            let slow = Slow { asked: Rc::clone(&asked), answers };
            let mut resolver = Resolver::new(Path::new("/proc"), slow);
            let names = resolver.names(&[own(); 50]);
            assert!((1..=most_asked).contains(&asked.get()), "{} questions", asked.get());
            assert_eq!(names.len(), 50);
            assert_eq!(names[0].confirmed, some);
            assert!(!names[49].confirmed && names[49].path.ends_with("/a"), "{:?}", names[49]);
        }
    }
}
