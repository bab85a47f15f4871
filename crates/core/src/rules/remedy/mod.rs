// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Remedies for lost CPU time and for limits of memory, as commands that fit the host: systemd unit, container or plain
//! cgroup, v1 or v2. Paths assume the usual mount points.

mod fair;
mod memory;
mod place;
mod precedence;
mod quota;
mod setting;
mod weight;

pub(super) use memory::{raise_limit, write_earlier};
pub(super) use place::{away, cpu_list, cpus, elsewhere, named, widen, widen_cpuset};
pub(super) use precedence::real_time;
pub(super) use quota::{burst, raise_quota};
pub(super) use weight::between;

use crate::finding::{Fix, Promise};
use crate::recording::Process;
use crate::rules::words::ticked;
use crate::text::Target;
use crate::view::{Group, View};

/// Maximum number of pids in a command: a longer one is unwieldy to paste.
const MAX_PIDS: usize = 32;

/// A remedy that leaves more of a loss than this (0..1) promises nothing: loads vary by a tenth from one window to the
/// next, so that nobody could see whether the promise was kept.
const MOST_LEFT: f64 = 0.9;

/// The culprit of a victim's waiting.
#[derive(Clone, Debug)]
pub(super) struct Culprit<'a> {
    /// The group: processes of one name and cgroup.
    pub(super) group: &'a Group<'a>,
    /// The processes of the group that carry the blame: acting on the others has no effect.
    pub(super) processes: Vec<&'a Process>,
    /// Their share of the victim's loss, 0..1, which bounds what a remedy against them can gain.
    pub(super) share: f64,
    /// The systemd unit that they belong to, if any.
    pub(super) unit: Option<String>,
}

impl Culprit<'_> {
    /// Promises that at most `part` (0..1) of the loss that the culprit causes is left, and the rest of the loss stays.
    /// `None` if that is too little to be promised.
    fn leaves(&self, part: f64) -> Option<Promise> {
        let share = self.share.clamp(0.0, 1.0);
        promised(1.0 - share * (1.0 - part))
    }

    fn pids(&self) -> Option<Vec<u32>> {
        pids(self.processes.iter().copied())
    }

    #[cfg(test)]
    fn all_of<'a>(group: &'a Group<'a>) -> Culprit<'a> {
        let processes = group.members.iter().map(|&(_, process)| process).collect();
        Culprit { group, processes, share: 1.0, unit: None }
    }
}

/// Promises that at most `left` (0..1) of a loss is left, in whole percent, rounded up, so that it is not too strong.
/// `None` above [`MOST_LEFT`].
fn promised(left: f64) -> Option<Promise> {
    let left = (left * 100.0).ceil() / 100.0;
    (left <= MOST_LEFT).then(|| Promise::left_at_most(left))
}

/// Remedies for a victim that waits behind a culprit, best first; empty if none fits.
pub(super) fn behind(view: &View, victim: &Group<'_>, culprit: &Culprit<'_>) -> Vec<Fix> {
    if culprit.group.is_observer() {
        return vec![Fix {
            action: "let `deburr` look at less (a target instead of the host, a shorter `-d`): it is gone when its \
                     report is there"
                .into(),
            command: None,
            risk: None,
            expect: None,
        }];
    }
    let apart = place::apart(view, victim, culprit);
    let real_time = precedence::ordinary(view, victim, culprit);
    if let Some(kind) = precedence::real_time(victim) {
        // It goes before all that have a weight, and what its own budget takes nobody gives it.
        let fixes = match real_time.is_empty() {
            true => precedence::budget(victim, kind),
            false => real_time.into_iter().chain(apart).collect(),
        };
        return fixes.into_iter().map(|fix| Fix { expect: None, ..fix }).collect();
    }
    if !real_time.is_empty() {
        // Nice values, weights and quotas have no effect on real-time threads.
        return real_time.into_iter().chain(apart).chain(precedence::bound()).collect();
    }
    let weight = weight::prefer(view, victim, culprit);
    weight.into_iter().chain(quota::limit(view, victim, culprit)).chain(apart).collect()
}

/// What to do about a kernel thread. It works for others: weights, quotas and IO classes would slow down whatever it does
/// next, for whomever that is.
pub(super) fn of_kernel(comm: &str) -> Fix {
    let (hint, command) = match comm.trim_end_matches(|c: char| c.is_ascii_digit()) {
        "ksoftirqd/" => ("interrupts, by kind", Some("cat /proc/softirqs".to_owned())),
        "kswapd" | "kcompactd" => ("memory is short", Some("cat /proc/pressure/memory".to_owned())),
        "loop" => (
            "whoever writes to that loop device",
            Target::plain("/dev/", comm).map(|disk| format!("losetup {disk}")),
        ),
        _ => ("it works for others", None),
    };
    Fix {
        action: format!(
            "find what gives {} its work ({hint}): a kernel thread cannot be limited",
            ticked(comm)
        ),
        command,
        risk: None,
        expect: None,
    }
}

/// The thread ids of all threads of these processes, as a shell substitution: `ionice` and `renice` change only the
/// thread that they are given, and a pid is the main thread.
pub(super) fn threads(pids: &[u32]) -> String {
    let pids: Vec<_> = pids.iter().map(u32::to_string).collect();
    format!("$(ps -Lo tid= -p {})", pids.join(","))
}

/// The pids of a group; `None` if there are more than [`MAX_PIDS`] or one is short-lived.
pub(super) fn pids_of(group: &Group<'_>) -> Option<Vec<u32>> {
    let members: Vec<&Process> = group.members.iter().map(|&(_, process)| process).collect();
    pids(members.into_iter())
}

/// The pids of these processes; `None` if there are more than [`MAX_PIDS`], or one stands for short-lived processes.
fn pids<'a>(processes: impl ExactSizeIterator<Item = &'a Process>) -> Option<Vec<u32>> {
    if processes.len() > MAX_PIDS {
        return None;
    }
    processes.map(|process| (!process.many).then_some(process.pid)).collect()
}

/// A shell command that runs `command` for each pid.
fn each(pids: &[u32], command: impl Fn(&str) -> String) -> String {
    match pids {
        [pid] => command(&pid.to_string()),
        pids => {
            let all: Vec<_> = pids.iter().map(u32::to_string).collect();
            format!("for p in {}; do {}; done", all.join(" "), command("$p"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{SchedPolicy, Scheduling};
    use crate::testkit::{S, Scene};

    #[test]
    fn a_command_for_threads_has_all_of_all_processes() {
        assert_eq!(threads(&[7]), "$(ps -Lo tid= -p 7)");
        assert_eq!(threads(&[7, 8, 9]), "$(ps -Lo tid= -p 7,8,9)");
    }

    /// The commands of the remedies against a culprit with these facts.
    fn commands(change: impl FnOnce(&mut Process)) -> Vec<String> {
        let mut scene = Scene::new(2, S);
        scene.cgroup("/", None, None);
        let (a, b) = (scene.cgroup("/a", None, None), scene.cgroup("/b", None, None));
        scene.process("victim", Some(a));
        let culprit = scene.process("culprit", Some(b));
        scene.facts(culprit, change);
        let view = scene.view();
        let groups = view.groups();
        let fixes = behind(&view, &groups.list()[0], &Culprit::all_of(&groups.list()[1]));
        fixes.into_iter().filter_map(|fix| fix.command).collect()
    }

    #[test]
    fn a_real_time_thread_is_not_reniced_weighed_or_limited() {
        let fifo = Scheduling {
            policy: SchedPolicy::Fifo,
            priority: 50,
            nice: 0,
            threads: 1,
            tid: 1042,
            ran_ns: S,
        };
        let commands = commands(|process| process.scheduling = vec![fifo]);
        assert_eq!(commands[0], "chrt -o -p 0 1042");
        let in_vain = |command: &&String| {
            ["renice", "cpu.weight", "cpu.max"].iter().any(|word| command.contains(word))
        };
        assert_eq!(commands.iter().find(in_vain), None);
        assert!(commands.iter().any(|command| command.contains("sched_rt_runtime_us")));
    }

    #[test]
    fn a_limit_is_for_the_culprits_own_directory_and_never_for_the_victims() {
        let limit = |victim: &str, culprit: &str| {
            let mut scene = Scene::new(2, S);
            let mut cgroups = std::collections::BTreeMap::new();
            for path in ["/", "/slice", "/slice/culprit", "/slice/bystander", "/v"] {
                cgroups.insert(path, scene.cgroup(path, None, None));
            }
            scene.process("victim", Some(cgroups[victim]));
            scene.process("culprit", Some(cgroups[culprit]));
            let view = scene.view();
            let groups = view.groups();
            let culprit = Culprit::all_of(&groups.list()[1]);
            quota::limit(&view, &groups.list()[0], &culprit).map(|fix| fix.action)
        };
        let of_own = Some("limit `/slice/culprit` to 1 CPU of time".to_owned());
        assert_eq!(limit("/v", "/slice/culprit"), of_own, "the bystander keeps its CPU time");
        assert_eq!(limit("/slice/bystander", "/slice/culprit"), of_own);
        assert_eq!(limit("/slice/bystander", "/slice"), None, "it would stop the victim, too");
        assert_eq!(limit("/slice/culprit", "/slice/culprit"), None);
        assert_eq!(limit("/v", "/"), None);
    }

    #[test]
    fn what_nobody_could_see_is_not_promised() {
        assert_eq!(promised(0.251), Some(Promise::left_at_most(0.26)));
        assert_eq!(promised(MOST_LEFT), Some(Promise::left_at_most(MOST_LEFT)));
        assert_eq!(promised(0.901), None, "rounded up, it is above the limit");
    }

    #[test]
    fn the_observer_is_not_reniced() {
        assert_eq!(commands(|process| process.observer = true), [""; 0]);
    }
}
