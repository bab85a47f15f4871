// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the sectors of a filesystem's device hold.

mod ext;

use super::device::{Block, SECTOR_BYTES, dev_of};
use super::format;
use super::walk::{self, FoundFile, WalkResult};
use super::{FileFact, FilesystemFact, Method, Progress, SectorContent, SectorRequest, SectorUse};
use crate::collect::Roots;
use crate::files::{AskHere, FilesystemMount, Mounts, Resolver};
use deburr_core::filesystem::superblock::Format;
use deburr_core::recording::DevId;
use deburr_core::text::name;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::PathBuf;

/// Searches one filesystem after the other.
#[derive(Debug)]
pub(super) struct FilesystemSearch<'a> {
    question: &'a SectorRequest<'a>,
    proc: PathBuf,
    mounts: Mounts,
    resolver: Resolver,
    swaps: BTreeSet<DevId>,
    /// The filesystem of `--under`.
    under: Option<DevId>,
    under_used: bool,
    /// Whether a method could be used.
    pub(super) looked: bool,
}

/// A filesystem, and the sectors that are asked for.
struct Volume<'a> {
    block: &'a Block,
    device: PathBuf,
    format: Result<Format, String>,
    mount: Option<FilesystemMount>,
    fact: Option<FilesystemFact>,
    /// Sectors from the start of its device.
    sectors: &'a [u64],
}

impl<'a> FilesystemSearch<'a> {
    pub(super) fn new(question: &'a SectorRequest<'a>, roots: &Roots) -> Result<Self, String> {
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
            proc: roots.proc.clone(),
            mounts: Mounts::read(&roots.proc),
            resolver: Resolver::new(&roots.proc, AskHere),
            swaps: swaps.collect(),
            under,
            under_used: false,
            looked: false,
        })
    }

    /// An error if `--under` is on none of the filesystems that were searched.
    pub(super) fn check_under(&self) -> Result<(), String> {
        match self.question.under {
            Some(directory) if !self.under_used => Err(format!(
                "`{}` is not on a filesystem that holds these sectors",
                directory.display()
            )),
            _ => Ok(()),
        }
    }

    /// What these sectors of a partition, or of a disk without partitions, hold.
    pub(super) fn look(
        &mut self,
        block: &Block,
        sectors: &[u64],
        notes: &mut Vec<String>,
        progress: Progress<'_>,
    ) -> Vec<SectorUse> {
        self.under_used |= self.under == Some(block.dev);
        if self.swaps.contains(&block.dev) {
            self.looked = true;
            let swap = SectorUse { what: SectorContent::Swap, why: None, ..SectorUse::unknown("") };
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
        if volume.mount.is_some() && self.question.method != Some(Method::Debugfs) {
            self.by_open_files(&volume, &mut found);
        }
        let block_of = |sector: u64| {
            let bytes = volume.fact.as_ref()?.block_bytes?;
            (sector * SECTOR_BYTES).checked_div(bytes)
        };
        let filled = found.into_iter().zip(sectors).map(|(found, &sector)| SectorUse {
            filesystem: volume.fact.clone(),
            block: block_of(sector),
            ..found.unwrap_or_else(|| SectorUse::unknown(why.join("; ")))
        });
        filled.collect()
    }

    fn volume<'b>(&mut self, block: &'b Block, sectors: &'b [u64]) -> Volume<'b> {
        let device = PathBuf::from(format!("/dev/{}", block.name));
        let is_it = fs::metadata(&device).is_ok_and(|found| {
            found.file_type().is_block_device() && dev_of(found.rdev()) == block.dev
        });
        let format = match is_it {
            true => format::read(&device)
                .map_err(|error| format!("cannot read `{}`: {error}", device.display())),
            false => Err(format!("`{}` is not that device", device.display())),
        };
        let mount = self.mounts.of(block.dev).iter().find(|place| !place.covered).cloned();
        let mount = mount.or_else(|| self.mounts.of_source(device.as_os_str().as_bytes()).cloned());
        // For a mounted filesystem, its type and block size come from the kernel.
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

    /// Fills in files that no directory holds any more, but some process has open.
    fn by_open_files(&self, volume: &Volume<'_>, found: &mut [Option<SectorUse>]) {
        let is_open = |found: &Option<SectorUse>| {
            found
                .as_ref()
                .is_none_or(|found| found.what == SectorContent::Metadata && found.why.is_some())
        };
        let places = places(found, volume.sectors, is_open);
        if places.is_empty() {
            return;
        }
        let hits = walk::deleted(&self.proc, volume.block.dev, &places);
        for (slot, sector) in found.iter_mut().zip(volume.sectors).filter(|(slot, _)| is_open(slot))
        {
            let Ok(index) = places.binary_search(&(sector * SECTOR_BYTES)) else { continue };
            if let Some(hit) = hits[index].first() {
                let files = vec![file_of(hit, true)];
                let method = Some(Method::Fiemap);
                *slot = Some(SectorUse {
                    what: SectorContent::File,
                    files,
                    method,
                    why: None,
                    ..SectorUse::unknown("")
                });
            }
        }
    }

    /// Method 2: walks the files. An error says why not all sectors were found.
    fn by_walk(
        &mut self,
        volume: &Volume<'_>,
        found: &mut [Option<SectorUse>],
        notes: &mut Vec<String>,
        progress: Progress<'_>,
    ) -> Result<(), String> {
        let start = match (self.question.under, &volume.mount) {
            (Some(directory), _) if self.under == Some(volume.block.dev) => {
                // Paths in answers are absolute.
                fs::canonicalize(directory).map_err(|error| error.to_string())?
            }
            (Some(directory), _) => {
                return Err(format!("`{}` is on another filesystem", directory.display()));
            }
            (None, Some(mount)) => mount.path(),
            (None, None) => return Err("no filesystem of it is mounted".into()),
        };
        let places = places(found, volume.sectors, Option::is_none);
        let shared = volume.mount.as_ref().is_none_or(|mount| mount.fs_type == "xfs");
        let walked = walk::walk(&start, &places, shared, progress)?;
        self.looked = true;
        notes.push(walk_note(&walked, &start));
        if let Some(mount) = volume.mount.as_ref().filter(|mount| mount.root != b"/") {
            let root = name::decode(&mount.root);
            notes.push(format!("of the filesystem only `{root}` is mounted, and was asked"));
        }
        for (slot, &sector) in
            found.iter_mut().zip(volume.sectors).filter(|(slot, _)| slot.is_none())
        {
            let Ok(index) = places.binary_search(&(sector * SECTOR_BYTES)) else { continue };
            let hits = &walked.hits[index];
            let Some(first) = hits.first() else { continue };
            let mut files: Vec<_> = hits.iter().map(|hit| file_of(hit, false)).collect();
            files.sort_by(|a, b| (a.ino, &a.path).cmp(&(b.ino, &b.path)));
            *slot = Some(SectorUse {
                what: if first.directory { SectorContent::Directory } else { SectorContent::File },
                files,
                method: Some(Method::Fiemap),
                why: None,
                ..SectorUse::unknown("")
            });
        }
        Err("no file that was asked is there: metadata, journal, free space, or a file that was deleted, is \
             not written yet or could not be opened"
            .into())
    }
}

/// The sectors that are still to be found, in bytes from the start of the device, ascending.
fn places(
    found: &[Option<SectorUse>],
    sectors: &[u64],
    is_open: impl Fn(&Option<SectorUse>) -> bool,
) -> Vec<u64> {
    let open = found.iter().zip(sectors).filter(|(found, _)| is_open(found));
    let places: BTreeSet<u64> = open.map(|(_, sector)| sector * SECTOR_BYTES).collect();
    places.into_iter().collect()
}

fn file_of(hit: &FoundFile, deleted: bool) -> FileFact {
    let path = Some(name::decode(&hit.path));
    FileFact { ino: hit.ino, path, deleted, offset_bytes: Some(hit.offset_bytes) }
}

fn walk_note(walked: &WalkResult, start: &std::path::Path) -> String {
    let mut note = format!("asked {} files below `{}`", walked.files, start.display());
    if walked.unopened > 0 {
        note += &format!("; {} could not be opened", walked.unopened);
    }
    if walked.cut {
        note += "; there are more";
    }
    note
}
