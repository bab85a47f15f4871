// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Circumstances of a check: its CPUs, its limits, and the load of other tasks.

use super::document::{AffinityLimit, Cpus, OwnLimit};
use crate::limits::effective::LimitSource;
use crate::procfs::cpu_list;
use crate::recording::CheckSetup;
use crate::view::View;

/// CPUs and circumstances of the check.
pub(super) fn cpus(view: &View, setup: &CheckSetup) -> Cpus {
    let siblings: usize =
        setup.cores_told.iter().flatten().map(|core| core.len().saturating_sub(1)).sum();
    let totals = view.cpu_totals();
    let check = view.cpu_check();
    let workers = check.workers.list().iter().map(|worker| worker.run.cpu_ns);
    let rounds =
        check.rounds.list().iter().map(|r| {
            r.a_alone.cpu_ns + r.b_alone.cpu_ns + r.a_together.cpu_ns + r.b_together.cpu_ns
        });
    let own_ns: u64 = workers.chain(rounds).sum();
    let window_ns = view.window_ns();
    let (kept_by, limit) = own_limits(view, setup);
    Cpus {
        online: view.cpu_count(),
        used: setup.cpus.clone(),
        offline: offline(view),
        kept_by,
        limit,
        cores_told: setup
            .cores_told
            .as_ref()
            .map(|_| setup.cpus.len().saturating_sub(siblings) as u32),
        hypervisor: setup.hypervisor,
        realtime: setup.realtime,
        steal: totals.and_then(|totals| totals.stolen_share()),
        others: totals
            .filter(|_| window_ns > 0)
            .map(|totals| totals.busy_ns.saturating_sub(own_ns) as f64 / window_ns as f64),
        frequency_allowed: frequency_allowed(view),
    }
}

/// Limits of the check itself: what prevents it from using CPUs, and the binding quota.
fn own_limits(view: &View, setup: &CheckSetup) -> (Option<AffinityLimit>, Option<OwnLimit>) {
    let mut processes = view.processes().values().filter_map(|process| process.facts.as_ref());
    let Some(own) = processes.find(|facts| facts.observer) else { return (None, None) };
    let is_less = (setup.cpus.len() as u32) < view.cpu_count();
    let cpuset = own.cpuset_cpus.as_ref().and_then(|text| cpu_list::parse(text.as_bytes()).ok());
    // If the affinity is as narrow as the cpuset, the cpuset is the cause: the kernel narrows the affinity to it.
    let by_cpuset = cpuset.is_some_and(|cpus| !cpus.is_empty() && cpus.len() <= setup.cpus.len());
    let kept_by =
        is_less.then_some(if by_cpuset { AffinityLimit::Cpuset } else { AffinityLimit::Affinity });
    let limit = view.limit_of(own).filter(|limit| limit.effective.bound == LimitSource::Quota);
    let limit = limit.and_then(|limit| {
        let (_, level) = limit.level?;
        Some(OwnLimit { cpus: limit.effective.cpus, cgroup: level.path })
    });
    (kept_by, limit)
}

/// CPUs that are present, but not online. The kernel's list `offline` also has CPUs that are possible, but not present.
fn offline(view: &View) -> Vec<u32> {
    let list = |name: &str| {
        let path = format!("/sys/devices/system/cpu/{name}");
        let text = view.block().settings().get(&path)?.as_deref()?;
        cpu_list::parse(text.as_bytes()).ok()
    };
    let Some((offline, present)) = list("offline").zip(list("present")) else { return vec![] };
    offline.into_iter().filter(|cpu| present.contains(cpu)).collect()
}

/// Lowest ratio of `scaling_max_freq` to `cpuinfo_max_freq` of any CPU.
fn frequency_allowed(view: &View) -> Option<f64> {
    let settings = view.block().settings();
    let ratios = settings.iter().filter_map(|(path, value)| {
        let folder = path.strip_suffix("scaling_max_freq")?;
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|khz| *khz > 0.0);
        let most = settings.get(&format!("{folder}cpuinfo_max_freq"))?.as_deref()?;
        Some(number(value.as_deref()?)? / number(most)?)
    });
    ratios.min_by(f64::total_cmp)
}
