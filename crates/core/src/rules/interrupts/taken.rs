// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What interrupts took from a group of processes, and what its own calls asked for.

use crate::finding::InterruptPart;
use crate::recording::{InterruptContext, InterruptKind, Source};
use crate::text::Share;
use crate::view::{Group, InterruptSource, Interrupted, View};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Interrupts of a source on a CPU.
pub(super) struct TakenBy {
    pub(super) source: InterruptSource,
    pub(super) cpu: u32,
    pub(super) of: Interrupted,
}

/// What came while threads of a group held a CPU.
pub(in crate::rules) struct Taken {
    /// What interrupted them, by source and CPU; what took most first.
    pub(super) by: Vec<TakenBy>,
    /// The sum of it.
    pub(in crate::rules) ns: u64,
    /// The part of `ns` that may be what its own calls asked for: which of both is not known.
    pub(super) not_known_ns: u64,
    /// Soft interrupts that its own calls asked for; not in `ns`.
    pub(super) own_ns: u64,
}

impl Taken {
    pub(in crate::rules) fn of(view: &View, group: &Group<'_>) -> Self {
        let (mut ns, mut not_known_ns, mut own_ns) = (0_u64, 0_u64, 0_u64);
        let mut sums: BTreeMap<(&InterruptSource, u32), Interrupted> = BTreeMap::new();
        let of_members = group.members.iter().flat_map(|(id, _)| view.interrupts().of(*id));
        for (key, of) in of_members {
            match key.context {
                InterruptContext::OwnCall => {
                    own_ns = own_ns.saturating_add(of.ns);
                    continue;
                }
                InterruptContext::NotKnown => not_known_ns = not_known_ns.saturating_add(of.ns),
                InterruptContext::Interrupts => {}
            }
            ns = ns.saturating_add(of.ns);
            sums.entry((&key.source, key.cpu)).or_default().add(of);
        }
        let mut by: Vec<TakenBy> = sums
            .into_iter()
            .map(|((source, cpu), of)| TakenBy { source: source.clone(), cpu, of })
            .collect();
        // Stable: equals stay in the order of sources and CPUs.
        by.sort_by_key(|it| Reverse(it.of.ns));
        Self { by, ns, not_known_ns, own_ns }
    }
}

/// Sources that are told one by one, those that took most; the others are summed by kind.
const TOLD: usize = 12;

/// The part of a group's time on CPUs that interrupts took, and by what; `None` if that was not observed, or it had none.
pub(in crate::rules) fn of_cpu_time(
    view: &View,
    group: &Group<'_>,
) -> Option<(Share, Vec<InterruptPart>)> {
    let on_cpu_ns = group.usage.as_ref()?.states.on_cpu_ns;
    if !view.covers(Source::Interrupts) || on_cpu_ns == 0 {
        return None;
    }
    let parts = fitting(by_source(view, group), on_cpu_ns);
    let ns = parts.iter().map(|part| part.ns).fold(0, u64::saturating_add);
    Some((Share::of(ns, on_cpu_ns), limited(parts)))
}

/// Each source over all CPUs, what took most first.
fn by_source(view: &View, group: &Group<'_>) -> Vec<InterruptPart> {
    let mut sums: BTreeMap<&InterruptSource, (u64, u64)> = BTreeMap::new();
    for (key, of) in group.members.iter().flat_map(|(id, _)| view.interrupts().of(*id)) {
        let not_known_ns = match key.context {
            InterruptContext::OwnCall => continue,
            InterruptContext::NotKnown => of.ns,
            InterruptContext::Interrupts => 0,
        };
        let (ns, not_known) = sums.entry(&key.source).or_default();
        *ns = ns.saturating_add(of.ns);
        *not_known = not_known.saturating_add(not_known_ns);
    }
    let part = |(source, (ns, not_known_ns)): (&InterruptSource, _)| InterruptPart {
        kind: source.kind,
        irq: source.irq,
        name: Some(source.name.clone()).filter(|name| !name.is_empty()),
        sources: None,
        ns,
        not_known_ns,
    };
    let mut parts: Vec<InterruptPart> =
        sums.into_iter().filter(|(_, (ns, _))| *ns > 0).map(part).collect();
    // Stable: equals stay in the order of sources.
    parts.sort_by_key(|part| Reverse(part.ns));
    parts
}

/// The parts, made smaller if they took more than there was: two probes measured that.
fn fitting(mut parts: Vec<InterruptPart>, on_cpu_ns: u64) -> Vec<InterruptPart> {
    let all_ns: u128 = parts.iter().map(|part| u128::from(part.ns)).sum();
    let mut left_ns = on_cpu_ns;
    if all_ns > u128::from(on_cpu_ns) {
        for part in &mut parts {
            let less = |ns: u64| (u128::from(ns) * u128::from(on_cpu_ns) / all_ns) as u64;
            (part.ns, part.not_known_ns) = (less(part.ns), less(part.not_known_ns));
            left_ns -= part.ns;
        }
        // What rounding left.
        parts.iter_mut().take(1).for_each(|most| most.ns += left_ns);
    }
    parts
}

/// Sums those that took least, by kind.
fn limited(mut parts: Vec<InterruptPart>) -> Vec<InterruptPart> {
    let mut others: BTreeMap<InterruptKind, InterruptPart> = BTreeMap::new();
    // One more would be no sum.
    let rest = if parts.len() > TOLD + 1 { parts.split_off(TOLD) } else { vec![] };
    for part in rest {
        let none = InterruptPart {
            kind: part.kind,
            irq: None,
            name: None,
            sources: Some(0),
            ns: 0,
            not_known_ns: 0,
        };
        let sum = others.entry(part.kind).or_insert(none);
        sum.sources = sum.sources.map(|sources| sources.saturating_add(1));
        sum.ns = sum.ns.saturating_add(part.ns);
        sum.not_known_ns = sum.not_known_ns.saturating_add(part.not_known_ns);
    }
    parts.extend(others.into_values());
    parts
}
