// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decodes a synthetic program, and arbitrary bytes. The tests of the binary cover real programs of many versions,
//! because they can build them.

use super::*;
use crate::limits::elf::Linked;
use proptest::prelude::*;

/// Load address, and file offsets of the parts of [`program`]. Addresses are offsets plus the load address.
const BASE: u64 = 0x40_0000;
const CODE: usize = 0x400;
const TABLE: usize = 0x600;
const INFO: usize = 0x900;
const DATA: usize = 0xa00;
const SECTIONS: usize = 0xb00;
const SIZE: usize = 0xe00;

/// Value of `gomaxprocs` in the data of the file.
const PROCS: u32 = 7;

fn put(file: &mut [u8], at: usize, bytes: &[u8]) {
    file[at..at + bytes.len()].copy_from_slice(bytes);
}

/// A function of `nop`s with a load of `gomaxprocs` at byte 8, by the given instruction.
fn function(file: &mut [u8], at: usize, opcode: &[u8], machine: u16) {
    if machine == 183 {
        for word in 0..16 {
            put(file, at + 4 * word, &0xd503_201f_u32.to_le_bytes());
        }
        // adrp x27, the page of the data (the same page as the code: 0 pages away); ldrsw x0, [x27, #0xa00]
        put(file, at + 8, &(0x9000_0000_u32 | 27).to_le_bytes());
        put(file, at + 12, &(0xb980_0000_u32 | (DATA as u32 / 4) << 10 | 27 << 5).to_le_bytes());
        return;
    }
    file[at..at + 64].fill(0x90);
    put(file, at + 8, opcode);
    let next = at + 8 + opcode.len() + 4;
    put(file, at + 8 + opcode.len(), &((DATA as i64 - next as i64) as i32).to_le_bytes());
}

/// A small ELF file with all parts of a Go program (1.18 to 1.25) that are examined.
fn program(machine: u16) -> Vec<u8> {
    let mut file = vec![0; SIZE];
    put(&mut file, 0, b"\x7fELF\x02\x01\x01");
    put(&mut file, 16, &2_u16.to_le_bytes());
    put(&mut file, 18, &machine.to_le_bytes());
    put(&mut file, 32, &64_u64.to_le_bytes());
    put(&mut file, 40, &(SECTIONS as u64).to_le_bytes());
    put(&mut file, 54, &56_u16.to_le_bytes());
    put(&mut file, 56, &2_u16.to_le_bytes());
    put(&mut file, 58, &64_u16.to_le_bytes());
    put(&mut file, 60, &4_u16.to_le_bytes());
    put(&mut file, 62, &3_u16.to_le_bytes());
    for (index, (flags, from, to)) in
        [(5_u32, 0, DATA), (6, DATA, SECTIONS)].into_iter().enumerate()
    {
        let at = 64 + 56 * index;
        put(&mut file, at, &1_u32.to_le_bytes());
        put(&mut file, at + 4, &flags.to_le_bytes());
        for (field, value) in [
            (8, from as u64),
            (16, BASE + from as u64),
            (32, (to - from) as u64),
            (40, (to - from) as u64),
        ] {
            put(&mut file, at + field, &value.to_le_bytes());
        }
    }
    function(&mut file, CODE, &[0x8b, 0x05], machine);
    function(&mut file, CODE + 64, &[0x48, 0x63, 0x0d], machine);
    // The table: header, names at 0x100, entries and functions at 0x180.
    let quantum = if machine == 183 { 4 } else { 1 };
    put(&mut file, TABLE, &[0xf1, 0xff, 0xff, 0xff, 0, 0, quantum, 8]);
    for (index, word) in
        [2, 0, BASE + CODE as u64, 0x100, 0x160, 0, 0, 0x180].into_iter().enumerate()
    {
        put(&mut file, TABLE + 8 + 8 * index, &word.to_le_bytes());
    }
    put(&mut file, TABLE + 0x100, b"\0runtime.procresize\0runtime.GOMAXPROCS\0");
    for (index, word) in [0_u32, 0x40, 64, 0x60, 128, 0].into_iter().enumerate() {
        put(&mut file, TABLE + 0x180 + 4 * index, &word.to_le_bytes());
    }
    for (body, start, name) in [(0x40, 0_u32, 1_u32), (0x60, 64, 20)] {
        put(&mut file, TABLE + 0x180 + body, &start.to_le_bytes());
        put(&mut file, TABLE + 0x180 + body + 4, &name.to_le_bytes());
    }
    put(&mut file, INFO, b"\xff Go buildinf:\x08\x02");
    put(&mut file, INFO + 32, b"\x08go1.24.3");
    let modules = "path\texample\ndep\tgo.uber.org/automaxprocs\tv1.6.0\th1:x=\nbuild\tDefaultGODEBUG=a=1,b=0\n";
    put(&mut file, INFO + 41, &[modules.len() as u8 + 32]);
    put(&mut file, INFO + 58, modules.as_bytes());
    put(&mut file, DATA, &PROCS.to_le_bytes());
    put(&mut file, SECTIONS + 0x200, b"\0.gopclntab\0.go.buildinfo\0");
    let sections = [
        (0_u32, 0, 0),
        (1, TABLE, INFO - TABLE),
        (12, INFO, DATA - INFO),
        (0, SECTIONS + 0x200, 0x40),
    ];
    for (index, (name, at, bytes)) in sections.into_iter().enumerate() {
        let header = SECTIONS + 64 * index;
        put(&mut file, header, &name.to_le_bytes());
        put(&mut file, header + 4, &1_u32.to_le_bytes());
        for (field, value) in [(16, BASE + at as u64), (24, at as u64), (32, bytes as u64)] {
            put(&mut file, header + field, &value.to_le_bytes());
        }
    }
    file
}

fn looked_at(file: &Vec<u8>) -> (Option<GoBuild>, Result<Option<u32>, GomaxprocsError>) {
    let Ok(elf) = Elf::read(file) else { return (None, Err(GomaxprocsError::NoTable)) };
    // This file has no symbols, unless damage creates some.
    assert!(elf.dynamic_symbols(file, &["no_such_symbol"]).len() <= 1);
    let linked = Linked { file, elf: &elf };
    let memory = Biased { image: &linked, bias: 0 };
    let found = locate(file, &elf, &memory).map(|address| value(&memory, address));
    let addresses = [BASE, BASE + CODE as u64 + 70, u64::MAX];
    if let Ok(names) = functions_at(file, &elf, &memory, &addresses) {
        assert_eq!(names.len(), addresses.len());
    }
    (build(file, &elf, &memory), found)
}

#[test]
fn the_number_is_found_by_the_names_and_the_code_of_functions() {
    for machine in [62, 183] {
        let (build, found) = looked_at(&program(machine));
        let build = build.unwrap();
        assert_eq!(found, Ok(Some(PROCS)), "machine {machine}");
        assert_eq!(
            (build.version.as_str(), build.release(), build.patch()),
            ("go1.24.3", Some((1, 24)), 3)
        );
        assert_eq!(build.automaxprocs.as_deref(), Some("v1.6.0"));
        assert_eq!(build.default_godebug.as_deref(), Some("a=1,b=0"));
    }
}

#[test]
fn functions_are_named_by_the_addresses_within_them() {
    let file = program(62);
    let elf = Elf::read(&file).unwrap();
    let linked = Linked { file: &file, elf: &elf };
    let memory = Biased { image: &linked, bias: 0 };
    let code = BASE + CODE as u64;
    let addresses = [code + 127, code - 1, code + 63, code + 128, code, code + 64];
    let names = functions_at(&file, &elf, &memory, &addresses).unwrap();
    let (first, second) = (Some("runtime.procresize"), Some("runtime.GOMAXPROCS"));
    let names: Vec<_> = names.iter().map(Option::as_deref).collect();
    assert_eq!(names, [second, None, first, None, first, second]);
    assert_eq!(elf.address_of(CODE as u64), Some(code));
    assert_eq!([SECTIONS as u64, u64::MAX].map(|offset| elf.address_of(offset)), [None; 2]);
}

#[test]
fn headers_of_sections_are_not_needed() {
    let none = |file: &mut Vec<u8>| put(file, 60, &[0; 4]);
    let beyond = |file: &mut Vec<u8>| put(file, 40, &(1_u64 << 60).to_le_bytes());
    let too_many = |file: &mut Vec<u8>| put(file, 60, &u16::MAX.to_le_bytes());
    let names_nowhere = |file: &mut Vec<u8>| put(file, 62, &200_u16.to_le_bytes());
    let cut = |file: &mut Vec<u8>| file.truncate(SECTIONS);
    for damage in [none as fn(&mut Vec<u8>), beyond, too_many, names_nowhere, cut] {
        let mut file = program(62);
        damage(&mut file);
        let (build, found) = looked_at(&file);
        assert_eq!(build.map(|build| build.version).as_deref(), Some("go1.24.3"));
        assert_eq!(found, Ok(Some(PROCS)));
    }
    // If section headers exist and none belongs to Go, nothing is searched.
    let mut other = program(62);
    put(&mut other, SECTIONS + 0x200, b"\0.xopclntab\0.xo.buildinfo\0");
    assert_eq!(looked_at(&other).0, None);
}

#[test]
fn without_agreement_nothing_is_claimed() {
    let mut file = program(62);
    // Makes the second function load another variable.
    file[CODE + 64 + 8 + 3] ^= 4;
    assert_eq!(looked_at(&file).1, Err(GomaxprocsError::Code("no second function agrees")));
    let mut file = program(62);
    put(&mut file, TABLE + 0x101, b"runtime.procresizE");
    assert_eq!(looked_at(&file).1, Err(GomaxprocsError::Code("no procresize")));
    let mut file = program(62);
    put(&mut file, DATA, &0_u32.to_le_bytes());
    assert_eq!(looked_at(&file).1, Ok(None), "no program has 0");
    assert_eq!(looked_at(&program(8)).1, Err(GomaxprocsError::Machine));
}

#[test]
fn a_table_that_ends_early_is_named() {
    let mut file = program(62);
    put(&mut file, TABLE + 8, &u64::MAX.to_le_bytes());
    assert_eq!(looked_at(&file).1, Err(GomaxprocsError::Table("header")));
    put(&mut file, TABLE + 8, &0x10_0000_u64.to_le_bytes());
    // Changes the name of the function's entry, so that all entries are read.
    put(&mut file, TABLE + 0x180 + 0x44, &999_u32.to_le_bytes());
    assert!(matches!(looked_at(&file).1, Err(GomaxprocsError::Table("entries"))));
}

#[test]
fn versions_are_numbers() {
    let release =
        |version: &str| GoBuild { version: version.into(), ..GoBuild::default() }.release();
    assert_eq!(release("go1.27rc1"), Some((1, 27)));
    assert_eq!(release("go1.25"), Some((1, 25)));
    assert_eq!(release("devel go1.28-abcdef"), None);
    assert_eq!(release(""), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_damage_makes_it_panic(
        machine in prop::sample::select(vec![62_u16, 183]),
        damage in prop::collection::vec((0..SIZE, any::<u8>()), 1..24),
        cut in 0..=SIZE,
    ) {
        let mut file = program(machine);
        for (at, byte) in damage {
            file[at] = byte;
        }
        file.truncate(cut.max(SIZE / 4));
        let _ = looked_at(&file);
    }

    #[test]
    fn any_code_is_looked_at(code in prop::collection::vec(any::<u8>(), 0..256), start: u64) {
        prop_assert!(code::x86_64(&code, start).len() <= code.len());
        prop_assert!(code::aarch64(&code, start).len() <= code.len());
    }
}
