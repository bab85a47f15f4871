// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which filesystem a device holds, from its first bytes.

/// How much of a device has to be read: up to the end of the magic number in the superblock of btrfs.
pub const HEAD_BYTES: u64 = 0x1_0048;

/// The filesystem on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// ext2, ext3 or ext4.
    Ext {
        /// Size of its blocks.
        block_bytes: u64,
        /// Inode of its journal; 0 = it has no internal journal.
        journal_ino: u64,
    },
    /// XFS.
    Xfs {
        /// Size of its blocks.
        block_bytes: u64,
    },
    /// btrfs.
    Btrfs,
    /// None of these.
    Unknown,
}

impl Format {
    /// From the first bytes of a device.
    #[must_use]
    pub fn parse(head: &[u8]) -> Self {
        let at =
            |offset: usize| -> Option<[u8; 4]> { head.get(offset..offset + 4)?.try_into().ok() };
        // ext: the superblock is at offset 1024, in little endian.
        let ext = |offset: usize| at(1024 + offset).map(u32::from_le_bytes);
        if ext(56).is_some_and(|word| word & 0xffff == 0xef53) {
            let shift = ext(24).unwrap_or_default();
            // The largest block size is 64 KiB.
            if shift <= 6 {
                let journal_ino = u64::from(ext(0xe0).unwrap_or_default());
                return Self::Ext { block_bytes: 1024 << shift, journal_ino };
            }
        }
        if at(0) == Some(*b"XFSB") {
            let block_bytes = u64::from(at(4).map(u32::from_be_bytes).unwrap_or_default());
            if block_bytes.is_power_of_two() && (512..=65_536).contains(&block_bytes) {
                return Self::Xfs { block_bytes };
            }
        }
        match head.get(0x1_0040..0x1_0048) {
            Some(b"_BHRfS_M") => Self::Btrfs,
            _ => Self::Unknown,
        }
    }

    /// The name of the filesystem, as in mount tables; `ext` for ext2, ext3 and ext4.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Ext { .. } => Some("ext"),
            Self::Xfs { .. } => Some("xfs"),
            Self::Btrfs => Some("btrfs"),
            Self::Unknown => None,
        }
    }

    /// Size of its blocks, if addresses are in blocks.
    #[must_use]
    pub fn block_bytes(self) -> Option<u64> {
        match self {
            Self::Ext { block_bytes, .. } | Self::Xfs { block_bytes } => Some(block_bytes),
            Self::Btrfs | Self::Unknown => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Format;
    use proptest::prelude::*;

    #[test]
    fn filesystems_are_known_by_their_magic_numbers() {
        let mut head = vec![0; 0x1_0048];
        assert_eq!(Format::parse(&head), Format::Unknown);
        head[1024 + 24] = 2;
        head[1024 + 56..1024 + 58].copy_from_slice(&[0x53, 0xef]);
        head[1024 + 0xe0] = 8;
        assert_eq!(Format::parse(&head), Format::Ext { block_bytes: 4096, journal_ino: 8 });
        head[1024 + 24] = 7;
        assert_eq!(Format::parse(&head), Format::Unknown, "no filesystem has such blocks");
        head[..8].copy_from_slice(b"XFSB\0\0\x10\0");
        assert_eq!(Format::parse(&head), Format::Xfs { block_bytes: 4096 });
        head[0] = 0;
        head[0x1_0040..].copy_from_slice(b"_BHRfS_M");
        assert_eq!(Format::parse(&head), Format::Btrfs);
    }

    proptest! {
        #[test]
        fn any_device_is_looked_at(head in prop::collection::vec(any::<u8>(), 0..2048)) {
            let _ = Format::parse(&head);
        }
    }
}
