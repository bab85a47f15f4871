// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Invariants of reclaim: parts do not exceed their whole, counters of memory do not run backwards.

use super::amounts::COUNTERS;
use super::{Faults, Invariant};
use crate::recording::{CgroupId, MemoryReading, ReclaimTick, Record};
use std::collections::BTreeMap;

pub(super) const PARTS: Invariant =
    "the parts of the time in which memory is freed do not exceed it";

/// State between records.
#[derive(Clone, Debug, Default)]
pub(super) struct Reclaims {
    counters: BTreeMap<Option<CgroupId>, MemoryReading>,
}

impl Reclaims {
    pub(super) fn push(&mut self, record: &Record, faults: &mut Faults) {
        match record {
            Record::Reclaim(tick) => parts(tick, faults),
            Record::Memory(reading) => self.reading(*reading, faults),
            _ => {}
        }
    }

    fn reading(&mut self, now: MemoryReading, faults: &mut Faults) {
        let Some(before) = self.counters.insert(now.cgroup, now) else { return };
        let of = |it: &MemoryReading| {
            [it.refaults_file, it.refaults_anon, it.activated_bytes, it.restored_bytes]
        };
        let forward = of(&before)
            .into_iter()
            .zip(of(&now))
            .all(|pair| !matches!(pair, (Some(before), Some(now)) if now < before));
        faults.unless(forward && now.t_ns >= before.t_ns, COUNTERS, || {
            format!("pages that came back, {:?}", now.cgroup.map(|id| id.0))
        });
    }
}

fn parts(tick: &ReclaimTick, faults: &mut Faults) {
    let ReclaimTick { ns, known_ns, memory_ns, off_cpu_ns, longest_ns, .. } = *tick;
    let holds = memory_ns <= off_cpu_ns && off_cpu_ns <= known_ns && known_ns <= ns;
    faults.unless(holds && longest_ns <= ns, PARTS, || {
        format!(
            "process {}: {memory_ns} ns of {off_cpu_ns} ns of {known_ns} ns of {ns} ns, {longest_ns} ns at most",
            tick.proc.0
        )
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::ProcId;
    use crate::recording::check::Checker;
    use crate::testkit::{S, Scene, reclaim};

    fn violated(change: impl FnOnce(&mut ReclaimTick)) -> Vec<&'static str> {
        let mut scene = Scene::new(1, S);
        scene.sees_reclaim();
        let process = scene.process("dd", None);
        assert_eq!(process, ProcId(1));
        let mut tick = reclaim(0, process, None, 2_000_000, 64);
        change(&mut tick);
        scene.reclaims(tick).refaults(None, 5);
        let mut checker = Checker::default();
        scene.records().iter().for_each(|record| checker.push(record));
        checker.finish().violations.into_iter().map(|it| it.invariant).collect()
    }

    #[test]
    fn parts_fit_their_whole() {
        let good = violated(|_| {});
        assert!(!good.contains(&PARTS) && !good.contains(&COUNTERS), "{good:?}");
        assert!(violated(|tick| tick.memory_ns = tick.off_cpu_ns + 1).contains(&PARTS));
        assert!(violated(|tick| tick.known_ns = tick.ns + 1).contains(&PARTS));
        assert!(violated(|tick| tick.longest_ns = tick.ns + 1).contains(&PARTS));
    }

    #[test]
    fn pages_that_came_back_do_not_go_away() {
        let mut checks = Reclaims::default();
        let mut faults = Faults::default();
        let at = |t_ns, pages| {
            Record::Memory(MemoryReading {
                t_ns,
                refaults_file: Some(pages),
                ..MemoryReading::default()
            })
        };
        [at(0, 7), at(1, 7)].iter().for_each(|record| checks.push(record, &mut faults));
        assert!(faults.found.is_empty());
        checks.push(&at(2, 6), &mut faults);
        assert!(faults.found.contains_key(COUNTERS));
    }
}
