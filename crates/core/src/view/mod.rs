// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Aggregates of a recording: totals, histograms, joins. Records are folded in one by one, so the size of a view
//! depends on the number of processes, not on the length of the recording.

pub mod block;
mod cgroup;
mod cpu_check;
mod cpu_time;
mod host;
mod interrupts;
mod kept;
mod limits;
mod longest_wait;
mod net;
mod over_time;
mod plots;
mod process;
mod profile;
mod reclaim;
mod series;
mod sleep_stacks;
mod sleeps;
mod syscalls;
pub mod waits;

pub use block::BlockView;
pub use cgroup::{CgroupView, Counter};
pub use cpu_check::CpuCheckView;
pub use cpu_time::CpuTime;
pub use host::{CpuTotals, CpuView, Load, ObserverView, PsiView};
pub use interrupts::{BURST_PAUSE_NS, InterruptKey, InterruptSource, InterruptView, Interrupted};
pub use limits::ProcessLimit;
pub use longest_wait::WholeWait;
pub use net::{
    AcceptQueue, Connection, Connections, Datagrams, HeldBack, Listener, NetKey, NetView,
    NetnsTotals, Sender, Unread,
};
pub use over_time::{Heat, OverTime};
pub use plots::{DevicePlot, LoadPlot, Plots, ThreadPlot};
pub use process::{Delay, Group, GroupCulprit, Groups, Idle, ProcessView, ThreadNameTotals, Usage};
pub use profile::{FunctionSamples, ProfileView, Samples, is_nameless};
pub use reclaim::{LimitLevel, MemoryCounters, ReclaimKey, ReclaimView, Reclaimed};
pub use series::Series;
pub use sleep_stacks::{SleepStacks, SleptIn, StackSleep, StacksOfKind};
pub use sleeps::{Lengths, Role, SleepKey, Sleeps};
pub use syscalls::{SyscallGroup, SyscallView};

use crate::finding::Report;
use crate::recording::{
    CgroupId, Event, HostFacts, Meta, ProcId, PsiResource, Record, Source, State,
};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of session events kept; further ones are only counted.
const MAX_EVENTS: usize = 100;

/// Aggregates of a recording, read by the rules.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    meta: Option<Meta>,
    host_facts: Option<HostFacts>,
    last_ns: u64,
    end_ns: Option<u64>,
    coverage: BTreeMap<Source, State>,
    processes: BTreeMap<ProcId, Box<ProcessView>>,
    switches: u64,
    queued_ns: u64,
    cgroups: BTreeMap<CgroupId, CgroupView>,
    cpus: BTreeMap<u32, CpuView>,
    host: Load,
    target: Load,
    psi: BTreeMap<(Option<CgroupId>, PsiResource), PsiView>,
    block: BlockView,
    cpu_check: CpuCheckView,
    syscalls: SyscallView,
    profile: ProfileView,
    reclaim: ReclaimView,
    interrupts: InterruptView,
    net: NetView,
    observer: ObserverView,
    events: Vec<Event>,
    events_dropped: u64,
}

/// Folds records into a [`View`].
#[derive(Clone, Debug, Default)]
pub struct Fold {
    view: View,
    over_time: Option<OverTime>,
}

impl Fold {
    /// A fold that also keeps what happened when, for [`Fold::plots`].
    #[must_use]
    pub fn with_plots() -> Self {
        Self { view: View::default(), over_time: Some(OverTime::default()) }
    }

    /// The plots of a report that was made from this view; `None` if they were not kept.
    #[must_use]
    pub fn plots(&self, report: &Report) -> Option<Plots> {
        Some(Plots::of(report, &self.view, self.over_time.as_ref()?))
    }

    /// Adds a record. Records must come in the order in which they were recorded.
    pub fn push(&mut self, record: &Record) {
        if let Some(over_time) = &mut self.over_time {
            over_time.push(record);
        }
        let view = &mut self.view;
        if let Some(span) = record.span() {
            view.last_ns = view.last_ns.max(span.t1_ns);
        }
        match record {
            Record::Meta(meta) => view.meta = Some((**meta).clone()),
            Record::HostFacts(facts) => view.host_facts = Some((**facts).clone()),
            Record::Coverage(coverage) => {
                view.coverage.insert(coverage.source, coverage.state.clone());
            }
            Record::Process(process) => {
                view.processes.entry(process.id).or_default().facts = Some(process.clone());
            }
            Record::Cgroup(cgroup) => view.cgroups.entry(cgroup.id).or_default().facts(cgroup),
            Record::ProcessTick(tick) => {
                view.processes.entry(tick.proc).or_default().tick(tick);
                view.switches = view.switches.saturating_add(tick.switches);
                view.queued_ns = view.queued_ns.saturating_add(tick.states.queued_ns);
            }
            Record::Blame(tick) => {
                view.processes.entry(tick.victim).or_default().blame(tick);
            }
            Record::LongWait(part) => {
                view.processes.entry(part.victim).or_default().long_wait(part);
            }
            Record::Idle(tick) => view.processes.entry(tick.victim).or_default().idle(tick),
            Record::Schedstat(tick) => view.processes.entry(tick.proc).or_default().schedstat(tick),
            Record::HostBin(bin) => view.host.push(bin),
            Record::TargetBin(bin) => view.target.push(bin),
            // Their sums are in the ticks of the processes.
            Record::WaitBin(_) | Record::ThreadLedger(_) => {}
            Record::Sleep(tick) => {
                let has_entries = view.meta.as_ref().is_some_and(|meta| !meta.entries.is_empty());
                view.processes.entry(tick.proc).or_default().sleep(tick, has_entries);
            }
            Record::CpuTime(reading) => {
                view.processes.entry(reading.proc).or_default().cpu_time(*reading);
            }
            Record::Reclaim(tick) => view.reclaim.tick(tick),
            Record::Memory(reading) => view.reclaim.reading(reading),
            Record::Held(held) => view.reclaim.holds(held),
            Record::Interrupts(tick) => view.interrupts.tick(tick),
            Record::Resent(tick) => view.net.resent(tick),
            Record::Sending(tick) => view.net.sending(tick),
            Record::Unread(tick) => view.net.unread(tick),
            Record::AcceptQueue(tick) => view.net.accept_queue(tick),
            Record::HeldBack(tick) => view.net.holds_back(tick),
            Record::Datagrams(tick) => view.net.datagrams(tick),
            Record::Netns(tick) => view.net.netns(tick),
            Record::Listener(tick) => view.net.listener(tick),
            Record::Cpu(reading) => view.cpus.entry(reading.cpu).or_default().push(reading),
            Record::CgroupCpu(reading) => {
                view.cgroups.entry(reading.cgroup).or_default().reading(reading);
            }
            Record::Psi(reading) => {
                view.psi.entry((reading.cgroup, reading.resource)).or_default().push(reading);
            }
            Record::Block(record) => view.block.push(record),
            Record::Runtime(reading) => {
                let process = view.processes.entry(reading.proc).or_default();
                process.runtime(reading);
            }
            Record::NamedThreads(tick) => {
                let process = view.processes.entry(tick.proc).or_default();
                process.named.entry(tick.comm.clone()).or_default().push(tick);
            }
            Record::CpuCheck(record) => view.cpu_check.push(record),
            Record::Syscalls(record) => view.syscalls.push(record),
            Record::Profile(record) => view.profile.push(record),
            Record::Observer(tick) => view.observer.push(tick),
            Record::Event(event) => view.event(event),
            Record::End { window_ns } => view.end_ns = Some(*window_ns),
        }
    }

    /// Aggregates of all records pushed so far; more records may follow.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }
}

impl View {
    fn event(&mut self, event: &Event) {
        if self.events.len() < MAX_EVENTS {
            self.events.push(event.clone());
        } else {
            self.events_dropped += 1;
        }
    }

    /// Metadata of the recording; `None` before its record.
    #[must_use]
    pub fn meta(&self) -> Option<&Meta> {
        self.meta.as_ref()
    }

    /// What the host was and how it was configured; `None` if the recording does not say.
    #[must_use]
    pub fn host_facts(&self) -> Option<&HostFacts> {
        self.host_facts.as_ref()
    }

    /// Number of online CPUs; 0 if unknown.
    #[must_use]
    pub fn cpu_count(&self) -> u32 {
        self.meta.as_ref().map_or(0, |meta| meta.cpus_online.len() as u32)
    }

    /// Length of the recording window in nanoseconds: from the end record, else the latest timestamp of a record.
    #[must_use]
    pub fn window_ns(&self) -> u64 {
        self.end_ns.unwrap_or(self.last_ns)
    }

    /// Whether the recording has an end record, so that it is complete.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.end_ns.is_some()
    }

    /// Converts a total over the window to a rate per second of wall time; 0 for an empty window.
    #[must_use]
    pub fn per_second(&self, amount: u64) -> u64 {
        match self.window_ns() {
            0 => 0,
            // No host reaches a rate above u64::MAX.
            ns => u64::try_from(u128::from(amount) * 1_000_000_000 / u128::from(ns))
                .unwrap_or(u64::MAX),
        }
    }

    /// State of a source; `None` if the recording has no coverage record of it.
    #[must_use]
    pub fn coverage(&self, source: Source) -> Option<&State> {
        self.coverage.get(&source)
    }

    /// Whether a source was fully or partly available.
    #[must_use]
    pub fn covers(&self, source: Source) -> bool {
        matches!(self.coverage(source), Some(State::Active | State::Partial { .. }))
    }

    /// All processes in the recording.
    #[must_use]
    pub fn processes(&self) -> &BTreeMap<ProcId, Box<ProcessView>> {
        &self.processes
    }

    /// Sums over all processes, from the scheduler probe: context switches, and time on run queues.
    #[must_use]
    pub fn switches_and_queued_ns(&self) -> (u64, u64) {
        (self.switches, self.queued_ns)
    }

    /// The processes, grouped by comm and cgroup.
    #[must_use]
    pub fn groups(&self) -> Groups<'_> {
        Groups::new(self)
    }

    /// The cgroups, by id. Each names its parent.
    #[must_use]
    pub fn cgroups(&self) -> &BTreeMap<CgroupId, CgroupView> {
        &self.cgroups
    }

    /// Path of a cgroup; `None` if the recording does not describe the cgroup.
    #[must_use]
    pub fn path_of(&self, id: CgroupId) -> Option<&str> {
        Some(&self.cgroups.get(&id)?.facts.as_ref()?.path)
    }

    /// A cgroup and its ancestors, innermost first, up to the root. The list ends where parent links form a cycle.
    #[must_use]
    pub fn cgroup_path(&self, id: CgroupId) -> Vec<(CgroupId, &CgroupView)> {
        let mut path = Vec::new();
        let mut visited = BTreeSet::new();
        let mut next = Some(id);
        while let Some(id) = next.filter(|&id| visited.insert(id)) {
            let Some(cgroup) = self.cgroups.get(&id) else { break };
            path.push((id, cgroup));
            next = cgroup.facts.as_ref().and_then(|facts| facts.parent);
        }
        path
    }

    /// Time counters of each CPU, by CPU number; empty without `/proc/stat`.
    #[must_use]
    pub fn cpus(&self) -> &BTreeMap<u32, CpuView> {
        &self.cpus
    }

    /// Busy, idle and steal time of all CPUs; `None` without at least two readings of `/proc/stat`.
    #[must_use]
    pub fn cpu_totals(&self) -> Option<CpuTotals> {
        let mut totals = CpuTotals::default();
        let mut any = false;
        for cpu in self.cpus.values() {
            let (Some(busy_ns), Some(idle_ns)) = (cpu.busy_ns.delta(), cpu.idle_ns.delta()) else {
                continue;
            };
            any = true;
            totals.busy_ns += busy_ns;
            totals.idle_ns += idle_ns;
            totals.steal_ns += cpu.steal_ns.delta().unwrap_or(0);
        }
        any.then_some(totals)
    }

    /// Load of the host over time.
    #[must_use]
    pub fn host_load(&self) -> &Load {
        &self.host
    }

    /// Load of the target over time; empty when the target is the host.
    #[must_use]
    pub fn target_load(&self) -> &Load {
        &self.target
    }

    /// Pressure-stall totals of a cgroup, or of the host (`cgroup` = `None`).
    #[must_use]
    pub fn psi(&self, cgroup: Option<CgroupId>, resource: PsiResource) -> Option<&PsiView> {
        self.psi.get(&(cgroup, resource))
    }

    /// Block IO.
    #[must_use]
    pub fn block(&self) -> &BlockView {
        &self.block
    }

    /// Measurements of `deburr cpu-check`.
    #[must_use]
    pub fn cpu_check(&self) -> &CpuCheckView {
        &self.cpu_check
    }

    /// Cost of system calls, for the processes whose calls were counted.
    #[must_use]
    pub fn syscalls(&self) -> &SyscallView {
        &self.syscalls
    }

    /// In what functions CPU time was spent, where a profile was asked for.
    #[must_use]
    pub fn profile(&self) -> &ProfileView {
        &self.profile
    }

    /// Memory that threads freed before they got some.
    #[must_use]
    pub fn reclaim(&self) -> &ReclaimView {
        &self.reclaim
    }

    /// Interrupts, and from whom they took time.
    #[must_use]
    pub fn interrupts(&self) -> &InterruptView {
        &self.interrupts
    }

    /// What the network lost.
    #[must_use]
    pub fn net(&self) -> &NetView {
        &self.net
    }

    /// Overhead of the observer, and data that it lost.
    #[must_use]
    pub fn observer(&self) -> &ObserverView {
        &self.observer
    }

    /// The first events of the session, at most 100.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Number of further events.
    #[must_use]
    pub fn events_dropped(&self) -> u64 {
        self.events_dropped
    }
}
