// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small files that describe themselves as large.

use super::{Elf, MAX_HEADERS, MAX_NAME_KEPT};
use crate::limits::go;
use crate::limits::image::{Image, Metered};
use std::cell::Cell;

const HEADER_BYTES: usize = 64;

fn put(file: &mut [u8], at: usize, bytes: &[u8]) {
    file[at..at + bytes.len()].copy_from_slice(bytes);
}

/// The header of a file for x86-64 with so many program headers and section headers, each table from that offset on.
fn header(segments: (usize, u16), sections: (usize, u16)) -> Vec<u8> {
    let mut file = vec![0; HEADER_BYTES];
    put(&mut file, 0, b"\x7fELF\x02\x01\x01");
    put(&mut file, 16, &2_u16.to_le_bytes());
    put(&mut file, 18, &62_u16.to_le_bytes());
    put(&mut file, 32, &(segments.0 as u64).to_le_bytes());
    put(&mut file, 40, &(sections.0 as u64).to_le_bytes());
    put(&mut file, 56, &segments.1.to_le_bytes());
    put(&mut file, 60, &sections.1.to_le_bytes());
    file
}

/// A sparse file: its first bytes, zeroes up to its length, and how much of it was read.
struct Sparse {
    head: Vec<u8>,
    bytes: u64,
    read: Cell<u64>,
}

impl Image for Sparse {
    fn read(&self, at: u64, buf: &mut [u8]) -> bool {
        self.read.set(self.read.get() + buf.len() as u64);
        if at.checked_add(buf.len() as u64).is_none_or(|end| end > self.bytes) {
            return false;
        }
        buf.fill(0);
        if let Some(there) = usize::try_from(at).ok().and_then(|at| self.head.get(at..)) {
            let both = there.len().min(buf.len());
            buf[..both].copy_from_slice(&there[..both]);
        }
        true
    }
}

#[test]
fn thousands_of_sections_with_one_long_name_keep_little_of_it() {
    let names_bytes = 1 << 20;
    let mut file = header((0, 0), (HEADER_BYTES, MAX_HEADERS));
    let names_at = HEADER_BYTES + usize::from(MAX_HEADERS) * 64;
    file.resize(names_at, 0);
    // Section 0 has the names, and so it is the one that `e_shstrndx` (0) means.
    put(&mut file, HEADER_BYTES + 24, &(names_at as u64).to_le_bytes());
    put(&mut file, HEADER_BYTES + 32, &(names_bytes as u64).to_le_bytes());
    // Not even UTF-8, of which every byte becomes three.
    file.resize(names_at + names_bytes, 0xff);
    let elf = Elf::read(&file).unwrap();
    assert_eq!(elf.sections.len(), usize::from(MAX_HEADERS));
    let kept: usize = elf.sections.iter().map(|section| section.name.capacity()).sum();
    assert!(kept <= usize::from(MAX_HEADERS) * MAX_NAME_KEPT * 4, "{kept} bytes");
}

#[test]
fn many_segments_over_one_sparse_file_have_one_budget() {
    let (count, bytes) = (1100_u16, 256_u64 << 20);
    let mut head = header((HEADER_BYTES, count), (0, 0));
    for _ in 0..count {
        let mut segment = [0; 56];
        put(&mut segment, 0, &1_u32.to_le_bytes());
        put(&mut segment, 4, &5_u32.to_le_bytes());
        put(&mut segment, 16, &0x40_0000_u64.to_le_bytes());
        put(&mut segment, 32, &bytes.to_le_bytes());
        put(&mut segment, 40, &bytes.to_le_bytes());
        head.extend(segment);
    }
    let sparse = Sparse { head, bytes, read: Cell::new(0) };
    let budget = 16 << 20;
    let file = Metered::new(&sparse, budget);
    let elf = Elf::read(&file).unwrap();
    assert_eq!(elf.segments.len(), usize::from(count));
    assert!(!go::is_go(&file, &elf));
    assert!(sparse.read.get() <= budget, "{} bytes", sparse.read.get());
}

#[test]
fn no_room_is_made_for_tables_of_symbols_that_no_library_has() {
    const DYNSYM: u32 = 11;
    for (symbols_bytes, strings_bytes) in [(24_u64, 64_u64 << 20), (1 << 40, 100)] {
        let mut head = header((0, 0), (HEADER_BYTES, 2));
        for (kind, bytes, link) in [(DYNSYM, symbols_bytes, 1_u32), (3, strings_bytes, 0)] {
            let mut section = [0; 64];
            put(&mut section, 4, &kind.to_le_bytes());
            put(&mut section, 32, &bytes.to_le_bytes());
            put(&mut section, 40, &link.to_le_bytes());
            head.extend(section);
        }
        let file = Sparse { head, bytes: 4096, read: Cell::new(0) };
        let elf = Elf::read(&file).unwrap();
        file.read.set(0);
        assert!(elf.dynamic_symbols(&file, &["a"]).is_empty());
        assert!(file.read.get() <= 4 << 20, "{} bytes", file.read.get());
    }
}
