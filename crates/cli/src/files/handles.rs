// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opens a file by its inode number, with the filesystem's own kind of handle.

use super::mounts::Place;
use super::resolver::Sighting;
use deburr_bpf::handle;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

/// Number of the tree that holds the files of a btrfs filesystem without subvolumes.
const BTRFS_TOP_LEVEL: u64 = 5;

/// How asking a filesystem for an inode ended.
#[derive(Debug)]
pub(super) enum Asked {
    /// The file, opened for its name and attributes only.
    Opened(OwnedFd),
    /// The filesystem has no such inode (any more).
    Gone,
    /// It cannot be asked: no privilege, no handles, a kind of handle that is not known here.
    Unable,
    /// Something else is mounted there by now.
    Moved,
}

/// Asks the filesystem of `place` for the inode that was seen.
pub(super) fn open(place: &Place, seen: &Sighting<'_>) -> Asked {
    let generation = seen.generation;
    let Some((kind, bytes)) = encode(place, seen) else { return Asked::Unable };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    // Not kept: an open file would keep the filesystem from being unmounted.
    let Ok(mount) = rustix::fs::open(place.path(), flags, Mode::empty()) else {
        return Asked::Unable;
    };
    // Another filesystem would answer about a file of its own, or that there is none.
    if mount_of(&mount) != Some(place.id) {
        return Asked::Moved;
    }
    match handle::open_path(mount.as_fd(), kind, &bytes) {
        Ok(file) => Asked::Opened(file),
        Err(error) if error.raw_os_error() == Some(Errno::STALE.raw_os_error()) => {
            // btrfs has the number once for each subvolume, XFS takes no generation for any.
            let sure = match place.fs_type.as_str() {
                "btrfs" => seen.subvolume != 0,
                "xfs" => generation != 0,
                _ => true,
            };
            if sure { Asked::Gone } else { Asked::Unable }
        }
        Err(_) => Asked::Unable,
    }
}

/// The number of the mount that an open file is on.
fn mount_of(file: &OwnedFd) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    text.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok())
}

/// Kind and bytes of a handle. Its numbers are in the machine's own order of bytes.
fn encode(place: &Place, seen: &Sighting<'_>) -> Option<(i32, Vec<u8>)> {
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
