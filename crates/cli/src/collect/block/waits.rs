// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stalls of processes in a second: sums by process, and each long stall by itself. A queue of requests can stall
//! thousands of threads at once. Where there are many stalls, those that overlap are emitted as the longest of them,
//! with the number and the time of the others: it is still known when a process was stalled, for how long and how
//! much time that cost.

use deburr_core::recording::{
    BlockRecord, DevId, FileId, IoWaitTick, ProcId, Stall, StallKind, WaitHist,
};
use deburr_core::stats::{Span, merge};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Stalls of this length and more are emitted one by one.
pub(super) const LONG_NS: u64 = 10_000_000;
/// Number of stalls per second that are emitted one by one.
const STALLS: usize = 200;
/// Number of stalls that are kept until they are merged.
const KEPT: usize = 10 * STALLS;

/// Sum of the stalls of one process, kind and device.
#[derive(Debug, Default)]
struct Sum {
    waits: WaitHist,
    max_ns: u64,
    unmeasured: u64,
}

/// The stalls of the current second.
#[derive(Debug, Default)]
pub(super) struct HoldUps {
    sums: BTreeMap<(ProcId, StallKind, Option<DevId>), Sum>,
    stalls: Vec<Stall>,
    /// Long stalls of the session that are only in the sums.
    pub(super) stalls_lost: u64,
}

impl HoldUps {
    /// Adds a stall to the sums.
    pub(super) fn add(&mut self, proc: ProcId, kind: StallKind, device: Option<DevId>, ns: u64) {
        let sum = self.sums.entry((proc, kind, device)).or_default();
        sum.waits.add(ns);
        sum.max_ns = sum.max_ns.max(ns);
    }

    /// Counts a stall of unknown length.
    pub(super) fn add_unmeasured(&mut self, proc: ProcId, kind: StallKind, device: Option<DevId>) {
        self.sums.entry((proc, kind, device)).or_default().unmeasured += 1;
    }

    /// Keeps a stall as an event if it is long; `latest_ns` as in [`Stall`].
    pub(super) fn long(
        &mut self,
        span: Span,
        (proc, kind): (ProcId, StallKind),
        device: Option<DevId>,
        file: Option<FileId>,
        latest_ns: Option<u64>,
    ) {
        if span.length_ns() < LONG_NS {
            return;
        }
        self.stalls.push(Stall {
            t0_ns: span.t0_ns,
            t1_ns: span.t1_ns,
            proc,
            kind,
            device,
            file,
            latest_ns,
            within: 0,
            within_ns: 0,
        });
        if self.stalls.len() >= KEPT {
            self.shorten();
        }
    }

    fn shorten(&mut self) {
        if self.stalls.len() <= STALLS {
            return;
        }
        let mut emitted: BTreeMap<_, EmittedStalls> = BTreeMap::new();
        let mut stalls = std::mem::take(&mut self.stalls);
        stalls.sort_by_key(|stall| (Reverse(stall.length_ns()), stall.t0_ns));
        for stall in stalls {
            emitted.entry((stall.proc, stall.kind, stall.device)).or_default().add(stall);
        }
        // The longest of each process first: a process that stalls rarely is not lost behind one that always does.
        let mut stalls: Vec<(usize, Stall)> = emitted
            .into_values()
            .flat_map(|emitted| emitted.stalls.into_iter().enumerate())
            .collect();
        stalls.sort_by_key(|(rank, stall)| (*rank, Reverse(stall.length_ns())));
        let untold = stalls.iter().skip(STALLS).map(|(_, stall)| stall.number());
        self.stalls_lost = self.stalls_lost.saturating_add(untold.sum());
        self.stalls.extend(stalls.into_iter().take(STALLS).map(|(_, stall)| stall));
    }

    /// Takes the records of the second.
    pub(super) fn take(&mut self, Span { t0_ns, t1_ns }: Span) -> Vec<BlockRecord> {
        self.shorten();
        let mut stalls = std::mem::take(&mut self.stalls);
        stalls.sort_by_key(|stall| (stall.t1_ns, stall.t0_ns, stall.proc));
        std::mem::take(&mut self.sums)
            .into_iter()
            .map(|((proc, kind, device), Sum { waits, max_ns, unmeasured })| {
                BlockRecord::Wait(IoWaitTick {
                    t0_ns,
                    t1_ns,
                    proc,
                    kind,
                    device,
                    waits,
                    max_ns,
                    unmeasured,
                })
            })
            .chain(stalls.into_iter().map(BlockRecord::Stall))
            .collect()
    }
}

/// Stalls of one process, kind and device that are emitted one by one, the longest first.
#[derive(Debug, Default)]
struct EmittedStalls {
    stalls: Vec<Stall>,
    /// The time in which at least one of them was in progress: sorted, disjoint ranges.
    under_way: Vec<Span>,
}

impl EmittedStalls {
    /// Adds a stall that is no longer than those before. If it covers less than [`LONG_NS`] in which none of them was
    /// in progress, it is merged into the one that it overlaps most.
    fn add(&mut self, stall: Stall) {
        let span = stall.span();
        let known_ns: u64 = self.under_way.iter().map(|known| known.common_ns(span)).sum();
        let shared_with = |emitted: &&mut Stall| emitted.span().common_ns(span);
        if stall.length_ns() - known_ns < LONG_NS
            && let Some(longer) = self.stalls.iter_mut().max_by_key(shared_with)
        {
            longer.within += stall.number();
            longer.within_ns = longer.within_ns.saturating_add(stall.of_all_ns());
            return;
        }
        self.under_way.push(span);
        self.under_way = merge(std::mem::take(&mut self.under_way), 0);
        self.stalls.push(stall);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn long(hold_ups: &mut HoldUps, ms: (u64, u64), proc: u32) {
        hold_ups.add(ProcId(proc), StallKind::Sync, None, (ms.1 - ms.0) * MS);
        let of = (ProcId(proc), StallKind::Sync);
        hold_ups.long(Span::new(ms.0 * MS, ms.1 * MS), of, None, None, None);
    }

    fn stalls(hold_ups: &mut HoldUps) -> Vec<Stall> {
        let stall = |record| match record {
            BlockRecord::Stall(stall) => Some(stall),
            _ => None,
        };
        hold_ups.take(Span::new(0, 1)).into_iter().filter_map(stall).collect()
    }

    #[test]
    fn few_stalls_are_told_each() {
        let mut hold_ups = HoldUps::default();
        for at in 0..STALLS as u64 {
            long(&mut hold_ups, (at, at + 100), 1);
        }
        long(&mut hold_ups, (0, 9), 2);
        let emitted = stalls(&mut hold_ups);
        assert_eq!((emitted.len(), hold_ups.stalls_lost), (STALLS, 0));
        assert!(emitted.iter().all(|stall| stall.within == 0));
    }

    #[test]
    fn stalls_at_once_are_told_together_and_nothing_of_them_is_lost() {
        let mut hold_ups = HoldUps::default();
        // A queue that grows; then a pause, and a single stall. Another process stalls once, for less than any of them.
        let mut spans: Vec<(u64, u64)> =
            (0..7000).map(|at| (at / 8, at / 8 + 20 + at / 200)).collect();
        spans.push((980, 995));
        for &span in &spans {
            long(&mut hold_ups, span, 1);
        }
        long(&mut hold_ups, (100, 111), 2);
        let emitted = stalls(&mut hold_ups);
        assert!(emitted.len() <= STALLS, "{}", emitted.len());
        assert_eq!(hold_ups.stalls_lost, 0);
        assert!(emitted.iter().any(|stall| stall.proc == ProcId(2) && stall.within == 0));
        let of_first: Vec<&Stall> = emitted.iter().filter(|it| it.proc == ProcId(1)).collect();
        let number: u64 = of_first.iter().map(|stall| stall.number()).sum();
        let time: u64 = of_first.iter().map(|stall| stall.of_all_ns()).sum();
        let longest = of_first.iter().map(|stall| stall.length_ns()).max();
        assert_eq!(number, spans.len() as u64);
        assert_eq!(time, spans.iter().map(|span| (span.1 - span.0) * MS).sum::<u64>());
        assert_eq!(longest, spans.iter().map(|span| (span.1 - span.0) * MS).max());
        // The time in which a stall was in progress is the same except at its ends, and except for gaps that
        // two others reach less than 10 ms into.
        let whole = merge(spans.iter().map(|it| Span::new(it.0 * MS, it.1 * MS)).collect(), 0);
        let kept = merge(of_first.iter().map(|stall| stall.span()).collect(), 2 * LONG_NS);
        assert_eq!(kept.len(), whole.len());
        for (kept, whole) in kept.iter().zip(&whole) {
            let (late_ns, early_ns) = (kept.t0_ns - whole.t0_ns, whole.t1_ns - kept.t1_ns);
            assert!(late_ns < LONG_NS && early_ns < LONG_NS, "{kept:?} {whole:?}");
        }
        for stall in of_first {
            assert!(stall.within_ns <= stall.within * stall.length_ns(), "{stall:?}");
        }
    }

    #[test]
    fn of_very_many_processes_the_longest_stalls_stay_and_the_others_are_counted() {
        let mut hold_ups = HoldUps::default();
        for proc in 0..1000 {
            long(&mut hold_ups, (0, 10 + u64::from(proc)), proc);
            // And one process has a second one.
            if proc == 999 {
                long(&mut hold_ups, (2000, 5000), proc);
            }
        }
        let emitted = stalls(&mut hold_ups);
        assert_eq!((emitted.len(), hold_ups.stalls_lost), (STALLS, 1001 - STALLS as u64));
        let mut of_each: Vec<u32> = emitted.iter().map(|stall| stall.proc.0).collect();
        of_each.sort_unstable();
        assert_eq!(of_each, (800..1000).collect::<Vec<u32>>());
    }

    #[test]
    fn the_sums_hold_all() {
        let mut hold_ups = HoldUps::default();
        for ms in 0..1000 {
            long(&mut hold_ups, (0, ms), 1);
        }
        let records = hold_ups.take(Span::new(0, 1));
        let BlockRecord::Wait(sum) = &records[0] else { panic!("{:?}", records[0]) };
        assert_eq!((sum.waits.total_count(), sum.max_ns, sum.unmeasured), (1000, 999 * MS, 0));
        let BlockRecord::Stall(only) = &records[1] else { panic!("{:?}", records[1]) };
        assert_eq!((records.len(), only.length_ns(), only.within), (2, 999 * MS, 989));
    }
}
