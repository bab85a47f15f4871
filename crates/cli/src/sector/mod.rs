// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which file a disk's sector belongs to: sector -> partition -> filesystem -> block -> inode -> path, with the
//! method by which it was found.
//!
//! - [`device`]: disks and partitions. [`format`]: the filesystems on them.
//! - [`debugfs`], [`walk`]: the two methods. [`volume`]: which of them is used, and what their answers mean.
//! - [`text`]: the answers as text. [`apart`]: all of it in a process that can be given up.

pub(crate) mod apart;
mod debugfs;
mod device;
mod format;
mod text;
mod volume;
mod walk;

pub(crate) use text::text;

use crate::collect::Roots;
use deburr_core::finding::Tool;
use device::{Block, Devices};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

const SCHEMA: &str = "deburr.sector/1";

/// What the user asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SectorRequest<'a> {
    /// `/dev/sda`, `sda` or `8:0`.
    pub(crate) device: &'a str,
    /// Sectors of 512 bytes.
    pub(crate) sectors: &'a [u64],
    /// Whether they count from the start of the partition, not of the disk.
    pub(crate) partition_relative: bool,
    /// Use only this method.
    pub(crate) method: Option<Method>,
    /// Walk only files below this directory.
    pub(crate) under: Option<&'a Path>,
}

/// How an inode was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Method {
    /// `debugfs` of e2fsprogs: ext2, ext3, ext4; the device must be readable
    Debugfs,
    /// All files of the mounted filesystem are asked where they are
    Fiemap,
}

/// What a sector holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SectorContent {
    /// Data of a file.
    File,
    /// Entries of a directory.
    Directory,
    /// The filesystem's journal.
    Journal,
    /// The filesystem's own structures.
    Metadata,
    /// Nothing at this time.
    Free,
    /// Swapped-out memory.
    Swap,
    /// Nothing in a partition: the partition table, a boot loader, or a gap.
    Unpartitioned,
    /// This could not be found out.
    Unknown,
}

/// All answers.
#[derive(Debug, Serialize)]
pub(crate) struct Document {
    schema: &'static str,
    tool: Tool,
    disk: DiskFact,
    sectors: Vec<Answer>,
    /// What the user should know about how they were found.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    /// Whether a method could be used, for at least some of them.
    #[serde(skip)]
    pub(crate) looked: bool,
}

#[derive(Debug, Serialize)]
struct DiskFact {
    name: String,
    dev: String,
    sectors: u64,
}

/// What is at one sector.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// The sector as the user gave it.
    sector: u64,
    /// From the start of the disk.
    disk_sector: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition: Option<PartitionFact>,
    #[serde(flatten)]
    found: SectorUse,
}

#[derive(Debug, Serialize, Deserialize)]
struct PartitionFact {
    name: String,
    dev: String,
    start_sector: u64,
    /// The sector from the start of the partition.
    sector: u64,
}

/// What a sector of a filesystem's device holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SectorUse {
    what: SectorContent,
    #[serde(skip_serializing_if = "Option::is_none")]
    filesystem: Option<FilesystemFact>,
    /// Block of the filesystem, if its addresses are in blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<u64>,
    /// More than one for hard links, and for files that share the block (reflinks).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    files: Vec<FileFact>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<Method>,
    /// Why no more is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FilesystemFact {
    kind: String,
    /// Mount point; `None` = not mounted.
    #[serde(skip_serializing_if = "Option::is_none")]
    mounted_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block_bytes: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FileFact {
    ino: u64,
    /// The path; from the root of the filesystem if that is not mounted.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// Whether it has no name any more, while a process has it open.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    deleted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset_bytes: Option<u64>,
}

/// Called with the number of files walked and the number of sectors found.
pub(crate) type Progress<'a> = &'a mut dyn FnMut(u64, usize);

/// The device that is asked about, and its disk.
fn asked_of<'d>(
    devices: &'d Devices,
    question: &SectorRequest<'_>,
) -> Result<(&'d Block, &'d Block), String> {
    let asked = devices.find(question.device)?;
    let disk = match asked.part {
        Some(part) => devices.get(part.disk).ok_or("its disk is not listed by the kernel")?,
        None => asked,
    };
    Ok((asked, disk))
}

/// Answers the question. Errors are mistakes of the user: no such device, no such sector.
pub(crate) fn look(
    question: &SectorRequest<'_>,
    roots: &Roots,
    progress: Progress<'_>,
) -> Result<Document, String> {
    let devices = Devices::read(&roots.sys);
    let (asked, disk) = asked_of(&devices, question)?;
    let places = place(&devices, disk, asked, question)?;
    let mut by_volume: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (index, place) in places.iter().enumerate() {
        by_volume.entry(place.volume.dev).or_default().push(index);
    }
    let mut found = vec![None; places.len()];
    let mut notes = Vec::new();
    let mut looked = false;
    let mut search = volume::FilesystemSearch::new(question, roots)?;
    for indexes in by_volume.values() {
        let volume = places[indexes[0]].volume;
        if volume.part.is_none() && devices.is_divided(volume.dev) {
            indexes.iter().for_each(|&index| found[index] = Some(SectorUse::unpartitioned()));
            looked = true;
            continue;
        }
        let sectors: Vec<_> = indexes.iter().map(|&index| places[index].sector).collect();
        let answers = search.look(volume, &sectors, &mut notes, progress);
        indexes.iter().zip(answers).for_each(|(&index, answer)| found[index] = Some(answer));
    }
    search.check_under()?;
    Ok(document(question, disk, &places, found, notes, looked || search.looked))
}

/// The document in which nothing is known of any sector, for the reason given.
pub(crate) fn unknown(
    question: &SectorRequest<'_>,
    roots: &Roots,
    why: &str,
) -> Result<Document, String> {
    let devices = Devices::read(&roots.sys);
    let (asked, disk) = asked_of(&devices, question)?;
    let places = place(&devices, disk, asked, question)?;
    let found = vec![Some(SectorUse::unknown(why)); places.len()];
    Ok(document(question, disk, &places, found, Vec::new(), false))
}

/// The answers in a document, and its notes.
#[derive(Debug, Deserialize)]
pub(crate) struct Part {
    pub(crate) sectors: Vec<Answer>,
    #[serde(default)]
    notes: Vec<String>,
}

impl Document {
    /// Puts answers that were found by parts in the place of those for which there was a reason only.
    pub(crate) fn complete(&mut self, answers: Vec<Option<Answer>>) {
        for (slot, answer) in self.sectors.iter_mut().zip(answers) {
            if let Some(answer) = answer {
                *slot = answer;
            }
        }
    }

    /// Adds the notes of a part.
    pub(crate) fn note(&mut self, part: &mut Part) {
        for note in part.notes.drain(..) {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
    }
}

fn document(
    question: &SectorRequest<'_>,
    disk: &Block,
    places: &[SectorLocation<'_>],
    found: Vec<Option<SectorUse>>,
    notes: Vec<String>,
    looked: bool,
) -> Document {
    let answers =
        places.iter().zip(found).zip(question.sectors).map(|((place, found), &sector)| {
            let partition = place.volume.part.map(|part| PartitionFact {
                name: place.volume.name.clone(),
                dev: place.volume.dev.to_string(),
                start_sector: part.start_sector,
                sector: place.sector,
            });
            let found = found.unwrap_or_else(|| SectorUse::unknown("it was not looked for"));
            Answer { sector, disk_sector: place.disk_sector, partition, found }
        });
    Document {
        schema: SCHEMA,
        tool: Tool { version: env!("CARGO_PKG_VERSION").into() },
        disk: DiskFact {
            name: disk.name.clone(),
            dev: disk.dev.to_string(),
            sectors: disk.sectors,
        },
        sectors: answers.collect(),
        notes,
        looked,
    }
}

/// Where a sector is.
#[derive(Clone, Copy, Debug)]
struct SectorLocation<'a> {
    disk_sector: u64,
    /// The partition, or the disk if no partition holds the sector.
    volume: &'a Block,
    /// The sector from the start of `volume`.
    sector: u64,
}

/// Finds the partition of each sector.
fn place<'a>(
    devices: &'a Devices,
    disk: &'a Block,
    asked: &'a Block,
    question: &SectorRequest<'_>,
) -> Result<Vec<SectorLocation<'a>>, String> {
    let name = &asked.name;
    let part = asked.part;
    if question.partition_relative && part.is_none() {
        return Err(format!("`{name}` is a whole disk: --partition-relative needs a partition"));
    }
    let one = |&sector: &u64| {
        let limit = if question.partition_relative { asked.sectors } else { disk.sectors };
        if sector >= limit {
            let whole = if question.partition_relative { name } else { &disk.name };
            return Err(format!("there is no sector {sector} on `{whole}`: it has {limit}"));
        }
        if let (true, Some(part)) = (question.partition_relative, part) {
            let disk_sector = part.start_sector.saturating_add(sector);
            return Ok(SectorLocation { disk_sector, volume: asked, sector });
        }
        let found = devices.partition(disk.dev, sector);
        let (volume, inside) = found.unwrap_or((disk, sector));
        if part.is_some() && volume.dev != asked.dev {
            return Err(format!(
                "sector {sector} of the disk `{}` is not in `{name}`; if it counts from the start of \
                 `{name}`, say --partition-relative",
                disk.name
            ));
        }
        Ok(SectorLocation { disk_sector: sector, volume, sector: inside })
    };
    question.sectors.iter().map(one).collect()
}

impl SectorUse {
    fn unknown(why: impl Into<String>) -> Self {
        Self {
            what: SectorContent::Unknown,
            filesystem: None,
            block: None,
            files: Vec::new(),
            method: None,
            why: Some(why.into()),
        }
    }

    fn unpartitioned() -> Self {
        Self { what: SectorContent::Unpartitioned, why: None, ..Self::unknown("") }
    }
}

#[cfg(test)]
mod tests;
