// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A `libjvm.so` and the memory of its process: HotSpot's description of its own data.
//!
//! The input is the length of the memory, the file, and the memory, which begins at address 0.

use super::halves;
use super::program::Counted;
use deburr_core::limits::elf::Elf;
use deburr_core::limits::{Biased, Metered, jvm};

const FILE_BYTES: u64 = 256 << 20;
const MEMORY_BYTES: u64 = 64 << 20;

pub(crate) fn read(data: &[u8]) -> bool {
    let (file, memory) = halves(data);
    let (file, memory) = (file.to_vec(), memory.to_vec());
    let metered = Metered::new(&file, FILE_BYTES);
    let Ok(elf) = Elf::read(&metered) else { return false };
    let memory = Counted::new(&memory, 0);
    let of_process = Metered::new(&memory, MEMORY_BYTES);
    let of_process = Biased { image: &of_process, bias: elf.bias(0) };
    let Some(found) = jvm::locate(&metered, &elf, &of_process) else { return false };
    assert!(found.version.is_none_or(|version| version.len() < 600));
    assert!(found.flags.len() <= 20_000, "{} flags", found.flags.len());
    let (numbers, settings) = jvm::read(&of_process, &found.flags);
    assert!(numbers.len() <= 4 && settings.len() <= 9, "{numbers:?} {settings:?}");
    assert!(memory.reads() <= MEMORY_BYTES / 64 + 1, "{} reads of memory", memory.reads());
    true
}
