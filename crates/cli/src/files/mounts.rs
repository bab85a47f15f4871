// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where filesystems are mounted, by their device number (`s_dev`).

mod table;

use super::octets;
use super::watch::MountWatch;
use deburr_core::procfs::mountinfo::{self, Mount};
use deburr_core::recording::{self, DevId};
use deburr_core::text::name;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use table::MountTable;

/// Bytes of this namespace's mount table that are read: far more than hosts have.
const MAX_OWN_BYTES: u64 = 64 << 20;
/// The same for the table of another namespace (some 50 000 mounts, which take 0.1 s), and for all of them in a search.
const MAX_TABLE_BYTES: u64 = 8 << 20;
const MAX_SEARCH_BYTES: u64 = 32 << 20;
/// Maximum number of other mount namespaces that are read in a search; of those whose process belongs to one user other
/// than root; and of processes that are checked for theirs.
const MAX_NAMESPACES: usize = 256;
const MAX_NAMESPACES_OF_USER: usize = 16;
const MAX_PIDS: usize = 32_768;
/// Mounts that are kept per filesystem: the best.
const MAX_PLACES: usize = 64;
/// Filesystems that are kept per other mount namespace.
const MAX_FILESYSTEMS: usize = 2048;
/// Filesystems that nothing is ever written back to: of other namespaces they are not kept.
const NEVER_WRITTEN: [&str; 9] =
    ["tmpfs", "proc", "sysfs", "cgroup", "cgroup2", "devpts", "devtmpfs", "mqueue", "overlay"];
/// Seconds between two searches for a filesystem that was found nowhere.
const SEARCH_EVERY: u32 = 10;

/// One mount of a filesystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FilesystemMount {
    /// Mount id of the kernel.
    pub(crate) id: u64,
    /// The directory (or file) of the filesystem that is mounted: the root of the mount.
    #[serde(with = "octets")]
    pub(crate) root: Vec<u8>,
    /// Mount point, in its mount namespace.
    #[serde(with = "octets")]
    pub(crate) point: Vec<u8>,
    /// Prefix of the path: empty, or `/proc/PID/root` for another mount namespace.
    #[serde(with = "octets")]
    pub(crate) outside: Vec<u8>,
    /// Whether another mount covers it.
    pub(crate) covered: bool,
    /// `ext4`, ...
    pub(crate) fs_type: String,
    #[serde(with = "octets")]
    source: Vec<u8>,
    options: Vec<String>,
}

impl FilesystemMount {
    pub(super) fn new(mount: &Mount, covered: bool, outside: &[u8]) -> Self {
        let mut options = mount.options.clone();
        options.extend(mount.super_options.iter().filter(|o| !mount.options.contains(o)).cloned());
        Self {
            id: mount.id,
            root: mount.root.clone(),
            point: mount.mount_point.clone(),
            outside: outside.to_vec(),
            covered,
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

/// The whole lines among the first bytes of a file, and whether that is all of it.
fn lines_of(file: &Path, most_bytes: u64) -> (Vec<u8>, bool) {
    let mut text = Vec::new();
    // What was read before an error is of use.
    let _ = fs::File::open(file).and_then(|file| file.take(most_bytes).read_to_end(&mut text));
    let whole = (text.len() as u64) < most_bytes;
    if !whole {
        text.truncate(text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1));
    }
    (text, whole)
}

/// Filesystems of which the former mounts are kept, and filesystems that are mounted in other namespaces only.
const MAX_FORMER: usize = 1024;
const MAX_OTHERS: usize = 4096;

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
    /// Whether a mount table was too long, or there were too many of them.
    is_cut: bool,
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
            is_cut: false,
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

    /// Whether mounts were left out, because there are too many.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
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
        let (text, whole) = lines_of(&self.proc.join("self/mountinfo"), MAX_OWN_BYTES);
        self.is_cut |= !whole;
        let is_own =
            |places: &Vec<FilesystemMount>| places.iter().all(|place| place.outside.is_empty());
        let (own, others) =
            std::mem::take(&mut self.places).into_iter().partition(|(_, p)| is_own(p));
        self.places = others;
        self.former.extend::<BTreeMap<_, _>>(own);
        self.add(&text, &[]);
        // Of those that are mounted, the former mounts are of no use.
        self.former.retain(|fs, _| !self.places.contains_key(fs));
        while self.former.len() > MAX_FORMER {
            self.former.pop_first();
        }
    }

    /// Reads the mounts in the mount namespaces of other processes, from one process of each namespace.
    fn read_others(&mut self) {
        // Those that were found before are found again, if they are still there and asked for.
        let is_own = |place: &FilesystemMount| place.outside.is_empty();
        if self.places.values().filter(|places| !places.iter().all(is_own)).count() > MAX_OTHERS {
            self.places.retain(|_, places| places.iter().all(is_own));
        }
        let own = fs::read_link(self.proc.join("self/ns/mnt")).ok();
        let mut seen: BTreeSet<PathBuf> = own.into_iter().collect();
        let mut of_users: HashMap<u32, usize> = HashMap::new();
        let mut bytes_left = MAX_SEARCH_BYTES;
        let Ok(entries) = fs::read_dir(&self.proc) else { return };
        let pids = entries.flatten().filter_map(|entry| {
            entry.file_name().to_str()?.parse::<u32>().is_ok().then(|| entry.path())
        });
        for (count, process) in pids.enumerate() {
            if count >= MAX_PIDS || seen.len() > MAX_NAMESPACES || bytes_left == 0 {
                self.is_cut = true;
                return;
            }
            // Without privileges, the namespaces of other users' processes can be neither identified nor entered.
            let Ok(namespace) = fs::read_link(process.join("ns/mnt")) else { continue };
            if seen.contains(&namespace) {
                continue;
            }
            let Ok(user) = fs::metadata(&process).map(|meta| meta.uid()) else { continue };
            let of_user = of_users.entry(user).or_default();
            if user != 0 && *of_user >= MAX_NAMESPACES_OF_USER {
                self.is_cut = true;
                continue;
            }
            *of_user += 1;
            seen.insert(namespace);
            let most_bytes = MAX_TABLE_BYTES.min(bytes_left);
            let (text, whole) = lines_of(&process.join("mountinfo"), most_bytes);
            self.is_cut |= !whole;
            bytes_left = bytes_left.saturating_sub(text.len() as u64);
            let outside = process.join("root").into_os_string().into_vec();
            self.add(&text, &outside);
        }
    }

    fn add(&mut self, text: &[u8], outside: &[u8]) {
        let all = mountinfo::parse(text).unwrap_or_default();
        let mut table = MountTable::new(&all);
        let mut found: BTreeMap<DevId, Vec<FilesystemMount>> = BTreeMap::new();
        for (index, mount) in all.iter().enumerate() {
            if !outside.is_empty() && NEVER_WRITTEN.contains(&mount.fs_type.as_str()) {
                continue;
            }
            let is_known = outside.is_empty() || found.contains_key(&mount.fs);
            if !is_known && found.len() >= MAX_FILESYSTEMS {
                self.is_cut = true;
                continue;
            }
            let place = FilesystemMount::new(mount, table.is_covered(index), outside);
            found.entry(mount.fs).or_default().push(place);
        }
        for (fs, mut places) in found {
            // A stable sort: of equals, the one that was mounted first stays first.
            places.sort_by_key(|place| (place.covered, place.root.len(), place.point.len()));
            places.truncate(MAX_PLACES);
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
