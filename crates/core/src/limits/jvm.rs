// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Flags of a running Java virtual machine (HotSpot), without attaching to it. Tried with 8, 11, 17, 21, 25 and 28; the
//! description that it goes by names its own layout.
//!
//! `libjvm.so` exports a description of its own data for debuggers, `gHotSpotVMStructs`: where the table of flags is
//! and how its entries are laid out. Each entry names a flag and the variable that holds it.

use super::elf::Elf;
use super::image::{Biased, Image};
use crate::recording::{Confidence, Parallelism};
use crate::text::name;
use std::collections::BTreeMap;

/// What the description consists of.
const STRUCTS: &str = "gHotSpotVMStructs";
const STRIDE: &str = "gHotSpotVMStructEntryArrayStride";
const TYPE_NAME: &str = "gHotSpotVMStructEntryTypeNameOffset";
const FIELD_NAME: &str = "gHotSpotVMStructEntryFieldNameOffset";
const OFFSET: &str = "gHotSpotVMStructEntryOffsetOffset";
const ADDRESS: &str = "gHotSpotVMStructEntryAddressOffset";
/// The sizes of its types.
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

/// Flags that tell of processors and threads, and how they are read.
const FLAGS: [(&str, Form); 9] = [
    ("ActiveProcessorCount", Form::Int),
    ("ParallelGCThreads", Form::Int),
    ("ConcGCThreads", Form::Int),
    ("CICompilerCount", Form::Int),
    ("UseContainerSupport", Form::Bool),
    ("UseSerialGC", Form::Bool),
    ("UseG1GC", Form::Bool),
    ("UseZGC", Form::Bool),
    ("UseShenandoahGC", Form::Bool),
];
/// Collectors whose number of threads follows rules of their own.
const OTHER_COLLECTORS: [&str; 2] = ["UseZGC", "UseShenandoahGC"];
/// Compiler threads by the least number of processors for which there are as many: with `l` the logarithm of that to
/// base 2 and `m` that of `l`, rounded down both, `3 l m / 2`, and 2 at least (`CompilationPolicy::initialize`).
const COMPILERS: [(u32, u32); 8] =
    [(2, 1), (3, 4), (4, 8), (12, 16), (15, 32), (18, 64), (21, 128), (36, 256)];

/// Bytes of a name that are compared: no flag that is wanted has a longer one.
const NAME_BYTES: usize = 24;
/// Longest version that is read.
const VERSION_BYTES: usize = 128;
/// Bounds of what is read of the description.
const MAX_ENTRIES: u64 = 20_000;
const MAX_STRIDE: u64 = 256;
/// More threads are no number that somebody meant.
const MAX_THREADS: u32 = 1 << 16;
/// Origins of flags: the virtual machine's default, and what it worked out for this machine.
const DEFAULT: u32 = 0;
const ERGONOMIC: u32 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Int,
    Bool,
}

/// Where a flag is, as `libjvm.so` was linked: the same in every process that uses that file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flag {
    name: &'static str,
    form: Form,
    value_at: u64,
    origin_at: u64,
}

/// What a `libjvm.so` is and has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// `21.0.12.1`, `8u504`; `None` if it does not say.
    pub version: Option<String>,
    /// Those that are wanted.
    pub flags: Vec<Flag>,
}

/// Finds the flags. `memory` is the process's at the addresses of `libjvm.so`; the virtual machine must be up.
#[must_use]
pub fn locate(file: &dyn Image, elf: &Elf, memory: &Biased<'_>) -> Option<Machine> {
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
    (!found.is_empty()).then(|| Machine {
        version: version.and_then(|text| version_of(&name::decode(&text))),
        flags: found,
    })
}

/// The version of Java from that of its virtual machine: `21.0.12.1+1-Debian` is 21.0.12.1, and up to Java 8, where they
/// differ, `25.504-b01` is 8u504.
fn version_of(text: &str) -> Option<String> {
    let end = text.find(['+', '-']).unwrap_or(text.len());
    let (version, rest) = text.split_at(end);
    let old = rest.starts_with("-b").then(|| version.strip_prefix("25.")).flatten();
    let version = old.map_or_else(|| version.to_owned(), |update| format!("8u{update}"));
    version.starts_with(|first: char| first.is_ascii_digit()).then_some(version)
}

/// How the description is laid out.
struct Layout {
    base: u64,
    stride: u64,
    type_name: u64,
    field_name: u64,
    offset: u64,
    address: u64,
}

/// Where the table of flags is, and what is where in an entry.
#[derive(Default)]
struct Fields {
    of: &'static str,
    flags: u64,
    count: u64,
    name: u64,
    value: u64,
    origin: u64,
    /// Where the address of the version's text is.
    version: u64,
}

impl Layout {
    fn fields(&self, memory: &Biased<'_>) -> Option<Fields> {
        // Types that hold flags, `Flag` until 8, and the version.
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
            // Fields of one type share their type's name.
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

/// A flag's value, and whether somebody set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Value {
    number: u32,
    set: bool,
}

/// What the flags say: numbers of threads, the one that counts first, and settings as they are written on a command
/// line.
#[must_use]
pub fn read(memory: &Biased<'_>, flags: &[Flag]) -> (Vec<Parallelism>, BTreeMap<String, String>) {
    let mut values = BTreeMap::new();
    for flag in flags {
        let mut byte = [0];
        let number = match flag.form {
            Form::Int => memory.u32_at(flag.value_at),
            Form::Bool => memory.read(flag.value_at, &mut byte).then(|| u32::from(byte[0] != 0)),
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
    let text = |(name, form): (&str, Form)| {
        let value = values.get(name)?;
        let text = match form {
            Form::Bool => (value.number != 0).to_string(),
            Form::Int => value.number.cast_signed().to_string(),
        };
        let worth_saying = match name {
            "ActiveProcessorCount" => value.number.cast_signed() > 0,
            "UseContainerSupport" => value.number == 0,
            _ => value.set || (form == Form::Bool && value.number != 0),
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
        // As many as processors up to 8, then five for each eight more (`WorkerPolicy::parallel_worker_threads`): at
        // least so many processors, and one more at most.
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
    // Somebody wants more threads for garbage collection than the processors seem to be: that counts.
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

    /// What Java 8 and 25 chose where they were told a number of processors.
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
            // With a collector of another kind, or one thread for it, compilers tell the order of magnitude.
            for other in ["UseZGC", "UseShenandoahGC"] {
                let found = first(&[flags[0], flags[1], (other, 1, true)]);
                let expected = ("processors".to_owned(), at_least, Confidence::Bound);
                assert_eq!(found, Some(expected), "{processors}");
            }
            let serial = first(&[flags[1], ("UseSerialGC", 1, false)]);
            assert_eq!(serial.unwrap().1, at_least);
        }
        // What was set by hand tells nothing of processors.
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

    /// Words that refer to each other, as often as chance has it.
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
