// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The answers as text.

use super::{Answer, Document, FileFact, Method, SectorContent, SectorUse};
use deburr_core::render;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Maximum number of file names that are shown for a sector.
const MAX_NAMES: usize = 8;

/// The document as text for people.
pub(crate) fn text(document: &Document) -> String {
    let disk = &document.disk;
    let mut text = format!(
        "`{}` ({}), {} sectors of 512 bytes\n",
        render::message(&disk.name),
        disk.dev,
        disk.sectors
    );
    for answer in &document.sectors {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\nsector {}: {}", answer.sector, headline(&answer.found));
        for line in [place(answer), how(&answer.found)].into_iter().flatten() {
            let _ = writeln!(text, "  {line}");
        }
    }
    let mut counts: BTreeMap<SectorContent, usize> = BTreeMap::new();
    for answer in &document.sectors {
        *counts.entry(answer.found.what).or_default() += 1;
    }
    if document.sectors.len() > 1 {
        let counts: Vec<_> =
            counts.iter().map(|(what, n)| format!("{n} {}", word(*what))).collect();
        let _ = writeln!(text, "\n{} sectors: {}", document.sectors.len(), counts.join(", "));
    }
    if !document.notes.is_empty() {
        text.push('\n');
    }
    for note in &document.notes {
        let _ = writeln!(text, "note: {}", render::message(note));
    }
    text
}

fn word(what: SectorContent) -> &'static str {
    match what {
        SectorContent::File => "of files",
        SectorContent::Directory => "of directories",
        SectorContent::Journal => "journal",
        SectorContent::Metadata => "metadata",
        SectorContent::Free => "free",
        SectorContent::Swap => "swap",
        SectorContent::Unpartitioned => "outside of all partitions",
        SectorContent::Unknown => "unknown",
    }
}

fn headline(found: &SectorUse) -> String {
    let names: Vec<_> = found.files.iter().take(MAX_NAMES).map(name).collect();
    let more = found.files.len().saturating_sub(MAX_NAMES);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    match found.what {
        SectorContent::File => format!("{}{more}", names.join(" and ")),
        SectorContent::Directory => format!("directory {}{more}", names.join(" and ")),
        SectorContent::Journal => "the filesystem's journal".into(),
        SectorContent::Metadata => "the filesystem's metadata".into(),
        SectorContent::Free => "free".into(),
        SectorContent::Swap => "swap".into(),
        SectorContent::Unpartitioned => "outside of all partitions".into(),
        SectorContent::Unknown => "unknown".into(),
    }
}

fn name(file: &FileFact) -> String {
    match &file.path {
        Some(path) if file.deleted => {
            format!("`{}` (deleted, and still open)", render::message(path))
        }
        Some(path) => format!("`{}`", render::message(path)),
        None => format!("inode {} without a name", file.ino),
    }
}

/// The steps from the sector to the file.
fn place(answer: &Answer) -> Option<String> {
    let mut steps = Vec::new();
    if let Some(part) = &answer.partition {
        let name = render::message(&part.name);
        steps.push(format!("`{name}` (from sector {}) sector {}", part.start_sector, part.sector));
        if answer.sector != answer.disk_sector {
            steps.push(format!("sector {} of the disk", answer.disk_sector));
        }
    }
    if let Some(filesystem) = &answer.found.filesystem {
        let kind = render::message(&filesystem.kind);
        steps.push(match &filesystem.mounted_at {
            Some(point) => format!("{kind} on `{}`", render::message(point)),
            None => format!("{kind}, not mounted"),
        });
    }
    if let Some(block) = answer.found.block {
        steps.push(format!("block {block}"));
    }
    if let Some(file) = answer.found.files.first() {
        steps.push(format!("inode {}", file.ino));
        steps.extend(file.offset_bytes.map(|offset| format!("byte {offset} of the file")));
    }
    (!steps.is_empty()).then(|| steps.join(", "))
}

fn how(found: &SectorUse) -> Option<String> {
    let method = found.method.map(|method| match method {
        Method::Debugfs => "by debugfs (icheck, ncheck, testb)",
        Method::Fiemap => "by asking the files (FIEMAP)",
    });
    let why = found.why.as_deref().map(render::message).filter(|why| !why.is_empty());
    match (method, why) {
        (Some(method), Some(why)) => Some(format!("{method}: {why}")),
        (Some(method), None) => Some(method.into()),
        (None, why) => why,
    }
}
