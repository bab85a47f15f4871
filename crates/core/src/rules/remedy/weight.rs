// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU weights: of two competitors, the one with more weight gets more CPU time. Between cgroups, the weights of the
//! two directories below their last common ancestor decide; within one cgroup, the nice values of threads.

use super::setting::{Setting, owner_note, set};
use super::{Culprit, each, fair, threads};
use crate::finding::Fix;
use crate::recording::{Cgroup, CgroupId, CgroupVersion, Process};
use crate::rules::words::ticked;
use crate::text::units;
use crate::view::{Group, View};

/// A remedy makes one weight this many times the other.
const FACTOR: u64 = 10;
/// Nice levels that divide a weight by about ten.
const STEPS: i32 = 10;
/// A promise never says that less than this share of the waiting is left: weights shorten waits, but do not end them.
const LEAST: f64 = 0.5;
/// The sysctl that makes the kernel schedule each session as a group, where no cgroup does.
const AUTOGROUP: &str = "/proc/sys/kernel/sched_autogroup_enabled";

/// The directories whose weights decide between two cgroups: the children of their last common ancestor that
/// lead to each. `None` for a cgroup that is that ancestor itself. Directories without the cpu controller are skipped:
/// processes in them compete as if they were in the directory above.
fn parting(view: &View, a: CgroupId, b: CgroupId) -> (Option<CgroupId>, Option<CgroupId>) {
    let (a, b) = (with_weight(view, a), with_weight(view, b));
    let shared = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    (a.get(shared).copied(), b.get(shared).copied())
}

/// The cgroup and its ancestors that have a weight, topmost first.
fn with_weight(view: &View, id: CgroupId) -> Vec<CgroupId> {
    let path = view.cgroup_path(id).into_iter().map(|(id, _)| id);
    let has_weight = |id: &CgroupId| facts(view, *id).is_some_and(|it| it.weight.is_some());
    // The root has neither weight nor quota: processes in it compete with the root's children.
    let is_root = |id: &CgroupId| facts(view, *id).is_some_and(|it| it.path == "/");
    let mut path: Vec<CgroupId> = path.filter(|id| has_weight(id) && !is_root(id)).collect();
    path.reverse();
    path
}

/// The directory whose quota stops what is in a cgroup and nothing above it; `None` in the root.
pub(super) fn own_directory(view: &View, id: CgroupId) -> Option<CgroupId> {
    with_weight(view, id).last().copied()
}

fn facts(view: &View, id: CgroupId) -> Option<&Cgroup> {
    view.cgroups().get(&id)?.facts.as_ref()
}

/// Remedy that gives the victim more weight than the culprit at the level at which the two compete.
pub(super) fn prefer(view: &View, victim: &Group<'_>, culprit: &Culprit<'_>) -> Option<Fix> {
    let (of_victim, of_culprit) = match (victim.cgroup, culprit.group.cgroup) {
        (Some(a), Some(b)) if view.meta()?.cpu_controller.is_some() => parting(view, a, b),
        (None, _) | (_, None) if view.meta()?.cpu_controller.is_some() => return None,
        // Without the cpu controller, all threads of the host compete by their nice values.
        _ => (None, None),
    };
    let facts = |id: Option<CgroupId>| id.and_then(|id| facts(view, id));
    match (facts(of_victim), facts(of_culprit)) {
        (Some(own), other) => raise(own, other, victim, culprit),
        (None, Some(other)) => lower(other, victim, culprit),
        (None, None) => nice(view, victim, culprit),
    }
}

/// The directories whose weights decide between two groups, of the first and of the second. `None` for both where nice
/// values decide.
pub(in crate::rules) fn between(
    view: &View,
    a: Option<CgroupId>,
    b: Option<CgroupId>,
) -> (Option<&Cgroup>, Option<&Cgroup>) {
    let (Some(a), Some(b)) = (a, b) else { return (None, None) };
    if view.meta().is_none_or(|meta| meta.cpu_controller.is_none()) {
        return (None, None);
    }
    let (a, b) = parting(view, a, b);
    (a.and_then(|id| facts(view, id)), b.and_then(|id| facts(view, id)))
}

fn default_weight(version: CgroupVersion) -> u64 {
    match version {
        CgroupVersion::V1 => 1024,
        CgroupVersion::V2 => 100,
    }
}

/// The largest weight that the kernel accepts.
fn most_weight(version: CgroupVersion) -> u64 {
    match version {
        CgroupVersion::V1 => 262_144,
        CgroupVersion::V2 => 10_000,
    }
}

/// Raises the weight of the victim's directory. `None` if it is high enough already, or the kernel would not accept it.
fn raise(
    own: &Cgroup,
    other: Option<&Cgroup>,
    victim: &Group<'_>,
    culprit: &Culprit<'_>,
) -> Option<Fix> {
    let default = default_weight(own.version);
    let now = own.weight.unwrap_or(default);
    // A thread that is directly in the parent directory has the default weight, at nice 0.
    let beside = other.and_then(|other| other.weight).unwrap_or(default);
    let wanted = FACTOR * beside.max(default);
    // A weight that the kernel would not accept, or that it has already, is no remedy.
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
            "under load everything beside it gets less; weights shorten the waits but do not end them{}",
            owner_note(own, Setting::WeightPercent(percent))
        )),
        expect: fair::promise(victim, culprit, now as f64 / wanted as f64, LEAST),
    })
}

/// Lowers the weight of the culprit's directory: the victim is in the parent itself and has no directory beside it
/// whose weight could be raised.
fn lower(other: &Cgroup, victim: &Group<'_>, culprit: &Culprit<'_>) -> Option<Fix> {
    let default = default_weight(other.version);
    let now = other.weight.unwrap_or(default);
    if now * FACTOR <= default {
        return None;
    }
    let ratio = default as f64 / FACTOR as f64 / now as f64;
    let tenth = Setting::WeightPercent(100 / FACTOR);
    Some(Fix {
        action: format!(
            "give {} a tenth of the default weight: it costs nothing while there is idle CPU time",
            ticked(&other.path)
        ),
        command: set(other, tenth),
        risk: Some(format!(
            "under load everything in it gets less; weights shorten the waits but do not end them{}",
            owner_note(other, tenth)
        )),
        expect: fair::promise(victim, culprit, ratio, LEAST),
    })
}

/// The culprit's weight relative to the victim's on one CPU, once all of the culprit's threads are scheduled by their
/// nice values.
pub(super) fn pull(
    view: &View,
    victim: &Group<'_>,
    culprit: &Culprit<'_>,
    threads_a_cpu: u32,
) -> f64 {
    let (own, other) = match (victim.cgroup, culprit.group.cgroup) {
        (Some(a), Some(b)) => parting(view, a, b),
        _ => (None, None),
    };
    let of_directory = |id: Option<CgroupId>| {
        let facts = facts(view, id?)?;
        Some(facts.weight? as f64 / default_weight(facts.version) as f64)
    };
    let of_thread = |weight: u32| f64::from(weight) / f64::from(fair::weight_of_nice(0));
    let least = of_thread(fair::weight_of(victim.first()));
    let most = culprit.processes.iter().map(|it| fair::weight_of_nice(it.nice.unwrap_or(0))).max();
    let theirs = f64::from(threads_a_cpu) * of_thread(most.unwrap_or(0));
    of_directory(other).unwrap_or(theirs) / of_directory(own).unwrap_or(least)
}

/// Between which threads nice values count, in words, and whether they count between the victim and a culprit in its
/// cgroup.
fn reach(view: &View, victim: &Group<'_>) -> (&'static str, bool) {
    let is_in_one = victim.cgroup.is_some_and(|id| !with_weight(view, id).is_empty());
    match view.block().setting(AUTOGROUP).map(str::trim) {
        // Autogroups apply only to threads that no cgroup groups.
        _ if is_in_one => ("nice values count only within one cgroup", true),
        Some("0") => ("nice values count only within one cgroup", true),
        Some(_) => (
            "nice values count only within one cgroup and one session: `kernel.sched_autogroup_enabled` is on, and \
             between two sessions this changes nothing",
            false,
        ),
        None => (
            "nice values count only within one cgroup, and only within one session where \
             `kernel.sched_autogroup_enabled` is on, which is not known",
            false,
        ),
    }
}

/// Remedy by nice values, for a culprit in the victim's cgroup.
fn nice(view: &View, victim: &Group<'_>, culprit: &Culprit<'_>) -> Option<Fix> {
    let own = fair::nice_of(victim.first());
    // `SCHED_IDLE` processes have no weight that could be lowered.
    let mut busy: Vec<&Process> =
        culprit.processes.iter().copied().filter(|it| !fair::is_idle(it)).collect();
    // What ended before it was read is not to be changed, and says nothing of the others.
    if busy.iter().any(|it| fair::is_nice_known(it)) {
        busy.retain(|it| fair::is_nice_known(it));
    }
    let theirs = busy.iter().map(|it| fair::nice_of(it)).min()?;
    let (among, counts) = reach(view, victim);
    if own > theirs && !fair::is_idle(victim.first()) {
        let pids = super::pids(victim.members.iter().map(|(_, process)| *process))?;
        let ratio = f64::from(fair::weight_of_nice(own)) / f64::from(fair::weight_of_nice(theirs));
        return Some(Fix {
            action: format!(
                "give {} the priority that {} has (nice {theirs}; its own is {own})",
                ticked(victim.comm),
                ticked(culprit.group.comm)
            ),
            command: Some(format!("renice -n {theirs} -p {}", threads(&pids))),
            risk: Some(format!("others get less; {among}")),
            expect: fair::promise(victim, culprit, ratio, 0.9).filter(|_| counts),
        });
    }
    let it = ticked(culprit.group.comm);
    let (weight, changed, action, command) = if theirs + STEPS <= 19 {
        let lower = theirs.max(0) + STEPS;
        let above: Vec<_> = busy.into_iter().filter(|it| fair::nice_of(it) < lower).collect();
        let pids = super::pids(above.iter().copied())?;
        let command = format!("renice -n {lower} -p {}", threads(&pids));
        (fair::weight_of_nice(lower), above, format!("lower the priority of {it}"), command)
    } else {
        let pids = super::pids(busy.iter().copied())?;
        let action =
            format!("let {it} run only in what others leave: it is at nice {theirs} already");
        (fair::IDLE, busy, action, each(&pids, |pid| format!("chrt -a -i -p 0 {pid}")))
    };
    // The process that keeps most of its weight decides; processes that are not changed keep all of it.
    let least = changed.iter().map(|process| fair::weight_of(process)).min()?;
    let ratio = match changed.len() == culprit.processes.len() {
        true => f64::from(weight) / f64::from(least),
        false => 1.0,
    };
    let part = f64::from(weight) / f64::from(weight + fair::weight_of(victim.first()));
    let risk = format!(
        "each of its threads gets about {} of a CPU that one of {} wants too; {among}; threads that these start inherit \
         it, and only root raises it again",
        units::share(part),
        ticked(victim.comm)
    );
    let expect = fair::promise(victim, culprit, ratio, LEAST).filter(|_| counts);
    Some(Fix { action, command: Some(command), risk: Some(risk), expect })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Record;
    use crate::testkit::{S, Scene};

    /// The command for a victim and a culprit in these cgroups, after `change` to the cgroups' facts.
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

    #[test]
    fn processes_that_ended_too_early_to_be_read_are_not_reniced() {
        let mut scene = Scene::new(2, S);
        let root = scene.cgroup("/", None, None);
        scene.process("victim", Some(root));
        for nice in [Some(5), None] {
            let culprit = scene.process("culprit", Some(root));
            scene.facts(culprit, |process| process.nice = nice);
        }
        let view = scene.view();
        let groups = view.groups();
        let [victim, culprits] = groups.list() else { panic!() };
        let fix = prefer(&view, victim, &Culprit::all_of(culprits)).unwrap();
        assert_eq!(fix.command.as_deref(), Some("renice -n 15 -p $(ps -Lo tid= -p 1002)"));
    }
}
