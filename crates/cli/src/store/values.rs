// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the types of fields are stored in columns.

use super::column::{Cell, Cells, Column, Columns, Result, Scalar, columns};
use super::packed;
use deburr_core::recording::{
    CgroupId, CgroupVersion, Culprit, DevId, DeviceBin, DiskCounters, EventKind, FileClass, FileId,
    FileState, IdleCpu, InterruptContext, InterruptKind, IoCulprit, IoOp, IoPurpose, LoadBin,
    MemoryBound, Mix, ProcId, PsiResource, ReclaimKind, Run, RuntimeKind, SleepState, Source,
    StallKind, State, ThreadStates, WaitHist,
};
use deburr_core::sqlite::Value;
use serde::de::IntoDeserializer as _;
use serde::{Deserialize, Serialize};

/// Codes of [`Culprit`]s that are not processes.
const MIGRATED: i64 = -1;
const NOT_SAMPLED: i64 = -2;
const THROTTLED: i64 = -3;

/// Limit against damaged files: a wrong number must not make the reader allocate all memory. A second has 100 bins.
const MOST_BINS: u64 = 4_096;

columns! {
    ThreadStates {
        on_cpu_ns,
        queued_ns,
        throttled_ns,
        block_io_ns,
        mem_stall_ns,
        uninterruptible_ns,
        sleep_ns,
        stopped_ns,
    }
    LoadBin {
        /// start
        t0_ns,
        /// end
        t1_ns,
        /// time on CPUs
        on_cpu_ns,
        /// waiting in run queues; in recordings made before long waits were followed while in progress, waiting that
        /// ended in the bin
        queued_ns,
        /// throttled time that ended in the bin
        throttled_ns,
        /// block IO waiting that ended in the bin
        block_io_ns,
        /// waits that ended in the bin
        waits,
        /// context switches
        switches,
    }
    DiskCounters {
        reads,
        read_bytes,
        read_ns,
        writes,
        write_bytes,
        write_ns,
        discard_bytes,
        flushes,
        busy_ns,
        depth_ns,
        in_flight,
    }
    Run { wall_ns, cpu_ns, chunks, chunk_ns, gaps, gap_ns }
}

impl Scalar for u64 {
    const KIND: &'static str = "INTEGER";
    const EXPECTED: &'static str = "an integer";

    fn cell(&self) -> Cell<'_> {
        Cell::Integer(self.cast_signed())
    }

    fn of(value: Value<'_>) -> Option<Self> {
        value.as_i64().map(i64::cast_unsigned)
    }
}

macro_rules! integers {
    ($($type:ty, $expected:literal;)*) => {$(
        impl Scalar for $type {
            const KIND: &'static str = "INTEGER";
            const EXPECTED: &'static str = $expected;

            fn cell(&self) -> Cell<'_> {
                Cell::Integer((*self).into())
            }

            fn of(value: Value<'_>) -> Option<Self> {
                value.as_i64()?.try_into().ok()
            }
        }
    )*};
}

integers! {
    i64, "an integer";
    i32, "a 32-bit number";
    u32, "a 32-bit number";
}

macro_rules! identities {
    ($($type:ident of $number:ty),*) => {$(
        impl Scalar for $type {
            const KIND: &'static str = <$number>::KIND;
            const EXPECTED: &'static str = <$number>::EXPECTED;

            fn cell(&self) -> Cell<'_> {
                self.0.cell()
            }

            fn of(value: Value<'_>) -> Option<Self> {
                <$number>::of(value).map(Self)
            }
        }
    )*};
}

identities!(ProcId of u32, FileId of u32, CgroupId of u64);

impl Scalar for bool {
    const KIND: &'static str = "INTEGER";
    const EXPECTED: &'static str = "0 or 1";

    fn cell(&self) -> Cell<'_> {
        Cell::Integer((*self).into())
    }

    fn of(value: Value<'_>) -> Option<Self> {
        match value {
            Value::Integer(0) => Some(false),
            Value::Integer(1) => Some(true),
            _ => None,
        }
    }
}

impl Scalar for String {
    const KIND: &'static str = "TEXT";
    const EXPECTED: &'static str = "UTF-8 text";

    fn cell(&self) -> Cell<'_> {
        Cell::Text(self.into())
    }

    fn of(value: Value<'_>) -> Option<Self> {
        value.as_str().map(Into::into)
    }
}

impl Scalar for DevId {
    const KIND: &'static str = "TEXT";
    const EXPECTED: &'static str = "a device as `major:minor`";

    fn cell(&self) -> Cell<'_> {
        Cell::Text(self.to_string().into())
    }

    fn of(value: Value<'_>) -> Option<Self> {
        value.as_str()?.parse().ok()
    }
}

/// The word for a variant without data, the same as in the enum's JSON.
fn word(value: &(impl Serialize + std::fmt::Debug)) -> Cell<'static> {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => Cell::Text(word.into()),
        other => unreachable!("{value:?} is no word, but {other:?}"),
    }
}

/// The variant without data of that word.
fn of_word<'w, T: Deserialize<'w>>(word: &'w str) -> Option<T> {
    let word: serde::de::value::StrDeserializer<'w, serde::de::value::Error> =
        word.into_deserializer();
    T::deserialize(word).ok()
}

/// Enums that are stored as words.
macro_rules! words {
    ($($type:ty),* $(,)?) => {$(
        impl Scalar for $type {
            const KIND: &'static str = "TEXT";
            const EXPECTED: &'static str = "a word that this version knows";

            fn cell(&self) -> Cell<'_> {
                word(self)
            }

            fn of(value: Value<'_>) -> Option<Self> {
                of_word(value.as_str()?)
            }
        }
    )*};
}

words! {
    CgroupVersion,
    FileClass,
    FileState,
    InterruptContext,
    InterruptKind,
    IoOp,
    MemoryBound,
    Mix,
    PsiResource,
    ReclaimKind,
    RuntimeKind,
    SleepState,
    Source,
    StallKind,
}

impl Scalar for Culprit {
    const KIND: &'static str = "INTEGER";
    const EXPECTED: &'static str = "a process, or -1 to -3";

    fn cell(&self) -> Cell<'_> {
        Cell::Integer(match self {
            Self::Process(id) => id.0.into(),
            Self::Migrated => MIGRATED,
            Self::NotSampled => NOT_SAMPLED,
            Self::Throttled => THROTTLED,
        })
    }

    fn of(value: Value<'_>) -> Option<Self> {
        match value.as_i64()? {
            MIGRATED => Some(Self::Migrated),
            NOT_SAMPLED => Some(Self::NotSampled),
            THROTTLED => Some(Self::Throttled),
            id => id.try_into().ok().map(ProcId).map(Self::Process),
        }
    }
}

/// A packed list; NULL if it is empty.
fn list<const OF: usize>(rows: impl Iterator<Item = [u64; OF]>) -> Cell<'static> {
    let bytes = packed::bytes(rows.flatten());
    if bytes.is_empty() { Cell::Null } else { Cell::Blob(bytes) }
}

/// Reads a list of lists of `OF` numbers each: packed, or JSON as in older recordings. `None` for NULL.
fn maybe_list<const OF: usize>(cells: &mut Cells<'_>) -> Result<Option<Vec<[u64; OF]>>> {
    let rows = match cells.next()? {
        Value::Null => return Ok(None),
        Value::Blob(bytes) => packed::numbers(bytes).and_then(|numbers| {
            let (rows, rest) = numbers.as_chunks();
            rest.is_empty().then(|| rows.to_vec())
        }),
        Value::Text(text) => serde_json::from_slice::<Vec<Vec<u64>>>(text)
            .ok()
            .and_then(|rows| rows.into_iter().map(|row| row.try_into().ok()).collect()),
        _ => None,
    };
    rows.map(Some).ok_or_else(|| cells.damage(&format!("expected a list of {OF} numbers each")))
}

/// `[[bucket, waits, ns], ...]` of the buckets that are not empty.
fn buckets(hist: &WaitHist) -> impl Iterator<Item = [u64; 3]> {
    (0..hist.count.len())
        .map(|bucket| [bucket as u64, hist.count[bucket], hist.ns[bucket]])
        .filter(|&[_, count, ns]| count != 0 || ns != 0)
}

/// NULL if all buckets are empty.
impl Columns for WaitHist {
    fn columns(name: &'static str, to: &mut Vec<Column>) {
        to.push(Column::or_null(name, "BLOB_OF_3"));
    }

    fn write<'a>(&'a self, to: &mut Vec<Cell<'a>>) {
        to.push(list(buckets(self)));
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self> {
        Ok(cells.read::<Option<Self>>()?.unwrap_or_default())
    }
}

/// An empty list, unlike NULL, means that the waits were measured.
impl Columns for Option<WaitHist> {
    fn columns(name: &'static str, to: &mut Vec<Column>) {
        WaitHist::columns(name, to);
    }

    fn write<'a>(&'a self, to: &mut Vec<Cell<'a>>) {
        let blob = |hist| Cell::Blob(packed::bytes(buckets(hist).flatten()));
        to.push(self.as_ref().map_or(Cell::Null, blob));
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self> {
        let Some(filled) = maybe_list(cells)? else { return Ok(None) };
        let mut hist = WaitHist::default();
        for [bucket, count, ns] in filled {
            let Some(bucket) = usize::try_from(bucket).ok().filter(|&at| at < hist.count.len())
            else {
                return Err(cells.damage("a bucket that does not exist"));
            };
            hist.count[bucket] = count;
            hist.ns[bucket] = ns;
        }
        Ok(Some(hist))
    }
}

/// `[[cpu, allowed, idle_ns], ...]`.
impl Columns for Vec<IdleCpu> {
    fn columns(name: &'static str, to: &mut Vec<Column>) {
        to.push(Column::or_null(name, "BLOB_OF_3"));
    }

    fn write<'a>(&'a self, to: &mut Vec<Cell<'a>>) {
        to.push(list(self.iter().map(|c| [c.cpu.into(), c.allowed.into(), c.idle_ns])));
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self> {
        let cpus = maybe_list(cells)?.unwrap_or_default().into_iter();
        let cpus = cpus.map(|[cpu, allowed, idle_ns]| {
            let cpu = cpu.try_into().map_err(|_| cells.damage("a CPU that does not exist"))?;
            Ok(IdleCpu { cpu, allowed: allowed != 0, idle_ns })
        });
        cpus.collect()
    }
}

/// The number of bins, and `[[bin, busy_ns, depth_ns, ios, bytes], ...]` of the bins with any activity: most devices
/// are idle most of the time.
impl Columns for Vec<DeviceBin> {
    fn columns(name: &'static str, to: &mut Vec<Column>) {
        u64::columns(name, to);
        to.push(Column::or_null("active", "BLOB_OF_5"));
    }

    fn write<'a>(&'a self, to: &mut Vec<Cell<'a>>) {
        to.push(Cell::Integer(self.len() as i64));
        let active = self.iter().enumerate().filter(|(_, bin)| **bin != DeviceBin::default());
        to.push(list(
            active
                .map(|(at, bin)| [at as u64, bin.busy_ns, bin.depth_ns, bin.ios.into(), bin.bytes]),
        ));
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self> {
        let count: u64 = cells.read()?;
        if count > MOST_BINS {
            return Err(cells.damage(&format!("more than {MOST_BINS} bins")));
        }
        let mut bins = vec![DeviceBin::default(); count as usize];
        for [at, busy_ns, depth_ns, ios, bytes] in maybe_list(cells)?.unwrap_or_default() {
            let bin = usize::try_from(at).ok().and_then(|at| bins.get_mut(at));
            let Some(bin) = bin else { return Err(cells.damage("a bin that does not exist")) };
            let Ok(ios) = ios.try_into() else {
                return Err(cells.damage("expected a 32-bit number"));
            };
            *bin = DeviceBin { busy_ns, depth_ns, ios, bytes };
        }
        Ok(bins)
    }
}

impl Columns for State {
    fn columns(name: &'static str, to: &mut Vec<Column>) {
        String::columns(name, to);
        Option::<String>::columns("reason", to);
        Option::<String>::columns("gain", to);
    }

    fn write<'a>(&'a self, to: &mut Vec<Cell<'a>>) {
        let (word, reason, gain) = match self {
            Self::Active => ("active", None, None),
            Self::Partial { reason } => ("partial", Some(reason), None),
            Self::Missing { reason, gain } => ("missing", Some(reason), Some(gain)),
        };
        to.push(Cell::Text(word.into()));
        to.extend([reason, gain].map(|text| text.map_or(Cell::Null, Scalar::cell)));
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self> {
        match cells.read::<String>()?.as_str() {
            "active" => Ok(Self::Active),
            "partial" => Ok(Self::Partial { reason: cells.read()? }),
            "missing" => Ok(Self::Missing { reason: cells.read()?, gain: cells.read()? }),
            _ => Err(cells.damage("expected `active`, `partial` or `missing`")),
        }
    }
}

impl Columns for EventKind {
    fn columns(_: &'static str, to: &mut Vec<Column>) {
        String::columns("event", to);
        Option::<i64>::columns("ns", to);
        Option::<String>::columns("detail", to);
    }

    fn write<'a>(&'a self, to: &mut Vec<Cell<'a>>) {
        let (name, ns, detail) = match self {
            Self::ClockJump { by_ns } => ("clock_jump", Some(*by_ns), None),
            Self::Suspend { for_ns } => ("suspend", Some(for_ns.cast_signed()), None),
            Self::LateTick { by_ns } => ("late_tick", Some(by_ns.cast_signed()), None),
            Self::TargetGone => ("target_gone", None, None),
            Self::Interrupted { signal } => ("interrupted", None, Some(signal)),
            Self::StoreFailed { reason } => ("store_failed", None, Some(reason)),
        };
        to.push(Cell::Text(name.into()));
        to.push(ns.map_or(Cell::Null, Cell::Integer));
        to.push(detail.map_or(Cell::Null, Scalar::cell));
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self> {
        let name: String = cells.read()?;
        let ns: Option<i64> = cells.read()?;
        let detail: Option<String> = cells.read()?;
        let amount = ns.ok_or_else(|| cells.damage("an event without its amount"));
        let text = detail.ok_or_else(|| cells.damage("an event without its detail"));
        Ok(match name.as_str() {
            "clock_jump" => Self::ClockJump { by_ns: amount? },
            "suspend" => Self::Suspend { for_ns: amount?.cast_unsigned() },
            "late_tick" => Self::LateTick { by_ns: amount?.cast_unsigned() },
            "target_gone" => Self::TargetGone,
            "interrupted" => Self::Interrupted { signal: text? },
            "store_failed" => Self::StoreFailed { reason: text? },
            _ => return Err(cells.damage("an event that this version does not know")),
        })
    }
}

/// A word, and the identity of the file, if it is one.
impl Columns for IoPurpose {
    fn columns(name: &'static str, to: &mut Vec<Column>) {
        String::columns(name, to);
        Option::<FileId>::columns("file", to);
    }

    fn write<'a>(&'a self, to: &mut Vec<Cell<'a>>) {
        to.extend(match self {
            Self::File(id) => [Cell::Text("file".into()), id.cell()],
            other => [word(other), Cell::Null],
        });
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self> {
        let word: String = cells.read()?;
        match (cells.read()?, of_word(&word)) {
            (Some(id), None) if word == "file" => Ok(Self::File(id)),
            (None, Some(other)) => Ok(other),
            _ => Err(cells.damage("expected a file with `file`, or another known word alone")),
        }
    }
}

/// A word, and the process or the cgroup that belongs to it.
impl Columns for IoCulprit {
    fn columns(name: &'static str, to: &mut Vec<Column>) {
        String::columns(name, to);
        Option::<ProcId>::columns("proc", to);
        Option::<CgroupId>::columns("cgroup", to);
    }

    fn write<'a>(&'a self, to: &mut Vec<Cell<'a>>) {
        to.extend(match self {
            Self::Process(id) => [Cell::Text("process".into()), id.cell(), Cell::Null],
            Self::Writeback(owner) => {
                let owner = owner.as_ref().map_or(Cell::Null, Scalar::cell);
                [Cell::Text("writeback".into()), Cell::Null, owner]
            }
            other => [word(other), Cell::Null, Cell::Null],
        });
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self> {
        let word: String = cells.read()?;
        match (word.as_str(), cells.read()?, cells.read()?) {
            ("process", Some(id), None) => Ok(Self::Process(id)),
            ("writeback", None, owner) => Ok(Self::Writeback(owner)),
            (other, None, None) => of_word(other)
                .ok_or_else(|| cells.damage("expected a culprit with what belongs to it")),
            _ => Err(cells.damage("expected a culprit with what belongs to it")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::Sample;
    use proptest::test_runner::TestRunner;

    /// The name of a variant in its JSON: the word itself, the key of its data, or the value of the tag.
    fn name_in_json(value: &impl Serialize, tag: &str) -> String {
        match serde_json::to_value(value).unwrap() {
            serde_json::Value::String(word) => word,
            serde_json::Value::Object(fields) => match fields.get(tag) {
                Some(word) => word.as_str().unwrap().to_owned(),
                None => fields.keys().next().unwrap().clone(),
            },
            other => panic!("{other}"),
        }
    }

    fn is_stored_by_that_name(value: &(impl Serialize + Columns), tag: &str) {
        let mut cells = Vec::new();
        value.write(&mut cells);
        let Cell::Text(word) = &cells[0] else { panic!("{cells:?}") };
        assert_eq!(*word, name_in_json(value, tag));
    }

    #[test]
    fn variants_with_data_are_stored_by_the_names_in_their_json_too() {
        let mut runner = TestRunner::deterministic();
        let rng = runner.rng();
        for _ in 0..200 {
            is_stored_by_that_name(&IoPurpose::sample(rng), "");
            is_stored_by_that_name(&IoCulprit::sample(rng), "");
            is_stored_by_that_name(&State::sample(rng), "state");
            is_stored_by_that_name(&EventKind::sample(rng), "event");
        }
    }
}
