// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of files, as read from the kernel's dentries.

use crate::skel::block::types::block_name;
use std::mem::offset_of;

/// A file's name at its first observed transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstName {
    /// Its filesystem (`s_dev`, the kernel's `dev_t`).
    pub fs: u32,
    /// Inode number.
    pub ino: u64,
    /// Inode generation.
    pub generation: u32,
    /// The btrfs subvolume within which the inode number is unique; 0 = none.
    pub subvolume: u64,
    /// Path relative to the filesystem's root, without a leading slash; empty = the kernel had no name in memory. For a
    /// file with several hard links, one of its paths.
    pub path: Vec<u8>,
    /// `path` has all components; otherwise it is the end of a longer path.
    pub complete: bool,
    /// The file was deleted; `path` is its former name.
    pub deleted: bool,
}

/// Decodes a `struct block_name`; `None` = malformed.
pub(super) fn decode(bytes: &[u8]) -> Option<FirstName> {
    let head = offset_of!(block_name, path);
    if bytes.len() < head {
        return None;
    }
    let number = |at: usize, size: usize| {
        let mut number = [0; 8];
        number[..size].copy_from_slice(&bytes[at..at + size]);
        // Native byte order: on big-endian machines the copied bytes are the most
        // significant ones, and are moved to the end.
        if cfg!(target_endian = "big") {
            number.rotate_right(8 - size);
        }
        u64::from_ne_bytes(number)
    };
    let length = number(offset_of!(block_name, length), 2) as usize;
    let text = bytes.get(head..head + length)?;
    let complete = bytes[offset_of!(block_name, complete)] != 0;
    Some(FirstName {
        ino: number(offset_of!(block_name, ino), 8),
        fs: number(offset_of!(block_name, fs), 4) as u32,
        subvolume: number(offset_of!(block_name, subvolume), 8),
        generation: number(offset_of!(block_name, generation), 4) as u32,
        path: path(text),
        complete,
        deleted: bytes[offset_of!(block_name, deleted)] != 0,
    })
}

/// Builds a path from its components, which are given from the last to the first, each terminated by a 0.
fn path(text: &[u8]) -> Vec<u8> {
    let Some(text) = text.strip_suffix(&[0]) else { return Vec::new() };
    let parts: Vec<_> = text.split(|byte| *byte == 0).rev().collect();
    parts.join(&b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_are_told_from_the_last_to_the_first() {
        assert_eq!(path(b"file\0dir\0top\0"), b"top/dir/file");
        assert_eq!(path(b"file\0"), b"file");
        assert_eq!(path(b""), b"");
    }

    #[test]
    fn what_is_too_short_is_no_name() {
        assert_eq!(decode(&[]), None);
        let mut bytes = vec![0; offset_of!(block_name, path)];
        assert!(decode(&bytes).is_some());
        bytes[offset_of!(block_name, length)] = 1;
        bytes[offset_of!(block_name, length) + 1] = 1;
        assert_eq!(decode(&bytes), None);
    }
}
