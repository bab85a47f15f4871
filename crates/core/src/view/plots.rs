// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The amounts over time that a page shows beside a report: the load, the waits of the victims, and the devices.

use super::over_time::{Heat, OverTime};
use super::{Load, View};
use crate::finding::{Area, Entity, EntityKind, LedgerState, Report};
use crate::recording::{DevId, IoOp, ProcId, Stall};
use crate::stats::{Span, merge};

/// Maximum number of steps of a load plot.
const LOAD_STEPS: usize = 400;

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
    /// The devices of the report.
    pub devices: Vec<DevicePlot>,
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
