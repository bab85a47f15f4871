// SPDX-License-Identifier: Apache-2.0 OR MIT
//! On what a group of processes slept, and whether that is time that somebody lost. What cannot be told apart is not
//! known: nothing is guessed.

mod entry;
pub(super) mod kind;
pub(super) mod tasks;
pub(super) mod words;

use crate::finding::{LedgerState, SleepKind, SleepLink, SleepPart};
use crate::recording::{ProcId, SleepState, Slept, SleptOn, ThreadStates};
use crate::view::{Group, SleepKey, View};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// As the call of sleeps that are summed.
const OTHERS: &str = "(others)";
/// Parts that are told one by one, those that took longest; the others are summed.
const PARTS: usize = 24;
/// The parts of a state may lack so much of it, by the amount that each thread's last record did not stand for; what is
/// missing beyond is told.
const TOLERATED: f64 = 0.02;

/// The parts of the sleep of a group, those of each kind together, the longest first; none if it was not recorded.
pub(super) fn of(view: &View, group: &Group<'_>) -> Vec<SleepPart> {
    let mut sums: BTreeMap<SleepState, BTreeMap<Told, u64>> = BTreeMap::new();
    // Sleeps that differ in the condition only are told together.
    let mut conditions: BTreeMap<Told, BTreeSet<(ProcId, &SleptOn)>> = BTreeMap::new();
    for (id, _) in &group.members {
        let Some(process) = view.processes().get(id) else { continue };
        for (key, ns) in process.sleeps.iter().flat_map(|sleeps| sleeps.iter()) {
            let told = told(view, *id, key);
            if words::is_condition(&key.slept.on) {
                conditions.entry(told.clone()).or_default().insert((*id, &key.slept.on));
            }
            let of_state = sums.entry(key.slept.state).or_default();
            let sum = of_state.entry(told).or_default();
            *sum = sum.saturating_add(ns);
        }
    }
    let named = |told: Told| match conditions.get(&told).map(|all| (all.len(), all.first())) {
        Some((1, Some((_, on)))) => Told { on: words::on(view, &told.call, on), ..told },
        Some(_) => Told { on: Some("several futexes".into()), ..told },
        None => told,
    };
    let Some(usage) = group.usage.as_ref().filter(|_| !sums.is_empty()) else { return vec![] };
    let mut parts = Vec::new();
    for (state, (ledger, whole_ns)) in states(&usage.states) {
        let of = sums.remove(&state).unwrap_or_default();
        let of = of.into_iter().map(|(told, ns)| (named(told), ns)).collect();
        parts.extend(of_state(ledger, whole_ns, of));
    }
    parts.sort_by_key(|part| (part.kind, Reverse(part.ns)));
    limited(parts)
}

/// The states that are told apart, apart from block IO, which the ledger of the disks tells.
fn states(states: &ThreadStates) -> [(SleepState, (LedgerState, u64)); 3] {
    [
        (SleepState::Asleep, (LedgerState::Sleep, states.sleep_ns)),
        (SleepState::Memory, (LedgerState::MemStall, states.mem_stall_ns)),
        (SleepState::Uninterruptible, (LedgerState::Uninterruptible, states.uninterruptible_ns)),
    ]
}

/// What is told of a sleep.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Told {
    kind: SleepKind,
    call: String,
    on: Option<String>,
    woken_by: Option<String>,
    behind: Vec<SleepLink>,
}

/// The parts of a state, which sum to it: the scheduler probe knows it exactly, and sampled what it is made of.
fn of_state(state: LedgerState, whole_ns: u64, sums: BTreeMap<Told, u64>) -> Vec<SleepPart> {
    let known_ns = sums.values().fold(0, |sum: u64, ns| sum.saturating_add(*ns));
    let missing = whole_ns.saturating_sub(known_ns) as f64 > whole_ns as f64 * TOLERATED;
    let of_ns = if missing { whole_ns } else { known_ns };
    let mut left_ns = whole_ns;
    let mut parts: Vec<SleepPart> = Vec::new();
    for (Told { kind, call, on, woken_by, behind }, ns) in sums {
        let part = u128::from(ns) * u128::from(whole_ns) / u128::from(of_ns.max(1));
        let ns = u64::try_from(part).unwrap_or(u64::MAX).min(left_ns);
        left_ns -= ns;
        parts.push(SleepPart { kind, state, call, on, woken_by, behind, ns });
    }
    match parts.iter_mut().max_by_key(|part| part.ns) {
        // What rounding left.
        Some(most) if !missing => most.ns += left_ns,
        _ => parts.push(SleepPart {
            kind: SleepKind::NotKnown,
            state,
            call: "(not recorded)".into(),
            on: None,
            woken_by: None,
            behind: vec![],
            ns: left_ns,
        }),
    }
    parts.retain(|part| part.ns > 0);
    parts
}

/// Sums those that took least, by kind and state.
fn limited(parts: Vec<SleepPart>) -> Vec<SleepPart> {
    let mut by_size: Vec<u64> = parts.iter().map(|part| part.ns).collect();
    by_size.sort_unstable_by_key(|&ns| Reverse(ns));
    let Some(&least_ns) = by_size.get(PARTS) else { return parts };
    // What the recording has summed already is no part of its own.
    let is_told = |it: &SleepPart| it.ns > least_ns && it.call != OTHERS;
    let (mut kept, rest): (Vec<_>, Vec<_>) = parts.into_iter().partition(is_told);
    let mut others: BTreeMap<(SleepKind, LedgerState), u64> = BTreeMap::new();
    for part in rest {
        *others.entry((part.kind, part.state)).or_default() += part.ns;
    }
    kept.extend(others.into_iter().map(|((kind, state), ns)| {
        let (call, on, woken_by) = (OTHERS.into(), None, None);
        SleepPart { kind, state, call, on, woken_by, behind: vec![], ns }
    }));
    kept.sort_by_key(|part| (part.kind, Reverse(part.ns)));
    kept
}

fn told(view: &View, own: ProcId, key: &SleepKey) -> Told {
    let Slept { call, on, woken, .. } = &key.slept;
    // The chain says more than who ended it.
    let woken_by = key.behind.is_empty().then(|| words::woken(view, own, woken)).flatten();
    Told {
        kind: kind::of(own, key),
        call: call.clone(),
        on: words::on(view, call, on).filter(|_| !words::is_condition(on)),
        woken_by,
        behind: key.behind.iter().map(|it| words::link(view, own, it)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(all: &[(&str, u64)]) -> BTreeMap<Told, u64> {
        let told = |call: &str| Told {
            kind: SleepKind::NotKnown,
            call: call.into(),
            on: None,
            woken_by: None,
            behind: vec![],
        };
        all.iter().map(|(call, ns)| (told(call), *ns)).collect()
    }

    #[test]
    fn parts_sum_to_the_state_and_what_was_not_recorded_is_told() {
        let parts = of_state(LedgerState::Sleep, 1000, sums(&[("a", 660), ("b", 330)]));
        assert_eq!(parts.iter().map(|part| part.ns).collect::<Vec<_>>(), [667, 333]);
        let parts = of_state(LedgerState::Sleep, 1000, sums(&[("a", 600)]));
        assert_eq!((parts[0].ns, parts[1].ns, &*parts[1].call), (600, 400, "(not recorded)"));
        // More than there was, by what the records before stood for.
        let parts = of_state(LedgerState::Sleep, 1000, sums(&[("a", 1500), ("b", 500)]));
        assert_eq!(parts.iter().map(|part| part.ns).collect::<Vec<_>>(), [750, 250]);
        assert_eq!(of_state(LedgerState::Sleep, 0, sums(&[("a", 5)])), []);
        let none = of_state(LedgerState::Sleep, 7, BTreeMap::new());
        assert_eq!((none.len(), none[0].ns), (1, 7));
    }

    #[test]
    fn many_parts_are_summed() {
        let part = |ns: u64| SleepPart {
            kind: SleepKind::NotKnown,
            state: LedgerState::Sleep,
            call: ns.to_string(),
            on: None,
            woken_by: None,
            behind: vec![],
            ns,
        };
        let all = limited((1..=100).map(part).collect());
        assert_eq!(all.len(), PARTS + 1);
        assert_eq!(all.iter().map(|part| part.ns).sum::<u64>(), 5050);
    }
}
