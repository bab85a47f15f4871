// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the other probes know of that in which chains end: behind whom the last thread waits for a CPU, whose quota stops it,
//! and beside whose requests its process waits for a disk.

use super::waits::{Reason, Sleep};
use crate::finding::{Evidence, Unit};
use crate::recording::{ProcId, Source};
use crate::rules::asleep::words as sleep_words;
use crate::rules::words::{evidence, group_entity, ticked};
use crate::rules::{Rule, Verdict, block, sched};
use crate::text::units;
use crate::view::block::Shares;
use crate::view::{Groups, View};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Ends that are told one by one.
const MAX_ENDS: usize = 3;
/// Ends below this share of the waiting are left out.
const MIN_SHARE: f64 = 0.05;

/// A line for each end of chains of which there is more to tell, the one with most of the waiting first.
pub(super) fn lines(view: &View, sleeps: &[Sleep<'_>], whole_ns: u64) -> Vec<Evidence> {
    let mut ends: BTreeMap<(Reason, ProcId, String), u64> = BTreeMap::new();
    for (id, key, ns) in sleeps {
        let Some(last) = key.behind.last() else { continue };
        let who = sleep_words::who(view, *id, last);
        let sum = ends.entry((Reason::of(&key.behind), last.proc, who)).or_default();
        *sum = sum.saturating_add(*ns);
    }
    let mut ends: Vec<_> = ends.into_iter().collect();
    ends.sort_by_key(|(_, ns)| Reverse(*ns));
    let share = |ns: u64| ns as f64 / whole_ns.max(1) as f64;
    let groups = view.groups();
    ends.into_iter()
        .filter(|(_, ns)| share(*ns) >= MIN_SHARE)
        .filter_map(|((reason, proc, who), ns)| {
            let (words, source) = known(view, &groups, (reason, groups.index_of(proc)?), &who)?;
            let note = format!("{} of it: {words}", units::share(share(ns)));
            Some(evidence(view, "ends", ns as f64, Unit::Ns, source.label(), note))
        })
        .take(MAX_ENDS)
        .collect()
}

/// What is known of what a thread of that group did last, and from where; `None` = nothing, or there is nothing to know.
fn known(
    view: &View,
    groups: &Groups<'_>,
    (reason, at): (Reason, usize),
    who: &str,
) -> Option<(String, Source)> {
    let group = &groups.list()[at];
    let (words, rules, source): (String, Vec<&Rule>, Source) = match reason {
        Reason::Queued => {
            let behind = match sched::behind_whom(groups, at) {
                Some(whom) => format!(" behind {whom}, of all that its process waits for one"),
                None if group.in_target => return None,
                None => "; behind whom is not known".into(),
            };
            let rules =
                sched::RULES.iter().filter(|rule| !["SCH002", "SCH005"].contains(&rule.code));
            (format!("{who} waits for a CPU{behind}"), rules.copied().collect(), Source::Sched)
        }
        Reason::Throttled => {
            let level = sched::throttled_by(view, group.cgroup)?;
            let rules = sched::RULES.iter().filter(|rule| rule.code == "SCH002");
            let words = format!("{who} is stopped by the CPU quota of {}", ticked(&level));
            (words, rules.copied().collect(), Source::CgroupCpu)
        }
        Reason::BlockIo => {
            let shares = Shares::of(view, groups, at, None);
            let (worst, ns) = shares.worst()?;
            let words = format!(
                "{who} waits for a disk beside {}: {} of all that its process waits for requests",
                block::support::shares::name_of(view, groups, worst),
                units::share(ns as f64 / shares.total_ns().max(1) as f64)
            );
            (words, block::RULES.to_vec(), Source::Block)
        }
        Reason::OnCpu | Reason::Slept | Reason::Stopped | Reason::NotSeen => return None,
    };
    let victim = group_entity(view, group);
    let tells = |rule: &&&Rule| match rule.judge(view) {
        Verdict::Fired(findings) => findings.iter().any(|it| it.victim == victim),
        Verdict::Quiet { .. } | Verdict::NoData { .. } => false,
    };
    let see =
        rules.iter().find(tells).map_or(String::new(), |rule| format!(" (see {})", rule.code));
    Some((words + &see, source))
}
