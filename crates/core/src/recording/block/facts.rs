// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices, filesystems, settings and files that records of block IO refer to.

use super::{ProcId, Source, observed};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Device number of a disk or partition, or of a filesystem without a device (`0:39`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DevId {
    /// Major number, 12 bits.
    pub major: u32,
    /// Minor number, 20 bits.
    pub minor: u32,
}

impl DevId {
    /// From the kernel's `dev_t`: 12 bits of major number above 20 bits of minor number.
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

/// Error: a text is not `major:minor`.
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

/// A block device. Recorded when it is first seen, and again when it is removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Device number.
    pub dev: DevId,
    /// Name below `/sys/class/block`, decoded.
    pub name: String,
    /// The disk that it is a partition of, or that it alone lies on as a stacked device (LVM, dm-crypt); `None` = it is a
    /// whole disk, lies on several, or has requests of its own (multipath).
    pub disk: Option<DevId>,
    /// First sector of a partition, in units of 512 bytes.
    pub start_sector: Option<u64>,
    /// Length in units of 512 bytes; `None` where unknown.
    pub sectors: Option<u64>,
    /// Backing store of a stacked device, decoded: the file of a loop device, or the disks of an array.
    pub backing: Option<String>,
    /// Whether it was removed during the window.
    pub gone: bool,
}

observed! { it: Device; to it.disk }

/// A mounted filesystem with IO. Recorded when it is first seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// The filesystem's device number as `/proc/PID/mountinfo` has it (`s_dev`).
    pub fs: DevId,
    /// `ext4`, `xfs`, `btrfs`, ...
    pub fstype: String,
    /// Source of the mount (the device), decoded.
    pub source: String,
    /// Where the filesystem's root is mounted (the mount with the shortest `root`), decoded.
    pub point: String,
    /// Options of the mount and of the filesystem, joined by commas.
    pub options: String,
}

observed! { it: Mount, from Source::Settings }

/// A kernel file that holds a setting. Recorded at the start, and again when it changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Timestamp of the reading.
    pub t_ns: u64,
    /// Path: `/proc/sys/vm/dirty_expire_centisecs`, `/sys/block/sda/queue/scheduler`, ...
    pub path: String,
    /// Content without the trailing newline, truncated to 256 bytes; `None` = it does not exist or cannot be read.
    pub value: Option<String>,
}

observed! { it: Setting at t_ns, from Source::Settings }

/// Identity of a file within one recording: a number that the recorder assigns, counting from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FileId(pub u32);

impl FileId {
    /// Stands for all files beyond the number that a recording distinguishes.
    pub const OTHERS: Self = Self(u32::MAX);
}

/// What is known of a file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileState {
    /// `path` was its name at the last look-up. After an unmount, the name before it.
    Linked,
    /// The file was deleted; `path` is its former name.
    Deleted,
    /// `path` comes from the kernel's dentries and is relative to the filesystem's root, because the mount is not
    /// known. A prefix `.../` means that only the end of a long path is known.
    InFilesystem,
    /// No name was found.
    Nameless,
}

/// A file. Recorded when it is first seen, and again when more is known of its name or of the process that dirtied it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Identity in this recording.
    pub id: FileId,
    /// The filesystem that holds it (`s_dev`); for files of an overlay, the filesystem of the layer below.
    pub fs: DevId,
    /// Inode number. On btrfs it is unique within a subvolume only.
    pub ino: u64,
    /// Inode generation, because inode numbers are reused.
    pub generation: u32,
    /// Absolute path including its mount point if `state` is [`FileState::Linked`] or `Deleted`, decoded; may be empty.
    pub path: String,
    /// What is known of the name.
    pub state: FileState,
    /// The first process that was seen to dirty it while it was clean; `None` = none was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dirtied_by: Option<ProcId>,
}

observed! { it: File; to it.dirtied_by }
