// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Invariants of what is recorded of the target in more detail: it is a part of what the ticks of its processes hold.

use super::amounts::{BINS, buckets, fits, sum};
use super::{Faults, Invariant};
use crate::recording::{
    ProcId, ProcessTick, Record, SleepTick, ThreadLedger, ThreadStates, WaitBin,
};
use std::collections::BTreeMap;

pub(super) const IN_TICKS: Invariant =
    "the waits of a process in bins are among those of its ticks";

pub(super) const BY_THREAD: Invariant = "the ledgers of a process's threads sum to its ticks";
pub(super) const SLEPT: Invariant = "what threads slept on is no more than they slept";
/// The last record of a thread's sleep stands for no more than this too much.
const QUANTUM_NS: u64 = 64_000_000;

const LEDGER: Invariant = "the states of a thread do not exceed its wall time";

/// State between records.
#[derive(Clone, Debug, Default)]
pub(super) struct OfTarget {
    processes: BTreeMap<ProcId, Totals>,
}

/// Sums of a process.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    bins_end_ns: u64,
    waits_in_bins_ns: u64,
    waits_in_ticks_ns: u64,
    /// Of its ticks and of its threads: wall time, and the time in each state.
    in_ticks_ns: [u64; 9],
    by_thread_ns: Option<[u64; 9]>,
    /// In its records of sleep.
    slept_ns: u64,
    threads: u64,
}

impl OfTarget {
    pub(super) fn push(&mut self, record: &Record, faults: &mut Faults) {
        match record {
            Record::ProcessTick(tick) => self.tick(tick),
            Record::WaitBin(bin) => self.wait_bin(bin, faults),
            Record::ThreadLedger(ledger) => self.thread(ledger, faults),
            Record::Sleep(tick) => self.slept(tick),
            _ => {}
        }
    }

    /// Ends the check of a complete recording: a truncated one may lack the ticks that its last bins belong to.
    pub(super) fn finish(&self, faults: &mut Faults) {
        for (id, totals) in self.processes.iter().filter(|(id, _)| **id != ProcId::OTHERS) {
            let Totals { waits_in_bins_ns, waits_in_ticks_ns, .. } = *totals;
            faults.unless(fits(waits_in_bins_ns, waits_in_ticks_ns), IN_TICKS, || {
                format!("process {}: {waits_in_bins_ns} ns of {waits_in_ticks_ns} ns", id.0)
            });
            let states = &totals.in_ticks_ns[1..];
            // Sleeps and stops of a thread have one account of what no record stands for yet.
            let asleep_ns = sum(&states[3..8]);
            let slack_ns = asleep_ns / 50 + totals.threads.saturating_mul(QUANTUM_NS);
            faults.unless(totals.slept_ns <= asleep_ns.saturating_add(slack_ns), SLEPT, || {
                format!("process {}: {} ns of {asleep_ns} ns", id.0, totals.slept_ns)
            });
            let Some(by_thread_ns) = totals.by_thread_ns else { continue };
            for (one_ns, other_ns) in by_thread_ns.into_iter().zip(totals.in_ticks_ns) {
                let holds = fits(one_ns, other_ns) && fits(other_ns, one_ns);
                faults.unless(holds, BY_THREAD, || {
                    format!(
                        "process {}: {one_ns} ns of its threads, {other_ns} ns of its own",
                        id.0
                    )
                });
            }
        }
    }

    fn tick(&mut self, tick: &ProcessTick) {
        let totals = self.processes.entry(tick.proc).or_default();
        totals.waits_in_ticks_ns = totals.waits_in_ticks_ns.saturating_add(sum(&tick.waits.ns));
        add(&mut totals.in_ticks_ns, amounts(tick.wall_ns, &tick.states));
        totals.threads = totals.threads.max(tick.threads.into());
    }

    fn thread(&mut self, ledger: &ThreadLedger, faults: &mut Faults) {
        let all_ns = amounts(ledger.wall_ns, &ledger.states);
        let (wall_ns, states_ns) = (ledger.wall_ns, sum(&all_ns[1..]));
        faults.unless(fits(states_ns, wall_ns), LEDGER, || {
            format!("process {}: {states_ns} ns of {wall_ns} ns", ledger.proc.0)
        });
        let totals = self.processes.entry(ledger.proc).or_default();
        add(totals.by_thread_ns.get_or_insert_default(), all_ns);
    }

    fn slept(&mut self, tick: &SleepTick) {
        let totals = self.processes.entry(tick.proc).or_default();
        totals.slept_ns = totals.slept_ns.saturating_add(tick.ns);
    }

    fn wait_bin(&mut self, bin: &WaitBin, faults: &mut Faults) {
        let totals = self.processes.entry(bin.proc).or_default();
        faults.unless(bin.t0_ns >= totals.bins_end_ns, BINS, || format!("at {} ns", bin.t0_ns));
        totals.bins_end_ns = bin.t1_ns;
        totals.waits_in_bins_ns = totals.waits_in_bins_ns.saturating_add(sum(&bin.waits.ns));
        buckets(&bin.waits, faults, || format!("process {}", bin.proc.0));
    }
}

fn amounts(wall_ns: u64, states: &ThreadStates) -> [u64; 9] {
    let mut all_ns = [wall_ns; 9];
    all_ns[1..].copy_from_slice(&states.all_ns());
    all_ns
}

fn add(sums_ns: &mut [u64; 9], more_ns: [u64; 9]) {
    for (sum_ns, ns) in sums_ns.iter_mut().zip(more_ns) {
        *sum_ns = sum_ns.saturating_add(ns);
    }
}
