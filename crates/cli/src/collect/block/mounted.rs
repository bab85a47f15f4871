// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is mounted from which disk: whether a disk's blocks without a file are metadata of a filesystem.

use crate::collect::Roots;
use crate::files::Watch;
use deburr_core::procfs::mountinfo;
use deburr_core::recording::DevId;
use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

/// The filesystems that were mounted at some time of the session: a filesystem's last transfers come after it.
#[derive(Debug)]
pub(super) struct Mounted {
    watch: Watch,
    looked: bool,
    disks: HashSet<DevId>,
    btrfs: HashSet<DevId>,
}

impl Mounted {
    /// Knows of nothing yet.
    pub(super) fn new(roots: &Roots) -> Self {
        let (disks, btrfs) = (HashSet::new(), HashSet::new());
        Self { watch: Watch::new(&roots.proc), looked: false, disks, btrfs }
    }

    /// Looks at what is mounted now, if anything changed. `disk_of` yields the disk that a device is or lies on.
    pub(super) fn look(&mut self, roots: &Roots, mut disk_of: impl FnMut(DevId) -> DevId) {
        if !self.watch.changed() && self.looked {
            return;
        }
        self.looked = true;
        let text = std::fs::read(roots.proc.join("self/mountinfo")).unwrap_or_default();
        for mount in mountinfo::parse(&text).unwrap_or_default() {
            if mount.fs_type == "btrfs" {
                self.btrfs.insert(mount.fs);
            }
            // A filesystem of several devices has a number that is none of theirs.
            let dev = match mount.fs.major {
                0 if mount.source.starts_with(b"/") => {
                    device_number(OsString::from_vec(mount.source).as_ref())
                }
                0 => None,
                _ => Some(mount.fs),
            };
            self.disks.extend(dev.map(&mut disk_of));
        }
    }

    /// Whether a filesystem lies on that disk.
    pub(super) fn is_on(&self, disk: DevId) -> bool {
        self.disks.contains(&disk)
    }

    /// Whether that filesystem is btrfs.
    pub(super) fn is_btrfs(&self, fs: DevId) -> bool {
        self.btrfs.contains(&fs)
    }
}

/// The number of the device that a path leads to.
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
    use std::fs;

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
