// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What sectors of ext2, ext3 and ext4 hold, by debugfs.

use super::{FilesystemSearch, Volume};
use crate::files::ObservedFile;
use crate::sector::debugfs::Debugfs;
use crate::sector::device::SECTOR_BYTES;
use crate::sector::walk;
use crate::sector::{FileFact, Method, SectorContent, SectorUse};
use deburr_core::filesystem::superblock::Format;
use deburr_core::recording::FileState;
use deburr_core::text::name;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;

/// Inodes below this one belong to the filesystem itself, except the root directory.
const FIRST_INODE: u64 = 11;
const ROOT_INODE: u64 = 2;
/// End of the boot block and the superblock after it. With blocks of 2 KiB and more they are in block 0, which debugfs
/// does not accept as a block number.
const SUPERBLOCK_END_BYTES: u64 = 2048;

impl FilesystemSearch<'_> {
    /// Method 1: debugfs. An error says why it could not be used.
    pub(super) fn by_debugfs(
        &mut self,
        volume: &Volume<'_>,
        found: &mut [Option<SectorUse>],
        notes: &mut Vec<String>,
    ) -> Result<(), String> {
        let (block_bytes, journal) = match volume.format.clone()? {
            Format::Ext { block_bytes, journal_ino } => (block_bytes, journal_ino),
            _ => return Err("debugfs is for ext2, ext3 and ext4".into()),
        };
        let debugfs = Debugfs::find(&volume.device).ok_or("`debugfs` is not installed")?;
        let of_sector = |sector: u64| sector * SECTOR_BYTES / block_bytes;
        let blocks: BTreeSet<u64> = volume.sectors.iter().map(|&s| of_sector(s)).collect();
        let inodes = debugfs.inodes(&blocks)?;
        let without = inodes.iter().filter(|(_, ino)| ino.is_none()).map(|(&block, _)| block);
        self.looked = true;
        let used = debugfs.in_use(&without.collect())?;
        let is_own = |ino: u64| ino < FIRST_INODE && ino != ROOT_INODE;
        let mut names = BTreeMap::new();
        let files: BTreeSet<u64> =
            inodes.values().flatten().copied().filter(|ino| !is_own(*ino)).collect();
        self.names(&debugfs, volume, &files, &mut names, notes);
        for (slot, &sector) in found.iter_mut().zip(volume.sectors) {
            let block = of_sector(sector);
            let class = |what| SectorUse {
                what,
                method: Some(Method::Debugfs),
                why: None,
                ..SectorUse::unknown("")
            };
            *slot = match inodes.get(&block) {
                _ if block * block_bytes < SUPERBLOCK_END_BYTES => {
                    Some(class(SectorContent::Metadata))
                }
                Some(Some(ino)) if *ino == journal => Some(class(SectorContent::Journal)),
                Some(Some(ino)) if is_own(*ino) => Some(class(SectorContent::Metadata)),
                Some(Some(ino)) => {
                    let named = names.get(ino).cloned().unwrap_or_default();
                    Some(file_found(*ino, &named, sector * SECTOR_BYTES, volume))
                }
                Some(None) if used.get(&block) == Some(&true) => Some(SectorUse {
                    why: Some(
                        "in use, and of no file with a name: the filesystem's own, or a \
                               deleted file that is still open"
                            .into(),
                    ),
                    ..class(SectorContent::Metadata)
                }),
                Some(None) if used.get(&block) == Some(&false) => Some(class(SectorContent::Free)),
                _ => None,
            };
        }
        Ok(())
    }

    /// Finds the names of inodes: debugfs reads all directories for them, and the kernel is asked for those still
    /// missing.
    fn names(
        &mut self,
        debugfs: &Debugfs<'_>,
        volume: &Volume<'_>,
        inodes: &BTreeSet<u64>,
        names: &mut BTreeMap<u64, Vec<Vec<u8>>>,
        notes: &mut Vec<String>,
    ) {
        if inodes.is_empty() {
            return;
        }
        match debugfs.paths(inodes) {
            Ok(found) => names.extend(found),
            Err(error) => notes.push(format!("no names: {error}")),
        }
        let Some(mount) = &volume.mount else { return };
        for (ino, paths) in names.iter_mut() {
            paths.sort_unstable();
            paths.dedup();
            // A file that the mount does not show keeps its path in the filesystem. Others are checked: a name with a
            // newline can look like the name of another file.
            paths.retain_mut(|path| match mount.join(path) {
                None => true,
                Some(joined) => {
                    *path = joined;
                    fs::symlink_metadata(OsStr::from_bytes(path)).is_ok_and(|m| m.ino() == *ino)
                }
            });
        }
        names.retain(|_, paths| !paths.is_empty());
        // These were renamed since their directory was last written to the device.
        for &ino in inodes.iter().filter(|ino| !names.contains_key(ino)).collect::<Vec<_>>() {
            let seen = ObservedFile::new(volume.block.dev, ino, 0);
            let name = self.resolver.name(&seen);
            if name.state == FileState::Linked {
                names.insert(ino, vec![name.path.into_bytes()]);
            }
        }
    }
}

fn file_found(ino: u64, paths: &[Vec<u8>], place: u64, volume: &Volume<'_>) -> SectorUse {
    let mounted = volume.mount.is_some();
    let directory = ino == ROOT_INODE
        || (mounted
            && paths.iter().any(|path| {
                fs::metadata(OsStr::from_bytes(path)).is_ok_and(|m| m.is_dir() && m.ino() == ino)
            }));
    let mut files: Vec<_> = paths
        .iter()
        .map(|path| FileFact {
            ino,
            path: Some(name::decode(path)),
            deleted: false,
            offset_bytes: mounted.then(|| walk::offset_in(path, place)).flatten(),
        })
        .collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let why = files.is_empty().then(|| "the inode has no name in any directory".to_owned());
    if files.is_empty() {
        files.push(FileFact { ino, path: None, deleted: false, offset_bytes: None });
    }
    SectorUse {
        what: if directory { SectorContent::Directory } else { SectorContent::File },
        files,
        method: Some(Method::Debugfs),
        why,
        ..SectorUse::unknown("")
    }
}
