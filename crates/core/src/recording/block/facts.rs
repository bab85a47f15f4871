// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices, filesystems, settings and files: what records of block IO refer to.

use super::ProcId;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A device number: of a disk, a partition, or a filesystem that has none (`0:39`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DevId {
    /// Major number, 12 bits.
    pub major: u32,
    /// Minor number, 20 bits.
    pub minor: u32,
}

impl DevId {
    /// From the kernel's `dev_t`: 12 bits of major above 20 of minor.
    #[must_use]
    pub fn from_kernel(dev: u32) -> Self {
        Self { major: dev >> 20, minor: dev & 0xf_ffff }
    }
}

impl fmt::Display for DevId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// Text that is not `major:minor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotADevice;

impl FromStr for DevId {
    type Err = NotADevice;

    fn from_str(text: &str) -> Result<Self, NotADevice> {
        let (major, minor) = text.trim().split_once(':').ok_or(NotADevice)?;
        let number = |text: &str| text.parse().map_err(|_| NotADevice);
        Ok(Self { major: number(major)?, minor: number(minor)? })
    }
}

/// A block device, at first sight and again when it goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its number.
    pub dev: DevId,
    /// Its name below `/sys/class/block`, decoded.
    pub name: String,
    /// The disk that it is a partition of; `None` = it is a whole disk.
    pub disk: Option<DevId>,
    /// First sector of a partition, in units of 512 bytes.
    pub start_sector: Option<u64>,
    /// Length in units of 512 bytes; `None` where unknown.
    pub sectors: Option<u64>,
    /// What is below a stacked device: the backing file of a loop device, or the disks of an array, decoded.
    pub backing: Option<String>,
    /// Whether it vanished during the window.
    pub gone: bool,
}

/// A mounted filesystem that IO was seen on, at first sight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// The filesystem's device number as `/proc/PID/mountinfo` has it (`s_dev`).
    pub fs: DevId,
    /// `ext4`, `xfs`, `btrfs`, ...
    pub fstype: String,
    /// What is mounted, decoded.
    pub source: String,
    /// Where the filesystem's root is mounted (the mount with the shortest `root`), decoded.
    pub point: String,
    /// Options of the mount and of the filesystem, joined by commas.
    pub options: String,
}

/// A file of the kernel that holds a setting, as it was at the start and again when it changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// When it was read.
    pub t_ns: u64,
    /// Its path: `/proc/sys/vm/dirty_expire_centisecs`, `/sys/block/sda/queue/scheduler`, ...
    pub path: String,
    /// Its content without the line's end, cut to 256 bytes; `None` = it does not exist or may not be read.
    pub value: Option<String>,
}

/// Identity of a file within one recording: a number that the recorder gives, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FileId(pub u32);

impl FileId {
    /// Stands for the many files beyond the number that a recording tells apart.
    pub const OTHERS: Self = Self(u32::MAX);
}

/// What is known of a file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileState {
    /// `path` was its name when it was last looked at: after an unmount, that of before.
    Linked,
    /// It was deleted; `path` is the name it had.
    Deleted,
    /// `path` is what the kernel's dentries told, relative to the filesystem's root: the mount is not known. With
    /// `.../` before it, only the end of a long path is known.
    InFilesystem,
    /// No name was found.
    Nameless,
}

/// A file, at first sight and again when its name is known better, or who dirtied it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Its identity in this recording.
    pub id: FileId,
    /// The filesystem that holds it (`s_dev`); an overlay's files are those of the layer below.
    pub fs: DevId,
    /// Inode number. On btrfs it is unique within a subvolume only.
    pub ino: u64,
    /// Inode generation: inode numbers are used again.
    pub generation: u32,
    /// Absolute path with its mount where `state` is [`FileState::Linked`] or `Deleted`, decoded; may be empty.
    pub path: String,
    /// What is known of it.
    pub state: FileState,
    /// Who was the first that was seen to dirty it while it was clean; `None` = nobody was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dirtied_by: Option<ProcId>,
}
