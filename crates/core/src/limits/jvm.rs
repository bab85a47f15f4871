// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads flags of a running Java virtual machine (HotSpot) without attaching to it. Tested with Java 8, 11, 17, 21, 25
//! and 28.
//!
//! `libjvm.so` exports a description of its own data structures for debuggers, `gHotSpotVMStructs`. It contains the
//! address of the table of flags and the layout of its entries, and further symbols describe its own layout. Each entry
//! has the name of a flag and the address of the variable with its value.

use super::elf::Elf;
use super::image::{Biased, Image};
use crate::recording::{Confidence, Parallelism};
use crate::text::name;
use std::collections::BTreeMap;

/// Symbols of the description of data structures: the table, and the layout of its entries.
const STRUCTS: &str = "gHotSpotVMStructs";
const STRIDE: &str = "gHotSpotVMStructEntryArrayStride";
const TYPE_NAME: &str = "gHotSpotVMStructEntryTypeNameOffset";
const FIELD_NAME: &str = "gHotSpotVMStructEntryFieldNameOffset";
const OFFSET: &str = "gHotSpotVMStructEntryOffsetOffset";
const ADDRESS: &str = "gHotSpotVMStructEntryAddressOffset";
/// Symbols of the table of types, which has their sizes, and of the layout of its entries.
const TYPES: &str = "gHotSpotVMTypes";
const TYPES_STRIDE: &str = "gHotSpotVMTypeEntryArrayStride";
const TYPES_NAME: &str = "gHotSpotVMTypeEntryTypeNameOffset";
const TYPES_SIZE: &str = "gHotSpotVMTypeEntrySizeOffset";

const SYMBOLS: [&str; 10] = [
    STRUCTS,
    STRIDE,
    TYPE_NAME,
    FIELD_NAME,
    OFFSET,
    ADDRESS,
    TYPES,
    TYPES_STRIDE,
    TYPES_NAME,
    TYPES_SIZE,
];

/// Flags that concern processors and threads, and their types.
const FLAGS: [(&str, FlagType); 9] = [
    ("ActiveProcessorCount", FlagType::Int),
    ("ParallelGCThreads", FlagType::Int),
    ("ConcGCThreads", FlagType::Int),
    ("CICompilerCount", FlagType::Int),
    ("UseContainerSupport", FlagType::Bool),
    ("UseSerialGC", FlagType::Bool),
    ("UseG1GC", FlagType::Bool),
    ("UseZGC", FlagType::Bool),
    ("UseShenandoahGC", FlagType::Bool),
];
/// Garbage collectors with their own rules for the number of threads.
const OTHER_COLLECTORS: [&str; 2] = ["UseZGC", "UseShenandoahGC"];
/// Number of compiler threads, and the smallest number of processors for which HotSpot uses it. With `l` the base-2
/// logarithm of the number of processors and `m` that of `l`, both rounded down, it uses `3 l m / 2`, at least 2
/// (`CompilationPolicy::initialize`).
const COMPILERS: [(u32, u32); 8] =
    [(2, 1), (3, 4), (4, 8), (12, 16), (15, 32), (18, 64), (21, 128), (36, 256)];

/// Number of bytes of a name that are compared: no wanted flag has a longer name.
const NAME_BYTES: usize = 24;
/// Maximum length of the version text.
const VERSION_BYTES: usize = 128;
/// Limits for the number and length of entries.
const MAX_ENTRIES: u64 = 20_000;
const MAX_STRIDE: u64 = 256;
/// Largest plausible number of threads.
const MAX_THREADS: u32 = 1 << 16;
/// Origins of flags: default, and computed by the virtual machine for this host.
const DEFAULT: u32 = 0;
const ERGONOMIC: u32 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlagType {
    Int,
    Bool,
}

/// Location of a flag, as addresses in `libjvm.so`: the same in every process that uses this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flag {
    name: &'static str,
    form: FlagType,
    value_at: u64,
    origin_at: u64,
}

/// Version and flags of a `libjvm.so`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JvmImage {
    /// Version of Java: `21.0.12.1`, `8u504`; `None` if not known.
    pub version: Option<String>,
    /// The wanted flags.
    pub flags: Vec<Flag>,
}

/// Locates the flags. `memory` is the process's memory by the addresses in `libjvm.so`. The virtual machine must have
/// started up.
#[must_use]
pub fn locate(file: &dyn Image, elf: &Elf, memory: &Biased<'_>) -> Option<JvmImage> {
    let symbols = elf.dynamic_symbols(file, &SYMBOLS);
    let number = |name: &str| memory.u64_at(*symbols.get(name)?);
    let layout = Layout {
        base: memory.pointer_at(*symbols.get(STRUCTS)?)?,
        stride: number(STRIDE).filter(|&stride| (8..=MAX_STRIDE).contains(&stride))?,
        type_name: number(TYPE_NAME)?,
        field_name: number(FIELD_NAME)?,
        offset: number(OFFSET)?,
        address: number(ADDRESS)?,
    };
    let fields = layout.fields(memory)?;
    let each = type_size(memory, &symbols, fields.of)?;
    let table = memory.pointer_at(fields.flags)?;
    let count = memory.u64_at(fields.count).filter(|&count| count <= MAX_ENTRIES)?;
    let bytes = memory.bytes(table, usize::try_from(count.checked_mul(each)?).ok()?)?;
    let mut found = Vec::new();
    for (index, entry) in bytes.chunks_exact(usize::try_from(each).ok()?).enumerate() {
        let word = |offset: u64| {
            let at = usize::try_from(offset).ok()?;
            let bytes = entry.get(at..at.checked_add(8)?)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?).wrapping_sub(memory.bias))
        };
        let (Some(name), Some(value_at)) = (word(fields.name), word(fields.value)) else {
            return None;
        };
        let Some(text) = memory.bytes(name, NAME_BYTES) else { continue };
        let is = |wanted: &str| {
            text.strip_prefix(wanted.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
        };
        if let Some(&(name, form)) = FLAGS.iter().find(|(wanted, _)| is(wanted)) {
            let origin_at = table.wrapping_add(index as u64 * each).wrapping_add(fields.origin);
            found.push(Flag { name, form, value_at, origin_at });
        }
    }
    let version = memory.pointer_at(fields.version).filter(|_| fields.version != 0);
    let version = version.and_then(|at| memory.c_string(at, VERSION_BYTES));
    (!found.is_empty()).then(|| JvmImage {
        version: version.and_then(|text| version_of(&name::decode(&text))),
        flags: found,
    })
}

/// Version of Java from the version of its virtual machine: `21.0.12.1+1-Debian` is 21.0.12.1. Up to Java 8 the two
/// differ: `25.504-b01` is 8u504.
fn version_of(text: &str) -> Option<String> {
    let end = text.find(['+', '-']).unwrap_or(text.len());
    let (version, rest) = text.split_at(end);
    let old = rest.starts_with("-b").then(|| version.strip_prefix("25.")).flatten();
    let version = old.map_or_else(|| version.to_owned(), |update| format!("8u{update}"));
    version.starts_with(|first: char| first.is_ascii_digit()).then_some(version)
}

/// Address of the description, and layout of its entries.
struct Layout {
    base: u64,
    stride: u64,
    type_name: u64,
    field_name: u64,
    offset: u64,
    address: u64,
}

/// Address of the table of flags, and layout of its entries.
#[derive(Default)]
struct Fields {
    of: &'static str,
    flags: u64,
    count: u64,
    name: u64,
    value: u64,
    origin: u64,
    /// Address of the pointer to the version text.
    version: u64,
}

impl Layout {
    fn fields(&self, memory: &Biased<'_>) -> Option<Fields> {
        // Types with the flags (`Flag` up to Java 8) and with the version.
        const VERSION: &str = "Abstract_VM_Version";
        const OF: [&str; 3] = ["JVMFlag", "Flag", VERSION];
        let mut fields = Fields::default();
        let mut known = BTreeMap::new();
        for index in 0..MAX_ENTRIES {
            let at = |offset: u64| self.base.wrapping_add(index * self.stride).wrapping_add(offset);
            let name = memory.u64_at(at(self.type_name))?;
            if name == 0 {
                break;
            }
            // All fields of a type have the same pointer to the type's name.
            let of = *known.entry(name).or_insert_with(|| {
                let text = memory.c_string(name.wrapping_sub(memory.bias), 256).unwrap_or_default();
                OF.into_iter().find(|of| of.as_bytes() == text)
            });
            let Some(of) = of else { continue };
            let field = memory.c_string(memory.pointer_at(at(self.field_name))?, 256)?;
            let (offset, address) =
                (memory.u64_at(at(self.offset))?, memory.pointer_at(at(self.address))?);
            if of == VERSION {
                if field == b"_s_vm_release" {
                    fields.version = address;
                }
                continue;
            }
            fields.of = of;
            match field.as_slice() {
                b"flags" => fields.flags = address,
                b"numFlags" => fields.count = address,
                b"_name" => fields.name = offset,
                b"_addr" => fields.value = offset,
                b"_flags" => fields.origin = offset,
                _ => {}
            }
        }
        (fields.flags != 0 && fields.count != 0).then_some(fields)
    }
}

fn type_size(memory: &Biased<'_>, symbols: &BTreeMap<&str, u64>, of: &str) -> Option<u64> {
    let base = memory.pointer_at(*symbols.get(TYPES)?)?;
    let number = |name: &str| memory.u64_at(*symbols.get(name)?);
    let stride = number(TYPES_STRIDE).filter(|&stride| (8..=MAX_STRIDE).contains(&stride))?;
    let (name, size) = (number(TYPES_NAME)?, number(TYPES_SIZE)?);
    for index in 0..MAX_ENTRIES {
        let at = |offset: u64| base.wrapping_add(index * stride).wrapping_add(offset);
        if memory.u64_at(at(name))? == 0 {
            return None;
        }
        let text = memory.c_string(memory.pointer_at(at(name))?, 256).unwrap_or_default();
        if text == of.as_bytes() {
            return memory.u64_at(at(size)).filter(|size| (24..=MAX_STRIDE).contains(size));
        }
    }
    None
}

/// Value of a flag, and whether it was set explicitly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Value {
    number: u32,
    set: bool,
}

/// Reads the flags. Returns numbers of threads, the decisive one first, and settings as they are written on a command
/// line.
#[must_use]
pub fn read(memory: &Biased<'_>, flags: &[Flag]) -> (Vec<Parallelism>, BTreeMap<String, String>) {
    let mut values = BTreeMap::new();
    for flag in flags {
        let mut byte = [0];
        let number = match flag.form {
            FlagType::Int => memory.u32_at(flag.value_at),
            FlagType::Bool => {
                memory.read(flag.value_at, &mut byte).then(|| u32::from(byte[0] != 0))
            }
        };
        // The origin is in the lowest four bits.
        let origin = memory.u32_at(flag.origin_at).map(|word| word & 15);
        let set = origin.is_some_and(|origin| origin != DEFAULT && origin != ERGONOMIC);
        if let Some(number) = number {
            values.insert(flag.name, Value { number, set });
        }
    }
    (numbers(&values), settings(&values))
}

fn settings(values: &BTreeMap<&str, Value>) -> BTreeMap<String, String> {
    let text = |(name, form): (&str, FlagType)| {
        let value = values.get(name)?;
        let text = match form {
            FlagType::Bool => (value.number != 0).to_string(),
            FlagType::Int => value.number.cast_signed().to_string(),
        };
        let worth_saying = match name {
            "ActiveProcessorCount" => value.number.cast_signed() > 0,
            "UseContainerSupport" => value.number == 0,
            _ => value.set || (form == FlagType::Bool && value.number != 0),
        };
        worth_saying.then(|| (name.to_owned(), text))
    };
    FLAGS.into_iter().filter_map(text).collect()
}

fn numbers(values: &BTreeMap<&str, Value>) -> Vec<Parallelism> {
    let number = |name: &str, value, confidence, source: &str| Parallelism {
        name: name.into(),
        value,
        confidence,
        source: source.into(),
    };
    let get = |name: &str| values.get(name).copied();
    let mut all = Vec::new();
    let is_on = |name: &&str| get(name).is_some_and(|value| value.number != 0);
    let counted = |name| get(name).filter(|value| (1..=MAX_THREADS).contains(&value.number));
    let threads = counted("ParallelGCThreads");
    let by_collector =
        threads.filter(|threads| !threads.set && !OTHER_COLLECTORS.iter().any(is_on));
    let by_compilers = counted("CICompilerCount").filter(|count| !count.set).map(|count| {
        let least = COMPILERS.iter().rev().find(|(compilers, _)| *compilers <= count.number);
        least.map_or(1, |(_, processors)| *processors)
    });
    let set_flag = counted("ActiveProcessorCount");
    if let Some(count) = set_flag {
        all.push(number("processors", count.number, Confidence::Exact, "flag in memory"));
    } else if let Some(threads) = by_collector {
        // HotSpot uses as many threads as processors up to 8, and 5 for each further 8
        // (`WorkerPolicy::parallel_worker_threads`). The result is the smallest number of processors that fits; the
        // real number is at most one higher.
        let more = threads.number.saturating_sub(8);
        let processors = threads.number.min(8) + (more * 8).div_ceil(5);
        let source = "ParallelGCThreads in memory";
        all.push(number("processors", processors, Confidence::Start, source));
    } else if let Some(processors) = by_compilers {
        all.push(number("processors", processors, Confidence::Bound, "CICompilerCount in memory"));
    }
    for name in ["ParallelGCThreads", "ConcGCThreads", "CICompilerCount"] {
        if let Some(value) = counted(name) {
            all.push(number(name, value.number, Confidence::Exact, "flag in memory"));
        }
    }
    // An explicit number of GC threads that is at least the estimated number of processors is decisive.
    let seem = all.first().filter(|first| first.confidence == Confidence::Bound);
    if let (Some(threads), Some(seem)) = (threads.filter(|threads| threads.set), seem)
        && threads.number >= seem.value
    {
        all.swap(0, 1);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[(&'static str, i32, bool)]) -> BTreeMap<&'static str, Value> {
        let value = |&(name, number, set): &(&'static str, i32, bool)| {
            (name, Value { number: number.cast_unsigned(), set })
        };
        values.iter().map(value).collect()
    }

    fn first(values: &[(&'static str, i32, bool)]) -> Option<(String, u32, Confidence)> {
        numbers(&of(values)).into_iter().next().map(|n| (n.name, n.value, n.confidence))
    }

    #[test]
    fn processors_follow_from_the_threads_that_were_worked_out_from_them() {
        let auto = ("ActiveProcessorCount", -1, false);
        let expected = |name: &str, value, confidence| Some((name.to_owned(), value, confidence));
        assert_eq!(
            first(&[auto, ("ParallelGCThreads", 4, false)]),
            expected("processors", 4, Confidence::Start)
        );
        assert_eq!(
            first(&[("ActiveProcessorCount", 3, true), ("ParallelGCThreads", 9, true)]),
            expected("processors", 3, Confidence::Exact)
        );
        assert_eq!(
            first(&[auto, ("ParallelGCThreads", 6, true)]),
            expected("ParallelGCThreads", 6, Confidence::Exact)
        );
        assert_eq!(first(&[]), None);
    }

    /// Numbers of threads that Java 8 and 25 chose for a given number of processors.
    #[test]
    fn the_numbers_of_threads_are_those_that_java_works_out() {
        let rows = [
            (1, 0, 2, 1),
            (2, 2, 2, 1),
            (3, 3, 2, 1),
            (4, 4, 3, 4),
            (8, 8, 4, 8),
            (9, 8, 4, 8),
            (16, 13, 12, 16),
            (17, 13, 12, 16),
            (32, 23, 15, 32),
            (64, 43, 18, 64),
            (96, 63, 18, 64),
            (128, 83, 21, 128),
        ];
        for (processors, collectors, compilers, at_least) in rows {
            let flags =
                [("ParallelGCThreads", collectors, false), ("CICompilerCount", compilers, false)];
            let (name, found, confidence) = first(&flags).unwrap();
            assert_eq!(name, "processors");
            if collectors > 0 {
                assert_eq!(confidence, Confidence::Start);
                assert!((found..found + 2).contains(&processors), "{processors}: {found}");
            }
            // With another collector, or a single GC thread, the compiler threads give the order of magnitude.
            for other in ["UseZGC", "UseShenandoahGC"] {
                let found = first(&[flags[0], flags[1], (other, 1, true)]);
                let expected = ("processors".to_owned(), at_least, Confidence::Bound);
                assert_eq!(found, Some(expected), "{processors}");
            }
            let serial = first(&[flags[1], ("UseSerialGC", 1, false)]);
            assert_eq!(serial.unwrap().1, at_least);
        }
        // Flags that were set explicitly say nothing about the number of processors.
        let set = [("ParallelGCThreads", 3, true), ("CICompilerCount", 12, false)];
        assert_eq!(first(&set), Some(("processors".into(), 16, Confidence::Bound)));
        let all_set = first(&[("CICompilerCount", 12, true)]).unwrap();
        assert_eq!(all_set, ("CICompilerCount".into(), 12, Confidence::Exact));
    }

    #[test]
    fn versions_of_the_virtual_machine_are_those_of_java() {
        for (text, expected) in [
            ("21.0.12.1+1-1-deb13u1-Debian", Some("21.0.12.1")),
            ("25.504-b01", Some("8u504")),
            ("25.0.3+9-Debian-2deb13u1", Some("25.0.3")),
            ("25-ea+3", Some("25")),
            ("", None),
            ("nonsense", None),
        ] {
            assert_eq!(version_of(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn settings_are_what_somebody_set() {
        let values = of(&[
            ("ActiveProcessorCount", -1, false),
            ("UseContainerSupport", 0, true),
            ("ParallelGCThreads", 4, true),
            ("ConcGCThreads", 1, false),
        ]);
        let text =
            settings(&values).into_iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>();
        assert_eq!(text, ["ParallelGCThreads=4", "UseContainerSupport=false"]);
    }

    /// Memory with random words, many of which point into it.
    fn maze() -> impl Strategy<Value = Vec<u8>> {
        let word = prop_oneof![(0..512_u64).prop_map(|at| at * 8), Just(0), any::<u64>()];
        prop::collection::vec(word, 512)
            .prop_map(|words| words.into_iter().flat_map(u64::to_le_bytes).collect())
    }

    proptest! {
        #[test]
        fn a_maze_of_pointers_has_an_end(memory in maze(), base in 0..4096_u64, stride in 8..=MAX_STRIDE) {
            let memory = Biased { image: &memory, bias: 0 };
            let layout = Layout { base, stride, type_name: 0, field_name: 8, offset: 16, address: 24 };
            let _ = layout.fields(&memory);
            let symbols = [(TYPES, base), (TYPES_STRIDE, 8), (TYPES_NAME, 16), (TYPES_SIZE, 24)].into();
            let _ = type_size(&memory, &symbols, "JVMFlag");
        }
    }
}
