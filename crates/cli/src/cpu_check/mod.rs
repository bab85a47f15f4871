// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr cpu-check`: measures workers that only compute, first more and more of them (the sweep), then two on chosen
//! CPUs (the pair test). `deburr_core::cpu_check::plan` determines what is done and for how long, its neighbour
//! modules what the results mean; this module does it and emits the records.
//!
//! At most half of each CPU's time is used. A signal ends the check at once, and what was measured so far is judged.

mod distance;
mod lengths;
mod machine;
mod pairs;
mod sweep;
mod worker;

use crate::args::Asked;
use crate::clock::{self, Clocks, WindowClock};
use crate::collect::{
    Beat, BeatTime, Collector, Context, ObservedProcess, ProcStatCollector, Roots,
};
use crate::output;
use crate::progress::Stages;
use crate::session;
use crate::signals::Signals;
use crate::sinks::Sinks;
use anyhow::Context as _;
use deburr_core::cpu_check::schedule::Budget;
use deburr_core::recording::{
    BlockRecord, CheckSetup, Coverage, CpuCheckRecord, Event, EventKind, Mix, Record, Setting,
    Source, State, TargetSpec,
};
use std::collections::BTreeMap;
use worker::{Chunk, Halt, MIN_GAP_NS};

/// A check in progress.
struct Check<'a> {
    cx: Context,
    proc_stat: Option<ProcStatCollector>,
    sinks: &'a mut Sinks,
    progress: Stages,
    halt: Halt<'a>,
    budget: Budget,
    cpus: Vec<u32>,
    cores_told: Vec<Vec<u32>>,
    realtime: bool,
    adds: Chunk,
    divs: Chunk,
}

/// Checks the CPUs that this process may use. The records end up in `sinks`.
pub(crate) fn run(
    budget: Budget,
    quiet: bool,
    sinks: &mut Sinks,
    signals: &Signals,
) -> anyhow::Result<()> {
    let mut cx = Context::new(Roots::default(), TargetSpec::Host, Asked::default());
    let cpus = machine::usable_cpus();
    let machine = machine::look(&cx.roots, &cpus);
    let proc_stat = ProcStatCollector::open(&cx);
    let realtime = worker::may_take_precedence().context("cannot start a thread")?;
    let clocks = Clocks::now();
    cx.window = WindowClock::starting_at(clocks.mono_ns);
    sinks.push(&Record::Meta(Box::new(session::meta(&cx, clocks, None))));
    coverage(sinks, proc_stat.as_ref().err(), !machine.settings.is_empty());
    own_limits(&mut cx, sinks);
    for (path, value) in machine.settings {
        let setting = Setting { t_ns: 0, path, value: Some(value) };
        sinks.push(&Record::Block(Box::new(BlockRecord::Setting(setting))));
    }
    let (adds, divs) = (Chunk::calibrated(Mix::Adds), Chunk::calibrated(Mix::Divs));
    let mut check = Check {
        cx,
        proc_stat: proc_stat.ok(),
        sinks,
        progress: Stages::start(quiet),
        halt: Halt::new(signals),
        budget,
        cores_told: machine.cores.clone().unwrap_or_default(),
        realtime,
        cpus,
        adds,
        divs,
    };
    check.push(CpuCheckRecord::Setup(CheckSetup {
        cpus: check.cpus.clone(),
        cores_told: machine.cores,
        hypervisor: machine.hypervisor,
        realtime: check.realtime,
        chunk_ns: adds.length_ns,
        min_gap_ns: MIN_GAP_NS,
    }));
    check.read_stat(Beat::Start);
    let done = check.measure();
    check.read_stat(Beat::End);
    check.end(signals);
    done
}

/// Emits the coverage of all sources: missing, except for those that are used here.
fn coverage(sinks: &mut Sinks, no_stat: Option<&State>, has_settings: bool) {
    let missing = |reason: &str| State::Missing { reason: reason.into(), gain: String::new() };
    for source in Source::ALL {
        let state = match source {
            Source::CpuCheck => State::Active,
            // The collector emits its own coverage.
            Source::ProcStat if no_stat.is_none() => continue,
            Source::ProcStat => no_stat.cloned().unwrap_or(State::Active),
            Source::Settings if has_settings => {
                State::Partial { reason: "only those of CPUs, by `deburr cpu-check`".into() }
            }
            _ => missing("not looked at by `deburr cpu-check`"),
        };
        sinks.push(&Record::Coverage(Coverage { t_ns: 0, source, state }));
    }
}

/// Records the limits of this process: the quotas of its cgroup and those above, its cpuset, its affinity.
fn own_limits(cx: &mut Context, sinks: &mut Sinks) {
    let Context { roots, processes, cgroups, target, .. } = cx;
    let own = ObservedProcess { pid: std::process::id(), ..ObservedProcess::default() };
    processes.intern(roots, cgroups, target, own, &mut |record| sinks.push(&record));
}

impl Check<'_> {
    fn measure(&mut self) -> anyhow::Result<()> {
        self.sweep()?;
        if self.cpus.len() > 1 && !self.halt.is_on() {
            let distances = self.distances()?;
            self.pair_test(&distances)?;
        }
        Ok(())
    }

    fn end(mut self, signals: &Signals) {
        let t_ns = self.t_ns();
        if let Some(signal) = signals.pending() {
            let kind = EventKind::Interrupted { signal: signal.into() };
            self.sinks.push(&Record::Event(Event { t_ns, kind }));
        }
        self.sinks.push(&Record::End { window_ns: self.t_ns() });
        self.sinks.commit(t_ns);
        self.progress.finish();
        // The open `/proc/stat` is closed with it.
        self.proc_stat = None;
    }

    /// Nanoseconds since the start.
    fn t_ns(&self) -> u64 {
        self.cx.window.now_ns()
    }

    fn since_start(&self, mono_ns: u64) -> u64 {
        self.cx.window.since_start_ns(mono_ns)
    }

    fn push(&mut self, record: CpuCheckRecord) {
        self.sinks.push(&Record::CpuCheck(Box::new(record)));
    }

    /// Records how long each CPU was busy, idle and stolen so far, and commits the recording, so that it survives a
    /// SIGKILL.
    fn read_stat(&mut self, beat: Beat) {
        let t_ns = self.t_ns();
        let Self { proc_stat, cx, sinks, .. } = self;
        if let Some(collector) = proc_stat {
            let now = BeatTime { t_ns, beat };
            if let Err(error) = collector.beat(cx, now, &mut |record| sinks.push(&record)) {
                output::say(format!("no more readings of `/proc/stat`: {error:#}"));
                self.proc_stat = None;
            }
        }
        self.sinks.commit(t_ns);
    }

    /// Sleeps until that time or until a signal.
    fn rest_until(&self, mono_ns: u64) {
        const LOOK_NS: u64 = 50_000_000;
        while !self.halt.is_on() && clock::monotonic_ns() < mono_ns {
            clock::sleep_until(mono_ns.min(clock::monotonic_ns() + LOOK_NS));
        }
    }
}

/// Pair of CPUs -> nanoseconds that a cache line takes from one to the other.
type Distances = BTreeMap<(u32, u32), u64>;
