// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Is it the quota of this level that stops the victim? It is raised.

use super::{group_of, lowers, set_cgroup};
use crate::finding::{EntityKind, Finding};
use crate::prove::experiment::Experiment;
use crate::prove::measure::Measure;
use crate::recording::CgroupVersion;
use crate::rules::words::ticked;
use crate::view::{Usage, View};

/// Part of the throttled time that must go while the quota is twice what it was.
const LEAST: f64 = 0.4;

pub(super) fn all(view: &View, finding: &Finding) -> Vec<Experiment> {
    let level = finding.causes.iter().map(|cause| &cause.entity);
    let level =
        level.filter(|it| it.kind == EntityKind::Cgroup).find_map(|it| it.cgroup.as_deref());
    let levels = view.cgroups().values().filter_map(|it| it.facts.as_ref());
    let Some(facts) = levels.clone().find(|it| Some(it.path.as_str()) == level) else {
        return vec![];
    };
    let (Some(quota_us), Some(period_us)) = (facts.quota_us, facts.period_us) else {
        return vec![];
    };
    let groups = view.groups();
    let whose = group_of(view, groups.list(), &finding.victim);
    let wanted = whose.and_then(|group| group.usage.as_ref()).map_or(0, Usage::wanted_ns);
    // What its threads want, if that is more than twice the quota; never more than the host has.
    let of_all = u64::from(view.cpu_count()).saturating_mul(period_us);
    let wanted_us = (view.per_second(wanted) as f64 / 1e9 * period_us as f64) as u64;
    let raised_us = quota_us.saturating_mul(2).max(wanted_us).min(of_all.max(quota_us));
    if raised_us <= quota_us {
        return vec![];
    }
    let set = match facts.version {
        CgroupVersion::V1 => set_cgroup(facts, "cpu.cfs_quota_us", raised_us),
        CgroupVersion::V2 => set_cgroup(facts, "cpu.max", format_args!("{raised_us} {period_us}")),
    };
    vec![lowers(
        "quota",
        format!(
            "threads are throttled because {} may use too little CPU time",
            ticked(&facts.path)
        ),
        Measure::Throttled,
        (vec![set], LEAST),
        "what runs beside it may get less CPU time in a changed block",
    )]
}
