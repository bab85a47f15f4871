// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Weights: whoever has more of them gets more, where two compete. Between cgroups the weights of the two directories
//! in which they part decide; within one cgroup the nice values of threads.

use super::setting::{Setting, owner_note, set};
use super::{Culprit, each, threads};
use crate::finding::Fix;
use crate::recording::{Cgroup, CgroupId, CgroupVersion};
use crate::rules::words::ticked;
use crate::view::{Group, View};

/// A remedy makes a weight so many times the other.
const FACTOR: u64 = 10;

/// The directories in which two cgroups part: children of the last one that they share. `None` for the one that is
/// itself that last one. Weights and quotas of these two decide between them. Directories without the cpu controller
/// are passed over: who is in them competes as if it were in the one above.
pub(super) fn parting(
    view: &View,
    a: CgroupId,
    b: CgroupId,
) -> (Option<CgroupId>, Option<CgroupId>) {
    let downwards = |id| {
        let path = view.cgroup_path(id);
        let has_weight = |id: &CgroupId| facts(view, *id).is_some_and(|it| it.weight.is_some());
        // The root has neither weight nor quota: who is in it is beside the children of the root.
        let is_root = |id: &CgroupId| facts(view, *id).is_some_and(|it| it.path == "/");
        let mut path: Vec<CgroupId> = path
            .into_iter()
            .map(|(id, _)| id)
            .filter(|id| has_weight(id) && !is_root(id))
            .collect();
        path.reverse();
        path
    };
    let (a, b) = (downwards(a), downwards(b));
    let shared = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    (a.get(shared).copied(), b.get(shared).copied())
}

fn facts(view: &View, id: CgroupId) -> Option<&Cgroup> {
    view.cgroups().get(&id)?.facts.as_ref()
}

/// Gives the victim more weight than the culprit, where the two compete.
pub(super) fn prefer(view: &View, victim: &Group<'_>, culprit: &Culprit<'_>) -> Option<Fix> {
    let (of_victim, of_culprit) = match (victim.cgroup, culprit.group.cgroup) {
        (Some(a), Some(b)) if view.meta()?.cpu_controller.is_some() => parting(view, a, b),
        (None, _) | (_, None) if view.meta()?.cpu_controller.is_some() => return None,
        // Without the cpu controller all threads of the host compete by their nice values.
        _ => (None, None),
    };
    let facts = |id: Option<CgroupId>| id.and_then(|id| facts(view, id));
    match (facts(of_victim), facts(of_culprit)) {
        (Some(own), other) => raise(own, other, culprit),
        (None, Some(other)) => lower(other, culprit),
        (None, None) => nice(victim, culprit),
    }
}

fn default_weight(version: CgroupVersion) -> u64 {
    match version {
        CgroupVersion::V1 => 1024,
        CgroupVersion::V2 => 100,
    }
}

/// The most that the kernel takes.
fn most_weight(version: CgroupVersion) -> u64 {
    match version {
        CgroupVersion::V1 => 262_144,
        CgroupVersion::V2 => 10_000,
    }
}

/// More weight for the victim's directory.
fn raise(own: &Cgroup, other: Option<&Cgroup>, culprit: &Culprit<'_>) -> Option<Fix> {
    let default = default_weight(own.version);
    let now = own.weight.unwrap_or(default);
    // A thread that is in the directory above itself has the default weight, at nice 0.
    let beside = other.and_then(|other| other.weight).unwrap_or(default);
    let wanted = FACTOR * beside.max(default);
    // What the kernel would not take, or what it has already, is no remedy.
    if now >= FACTOR * beside || wanted > most_weight(own.version) {
        return None;
    }
    let percent = 100 * wanted / default;
    let than = match other {
        Some(other) if beside > default => {
            format!("{FACTOR} times the weight of {}", ticked(&other.path))
        }
        _ => "ten times the default weight".to_owned(),
    };
    let has = match now {
        now if now == default => String::new(),
        now => format!(" (it has {now}, the default is {default})"),
    };
    Some(Fix {
        action: format!(
            "give {} {than}{has}: it costs nothing while there is idle CPU time",
            ticked(&own.path)
        ),
        command: set(own, Setting::WeightPercent(percent)),
        risk: Some(format!(
            "under load everybody beside it gets less; weights shorten the waits but do not end them{}",
            owner_note(own)
        )),
        expect: culprit.leaves(0.5),
    })
}

/// Less weight for the culprit's directory: the victim is in the parent itself, which has no weight beside it.
fn lower(other: &Cgroup, culprit: &Culprit<'_>) -> Option<Fix> {
    let default = default_weight(other.version);
    if other.weight.is_some_and(|weight| weight * FACTOR <= default) {
        return None;
    }
    Some(Fix {
        action: format!(
            "give {} a tenth of the default weight: it costs nothing while there is idle CPU time",
            ticked(&other.path)
        ),
        command: set(other, Setting::WeightPercent(100 / FACTOR)),
        risk: Some(format!(
            "under load everybody in it gets less; weights shorten the waits but do not end them{}",
            owner_note(other)
        )),
        expect: culprit.leaves(0.5),
    })
}

/// Nice values: the choice where both are in one cgroup.
fn nice(victim: &Group<'_>, culprit: &Culprit<'_>) -> Option<Fix> {
    let own = victim.first().nice.unwrap_or(0);
    let theirs = culprit.processes.iter().filter_map(|process| process.nice).min().unwrap_or(0);
    let among = "nice values count only within one cgroup and one autogroup (session)";
    if own > theirs {
        let pids = super::pids(victim.members.iter().map(|(_, process)| *process))?;
        return Some(Fix {
            action: format!(
                "give {} the priority that {} has (nice {theirs}; its own is {own})",
                ticked(victim.comm),
                ticked(culprit.group.comm)
            ),
            command: Some(format!("renice -n {theirs} -p {}", threads(&pids))),
            risk: Some(format!("others get less; {among}")),
            expect: culprit.leaves(0.9),
        });
    }
    let pids = culprit.pids()?;
    let it = ticked(culprit.group.comm);
    let risk = format!(
        "it gets about a tenth of the CPU time while others want it; {among}; threads that these start inherit it, and \
         only root raises it again"
    );
    let (action, command) = match theirs {
        19.. => (
            format!("let {it} run only in what others leave: it is at nice 19 already"),
            each(&pids, |pid| format!("chrt -a -i -p 0 {pid}")),
        ),
        _ => {
            let lower = (theirs.max(0) + 10).min(19);
            (
                format!("lower the priority of {it}"),
                format!("renice -n {lower} -p {}", threads(&pids)),
            )
        }
    };
    Some(Fix { action, command: Some(command), risk: Some(risk), expect: culprit.leaves(0.5) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Record;
    use crate::testkit::{S, Scene};

    /// The command for a victim and a culprit in these cgroups, of which some have other facts.
    fn command(
        victim: Option<&str>,
        culprit: Option<&str>,
        change: impl Fn(&mut Cgroup),
    ) -> Option<String> {
        let mut scene = Scene::new(2, S);
        let root = scene.cgroup("/", None, None);
        scene.cgroup("/slice", None, None);
        let mut at = |path: Option<&str>| path.map_or(root, |path| scene.cgroup(path, None, None));
        let (victim, culprit) = (at(victim), at(culprit));
        scene.process("victim", Some(victim));
        scene.process("culprit", Some(culprit));
        let mut records = scene.records();
        for record in &mut records {
            if let Record::Cgroup(cgroup) = record {
                change(cgroup);
            }
        }
        let view = crate::testkit::view(&records);
        let groups = view.groups();
        let [victim, culprit] = groups.list() else { panic!() };
        prefer(&view, victim, &Culprit::all_of(culprit)).and_then(|fix| fix.command)
    }

    #[test]
    fn weights_are_set_where_two_cgroups_part_and_never_on_the_root() {
        let cases = [
            (Some("/a"), Some("/b"), "echo 1000 > /sys/fs/cgroup/a/cpu.weight"),
            (Some("/a"), None, "echo 1000 > /sys/fs/cgroup/a/cpu.weight"),
            (None, Some("/b"), "echo 10 > /sys/fs/cgroup/b/cpu.weight"),
            (None, None, "renice -n 10 -p $(ps -Lo tid= -p 1002)"),
            (Some("/slice/a"), Some("/slice/b"), "echo 1000 > /sys/fs/cgroup/slice/a/cpu.weight"),
            (Some("/slice/a"), Some("/b"), "echo 1000 > /sys/fs/cgroup/slice/cpu.weight"),
        ];
        for (victim, culprit, should) in cases {
            assert_eq!(command(victim, culprit, |_| ()).as_deref(), Some(should));
        }
    }

    #[test]
    fn a_directory_without_the_controller_is_not_where_weights_meet() {
        let without = |cgroup: &mut Cgroup| {
            if cgroup.path != "/" && cgroup.path != "/slice" {
                cgroup.weight = None;
            }
        };
        let fix = command(Some("/slice/a"), Some("/slice/b"), without);
        assert_eq!(fix.as_deref(), Some("renice -n 10 -p $(ps -Lo tid= -p 1002)"));
        let fix = command(Some("/slice/a"), Some("/b"), without);
        assert_eq!(fix.as_deref(), Some("echo 1000 > /sys/fs/cgroup/slice/cpu.weight"));
    }

    #[test]
    fn a_victim_with_next_to_no_weight_is_given_more_than_its_neighbour() {
        let v1 = |own: u64, other: u64| {
            move |cgroup: &mut Cgroup| {
                cgroup.version = CgroupVersion::V1;
                cgroup.weight = Some(if cgroup.path == "/a" { own } else { other });
            }
        };
        let fix = command(Some("/a"), Some("/b"), v1(2, 1024));
        assert_eq!(fix.as_deref(), Some("echo 10240 > /sys/fs/cgroup/cpu/a/cpu.shares"));
        let fix = command(Some("/a"), Some("/b"), v1(1024, 4096));
        assert_eq!(fix.as_deref(), Some("echo 40960 > /sys/fs/cgroup/cpu/a/cpu.shares"));
        assert_eq!(command(Some("/a"), Some("/b"), v1(10_240, 1024)), None, "it has it already");
        assert_eq!(
            command(Some("/a"), Some("/b"), v1(1024, 51_200)),
            None,
            "there is no such weight"
        );
    }

    #[test]
    fn nice_values_of_one_cgroup_are_compared() {
        let fix = |own: i32, theirs: i32| {
            let mut scene = Scene::new(2, S);
            let root = scene.cgroup("/", None, None);
            let victim = scene.process("victim", Some(root));
            let culprit = scene.process("culprit", Some(root));
            scene.facts(victim, |process| process.nice = Some(own));
            scene.facts(culprit, |process| process.nice = Some(theirs));
            let view = scene.view();
            let groups = view.groups();
            let [victim, culprit] = groups.list() else { panic!() };
            prefer(&view, victim, &Culprit::all_of(culprit)).unwrap().command.unwrap()
        };
        assert_eq!(fix(10, 0), "renice -n 0 -p $(ps -Lo tid= -p 1001)");
        assert_eq!(fix(0, 5), "renice -n 15 -p $(ps -Lo tid= -p 1002)");
        assert_eq!(fix(0, 19), "chrt -a -i -p 0 1002");
    }
}
