// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The BPF scheduler probe as a collector: time ledger, waits and blame of every process, load in bins of 100 ms,
//! CPUs that were idle while threads waited, and the cost and losses of the probe.
//!
//! The target's threads are read in every bin, all threads once a second.

mod accounts;
mod asleep;
mod by_thread;
mod identity;
mod idle;
mod long_waits;
mod longest;
mod runnable;
mod sleepers;
mod wait_bins;
mod wait_selection;

use super::cost::{Cost, CostCounters};
use super::{Beat, BeatTime, Collector, Context, Emit, Roots, possible_cpus};
use crate::clock;
use accounts::{Tally, Target};
use asleep::Asleep;
use deburr_bpf::facts::{Facts, facts};
use deburr_bpf::irq::Serving;
use deburr_bpf::sched::plan::{
    Needs, Plan, ThrottleClock, has_task_iterator, lacks_for_sleeps, plan, throttles_threads,
};
use deburr_bpf::sched::{
    Blame, Clock, HostTotals, SchedProbe, State as Ledger, ThreadDelta, ThreadMaps, ThreadScan,
    Timeline, UnseenProcess, Waiting, Watched,
};
use deburr_core::recording::{CgroupVersion, Coverage, LoadBin, Record, Source, State, TargetSpec};
use deburr_core::text::name::decode;
use idle::IdleFinder;
use long_waits::LongWaits;
use longest::LongestWaits;
use runnable::Runnable;
use sleepers::Sleepers;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};
use wait_bins::WaitBins;

pub(crate) struct SchedCollector {
    probe: SchedProbe,
    clock: Clock,
    resumes: Resumes,
    partial: Option<String>,
    scan: Option<ThreadScan>,
    blame: Blame,
    tally: Tally,
    timeline: Timeline,
    idle: IdleFinder,
    long_waits: LongWaits,
    longest: LongestWaits,
    asleep: Asleep,
    sleepers: Sleepers,
    /// The kernel throttles threads one by one, not a group at once.
    one_by_one: bool,
    /// Waits in progress, as of the last query.
    waiting: Waiting,
    /// Since that query.
    since_asked: Pauses,
    /// The query for waits in progress takes so long that it is made once a second only.
    asks_seldom: bool,
    runnable: Runnable,
    quota_in_use: bool,
    cost: Cost,
    host: HostTotals,
    /// Empty when the target is the host.
    target: Target,
    wait_bins: WaitBins,
    bin_start_ns: u64,
    /// When the first look was, in nanoseconds since the start of the window.
    first_look_ns: u64,
}

/// The time in which this process does nothing, from a time on: it is stopped, or has no CPU.
#[derive(Clone, Copy, Debug)]
struct Pauses {
    since_ns: u64,
    cpu_ns: u64,
}

impl Pauses {
    fn watch() -> Self {
        Self { since_ns: clock::monotonic_ns(), cpu_ns: clock::cpu_time_ns() }
    }

    /// Whether that was more than [`AT_ONCE_NS`] so far.
    fn are_long(self) -> bool {
        let now = Self::watch();
        let ran_ns = now.cpu_ns.saturating_sub(self.cpu_ns);
        now.since_ns.saturating_sub(self.since_ns).saturating_sub(ran_ns) > AT_ONCE_NS
    }
}

/// Whether the machine was suspended a moment ago. Only then the clocks part by more than they drift.
#[derive(Clone, Copy, Debug)]
struct Resumes {
    suspended_ns: u64,
    /// Beats until the clocks of all CPUs have been compared again.
    beats: u32,
}

impl Resumes {
    fn watch() -> Self {
        Self { suspended_ns: clock::suspended_ns(), beats: 0 }
    }

    /// By how much the run queues' clock ran on while `CLOCK_MONOTONIC` stood still, if it did.
    fn ran_on_ns(&mut self, before: Clock, now: Clock) -> Option<u64> {
        let suspended_ns = clock::suspended_ns();
        if suspended_ns.saturating_sub(self.suspended_ns) > AT_ONCE_NS {
            self.beats = BEATS_TO_COMPARE;
        }
        self.suspended_ns = suspended_ns;
        self.beats = self.beats.checked_sub(1)?;
        let by_ns = before.monotonic_minus_clock_ns.checked_sub(now.monotonic_minus_clock_ns)?;
        u64::try_from(by_ns).ok().filter(|&by_ns| by_ns > DRIFT_NS)
    }
}

impl CostCounters for SchedProbe {
    fn runs(&self) -> u64 {
        Self::runs(self)
    }

    fn timed_runs(&self) -> Option<deburr_bpf::TimedRuns> {
        Self::timed_runs(self)
    }

    fn map_bytes(&self) -> u64 {
        Self::map_bytes(self)
    }

    fn lost(&self) -> BTreeMap<String, u64> {
        Self::lost(self).into_iter().map(|(name, amount)| (name.to_owned(), amount)).collect()
    }
}

/// If the query for waits in progress takes longer than this, it is made once a second: ten times a second it would
/// take more than 1 % of a CPU.
const MOST_TO_ASK: Duration = Duration::from_millis(1);

/// Readings belong to one time if this process did something else for no longer than this in between.
const AT_ONCE_NS: u64 = 20_000_000;
/// Number of beats after a suspend in which the clocks of all CPUs are compared again.
const BEATS_TO_COMPARE: u32 = 10;
/// Clocks that part by less than this between two beats drift.
const DRIFT_NS: u64 = 1_000_000;
/// Number of times that a reading is made, at most, until it is made at once.
const LOOKS: usize = 8;

/// What the probe would add where it is missing.
const GAIN: &str = "the probe shows behind whom processes wait, tells queueing from throttling, and gives \
                    the full ledger of their time";

/// Name of the loss counter of context switches that the probe missed.
const MISSED: &str = "switches_missed";
/// Number of processes that are named where the kernel does not report their switches.
const NAMED: usize = 3;

impl SchedCollector {
    /// Loads and attaches the probe; `Err` = the coverage of [`Source::Sched`] without it.
    pub(crate) fn open(cx: &Context, serving: Option<&Serving>) -> Result<Self, State> {
        let missing = |reason| State::Missing { reason, gain: GAIN.into() };
        let facts = facts();
        let needs = Needs {
            threads: threads_on_host(cx),
            cgroup_v2: cx.cgroups.cpu_controller() != Some(CgroupVersion::V1),
            quota_in_use: cx.cgroups.quota_in_use(),
            sleeps: true,
        };
        let plan = plan(&facts, needs).map_err(missing)?;
        let cpus = possible_cpus(&cx.roots);
        let mut of_sleeps = lacks_for_sleeps(&facts).filter(|_| needs.sleeps);
        // Of a whole host, who is watched is chosen by what they do.
        let opened = SchedProbe::open(&plan, cpus, serving).and_then(|mut probe| {
            let begun = if cx.has_target { probe.begin_watch(asleep::RECORDS) } else { Ok(()) };
            begun.map(|()| probe)
        });
        let opened = match opened {
            // All else is worth more than that.
            Err(why) if plan.sleeps => {
                of_sleeps = Some(why);
                SchedProbe::open(&Plan { sleeps: false, ..plan }, cpus, serving)
            }
            opened => opened,
        };
        let mut probe = opened.map_err(missing)?;
        let of_sleeps = of_sleeps.map(|why| format!("not told on what threads sleep: {why}"));
        let reasons: Vec<String> = limits_of(&facts).into_iter().chain(of_sleeps).collect();
        let partial = (!reasons.is_empty()).then(|| reasons.join("; "));
        probe.set_quota_in_use(needs.quota_in_use);
        let clock = probe.clock().ok_or_else(|| missing("no CPU has switched".into()))?;
        Ok(Self {
            timeline: Timeline::begin(&probe),
            idle: IdleFinder::begin(cpus as usize),
            long_waits: LongWaits::begin(cpus as usize),
            longest: LongestWaits::default(),
            asleep: Asleep::default(),
            sleepers: Sleepers::default(),
            waiting: Waiting::default(),
            since_asked: Pauses::watch(),
            asks_seldom: false,
            runnable: Runnable::open(&cx.roots),
            quota_in_use: needs.quota_in_use,
            probe,
            clock,
            resumes: Resumes::watch(),
            partial,
            one_by_one: throttles_threads(&facts),
            scan: None,
            blame: Blame::default(),
            tally: Tally::default(),
            cost: Cost::default(),
            host: HostTotals::default(),
            target: Target::default(),
            wait_bins: WaitBins::default(),
            bin_start_ns: 0,
            first_look_ns: 0,
        })
    }

    /// The tables of the probe's threads, for the reclaim probe.
    pub(crate) fn thread_maps(&self) -> Option<ThreadMaps> {
        self.probe.thread_maps()
    }

    /// The probe's table of the target's threads, for other probes.
    pub(crate) fn watched(&self) -> Option<Watched> {
        self.probe.watched()
    }

    fn start(&mut self, cx: &mut Context, emit: Emit<'_>) -> Result<(), String> {
        for source in [Source::Sched, Source::Timeline] {
            let state = match (&self.partial, source) {
                (Some(reason), Source::Sched) => State::Partial { reason: reason.clone() },
                _ => State::Active,
            };
            emit(Record::Coverage(Coverage { t_ns: 0, source, state }));
        }
        self.waiting = self.probe.begin_window(self.clock)?;
        self.first_look_ns = self.since_start_ns(cx, self.waiting.at_ns());
        self.tally = Tally::begin(self.first_look_ns, &cx.target);
        self.wait_bins = WaitBins::begin(self.first_look_ns);
        self.longest = LongestWaits::begin(self.waiting.at_ns(), self.one_by_one);
        let tally = &mut self.tally;
        let mut scan = ThreadScan::begin(&self.probe, &self.waiting, |thread| {
            tally.meet(thread);
        });
        let missed = scan.switches_missed(false);
        self.scan = Some(scan);
        // Discards the blame from before the window.
        let before = self.probe.end_epoch();
        self.blame.of_epoch(&self.probe, before);
        self.host = self.probe.host_totals(self.clock.now(), &self.waiting);
        // The processes of the target must be known before its first bin; the host as a target needs no identities yet.
        if cx.target != TargetSpec::Host {
            self.tally.meet_all(cx, &mut *emit);
            self.target = self.tally.take_target(cx, &mut *emit);
            self.asleep = Asleep::begin(self.first_look_ns, cx.entries.clone());
            let one = matches!(cx.target, TargetSpec::Process { .. } | TargetSpec::Comm { .. });
            self.probe.watch_children(!one);
            let now_ns = self.clock.now();
            self.asleep.watch(&mut self.probe, &cx.roots, &self.target.pids, now_ns);
            // What was slept before is not of the window.
            drop(self.probe.sleeps());
            drop(self.probe.asleep(false)?);
        }
        self.cost.begin(&self.probe, &[(MISSED, missed)]);
        Ok(())
    }

    /// Queries which threads wait now. On a host with so many threads that this takes long, once a second.
    fn ask(&mut self, beat: Beat) -> Result<(), String> {
        if !beat.is_second() {
            if self.asks_seldom {
                return Ok(());
            }
            // The count of runnable threads leaves out throttled ones.
            self.since_asked = Pauses::watch();
            let at_ns = self.clock.now();
            if !self.quota_in_use && self.runnable.is_this_one_only() {
                self.waiting = self.probe.nobody_waits(at_ns);
                return Ok(());
            }
        }
        let began = Instant::now();
        self.since_asked = Pauses::watch();
        self.waiting = self.probe.who_waits(self.clock)?;
        self.asks_seldom = began.elapsed() > MOST_TO_ASK;
        Ok(())
    }

    /// Reads what ran since the last look, for idle intervals and for the blame of waits in progress.
    fn follow(&mut self, last: bool) {
        self.asleep.known_to(self.clock.now());
        for cpu in 0..self.probe.cpus() {
            let Self { idle, long_waits, longest, asleep, .. } = self;
            self.timeline.read(&self.probe, cpu, |run| {
                asleep.ran(run);
                idle.ran(cpu, run);
                long_waits.ran(cpu, run);
                longest.ran(cpu, run);
            });
            let now_ns = self.clock.now();
            let Some(run) = Timeline::current(&self.probe, cpu, now_ns) else { continue };
            self.long_waits.ran(cpu, run);
            if last {
                self.longest.ran(cpu, run);
            }
            if run.tid == 0 {
                self.idle.idles(cpu, run.start_ns, now_ns);
            }
        }
        let probe = &self.probe;
        self.idle.look(self.clock.now(), &self.target.pids, &|tid| probe.last_move(tid));
        if last {
            for waiter in self.waiting.queued(&self.probe) {
                self.longest.waits(&waiter, self.waiting.at_ns());
            }
        }
        self.longest.look(&self.probe, &self.long_waits);
        self.tally.blame(self.long_waits.tell(&self.probe, &self.waiting, last));
    }

    /// Time since the start of the window at this time of the run queues' clock.
    fn since_start_ns(&self, cx: &Context, clock_ns: u64) -> u64 {
        cx.window.since_start_ns(self.clock.monotonic_ns(clock_ns))
    }

    /// Amounts of the host, and the time that they belong to.
    fn host_totals(&mut self) -> (u64, HostTotals) {
        let (mut at_ns, mut totals) = (0, HostTotals::default());
        for _ in 0..LOOKS {
            let pauses = Pauses::watch();
            at_ns = self.clock.now();
            totals = self.probe.host_totals(at_ns, &self.waiting);
            if !pauses.are_long() {
                break;
            }
        }
        (at_ns, totals)
    }

    /// `holds` = a look at all threads follows that is not the last.
    fn end_bin(&mut self, cx: &Context, (t_ns, holds): (u64, bool), emit: Emit<'_>) {
        let (at_ns, totals) = self.host_totals();
        let t_ns = t_ns.max(self.since_start_ns(cx, at_ns));
        let before = std::mem::replace(&mut self.host, totals);
        let mut bin = LoadBin {
            t0_ns: self.bin_start_ns,
            t1_ns: t_ns,
            on_cpu_ns: totals.busy_ns.saturating_sub(before.busy_ns),
            queued_ns: totals.queued_ns - before.queued_ns,
            throttled_ns: totals.throttled_ns - before.throttled_ns,
            block_io_ns: totals.block_io_ns - before.block_io_ns,
            waits: totals.waits - before.waits,
            switches: totals.switches - before.switches,
        };
        emit(Record::HostBin(bin));
        if cx.target != TargetSpec::Host
            && let Some(scan) = &mut self.scan
        {
            bin = LoadBin { t0_ns: bin.t0_ns, t1_ns: bin.t1_ns, ..LoadBin::default() };
            let Self { tally, wait_bins, .. } = self;
            // Of what the threads did until the look at all of them that ends a second, it tells no more than that look.
            let (slots, waiting) = (&self.target.slots, (&self.waiting, holds));
            scan.look_at_slots(&self.probe, slots, waiting, |thread| {
                add_to_bin(&mut bin, thread);
                wait_bins.add(thread);
                tally.add_between(thread);
            });
            emit(Record::TargetBin(bin));
        }
        self.bin_start_ns = t_ns;
    }

    /// Looks at all threads. Each of them is read up to its last switch, and what it did after the list of waiting threads
    /// is held until the next look. If this process was stopped or had no CPU in between, that is much, and how it is
    /// divided among states is not known: then both are done again.
    fn look_at_all(&mut self, last: bool) -> Result<(), String> {
        // These were read in this bin, too; of others it is not known in which bins of the second they waited.
        let of_target: BTreeSet<usize> = self.target.slots.iter().copied().collect();
        for look in 1..=LOOKS {
            let Some(scan) = &mut self.scan else { return Ok(()) };
            let Self { tally, wait_bins, asleep, clock, .. } = self;
            scan.look(&self.probe, &self.waiting, last, |thread| {
                if thread.slot.is_some_and(|slot| of_target.contains(&slot)) {
                    wait_bins.add(thread);
                }
                tally.add(thread, last);
                asleep.found(thread, *clock);
            });
            if look == LOOKS || !self.since_asked.are_long() {
                break;
            }
            self.since_asked = Pauses::watch();
            self.waiting = self.probe.who_waits(self.clock)?;
            self.tally.look_again();
        }
        Ok(())
    }

    /// A second, which was the epoch `epoch`, is over.
    fn end_second(
        &mut self,
        cx: &mut Context,
        (t_ns, epoch): (u64, u32),
        last: bool,
        emit: Emit<'_>,
    ) -> Result<(), String> {
        self.quota_in_use = cx.cgroups.quota_in_use();
        self.probe.set_quota_in_use(self.quota_in_use);
        // Blame is read before the threads. Blame that found no slot belongs to no epoch: if it were read after them, a
        // wait that ends in between, as this reader's own waits do on a busy host, would have its blame in this second
        // and its length in the next.
        let blame = self.blame.of_epoch(&self.probe, epoch);
        self.look_at_all(last)?;
        let listed_ns = self.since_start_ns(cx, self.waiting.at_ns());
        let until_ns = self.scan.as_ref().filter(|_| last).map_or(0, ThreadScan::until_ns);
        let told_ns = listed_ns.max(self.first_look_ns + until_ns);
        if last && told_ns > self.bin_start_ns + AT_ONCE_NS {
            // No later bin holds what the threads did meanwhile.
            self.end_bin(cx, (told_ns, false), &mut *emit);
        }
        if last {
            for (process, waits) in self.tally.in_progress() {
                self.wait_bins.add_waits(process, waits);
            }
        }
        self.wait_bins.end(t_ns.max(told_ns), &self.target.ids, &mut *emit);
        let Some(scan) = &mut self.scan else { return Ok(()) };
        let (torn, missed) = (scan.torn, scan.switches_missed(last));
        if last && let Some(reason) = unseen(&cx.roots, &scan.unseen()) {
            let reasons = self.partial.iter().cloned().chain([reason]).collect::<Vec<_>>();
            let state = State::Partial { reason: reasons.join("; ") };
            emit(Record::Coverage(Coverage { t_ns, source: Source::Sched, state }));
        }
        self.tally.blame(blame);
        self.tally.idle(self.idle.take());
        for (tgid, wait) in self.longest.take(&self.target.pids) {
            let until_ns = self.clock.monotonic_ns(wait.until_ns);
            self.tally.longest(
                tgid,
                wait,
                cx.window.since_start_ns(until_ns).min(told_ns.max(t_ns)),
            );
        }
        self.end_of_sleeps(cx, (t_ns.max(told_ns), last), &mut *emit)?;
        if cx.target == TargetSpec::Host && !last {
            self.choose_sleepers(cx, t_ns.max(told_ns));
        }
        self.tally.emit(cx, t_ns.max(told_ns), last, &mut *emit);
        if cx.target != TargetSpec::Host {
            self.target = self.tally.take_target(cx, &mut *emit);
            let now_ns = self.clock.now();
            self.asleep.watch(&mut self.probe, &cx.roots, &self.target.pids, now_ns);
        }
        let extra =
            [("torn_read", torn), (MISSED, missed), ("timeline_overrun", self.timeline.overrun)];
        emit(Record::Observer(self.cost.second(&self.probe, t_ns, &extra)));
        Ok(())
    }
}

impl SchedCollector {
    /// Chooses whose sleeps are looked at from now on, on a whole host.
    fn choose_sleepers(&mut self, cx: &Context, t_ns: u64) {
        let chosen = self.sleepers.choose(&self.tally.take_activities());
        if self.sleepers.refused || (chosen.is_empty() && !self.asleep.has_begun()) {
            return;
        }
        if !self.asleep.has_begun() {
            self.sleepers.refused = self.probe.begin_watch(sleepers::RECORDS).is_err();
            if self.sleepers.refused {
                return;
            }
            self.asleep = Asleep::begin(t_ns, vec![]);
        }
        let now_ns = self.clock.now();
        self.asleep.watch(&mut self.probe, &cx.roots, &chosen, now_ns);
    }

    /// Tells on what the target slept in the second that ends then.
    fn end_of_sleeps(
        &mut self,
        cx: &mut Context,
        (t_ns, last): (u64, bool),
        emit: Emit<'_>,
    ) -> Result<(), String> {
        if !self.asleep.has_begun() || !self.probe.can_watch() {
            return Ok(());
        }
        let now_ns = self.clock.now();
        let running = |cpu| Timeline::current(&self.probe, cpu, now_ns);
        let running = (0..self.probe.cpus()).filter_map(running).collect();
        self.asleep.look(&mut self.probe, cx, self.clock, (running, last))?;
        let Self { asleep, tally, .. } = self;
        let mut identity = |pid: u32, emit: Emit<'_>| {
            let id = tally.identity_of(cx, pid, emit)?;
            Some((id, cx.processes.in_target(id)))
        };
        asleep.end(t_ns, &mut identity, emit);
        Ok(())
    }
}

impl Collector for SchedCollector {
    fn beat(&mut self, cx: &mut Context, now: BeatTime, emit: Emit<'_>) -> anyhow::Result<()> {
        if let Some(clock) = self.probe.clock() {
            if let Some(by_ns) = self.resumes.ran_on_ns(self.clock, clock) {
                cx.window.ran_on(clock::monotonic_ns(), by_ns);
            }
            self.clock = clock;
        }
        if now.beat == Beat::Start {
            return self.start(cx, emit).map_err(anyhow::Error::msg);
        }
        self.cost.bin(&self.probe);
        self.ask(now.beat).map_err(anyhow::Error::msg)?;
        self.end_bin(cx, (now.t_ns, now.beat == Beat::Second), emit);
        if !now.beat.is_second() {
            self.wait_bins.end(self.bin_start_ns, &self.target.ids, &mut *emit);
        }
        // Before waits in progress get their blame: one that ends in between would otherwise be blamed twice, here and by
        // the probe, which takes into account what was told of long waits only.
        let ended = now.beat.is_second().then(|| self.probe.end_epoch());
        self.follow(now.beat == Beat::End);
        self.asleep.follow(&mut self.probe, cx, self.clock);
        if let Some(epoch) = ended {
            self.end_second(cx, (now.t_ns, epoch), now.beat == Beat::End, emit)
                .map_err(anyhow::Error::msg)?;
        }
        Ok(())
    }
}

fn add_to_bin(bin: &mut LoadBin, thread: &ThreadDelta) {
    let of = |state: Ledger| thread.states_ns[state as usize];
    bin.on_cpu_ns += of(Ledger::OnCpu);
    bin.queued_ns += of(Ledger::Queued);
    bin.throttled_ns += of(Ledger::Throttled);
    bin.block_io_ns += of(Ledger::BlockIo);
    bin.waits += thread.waits.total_count();
    bin.switches += thread.switches;
}

/// What the probe cannot see on this host, as part of a sentence.
fn limits_of(facts: &Facts) -> Option<String> {
    if !facts.initial_pid_namespace {
        return Some(
            "deburr runs in a pid namespace of its own: the kernel's pids are not those of /proc here, \
             so names and facts of processes may be missing or wrong; run it in the host's pid namespace"
                .into(),
        );
    }
    if !has_task_iterator(facts) {
        return Some(
            "threads that never ran in the window are unknown: no BPF task iterator".into(),
        );
    }
    (ThrottleClock::of(facts) == ThrottleClock::None)
        .then(|| "throttling is not told from queueing: no CFS bandwidth control".into())
}

/// What the kernel does not report of some processes, as part of a sentence.
fn unseen(roots: &Roots, processes: &[UnseenProcess]) -> Option<String> {
    let name = |process: &UnseenProcess| {
        // The probe may know only the comm of one of its threads.
        let file = roots.proc.join(process.tgid.to_string()).join("comm");
        let comm = fs::read(file).unwrap_or_else(|_| process.comm.to_vec());
        format!("`{}` (pid {})", decode(comm.trim_ascii_end()), process.tgid)
    };
    let mut names: Vec<String> = processes.iter().take(NAMED).map(name).collect();
    if processes.len() > NAMED {
        names.push(format!("{} others", processes.len() - NAMED));
    }
    let one = processes.len() == 1;
    (!names.is_empty()).then(|| {
        format!(
            "this kernel does not tell when {} {} a CPU: {} time is unattributed",
            names.join(", "),
            if one { "leaves" } else { "leave" },
            if one { "its" } else { "their" }
        )
    })
}

/// Threads that exist now, from the fourth field of `/proc/loadavg` (running/all); 1000 if it cannot be read.
fn threads_on_host(cx: &Context) -> usize {
    fs::read_to_string(cx.roots.proc.join("loadavg"))
        .ok()
        .and_then(|text| text.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok())
        .unwrap_or(1000)
}
