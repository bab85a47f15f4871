// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which disks hold mounted filesystems. On those, blocks that belong to no file are metadata.

use crate::collect::Roots;
use crate::files::MountWatch;
use deburr_core::procfs::mountinfo;
use deburr_core::recording::DevId;
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// The filesystems that were mounted at some time of the session: the last transfers of a filesystem may come after
/// it was unmounted.
#[derive(Debug)]
pub(super) struct Mounted {
    watch: MountWatch,
    looked: bool,
    disks: HashSet<DevId>,
    btrfs: HashSet<DevId>,
    /// The disk of each btrfs, if it is one only, and its directory in `/sys`.
    btrfs_disks: HashMap<DevId, (Option<DevId>, Option<Btrfs>)>,
    xfs: bool,
}

impl Mounted {
    /// Knows of no mounts yet.
    pub(super) fn new(roots: &Roots) -> Self {
        Self {
            watch: MountWatch::new(&roots.proc),
            looked: false,
            disks: HashSet::new(),
            btrfs: HashSet::new(),
            btrfs_disks: HashMap::new(),
            xfs: false,
        }
    }

    /// Reads the mounts if anything changed. `disk_of` returns the disk that a device is or lies on.
    pub(super) fn look(&mut self, roots: &Roots, mut disk_of: impl FnMut(DevId) -> DevId) {
        if !self.watch.changed() && self.looked {
            return;
        }
        self.looked = true;
        let text = fs::read(roots.proc.join("self/mountinfo")).unwrap_or_default();
        for mount in mountinfo::parse(&text).unwrap_or_default() {
            let is_new = mount.fs_type == "btrfs" && self.btrfs.insert(mount.fs);
            self.xfs |= mount.fs_type == "xfs";
            // A filesystem that may lie on several devices has a number that is none of theirs.
            let dev = match mount.fs.major {
                // The source is what the one who mounted it chose to say: of other types it may be anything.
                0 if mount.fs_type == "btrfs" && mount.source.starts_with(b"/dev/") => {
                    device_number(OsString::from_vec(mount.source).as_ref())
                }
                0 => None,
                _ => Some(mount.fs),
            };
            let disk = dev.map(&mut disk_of);
            if is_new && let (Some(dev), Some(disk)) = (dev, disk) {
                let btrfs = Btrfs::of_device(&roots.sys, dev);
                let disk = btrfs.as_ref().is_none_or(|btrfs| btrfs.devices == 1).then_some(disk);
                self.btrfs_disks.insert(mount.fs, (disk, btrfs));
            }
            self.disks.extend(disk);
        }
    }

    /// Whether a mounted filesystem lies on that disk.
    pub(super) fn is_on(&self, disk: DevId) -> bool {
        self.disks.contains(&disk)
    }

    /// The disk of a filesystem whose number is not that of a device, if it lies on one disk only.
    pub(super) fn only_disk_of(&self, fs: DevId) -> Option<DevId> {
        self.btrfs_disks.get(&fs)?.0
    }

    /// The btrfs that were mounted.
    pub(super) fn all_btrfs(&self) -> impl Iterator<Item = DevId> {
        self.btrfs.iter().copied()
    }

    /// The kernel's counters of the commits of a btrfs.
    pub(super) fn commits_of(&self, fs: DevId) -> Option<Commits> {
        self.btrfs_disks.get(&fs)?.1.as_ref()?.commits()
    }

    /// Whether an xfs was mounted.
    pub(super) fn has_xfs(&self) -> bool {
        self.xfs
    }

    /// Whether that filesystem is btrfs.
    pub(super) fn is_btrfs(&self, fs: DevId) -> bool {
        self.btrfs.contains(&fs)
    }
}

/// The directory of a btrfs in `/sys`: `/sys/fs/btrfs/UUID`.
#[derive(Debug)]
struct Btrfs {
    dir: PathBuf,
    devices: usize,
}

/// Commits of a btrfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Commits {
    /// Number of commits since it was mounted.
    pub(super) count: u64,
    /// Length of the last commit: nanoseconds, to whole milliseconds.
    pub(super) last_ns: u64,
}

impl Btrfs {
    /// The btrfs that has that device.
    fn of_device(sys: &Path, dev: DevId) -> Option<Self> {
        let dirs = fs::read_dir(sys.join("fs/btrfs")).ok()?.flatten().map(|entry| entry.path());
        dirs.filter_map(|dir| {
            let devices: Vec<_> = fs::read_dir(dir.join("devices")).ok()?.flatten().collect();
            let number = |device: &fs::DirEntry| {
                fs::read_to_string(device.path().join("dev")).ok()?.parse::<DevId>().ok()
            };
            let has = devices.iter().any(|device| number(device) == Some(dev));
            has.then_some(Self { dir, devices: devices.len() })
        })
        .next()
    }

    /// The counters in `commit_stats`; `None` if the kernel does not have them.
    fn commits(&self) -> Option<Commits> {
        let text = fs::read_to_string(self.dir.join("commit_stats")).ok()?;
        let number = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
            line.trim().parse::<u64>().ok()
        };
        let last_ns = number("last_commit_ms")?.saturating_mul(1_000_000);
        Some(Commits { count: number("commits")?, last_ns })
    }
}

/// The number of the block device at that path.
fn device_number(path: &Path) -> Option<DevId> {
    let stat = rustix::fs::stat(path).ok()?;
    let is_block = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_block_device();
    is_block.then(|| DevId {
        major: rustix::fs::major(stat.st_rdev),
        minor: rustix::fs::minor(stat.st_rdev),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filesystem_on_a_partition_lies_on_its_disk() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("self")).unwrap();
        let text = "22 1 252:1 / / rw - ext4 /dev/vda1 rw\n23 22 0:39 / /b rw - btrfs /none rw\n";
        fs::write(dir.path().join("self/mountinfo"), text).unwrap();
        let at = || dir.path().to_owned();
        let roots = Roots { proc: at(), sys: at(), root: at() };
        let mut mounted = Mounted::new(&roots);
        let disk = DevId { major: 252, minor: 0 };
        mounted.look(&roots, |_| disk);
        let btrfs = DevId { major: 0, minor: 39 };
        assert!(mounted.is_on(disk) && !mounted.is_on(btrfs));
        assert!(mounted.is_btrfs(btrfs) && !mounted.is_btrfs(disk));
    }
}
