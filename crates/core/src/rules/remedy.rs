// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be changed about CPU time, as commands that fit the host: systemd unit, container or plain cgroup,
//! v1 or v2. Paths are below the usual mount points.

use super::words::ticked;
use crate::finding::{Fix, shell_quote};
use crate::recording::{Cgroup, CgroupId, CgroupVersion};
use crate::render::units;
use crate::view::{Group, View};

/// More pids than this make no command that one wants to paste.
const MAX_PIDS: usize = 32;

/// The directories in which two cgroups part: children of the last one that they share. `None` for the one
/// that is itself that last one. Weights and quotas of these two decide between them.
pub(super) fn parting(view: &View, a: CgroupId, b: CgroupId) -> (Option<&Cgroup>, Option<&Cgroup>) {
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

/// One thing to set on a cgroup.
#[derive(Clone, Copy, Debug)]
enum Setting {
    /// Percent of the default weight.
    WeightPercent(u64),
    /// CPUs' worth of quota.
    Cpus(f64),
    /// Quota that may be saved up.
    BurstUs(u64),
}

/// The command that sets it, by whoever owns the directory. A runtime that owns it would overwrite a plain
/// write.
fn set(cgroup: &Cgroup, setting: Setting) -> Option<String> {
    let container = cgroup.container.as_ref();
    let runtime = container.map_or("", |container| container.runtime.as_str());
    if let (Some(container), "systemd") = (container, runtime) {
        let property = match setting {
            Setting::WeightPercent(percent) => Some(format!("CPUWeight={percent}")),
            Setting::Cpus(cpus) => Some(format!("CPUQuota={:.0}%", cpus * 100.0)),
            Setting::BurstUs(_) => None,
        };
        if let Some(property) = property {
            return Some(format!(
                "systemctl set-property --runtime {} {property}",
                operand(&container.id)
            ));
        }
    }
    if let (Some(container), "docker" | "podman") = (container, runtime) {
        let option = match setting {
            Setting::WeightPercent(percent) => Some(format!("--cpu-shares {}", shares(percent))),
            Setting::Cpus(cpus) => Some(format!("--cpus {}", decimal(cpus))),
            Setting::BurstUs(_) => None,
        };
        if let Some(option) = option {
            let name = container.name.as_deref().unwrap_or(&container.id);
            return Some(format!("{runtime} update {option} {}", operand(name)));
        }
    }
    if cgroup.path == "/" {
        return None;
    }
    let period_us = cgroup.period_us.filter(|&us| us > 0).unwrap_or(100_000);
    let quota_us = |cpus: f64| (cpus * period_us as f64).round() as u64;
    let (mount, file, value) = match (cgroup.version, setting) {
        (CgroupVersion::V2, Setting::WeightPercent(percent)) => {
            ("/sys/fs/cgroup", "cpu.weight", percent.to_string())
        }
        (CgroupVersion::V2, Setting::Cpus(cpus)) => {
            ("/sys/fs/cgroup", "cpu.max", format!("'{} {period_us}'", quota_us(cpus)))
        }
        (CgroupVersion::V2, Setting::BurstUs(us)) => {
            ("/sys/fs/cgroup", "cpu.max.burst", us.to_string())
        }
        (CgroupVersion::V1, Setting::WeightPercent(percent)) => {
            ("/sys/fs/cgroup/cpu", "cpu.shares", shares(percent).to_string())
        }
        (CgroupVersion::V1, Setting::Cpus(cpus)) => {
            ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", quota_us(cpus).to_string())
        }
        (CgroupVersion::V1, Setting::BurstUs(us)) => {
            ("/sys/fs/cgroup/cpu", "cpu.cfs_burst_us", us.to_string())
        }
    };
    let path = format!("{mount}{}/{file}", cgroup.path);
    Some(format!("echo {value} > {}", shell_quote(&path)))
}

/// The same weight in v1's unit.
fn shares(percent: u64) -> u64 {
    percent * 1024 / 100
}

/// A quoted name that is no option: systemd's root slice is called `-.slice`.
fn operand(name: &str) -> String {
    let quoted = shell_quote(name);
    if name.starts_with('-') { format!("-- {quoted}") } else { quoted.into_owned() }
}

fn decimal(cpus: f64) -> String {
    let text = format!("{cpus:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Where a cgroup's limits are really kept, if a plain write does not last.
fn owner_note(cgroup: &Cgroup) -> &'static str {
    match cgroup.container.as_ref() {
        Some(container) if container.pod.is_some() || container.runtime == "kubernetes" => {
            "; for a trial only: the kubelet owns the cgroup, set the pod's resources to keep it"
        }
        Some(container) if container.runtime == "systemd" => {
            "; until the next boot, leave out --runtime to keep it"
        }
        _ => "",
    }
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

fn file(cgroup: &Cgroup, mount: &str, name: &str) -> String {
    shell_quote(&format!("{mount}{}/{name}", cgroup.path)).into_owned()
}

/// Lowers the priority of the culprit; the choice where both are in one cgroup.
pub(super) fn renice(culprit: &Group<'_>) -> Option<Fix> {
    let pids = pids(culprit)?;
    Some(Fix {
        action: format!("lower the priority of {}", ticked(culprit.comm)),
        command: Some(format!("renice -n 10 -p {pids}")),
        risk: Some(
            "it gets about a tenth of the CPU time while others want it; nice values count only within one \
             cgroup and one autogroup (session)"
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
    let half = cpu_list(&cpus[cpus.len() / 2..]);
    let command = match culprit.members.as_slice() {
        [(_, process)] => format!("taskset -acp {half} {}", process.pid),
        _ => format!("for p in {}; do taskset -acp {half} $p; done", pids(culprit)?),
    };
    Some(Fix {
        action: format!("keep {} on CPUs {half}, so that the others stay free", ticked(culprit.comm)),
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
    use crate::recording::Container;
    use crate::testkit::{S, Scene};

    fn cgroup(path: &str, version: CgroupVersion, container: Option<Container>) -> Cgroup {
        Cgroup {
            id: CgroupId(1),
            parent: None,
            path: path.into(),
            version,
            quota_us: Some(50_000),
            period_us: Some(100_000),
            burst_us: None,
            weight: None,
            container,
        }
    }

    #[test]
    fn each_owner_has_its_own_command() {
        let runtime = |runtime: &str, id: &str| {
            Some(Container { runtime: runtime.into(), id: id.into(), ..Container::default() })
        };
        let command =
            |path, version, container, setting| set(&cgroup(path, version, container), setting);
        let cases = [
            (
                command(
                    "/system.slice/a.service",
                    CgroupVersion::V2,
                    runtime("systemd", "a.service"),
                    Setting::Cpus(1.5),
                ),
                "systemctl set-property --runtime a.service CPUQuota=150%",
            ),
            (
                command(
                    "/docker/0a",
                    CgroupVersion::V1,
                    runtime("docker", "0a"),
                    Setting::Cpus(1.5),
                ),
                "docker update --cpus 1.5 0a",
            ),
            (
                command(
                    "/docker/0a",
                    CgroupVersion::V1,
                    runtime("docker", "0a"),
                    Setting::BurstUs(9),
                ),
                "echo 9 > /sys/fs/cgroup/cpu/docker/0a/cpu.cfs_burst_us",
            ),
            (
                command("/a; reboot", CgroupVersion::V2, None, Setting::Cpus(2.0)),
                "echo '200000 100000' > '/sys/fs/cgroup/a; reboot/cpu.max'",
            ),
            (
                command("/a", CgroupVersion::V1, None, Setting::WeightPercent(1000)),
                "echo 10240 > /sys/fs/cgroup/cpu/a/cpu.shares",
            ),
        ];
        for (is, should) in cases {
            assert_eq!(is.as_deref(), Some(should));
        }
        assert_eq!(command("/", CgroupVersion::V2, None, Setting::Cpus(2.0)), None);
    }

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
            (None, None, "renice -n 10 -p 1002"),
        ];
        for (victim, culprit, command) in cases {
            assert_eq!(fix(victim, culprit).as_deref(), Some(command));
        }
    }

    #[test]
    fn cpu_lists_are_short() {
        assert_eq!(cpu_list(&[0, 1, 2, 3, 8]), "0-3,8");
        assert_eq!(cpu_list(&[]), "");
        assert_eq!(cpu_list(&[5]), "5");
    }
}
