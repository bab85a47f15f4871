// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Invariants of amounts: time is conserved, histograms are consistent, counters do not run backwards.

use super::{Faults, Invariant};
use crate::recording::{
    CgroupId, CgroupReading, Culprit, IdleTick, LoadBin, LongWait, ProcId, ProcessTick, PsiReading,
    PsiResource, Record, SchedstatTick, WaitHist, bucket_range_ns,
};
use std::collections::BTreeMap;

const LEDGER: Invariant = "the states of a process's threads do not exceed their wall time";
const WALL: Invariant =
    "wall time does not exceed the number of threads times the length of the tick";
const BLAME: Invariant =
    "blame and wake-up latency do not exceed the time queued, nor the waits that ended";
const SIZES: Invariant = "the waits of a process sum to the time queued";
const BUCKETS: Invariant = "the time in each bucket of waits fits their number";
pub(super) const LONGEST: Invariant = "the longest wait is one of the waits";
const QUEUED: Invariant = "nobody waits in a run queue behind a quota";
pub(super) const WHOLE: Invariant = "the parts of a wait do not exceed it";
const IDLE: Invariant = "CPUs idle during a wait for no longer than the wait";
const ONCE: Invariant = "the ticks of a process do not overlap";
pub(super) const BINS: Invariant = "bins do not overlap";
pub(super) const COUNTERS: Invariant = "cumulative counters do not run backwards";
const LOST: Invariant = "what is listed as lost is not 0";

/// Whether `part` does not exceed `whole`, with a tolerance for clocks that are read one after the other.
pub(crate) fn fits(part_ns: u64, whole_ns: u64) -> bool {
    const CLOCKS_NS: u64 = 1_000_000;
    part_ns <= whole_ns.saturating_add(whole_ns / 1000).saturating_add(CLOCKS_NS)
}

/// Like [`fits`], for sums over threads that start and exit: the last amounts of some threads are lost.
pub(super) fn about_fits(part_ns: u64, whole_ns: u64) -> bool {
    fits(part_ns, whole_ns.saturating_add(whole_ns / 20))
}

/// Like [`fits`], for amounts that are read one after the other by a reader that may be delayed in between: the bounds
/// of a tick are those of the timer, not of each reading.
pub(crate) fn roughly_fits(part_ns: u64, whole_ns: u64) -> bool {
    const FILES_NS: u64 = 100_000_000;
    part_ns <= whole_ns.saturating_add(whole_ns / 4).saturating_add(FILES_NS)
}

/// State between records.
#[derive(Clone, Debug, Default)]
pub(super) struct Amounts {
    processes: BTreeMap<ProcId, Totals>,
    bins_end_ns: [u64; 2],
    cgroups: BTreeMap<CgroupId, CgroupReading>,
    psi: BTreeMap<(Option<CgroupId>, PsiResource), PsiReading>,
    /// The wait whose parts come, and their sum so far in nanoseconds.
    long_wait: Option<((u64, ProcId, u32), u64)>,
}

/// Sums of a process.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    ledger_end_ns: u64,
    states_ns: u64,
    wall_ns: u64,
    schedstat_end_ns: u64,
    queued_ns: u64,
    waits_ns: u64,
    explained_ns: u64,
    longest_ns: u64,
    threads_max: u32,
    /// Stands for many processes, whose ticks may have several time ranges.
    many: bool,
}

impl Totals {
    /// Whether two sums of its waits agree. They are read one after the other while threads exit. Recordings from
    /// before waits in progress were followed lack, or hold as a whole, the wait of each thread that spans the start or
    /// end of the window.
    fn agree(&self, one_ns: u64, other_ns: u64) -> bool {
        let at_ends_ns = self.longest_ns.saturating_mul(self.threads_max.into()).saturating_mul(2);
        let (less_ns, more_ns) = (one_ns.min(other_ns), one_ns.max(other_ns));
        about_fits(more_ns, less_ns.saturating_add(at_ends_ns))
    }
}

impl Amounts {
    pub(super) fn push(&mut self, record: &Record, faults: &mut Faults) {
        match record {
            Record::Process(process) if process.many => {
                self.processes.entry(process.id).or_default().many = true;
            }
            Record::ProcessTick(tick) => self.process_tick(tick, faults),
            Record::Blame(tick) => {
                let totals = self.processes.entry(tick.victim).or_default();
                totals.explained_ns = totals.explained_ns.saturating_add(tick.ns);
                let queued = tick.culprit != Culprit::Throttled;
                faults.unless(queued, QUEUED, || format!("process {}", tick.victim.0));
            }
            Record::LongWait(part) => self.long_wait(part, faults),
            Record::Idle(tick) => idle(tick, faults),
            Record::Schedstat(tick) => self.schedstat(tick, faults),
            Record::HostBin(bin) => bin_follows(&mut self.bins_end_ns[0], bin, faults),
            Record::TargetBin(bin) => bin_follows(&mut self.bins_end_ns[1], bin, faults),
            Record::CgroupCpu(reading) => self.cgroup(reading, faults),
            Record::Psi(reading) => self.psi(reading, faults),
            Record::Observer(tick) => {
                for (name, _) in tick.lost.iter().filter(|(_, amount)| **amount == 0) {
                    faults.add(LOST, || format!("`{name}`"));
                }
            }
            _ => {}
        }
    }

    fn long_wait(&mut self, part: &LongWait, faults: &mut Faults) {
        let wait = (part.t_ns, part.victim, part.tid);
        if self.long_wait.is_none_or(|(last, _)| last != wait) {
            self.long_wait = Some((wait, 0));
        }
        let Some((_, sum_ns)) = &mut self.long_wait else { return };
        *sum_ns = sum_ns.saturating_add(part.ns);
        let sum_ns = *sum_ns;
        faults.unless(sum_ns <= part.wait_ns, WHOLE, || {
            format!("process {}: {sum_ns} ns of {} ns", part.victim.0, part.wait_ns)
        });
    }

    pub(super) fn finish(&self, faults: &mut Faults) {
        for (id, totals) in &self.processes {
            let Totals { queued_ns, waits_ns, explained_ns, .. } = *totals;
            faults.unless(totals.agree(queued_ns, waits_ns), SIZES, || {
                format!("process {}: {waits_ns} ns of waits, {queued_ns} ns queued", id.0)
            });
            // A wait that began before the window is blamed as a whole, but only partly counted as queued.
            faults.unless(about_fits(explained_ns, queued_ns.max(waits_ns)), BLAME, || {
                format!("process {}: {explained_ns} ns of {queued_ns} ns, {waits_ns} ns", id.0)
            });
        }
    }

    fn process_tick(&mut self, tick: &ProcessTick, faults: &mut Faults) {
        let id = tick.proc.0;
        let totals = self.processes.entry(tick.proc).or_default();
        let folded = totals.many || tick.proc == ProcId::OTHERS;
        let once = tick.t0_ns >= totals.ledger_end_ns || folded;
        faults.unless(once, ONCE, || format!("process {id}"));
        totals.ledger_end_ns = tick.t1_ns;
        totals.queued_ns = totals.queued_ns.saturating_add(tick.states.queued_ns);
        totals.waits_ns = totals.waits_ns.saturating_add(sum(&tick.waits.ns));
        totals.explained_ns = totals.explained_ns.saturating_add(tick.wakeup_latency_ns);
        totals.longest_ns = totals.longest_ns.max(tick.wait_max_ns);
        totals.threads_max = totals.threads_max.max(tick.threads);
        let wall_ns = tick.wall_ns;
        let states_ns = sum(&[
            tick.states.on_cpu_ns,
            tick.states.queued_ns,
            tick.states.throttled_ns,
            tick.states.block_io_ns,
            tick.states.mem_stall_ns,
            tick.states.uninterruptible_ns,
            tick.states.sleep_ns,
            tick.states.stopped_ns,
        ]);
        totals.states_ns = totals.states_ns.saturating_add(states_ns);
        totals.wall_ns = totals.wall_ns.saturating_add(wall_ns);
        let (states_ns, all_ns) = (totals.states_ns, totals.wall_ns);
        // Of all records so far: what a thread waited may be known only when the wait ends, and was in no state until then.
        faults.unless(fits(states_ns, all_ns), LEDGER, || {
            format!("process {id}: {states_ns} ns of {all_ns} ns")
        });
        let most_ns = tick.t1_ns.saturating_sub(tick.t0_ns).saturating_mul(tick.threads.into());
        faults.unless(roughly_fits(wall_ns, most_ns), WALL, || {
            format!("process {id}: {wall_ns} ns of {most_ns} ns")
        });
        buckets(&tick.waits, faults, || format!("process {id}"));
        let longest_ns = tick.wait_max_ns;
        let bounds = longest_bounds(&tick.waits);
        faults.unless((bounds.0..=bounds.1).contains(&longest_ns), LONGEST, || {
            format!("process {id}: {longest_ns} ns, not in {} to {} ns", bounds.0, bounds.1)
        });
    }

    fn schedstat(&mut self, tick: &SchedstatTick, faults: &mut Faults) {
        let id = tick.proc.0;
        let totals = self.processes.entry(tick.proc).or_default();
        faults.unless(tick.t0_ns >= totals.schedstat_end_ns, ONCE, || format!("process {id}"));
        totals.schedstat_end_ns = tick.t1_ns;
        let (most_ns, wall_ns) = (tick.t1_ns.saturating_sub(tick.t0_ns), tick.wall_ns);
        let most_ns = most_ns.saturating_mul(tick.threads.into());
        faults.unless(roughly_fits(wall_ns, most_ns), WALL, || {
            format!("process {id}: {wall_ns} ns of {most_ns} ns")
        });
        // The delay cannot be compared with wall time: the kernel counts a wait as a whole when it ends.
        let on_cpu_ns = tick.on_cpu_ns;
        faults.unless(roughly_fits(on_cpu_ns, wall_ns), LEDGER, || {
            format!("process {id}: {on_cpu_ns} ns of {wall_ns} ns")
        });
    }

    fn cgroup(&mut self, now: &CgroupReading, faults: &mut Faults) {
        let Some(before) = self.cgroups.insert(now.cgroup, *now) else { return };
        let counters = |r: &CgroupReading| {
            [r.usage_ns, r.nr_periods, r.nr_throttled, r.throttled_ns, r.nr_bursts, r.burst_ns]
        };
        let forward = counters(&before)
            .into_iter()
            .zip(counters(now))
            .all(|pair| !matches!(pair, (Some(before), Some(now)) if now < before));
        faults.unless(forward && now.t_ns >= before.t_ns, COUNTERS, || {
            format!("cgroup {}", now.cgroup.0)
        });
    }

    fn psi(&mut self, now: &PsiReading, faults: &mut Faults) {
        let Some(before) = self.psi.insert((now.cgroup, now.resource), *now) else { return };
        let full = before.full_ns.is_none_or(|b| now.full_ns.is_none_or(|n| n >= b));
        let forward = full && now.some_ns >= before.some_ns && now.t_ns >= before.t_ns;
        faults.unless(forward, COUNTERS, || format!("pressure, {:?}", now.resource));
    }
}

pub(super) fn sum(parts_ns: &[u64]) -> u64 {
    parts_ns.iter().fold(0, |sum, part| sum.saturating_add(*part))
}

pub(super) fn buckets(waits: &WaitHist, faults: &mut Faults, whose: impl Fn() -> String) {
    for (bucket, (&count, &ns)) in waits.count.iter().zip(&waits.ns).enumerate() {
        let (from_ns, to_ns) = bucket_range_ns(bucket);
        let least_ns = from_ns.saturating_mul(count);
        let most_ns = to_ns.saturating_mul(count);
        faults.unless((least_ns..=most_ns).contains(&ns), BUCKETS, || {
            format!("{}, bucket {bucket}: {ns} ns in {count} waits", whose())
        });
    }
}

/// Bounds of the longest of these waits, from its histogram bucket.
pub(super) fn longest_bounds(waits: &WaitHist) -> (u64, u64) {
    match waits.count.iter().rposition(|&count| count > 0) {
        Some(bucket) => bucket_range_ns(bucket),
        None => (0, 0),
    }
}

fn idle(tick: &IdleTick, faults: &mut Faults) {
    let waits_ns = tick.waits_ns;
    let either_ns = tick.idle_allowed_ns.saturating_add(tick.idle_forbidden_ns);
    let most_ns = tick.cpus.iter().map(|cpu| cpu.idle_ns).chain([either_ns]).max().unwrap_or(0);
    faults.unless(fits(most_ns, waits_ns), IDLE, || {
        format!("process {}: {most_ns} ns of {waits_ns} ns", tick.victim.0)
    });
}

fn bin_follows(end_ns: &mut u64, bin: &LoadBin, faults: &mut Faults) {
    faults.unless(bin.t0_ns >= *end_ns, BINS, || format!("at {} ns", bin.t0_ns));
    *end_ns = bin.t1_ns;
}
