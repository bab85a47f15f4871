// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parses the build information that Go's linker has written into every program since 1.13: version, modules and build
//! settings. It is kept when the program is stripped.

use crate::limits::elf::{Elf, Segment};
use crate::limits::image::{Biased, Image};
use crate::text::name;

const SECTION: &str = ".go.buildinfo";
const MAGIC: &[u8] = b"\xff Go buildinf:";
/// Length of the header.
const HEADER_BYTES: usize = 32;
/// Maximum length of a text: a list of some thousand modules.
const MAX_TEXT_BYTES: u64 = 1 << 20;
/// Alignment of the header.
const ALIGNMENT: usize = 16;
/// Number of bytes of each segment that are searched in a program without section headers.
const MAX_SEARCH_BYTES: u64 = 4 << 20;
/// Length of the marks before and after the list of modules.
const MARK_BYTES: usize = 16;

/// How a Go program was built.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GoBuild {
    /// Version of Go: `go1.24.3`.
    pub version: String,
    /// Version of `go.uber.org/automaxprocs`, if it is linked in.
    pub automaxprocs: Option<String>,
    /// `DefaultGODEBUG`: settings that differ from the toolchain's defaults because `go.mod` names an older version of
    /// Go.
    pub default_godebug: Option<String>,
}

impl GoBuild {
    /// Major and minor version: 1 and 24 for `go1.24.3`; `None` for development versions.
    #[must_use]
    pub fn release(&self) -> Option<(u32, u32)> {
        let version = self.version.strip_prefix("go")?;
        let mut numbers = version.split(|c: char| !c.is_ascii_digit());
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }

    /// Patch number: 3 for `go1.24.3`; 0 for `go1.24` and for pre-releases of it.
    #[must_use]
    pub fn patch(&self) -> u32 {
        let mut numbers = self.version.split('.').skip(2);
        let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
        numbers.next().and_then(|text| digits(text).parse().ok()).unwrap_or(0)
    }

    fn take_modules(&mut self, text: &str) {
        for line in text.lines() {
            let mut fields = line.split('\t');
            match (fields.next(), fields.next(), fields.next()) {
                // A replaced module is followed by its replacement. The library is linked in both cases.
                (Some("dep"), Some("go.uber.org/automaxprocs"), version) => {
                    self.automaxprocs = Some(version.unwrap_or_default().into());
                }
                (Some("build"), Some(setting), _) => {
                    if let Some(value) = setting.strip_prefix("DefaultGODEBUG=") {
                        self.default_godebug = Some(value.into());
                    }
                }
                _ => {}
            }
        }
    }
}

/// Location of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HeaderLocation {
    offset: u64,
    address: u64,
}

/// Location of the header from its section. If the section headers were removed or are damaged, the header itself is
/// searched: it is aligned and near the beginning of a segment, usually a writable one.
fn place(file: &dyn Image, elf: &Elf) -> Option<HeaderLocation> {
    if let Some(section) = elf.section(SECTION) {
        return Some(HeaderLocation { offset: section.offset, address: section.address });
    }
    if !elf.sections.is_empty() {
        return None;
    }
    let (first, then): (Vec<&Segment>, Vec<&Segment>) =
        elf.segments.iter().partition(|segment| segment.writable);
    first.into_iter().chain(then).find_map(|segment| {
        let bytes = usize::try_from(segment.file_bytes.min(MAX_SEARCH_BYTES)).ok()?;
        let start = file.bytes(segment.offset, bytes)?;
        let found = start.chunks(ALIGNMENT).position(|piece| piece.starts_with(MAGIC))?;
        let skip = (found * ALIGNMENT) as u64;
        Some(HeaderLocation {
            offset: segment.offset.checked_add(skip)?,
            address: segment.address.checked_add(skip)?,
        })
    })
}

/// Whether a program appears to be built by Go.
pub fn is_go(file: &dyn Image, elf: &Elf) -> bool {
    place(file, elf).is_some()
}

/// Build information of a program; `None` if it is not a Go program, or was built by Go before 1.13. `memory` is the
/// program's memory by the addresses in the file: up to Go 1.17 only the memory contains the texts.
pub fn build(file: &dyn Image, elf: &Elf, memory: &Biased<'_>) -> Option<GoBuild> {
    let place = place(file, elf)?;
    let header = file.bytes(place.offset, HEADER_BYTES).filter(|head| head.starts_with(MAGIC))?;
    let inline = header.get(15).is_some_and(|flags| flags & 2 != 0);
    let (version, modules) = if inline {
        let at = place.offset.checked_add(HEADER_BYTES as u64)?;
        let (version, next) = counted(file, at)?;
        (version, counted(file, next).map(|(modules, _)| modules))
    } else {
        // Pointers to two Go strings, each of which is an address and a length.
        let version = memory.pointer_at(place.address.checked_add(16)?)?;
        let modules = memory.pointer_at(place.address.checked_add(24)?)?;
        (string(memory, version)?, string(memory, modules))
    };
    let mut build = GoBuild { version: name::decode(&version), ..GoBuild::default() };
    let modules = modules.unwrap_or_default();
    let framed = modules.len().checked_sub(MARK_BYTES).and_then(|end| modules.get(MARK_BYTES..end));
    build.take_modules(&String::from_utf8_lossy(framed.unwrap_or_default()));
    Some(build)
}

/// A text that is preceded by its length as a varint, and the position after it.
fn counted(file: &dyn Image, at: u64) -> Option<(Vec<u8>, u64)> {
    let mut length = 0_u64;
    for position in 0..10_u32 {
        let mut byte = [0];
        let next = at.checked_add(u64::from(position))?;
        if !file.read(next, &mut byte) {
            return None;
        }
        length |= u64::from(byte[0] & 0x7f).checked_shl(7 * position)?;
        if byte[0] & 0x80 == 0 {
            let text = text(file, next + 1, length)?;
            return Some((text, next + 1 + length));
        }
    }
    None
}

/// A Go string in memory.
fn string(memory: &Biased<'_>, at: u64) -> Option<Vec<u8>> {
    text(memory, memory.pointer_at(at)?, memory.u64_at(at.checked_add(8)?)?)
}

fn text(image: &dyn Image, at: u64, bytes: u64) -> Option<Vec<u8>> {
    if bytes > MAX_TEXT_BYTES {
        return None;
    }
    image.bytes(at, usize::try_from(bytes).ok()?)
}
