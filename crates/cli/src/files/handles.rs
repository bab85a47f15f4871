// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opens a file by its inode number, with the filesystem's own kind of file handle.

use super::lookup::WantedFile;
use super::mounts::FilesystemMount;
use deburr_core::procfs::fdinfo;
use deburr_sys::handle;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

/// Id of the tree that holds the files of a btrfs without subvolumes.
const BTRFS_TOP_LEVEL: u64 = 5;

/// The result of asking a filesystem for an inode.
#[derive(Debug)]
pub(super) enum InodeLookup {
    /// The file, opened for its name and attributes only.
    Opened(OwnedFd),
    /// The filesystem has no such inode (any more).
    Gone,
    /// It cannot be asked: no privileges, no support for handles, or an unknown kind of handle.
    Unable,
    /// Another filesystem is mounted there by now.
    Moved,
}

/// The mount that was asked last, kept open. While it is open its filesystem cannot be unmounted: it serves one series of
/// files.
#[derive(Debug, Default)]
pub(super) struct OpenMount(Option<(u64, OwnedFd)>);

impl OpenMount {
    /// Opens the mount, unless it is open already.
    fn at(&mut self, place: &FilesystemMount) -> Result<BorrowedFd<'_>, InodeLookup> {
        if self.0.as_ref().is_none_or(|(id, _)| *id != place.id) {
            self.0 = None;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
            let mount = rustix::fs::open(place.path(), flags, Mode::empty());
            let mount = mount.map_err(|_| InodeLookup::Unable)?;
            // Another filesystem would return a file of its own, or report that there is none.
            if mount_of(&mount) != Some(place.id) {
                return Err(InodeLookup::Moved);
            }
            self.0 = Some((place.id, mount));
        }
        self.0.as_ref().map(|(_, mount)| mount.as_fd()).ok_or(InodeLookup::Unable)
    }
}

/// Asks the filesystem of `place` for the inode.
pub(super) fn open(
    mount: &mut OpenMount,
    place: &FilesystemMount,
    seen: &WantedFile,
) -> InodeLookup {
    let generation = seen.generation;
    let Some((kind, bytes)) = encode(place, seen) else { return InodeLookup::Unable };
    let mount = match mount.at(place) {
        Ok(mount) => mount,
        Err(why) => return why,
    };
    match handle::open_path(mount, kind, &bytes) {
        Ok(file) => InodeLookup::Opened(file),
        Err(error) if error.raw_os_error() == Some(Errno::STALE.raw_os_error()) => {
            // On btrfs the number exists once per subvolume; XFS takes generation 0 for any.
            let sure = match place.fs_type.as_str() {
                "btrfs" => seen.subvolume != 0,
                "xfs" => generation != 0,
                _ => true,
            };
            if sure { InodeLookup::Gone } else { InodeLookup::Unable }
        }
        Err(_) => InodeLookup::Unable,
    }
}

/// Id of the mount that an open file is on.
fn mount_of(file: &OwnedFd) -> Option<u64> {
    fdinfo::mount_id(&fs::read(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?)
}

/// Type and bytes of a file handle. Its numbers are in native byte order.
fn encode(place: &FilesystemMount, seen: &WantedFile) -> Option<(i32, Vec<u8>)> {
    let (ino, generation) = (seen.ino, seen.generation.to_ne_bytes());
    Some(match place.fs_type.as_str() {
        "ext2" | "ext3" | "ext4" | "f2fs" => {
            (0x01, [u32::try_from(ino).ok()?.to_ne_bytes(), generation].concat())
        }
        "xfs" => (0x81, [&ino.to_ne_bytes()[..], &generation].concat()),
        "btrfs" => {
            let tree = match seen.subvolume {
                0 => place.subvolume().unwrap_or(BTRFS_TOP_LEVEL),
                subvolume => subvolume,
            };
            (0x4d, [&ino.to_ne_bytes()[..], &tree.to_ne_bytes(), &generation].concat())
        }
        _ => return None,
    })
}
