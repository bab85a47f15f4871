// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds the code of a function by its name in Go's table of functions, and the name by the code. Supports the formats of Go 1.16, 1.18 and 1.20
//! as described in `runtime/symtab.go` of these versions. Later versions differ only in the location of the start of
//! the code.

use super::GomaxprocsError;
use crate::limits::elf::{Elf, Section};
use crate::limits::image::{Biased, Image, PieceReader};
use crate::text::name;
use memchr::memmem;
use std::collections::BTreeMap;

/// Sections that contain only the table. Position-independent programs had it in their relocated data until Go 1.25.
const SECTIONS: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];
/// Sections into which an external linker may have put the table.
const AROUND: [&str; 2] = [".data.rel.ro", ".rodata"];
/// Number of bytes of such a section that are searched.
const MAX_SEARCH_BYTES: u64 = 256 << 20;
/// Maximum number of functions; a table with more is damaged.
const MAX_FUNCTIONS: u64 = 1 << 23;
/// Index of the word `moduledata.text` in the section `.go.module`, which exists since Go 1.26.
const TEXT_WORD: u64 = 22;
/// Longest name of a function that is read.
const MAX_NAME_BYTES: usize = 1024;
/// Maximum length of a wanted name, with the NULs before and after it.
const NAME_BYTES: usize = 48;

/// Address range of a function's code in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) start: u64,
    pub(super) end: u64,
}

/// The two formats of the entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryFormat {
    /// Go 1.16 and 1.17: entries are addresses.
    Addresses,
    /// Since Go 1.18: entries are offsets from the start of the code.
    Distances,
}

/// Header of the table. Offsets are relative to the start of the file.
#[derive(Clone, Copy, Debug)]
struct TableHeader {
    shape: EntryFormat,
    functions: u64,
    text: u64,
    names: (u64, u64),
    entries: u64,
    end: u64,
}

/// Finds functions by name; names that the program does not have are left out.
pub(super) fn functions(
    file: &dyn Image,
    elf: &Elf,
    memory: &Biased<'_>,
    wanted: &[&'static str],
) -> Result<BTreeMap<&'static str, Function>, GomaxprocsError> {
    let (offset, end) = find(file, elf).ok_or(GomaxprocsError::NoTable)?;
    let table = header(file, elf, memory, offset, end)?;
    let names = names(file, table.names, wanted);
    entries(file, &table, &names)
}

/// Start and end of the table in the file.
fn find(file: &dyn Image, elf: &Elf) -> Option<(u64, u64)> {
    let span =
        |section: &Section| Some((section.offset, section.offset.checked_add(section.bytes)?));
    for section in SECTIONS.iter().filter_map(|name| elf.section(name)) {
        let (from, to) = span(section)?;
        if magic(&file.bytes(from, 8)?).is_some() {
            return Some((from, to));
        }
    }
    let mut around: Vec<(u64, u64)> =
        AROUND.iter().filter_map(|name| span(elf.section(name)?)).collect();
    if elf.sections.is_empty() {
        // The section headers were removed too.
        let spans = elf.segments.iter().map(|s| (s.offset, s.offset.saturating_add(s.file_bytes)));
        around.extend(spans);
    }
    around.into_iter().find_map(|(from, to)| Some((search(file, from, to)?, to)))
}

/// Searches for the first 8 bytes of a table, which is aligned to 8 bytes.
fn search(file: &dyn Image, from: u64, to: u64) -> Option<u64> {
    let to = to.min(from.saturating_add(MAX_SEARCH_BYTES));
    let mut window = PieceReader::new(file, from, to);
    let mut at = from;
    while to.saturating_sub(at) >= 8 {
        let piece = window.get(at, 8)?;
        let words = piece.chunks_exact(8);
        let steps = words.len() as u64;
        if let Some(word) = words.into_iter().position(|word| magic(word).is_some()) {
            return Some(at + 8 * word as u64);
        }
        at += 8 * steps;
    }
    None
}

fn magic(head: &[u8]) -> Option<EntryFormat> {
    // The code quantum is 1 byte on x86-64 and 4 on arm64. Addresses have 8 bytes.
    let [magic @ .., 0, 0, 1 | 4, 8] = head else { return None };
    match magic {
        [0xfa, 0xff, 0xff, 0xff] => Some(EntryFormat::Addresses),
        [0xf0 | 0xf1, 0xff, 0xff, 0xff] => Some(EntryFormat::Distances),
        _ => None,
    }
}

fn header(
    file: &dyn Image,
    elf: &Elf,
    memory: &Biased<'_>,
    offset: u64,
    end: u64,
) -> Result<TableHeader, GomaxprocsError> {
    let damaged = GomaxprocsError::Table("header");
    let head = file.bytes(offset, 80).ok_or(damaged)?;
    let shape = magic(&head[..8]).ok_or(damaged)?;
    let word = |index: usize| {
        let bytes = head.get(8 + 8 * index..16 + 8 * index)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    // After the numbers of functions and files: since Go 1.18 the start of the code, then the offsets of the parts.
    let first = if shape == EntryFormat::Addresses { 2 } else { 3 };
    let part = |index: usize| offset.checked_add(word(first + index)?).filter(|&at| at <= end);
    let functions = word(0).filter(|&n| n <= MAX_FUNCTIONS).ok_or(damaged)?;
    let (Some(names), Some(names_end), Some(entries)) = (part(0), part(1), part(4)) else {
        return Err(damaged);
    };
    let text = match shape {
        EntryFormat::Addresses => 0,
        EntryFormat::Distances => match word(2).filter(|&text| text != 0) {
            Some(text) => text,
            None => text_of_module(elf, memory, offset)?,
        },
    };
    Ok(TableHeader { shape, functions, text, names: (names, names_end), entries, end })
}

/// Start of the code, from the runtime's data about the module.
fn text_of_module(elf: &Elf, memory: &Biased<'_>, table: u64) -> Result<u64, GomaxprocsError> {
    let missing = GomaxprocsError::Table("no beginning of the code");
    let module = elf.section(".go.module").ok_or(missing)?;
    let word = |index: u64| memory.pointer_at(module.address.checked_add(8 * index)?);
    // The first word must be the address of the table that was found in the file.
    let is_table =
        word(0).and_then(|at| elf.offset_of(at)).is_some_and(|(offset, _)| offset == table);
    let text = word(TEXT_WORD).filter(|&text| is_table && !elf.is_variable(text));
    text.ok_or(missing)
}

/// Offsets of the wanted names in the table of names.
fn names(
    file: &dyn Image,
    (from, to): (u64, u64),
    wanted: &[&'static str],
) -> BTreeMap<u32, &'static str> {
    let mut found = BTreeMap::new();
    let mut window = PieceReader::new(file, from, to);
    let finder = memmem::Finder::new(b"\0runtime.");
    let mut at = from;
    while at < to && found.len() < wanted.len() {
        let least = NAME_BYTES.min(usize::try_from(to - at).unwrap_or(NAME_BYTES));
        let Some(piece) = window.get(at, least) else { break };
        for hit in finder.find_iter(piece) {
            let name = &piece[hit + 1..];
            let is = |wanted: &str| {
                name.strip_prefix(wanted.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
            };
            if let Some(wanted) = wanted.iter().find(|wanted| is(wanted))
                && let Ok(offset) = u32::try_from(at - from + hit as u64 + 1)
            {
                found.insert(offset, *wanted);
            }
        }
        // The last bytes may contain the beginning of a name, so the next piece starts with them.
        let step = piece.len().saturating_sub(NAME_BYTES);
        if step == 0 {
            break;
        }
        at += step as u64;
    }
    found
}

/// Walks through the functions until each name is found.
fn entries(
    file: &dyn Image,
    table: &TableHeader,
    names: &BTreeMap<u32, &'static str>,
) -> Result<BTreeMap<&'static str, Function>, GomaxprocsError> {
    let mut found = BTreeMap::new();
    walk(file, table, |function, name| {
        if let Some(name) = names.get(&name()?) {
            found.insert(*name, function);
        }
        Some(found.len() < names.len())
    })?;
    Ok(found)
}

/// Names of the functions that hold these addresses, in their order; `None` = there is no function.
pub(super) fn at(
    file: &dyn Image,
    elf: &Elf,
    memory: &Biased<'_>,
    addresses: &[u64],
) -> Result<Vec<Option<String>>, GomaxprocsError> {
    let (offset, end) = find(file, elf).ok_or(GomaxprocsError::NoTable)?;
    let table = header(file, elf, memory, offset, end)?;
    let mut sorted: Vec<usize> = (0..addresses.len()).collect();
    sorted.sort_unstable_by_key(|&i| addresses[i]);
    let mut found = vec![None; addresses.len()];
    let mut next = 0;
    // Functions are in the order of their addresses.
    walk(file, &table, |function, name| {
        while next < sorted.len() && addresses[sorted[next]] < function.start {
            next += 1;
        }
        let mut text = None;
        while next < sorted.len() && addresses[sorted[next]] < function.end {
            if text.is_none() {
                let at = table.names.0.checked_add(name()?.into()).filter(|at| *at < table.names.1);
                text = Some(name::decode(&file.c_string(at?, MAX_NAME_BYTES)?));
            }
            found[sorted[next]].clone_from(&text);
            next += 1;
        }
        Some(next < sorted.len())
    })?;
    Ok(found)
}

/// Calls `each` with the functions, in the order of the table, and with what reads the offset of a function's name, until
/// it returns that there need be no more. `None` from it, or from what reads, is damage.
fn walk(
    file: &dyn Image,
    table: &TableHeader,
    mut each: impl FnMut(Function, &mut dyn FnMut() -> Option<u32>) -> Option<bool>,
) -> Result<(), GomaxprocsError> {
    let damaged = GomaxprocsError::Table("entries");
    let half = if table.shape == EntryFormat::Addresses { 8_usize } else { 4 };
    let number = |bytes: &[u8]| match half {
        8 => u64::from_le_bytes(bytes.try_into().unwrap_or_default()),
        _ => u64::from(u32::from_le_bytes(bytes.try_into().unwrap_or_default())),
    };
    let mut index = PieceReader::new(file, table.entries, table.end);
    let mut bodies = PieceReader::new(file, table.entries, table.end);
    for entry in 0..table.functions {
        let at = table.entries.saturating_add(entry * 2 * half as u64);
        // An entry and the start in the next entry, which is the end of this function. A further entry follows the last
        // one.
        let bytes = index.get(at, 3 * half).ok_or(damaged)?;
        let (start, body) = (number(&bytes[..half]), number(&bytes[half..2 * half]));
        let end = number(&bytes[2 * half..3 * half]);
        let (start, end) = (table.text.wrapping_add(start), table.text.wrapping_add(end));
        let mut name = || {
            // The start of the function, then the offset of its name.
            let bytes = bodies.get(table.entries.checked_add(body)?, half + 4)?;
            Some(u32::from_le_bytes(bytes[half..half + 4].try_into().unwrap_or_default()))
        };
        if !each(Function { start, end }, &mut name).ok_or(damaged)? {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::search;

    #[test]
    fn a_table_at_the_end_of_all_numbers_is_not_found() {
        let file: &[u8] = &[0; 64];
        assert_eq!(search(&file.to_vec(), u64::MAX - 7, u64::MAX), None);
        assert_eq!(search(&file.to_vec(), 60, 40), None);
    }
}
