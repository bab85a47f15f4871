// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a page shows beside a report: the load, the waits of the victims and the devices over time, and single threads.

use super::over_time::{Heat, OverTime};
use super::process::by_state;
use super::{Load, View};
use crate::finding::{Area, Entity, EntityKind, Ledger, LedgerPart, LedgerState, Report};
use crate::recording::{DevId, IoOp, ProcId, Stall, ThreadLedger};
use crate::stats::{Span, merge};
use std::cmp::Reverse;

/// Maximum number of steps of a load plot.
const LOAD_STEPS: usize = 400;
/// Threads of a ledger that are shown by themselves.
const THREADS: usize = 16;

/// What a page shows over the window of a report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plots {
    /// Length of the window in nanoseconds.
    pub window_ns: u64,
    /// Number of CPUs; 0 if unknown.
    pub cpus: u32,
    /// Load of the target or the host.
    pub load: Option<LoadPlot>,
    /// Run-queue waits of the target or the host.
    pub waits: Option<Heat>,
    /// Run-queue waits of the victim of each finding, where the finding is about them.
    pub of_findings: Vec<Option<Heat>>,
    /// The threads of each ledger of the report, where they are known.
    pub threads: Vec<Option<ThreadPlot>>,
    /// The devices of the report.
    pub devices: Vec<DevicePlot>,
}

/// The ledger of a victim by thread.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadPlot {
    /// Those of its threads that lost most, the worst first.
    pub threads: Vec<Ledger>,
    /// All its others together: what the victim's ledger has and those threads' have not.
    pub rest: Ledger,
}

/// Threads by state, over time.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadPlot {
    /// Length of a step in nanoseconds.
    pub step_ns: u64,
    /// Mean number of threads in each state in each step.
    pub states: Vec<(LedgerState, Vec<f64>)>,
}

/// A device over time.
#[derive(Clone, Debug, PartialEq)]
pub struct DevicePlot {
    /// Its name, as in the report.
    pub device: String,
    /// Length of a step of `busy` in nanoseconds.
    pub step_ns: u64,
    /// Busy share of each step, 0..1.
    pub busy: Vec<f64>,
    /// What happened meanwhile: its name, and when.
    pub marks: Vec<(&'static str, Vec<Span>)>,
    /// Latency of its requests by direction.
    pub requests: Vec<(IoOp, Heat)>,
}

impl Plots {
    /// The plots for a report that was made from this view.
    #[must_use]
    pub fn of(report: &Report, view: &View, over_time: &OverTime) -> Self {
        let is_host = report.target.kind == "host";
        let load = if is_host { view.host_load() } else { view.target_load() };
        let watched: Vec<ProcId> = view
            .processes()
            .iter()
            .filter(|(_, it)| is_host || it.facts.as_ref().is_some_and(|facts| facts.in_target))
            .map(|(id, _)| *id)
            .collect();
        let of_finding = |victim: &Entity| over_time.waits(view, &processes(view, victim));
        Self {
            window_ns: view.window_ns(),
            cpus: view.cpu_count(),
            load: LoadPlot::of(load, view.window_ns()),
            waits: if is_host {
                over_time.all_waits(view)
            } else {
                over_time.waits_of_target(view, &watched)
            },
            of_findings: report
                .findings
                .iter()
                .map(|it| (it.area == Area::Sched).then(|| of_finding(&it.victim)).flatten())
                .collect(),
            threads: report.ledger.iter().map(|it| ThreadPlot::of(it, view, over_time)).collect(),
            devices: devices(report, view, over_time),
        }
    }
}

/// The processes that a victim stands for.
fn processes(view: &View, victim: &Entity) -> Vec<ProcId> {
    let groups = view.groups();
    let of_cgroup = |path: &str| {
        let inside = |id| view.path_of(id).is_some_and(|it| it == path);
        let groups = groups.list().iter().filter(|it| it.cgroup.is_some_and(inside));
        groups.flat_map(|group| group.members.iter().map(|(id, _)| *id)).collect()
    };
    match (victim.kind, victim.pid, &victim.cgroup) {
        (EntityKind::Process, Some(pid), _) => {
            let is_it = |facts: &crate::recording::Process| {
                facts.pid == pid && victim.comm.as_ref().is_none_or(|comm| *comm == facts.comm)
            };
            let group = groups.list().iter();
            let mut group = group.filter(|it| it.members.iter().any(|(_, facts)| is_it(facts)));
            group.next().map_or(vec![], |it| it.members.iter().map(|(id, _)| *id).collect())
        }
        (EntityKind::Cgroup, _, Some(path)) => of_cgroup(path),
        _ => vec![],
    }
}

impl ThreadPlot {
    fn of(ledger: &Ledger, view: &View, over_time: &OverTime) -> Option<Self> {
        let mut threads = Vec::new();
        for process in processes(view, &ledger.victim) {
            let pid = view.processes().get(&process).and_then(|it| Some(it.facts.as_ref()?.pid));
            let named = over_time.threads(process).iter().filter(|it| it.tid.is_some());
            threads.extend(named.map(|it| of_thread(it, pid)));
        }
        threads.sort_by_key(|it| (Reverse(lost_ns(it)), Reverse(it.parts[0].ns), it.victim.tid));
        threads.truncate(THREADS);
        let known_ns =
            |state| threads.iter().map(|it| part_ns(it, state)).fold(0, u64::saturating_add);
        let rest = |part: &LedgerPart| {
            let ns = part.ns.saturating_sub(known_ns(part.state));
            LedgerPart { state: part.state, ns }
        };
        let parts: Vec<LedgerPart> = ledger.parts.iter().map(rest).collect();
        let wall_ns = parts.iter().map(|part| part.ns).fold(0, u64::saturating_add);
        let rest = Ledger {
            wall_ns,
            parts,
            tails: vec![],
            mem_stall_by: vec![],
            asleep: vec![],
            tasks_of: vec![],
            in_kernel: None,
            interrupted: None,
            interrupted_by: vec![],
            ..ledger.clone()
        };
        (!threads.is_empty()).then_some(Self { threads, rest })
    }
}

fn of_thread(it: &ThreadLedger, pid: Option<u32>) -> Ledger {
    let comm = Some(it.comm.clone());
    let victim = Entity { pid, tid: it.tid, comm, ..Entity::new(EntityKind::Thread) };
    let mut parts: Vec<LedgerPart> =
        by_state(&it.states).into_iter().map(|(state, ns)| LedgerPart { state, ns }).collect();
    let known_ns = parts.iter().map(|part| part.ns).fold(0, u64::saturating_add);
    let wall_ns = it.wall_ns.max(known_ns);
    parts.push(LedgerPart { state: LedgerState::Unattributed, ns: wall_ns - known_ns });
    let (threads, excess_ns, unseen_ns) = (it.threads, 0, 0);
    let (in_kernel, interrupted, asleep, tails) = (None, None, vec![], vec![]);
    Ledger {
        victim,
        awaited: false,
        wall_ns,
        threads,
        parts,
        in_kernel,
        interrupted,
        interrupted_by: vec![],
        mem_stall_by: vec![],
        asleep,
        tasks_of: vec![],
        excess_ns,
        unseen_ns,
        tails,
    }
}

fn part_ns(ledger: &Ledger, state: LedgerState) -> u64 {
    ledger.parts.iter().find(|part| part.state == state).map_or(0, |part| part.ns)
}

fn lost_ns(ledger: &Ledger) -> u64 {
    use LedgerState::{BlockIo, MemStall, Queued, Throttled, Uninterruptible};
    let lost = [Queued, Throttled, BlockIo, MemStall, Uninterruptible].into_iter();
    lost.map(|state| part_ns(ledger, state)).fold(0, u64::saturating_add)
}

impl LoadPlot {
    fn of(load: &Load, window_ns: u64) -> Option<Self> {
        let width_ns = load.on_cpu.width_ns();
        // The series of the states may have become coarser one by one.
        let all = [&load.on_cpu, &load.queued, &load.throttled, &load.block_io];
        let widest_ns = all.iter().map(|it| it.width_ns()).max().unwrap_or(width_ns);
        let mut step_ns = widest_ns;
        while window_ns.div_ceil(step_ns) > LOAD_STEPS as u64 {
            step_ns = step_ns.saturating_mul(2);
        }
        let steps = usize::try_from(window_ns.div_ceil(step_ns)).unwrap_or(0);
        use LedgerState::{BlockIo, OnCpu, Queued, Throttled};
        let states = [OnCpu, Queued, Throttled, BlockIo].into_iter().zip(all);
        let mean = |ns: u64, step: usize| {
            let left_ns = window_ns.saturating_sub(step as u64 * step_ns).min(step_ns);
            ns as f64 / left_ns.max(1) as f64
        };
        let states: Vec<(LedgerState, Vec<f64>)> = states
            .filter(|(_, series)| series.total() > 0)
            .map(|(state, series)| {
                let bins = series.in_bins_of(step_ns).into_iter().take(steps).enumerate();
                (state, bins.map(|(step, ns)| mean(ns, step)).collect())
            })
            .collect();
        (steps > 0 && !states.is_empty()).then_some(Self { step_ns, states })
    }
}

fn devices(report: &Report, view: &View, over_time: &OverTime) -> Vec<DevicePlot> {
    let block = view.block();
    let known = block.activity().keys().map(|&id| (id, block.device_name(id)));
    let known: Vec<(DevId, String)> = known.collect();
    let reported = report.block_io.iter().flat_map(|io| &io.devices);
    reported
        .filter_map(|device| {
            let (id, name) = known.iter().find(|(_, name)| *name == device.device)?;
            let busy = over_time.busy(*id)?;
            let width_ns = busy.width_ns();
            let share = |ns: u64| (ns as f64 / width_ns.max(1) as f64).min(1.0);
            let ops = [IoOp::Read, IoOp::Write, IoOp::Other].into_iter();
            Some(DevicePlot {
                device: name.clone(),
                step_ns: width_ns,
                busy: busy.bins().into_iter().map(share).collect(),
                marks: marks(view, *id),
                requests: ops
                    .filter_map(|op| Some((op, over_time.requests(view, *id, op)?)))
                    .collect(),
            })
        })
        .collect()
}

/// What happened on a disk: passes of the flusher, commits of journals, long stalls of processes.
fn marks(view: &View, disk: DevId) -> Vec<(&'static str, Vec<Span>)> {
    let block = view.block();
    let span = |t0_ns, t1_ns| Span::new(t0_ns, u64::max(t0_ns, t1_ns));
    let passes = block.unasked_passes_over(disk).into_iter().map(|it| span(it.t0_ns, it.t1_ns));
    let commits = block.commits_on(disk).into_iter().map(|it| span(it.t0_ns, it.t1_ns));
    let on_it = |device: Option<DevId>| device.is_some_and(|it| block.disk_of(it) == disk);
    let stalls = block.stalls().iter().filter(|it| on_it(it.device)).map(Stall::span);
    let rows = [
        ("writeback", merge(passes.collect(), 0)),
        ("commits", merge(commits.collect(), 0)),
        ("stalls", merge(stalls.collect(), 0)),
    ];
    rows.into_iter().filter(|(_, spans)| !spans.is_empty()).collect()
}
