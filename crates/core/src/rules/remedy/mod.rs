// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be changed about CPU time, as commands that fit the host: systemd unit, container or plain cgroup,
//! v1 or v2. Paths are below the usual mount points.

mod setting;

use self::setting::{Setting, decimal, file, operand, owner_note, set};
use super::words::ticked;
use crate::finding::Fix;
use crate::recording::{Cgroup, CgroupId, CgroupVersion};
use crate::render::units;
use crate::view::{Group, View};

/// More pids than this make no command that one wants to paste.
const MAX_PIDS: usize = 32;

/// The directories in which two cgroups part: children of the last one that they share. `None` for the one
/// that is itself that last one. Weights and quotas of these two decide between them.
fn parting(view: &View, a: CgroupId, b: CgroupId) -> (Option<&Cgroup>, Option<&Cgroup>) {
    let downwards = |id| {
        let mut path = view.cgroup_path(id);
        path.reverse();
        path
    };
    let (a, b) = (downwards(a), downwards(b));
    let shared = a.iter().zip(&b).take_while(|(a, b)| a.0 == b.0).count();
    let child = |path: &[(CgroupId, &crate::view::CgroupView)]| path.get(shared).map(|at| at.0);
    let facts = |id: Option<CgroupId>| {
        let facts = id.and_then(|id| view.cgroups().get(&id)?.facts.as_ref());
        // The root has neither weight nor quota: who is in it is beside the children of the root.
        facts.filter(|facts| facts.path != "/")
    };
    (facts(child(&a)), facts(child(&b)))
}

/// Gives the victim more weight than the culprit.
pub(super) fn weight(view: &View, victim: &Group<'_>, culprit: &Group<'_>) -> Option<Fix> {
    let (of_victim, of_culprit) = parting(view, victim.cgroup?, culprit.cgroup?);
    let (cgroup, percent, what) = match (of_victim, of_culprit) {
        (Some(cgroup), _) => (cgroup, 1000, "ten times the default weight"),
        // The victim is in the parent itself: only the culprit's side has a weight.
        (None, Some(cgroup)) => (cgroup, 10, "a tenth of the default weight"),
        (None, None) => return renice(culprit),
    };
    let command = set(cgroup, Setting::WeightPercent(percent));
    Some(Fix {
        action: format!(
            "give {} {what}: it costs nothing while there is idle CPU time",
            ticked(&cgroup.path)
        ),
        command,
        risk: Some(format!(
            "under load everybody beside it gets less; weights shorten the waits but do not end them{}",
            owner_note(cgroup)
        )),
    })
}

/// The tids of all threads of processes, as words of a shell: `ionice` and `renice` change just the thread that they
/// are given, and a pid is the main thread.
pub(super) fn threads(pids: &[u32]) -> String {
    let pids: Vec<_> = pids.iter().map(u32::to_string).collect();
    format!("$(ps -Lo tid= -p {})", pids.join(","))
}

/// Lowers the priority of the culprit; the choice where both are in one cgroup.
pub(super) fn renice(culprit: &Group<'_>) -> Option<Fix> {
    if culprit.members.len() > MAX_PIDS {
        return None;
    }
    let pids: Vec<u32> = culprit.members.iter().map(|(_, process)| process.pid).collect();
    Some(Fix {
        action: format!("lower the priority of {}", ticked(culprit.comm)),
        command: Some(format!("renice -n 10 -p {}", threads(&pids))),
        risk: Some(
            "it gets about a tenth of the CPU time while others want it; nice values count only within one \
             cgroup and one autogroup (session); threads that these start inherit it, and only root raises it again"
                .into(),
        ),
    })
}

/// Limits the culprit's CPU time.
pub(super) fn limit(view: &View, victim: &Group<'_>, culprit: &Group<'_>) -> Option<Fix> {
    let (_, cgroup) = parting(view, victim.cgroup?, culprit.cgroup?);
    let cgroup = cgroup?;
    let cpus = (f64::from(view.cpu_count()) / 2.0).max(0.5);
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
            "it is stopped for the rest of each period, and idle CPUs do not help it any more{}",
            owner_note(cgroup)
        )),
    })
}

/// Keeps the culprit on one half of the CPUs.
pub(super) fn separate(view: &View, culprit: &Group<'_>) -> Option<Fix> {
    let cpus = &view.meta()?.cpus_online;
    if cpus.len() < 2 {
        return None;
    }
    let half = &cpus[cpus.len() / 2..];
    let noun = if half.len() == 1 { "CPU" } else { "CPUs" };
    let half = cpu_list(half);
    let command = match culprit.members.as_slice() {
        [(_, process)] => format!("taskset -acp {half} {}", process.pid),
        _ => format!("for p in {}; do taskset -acp {half} $p; done", pids(culprit)?),
    };
    Some(Fix {
        action: format!("keep {} on {noun} {half}, so that the others stay free", ticked(culprit.comm)),
        command: Some(command),
        risk: Some(
            "it cannot use idle CPUs elsewhere; threads that it starts inherit the mask, other processes do not"
                .into(),
        ),
    })
}

/// Raises a quota so that what was wanted fits.
pub(super) fn raise_quota(cgroup: &Cgroup, cpus: f64) -> Fix {
    Fix {
        action: format!(
            "raise the quota of {} to {}",
            ticked(&cgroup.path),
            units::value(cpus, crate::finding::Unit::Cpus)
        ),
        command: set(cgroup, Setting::Cpus(cpus)),
        risk: Some(format!("its neighbours get less when CPUs are short{}", owner_note(cgroup))),
    }
}

/// Lets short peaks use quota that was saved up before.
pub(super) fn burst(cgroup: &Cgroup) -> Option<Fix> {
    let quota_us = cgroup.quota_us?;
    Some(Fix {
        action: format!("let {} save up one period's quota for peaks", ticked(&cgroup.path)),
        command: Some(set(cgroup, Setting::BurstUs(quota_us))?),
        risk: Some("in one period it may use up to twice its quota; kernel 5.14 and later".into()),
    })
}

/// Lets a victim run on all CPUs.
pub(super) fn widen(view: &View, victim: &Group<'_>) -> Option<Fix> {
    let all = cpu_list(&view.meta()?.cpus_online);
    let command = match victim.members.as_slice() {
        [(_, process)] => format!("taskset -acp {all} {}", process.pid),
        _ => format!("for p in {}; do taskset -acp {all} $p; done", pids(victim)?),
    };
    Some(Fix {
        action: format!("let {} run on all CPUs", ticked(victim.comm)),
        command: Some(command),
        risk: Some(
            "the pinning may be deliberate (cache, NUMA, isolation from somebody else): ask who set it; what \
             starts the process sets it again"
                .into(),
        ),
    })
}

/// Gives the cpuset of a victim's cgroup all CPUs.
pub(super) fn widen_cpuset(view: &View, victim: &Group<'_>) -> Option<Fix> {
    let meta = view.meta()?;
    let all = cpu_list(&meta.cpus_online);
    let path = view.cgroup_path(victim.cgroup?);
    let container = path.iter().find_map(|(_, level)| level.facts.as_ref()?.container.as_ref());
    let command = match container {
        Some(unit) if unit.runtime == "systemd" => Some(format!(
            "systemctl set-property --runtime {} AllowedCPUs={all}",
            operand(&unit.id)
        )),
        Some(it) if it.runtime == "docker" || it.runtime == "podman" => {
            let name = it.name.as_deref().unwrap_or(&it.id);
            Some(format!("{} update --cpuset-cpus {all} {}", it.runtime, operand(name)))
        }
        // On v1 the cpuset is in a tree of its own, in which the cgroup may have another path.
        _ if meta.cpu_controller == Some(CgroupVersion::V2) => {
            let facts = path.first().and_then(|(_, level)| level.facts.as_ref())?;
            Some(format!("echo {all} > {}", file(facts, "/sys/fs/cgroup", "cpuset.cpus")))
        }
        _ => None,
    };
    Some(Fix {
        action: format!("let the cpuset of {} have all CPUs", ticked(victim.comm)),
        command,
        risk: Some("the cpuset may be deliberate (isolation from somebody else), and one above it may still bind".into()),
    })
}

fn pids(group: &Group<'_>) -> Option<String> {
    if group.members.len() > MAX_PIDS {
        return None;
    }
    let pids: Vec<_> = group.members.iter().map(|(_, process)| process.pid.to_string()).collect();
    Some(pids.join(" "))
}

/// CPUs in a sentence.
pub(super) fn named(cpus: &[u32]) -> String {
    match cpus {
        [] => "others".into(),
        [cpu] => format!("CPU {cpu}"),
        cpus => format!("CPUs {}", cpu_list(cpus)),
    }
}

/// Ascending CPU numbers as a list: `0-3,8`.
pub(super) fn cpu_list(cpus: &[u32]) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{S, Scene};

    #[test]
    fn weights_are_set_where_two_cgroups_part_and_never_on_the_root() {
        let fix = |victim: Option<&str>, culprit: Option<&str>| {
            let mut scene = Scene::new(2, S);
            let root = scene.cgroup("/", None, None);
            let mut at =
                |path: Option<&str>| path.map_or(root, |path| scene.cgroup(path, None, None));
            let (victim, culprit) = (at(victim), at(culprit));
            scene.process("victim", Some(victim));
            scene.process("culprit", Some(culprit));
            let view = scene.view();
            let groups = view.groups();
            weight(&view, &groups.list()[0], &groups.list()[1]).and_then(|fix| fix.command)
        };
        let cases = [
            (Some("/a"), Some("/b"), "echo 1000 > /sys/fs/cgroup/a/cpu.weight"),
            (Some("/a"), None, "echo 1000 > /sys/fs/cgroup/a/cpu.weight"),
            (None, Some("/b"), "echo 10 > /sys/fs/cgroup/b/cpu.weight"),
            (None, None, "renice -n 10 -p $(ps -Lo tid= -p 1002)"),
        ];
        for (victim, culprit, command) in cases {
            assert_eq!(fix(victim, culprit).as_deref(), Some(command));
        }
    }

    #[test]
    fn a_command_for_threads_has_all_of_all_processes() {
        assert_eq!(threads(&[7]), "$(ps -Lo tid= -p 7)");
        assert_eq!(threads(&[7, 8, 9]), "$(ps -Lo tid= -p 7,8,9)");
    }

    #[test]
    fn cpu_lists_are_short() {
        assert_eq!(cpu_list(&[0, 1, 2, 3, 8]), "0-3,8");
        assert_eq!(cpu_list(&[]), "");
        assert_eq!(cpu_list(&[5]), "5");
    }
}
