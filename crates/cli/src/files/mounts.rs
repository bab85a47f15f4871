// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where filesystems are mounted, by their device number (`s_dev`).

use super::watch::MountWatch;
use deburr_core::procfs::mountinfo::{self, Mount};
use deburr_core::recording::{self, DevId};
use deburr_core::text::name;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// Maximum length of the mount table of another namespace: some 50 000 mounts, which take 0.1 s.
const MAX_TABLE_BYTES: u64 = 8 << 20;
/// Maximum number of other mount namespaces that are read, and of processes that are checked for theirs.
const MAX_NAMESPACES: usize = 64;
const MAX_PIDS: usize = 8192;
/// Seconds between two searches for a filesystem that was found nowhere.
const SEARCH_EVERY: u32 = 10;

/// One mount of a filesystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilesystemMount {
    /// Mount id of the kernel.
    pub(crate) id: u64,
    /// The directory (or file) of the filesystem that is mounted: the root of the mount.
    pub(crate) root: Vec<u8>,
    /// Mount point, in its mount namespace.
    pub(crate) point: Vec<u8>,
    /// Prefix of the path: empty, or `/proc/PID/root` for another mount namespace.
    pub(crate) outside: Vec<u8>,
    /// Whether another mount covers it.
    pub(crate) covered: bool,
    /// `ext4`, ...
    pub(crate) fs_type: String,
    source: Vec<u8>,
    options: Vec<String>,
}

impl FilesystemMount {
    fn new(mount: &Mount, table: &MountTable<'_>, outside: &[u8]) -> Self {
        let mut options = mount.options.clone();
        options.extend(mount.super_options.iter().filter(|o| !mount.options.contains(o)).cloned());
        Self {
            id: mount.id,
            root: mount.root.clone(),
            point: mount.mount_point.clone(),
            outside: outside.to_vec(),
            covered: table.is_covered(mount, None, 0),
            fs_type: mount.fs_type.clone(),
            source: mount.source.clone(),
            options,
        }
    }

    /// Id of the btrfs subvolume that is mounted.
    pub(crate) fn subvolume(&self) -> Option<u64> {
        self.options.iter().find_map(|option| option.strip_prefix("subvolid=")?.parse().ok())
    }

    /// The usable path of a file that is given from the root of its filesystem; `None` if this mount does not show it.
    pub(crate) fn join(&self, in_fs: &[u8]) -> Option<Vec<u8>> {
        let below = strip_directory(in_fs, &self.root)?;
        Some(glue(&self.shown(&self.point), below))
    }

    /// Converts a path in the mount's namespace into one that this process can use.
    pub(crate) fn shown(&self, path: &[u8]) -> Vec<u8> {
        if self.outside.is_empty() { path.to_vec() } else { glue(&self.outside, path) }
    }

    /// The mount point as this process can open it.
    pub(crate) fn path(&self) -> PathBuf {
        OsString::from_vec(self.shown(&self.point)).into()
    }
}

/// The rest of a path below a directory; `None` if the path is not below it.
pub(super) fn strip_directory<'a>(path: &'a [u8], directory: &[u8]) -> Option<&'a [u8]> {
    let path = path.strip_prefix(b"/").unwrap_or(path);
    let directory = directory.strip_prefix(b"/").unwrap_or(directory);
    let below = path.strip_prefix(directory)?;
    match below {
        [] => Some(below),
        [b'/', rest @ ..] => Some(rest),
        _ if directory.is_empty() => Some(below),
        _ => None,
    }
}

/// Joins a directory and a path below it with one `/`.
fn glue(directory: &[u8], below: &[u8]) -> Vec<u8> {
    let directory = directory.strip_suffix(b"/").unwrap_or(directory);
    let below = below.strip_prefix(b"/").unwrap_or(below);
    if below.is_empty() && !directory.is_empty() {
        return directory.to_vec();
    }
    [directory, b"/", below].concat()
}

/// A mount table, to be searched. Thousands of mounts are usual on hosts of containers.
struct MountTable<'a> {
    by_id: HashMap<u64, &'a Mount>,
    /// Ids of the mounts with that parent and mount point.
    at: HashMap<(u64, &'a [u8]), Vec<u64>>,
}

impl<'a> MountTable<'a> {
    fn new(all: &'a [Mount]) -> Self {
        let mut table = Self { by_id: HashMap::new(), at: HashMap::new() };
        for mount in all {
            table.by_id.entry(mount.id).or_insert(mount);
            table.at.entry((mount.parent, &mount.mount_point)).or_default().push(mount.id);
        }
        table
    }

    /// Whether another mount than `except` hides this one: it is mounted on this one's root, or under the same parent on
    /// a directory above this one's mount point; or the parent mount is hidden in one of these ways.
    fn is_covered(&self, mount: &Mount, except: Option<u64>, depth: u32) -> bool {
        let other_at = |parent: u64, point: &[u8]| {
            let there = self.at.get(&(parent, point)).into_iter().flatten();
            there.copied().any(|id| id != mount.id && Some(id) != except)
        };
        let point = &mount.mount_point;
        if other_at(mount.id, point) || above(point).any(|above| other_at(mount.parent, above)) {
            return true;
        }
        // No host has more levels; the text may be damaged.
        if depth > 64 || mount.parent == mount.id {
            return false;
        }
        let parent = self.by_id.get(&mount.parent);
        parent.is_some_and(|parent| self.is_covered(parent, Some(mount.id), depth + 1))
    }
}

/// The directories above a path, from the root on.
fn above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let slashes = (0..path.len()).filter(|&at| path[at] == b'/');
    slashes.map(|at| &path[..at.max(1)]).filter(|above| above.len() < path.len())
}

/// A file's text; `None` if it is longer than a mount table may be.
fn whole(file: &Path) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let read = fs::File::open(file).ok()?.take(MAX_TABLE_BYTES + 1).read_to_end(&mut text).ok()?;
    (read as u64 <= MAX_TABLE_BYTES).then_some(text)
}

/// All mounts that are known.
#[derive(Debug)]
pub(crate) struct Mounts {
    proc: PathBuf,
    places: BTreeMap<DevId, Vec<FilesystemMount>>,
    /// Former mounts of filesystems.
    former: BTreeMap<DevId, Vec<FilesystemMount>>,
    watch: MountWatch,
    /// Seconds until the next search is allowed.
    wait: u32,
}

impl Mounts {
    /// Reads the mounts of this process. `proc` is `/proc` except in tests.
    pub(crate) fn read(proc: &Path) -> Self {
        let mut mounts = Self {
            proc: proc.to_owned(),
            places: BTreeMap::new(),
            former: BTreeMap::new(),
            watch: MountWatch::new(proc),
            wait: 0,
        };
        mounts.read_own();
        mounts
    }

    /// The mounts of a filesystem, the best first: those that are not covered, then those of the filesystem's root or
    /// the directory nearest to it. Empty if it is mounted in no mount namespace that could be read.
    pub(crate) fn of(&mut self, fs: DevId) -> &[FilesystemMount] {
        if !self.places.contains_key(&fs) && self.wait == 0 {
            self.wait = SEARCH_EVERY;
            self.read_own();
            if !self.places.contains_key(&fs) {
                self.read_others();
            }
        }
        self.places.get(&fs).map_or(&[], Vec::as_slice)
    }

    /// The mounts that a filesystem had before it was unmounted. Empty if it is mounted, or never was.
    pub(crate) fn former(&self, fs: DevId) -> &[FilesystemMount] {
        if self.places.contains_key(&fs) {
            return &[];
        }
        self.former.get(&fs).map_or(&[], Vec::as_slice)
    }

    /// A mount with that source in the mount table: for filesystems whose number is not that of their device.
    pub(crate) fn of_source(&self, source: &[u8]) -> Option<&FilesystemMount> {
        self.places.values().flatten().find(|place| place.source == source && !place.covered)
    }

    /// The filesystems that are mounted in this namespace and lie on a block device, with their source.
    pub(crate) fn on_devices(&self) -> Vec<(DevId, PathBuf)> {
        let own = |places: &'_ Vec<FilesystemMount>| {
            let place = places.iter().find(|place| place.outside.is_empty())?;
            Some(PathBuf::from(OsString::from_vec(place.source.clone())))
        };
        let mounted = self.places.iter().filter_map(|(fs, places)| Some((*fs, own(places)?)));
        // Some filesystems (btrfs) have a number of their own, and their device is known only by its name.
        mounted.filter(|(fs, source)| fs.major != 0 || source.starts_with("/dev/")).collect()
    }

    /// The mount of a filesystem, as a fact of a recording.
    pub(crate) fn fact(&mut self, fs: DevId) -> Option<recording::Mount> {
        let place = self.of(fs).first()?;
        Some(recording::Mount {
            fs,
            fstype: place.fs_type.clone(),
            source: name::decode(&place.source),
            point: name::decode(&place.shown(&place.point)),
            options: place.options.join(","),
        })
    }

    /// Removes the mounts of a filesystem, because it is no longer where it was found. It is searched again when it is
    /// asked for.
    pub(crate) fn forget(&mut self, fs: DevId) {
        if let Some(places) = self.places.remove(&fs) {
            self.former.insert(fs, places);
        }
    }

    /// Called once a second: reads the mounts again if they changed.
    pub(crate) fn second(&mut self) {
        self.wait = self.wait.saturating_sub(1);
        if self.watch.changed() {
            self.read_own();
        }
    }

    fn read_own(&mut self) {
        let text = fs::read(self.proc.join("self/mountinfo")).unwrap_or_default();
        let is_own =
            |places: &Vec<FilesystemMount>| places.iter().all(|place| place.outside.is_empty());
        let (own, others) =
            std::mem::take(&mut self.places).into_iter().partition(|(_, p)| is_own(p));
        self.places = others;
        self.former.extend::<BTreeMap<_, _>>(own);
        self.add(&text, &[]);
    }

    /// Reads the mounts in the mount namespaces of other processes, from one process of each namespace.
    fn read_others(&mut self) {
        let own = fs::read_link(self.proc.join("self/ns/mnt")).ok();
        let mut seen: BTreeSet<PathBuf> = own.into_iter().collect();
        let Ok(entries) = fs::read_dir(&self.proc) else { return };
        let pids = entries.flatten().filter_map(|entry| {
            entry.file_name().to_str()?.parse::<u32>().is_ok().then(|| entry.path())
        });
        for process in pids.take(MAX_PIDS) {
            // Without privileges, the namespaces of other users' processes can be neither identified nor entered.
            let Ok(namespace) = fs::read_link(process.join("ns/mnt")) else { continue };
            if seen.len() > MAX_NAMESPACES {
                return;
            }
            if !seen.insert(namespace) {
                continue;
            }
            let text = whole(&process.join("mountinfo")).unwrap_or_default();
            let outside = process.join("root").into_os_string().into_vec();
            self.add(&text, &outside);
        }
    }

    fn add(&mut self, text: &[u8], outside: &[u8]) {
        let all = mountinfo::parse(text).unwrap_or_default();
        let table = MountTable::new(&all);
        let mut found: BTreeMap<DevId, Vec<FilesystemMount>> = BTreeMap::new();
        for mount in &all {
            found.entry(mount.fs).or_default().push(FilesystemMount::new(mount, &table, outside));
        }
        for (fs, mut places) in found {
            // A stable sort: of equals, the one that was mounted first stays first.
            places.sort_by_key(|place| (place.covered, place.root.len(), place.point.len()));
            if outside.is_empty() {
                self.places.insert(fs, places);
            } else {
                // A mount in this namespace, or one that was found before, is preferred.
                self.places.entry(fs).or_insert(places);
            }
        }
    }
}

#[cfg(test)]
mod tests;
