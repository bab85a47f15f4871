// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Functions of programs in Go that were stripped: the runtime keeps its own table of them.

use super::fit;
use crate::collect::Roots;
use crate::limits::{FILE_BYTES, FileImage, MEMORY_BYTES, places};
use deburr_core::limits::elf::Elf;
use deburr_core::limits::{Biased, Metered, go};
use deburr_core::procfs::maps::CodeMapping;

/// The functions at these places of a mapped file, in their order; `None` = it is not a program in Go, or its table is not
/// understood.
pub(super) fn functions(
    roots: &Roots,
    pid: u32,
    mapping: &CodeMapping,
    offsets: &[u64],
) -> Option<Vec<Option<String>>> {
    let paths = places((mapping.start, mapping.end), &mapping.path, roots, pid);
    let file = paths.iter().find_map(|path| FileImage::open(path).ok())?;
    let file = Metered::new(&file, FILE_BYTES);
    let elf = Elf::read(&file).ok().filter(|elf| go::is_go(&file, elf))?;
    let memory = FileImage::memory(roots, pid).ok()?;
    let memory = Metered::new(&memory, MEMORY_BYTES);
    // Where the file's segments begin within pages, the beginning of a mapping may be of another segment.
    let first = *offsets.first()?;
    let loaded_at = mapping.start.wrapping_add(first.wrapping_sub(mapping.offset));
    let bias = loaded_at.wrapping_sub(elf.address_of(first)?);
    let memory = Biased { image: &memory, bias };
    let addresses: Vec<u64> = offsets.iter().map(|&it| elf.address_of(it).unwrap_or(0)).collect();
    let found = go::functions_at(&file, &elf, &memory, &addresses).ok()?;
    Some(found.into_iter().map(|name| name.map(|name| fit(&name))).collect())
}
