// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long the target's processes waited in each beat, for a finer picture than that of a second.

use super::accounts::ProcessKey;
use crate::collect::Emit;
use deburr_bpf::sched::ThreadDelta;
use deburr_core::recording::{ProcId, Record, WaitBin, WaitHist};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Processes that have a record of their own in each bin: those that waited longest. The others are summed.
const PROCESSES: usize = 16;

/// The waits since the last bin.
#[derive(Debug, Default)]
pub(super) struct WaitBins {
    t0_ns: u64,
    waits: BTreeMap<ProcessKey, WaitHist>,
}

impl WaitBins {
    /// Begins with the first look, at that time in the window.
    pub(super) fn begin(first_look_ns: u64) -> Self {
        Self { t0_ns: first_look_ns, ..Self::default() }
    }

    /// Adds the waits of a thread that was read at the last beat too: they ended since.
    pub(super) fn add(&mut self, thread: &ThreadDelta) {
        self.add_waits((thread.tgid, thread.leader_boot_ns), &thread.waits);
    }

    /// Adds waits of a process.
    pub(super) fn add_waits(&mut self, process: ProcessKey, waits: &WaitHist) {
        if !waits.is_empty() {
            self.waits.entry(process).or_default().merge(waits);
        }
    }

    /// Ends the bin. `target` = the identities of the target's processes; a slot may have come to another one.
    pub(super) fn end(
        &mut self,
        t1_ns: u64,
        target: &BTreeMap<ProcessKey, ProcId>,
        emit: Emit<'_>,
    ) {
        let waits = std::mem::take(&mut self.waits);
        let of_target =
            waits.into_iter().filter_map(|(key, waits)| Some((*target.get(&key)?, waits)));
        let mut all: Vec<(ProcId, WaitHist)> = of_target.collect();
        all.sort_by_cached_key(|(proc, waits)| (Reverse(waits.total_ns()), *proc));
        if all.len() > PROCESSES + 1 {
            let mut others = WaitHist::default();
            all.drain(PROCESSES..).for_each(|(_, waits)| others.merge(&waits));
            all.push((ProcId::OTHERS, others));
        }
        let t1_ns = t1_ns.max(self.t0_ns);
        let t0_ns = std::mem::replace(&mut self.t0_ns, t1_ns);
        for (proc, waits) in all {
            emit(Record::WaitBin(Box::new(WaitBin { t0_ns, t1_ns, proc, waits })));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(
        bins: &mut WaitBins,
        t1_ns: u64,
        target: &BTreeMap<ProcessKey, ProcId>,
    ) -> Vec<WaitBin> {
        let mut all = Vec::new();
        bins.end(t1_ns, target, &mut |record| match record {
            Record::WaitBin(bin) => all.push(*bin),
            other => panic!("{other:?}"),
        });
        all
    }

    fn of_one(ns: u64) -> WaitHist {
        let mut waits = WaitHist::default();
        waits.add(ns);
        waits
    }

    #[test]
    fn waits_are_told_once_by_process_and_only_those_of_the_target() {
        let target = BTreeMap::from([((7, 1), ProcId(3))]);
        let mut bins = WaitBins::begin(50);
        bins.add_waits((7, 1), &of_one(400));
        bins.add_waits((7, 1), &of_one(500));
        bins.add_waits((7, 2), &of_one(900));
        bins.add_waits((7, 1), &WaitHist::default());
        let [bin] = &*ended(&mut bins, 150, &target) else { panic!() };
        assert_eq!((bin.t0_ns, bin.t1_ns, bin.proc), (50, 150, ProcId(3)));
        assert_eq!((bin.waits.total_count(), bin.waits.total_ns()), (2, 900));
        assert!(ended(&mut bins, 250, &target).is_empty());
        bins.add_waits((7, 1), &of_one(1));
        assert_eq!(ended(&mut bins, 350, &target)[0].t0_ns, 250, "an empty bin is one");
    }

    #[test]
    fn of_many_processes_those_that_waited_longest_have_their_own_and_nothing_is_lost() {
        let key = |pid: u32| (pid, 1);
        let target: BTreeMap<_, _> = (1..=100).map(|pid| (key(pid), ProcId(pid))).collect();
        let mut bins = WaitBins::begin(0);
        (1..=100).for_each(|pid| bins.add_waits(key(pid), &of_one(u64::from(pid))));
        let all = ended(&mut bins, 100, &target);
        assert_eq!(all.len(), PROCESSES + 1);
        assert!(all[..PROCESSES].iter().all(|bin| bin.proc.0 > 100 - PROCESSES as u32));
        assert_eq!(all[PROCESSES].proc, ProcId::OTHERS);
        assert_eq!(all.iter().map(|bin| bin.waits.total_ns()).sum::<u64>(), 5050);
        assert_eq!(all.iter().map(|bin| bin.waits.total_count()).sum::<u64>(), 100);
    }
}
