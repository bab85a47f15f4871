// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is on a disk: the first bytes of filesystems, and what `debugfs` prints about one.

use deburr_core::filesystem::debugfs;
use deburr_core::filesystem::superblock::Format;
use std::collections::BTreeSet;

/// Numbers that are asked for.
const ASKED: [u64; 4] = [1, 2, 12, 33_292_549];

pub(crate) fn superblock(data: &[u8]) -> bool {
    let format = Format::parse(data);
    let bytes = format.block_bytes();
    let fits = |bytes: u64| bytes.is_power_of_two() && (512..=65_536).contains(&bytes);
    assert!(bytes.is_none_or(fits), "{format:?}");
    assert_eq!(format.name().is_none(), format == Format::Unknown);
    format != Format::Unknown
}

pub(crate) fn answer(data: &[u8]) -> bool {
    let lines = data.split(|&byte| byte == b'\n').count();
    let asked = BTreeSet::from(ASKED);
    let inodes = debugfs::inodes(data);
    let paths = debugfs::paths(data, &asked);
    let in_use = debugfs::in_use(data);
    assert!(inodes.as_ref().map_or(0, |inodes| inodes.len()) <= lines);
    assert!(in_use.len() <= lines);
    if let Ok(paths) = &paths {
        assert!(paths.keys().all(|inode| asked.contains(inode)), "{paths:?}");
        let bytes: usize = paths.values().flatten().map(Vec::len).sum();
        assert!(bytes <= data.len(), "{bytes} bytes of names");
    }
    inodes.is_ok() || paths.is_ok() || !in_use.is_empty()
}
