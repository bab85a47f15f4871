// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records of the host, of its processes and of their CPU time.

use super::{block, cpu_check, syscalls};
use crate::store::column::{Cell, Cells, Columns, Result};
use crate::store::encodings::{DefaultIfAbsent, Json, JsonOrNull, OptionalJson};
use crate::store::table::{Presence, Row, Table, tables};
use deburr_core::recording::{
    BlameTick, Cgroup, CgroupReading, Coverage, CpuReading, Event, IdleTick, LoadBin, Meta,
    NamedThreads, ObserverTick, Process, ProcessTick, PsiReading, Record, RuntimeReading,
    SchedstatTick,
};
use std::convert::identity;

tables! {
    Record in identity, since 1, Presence::Always;

    "meta" => Meta(Meta) {
        tool_version,
        host_name,
        kernel,
        cpus_online: Json,
        cgroup_layout,
        cpu_controller,
        start_unix_ns,
        start_mono_ns,
        asked_ns,
        target: Json,
        root,
    }
    "coverage" => Coverage(Coverage) { t_ns, source, state }
    "process" => Process(Process) {
        id = "proc",
        pid,
        start_ns,
        comm,
        cmdline,
        kernel_thread,
        cgroup,
        cpus_allowed,
        cpuset_cpus,
        nice,
        in_target,
        observer,
        memory_cgroup,
        scheduling: JsonOrNull,
        many: DefaultIfAbsent,
    }
    "cgroup" => Cgroup(Cgroup) {
        id = "cgroup",
        parent,
        path,
        version,
        quota_us,
        period_us,
        burst_us,
        weight,
        container: OptionalJson,
    }
    "process_tick" over tick => ProcessTick(ProcessTick) {
        proc,
        threads,
        wall_ns,
        states,
        waits,
        wait_max_ns,
        switches,
        wakeup_latency_ns,
    }
    "blame" over tick => Blame(BlameTick) { victim, culprit, ns }
    "idle" over tick => Idle(IdleTick) {
        victim,
        min_wait_ns,
        waits,
        waits_ns,
        idle_allowed_ns,
        idle_forbidden_ns,
        cpus,
        skipped_ns: DefaultIfAbsent,
    }
    "schedstat" over tick => Schedstat(SchedstatTick) {
        proc,
        threads,
        wall_ns,
        on_cpu_ns,
        delay_ns,
        slices,
    }
    "cpu_reading" => Cpu(CpuReading) {
        t_ns,
        cpu,
        user_ns,
        system_ns,
        idle_ns,
        iowait_ns,
        irq_ns,
        steal_ns,
    }
    "cgroup_reading" => CgroupCpu(CgroupReading) {
        t_ns,
        cgroup,
        usage_ns,
        nr_periods,
        nr_throttled,
        throttled_ns,
        nr_bursts,
        burst_ns,
    }
    "psi_reading" => Psi(PsiReading) { t_ns, cgroup, resource, some_ns, full_ns }
    "observer_tick" over tick => Observer(ObserverTick) {
        cpu_ns,
        bpf_runs,
        bpf_run_ns,
        rss_bytes,
        bpf_map_bytes,
        lost: JsonOrNull,
    }
    "event" => Event(Event) { t_ns, kind }
    "runtime", since 2, Presence::Added => Runtime(RuntimeReading) {
        t_ns,
        proc,
        kind = "runtime",
        version,
        threads,
        parallelism: JsonOrNull,
        unread,
        settings: JsonOrNull,
        seen: Json,
    }
    "named_threads" over tick, since 2, Presence::Added => NamedThreads(NamedThreads) {
        proc,
        comm,
        threads,
        on_cpu_ns,
        delay_ns,
    }
    and {
        Record::HostBin(bin) => bin_row(HOST, bin),
        Record::TargetBin(bin) => bin_row(TARGET, bin),
        Record::End { window_ns } => Row::new("ending", None, window_ns),
        Record::Block(record) => block::row(record),
        Record::CpuCheck(record) => cpu_check::row(record),
        Record::Syscalls(record) => syscalls::row(record),
    }
}

const HOST: &str = "host";
const TARGET: &str = "target";

/// The tables of records that have no struct of their own.
pub(in crate::store) static BY_HAND: [Table; 2] = [
    Table {
        name: "load_bin",
        columns: |name, to| {
            String::columns("scope", to);
            LoadBin::columns(name, to);
        },
        since_version: 1,
        presence: Presence::Always,
        read: read_bin,
        #[cfg(test)]
        sample: crate::store::tests::bin,
    },
    Table {
        name: "ending",
        columns: |_, to| u64::columns("window_ns", to),
        since_version: 1,
        presence: Presence::Always,
        read: |cells| Ok(Record::End { window_ns: cells.read()? }),
        #[cfg(test)]
        sample: |rng| Record::End { window_ns: crate::store::tests::Sample::sample(rng) },
    },
];

fn bin_row<'a>(scope: &'static str, bin: &'a LoadBin) -> Row<'a> {
    let mut row = Row::new("load_bin", None, bin);
    row.cells.insert(0, Cell::Text(scope.into()));
    row
}

fn read_bin(cells: &mut Cells<'_>) -> Result<Record> {
    match cells.read::<String>()?.as_str() {
        HOST => Ok(Record::HostBin(cells.read()?)),
        TARGET => Ok(Record::TargetBin(cells.read()?)),
        _ => Err(cells.damage("expected `host` or `target`")),
    }
}
