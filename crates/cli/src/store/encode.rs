// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records as rows.
//!
//! SQLite's integers are signed: a `u64` of 2^63 and more would show as a negative number there and comes
//! back as it was.

use super::schema::Kind;
use super::{block, cpu_check, packed, runtime, syscalls};
use deburr_core::recording::{
    BlameTick, Cgroup, CgroupReading, CgroupVersion, Coverage, CpuReading, Culprit, Event,
    EventKind, IdleCpu, IdleTick, LoadBin, Meta, ObserverTick, Process, ProcessTick, PsiReading,
    PsiResource, Record, SchedstatTick, Source, State, WaitHist,
};
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use std::collections::BTreeMap;

/// Codes of [`Culprit`]s that are no process.
pub(super) const MIGRATED: i64 = -1;
pub(super) const NOT_SAMPLED: i64 = -2;

/// A cell. Text is borrowed from the record.
#[derive(Clone, Debug)]
pub(super) enum Cell<'a> {
    Null,
    Integer(i64),
    Text(&'a str),
    Owned(String),
    Blob(Vec<u8>),
}

impl rusqlite::ToSql for Cell<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Null => ToSqlOutput::Owned(Value::Null),
            Self::Integer(integer) => ToSqlOutput::Owned(Value::Integer(*integer)),
            Self::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Self::Owned(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Self::Blob(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
        })
    }
}

impl From<u64> for Cell<'_> {
    fn from(value: u64) -> Self {
        Self::Integer(value.cast_signed())
    }
}

impl From<i64> for Cell<'_> {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<u32> for Cell<'_> {
    fn from(value: u32) -> Self {
        Self::Integer(value.into())
    }
}

impl From<i32> for Cell<'_> {
    fn from(value: i32) -> Self {
        Self::Integer(value.into())
    }
}

impl From<bool> for Cell<'_> {
    fn from(value: bool) -> Self {
        Self::Integer(value.into())
    }
}

impl<'a> From<&'a str> for Cell<'a> {
    fn from(value: &'a str) -> Self {
        Self::Text(value)
    }
}

impl<'a> From<&'a String> for Cell<'a> {
    fn from(value: &'a String) -> Self {
        Self::Text(value)
    }
}

impl From<String> for Cell<'_> {
    fn from(value: String) -> Self {
        Self::Owned(value)
    }
}

impl From<Vec<u8>> for Cell<'_> {
    fn from(value: Vec<u8>) -> Self {
        Self::Blob(value)
    }
}

impl<'a, T: Into<Cell<'a>>> From<Option<T>> for Cell<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A row that is ready to be written.
#[derive(Debug)]
pub(super) struct Row<'a> {
    /// Its table.
    pub(super) kind: Kind,
    /// The range of time, for tables whose first column is `tick`.
    pub(super) tick: Option<(u64, u64)>,
    /// The other columns.
    pub(super) cells: Vec<Cell<'a>>,
}

macro_rules! cells {
    ($($value:expr),* $(,)?) => { vec![$($crate::store::encode::Cell::from($value)),*] };
}
pub(super) use cells;

/// The row of a record.
pub(super) fn row(record: &Record) -> Row<'_> {
    let plain = |kind, cells| Row { kind, tick: None, cells };
    let over = |kind, t0_ns, t1_ns, cells| Row { kind, tick: Some((t0_ns, t1_ns)), cells };
    match record {
        Record::Meta(m) => plain(Kind::Meta, meta(m)),
        Record::Coverage(c) => plain(Kind::Coverage, coverage(c)),
        Record::Process(p) => plain(Kind::Process, process(p)),
        Record::Cgroup(g) => plain(Kind::Cgroup, cgroup(g)),
        Record::ProcessTick(t) => over(Kind::ProcessTick, t.t0_ns, t.t1_ns, process_tick(t)),
        Record::Blame(b) => over(Kind::Blame, b.t0_ns, b.t1_ns, blame(b)),
        Record::Idle(t) => over(Kind::Idle, t.t0_ns, t.t1_ns, idle(t)),
        Record::Schedstat(t) => over(Kind::Schedstat, t.t0_ns, t.t1_ns, schedstat(t)),
        Record::HostBin(bin) => plain(Kind::LoadBin, load_bin("host", bin)),
        Record::TargetBin(bin) => plain(Kind::LoadBin, load_bin("target", bin)),
        Record::Cpu(r) => plain(Kind::Cpu, cpu_reading(r)),
        Record::CgroupCpu(r) => plain(Kind::CgroupCpu, cgroup_reading(r)),
        Record::Psi(r) => plain(Kind::Psi, psi_reading(r)),
        Record::Block(record) => block::row(record),
        Record::CpuCheck(record) => cpu_check::row(record),
        Record::Syscalls(record) => syscalls::row(record),
        Record::Observer(t) => over(Kind::Observer, t.t0_ns, t.t1_ns, observer_tick(t)),
        Record::Runtime(r) => plain(Kind::Runtime, runtime::cells(r)),
        Record::NamedThreads(t) => {
            over(Kind::NamedThreads, t.t0_ns, t.t1_ns, runtime::named_cells(t))
        }
        Record::Event(e) => plain(Kind::Event, event(e)),
        Record::End { window_ns } => plain(Kind::Ending, cells![*window_ns]),
    }
}

fn meta(m: &Meta) -> Vec<Cell<'_>> {
    cells![
        &m.tool_version,
        &m.host_name,
        &m.kernel,
        json(&m.cpus_online),
        &m.cgroup_layout,
        m.cpu_controller.map(version_name),
        m.start_unix_ns,
        m.start_mono_ns,
        m.asked_ns,
        json(&m.target),
        m.root,
    ]
}

fn coverage(c: &Coverage) -> Vec<Cell<'_>> {
    let (state, reason, gain) = match &c.state {
        State::Active => ("active", None, None),
        State::Partial { reason } => ("partial", Some(reason), None),
        State::Missing { reason, gain } => ("missing", Some(reason), Some(gain)),
    };
    cells![c.t_ns, source_name(c.source), state, reason, gain]
}

fn process(p: &Process) -> Vec<Cell<'_>> {
    cells![
        p.id.0,
        p.pid,
        p.start_ns,
        &p.comm,
        &p.cmdline,
        p.kernel_thread,
        p.cgroup.map(|id| id.0),
        p.cpus_allowed.as_ref(),
        p.cpuset_cpus.as_ref(),
        p.nice,
        p.in_target,
        p.observer,
        p.memory_cgroup.as_ref(),
        (!p.scheduling.is_empty()).then(|| json(&p.scheduling)),
        p.many.then_some(true),
    ]
}

fn cgroup(g: &Cgroup) -> Vec<Cell<'_>> {
    cells![
        g.id.0,
        g.parent.map(|id| id.0),
        &g.path,
        version_name(g.version),
        g.quota_us,
        g.period_us,
        g.burst_us,
        g.weight,
        g.container.as_ref().map(json),
    ]
}

fn process_tick(t: &ProcessTick) -> Vec<Cell<'_>> {
    cells![
        t.proc.0,
        t.threads,
        t.wall_ns,
        t.states.on_cpu_ns,
        t.states.queued_ns,
        t.states.throttled_ns,
        t.states.block_io_ns,
        t.states.mem_stall_ns,
        t.states.uninterruptible_ns,
        t.states.sleep_ns,
        t.states.stopped_ns,
        waits(&t.waits),
        t.wait_max_ns,
        t.switches,
        t.wakeup_latency_ns,
    ]
}

fn blame(b: &BlameTick) -> Vec<Cell<'_>> {
    let culprit = match b.culprit {
        Culprit::Process(id) => id.0.into(),
        Culprit::Migrated => MIGRATED,
        Culprit::NotSampled => NOT_SAMPLED,
    };
    cells![b.victim.0, culprit, b.ns]
}

fn idle(t: &IdleTick) -> Vec<Cell<'_>> {
    cells![
        t.victim.0,
        t.min_wait_ns,
        t.waits,
        t.waits_ns,
        t.idle_allowed_ns,
        t.idle_forbidden_ns,
        idle_cpus(&t.cpus),
    ]
}

fn schedstat(t: &SchedstatTick) -> Vec<Cell<'_>> {
    cells![t.proc.0, t.threads, t.wall_ns, t.on_cpu_ns, t.delay_ns, t.slices]
}

fn cpu_reading(r: &CpuReading) -> Vec<Cell<'_>> {
    cells![r.t_ns, r.cpu, r.user_ns, r.system_ns, r.idle_ns, r.iowait_ns, r.irq_ns, r.steal_ns]
}

fn cgroup_reading(r: &CgroupReading) -> Vec<Cell<'_>> {
    cells![
        r.t_ns,
        r.cgroup.0,
        r.usage_ns,
        r.nr_periods,
        r.nr_throttled,
        r.throttled_ns,
        r.nr_bursts,
        r.burst_ns,
    ]
}

fn psi_reading(r: &PsiReading) -> Vec<Cell<'_>> {
    let cgroup = r.cgroup.map(|id| id.0);
    cells![r.t_ns, cgroup, resource_name(r.resource), r.some_ns, r.full_ns]
}

fn observer_tick(t: &ObserverTick) -> Vec<Cell<'_>> {
    cells![t.cpu_ns, t.bpf_runs, t.bpf_run_ns, t.rss_bytes, t.bpf_map_bytes, lost(&t.lost)]
}

fn event(e: &Event) -> Vec<Cell<'_>> {
    let (name, ns, detail) = match &e.kind {
        EventKind::ClockJump { by_ns } => ("clock_jump", Some(*by_ns), None),
        EventKind::Suspend { for_ns } => ("suspend", Some(for_ns.cast_signed()), None),
        EventKind::LateTick { by_ns } => ("late_tick", Some(by_ns.cast_signed()), None),
        EventKind::TargetGone => ("target_gone", None, None),
        EventKind::Interrupted { signal } => ("interrupted", None, Some(signal)),
        EventKind::StoreFailed { reason } => ("store_failed", None, Some(reason)),
    };
    cells![e.t_ns, name, ns, detail]
}

fn load_bin<'a>(scope: &'a str, b: &LoadBin) -> Vec<Cell<'a>> {
    cells![
        scope,
        b.t0_ns,
        b.t1_ns,
        b.on_cpu_ns,
        b.queued_ns,
        b.throttled_ns,
        b.block_io_ns,
        b.waits,
        b.switches
    ]
}

/// Serialises data that holds no map with keys that JSON cannot have, which is the only way to fail.
pub(super) fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("plain data")
}

/// A packed list; `None` of an empty one.
pub(super) fn list<const OF: usize>(rows: impl Iterator<Item = [u64; OF]>) -> Option<Vec<u8>> {
    Some(packed::bytes(rows.flatten())).filter(|bytes| !bytes.is_empty())
}

/// `[[bucket, waits, ns], ...]` of the buckets that hold anything; `None` if none does.
pub(super) fn waits(hist: &WaitHist) -> Option<Vec<u8>> {
    let buckets =
        (0..hist.count.len()).map(|bucket| [bucket as u64, hist.count[bucket], hist.ns[bucket]]);
    list(buckets.filter(|&[_, count, ns]| count != 0 || ns != 0))
}

/// `[[cpu, allowed, idle_ns], ...]`.
fn idle_cpus(cpus: &[IdleCpu]) -> Option<Vec<u8>> {
    list(cpus.iter().map(|c| [c.cpu.into(), c.allowed.into(), c.idle_ns]))
}

/// `{"name": amount, ...}`.
fn lost(lost: &BTreeMap<String, u64>) -> Option<String> {
    (!lost.is_empty()).then(|| json(lost))
}

pub(super) fn version_name(version: CgroupVersion) -> &'static str {
    match version {
        CgroupVersion::V1 => "v1",
        CgroupVersion::V2 => "v2",
    }
}

pub(super) fn resource_name(resource: PsiResource) -> &'static str {
    match resource {
        PsiResource::Cpu => "cpu",
        PsiResource::Io => "io",
        PsiResource::Memory => "memory",
    }
}

pub(super) fn source_name(source: Source) -> &'static str {
    match source {
        Source::Sched => "sched",
        Source::Timeline => "timeline",
        Source::Schedstat => "schedstat",
        Source::CgroupCpu => "cgroup_cpu",
        Source::ProcStat => "proc_stat",
        Source::Psi => "psi",
        Source::Block => "block",
        Source::Writeback => "writeback",
        Source::Diskstats => "diskstats",
        Source::Settings => "settings",
        Source::Runtime => "runtime",
        Source::CpuCheck => "cpu_check",
        Source::Syscalls => "syscalls",
        Source::Observer => "observer",
    }
}
