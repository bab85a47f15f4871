// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Quotas: raising them, saving them up for bursts, and limiting a process that takes too much.

use super::Culprit;
use super::setting::{Setting, decimal, owner_note, set};
use super::weight::own_directory;
use crate::finding::{Fix, Promise, Unit};
use crate::recording::Cgroup;
use crate::rules::words::ticked;
use crate::text::units;
use crate::view::{Group, View};

/// Lowest limit that is proposed, in CPUs: with less, next to nothing gets done.
const MIN_CPUS: f64 = 0.1;

/// Limits the culprit's CPU time to half of what it uses now, at most half of the host's CPUs.
pub(super) fn limit(view: &View, victim: &Group<'_>, culprit: &Culprit<'_>) -> Option<Fix> {
    // The culprit's own directory: one above it holds others, too, and one that holds the victim would stop it as well.
    let id = own_directory(view, culprit.group.cgroup?)?;
    if view.cgroup_path(victim.cgroup?).iter().any(|(level, _)| *level == id) {
        return None;
    }
    let group = view.cgroups().get(&id)?;
    let cgroup = group.facts.as_ref()?;
    let on_cpu_ns = culprit.group.usage.as_ref().map(|usage| usage.states.on_cpu_ns);
    // The limit applies to everything in its cgroup.
    let used_ns = group.usage_ns.delta().max(on_cpu_ns);
    let most = f64::from(view.cpu_count()) / 2.0;
    let used = used_ns.map(|ns| view.per_second(ns) as f64 / 1e9);
    let half = used.map_or(most, |cpus| (cpus * 5.0).ceil() / 10.0);
    let cpus = half.min(most).max(MIN_CPUS);
    let command = set(cgroup, Setting::Cpus(cpus))?;
    Some(Fix {
        action: format!(
            "limit {} to {} {} of time",
            ticked(&cgroup.path),
            decimal(cpus),
            if cpus > 1.0 { "CPUs" } else { "CPU" }
        ),
        command: Some(command),
        risk: Some(format!(
            "everything in it is stopped for the rest of each period, and can no longer use idle CPUs{}",
            owner_note(cgroup, Setting::Cpus(cpus))
        )),
        expect: None,
    })
}

/// Raises a quota to `cpus`, so that the demand fits: at most `left` (0..1) of the throttled time remains, unless there
/// is a doubt about that.
pub(in crate::rules) fn raise_quota(
    cgroup: &Cgroup,
    cpus: f64,
    left: f64,
    doubt: Option<&str>,
) -> Fix {
    let doubt_note = doubt.map(|doubt| format!("; {doubt}")).unwrap_or_default();
    Fix {
        action: format!(
            "raise the quota of {} to {}",
            ticked(&cgroup.path),
            units::value(cpus, Unit::Cpus)
        ),
        command: set(cgroup, Setting::Cpus(cpus)),
        risk: Some(format!(
            "its neighbours get less when CPUs are short{doubt_note}{}",
            owner_note(cgroup, Setting::Cpus(cpus))
        )),
        expect: doubt.is_none().then(|| Promise::left_at_most(left)),
    }
}

/// Lets short peaks use quota that was saved up before (burst).
pub(in crate::rules) fn burst(cgroup: &Cgroup) -> Option<Fix> {
    let quota_us = cgroup.quota_us?;
    Some(Fix {
        action: format!("let {} save up one period's quota for peaks", ticked(&cgroup.path)),
        command: Some(set(cgroup, Setting::BurstUs(quota_us))?),
        risk: Some("in one period it may use up to twice its quota; kernel 5.14 and later".into()),
        expect: None,
    })
}
