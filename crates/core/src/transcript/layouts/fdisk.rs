// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `fdisk -l`: where the partitions of a disk begin and end, in sectors.

use super::{Described, Parsed, Parser, Taken, column, owned};
use crate::transcript::engine::{Context, cut};
use crate::transcript::line::{Line, whole};

const MAX: usize = 10_000;

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::transcript) struct Partition {
    /// Its line.
    pub(in crate::transcript) line: u64,
    /// `sda5`.
    pub(in crate::transcript) name: String,
    /// First sector, of 512 bytes.
    pub(in crate::transcript) start: u64,
    /// Last sector.
    pub(in crate::transcript) end: u64,
    /// Whether it only holds other partitions.
    pub(in crate::transcript) extended: bool,
}

/// The partitions of the disks of one run.
#[derive(Debug, Default)]
pub(in crate::transcript) struct Partitions {
    /// The partitions.
    pub(in crate::transcript) all: Vec<Partition>,
    header: Vec<String>,
    sector_bytes: Option<u64>,
}

fn is_header(line: &Line<'_>) -> bool {
    line.words.first() == Some(&"Device")
        && line.words.contains(&"Start")
        && line.words.contains(&"End")
}

/// `Units: sectors of 1 * 512 = 512 bytes`: the size of the sectors in the table.
fn units(line: &Line<'_>) -> Option<u64> {
    if !line.text.starts_with("Units") {
        return None;
    }
    let at = line.words.iter().rposition(|word| word.starts_with("bytes"))?;
    whole(line.words.get(at.checked_sub(1)?)?)
}

pub(super) fn begins(line: &Line<'_>, _: &Context) -> Option<Box<dyn Parser>> {
    let disk = line.text.starts_with("Disk /dev/") && line.text.contains("sectors");
    (is_header(line) || disk).then(|| Box::new(Partitions::default()) as Box<dyn Parser>)
}

impl Parser for Partitions {
    fn line(&mut self, line: &Line<'_>) -> Taken {
        if is_header(line) {
            self.header = owned(&line.words);
            self.header.retain(|name| name != "Boot");
            return Taken::Yes;
        }
        if let Some(bytes) = units(line) {
            self.sector_bytes = Some(bytes);
            return Taken::Yes;
        }
        const ABOUT: &[&str] =
            &["Disk", "Sector size", "I/O size", "Disklabel", "Units", "Partition table"];
        if ABOUT.iter().any(|begin| line.text.starts_with(begin)) {
            return Taken::Yes;
        }
        if !line.text.starts_with("/dev/") || self.header.is_empty() {
            return Taken::No;
        }
        let words: Vec<&str> = line.words.iter().copied().filter(|word| *word != "*").collect();
        let number = |name: &str| whole::<u64>(words.get(column(&self.header, &[name])?)?);
        let (Some(start), Some(end)) = (number("Start"), number("End")) else {
            return Taken::Unread("a partition without its first and last sector: cut off");
        };
        if start > end || self.all.len() >= MAX {
            return Taken::Unread("a partition that ends before it begins, or one of too many");
        }
        if self.sector_bytes.is_some_and(|bytes| bytes != 512) {
            return Taken::Unread("a partition in units other than 512 bytes");
        }
        let name = cut(words[0].trim_start_matches("/dev/"));
        let extended = line.text.contains("Extended");
        self.all.push(Partition { line: line.number, name, start, end, extended });
        Taken::Yes
    }

    fn end(self: Box<Self>) -> Parsed {
        Parsed::Fdisk(*self)
    }
}

impl Partitions {
    pub(super) fn describe(&self) -> Described {
        let layout = "partition table in sectors of 512 bytes";
        Described::new("fdisk -l", layout, self.all.len(), ["partition", "partitions"])
    }
}
