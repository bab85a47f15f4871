// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hold-ups of a second: sums by process, and the long ones each.

use deburr_core::recording::{
    BlockRecord, DevId, FileId, IoWaitTick, ProcId, Stall, StallKind, WaitHist,
};
use std::collections::BTreeMap;

/// Hold-ups from this long on are told each.
pub(super) const LONG_NS: u64 = 10_000_000;
/// As many of them in a second; the longest stay.
const STALLS: usize = 200;

/// Hold-ups of one kind.
#[derive(Debug, Default)]
struct Sum {
    waits: WaitHist,
    max_ns: u64,
    unmeasured: u64,
}

/// The second so far.
#[derive(Debug, Default)]
pub(super) struct HoldUps {
    sums: BTreeMap<(ProcId, StallKind, Option<DevId>), Sum>,
    stalls: Vec<Stall>,
    /// Long ones that were not told each, in all.
    pub(super) stalls_lost: u64,
}

impl HoldUps {
    /// Adds one to the sums.
    pub(super) fn add(&mut self, proc: ProcId, kind: StallKind, device: Option<DevId>, ns: u64) {
        let sum = self.sums.entry((proc, kind, device)).or_default();
        sum.waits.add(ns);
        sum.max_ns = sum.max_ns.max(ns);
    }

    /// Counts one whose length is not known.
    pub(super) fn add_unmeasured(&mut self, proc: ProcId, kind: StallKind, device: Option<DevId>) {
        self.sums.entry((proc, kind, device)).or_default().unmeasured += 1;
    }

    /// Keeps one as an event, if it is long; `latest_ns` as in [`Stall`].
    pub(super) fn long(
        &mut self,
        (t0_ns, t1_ns): (u64, u64),
        (proc, kind): (ProcId, StallKind),
        device: Option<DevId>,
        file: Option<FileId>,
        latest_ns: Option<u64>,
    ) {
        if t1_ns - t0_ns < LONG_NS {
            return;
        }
        self.stalls.push(Stall { t0_ns, t1_ns, proc, kind, device, file, latest_ns });
        if self.stalls.len() >= 2 * STALLS {
            self.shorten();
        }
    }

    fn shorten(&mut self) {
        if self.stalls.len() > STALLS {
            self.stalls.sort_by_key(|stall| std::cmp::Reverse(stall.t1_ns - stall.t0_ns));
            self.stalls_lost += (self.stalls.len() - STALLS) as u64;
            self.stalls.truncate(STALLS);
        }
    }

    /// The records of the second.
    pub(super) fn take(&mut self, (t0_ns, t1_ns): (u64, u64)) -> Vec<BlockRecord> {
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

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_longest_stalls_stay_and_the_others_are_counted() {
        let mut hold_ups = HoldUps::default();
        for ms in 0..1000 {
            hold_ups.add(ProcId(1), StallKind::Sync, None, ms * MS);
            hold_ups.long((0, ms * MS), (ProcId(1), StallKind::Sync), None, None, None);
        }
        let records = hold_ups.take((0, 1));
        assert_eq!((records.len(), hold_ups.stalls_lost), (1 + STALLS, 990 - STALLS as u64));
        let BlockRecord::Wait(sum) = &records[0] else { panic!("{:?}", records[0]) };
        assert_eq!((sum.waits.total_count(), sum.max_ns, sum.unmeasured), (1000, 999 * MS, 0));
        let BlockRecord::Stall(last) = &records[STALLS] else { panic!("{:?}", records[STALLS]) };
        assert_eq!(last.t1_ns, 999 * MS);
    }
}
