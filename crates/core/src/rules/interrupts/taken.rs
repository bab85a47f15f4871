// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What interrupts took from a group of processes, and what its own calls asked for.

use crate::recording::{InterruptContext, Source};
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

/// The part of a group's time on CPUs that interrupts took; `None` if that was not observed, or it had none.
pub(in crate::rules) fn of_cpu_time(view: &View, group: &Group<'_>) -> Option<Share> {
    let on_cpu_ns = group.usage.as_ref()?.states.on_cpu_ns;
    if !view.covers(Source::Interrupts) || on_cpu_ns == 0 {
        return None;
    }
    let ns = Taken::of(view, group).ns;
    Some(Share::of(ns.min(on_cpu_ns), on_cpu_ns))
}
