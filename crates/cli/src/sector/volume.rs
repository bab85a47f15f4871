// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is at places of one filesystem's device.

use super::debugfs::Debugfs;
use super::device::{Block, SECTOR_BYTES, dev_of};
use super::format::Format;
use super::walk::{self, Walked};
use super::{FileFact, FilesystemFact, Found, Method, Progress, Question, What};
use crate::collect::Roots;
use crate::files::{Mounts, Place, Resolver, Sighting};
use deburr_core::recording::{DevId, FileState, name};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::PathBuf;

/// Inodes below this one are the filesystem's own, on ext2, ext3 and ext4.
const EXT_FIRST_INODE: u64 = 11;
const EXT_ROOT_INODE: u64 = 2;

/// Looks into one filesystem after the other.
#[derive(Debug)]
pub(super) struct Search<'a> {
    question: &'a Question<'a>,
    mounts: Mounts,
    resolver: Resolver,
    swaps: BTreeSet<DevId>,
    /// The filesystem of `--under`.
    under: Option<DevId>,
    under_used: bool,
    /// A method could be used.
    pub(super) looked: bool,
}

/// A filesystem, and its places that are asked for.
struct Volume<'a> {
    block: &'a Block,
    device: PathBuf,
    format: Result<Format, String>,
    mount: Option<Place>,
    fact: Option<FilesystemFact>,
    /// Sectors from its start.
    sectors: &'a [u64],
}

impl<'a> Search<'a> {
    pub(super) fn new(question: &'a Question<'a>, roots: &Roots) -> Result<Self, String> {
        let under = match question.under {
            None => None,
            Some(directory) => {
                let metadata = fs::metadata(directory).map_err(|error| {
                    format!("cannot look at `{}`: {error}", directory.display())
                })?;
                if !metadata.is_dir() {
                    return Err(format!("`{}` is not a directory", directory.display()));
                }
                Some(dev_of(metadata.dev()))
            }
        };
        let swaps = fs::read_to_string(roots.proc.join("swaps")).unwrap_or_default();
        let swaps = swaps.lines().filter_map(|line| {
            let metadata = fs::metadata(line.split_whitespace().next()?).ok()?;
            metadata.file_type().is_block_device().then(|| dev_of(metadata.rdev()))
        });
        Ok(Self {
            question,
            mounts: Mounts::read(&roots.proc),
            resolver: Resolver::new(&roots.proc),
            swaps: swaps.collect(),
            under,
            under_used: false,
            looked: false,
        })
    }

    /// Whether `--under` meant any of the filesystems that were looked into.
    pub(super) fn check_under(&self) -> Result<(), String> {
        match self.question.under {
            Some(directory) if !self.under_used => Err(format!(
                "`{}` is not on a filesystem that holds these sectors",
                directory.display()
            )),
            _ => Ok(()),
        }
    }

    /// What is at these sectors of a partition, or of a disk without any.
    pub(super) fn look(
        &mut self,
        block: &Block,
        sectors: &[u64],
        notes: &mut Vec<String>,
        progress: Progress<'_>,
    ) -> Vec<Found> {
        self.under_used |= self.under == Some(block.dev);
        if self.swaps.contains(&block.dev) {
            self.looked = true;
            let swap = Found { what: What::Swap, why: None, ..Found::unknown("") };
            return vec![swap; sectors.len()];
        }
        let volume = self.volume(block, sectors);
        let mut found = vec![None; sectors.len()];
        let mut why = Vec::new();
        if !block.holders.is_empty() {
            let holders = block.holders.join("`, `");
            why.push(format!(
                "`{}` is a part of `{holders}`, whose layout is not followed",
                block.name
            ));
        } else if volume.format == Ok(Format::Btrfs)
            || volume.mount.as_ref().is_some_and(|mount| mount.fs_type == "btrfs")
        {
            why.push("btrfs has addresses of its own, which are not followed to the device".into());
        } else {
            if self.question.method != Some(Method::Fiemap) {
                self.by_debugfs(&volume, &mut found, notes).unwrap_or_else(|error| why.push(error));
            }
            if self.question.method != Some(Method::Debugfs) && found.iter().any(Option::is_none) {
                self.by_walk(&volume, &mut found, notes, progress)
                    .unwrap_or_else(|error| why.push(error));
            }
        }
        let block_of = |sector: u64| {
            let bytes = volume.fact.as_ref()?.block_bytes?;
            (sector * SECTOR_BYTES).checked_div(bytes)
        };
        let filled = found.into_iter().zip(sectors).map(|(found, &sector)| Found {
            filesystem: volume.fact.clone(),
            block: block_of(sector),
            ..found.unwrap_or_else(|| Found::unknown(why.join("; ")))
        });
        filled.collect()
    }

    fn volume<'b>(&mut self, block: &'b Block, sectors: &'b [u64]) -> Volume<'b> {
        let device = PathBuf::from(format!("/dev/{}", block.name));
        let is_it = fs::metadata(&device).is_ok_and(|found| {
            found.file_type().is_block_device() && dev_of(found.rdev()) == block.dev
        });
        let format = match is_it {
            true => Format::read(&device)
                .map_err(|error| format!("cannot read `{}`: {error}", device.display())),
            false => Err(format!("`{}` is not that device", device.display())),
        };
        let mount = self.mounts.of(block.dev).iter().find(|place| !place.covered).cloned();
        let mount = mount.or_else(|| self.mounts.of_source(device.as_os_str().as_bytes()).cloned());
        // Of what is mounted, the kernel tells the kind and the block size.
        let told = format.as_ref().ok().and_then(|format| format.name()).map(str::to_owned);
        let kind = mount.as_ref().map(|mount| mount.fs_type.clone()).or(told);
        let bytes = format.as_ref().ok().and_then(|format| format.block_bytes()).or_else(|| {
            let mount = mount.as_ref().filter(|mount| mount.fs_type != "btrfs")?;
            Some(rustix::fs::statvfs(mount.path()).ok()?.f_frsize).filter(|bytes| *bytes > 0)
        });
        let fact = kind.map(|kind| FilesystemFact {
            kind,
            mounted_at: mount.as_ref().map(|mount| name::decode(&mount.shown(&mount.point))),
            block_bytes: bytes,
        });
        Volume { block, device, format, mount, fact, sectors }
    }

    /// Method 1. An error says why it could not be used.
    fn by_debugfs(
        &mut self,
        volume: &Volume<'_>,
        found: &mut [Option<Found>],
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
        let is_own = |ino: u64| ino < EXT_FIRST_INODE && ino != EXT_ROOT_INODE;
        let mut names = BTreeMap::new();
        let files: BTreeSet<u64> =
            inodes.values().flatten().copied().filter(|ino| !is_own(*ino)).collect();
        self.names(&debugfs, volume, &files, &mut names, notes);
        for (slot, &sector) in found.iter_mut().zip(volume.sectors) {
            let block = of_sector(sector);
            let class = |what| Found {
                what,
                method: Some(Method::Debugfs),
                why: None,
                ..Found::unknown("")
            };
            *slot = match inodes.get(&block) {
                Some(Some(ino)) if *ino == journal => Some(class(What::Journal)),
                Some(Some(ino)) if is_own(*ino) => Some(class(What::Metadata)),
                Some(Some(ino)) => {
                    let named = names.get(ino).cloned().unwrap_or_default();
                    Some(file_found(*ino, &named, sector * SECTOR_BYTES, volume))
                }
                Some(None) if used.get(&block) == Some(&true) => Some(Found {
                    why: Some(
                        "in use, and of no file with a name: the filesystem's own, or a \
                               deleted file that is still open"
                            .into(),
                    ),
                    ..class(What::Metadata)
                }),
                Some(None) if used.get(&block) == Some(&false) => Some(class(What::Free)),
                _ => None,
            };
        }
        Ok(())
    }

    /// Names of inodes: those that the kernel has in memory cost little, for the others all directories are read.
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
            // What the mount does not show keeps its path in the filesystem. What it shows is looked at: a name
            // with a line's end can pass for another file's.
            paths.retain_mut(|path| match mount.join(path) {
                None => true,
                Some(joined) => {
                    *path = joined;
                    fs::symlink_metadata(OsStr::from_bytes(path)).is_ok_and(|m| m.ino() == *ino)
                }
            });
        }
        names.retain(|_, paths| !paths.is_empty());
        // Renamed since its directory was last written to the device.
        for &ino in inodes.iter().filter(|ino| !names.contains_key(ino)).collect::<Vec<_>>() {
            let seen =
                Sighting { fs: volume.block.dev, ino, generation: 0, in_fs: None, deleted: false };
            let name = self.resolver.name(&seen);
            if name.state == FileState::Linked {
                names.insert(ino, vec![name.path.into_bytes()]);
            }
        }
    }

    /// Method 2. An error says why not all was found.
    fn by_walk(
        &mut self,
        volume: &Volume<'_>,
        found: &mut [Option<Found>],
        notes: &mut Vec<String>,
        progress: Progress<'_>,
    ) -> Result<(), String> {
        let start = match (self.question.under, &volume.mount) {
            (Some(directory), _) if self.under == Some(volume.block.dev) => {
                // Paths in answers are whole.
                fs::canonicalize(directory).map_err(|error| error.to_string())?
            }
            (Some(directory), _) => {
                return Err(format!("`{}` is on another filesystem", directory.display()));
            }
            (None, Some(mount)) => mount.path(),
            (None, None) => return Err("no filesystem of it is mounted".into()),
        };
        let open: BTreeSet<u64> = found
            .iter()
            .zip(volume.sectors)
            .filter(|(found, _)| found.is_none())
            .map(|(_, sector)| sector * SECTOR_BYTES)
            .collect();
        let places: Vec<u64> = open.into_iter().collect();
        let shared = volume.mount.as_ref().is_none_or(|mount| mount.fs_type == "xfs");
        let walked = walk::walk(&start, &places, shared, progress)?;
        self.looked = true;
        notes.push(walk_note(&walked, &start));
        for (slot, &sector) in
            found.iter_mut().zip(volume.sectors).filter(|(slot, _)| slot.is_none())
        {
            let Ok(index) = places.binary_search(&(sector * SECTOR_BYTES)) else { continue };
            let hits = &walked.hits[index];
            let Some(first) = hits.first() else { continue };
            let mut files: Vec<_> = hits
                .iter()
                .map(|hit| FileFact {
                    ino: hit.ino,
                    path: Some(name::decode(&hit.path)),
                    offset_bytes: Some(hit.offset_bytes),
                })
                .collect();
            files.sort_by(|a, b| (a.ino, &a.path).cmp(&(b.ino, &b.path)));
            *slot = Some(Found {
                what: if first.directory { What::Directory } else { What::File },
                files,
                method: Some(Method::Fiemap),
                why: None,
                ..Found::unknown("")
            });
        }
        Err("no file that was asked is there: metadata, journal, free space, or a file that was deleted, is \
             not written yet or could not be opened"
            .into())
    }
}

fn file_found(ino: u64, paths: &[Vec<u8>], place: u64, volume: &Volume<'_>) -> Found {
    let mounted = volume.mount.is_some();
    let directory = ino == EXT_ROOT_INODE
        || (mounted
            && paths.iter().any(|path| {
                fs::metadata(OsStr::from_bytes(path)).is_ok_and(|m| m.is_dir() && m.ino() == ino)
            }));
    let mut files: Vec<_> = paths
        .iter()
        .map(|path| FileFact {
            ino,
            path: Some(name::decode(path)),
            offset_bytes: mounted.then(|| walk::offset_in(path, place)).flatten(),
        })
        .collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let why = files.is_empty().then(|| "the inode has no name in any directory".to_owned());
    if files.is_empty() {
        files.push(FileFact { ino, path: None, offset_bytes: None });
    }
    Found {
        what: if directory { What::Directory } else { What::File },
        files,
        method: Some(Method::Debugfs),
        why,
        ..Found::unknown("")
    }
}

fn walk_note(walked: &Walked, start: &std::path::Path) -> String {
    let mut note = format!("asked {} files below `{}`", walked.files, start.display());
    if walked.unopened > 0 {
        note += &format!("; {} could not be opened", walked.unopened);
    }
    if walked.cut {
        note += "; there are more";
    }
    note
}
