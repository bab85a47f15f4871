// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rows as records: the inverse of `encode`.
//!
//! A file can be damaged or made by somebody else: whatever does not fit is an error that names the table,
//! the row and the column, never a panic and never a silent 0.

use super::encode::{MIGRATED, NOT_SAMPLED, resource_name, source_name, version_name};
use super::schema::Kind;
use super::{block, cpu_check, packed, runtime, syscalls};
use deburr_core::recording::{
    BlameTick, Cgroup, CgroupId, CgroupReading, CgroupVersion, Coverage, CpuReading, Culprit,
    Event, EventKind, IdleCpu, IdleTick, LoadBin, Meta, ObserverTick, ProcId, Process, ProcessTick,
    PsiReading, PsiResource, Record, SchedstatTick, Source, State, ThreadStates, WaitHist,
};
use rusqlite::types::ValueRef;
use serde::de::DeserializeOwned;

/// A cell that is not what its column promises.
#[derive(Debug)]
pub(super) struct Damage {
    /// What was wrong: `blame row 17, column 3: expected an integer`.
    pub(super) message: String,
}

pub(super) type Result<T> = std::result::Result<T, Damage>;

/// Reads the cells of a row from left to right.
pub(super) struct Cells<'a> {
    kind: Kind,
    row: &'a rusqlite::Row<'a>,
    column: usize,
}

impl Cells<'_> {
    pub(super) fn damage(&self, what: &str) -> Damage {
        let seq = match self.row.get_ref(0) {
            Ok(ValueRef::Integer(seq)) => seq.to_string(),
            _ => "?".into(),
        };
        let name = self.kind.table().name;
        Damage { message: format!("table `{name}`, row {seq}, column {}: {what}", self.column) }
    }

    fn next(&mut self) -> Result<ValueRef<'_>> {
        self.column += 1;
        self.row.get_ref(self.column).map_err(|_| self.damage("the column is missing"))
    }

    pub(super) fn maybe_i64(&mut self) -> Result<Option<i64>> {
        match self.next()? {
            ValueRef::Null => Ok(None),
            ValueRef::Integer(value) => Ok(Some(value)),
            _ => Err(self.damage("expected an integer")),
        }
    }

    pub(super) fn i64(&mut self) -> Result<i64> {
        self.maybe_i64()?.ok_or_else(|| self.damage("expected an integer, found NULL"))
    }

    pub(super) fn maybe_u64(&mut self) -> Result<Option<u64>> {
        Ok(self.maybe_i64()?.map(i64::cast_unsigned))
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        Ok(self.i64()?.cast_unsigned())
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        let value = self.i64()?;
        value.try_into().map_err(|_| self.damage("expected a 32-bit number"))
    }

    pub(super) fn maybe_u32(&mut self) -> Result<Option<u32>> {
        let value = self.maybe_i64()?;
        value.map(u32::try_from).transpose().map_err(|_| self.damage("expected a 32-bit number"))
    }

    fn maybe_i32(&mut self) -> Result<Option<i32>> {
        let value = self.maybe_i64()?;
        value.map(i32::try_from).transpose().map_err(|_| self.damage("expected a 32-bit number"))
    }

    pub(super) fn maybe_bool(&mut self) -> Result<Option<bool>> {
        match self.maybe_i64()? {
            None => Ok(None),
            Some(0) => Ok(Some(false)),
            Some(1) => Ok(Some(true)),
            Some(_) => Err(self.damage("expected 0 or 1")),
        }
    }

    pub(super) fn bool(&mut self) -> Result<bool> {
        self.maybe_bool()?.ok_or_else(|| self.damage("expected 0 or 1, found NULL"))
    }

    pub(super) fn maybe_text(&mut self) -> Result<Option<String>> {
        let text = match self.next()? {
            ValueRef::Null => return Ok(None),
            ValueRef::Text(bytes) => String::from_utf8(bytes.to_vec()).ok(),
            _ => None,
        };
        text.map(Some).ok_or_else(|| self.damage("expected UTF-8 text"))
    }

    pub(super) fn text(&mut self) -> Result<String> {
        self.maybe_text()?.ok_or_else(|| self.damage("expected text, found NULL"))
    }

    pub(super) fn blob(&mut self) -> Result<Vec<u8>> {
        match self.next()? {
            ValueRef::Blob(bytes) => Ok(bytes.to_vec()),
            _ => Err(self.damage("expected a BLOB")),
        }
    }

    pub(super) fn maybe_json<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let Some(text) = self.maybe_text()? else { return Ok(None) };
        serde_json::from_str(&text).map(Some).map_err(|error| self.damage(&error.to_string()))
    }

    pub(super) fn json<T: DeserializeOwned>(&mut self) -> Result<T> {
        self.maybe_json()?.ok_or_else(|| self.damage("expected JSON, found NULL"))
    }

    /// A list of lists of `OF` numbers each: packed, or JSON as recordings had it before.
    pub(super) fn maybe_list<const OF: usize>(&mut self) -> Result<Option<Vec<[u64; OF]>>> {
        let rows = match self.next()? {
            ValueRef::Null => return Ok(None),
            ValueRef::Blob(bytes) => packed::numbers(bytes).and_then(|numbers| {
                let (rows, rest) = numbers.as_chunks();
                rest.is_empty().then(|| rows.to_vec())
            }),
            ValueRef::Text(text) => serde_json::from_slice::<Vec<Vec<u64>>>(text)
                .ok()
                .and_then(|rows| rows.into_iter().map(|row| row.try_into().ok()).collect()),
            _ => None,
        };
        rows.map(Some).ok_or_else(|| self.damage(&format!("expected a list of {OF} numbers each")))
    }

    pub(super) fn one_of<T: Copy>(&mut self, all: &[T], name: fn(T) -> &'static str) -> Result<T> {
        let text = self.text()?;
        all.iter()
            .copied()
            .find(|&value| name(value) == text)
            .ok_or_else(|| self.damage("a word that this version does not know"))
    }

    pub(super) fn proc_id(&mut self) -> Result<ProcId> {
        self.u32().map(ProcId)
    }

    pub(super) fn maybe_cgroup_id(&mut self) -> Result<Option<CgroupId>> {
        Ok(self.maybe_u64()?.map(CgroupId))
    }
}

const VERSIONS: [CgroupVersion; 2] = [CgroupVersion::V1, CgroupVersion::V2];
const RESOURCES: [PsiResource; 3] = [PsiResource::Cpu, PsiResource::Io, PsiResource::Memory];

/// The record in a row that [`super::schema::Table::select`] yielded.
pub(super) fn record(kind: Kind, row: &rusqlite::Row<'_>) -> Result<Record> {
    let mut cells = Cells { kind, row, column: 0 };
    let c = &mut cells;
    Ok(match kind {
        Kind::Meta => Record::Meta(Box::new(meta(c)?)),
        Kind::Coverage => Record::Coverage(coverage(c)?),
        Kind::Process => Record::Process(Box::new(process(c)?)),
        Kind::Cgroup => Record::Cgroup(Box::new(cgroup(c)?)),
        Kind::ProcessTick => Record::ProcessTick(Box::new(process_tick(c)?)),
        Kind::Blame => Record::Blame(blame(c)?),
        Kind::Idle => Record::Idle(Box::new(idle(c)?)),
        Kind::Schedstat => Record::Schedstat(schedstat(c)?),
        Kind::LoadBin => load_bin(c)?,
        Kind::Cpu => Record::Cpu(cpu_reading(c)?),
        Kind::CgroupCpu => Record::CgroupCpu(cgroup_reading(c)?),
        Kind::Psi => Record::Psi(psi_reading(c)?),
        Kind::Observer => Record::Observer(observer_tick(c)?),
        Kind::Event => Record::Event(event(c)?),
        Kind::Ending => Record::End { window_ns: c.u64()? },
        Kind::Runtime => Record::Runtime(Box::new(runtime::read(c)?)),
        Kind::NamedThreads => Record::NamedThreads(Box::new(runtime::read_named(c)?)),
        Kind::CpuCheck | Kind::CpuWorker | Kind::CpuRound | Kind::CpuDistance => {
            Record::CpuCheck(Box::new(cpu_check::record(kind, c)?))
        }
        Kind::SyscallSpan | Kind::Syscall | Kind::SyscallFile => {
            Record::Syscalls(Box::new(syscalls::record(kind, c)?))
        }
        kind => Record::Block(Box::new(block::record(kind, c)?)),
    })
}

fn meta(c: &mut Cells<'_>) -> Result<Meta> {
    Ok(Meta {
        tool_version: c.text()?,
        host_name: c.text()?,
        kernel: c.text()?,
        cpus_online: c.json()?,
        cgroup_layout: c.text()?,
        cpu_controller: maybe_version(c)?,
        start_unix_ns: c.i64()?,
        start_mono_ns: c.u64()?,
        asked_ns: c.maybe_u64()?,
        target: c.json()?,
        root: c.bool()?,
    })
}

fn maybe_version(c: &mut Cells<'_>) -> Result<Option<CgroupVersion>> {
    let Some(text) = c.maybe_text()? else { return Ok(None) };
    let version = VERSIONS.into_iter().find(|&version| version_name(version) == text);
    version.map(Some).ok_or_else(|| c.damage("expected `v1` or `v2`"))
}

fn coverage(c: &mut Cells<'_>) -> Result<Coverage> {
    let t_ns = c.u64()?;
    let source = c.one_of(&Source::ALL, source_name)?;
    let state = match c.text()?.as_str() {
        "active" => State::Active,
        "partial" => State::Partial { reason: c.text()? },
        "missing" => State::Missing { reason: c.text()?, gain: c.text()? },
        _ => return Err(c.damage("expected `active`, `partial` or `missing`")),
    };
    Ok(Coverage { t_ns, source, state })
}

fn process(c: &mut Cells<'_>) -> Result<Process> {
    Ok(Process {
        id: c.proc_id()?,
        pid: c.u32()?,
        start_ns: c.u64()?,
        comm: c.text()?,
        cmdline: c.text()?,
        kernel_thread: c.maybe_bool()?,
        cgroup: c.maybe_cgroup_id()?,
        cpus_allowed: c.maybe_text()?,
        cpuset_cpus: c.maybe_text()?,
        nice: c.maybe_i32()?,
        in_target: c.bool()?,
        observer: c.bool()?,
        memory_cgroup: c.maybe_text()?,
        scheduling: c.maybe_json()?.unwrap_or_default(),
        many: c.maybe_bool()?.unwrap_or_default(),
    })
}

fn cgroup(c: &mut Cells<'_>) -> Result<Cgroup> {
    Ok(Cgroup {
        id: CgroupId(c.u64()?),
        parent: c.maybe_cgroup_id()?,
        path: c.text()?,
        version: c.one_of(&VERSIONS, version_name)?,
        quota_us: c.maybe_u64()?,
        period_us: c.maybe_u64()?,
        burst_us: c.maybe_u64()?,
        weight: c.maybe_u64()?,
        container: c.maybe_json()?,
    })
}

fn process_tick(c: &mut Cells<'_>) -> Result<ProcessTick> {
    Ok(ProcessTick {
        t0_ns: c.u64()?,
        t1_ns: c.u64()?,
        proc: c.proc_id()?,
        threads: c.u32()?,
        wall_ns: c.u64()?,
        states: ThreadStates {
            on_cpu_ns: c.u64()?,
            queued_ns: c.u64()?,
            throttled_ns: c.u64()?,
            block_io_ns: c.u64()?,
            mem_stall_ns: c.u64()?,
            uninterruptible_ns: c.u64()?,
            sleep_ns: c.u64()?,
            stopped_ns: c.u64()?,
        },
        waits: waits(c)?,
        wait_max_ns: c.u64()?,
        switches: c.u64()?,
        wakeup_latency_ns: c.u64()?,
    })
}

pub(super) fn waits(c: &mut Cells<'_>) -> Result<WaitHist> {
    Ok(maybe_waits(c)?.unwrap_or_default())
}

/// The same; `None` of NULL.
pub(super) fn maybe_waits(c: &mut Cells<'_>) -> Result<Option<WaitHist>> {
    let mut hist = WaitHist::default();
    let Some(filled) = c.maybe_list()? else { return Ok(None) };
    for [bucket, count, ns] in filled {
        let Some(bucket) = usize::try_from(bucket).ok().filter(|&at| at < hist.count.len()) else {
            return Err(c.damage("a bucket that does not exist"));
        };
        hist.count[bucket] = count;
        hist.ns[bucket] = ns;
    }
    Ok(Some(hist))
}

fn blame(c: &mut Cells<'_>) -> Result<BlameTick> {
    Ok(BlameTick {
        t0_ns: c.u64()?,
        t1_ns: c.u64()?,
        victim: c.proc_id()?,
        culprit: match c.i64()? {
            MIGRATED => Culprit::Migrated,
            NOT_SAMPLED => Culprit::NotSampled,
            id => Culprit::Process(ProcId(
                id.try_into().map_err(|_| c.damage("expected a process, -1 or -2"))?,
            )),
        },
        ns: c.u64()?,
    })
}

fn idle(c: &mut Cells<'_>) -> Result<IdleTick> {
    Ok(IdleTick {
        t0_ns: c.u64()?,
        t1_ns: c.u64()?,
        victim: c.proc_id()?,
        min_wait_ns: c.u64()?,
        waits: c.u64()?,
        waits_ns: c.u64()?,
        idle_allowed_ns: c.u64()?,
        idle_forbidden_ns: c.u64()?,
        cpus: idle_cpus(c)?,
    })
}

fn idle_cpus(c: &mut Cells<'_>) -> Result<Vec<IdleCpu>> {
    let cpus = c.maybe_list()?.unwrap_or_default().into_iter();
    let cpus = cpus.map(|[cpu, allowed, idle_ns]| {
        let cpu = cpu.try_into().map_err(|_| c.damage("a CPU that does not exist"))?;
        Ok(IdleCpu { cpu, allowed: allowed != 0, idle_ns })
    });
    cpus.collect()
}

fn schedstat(c: &mut Cells<'_>) -> Result<SchedstatTick> {
    Ok(SchedstatTick {
        t0_ns: c.u64()?,
        t1_ns: c.u64()?,
        proc: c.proc_id()?,
        threads: c.u32()?,
        wall_ns: c.u64()?,
        on_cpu_ns: c.u64()?,
        delay_ns: c.u64()?,
        slices: c.u64()?,
    })
}

fn load_bin(c: &mut Cells<'_>) -> Result<Record> {
    let wrap = match c.text()?.as_str() {
        "host" => Record::HostBin,
        "target" => Record::TargetBin,
        _ => return Err(c.damage("expected `host` or `target`")),
    };
    Ok(wrap(LoadBin {
        t0_ns: c.u64()?,
        t1_ns: c.u64()?,
        on_cpu_ns: c.u64()?,
        queued_ns: c.u64()?,
        throttled_ns: c.u64()?,
        block_io_ns: c.u64()?,
        waits: c.u64()?,
        switches: c.u64()?,
    }))
}

fn cpu_reading(c: &mut Cells<'_>) -> Result<CpuReading> {
    Ok(CpuReading {
        t_ns: c.u64()?,
        cpu: c.u32()?,
        user_ns: c.u64()?,
        system_ns: c.u64()?,
        idle_ns: c.u64()?,
        iowait_ns: c.u64()?,
        irq_ns: c.u64()?,
        steal_ns: c.u64()?,
    })
}

fn cgroup_reading(c: &mut Cells<'_>) -> Result<CgroupReading> {
    Ok(CgroupReading {
        t_ns: c.u64()?,
        cgroup: CgroupId(c.u64()?),
        usage_ns: c.maybe_u64()?,
        nr_periods: c.maybe_u64()?,
        nr_throttled: c.maybe_u64()?,
        throttled_ns: c.maybe_u64()?,
        nr_bursts: c.maybe_u64()?,
        burst_ns: c.maybe_u64()?,
    })
}

fn psi_reading(c: &mut Cells<'_>) -> Result<PsiReading> {
    Ok(PsiReading {
        t_ns: c.u64()?,
        cgroup: c.maybe_cgroup_id()?,
        resource: c.one_of(&RESOURCES, resource_name)?,
        some_ns: c.u64()?,
        full_ns: c.maybe_u64()?,
    })
}

fn observer_tick(c: &mut Cells<'_>) -> Result<ObserverTick> {
    Ok(ObserverTick {
        t0_ns: c.u64()?,
        t1_ns: c.u64()?,
        cpu_ns: c.u64()?,
        bpf_runs: c.u64()?,
        bpf_run_ns: c.maybe_u64()?,
        rss_bytes: c.u64()?,
        bpf_map_bytes: c.u64()?,
        lost: c.maybe_json()?.unwrap_or_default(),
    })
}

fn event(c: &mut Cells<'_>) -> Result<Event> {
    let t_ns = c.u64()?;
    let name = c.text()?;
    let ns = c.maybe_i64()?;
    let detail = c.maybe_text()?;
    let amount = ns.ok_or_else(|| c.damage("an event without its amount"));
    let text = detail.ok_or_else(|| c.damage("an event without its detail"));
    let kind = match name.as_str() {
        "clock_jump" => EventKind::ClockJump { by_ns: amount? },
        "suspend" => EventKind::Suspend { for_ns: amount?.cast_unsigned() },
        "late_tick" => EventKind::LateTick { by_ns: amount?.cast_unsigned() },
        "target_gone" => EventKind::TargetGone,
        "interrupted" => EventKind::Interrupted { signal: text? },
        "store_failed" => EventKind::StoreFailed { reason: text? },
        _ => return Err(c.damage("an event that this version does not know")),
    };
    Ok(Event { t_ns, kind })
}
