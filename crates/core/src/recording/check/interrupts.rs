// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Invariants of interrupts: a CPU serves no more of them than there is time.

use super::{Faults, Invariant};
use crate::recording::{InterruptTick, Record};

pub(super) const PARTS: Invariant =
    "interrupts take as long as the longest of them at least, and come one by one";
pub(super) const TIME: Invariant = "a CPU serves interrupts for no longer than there is time";

/// Measured ones stand for others, where there are too many: by chance they may stand for half as much again.
const BY_CHANCE_PERCENT: u64 = 50;
/// What is read is as old as the beats of the reader, which may be late.
const LATE_NS: u64 = 1_000_000_000;

pub(super) fn check(record: &Record, faults: &mut Faults) {
    let Record::Interrupts(it) = record else { return };
    let InterruptTick { ns, count, longest_ns, bursts, .. } = **it;
    let whole = longest_ns <= ns && bursts <= count && (count > 0 || ns == 0);
    faults
        .unless(whole, PARTS, || format!("{count} in {bursts} bursts, {longest_ns} ns of {ns} ns"));
    let length_ns = it.t1_ns.saturating_sub(it.t0_ns);
    let most_ns =
        length_ns.saturating_add(length_ns / 100 * BY_CHANCE_PERCENT).saturating_add(LATE_NS);
    faults.unless(ns <= most_ns, TIME, || format!("CPU {}: {ns} ns in {length_ns} ns", it.cpu));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::ProcId;
    use crate::testkit::{S, interrupts};

    fn violated(change: impl FnOnce(&mut InterruptTick)) -> Vec<Invariant> {
        let mut tick = interrupts(ProcId(1), S, 1000);
        change(&mut tick);
        let mut faults = Faults::default();
        check(&Record::Interrupts(Box::new(tick)), &mut faults);
        faults.found.into_keys().collect()
    }

    #[test]
    fn a_cpu_serves_no_more_than_there_is_time_for() {
        assert_eq!(violated(|_| {}), [] as [&str; 0]);
        assert_eq!(violated(|tick| tick.longest_ns = tick.ns + 1), [PARTS]);
        assert_eq!(violated(|tick| tick.bursts = tick.count + 1), [PARTS]);
        assert_eq!(violated(|tick| tick.count = 0), [PARTS]);
        assert_eq!(violated(|tick| tick.ns = 17 * S), [TIME]);
    }
}
