// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One observation: opens the collectors, beats until the window ends, hands every record to the sinks.
//!
//! Beats lie on a fixed grid of `CLOCK_MONOTONIC`. What ends the window: its length, a signal, the end of the
//! started command, the end of the target's last process, or that nobody takes the records any more.

use crate::clock::{self, Clocks, JumpDetector, Schedule};
use crate::collect::{Beat, Context, Now, Roots};
use crate::command::Command;
use crate::observer::SelfCost;
use crate::output;
use crate::progress::Progress;
use crate::signals::Signals;
use crate::sinks::Sinks;
use crate::sources::{self, Running};
use crate::watch::TargetWatch;
use deburr_core::recording::{Coverage, Event, EventKind, Meta, Record, Source, State, TargetSpec};
use std::ffi::OsString;
use std::time::Duration;

/// What is to be observed.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Whom to look at; `None` = the command.
    pub(crate) target: Option<TargetSpec>,
    /// For how long; `None` = until the command ends.
    pub(crate) asked: Option<Duration>,
    /// Follow one in so many block requests; `None` = as many as the budget allows.
    pub(crate) io_one_in: Option<u32>,
    /// Count system calls, too.
    pub(crate) syscalls: bool,
    /// A command to start, with its arguments; may be empty.
    pub(crate) command: Vec<OsString>,
    /// Stdout is for the report alone, not for the command too.
    pub(crate) stdout_is_taken: bool,
    /// No progress on stderr.
    pub(crate) quiet: bool,
}

/// Observes as planned. The records end up in `sinks`; an error means that nothing was observed.
pub(crate) fn run(plan: &Plan, sinks: &mut Sinks, signals: &Signals) -> anyhow::Result<()> {
    let mut cx = sources::context(Roots::default(), plan.target.clone().unwrap_or_default());
    cx.io_one_in = plan.io_one_in;
    cx.syscalls = plan.syscalls;
    let (running, not_open) = sources::open(&mut cx);
    sources::require_delays(&not_open)?;
    // The command starts when everything that will look at it is in place.
    let command = Command::start(&plan.command, plan.stdout_is_taken)?;
    if let (None, Some(command)) = (&plan.target, &command) {
        cx.target = command.target();
    }
    // What takes time is done before the window begins: threads are looked at from its first moment on.
    let (cost, watch) = (SelfCost::start(&cx.roots), TargetWatch::new(&cx.target, &cx.roots));
    let clocks = Clocks::now();
    cx.start_mono_ns = clocks.mono_ns;
    let asked_ns = plan.asked.map(|asked| asked.as_nanos().try_into().unwrap_or(u64::MAX));
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
    };
    session.observe(asked_ns, signals);
    Ok(())
}

/// The circumstances, for the head of the recording.
pub(crate) fn meta(cx: &Context, clocks: Clocks, asked_ns: Option<u64>) -> Meta {
    let host = rustix::system::uname();
    Meta {
        tool_version: env!("CARGO_PKG_VERSION").into(),
        host_name: host.nodename().to_string_lossy().into_owned(),
        kernel: host.release().to_string_lossy().into_owned(),
        cpus_online: sources::cpus_online(&cx.roots),
        cgroup_layout: cx.cgroups.layout().into(),
        cpu_controller: cx.cgroups.cpu_controller(),
        start_unix_ns: clocks.real_ns,
        start_mono_ns: clocks.mono_ns,
        asked_ns,
        target: cx.target.clone(),
        root: rustix::process::geteuid().is_root(),
    }
}

/// An observation under way.
struct Session<'a> {
    cx: Context,
    running: Vec<Running>,
    command: Option<Command>,
    sinks: &'a mut Sinks,
    cost: SelfCost,
    watch: TargetWatch,
    jumps: JumpDetector,
    progress: Progress,
}

impl Session<'_> {
    fn observe(&mut self, asked_ns: Option<u64>, signals: &Signals) {
        let mut schedule = Schedule::default();
        self.push(Record::Coverage(Coverage {
            t_ns: 0,
            source: Source::Observer,
            state: State::Active,
        }));
        self.beat(Now { t_ns: 0, beat: Beat::Start });
        self.sinks.commit(0);
        let end_ns = asked_ns.unwrap_or(u64::MAX);
        loop {
            let wake_ns = schedule.next_ns().min(end_ns);
            clock::sleep_until(self.cx.start_mono_ns.saturating_add(wake_ns));
            let t_ns = clock::monotonic_ns().saturating_sub(self.cx.start_mono_ns);
            if let Some(early) = self.over(t_ns, end_ns, signals) {
                return self.end(t_ns, early);
            }
            if let Some(due) = schedule.wake(t_ns) {
                if let Some(by_ns) = due.late_ns {
                    self.event(t_ns, EventKind::LateTick { by_ns });
                }
                let beat = if due.second { Beat::Second } else { Beat::Bin };
                self.beat(Now { t_ns, beat });
                if due.second {
                    self.sinks.commit(t_ns);
                    self.progress.at(t_ns);
                }
            }
        }
    }

    /// Whether the window is over, and the event that says so if it was to be longer.
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
        self.beat(Now { t_ns, beat: Beat::End });
        if let Some(kind) = early {
            self.event(t_ns, kind);
        }
        self.push(Record::End { window_ns: t_ns });
        self.sinks.commit(t_ns);
        self.progress.finish();
        if let Some(note) = self.command.as_mut().and_then(Command::still_running) {
            output::say(note);
        }
    }

    /// Lets every collector take part. One that fails is closed, which is coverage and not an error.
    fn beat(&mut self, now: Now) {
        let Self { cx, sinks, watch, cost, .. } = self;
        let mut emit = |record: Record| {
            // What the probes cost and lost goes into one account with the process.
            if let Record::Observer(tick) = record {
                cost.add(tick);
                return;
            }
            watch.see(&record);
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
            for kind in self.jumps.observe(Clocks::now()) {
                self.event(now.t_ns, kind);
            }
            self.watch.look();
            let tick = self.cost.tick(now.t_ns);
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
