// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program file and the memory of its process: ELF headers, Go's build information and table of functions.
//!
//! The input is the length of the memory, the file, and the memory, which begins at the address of the first segment.

use super::halves;
use deburr_core::limits::elf::Elf;
use deburr_core::limits::{Biased, Image, Metered, go};
use std::cell::Cell;

/// As the binary grants for one program.
const FILE_BYTES: u64 = 256 << 20;
const MEMORY_BYTES: u64 = 64 << 20;
/// Where a position-independent program is said to be loaded.
const START: u64 = 0x5555_0000_0000;
/// A section's name is kept up to this length, each byte of which may become the three of U+FFFD.
const NAME_BYTES: usize = 64 * 3;

/// Counts the reads of an image, so that time is bounded too.
pub(super) struct Counted<'i> {
    image: &'i dyn Image,
    start: u64,
    reads: Cell<u64>,
}

impl<'i> Counted<'i> {
    pub(super) fn new(image: &'i dyn Image, start: u64) -> Self {
        Self { image, start, reads: Cell::new(0) }
    }

    pub(super) fn reads(&self) -> u64 {
        self.reads.get()
    }
}

impl Image for Counted<'_> {
    fn read(&self, at: u64, buf: &mut [u8]) -> bool {
        self.reads.set(self.reads.get() + 1);
        at.checked_sub(self.start).is_some_and(|at| self.image.read(at, buf))
    }
}

pub(crate) fn read(data: &[u8]) -> bool {
    let (file, memory) = halves(data);
    let (file, memory) = (file.to_vec(), memory.to_vec());
    let file = Counted::new(&file, 0);
    let metered = Metered::new(&file, FILE_BYTES);
    let Ok(elf) = Elf::read(&metered) else { return false };
    for section in &elf.sections {
        assert!(section.name.len() <= NAME_BYTES, "a name of {} bytes", section.name.len());
    }
    let first = elf.segments.first().map_or(0, |segment| segment.address);
    let start = if elf.relocatable { START.wrapping_add(first) } else { first };
    let memory = Counted::new(&memory, start);
    let bias = if elf.relocatable { elf.bias(START) } else { 0 };
    let of_process = Metered::new(&memory, MEMORY_BYTES);
    let of_process = Biased { image: &of_process, bias };
    if !go::is_go(&metered, &elf) {
        return false;
    }
    if let Some(build) = go::build(&metered, &elf, &of_process) {
        let _ = (build.release(), build.patch());
        let settings = build.default_godebug.as_deref().and_then(go::debug_settings);
        assert!(settings.is_none_or(|text| !text.is_empty()));
    }
    if let Ok(place) = go::locate(&metered, &elf, &of_process) {
        assert!(elf.is_variable(place), "the place of a variable is in a writable segment");
        let value = go::value(&of_process, place);
        assert!(value.is_none_or(|value| (1..=1 << 16).contains(&value)), "{value:?}");
    }
    let addresses = [start, first.wrapping_add(0x1000), u64::MAX];
    if let Ok(names) = go::functions_at(&metered, &elf, &of_process, &addresses) {
        assert_eq!(names.len(), addresses.len());
        assert!(names.iter().flatten().all(|name| name.len() <= 4 * 1024), "names are bounded");
    }
    // A read counts as 64 bytes at least.
    assert!(file.reads() <= FILE_BYTES / 64 + 1, "{} reads", file.reads());
    assert!(memory.reads() <= MEMORY_BYTES / 64 + 1, "{} reads of memory", memory.reads());
    true
}
