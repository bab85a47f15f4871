// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Does the victim wait because it may not use the CPUs that idle? It may use all.

use super::{MAX_PROCESSES, group_of, lowers};
use crate::finding::Finding;
use crate::prove::experiment::Experiment;
use crate::prove::measure::Measure;
use crate::rules::remedy;
use crate::rules::words::group_name;
use crate::view::View;

/// Part of the waiting that must go with all CPUs.
const LEAST: f64 = 0.4;

pub(super) fn all(view: &View, finding: &Finding) -> Vec<Experiment> {
    let groups = view.groups();
    let Some(victim) = group_of(view, groups.list(), &finding.victim) else { return vec![] };
    let Some(meta) = view.meta() else { return vec![] };
    let everywhere = remedy::cpu_list(&meta.cpus_online);
    let bound: Vec<u32> = victim
        .members
        .iter()
        .filter(|(_, it)| it.cpus_allowed.as_deref().is_some_and(|list| list != everywhere))
        .map(|(_, it)| it.pid)
        .collect();
    if bound.is_empty() || bound.len() > MAX_PROCESSES {
        return vec![];
    }
    let set = bound.iter().map(|pid| format!("affinity:{pid}={everywhere}")).collect();
    vec![lowers(
        "affinity",
        format!("{} waits because it may not use the CPUs that idle", group_name(victim)),
        Measure::Queued,
        (set, LEAST),
        "its threads may run beside what they were kept apart from",
    )]
}
