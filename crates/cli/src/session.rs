// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs one observation: opens the collectors, lets them take part in every beat until the window ends, and passes all
//! records to the sinks.
//!
//! Beats lie on a fixed grid of `CLOCK_MONOTONIC`. The window ends after its length, on a signal, with the started
//! command, with the target's last process, or when no sink is left.

use crate::args::Asked;
use crate::clock::{self, Clocks, JumpDetector, Schedule, WindowClock};
use crate::collect::{Beat, BeatTime, Context, Roots, boot_id, cpus_online};
use crate::command::Command;
use crate::observer::SelfCost;
use crate::output;
use crate::progress::Progress;
use crate::reader;
use crate::signals::Signals;
use crate::sinks::Sinks;
use crate::snapshot::Limits;
use crate::sources::{self, Running};
use crate::watch::TargetWatch;
use deburr_core::recording::{
    Coverage, Entry, Event, EventKind, HostFacts, MOST_FACT_BYTES, Meta, ObserverTick, Record,
    Source, State, TargetSpec,
};
use deburr_sys::memory;
use std::ffi::OsString;
use std::time::Duration;

/// What a collector has read this much later than its beat does not make the window longer.
const READ_WITHIN_NS: u64 = 500_000_000;

/// What to observe, and how.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The target; `None` = the command.
    pub(crate) target: Option<TargetSpec>,
    /// Which threads of the target serve requests.
    pub(crate) entries: Vec<Entry>,
    /// Length of the window; `None` = until the command ends.
    pub(crate) window: Option<Duration>,
    /// What the collectors do on request.
    pub(crate) asked: Asked,
    /// A command to start, with its arguments; may be empty.
    pub(crate) command: Vec<OsString>,
    /// Whether stdout is reserved for the report. The command's stdout then goes to stderr.
    pub(crate) stdout_is_taken: bool,
    /// Show no progress on stderr.
    pub(crate) quiet: bool,
}

/// Observes as planned and passes the records to `sinks`. An error means that nothing was observed.
pub(crate) fn run(plan: &Plan, sinks: &mut Sinks, signals: &Signals) -> anyhow::Result<()> {
    let target = plan.target.clone().unwrap_or_default();
    let mut cx = Context::new(Roots::default(), target, plan.asked.clone());
    cx.has_target |= plan.target.is_none() && !plan.command.is_empty();
    cx.entries.clone_from(&plan.entries);
    cx.processes.reader().start(&cx.roots);
    let mut cost = SelfCost::open(&cx.roots, cx.processes.reader().clone());
    let (running, not_open) = sources::open(&mut cx);
    sources::require_delays(&not_open)?;
    // What takes time is done before the command starts and the window begins: threads are observed from there on.
    let facts = if sinks.has_file() { host_facts(&cx.roots) } else { None };
    // Loading programs takes the types of the whole kernel.
    memory::give_back_unused();
    let command = Command::start(&plan.command, plan.stdout_is_taken)?;
    if let (None, Some(command)) = (&plan.target, &command) {
        cx.target = command.target();
    }
    cost.start();
    let watch = TargetWatch::new(&cx.target, &cx.roots);
    sinks.begin();
    let clocks = Clocks::now();
    cx.window = WindowClock::starting_at(clocks.mono_ns);
    let asked_ns = plan.window.map(|window| window.as_nanos().try_into().unwrap_or(u64::MAX));
    sinks.push(&Record::Meta(Box::new(meta(&cx, clocks, asked_ns))));
    for (source, state) in not_open {
        sinks.push(&Record::Coverage(Coverage { t_ns: 0, source, state }));
    }
    let mut session = Session {
        cost,
        watch,
        jumps: JumpDetector::new(clocks),
        progress: Progress::start(asked_ns, plan.quiet),
        cx,
        running,
        command,
        sinks,
        missed: 0,
        latest_ns: 0,
    };
    session.observe(asked_ns, facts, signals);
    Ok(())
}

/// Describes the session (host, kernel, start, target), for the head of the recording.
pub(crate) fn meta(cx: &Context, clocks: Clocks, asked_ns: Option<u64>) -> Meta {
    let host = rustix::system::uname();
    Meta {
        tool_version: env!("CARGO_PKG_VERSION").into(),
        host_name: host.nodename().to_string_lossy().into_owned(),
        kernel: host.release().to_string_lossy().into_owned(),
        cpus_online: cpus_online(&cx.roots),
        cgroup_layout: cx.cgroups.layout().into(),
        cpu_controller: cx.cgroups.cpu_controller(),
        start_unix_ns: clocks.real_ns,
        start_mono_ns: clocks.mono_ns,
        asked_ns,
        target: cx.target.clone(),
        entries: cx.entries.clone(),
        root: rustix::process::geteuid().is_root(),
        boot_id: boot_id(&cx.roots),
    }
}

/// What the host is and how it is configured; `None` if nothing can be read, or it is more than a recording holds.
fn host_facts(roots: &Roots) -> Option<HostFacts> {
    let taken = reader::snapshot(roots.root.clone(), Limits::BRIEF, false).ok()?.ok()?;
    let document = taken.document().ok()?;
    (document.len() <= MOST_FACT_BYTES).then_some(HostFacts { document })
}

/// An observation in progress.
struct Session<'a> {
    cx: Context,
    running: Vec<Running>,
    command: Option<Command>,
    sinks: &'a mut Sinks,
    cost: SelfCost,
    watch: TargetWatch,
    jumps: JumpDetector,
    progress: Progress,
    /// Beats that were missed since the last second.
    missed: u64,
    /// Latest time that a record belongs to, since the start of the window.
    latest_ns: u64,
}

impl Session<'_> {
    fn observe(&mut self, asked_ns: Option<u64>, facts: Option<HostFacts>, signals: &Signals) {
        let mut schedule = Schedule::default();
        self.push(Record::Coverage(Coverage {
            t_ns: 0,
            source: Source::Observer,
            state: State::Active,
        }));
        self.beat(BeatTime { t_ns: 0, beat: Beat::Start });
        if let Some(command) = &mut self.command {
            command.release();
        }
        // Not before: compressing them takes time, and threads are observed from that beat on.
        if let Some(facts) = facts {
            self.push(Record::HostFacts(Box::new(facts)));
        }
        self.sinks.commit(0);
        let end_ns = asked_ns.unwrap_or(u64::MAX);
        loop {
            let wake_ns = schedule.next_ns().min(end_ns);
            clock::sleep_until(self.cx.window.mono_ns(wake_ns));
            let t_ns = self.cx.window.now_ns();
            if let Some(early) = self.over(t_ns, end_ns, signals) {
                // The last beat may be late, too: the process was stopped, or had no CPU.
                self.missed += schedule.missed_at(t_ns);
                if let Some(by_ns) = clock::late(t_ns, wake_ns) {
                    self.event(t_ns, EventKind::LateTick { by_ns });
                }
                return self.end(t_ns, early);
            }
            if let Some(due) = schedule.wake(t_ns) {
                if let Some(by_ns) = due.late_ns {
                    self.event(t_ns, EventKind::LateTick { by_ns });
                }
                self.missed += due.missed;
                let beat = if due.second { Beat::Second } else { Beat::Bin };
                self.beat(BeatTime { t_ns, beat });
                if due.second {
                    self.sinks.commit(t_ns);
                    self.progress.at(t_ns);
                }
            }
        }
    }

    /// `Some` if the window is over. The inner event, if any, reports why it ended early.
    fn over(&mut self, t_ns: u64, end_ns: u64, signals: &Signals) -> Option<Option<EventKind>> {
        if let Some(signal) = signals.pending() {
            return Some(Some(EventKind::Interrupted { signal: signal.into() }));
        }
        if self.command.as_mut().is_some_and(Command::has_ended) || t_ns >= end_ns {
            return Some(None);
        }
        if self.watch.is_gone() {
            return Some(Some(EventKind::TargetGone));
        }
        self.sinks.all_failed().then_some(None)
    }

    fn end(&mut self, t_ns: u64, early: Option<EventKind>) {
        self.beat(BeatTime { t_ns, beat: Beat::End });
        if let Some(kind) = early {
            self.event(t_ns, kind);
        }
        // What the collectors read after the last beat is part of the window.
        let now_ns = self.cx.window.now_ns();
        let window_ns = self.latest_ns.min(now_ns).max(t_ns);
        self.push(Record::End { window_ns });
        self.sinks.commit(window_ns);
        self.progress.finish();
        if let Some(note) = self.command.as_mut().and_then(Command::still_running) {
            output::say(note);
        }
    }

    /// Lets every collector take part. One that fails is closed: that reduces the coverage and is not an error.
    fn beat(&mut self, now: BeatTime) {
        let Self { cx, sinks, watch, cost, latest_ns, .. } = self;
        let mut emit = |record: Record| {
            // Cost and losses of the probes are added to the overhead of the process.
            if let Record::Observer(tick) = record {
                cost.add(tick);
                return;
            }
            watch.see(&record);
            let is_of_sched = matches!(record, Record::ProcessTick(_) | Record::HostBin(_));
            if let Some(span) = record.span()
                && (is_of_sched || span.t1_ns > now.t_ns.saturating_add(READ_WITHIN_NS))
            {
                *latest_ns = span.t1_ns.max(*latest_ns);
            }
            sinks.push(&record);
        };
        self.running.retain_mut(|running| {
            let Err(error) = running.collector.beat(cx, now, &mut emit) else { return true };
            for &source in running.sources {
                let reason =
                    format!("failed {:.1} s into the window: {error:#}", seconds(now.t_ns));
                let state = State::Partial { reason };
                emit(Record::Coverage(Coverage { t_ns: now.t_ns, source, state }));
            }
            false
        });
        if now.beat.is_second() {
            self.cx.forget_ended();
            for kind in self.jumps.observe(Clocks::now()) {
                self.event(now.t_ns, kind);
            }
            self.watch.look();
            let mut tick = self.cost.tick(now.t_ns);
            let missed = std::mem::take(&mut self.missed);
            if missed > 0 {
                tick.lost.insert(ObserverTick::BEATS_MISSED.into(), missed);
            }
            self.push(Record::Observer(tick));
        }
    }

    fn event(&mut self, t_ns: u64, kind: EventKind) {
        self.push(Record::Event(Event { t_ns, kind }));
    }

    fn push(&mut self, record: Record) {
        self.sinks.push(&record);
    }
}

#[allow(clippy::cast_precision_loss, reason = "for a message with one decimal")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
