// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What identifies an inode among all others of the host.

use deburr_core::recording::DevId;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// The identity of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Inode {
    /// `s_dev` of its filesystem.
    pub(super) fs: DevId,
    /// Inode number.
    pub(super) ino: u64,
    /// Generation of the inode: inode numbers are reused.
    pub(super) generation: u32,
    /// Subvolume of btrfs: number and generation are unique only within one. 0 = none.
    pub(super) subvolume: u64,
}

impl Inode {
    /// From the probes' values; `fs` is the `dev_t` of the filesystem.
    pub(super) fn new(fs: u32, ino: u64, generation: u32, subvolume: u64) -> Self {
        Self { fs: DevId::from_kernel(fs), ino, generation, subvolume }
    }

    /// A hash that replaces the inode where very many are kept, in a quarter of the memory. Among a million inodes, two
    /// have the same hash in one of 40 million sessions.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}
