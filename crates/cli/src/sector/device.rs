// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Block devices and the partitions on them, from `/sys/class/block`.

use deburr_core::recording::DevId;
use deburr_core::text::name;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

/// Bytes of a sector in all of the kernel's numbers, whatever the sector size of the device is.
pub(super) const SECTOR_BYTES: u64 = 512;
/// Least similarity of a suggested name (Jaro-Winkler, 0 to 1).
const ALIKE: f64 = 0.75;

/// A disk or a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) dev: DevId,
    /// Name below `/dev`, decoded.
    pub(super) name: String,
    pub(super) sectors: u64,
    pub(super) part: Option<Partition>,
    /// Devices that are built on this one: LVM, RAID, encryption.
    pub(super) holders: Vec<String>,
}

/// Disk and start of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Partition {
    pub(super) disk: DevId,
    pub(super) start_sector: u64,
}

impl Block {
    fn read(dir: &Path) -> Option<Self> {
        let text = |file: &str| fs::read_to_string(dir.join(file)).ok();
        let number = |file: &str| text(file)?.trim().parse::<u64>().ok();
        let part = match number("partition") {
            None => None,
            // The directory of a partition is inside that of its disk.
            Some(_) => {
                let disk = fs::canonicalize(dir).ok()?.parent()?.join("dev");
                let disk = fs::read_to_string(disk).ok()?.trim().parse().ok()?;
                Some(Partition { disk, start_sector: number("start")? })
            }
        };
        let holders = fs::read_dir(dir.join("holders")).into_iter().flatten().flatten();
        let mut holders: Vec<_> = holders.map(|entry| shown(&entry.file_name())).collect();
        holders.sort_unstable();
        Some(Self {
            dev: text("dev")?.trim().parse().ok()?,
            name: shown(dir.file_name()?),
            sectors: number("size")?,
            part,
            holders,
        })
    }
}

/// Converts a name of sysfs, which has `!` in place of the `/` of a name below `/dev`.
fn shown(file_name: &std::ffi::OsStr) -> String {
    name::decode(file_name.as_bytes()).replace('!', "/")
}

#[derive(Debug)]
pub(super) struct Devices(BTreeMap<DevId, Block>);

impl Devices {
    /// Reads all block devices below `sys`, which is `/sys` except in tests.
    pub(super) fn read(sys: &Path) -> Self {
        let entries = fs::read_dir(sys.join("class/block")).into_iter().flatten().flatten();
        let blocks = entries.filter_map(|entry| Block::read(&entry.path()));
        Self(blocks.map(|block| (block.dev, block)).collect())
    }

    #[cfg(test)]
    pub(super) fn of(blocks: Vec<Block>) -> Self {
        Self(blocks.into_iter().map(|block| (block.dev, block)).collect())
    }

    pub(super) fn get(&self, dev: DevId) -> Option<&Block> {
        self.0.get(&dev)
    }

    /// The device that the user means: `/dev/sda`, `sda`, `8:0`, or a link to one. An error says what is wrong.
    pub(super) fn find(&self, wanted: &str) -> Result<&Block, String> {
        if let Ok(dev) = wanted.parse() {
            return self.get(dev).ok_or_else(|| format!("there is no block device `{wanted}`"));
        }
        let bare = wanted.strip_prefix("/dev/").unwrap_or(wanted);
        if let Some(block) = self.0.values().find(|block| block.name == bare) {
            return Ok(block);
        }
        // `/dev/mapper/...`, `/dev/disk/by-id/...`
        if let (true, Ok(found)) = (wanted.contains('/'), fs::metadata(wanted)) {
            if !found.file_type().is_block_device() {
                return Err(format!("`{wanted}` is not a block device"));
            }
            let dev = dev_of(found.rdev());
            let unknown =
                || format!("`{wanted}` is block device {dev}, which the kernel does not list");
            return self.get(dev).ok_or_else(unknown);
        }
        let mut near: Vec<(f64, &str)> = self
            .0
            .values()
            .map(|block| (strsim::jaro_winkler(&block.name, bare), block.name.as_str()))
            .filter(|(score, _)| *score >= ALIKE)
            .collect();
        near.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
        let near: Vec<_> = near.iter().take(5).map(|(_, name)| format!("`{name}`")).collect();
        let hint = match near.is_empty() {
            true => "`lsblk` lists them".to_owned(),
            false => format!("near it: {}", near.join(", ")),
        };
        Err(format!("there is no block device `{wanted}`; {hint}"))
    }

    /// The partition of a disk that holds a sector, and the sector from its start; of nested partitions the innermost.
    pub(super) fn partition(&self, disk: DevId, sector: u64) -> Option<(&Block, u64)> {
        self.partitions(disk)
            .filter_map(|(block, part)| {
                let inside = sector.checked_sub(part.start_sector)?;
                (inside < block.sectors).then_some((block, inside))
            })
            .min_by_key(|(_, inside)| *inside)
    }

    /// Whether a disk is divided into partitions.
    pub(super) fn is_divided(&self, disk: DevId) -> bool {
        self.partitions(disk).next().is_some()
    }

    fn partitions(&self, disk: DevId) -> impl Iterator<Item = (&Block, Partition)> {
        let parts = self.0.values().filter_map(|block| Some((block, block.part?)));
        parts.filter(move |(_, part)| part.disk == disk)
    }
}

/// Converts a `dev_t` of user space.
pub(super) fn dev_of(dev: u64) -> DevId {
    DevId { major: rustix::fs::major(dev), minor: rustix::fs::minor(dev) }
}
