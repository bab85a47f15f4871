// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What tells one inode from all others.

use deburr_core::recording::DevId;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// An inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Inode {
    /// `s_dev` of its filesystem.
    pub(super) fs: DevId,
    /// Its number.
    pub(super) ino: u64,
    /// Its generation: numbers are used again.
    pub(super) generation: u32,
    /// The subvolume of btrfs: only in it are the number and the generation unique. 0 = none.
    pub(super) subvolume: u64,
}

impl Inode {
    /// As the probes tell it, with the filesystem's `dev_t`.
    pub(super) fn new(fs: u32, ino: u64, generation: u32, subvolume: u64) -> Self {
        Self { fs: DevId::from_kernel(fs), ino, generation, subvolume }
    }

    /// Stands for it where very many are remembered, in a quarter of the memory. Two of a million inodes have the
    /// same one in one of 40 million sessions.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}
