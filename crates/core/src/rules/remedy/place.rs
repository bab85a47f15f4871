// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Placement: which processes may run on which CPUs.

use super::setting::set_cpus;
use super::{Culprit, each};
use crate::finding::{Fix, Promise};
use crate::recording::{CgroupVersion, Process};
use crate::rules::words::ticked;
use crate::view::{Group, View};
use std::collections::BTreeSet;

/// Keeps the culprit off the CPUs of a victim that is bound to some; if the victim is not bound, keeps the culprit on
/// half of the CPUs.
pub(super) fn apart(view: &View, victim: &Group<'_>, culprit: &Culprit<'_>) -> Option<Fix> {
    let online: BTreeSet<u32> = view.meta()?.cpus_online.iter().copied().collect();
    let of_victim: BTreeSet<u32> =
        victim.members.iter().flat_map(|(_, process)| allowed(process, &online)).collect();
    // The culprit cannot be moved out of its cpuset.
    let open: Vec<u32> = match culprit.processes.first()?.cpuset_cpus.as_deref() {
        Some(set) => cpus(set).intersection(&online).copied().collect(),
        None => online.iter().copied().collect(),
    };
    let in_use: BTreeSet<u32> = culprit
        .processes
        .iter()
        .flat_map(|process| allowed(process, &online))
        .filter(|cpu| open.contains(cpu))
        .collect();
    let bound = of_victim.len() < online.len();
    let keep: Vec<u32> = match bound {
        true => open.into_iter().filter(|cpu| !of_victim.contains(cpu)).collect(),
        false => open[open.len() / 2..].to_vec(),
    };
    // It may run there only already: one half of one CPU is that CPU.
    if keep.is_empty() || in_use.iter().all(|cpu| keep.contains(cpu)) {
        return None;
    }
    let it = ticked(culprit.group.comm);
    let action = match bound {
        true => {
            let theirs: Vec<u32> = of_victim.into_iter().collect();
            format!("keep {it} off {}, where {} has to run", named(&theirs), ticked(victim.comm))
        }
        false => format!("keep {it} on {}, so that the others stay free", named(&keep)),
    };
    let list = cpu_list(&keep);
    Some(Fix {
        action,
        command: Some(each(&culprit.pids()?, |pid| format!("taskset -acp {list} {pid}"))),
        risk: Some(
            "it cannot use idle CPUs elsewhere; threads that it starts inherit the mask, other processes do not"
                .into(),
        ),
        // On busy CPUs it displaces other threads, which may move to the victim's CPUs.
        expect: culprit.leaves(0.25).filter(|_| bound && has_room(view, &keep, culprit)),
    })
}

/// The command that lets the victim run on other CPUs than one: on those others that it may use now, and if there are none,
/// on all others of its cpuset. `None` if it has none, or if what it may use is not known.
pub(in crate::rules) fn away(view: &View, victim: &Group<'_>, cpu: u32) -> Option<String> {
    let mut open: BTreeSet<u32> = view.meta()?.cpus_online.iter().copied().collect();
    open.remove(&cpu);
    let mut own = BTreeSet::new();
    for (_, process) in &victim.members {
        if let Some(set) = process.cpuset_cpus.as_deref() {
            let set = cpus(set);
            open.retain(|cpu| set.contains(cpu));
        }
        own.extend(cpus(process.cpus_allowed.as_deref()?));
    }
    let left: Vec<u32> = open.intersection(&own).copied().collect();
    let list = cpu_list(&if left.is_empty() { open.into_iter().collect() } else { left });
    let pids = super::pids(victim.members.iter().map(|(_, process)| *process))?;
    (!list.is_empty()).then(|| each(&pids, |pid| format!("taskset -acp {list} {pid}")))
}

/// The CPUs, other than one, that could serve interrupts: those that the victim may not use; if it may use all of them, all
/// others. `None` if there is no other.
pub(in crate::rules) fn elsewhere(view: &View, victim: &Group<'_>, cpu: u32) -> Option<Vec<u32>> {
    let mut others: BTreeSet<u32> = view.meta()?.cpus_online.iter().copied().collect();
    others.remove(&cpu);
    let of_victim: BTreeSet<u32> =
        victim.members.iter().flat_map(|(_, process)| allowed(process, &others)).collect();
    let beside: Vec<u32> = others.difference(&of_victim).copied().collect();
    let list = if beside.is_empty() { others.into_iter().collect() } else { beside };
    (!list.is_empty()).then_some(list)
}

/// Whether these CPUs were idle for at least as long as the culprit ran, so that it fits there.
fn has_room(view: &View, keep: &[u32], culprit: &Culprit<'_>) -> bool {
    let idle_ns = keep.iter().filter_map(|cpu| view.cpus().get(cpu)?.idle_ns.delta()).sum::<u64>();
    culprit.group.usage.as_ref().is_some_and(|usage| usage.states.on_cpu_ns <= idle_ns)
}

/// Online CPUs that any thread of a process may use.
fn allowed(process: &Process, online: &BTreeSet<u32>) -> BTreeSet<u32> {
    match process.cpus_allowed.as_deref() {
        Some(list) => cpus(list).intersection(online).copied().collect(),
        None => online.clone(),
    }
}

/// The promise of a remedy that allows a victim the CPUs that were idle while it waited: at most a quarter of that
/// waiting is left, and all of the waiting while an allowed CPU was idle.
fn reached(victim: &Group<'_>) -> Option<Promise> {
    let idle = victim.idle.as_ref()?;
    let part = idle.forbidden_ns as f64 / (idle.forbidden_ns + idle.allowed_ns).max(1) as f64;
    super::promised(1.0 - 0.75 * part)
}

/// Sets the victim's affinity masks to all online CPUs.
pub(in crate::rules) fn widen(view: &View, victim: &Group<'_>) -> Option<Fix> {
    let all = cpu_list(&view.meta()?.cpus_online);
    let online: BTreeSet<u32> = cpus(&all);
    // A mask takes effect only within the cpuset.
    let in_all = |process: &Process| {
        process.cpuset_cpus.as_deref().is_none_or(|set| online.is_subset(&cpus(set)))
    };
    let masks = victim.members.iter().all(|(_, it)| it.cpus_allowed.is_some() && in_all(it));
    let pids = super::pids(victim.members.iter().map(|(_, process)| *process))?;
    let command = each(&pids, |pid| format!("taskset -acp {all} {pid}"));
    Some(Fix {
        action: format!("let {} run on all CPUs", ticked(victim.comm)),
        command: Some(command),
        risk: Some(
            "the pinning may be deliberate (cache, NUMA, isolation from other processes): ask who set it; what \
             starts the process sets it again"
                .into(),
        ),
        expect: reached(victim).filter(|_| masks),
    })
}

/// Gives the cpuset of the victim's cgroup all online CPUs.
pub(in crate::rules) fn widen_cpuset(view: &View, victim: &Group<'_>) -> Option<Fix> {
    let meta = view.meta()?;
    let all = cpu_list(&meta.cpus_online);
    let path = view.cgroup_path(victim.cgroup?);
    let command = path.first().and_then(|(_, level)| set_cpus(level.facts.as_ref()?, &all));
    Some(Fix {
        action: format!("let the cpuset of {} have all CPUs", ticked(victim.comm)),
        command,
        risk: Some("the cpuset may be deliberate (isolation from other processes), and one above it may still bind".into()),
        expect: reached(victim).filter(|_| is_open_above(view, victim)),
    })
}

/// Whether the cpusets above the victim's cgroup have all CPUs: known if some process in or below the parent has them.
fn is_open_above(view: &View, victim: &Group<'_>) -> bool {
    let Some(meta) = view.meta().filter(|meta| meta.cpu_controller == Some(CgroupVersion::V2))
    else {
        // On v1 the cpuset hierarchy is separate.
        return false;
    };
    let Some(id) = victim.cgroup else { return false };
    let path = view.cgroup_path(id);
    let Some(&(above, _)) = path.get(1) else { return false };
    let online: BTreeSet<u32> = meta.cpus_online.iter().copied().collect();
    view.processes().values().filter_map(|process| process.facts.as_ref()).any(|process| {
        let has_all = |set: &str| online.is_subset(&cpus(set));
        let is_below = |at| view.cgroup_path(at).iter().any(|(level, _)| *level == above);
        process.cpuset_cpus.as_deref().is_some_and(has_all) && process.cgroup.is_some_and(is_below)
    })
}

/// CPUs as words of a sentence: `CPU 3`, `CPUs 0-3,8`.
pub(in crate::rules) fn named(cpus: &[u32]) -> String {
    match cpus {
        [] => "others".into(),
        [cpu] => format!("CPU {cpu}"),
        cpus => format!("CPUs {}", cpu_list(cpus)),
    }
}

/// Ascending CPU numbers as a list: `0-3,8`.
pub(in crate::rules) fn cpu_list(cpus: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(cpu) => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let texts = ranges.iter().map(|&(from, to)| match to {
        to if to == from => from.to_string(),
        to => format!("{from}-{to}"),
    });
    texts.collect::<Vec<_>>().join(",")
}

/// The numbers of a CPU list (`0-3,8`); malformed parts are skipped.
pub(in crate::rules) fn cpus(list: &str) -> BTreeSet<u32> {
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to) = (from.trim().parse::<u32>().ok()?, to.trim().parse::<u32>().ok()?);
        // No kernel supports more CPUs than this: a larger number makes the part malformed.
        (to < 1 << 16).then_some(from..=to)
    };
    list.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{S, Scene};
    use proptest::prelude::*;

    /// Action and command that keep the culprit away from a victim that is allowed the CPUs `victims` of four;
    /// `culprits` is the culprit's cpuset.
    fn fix(victims: &str, culprits: &str) -> Option<(String, String)> {
        let mut scene = Scene::new(4, S);
        let victim = scene.process("victim", None);
        let culprit = scene.process("culprit", None);
        scene.facts(victim, |process| process.cpus_allowed = Some(victims.into()));
        scene.facts(culprit, |process| process.cpuset_cpus = Some(culprits.into()));
        let view = scene.view();
        let groups = view.groups();
        let [victim, culprit] = groups.list() else { panic!() };
        let fix = apart(&view, victim, &Culprit::all_of(culprit))?;
        Some((fix.action, fix.command?))
    }

    #[test]
    fn who_shares_the_cpu_of_a_bound_victim_is_kept_off_it() {
        let (action, command) = fix("1", "0-3").unwrap();
        assert_eq!(action, "keep `culprit` off CPU 1, where `victim` has to run");
        assert_eq!(command, "taskset -acp 0,2-3 1002");
        assert_eq!(fix("1", "1"), None, "its cpuset has no other CPU");
    }

    #[test]
    fn a_victim_that_may_run_everywhere_gets_half_of_the_cpus() {
        let (action, command) = fix("0-3", "0-3").unwrap();
        assert_eq!(action, "keep `culprit` on CPUs 2-3, so that the others stay free");
        assert_eq!(command, "taskset -acp 2-3 1002");
    }

    #[test]
    fn who_is_where_it_should_be_is_not_sent_there() {
        assert_eq!(fix("0-3", "3"), None, "half of its one CPU is that CPU");
        assert_eq!(fix("0-1", "2-3"), None, "it has none of the victim's CPUs");
        assert!(fix("0-3", "2-3").is_some_and(|(_, command)| command.contains("-acp 3 ")));
    }

    #[test]
    fn who_is_moved_away_keeps_what_it_has_and_else_gets_its_cpuset() {
        let away = |mask: Option<&str>, cpuset: Option<&str>| {
            let mut scene = Scene::new(4, S);
            let victim = scene.process("victim", None);
            scene.facts(victim, |process| {
                process.cpus_allowed = mask.map(str::to_owned);
                process.cpuset_cpus = cpuset.map(str::to_owned);
            });
            let view = scene.view();
            away(&view, &view.groups().list()[0], 1)
        };
        let to = |list: &str| Some(format!("taskset -acp {list} 1001"));
        assert_eq!(away(Some("1"), Some("0-3")), to("0,2-3"));
        assert_eq!(away(Some("1-2"), Some("0-3")), to("2"));
        assert_eq!(away(Some("0-3"), None), to("0,2-3"));
        assert_eq!(away(Some("1"), Some("1-2")), to("2"));
        assert_eq!(away(Some("1"), Some("1")), None, "its cpuset has no other CPU");
        assert_eq!(away(None, Some("0-3")), None, "what it may use is not known");
    }

    #[test]
    fn interrupts_go_where_the_victim_does_not_run() {
        let elsewhere = |mask: &str, cpus: u32| {
            let mut scene = Scene::new(cpus, S);
            let victim = scene.process("victim", None);
            scene.facts(victim, |process| process.cpus_allowed = Some(mask.into()));
            let view = scene.view();
            elsewhere(&view, &view.groups().list()[0], 1)
        };
        assert_eq!(elsewhere("0-1", 4), Some(vec![2, 3]));
        assert_eq!(elsewhere("0-3", 4), Some(vec![0, 2, 3]));
        assert_eq!(elsewhere("1", 2), Some(vec![0]));
    }

    #[test]
    fn cpu_lists_are_short() {
        assert_eq!(cpu_list(&[0, 1, 2, 3, 8]), "0-3,8");
        assert_eq!(cpu_list(&[]), "");
        assert_eq!(cpu_list(&[5]), "5");
    }

    #[test]
    fn cpu_lists_are_read() {
        assert_eq!(cpus("0-2,8").into_iter().collect::<Vec<_>>(), [0, 1, 2, 8]);
        assert!(cpus("").is_empty());
    }

    proptest! {
        #[test]
        fn no_list_is_too_strange(list in "[0-9,\\- a-z]{0,40}") {
            prop_assert!(cpus(&list).iter().all(|&cpu| cpu < 1 << 16));
        }
    }
}
