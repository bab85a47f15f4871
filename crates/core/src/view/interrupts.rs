// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts: sums by process, by what interrupts and by CPU.

use crate::recording::{InterruptContext, InterruptKind, InterruptTick, ProcId};
use std::collections::BTreeMap;

/// Sums that are kept one by one; what comes later is summed over the processes.
const KEPT: usize = 50_000;

/// What interrupts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InterruptSource {
    /// Its kind.
    pub kind: InterruptKind,
    /// Number of a device's interrupt.
    pub irq: Option<u32>,
    /// The vector of a soft interrupt, the names of a device's handlers; empty = not known.
    pub name: String,
}

/// What makes interrupts of a process alike.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InterruptKey {
    /// What interrupts.
    pub source: InterruptSource,
    /// On which CPU.
    pub cpu: u32,
    /// In what it was served.
    pub context: InterruptContext,
}

/// Sums of [`InterruptTick`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interrupted {
    /// Time that they took.
    pub ns: u64,
    /// How many.
    pub count: u64,
    /// The longest.
    pub longest_ns: u64,
    /// Times at which the one before had ended a millisecond or more ago.
    pub bursts: u64,
    /// How many such times there would be if as many came at random times of each record. Rounded up.
    pub steady_bursts: u64,
}

/// What separates bursts: the probe counts a burst where the interrupt before had ended so long ago.
pub const BURST_PAUSE_NS: u64 = 1_000_000;

/// Pauses of [`BURST_PAUSE_NS`] and more that so many interrupts have, on average, that come independently of each other
/// within `wall_ns`.
fn steady_bursts(count: u64, wall_ns: u64) -> u64 {
    let within_pause = count as f64 * BURST_PAUSE_NS as f64 / wall_ns.max(1) as f64;
    (count as f64 * (-within_pause).exp()).ceil() as u64
}

impl Interrupted {
    /// Adds more of it.
    pub fn add(&mut self, more: &Self) {
        self.ns = self.ns.saturating_add(more.ns);
        self.count = self.count.saturating_add(more.count);
        self.longest_ns = self.longest_ns.max(more.longest_ns);
        self.bursts = self.bursts.saturating_add(more.bursts);
        self.steady_bursts = self.steady_bursts.saturating_add(more.steady_bursts);
    }
}

/// All interrupts of a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InterruptView {
    sums: BTreeMap<ProcId, BTreeMap<InterruptKey, Interrupted>>,
    kept: usize,
}

impl InterruptView {
    pub(super) fn tick(&mut self, tick: &InterruptTick) {
        let source = InterruptSource { kind: tick.kind, irq: tick.irq, name: tick.name.clone() };
        let key = InterruptKey { source, cpu: tick.cpu, context: tick.context };
        let more = Interrupted {
            ns: tick.ns,
            count: tick.count,
            longest_ns: tick.longest_ns,
            bursts: tick.bursts,
            steady_bursts: steady_bursts(tick.count, tick.t1_ns.saturating_sub(tick.t0_ns)),
        };
        let known = self.sums.get(&tick.proc).is_some_and(|of| of.contains_key(&key));
        let proc = if known || self.kept < KEPT { tick.proc } else { ProcId::OTHERS };
        let sums = self.sums.entry(proc).or_default();
        let before = sums.len();
        sums.entry(key).or_default().add(&more);
        self.kept += sums.len() - before;
    }

    /// What came while threads of a process held a CPU.
    pub fn of(&self, proc: ProcId) -> impl Iterator<Item = (&InterruptKey, &Interrupted)> {
        self.sums.get(&proc).into_iter().flatten()
    }

    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        let all = self.sums.values().flatten().map(|(_, of)| of.count);
        all.fold(0, u64::saturating_add)
    }

    /// What this source took from everybody, and while CPUs were idle: CPU by CPU.
    #[must_use]
    pub fn by_cpu(&self, source: &InterruptSource) -> BTreeMap<u32, Interrupted> {
        let mut cpus: BTreeMap<u32, Interrupted> = BTreeMap::new();
        let all = self.sums.values().flatten().filter(|(key, _)| key.source == *source);
        all.for_each(|(key, of)| cpus.entry(key.cpu).or_default().add(of));
        cpus
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick(proc: ProcId, cpu: u32, ns: u64) -> InterruptTick {
        InterruptTick {
            t0_ns: 0,
            t1_ns: 1,
            proc,
            cpu,
            kind: InterruptKind::Soft,
            irq: None,
            name: "NET_RX".into(),
            context: InterruptContext::Interrupts,
            ns,
            count: 1,
            longest_ns: ns,
            bursts: 1,
        }
    }

    #[test]
    fn a_source_is_summed_over_processes_and_not_over_cpus() {
        let mut view = InterruptView::default();
        let all =
            [(ProcId(1), 0, 10), (ProcId(2), 0, 5), (ProcId::OTHERS, 1, 7), (ProcId(1), 0, 20)];
        all.iter().for_each(|&(proc, cpu, ns)| view.tick(&tick(proc, cpu, ns)));
        let of_first: Vec<_> = view.of(ProcId(1)).map(|(_, of)| (of.ns, of.longest_ns)).collect();
        assert_eq!(of_first, [(30, 20)]);
        let source = view.of(ProcId(1)).next().unwrap().0.source.clone();
        let cpus: Vec<_> = view.by_cpu(&source).iter().map(|(cpu, of)| (*cpu, of.ns)).collect();
        assert_eq!(cpus, [(0, 35), (1, 7)]);
    }

    #[test]
    fn too_many_kinds_are_summed_over_the_processes() {
        let mut view = InterruptView::default();
        (0..KEPT as u32 + 9).for_each(|proc| view.tick(&tick(ProcId(proc), 0, 1)));
        assert!(view.kept <= KEPT + 1);
        assert_eq!(view.of(ProcId::OTHERS).map(|(_, of)| of.ns).sum::<u64>(), 9);
    }
}
