// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parses the headers of an ELF file: its sections and segments, and dynamic symbols. The file is read in pieces, never
//! as a whole, because a program may have hundreds of megabytes.

use super::image::Image;
use object::LittleEndian;
use object::elf::{
    EM_AARCH64, EM_X86_64, ET_DYN, FileHeader64, PF_W, PT_LOAD, ProgramHeader64, SHT_DYNSYM,
    SHT_NOBITS, SectionHeader64, Sym64,
};
use object::pod::{from_bytes, slice_from_all_bytes};
use std::collections::BTreeMap;

/// Maximum length of the table of section names.
const MAX_NAME_BYTES: u64 = 1 << 20;
/// Bytes of a section's name that are kept: no wanted name is as long. Thousands of headers may name one long text.
const MAX_NAME_KEPT: usize = 64;
/// Maximum number of headers of each kind.
const MAX_HEADERS: u16 = 8192;
/// Maximum number of symbols that are read from a table. A `libjvm.so` exports 500 or so.
const MAX_SYMBOLS: u64 = 1 << 16;
/// Maximum length of the table of symbol names, for which memory is needed before it is known that the file has it.
const MAX_STRING_BYTES: u64 = 4 << 20;

/// Why a file cannot be read as a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElfError {
    /// The file is not an ELF file.
    #[error("not an ELF file")]
    NotElf,
    /// The file is for 32 bits or big-endian.
    #[error("only 64-bit little-endian programs are decoded")]
    Unsupported,
    /// A part of the file is missing or malformed.
    #[error("the ELF file is damaged: {0}")]
    Damaged(&'static str),
}

/// Instruction set of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// x86-64.
    X86_64,
    /// arm64.
    Aarch64,
    /// Any other.
    Other,
}

/// A segment: a part of the file that is loaded into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Address that it is linked for.
    pub address: u64,
    /// Length in memory, in bytes.
    pub memory_bytes: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Length in the file, in bytes.
    pub file_bytes: u64,
    /// Whether the segment is writable.
    pub writable: bool,
}

/// A section: a named part of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Name; of a long one, the beginning.
    pub name: String,
    /// Address that it is linked for.
    pub address: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Length in the file, in bytes; 0 for sections without content in the file (`SHT_NOBITS`).
    pub bytes: u64,
    /// For a symbol table: index of the section with its strings.
    link: u32,
    dynamic_symbols: bool,
}

/// Headers of an ELF file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elf {
    /// Instruction set.
    pub machine: Machine,
    /// Whether the program can be loaded at any address (`ET_DYN`).
    pub relocatable: bool,
    /// Segments, by address.
    pub segments: Vec<Segment>,
    /// Sections; empty if their headers were removed or are damaged.
    pub sections: Vec<Section>,
}

impl Elf {
    /// Reads the headers.
    ///
    /// # Errors
    /// If the file is not a 64-bit little-endian ELF file, or if its program headers are damaged.
    pub fn read(file: &dyn Image) -> Result<Self, ElfError> {
        let head =
            file.bytes(0, size_of::<FileHeader64<LittleEndian>>()).ok_or(ElfError::NotElf)?;
        if !head.starts_with(b"\x7fELF") {
            return Err(ElfError::NotElf);
        }
        // Class 2 is 64 bits, data 1 little-endian.
        if head[4..6] != [2, 1] {
            return Err(ElfError::Unsupported);
        }
        let (header, _) =
            from_bytes::<FileHeader64<LittleEndian>>(&head).map_err(|()| ElfError::NotElf)?;
        let le = LittleEndian;
        Ok(Self {
            machine: match header.e_machine.get(le) {
                EM_X86_64 => Machine::X86_64,
                EM_AARCH64 => Machine::Aarch64,
                _ => Machine::Other,
            },
            relocatable: header.e_type.get(le) == ET_DYN,
            segments: segments(file, header)?,
            // A program runs without section headers, so missing or damaged ones are not an error.
            sections: sections(file, header).unwrap_or_default(),
        })
    }

    /// The section with this name.
    #[must_use]
    pub fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name)
    }

    /// File offset of an address, and number of bytes from there to the end of its segment in the file.
    #[must_use]
    pub fn offset_of(&self, address: u64) -> Option<(u64, u64)> {
        self.segments.iter().find_map(|segment| {
            let skip = address.checked_sub(segment.address)?;
            let left = segment.file_bytes.checked_sub(skip).filter(|&left| left > 0)?;
            Some((segment.offset.checked_add(skip)?, left))
        })
    }

    /// Address of a file offset.
    #[must_use]
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| {
            let skip = offset.checked_sub(segment.offset).filter(|&it| it < segment.file_bytes)?;
            segment.address.checked_add(skip)
        })
    }

    /// Whether an address is in a writable segment.
    #[must_use]
    pub fn is_variable(&self, address: u64) -> bool {
        self.segments.iter().filter(|segment| segment.writable).any(|segment| {
            address.checked_sub(segment.address).is_some_and(|skip| skip < segment.memory_bytes)
        })
    }

    /// Load bias: the number to add to an address in the file to get the address in a process, where `start` is the
    /// address at which the process has mapped the beginning of the file.
    #[must_use]
    pub fn bias(&self, start: u64) -> u64 {
        // The kernel maps whole pages, so the address of the first byte of the file is decisive.
        let first = self.segments.iter().find(|segment| segment.offset < 4096);
        match first.filter(|_| self.relocatable) {
            Some(segment) => start.wrapping_sub(segment.address.wrapping_sub(segment.offset)),
            None => 0,
        }
    }

    /// Addresses of the dynamic symbols with these names; names without a symbol are left out.
    #[must_use]
    pub fn dynamic_symbols(
        &self,
        file: &dyn Image,
        names: &[&'static str],
    ) -> BTreeMap<&'static str, u64> {
        let symbols = self.symbols(file, names).unwrap_or_default();
        symbols.into_iter().map(|(name, (address, _))| (name, address)).collect()
    }

    /// Where a function is in the file that has this dynamic symbol: offset and length, in bytes.
    #[must_use]
    pub fn function(&self, file: &dyn Image, name: &'static str) -> Option<(u64, u64)> {
        let (address, bytes) = self.symbol(file, name)?;
        let (offset, left) = self.offset_of(address)?;
        Some((offset, bytes.min(left)))
    }

    /// Address and length of what has this dynamic symbol, in bytes.
    #[must_use]
    pub fn symbol(&self, file: &dyn Image, name: &'static str) -> Option<(u64, u64)> {
        self.symbols(file, &[name])?.get(name).copied()
    }

    /// Addresses and lengths.
    fn symbols(
        &self,
        file: &dyn Image,
        names: &[&'static str],
    ) -> Option<BTreeMap<&'static str, (u64, u64)>> {
        let table = self.sections.iter().find(|section| section.dynamic_symbols)?;
        let strings = self.sections.get(table.link as usize)?;
        let size = size_of::<Sym64<LittleEndian>>() as u64;
        let count = (table.bytes / size).min(MAX_SYMBOLS);
        if strings.bytes > MAX_STRING_BYTES {
            return None;
        }
        let strings = file.bytes(strings.offset, usize::try_from(strings.bytes).ok()?)?;
        let bytes = file.bytes(table.offset, usize::try_from(count * size).ok()?)?;
        let symbols = slice_from_all_bytes::<Sym64<LittleEndian>>(&bytes).ok()?;
        let mut found = BTreeMap::new();
        for symbol in symbols {
            let name = strings.get(symbol.st_name.get(LittleEndian) as usize..).unwrap_or_default();
            let is = |wanted: &str| {
                name.strip_prefix(wanted.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
            };
            if let Some(wanted) = names.iter().find(|wanted| is(wanted)) {
                let at = symbol.st_value.get(LittleEndian);
                found.insert(*wanted, (at, symbol.st_size.get(LittleEndian)));
            }
        }
        Some(found)
    }
}

fn headers(file: &dyn Image, offset: u64, count: u16, each: usize) -> Result<Vec<u8>, ElfError> {
    if count > MAX_HEADERS {
        return Err(ElfError::Damaged("too many headers"));
    }
    file.bytes(offset, usize::from(count) * each).ok_or(ElfError::Damaged("headers beyond its end"))
}

fn segments(
    file: &dyn Image,
    header: &FileHeader64<LittleEndian>,
) -> Result<Vec<Segment>, ElfError> {
    type Raw = ProgramHeader64<LittleEndian>;
    let le = LittleEndian;
    let bytes = headers(file, header.e_phoff.get(le), header.e_phnum.get(le), size_of::<Raw>())?;
    let raw = slice_from_all_bytes::<Raw>(&bytes).map_err(|()| ElfError::Damaged("segments"))?;
    let loaded = raw.iter().filter(|segment| segment.p_type.get(le) == PT_LOAD);
    let mut segments: Vec<Segment> = loaded
        .map(|segment| Segment {
            address: segment.p_vaddr.get(le),
            memory_bytes: segment.p_memsz.get(le),
            offset: segment.p_offset.get(le),
            file_bytes: segment.p_filesz.get(le),
            writable: segment.p_flags.get(le).0 & PF_W.0 != 0,
        })
        .collect();
    segments.sort_by_key(|segment| segment.address);
    Ok(segments)
}

fn sections(
    file: &dyn Image,
    header: &FileHeader64<LittleEndian>,
) -> Result<Vec<Section>, ElfError> {
    type Raw = SectionHeader64<LittleEndian>;
    let le = LittleEndian;
    let count = header.e_shnum.get(le);
    if count == 0 {
        return Ok(Vec::new());
    }
    let bytes = headers(file, header.e_shoff.get(le), count, size_of::<Raw>())?;
    let raw = slice_from_all_bytes::<Raw>(&bytes).map_err(|()| ElfError::Damaged("sections"))?;
    let names = raw.get(usize::from(header.e_shstrndx.get(le).0));
    let names = names.ok_or(ElfError::Damaged("no names of sections"))?;
    let names_bytes = names.sh_size.get(le).min(MAX_NAME_BYTES) as usize;
    let names = file.bytes(names.sh_offset.get(le), names_bytes);
    let names = names.ok_or(ElfError::Damaged("names of sections beyond its end"))?;
    let name = |at: u32| {
        let rest = names.get(at as usize..).unwrap_or_default();
        let rest = &rest[..rest.len().min(MAX_NAME_KEPT)];
        let end = rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len());
        String::from_utf8_lossy(&rest[..end]).into_owned()
    };
    Ok(raw
        .iter()
        .map(|section| Section {
            name: name(section.sh_name.get(le)),
            address: section.sh_addr.get(le),
            offset: section.sh_offset.get(le),
            bytes: if section.sh_type.get(le) == SHT_NOBITS { 0 } else { section.sh_size.get(le) },
            link: section.sh_link.get(le),
            dynamic_symbols: section.sh_type.get(le) == SHT_DYNSYM,
        })
        .collect())
}

/// A file, accessed by the addresses that it is linked for. Valid for data that relocation does not change.
pub struct Linked<'i> {
    /// The file.
    pub file: &'i dyn Image,
    /// Headers of the file.
    pub elf: &'i Elf,
}

impl Image for Linked<'_> {
    fn read(&self, at: u64, buf: &mut [u8]) -> bool {
        let place = self.elf.offset_of(at).filter(|(_, left)| *left >= buf.len() as u64);
        place.is_some_and(|(offset, _)| self.file.read(offset, buf))
    }
}

#[cfg(test)]
mod tests;
