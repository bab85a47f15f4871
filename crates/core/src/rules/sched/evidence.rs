// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the scheduler rules share: a group's loss, and the evidence lines for it.

use crate::finding::{Cost, Evidence, Severity, Unit};
use crate::recording::{PsiResource, Source};
use crate::rules::candidates::target_is_host;
use crate::rules::words::evidence;
use crate::rules::{Limit, remedy, severity};
use crate::text::units;
use crate::view::{Delay, Group, Idle, Usage, View, waits};

/// From this share on, a group counts as batch work if it also runs for long at a time.
pub(super) const BATCH_SHARE: Limit = Limit {
    name: "batch_share",
    value: 0.75,
    unit: "of its wall time in which a process wants to run",
    why: "on a whole host, such a process that also runs long takes what it gets: at most `low`, and `info` if it \
          queues behind itself",
};
/// A group with shorter runs serves requests, however often it runs.
pub(super) const BATCH_RUN: Limit = Limit {
    name: "batch_run",
    value: 1.0,
    unit: "ms from getting a CPU to losing it, on average",
    why: "who computes is stopped at the end of a slice of some milliseconds; who serves requests stops earlier",
};
/// The worst second gets an evidence line if it holds at least this many times the average.
const UNEVEN: f64 = 1.5;

/// What a group lost to waiting for a CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loss {
    /// Lost time in the window, in nanoseconds.
    pub(super) ns: u64,
    /// The same per second of the window, in nanoseconds.
    pub(super) ns_per_s: u64,
    /// Lost time as a share of the time in which it wanted to run, 0..1: the least that is certain.
    pub(super) share: f64,
    /// The most that this share can be, where much of the time in which it may have run was not seen.
    pub(super) share_at_most: Option<f64>,
    /// Share of its threads' wall time in which it wanted to run, 0..1.
    pub(super) wanted_of_wall: f64,
    /// Lost time for each turn of its threads on a CPU, in nanoseconds; `None` if turns were not counted.
    pub(super) per_turn_ns: Option<u64>,
}

impl Loss {
    pub(super) fn new(view: &View, ns: u64, wanted_ns: u64, wall_ns: u64) -> Self {
        let ratio = |part: u64, whole: u64| match whole {
            0 => 0.0,
            whole => (part as f64 / whole as f64).min(1.0),
        };
        Self {
            ns,
            ns_per_s: view.per_second(ns),
            share: ratio(ns, wanted_ns),
            share_at_most: None,
            wanted_of_wall: ratio(wanted_ns, wall_ns),
            per_turn_ns: None,
        }
    }

    /// The same of what the probe saw. Time that it could not attribute may be time on a CPU: then the share of the loss
    /// is less than that of the time in which the victim was seen to want to run.
    pub(super) fn of_usage(view: &View, ns: u64, usage: &Usage) -> Self {
        let wanted_ns = usage.wanted_ns();
        let seen = Self {
            per_turn_ns: usage.per_turn_ns(ns),
            ..Self::new(view, ns, wanted_ns, usage.wall_ns)
        };
        if !usage.is_much_unattributed() {
            return seen;
        }
        let most_ns = wanted_ns.saturating_add(usage.unattributed_ns());
        let least = Self::new(view, ns, most_ns, usage.wall_ns);
        Self { share: least.share, share_at_most: Some(seen.share), ..seen }
    }

    /// The same by the kernel's counters of the threads of a group (`/proc/PID/schedstat`).
    pub(super) fn of_delay(view: &View, ns: u64, delay: &Delay) -> Self {
        Self {
            per_turn_ns: ns.checked_div(delay.slices),
            ..Self::new(view, ns, delay.wanted_ns(), delay.wall_ns)
        }
    }

    /// Its severity; `None` below the limits.
    pub(super) fn severity(&self) -> Option<Severity> {
        severity::of_turns(self.ns_per_s, self.share, self.per_turn_ns)
    }

    /// Its share of the time in which the victim wanted to run, as part of a sentence.
    pub(super) fn of_wanted(&self) -> String {
        let what = "of the time in which it wanted to run";
        match self.share_at_most {
            None => format!("{} {what}", units::share(self.share)),
            Some(most) => {
                format!("at most {} {what}: much of what it did is not known", units::share(most))
            }
        }
    }
}

/// Whether a group is batch work: it wants to run nearly all the time, and runs for long at a time.
pub(super) fn is_batch(group: &Group<'_>, loss: &Loss) -> bool {
    let (on_cpu_ns, runs) = match (&group.usage, &group.delay) {
        (Some(usage), _) => (usage.states.on_cpu_ns, usage.switches),
        (None, Some(delay)) => (delay.on_cpu_ns, delay.slices),
        (None, None) => return false,
    };
    let run_ms = on_cpu_ns as f64 / runs.max(1) as f64 / 1e6;
    loss.wanted_of_wall >= BATCH_SHARE.value && run_ms >= BATCH_RUN.value
}

/// Number of turns of a target's threads, and the mean length of one in nanoseconds without run-queue waits. A turn
/// lasts from getting a CPU to the next time that the thread wants one: its CPU time, and the time for which it is
/// blocked on disk or memory, which is part of its work. `None` where no tail counts: the target is the whole host, or
/// the group wants to run nearly all the time, so that its turns end where the scheduler ends them and nobody waits for
/// that.
pub(super) fn turns(view: &View, usage: &Usage) -> Option<(u64, u64)> {
    let batch = usage.wanted_ns() as f64 >= BATCH_SHARE.value * usage.wall_ns as f64;
    if target_is_host(view) || batch {
        return None;
    }
    let states = &usage.states;
    let held_up_ns = states.block_io_ns + states.mem_stall_ns + states.uninterruptible_ns;
    let turns = usage.waits.total_count();
    Some((turns, (states.on_cpu_ns + held_up_ns).checked_div(turns)?))
}

/// The cost, with the percentiles that the probe's histogram of waits gives.
pub(super) fn cost(loss: &Loss, group: &Group<'_>) -> Cost {
    let usage = group.usage.as_ref();
    let percentile =
        |p| usage.and_then(|usage| waits::percentile_ns(&usage.waits, p, usage.wait_max_ns));
    Cost {
        lost_ns_per_s: loss.ns_per_s,
        share: loss.share,
        share_at_most: loss.share_at_most,
        p50_ns: percentile(0.5),
        p99_ns: percentile(0.99),
        max_ns: usage.map(|usage| usage.wait_max_ns).filter(|&ns| ns > 0),
        ..Cost::default()
    }
}

/// Evidence lines on the load of the host: busy CPUs, waiting threads, CPU pressure, steal.
pub(super) fn host_lines(view: &View) -> Vec<Evidence> {
    let mut lines = Vec::new();
    if let Some(totals) = view.cpu_totals() {
        let label = Source::ProcStat.label();
        if let Some(busy) = totals.busy_share() {
            let note = format!("of {}", units::counted(view.cpu_count().into(), "CPU", "CPUs"));
            lines.push(evidence(view, "host CPUs busy", busy, Unit::Ratio, label, note));
        }
        if totals.steal_ns > 0 {
            let steal = totals.steal_ns as f64;
            let whole = steal + (totals.busy_ns + totals.idle_ns) as f64;
            let note = "of all CPU time: the hypervisor ran other machines".to_owned();
            lines.push(evidence(view, "steal", steal / whole, Unit::Ratio, label, note));
        }
    }
    let queued_ns = view.host_load().queued.total();
    if queued_ns > 0 && view.window_ns() > 0 {
        let mean = queued_ns as f64 / view.window_ns() as f64;
        let note = view.host_load().queued.fullest().map(|(t0, t1, ns)| {
            let most = ns as f64 / t1.saturating_sub(t0).max(1) as f64;
            format!(
                "threads waiting on average; {most:.1} in the worst {}",
                units::duration((t1 - t0) as f64)
            )
        });
        lines.push(evidence(
            view,
            "host run-queue pressure",
            mean,
            Unit::Count,
            Source::Sched.label(),
            note,
        ));
    }
    if let Some(some) = view.psi(None, PsiResource::Cpu).and_then(crate::view::PsiView::some_share)
    {
        let note = "of the wall time in which some thread of the host waited for a CPU".to_owned();
        lines.push(evidence(view, "CPU pressure", some, Unit::Ratio, Source::Psi.label(), note));
    }
    lines
}

/// Evidence lines on the victim, from the probe or else from schedstat.
pub(super) fn victim_lines(view: &View, group: &Group<'_>, loss: &Loss) -> Vec<Evidence> {
    let Some(usage) = &group.usage else { return delay_lines(view, group) };
    let label = Source::Sched.label();
    let line =
        |name: &str, value: f64, unit, note: String| evidence(view, name, value, unit, label, note);
    let of_wall = units::share(loss.ns as f64 / usage.wall_ns.max(1) as f64);
    let mut all = vec![line(
        "run-queue wait",
        loss.ns as f64,
        Unit::Ns,
        format!("{of_wall} of the wall time of its threads, {}", loss.of_wanted()),
    )];
    let (count, ns) = waits::at_least(&usage.waits, waits::LONG_WAIT_NS);
    let (all_count, all_ns) = (usage.waits.total_count(), usage.waits.total_ns());
    if all_count > 0 && all_ns > 0 {
        let by_time = ns as f64 / all_ns as f64;
        let by_count = units::share(count as f64 / all_count as f64);
        let note = format!(
            "of the waiting is in waits of 1 ms or more; they are {by_count} of the {}",
            units::counted(all_count, "wait", "waits")
        );
        all.push(line("long waits", by_time, Unit::Ratio, note));
    }
    if let Some((t0_ns, t1_ns, ns)) = usage.contended.fullest().filter(|&(t0_ns, t1_ns, ns)| {
        let rate = ns as f64 * 1e9 / t1_ns.saturating_sub(t0_ns).max(1) as f64;
        rate >= UNEVEN * loss.ns_per_s as f64
    }) {
        let mut worst = line(
            "worst second",
            ns as f64 * 1e9 / (t1_ns - t0_ns).max(1) as f64,
            Unit::NsPerS,
            format!("on average {}", units::value(loss.ns_per_s as f64, Unit::NsPerS)),
        );
        (worst.from_s, worst.to_s) = (t0_ns as f64 / 1e9, t1_ns as f64 / 1e9);
        all.push(worst);
    }
    if usage.wakeup_latency_ns > 0 {
        let note = match remedy::real_time(group) {
            Some(kind) => format!(
                "not counted as contention: the CPU was idle and had to wake up, or its own budget was used up ({})",
                kind.shown().unwrap_or_default()
            ),
            None => "not counted as contention: the CPU was idle and had to wake up".to_owned(),
        };
        all.push(line("wake-up latency", usage.wakeup_latency_ns as f64, Unit::Ns, note));
    }
    all.push(idle_line(view, group));
    all.push(quota_line(view, group, usage.states.throttled_ns));
    all
}

fn delay_lines(view: &View, group: &Group<'_>) -> Vec<Evidence> {
    let Some(delay) = &group.delay else { return vec![] };
    let note = format!(
        "runnable but not running, {} of the wall time of its threads; queueing and throttling in one, and \
         no culprits: those take the BPF probe",
        units::share(delay.delay_ns as f64 / delay.wall_ns.max(1) as f64)
    );
    let label = Source::Schedstat.label();
    vec![
        evidence(view, "run-queue delay", delay.delay_ns as f64, Unit::Ns, label, note),
        idle_line(view, group),
    ]
}

/// Evidence line: whether other CPUs were idle during the waits, or that this could not be observed.
fn idle_line(view: &View, group: &Group<'_>) -> Evidence {
    let label = Source::Timeline.label();
    let Some(idle) = group.idle.as_ref().filter(|idle| idle.waits_ns > 0) else {
        let note = match &group.idle {
            _ if !view.covers(Source::Timeline) => {
                "not seen: only the BPF timeline shows whether other CPUs idled while it waited"
                    .to_owned()
            }
            Some(idle) if idle.skipped_ns > 0 => format!(
                "not looked at: {} in waits of {} or more, too many at once, or of threads that were gone",
                units::duration(idle.skipped_ns as f64),
                units::duration(idle.min_wait_ns as f64)
            ),
            _ => "none of its waits was long enough to be looked at".to_owned(),
        };
        return evidence(view, "idle CPUs meanwhile", 0.0, Unit::Text, label, note);
    };
    let share = |ns: u64| units::share(ns as f64 / idle.waits_ns as f64);
    let note = format!(
        "of the waiting in waits of {} or more passed while a CPU that it may use was idle; {} while only \
         CPUs were idle that it may not use{}",
        units::duration(idle.min_wait_ns as f64),
        share(idle.forbidden_ns),
        part_looked_at(idle)
    );
    let value = idle.allowed_ns as f64 / idle.waits_ns as f64;
    evidence(view, "idle CPUs meanwhile", value, Unit::Ratio, label, note)
}

/// How much of the longer waits was looked at, as the end of a sentence; empty if all of them were.
pub(super) fn part_looked_at(idle: &Idle) -> String {
    match idle.skipped_ns {
        0 => String::new(),
        _ => {
            format!("; {} of the time in such waits was looked at", units::share(idle.looked_at()))
        }
    }
}

/// Evidence line: whether a quota throttled the group.
fn quota_line(view: &View, group: &Group<'_>, throttled_ns: u64) -> Evidence {
    let limit = group.cgroup.and_then(|id| {
        let path = view.cgroup_path(id);
        path.into_iter().filter_map(|(_, cgroup)| cgroup.limit_cpus()).min_by(f64::total_cmp)
    });
    let note = match (throttled_ns, limit) {
        (0, None) => "no quota stopped it; no cgroup above it was seen to have one".to_owned(),
        (0, Some(cpus)) => {
            format!(
                "no quota stopped it; the tightest above it allows {}",
                units::value(cpus, Unit::Cpus)
            )
        }
        (_, _) => "counted apart from the run-queue wait: see SCH002".to_owned(),
    };
    evidence(view, "throttled", throttled_ns as f64, Unit::Ns, Source::Sched.label(), note)
}
