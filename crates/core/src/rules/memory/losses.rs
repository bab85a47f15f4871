// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What groups of processes lose because memory is short, and those of them that lose enough to be told.

use crate::finding::{Cost, Evidence, Severity, Unit};
use crate::recording::{PsiResource, Source};
use crate::rules::candidates::may_suffer;
use crate::rules::words::{self, evidence, group_name};
use crate::rules::{Limit, Verdict, severity};
use crate::text::units;
use crate::view::{Group, PsiView, ReclaimKey, Reclaimed, Usage, View};
use std::cmp::Reverse;

const MAX_VICTIMS: usize = 5;
/// Whether pages that came back are enough for the waiting.
pub(super) const PAGE_WAIT: Limit = Limit {
    name: "page_wait",
    value: 100.0,
    unit: "ms of waiting for each page that came back",
    why: "no disk takes longer on average: then the threads waited for something else",
};

/// What a group lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryLoss {
    pub(super) ns: u64,
    pub(super) ns_per_s: u64,
    /// Of the time in which it wanted to run, its waiting for memory included.
    pub(super) share: f64,
}

impl MemoryLoss {
    /// A loss of so much of a group's time.
    pub(super) fn of(view: &View, usage: &Usage, ns: u64) -> Self {
        let wanted_ns = usage.wanted_ns().saturating_add(usage.states.mem_stall_ns);
        let share = (ns as f64 / wanted_ns.max(1) as f64).min(1.0);
        Self { ns, ns_per_s: view.per_second(ns), share }
    }

    /// As the cost of a finding.
    pub(super) fn cost(&self) -> Cost {
        Cost { lost_ns_per_s: self.ns_per_s, share: self.share, ..Cost::default() }
    }
}

/// A group that lost enough.
pub(super) struct Victim<'g, 'v> {
    pub(super) severity: Severity,
    pub(super) loss: MemoryLoss,
    pub(super) group: &'g Group<'v>,
    pub(super) usage: &'g Usage,
}

/// The groups whose loss is above the limits, those that lost most first; or how near the others came.
pub(super) fn victims<'g, 'v>(
    view: &View,
    groups: &'g [Group<'v>],
    lost: impl Fn(&Group<'_>, &Usage) -> MemoryLoss,
    (did, nobody): (&str, &str),
) -> Result<Vec<Victim<'g, 'v>>, Verdict> {
    let mut losers: Vec<(MemoryLoss, &Group<'_>, &Usage)> = groups
        .iter()
        .filter(|group| may_suffer(view, group))
        .filter_map(|group| {
            let usage = group.usage.as_ref()?;
            Some((lost(group, usage), group, usage))
        })
        .collect();
    // Stable: of equals, the group that was seen first stays first.
    losers.sort_by_key(|(loss, ..)| Reverse(loss.ns));
    let victims: Vec<_> = losers
        .iter()
        .filter_map(|&(loss, group, usage)| {
            let severity =
                severity::of_turns(loss.ns_per_s, loss.share, usage.per_turn_ns(loss.ns))?;
            Some(Victim { severity, loss, group, usage })
        })
        .take(MAX_VICTIMS)
        .collect();
    if !victims.is_empty() {
        return Ok(victims);
    }
    let closest = match losers.first().filter(|(loss, ..)| loss.ns > 0) {
        Some((loss, group, _)) => format!(
            "{} came nearest: it {did} for {}",
            group_name(group),
            words::of_every_second(loss.ns_per_s)
        ),
        None => nobody.into(),
    };
    Err(Verdict::Quiet { closest })
}

/// What the processes of a group freed, of the kinds that are wanted.
pub(super) fn reclaimed(
    view: &View,
    group: &Group<'_>,
    wanted: impl Fn(&ReclaimKey) -> bool,
) -> Reclaimed {
    let of_members = group.members.iter().flat_map(|(id, _)| view.reclaim().of(*id));
    let mut sum = Reclaimed::default();
    of_members.filter(|(key, _)| wanted(key)).for_each(|(_, of)| sum.add(&of));
    sum
}

/// How often, for how long at most, and what the threads did meanwhile, as a note.
pub(super) fn what_it_was(of: &Reclaimed, ns: u64) -> String {
    let times = units::counted(of.count, "time", "times");
    let mut note = format!("{times}, the longest {}", units::duration(of.longest_ns as f64));
    // Short ones that could not be told apart would be guessed.
    if of.known_ns >= ns / 2 && of.known_ns > 0 {
        let part = |ns: u64| units::share(ns as f64 / of.known_ns as f64);
        let (on_cpu_ns, other_ns) = (
            of.known_ns - of.off_cpu_ns.min(of.known_ns),
            of.off_cpu_ns.saturating_sub(of.memory_ns),
        );
        note.push_str(&format!(
            "; {} of it on a CPU, {} asleep (waiting for memory), {} queued or asleep for other reasons",
            part(on_cpu_ns),
            part(of.memory_ns),
            part(other_ns)
        ));
    }
    note
}

/// How much of the time some thread of the host waited for memory, by the kernel's account; `None` if it keeps none.
pub(super) fn pressure(view: &View) -> Option<Evidence> {
    let some = view.psi(None, PsiResource::Memory).and_then(PsiView::some_share)?;
    let note = "of the wall time in which some thread of the host waited for memory, within the \
                limit of a cgroup or not"
        .to_owned();
    Some(evidence(view, "memory pressure", some, Unit::Ratio, Source::Psi.label(), note))
}
