// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Remedies against real-time threads, which run before all others until they sleep: nice values, weights and quotas
//! have no effect on them.

use super::setting::operand;
use super::{Culprit, each, place, weight};
use crate::finding::{Fix, Promise};
use crate::recording::{Process, SchedPolicy, Scheduling};
use crate::rules::words::ticked;
use crate::view::{Group, View};

/// Upper bound of the share of the waiting that is left once both are scheduled fairly.
const LEFT: f64 = 0.7;
/// A culprit that outweighs the victim by more than this factor takes more than [`LEFT`] of a CPU from it even then.
const MOST_PULL: f64 = 2.0;
/// A thread that runs for less than this at a time is hardly preempted as an ordinary thread either, whose slice is
/// some milliseconds.
const SHORT_NS: u64 = 10_000_000;

/// Makes the culprit's real-time threads ordinary ones, and shows where their policy is set; empty if the real-time
/// threads did not do most of the running.
pub(super) fn ordinary(view: &View, victim: &Group<'_>, culprit: &Culprit<'_>) -> Vec<Fix> {
    let doers: Vec<(&Process, &Scheduling)> = culprit
        .processes
        .iter()
        .filter_map(|process| Some((*process, real_time_doer(&process.scheduling)?)))
        .collect();
    let Some(&(_, first)) = doers.first() else { return vec![] };
    let how = first.shown().unwrap_or_default();
    let it = ticked(culprit.group.comm);
    let (whose, command) = match doers.as_slice() {
        [(_, kind)] if kind.threads == 1 => {
            (format!("thread {} of {it}", kind.tid), Some(format!("chrt -o -p 0 {}", kind.tid)))
        }
        doers => {
            let pids = super::pids(doers.iter().map(|(process, _)| *process));
            let command = pids.map(|pids| each(&pids, |pid| format!("chrt -a -o -p 0 {pid}")));
            (format!("the threads of {it}"), command)
        }
    };
    let mut fixes = vec![Fix {
        action: format!(
            "schedule {whose} as others are ({how} goes before all of them, and no nice value, weight or quota changes that)"
        ),
        command,
        risk: Some(
            "what is real-time for a reason comes late then; whatever starts it sets the policy again \
             (`CPUSchedulingPolicy` of its unit, `chrt`, or the program itself)"
                .into(),
        ),
        expect: promise(view, victim, culprit, &doers),
    }];
    let unit = culprit.unit.as_ref();
    fixes.extend(unit.map(|unit| Fix {
        action: format!("see whether the unit sets `CPUSchedulingPolicy`: {}", ticked(unit)),
        command: Some(format!("systemctl cat {}", operand(unit))),
        risk: None,
        expect: None,
    }));
    fixes
}

/// The promise of scheduling them as ordinary threads: that they share the CPU fairly. `None` if they would outweigh
/// the victim, or run for no longer at a time than an ordinary thread may.
fn promise(
    view: &View,
    victim: &Group<'_>,
    culprit: &Culprit<'_>,
    doers: &[(&Process, &Scheduling)],
) -> Option<Promise> {
    let usage = culprit.group.usage.as_ref()?;
    if usage.states.on_cpu_ns / usage.switches.max(1) < SHORT_NS {
        return None;
    }
    let threads: u32 = doers.iter().map(|(_, kind)| kind.threads).sum();
    let allowed = |process: &Process| process.cpus_allowed.as_deref().map(place::cpus);
    let cpus = doers.iter().filter_map(|(process, _)| Some(allowed(process)?.len() as u32)).min();
    let a_cpu = threads.div_ceil(cpus.unwrap_or(1).clamp(1, view.cpu_count().max(1)));
    (weight::pull(view, victim, culprit, a_cpu) <= MOST_PULL).then(|| culprit.leaves(LEFT))?
}

/// The real-time threads of a group, if they did most of its running: those that ran most.
pub(in crate::rules) fn real_time<'v>(group: &Group<'v>) -> Option<&'v Scheduling> {
    let kinds = || group.members.iter().flat_map(|&(_, process)| &process.scheduling);
    let real_time = || kinds().filter(|kind| kind.policy.is_real_time());
    let ran_ns: u64 = real_time().map(|kind| kind.ran_ns).sum();
    let all_ns: u64 = kinds().map(|kind| kind.ran_ns).sum();
    real_time().max_by_key(|kind| kind.ran_ns).filter(|_| ran_ns >= all_ns / 2)
}

/// What a real-time victim may wait for where no other real-time thread is in its way: its own budget.
pub(super) fn budget(victim: &Group<'_>, kind: &Scheduling) -> Vec<Fix> {
    let it = ticked(victim.comm);
    let look = |action: String, command: String| Fix {
        action,
        command: Some(command),
        risk: None,
        expect: None,
    };
    if kind.policy == SchedPolicy::Deadline {
        return vec![look(
            format!("compare the runtime that {it} has in each period with what it needs"),
            format!("chrt -p {}", kind.tid),
        )];
    }
    vec![look(
        format!(
            "see how much time real-time threads such as those of {it} have in each period; a cgroup's \
             `cpu.rt_runtime_us` may allow less"
        ),
        "sysctl kernel.sched_rt_runtime_us kernel.sched_rt_period_us".into(),
    )]
}

/// The real-time threads of a process, if they used at least half of its CPU time, or no CPU time is known.
fn real_time_doer(scheduling: &[Scheduling]) -> Option<&Scheduling> {
    let all_ns: u64 = scheduling.iter().map(|kind| kind.ran_ns).sum();
    scheduling
        .iter()
        .find(|kind| kind.policy.is_real_time())
        .filter(|kind| kind.ran_ns >= all_ns / 2)
}

/// Limits the time that all real-time threads together may take.
pub(super) fn bound() -> Option<Fix> {
    Some(Fix {
        action: "leave others half of the time beside all real-time threads".into(),
        command: Some("sysctl -w kernel.sched_rt_runtime_us=500000".into()),
        risk: Some(
            "of every second (`kernel.sched_rt_period_us`), for the whole host, 950000 by default; from Linux 6.12 on it \
             bounds threads only where the kernel groups them (`CONFIG_RT_GROUP_SCHED`)"
                .into(),
        ),
        expect: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{S, Scene};

    fn kind(policy: SchedPolicy, threads: u32, ran_ns: u64) -> Scheduling {
        Scheduling { policy, priority: 50, nice: 0, threads, tid: 42, ran_ns }
    }

    #[test]
    fn a_watchdog_beside_those_who_run_is_not_to_blame() {
        let idle = [kind(SchedPolicy::Other, 8, 5 * S), kind(SchedPolicy::Fifo, 1, 0)];
        assert_eq!(real_time_doer(&idle), None);
        let busy = [kind(SchedPolicy::Fifo, 1, 5 * S), kind(SchedPolicy::Other, 8, 0)];
        assert_eq!(real_time_doer(&busy), Some(&busy[0]));
    }

    #[test]
    fn several_threads_are_changed_together_and_a_unit_is_looked_at() {
        let mut scene = Scene::new(2, S);
        let id = scene.process("corosync", None);
        scene.facts(id, |process| process.scheduling = vec![kind(SchedPolicy::Rr, 3, S)]);
        let view = scene.view();
        let groups = view.groups();
        let unit = Some("corosync.service".into());
        let culprit = Culprit { unit, ..Culprit::all_of(&groups.list()[0]) };
        let commands: Vec<_> = ordinary(&view, &groups.list()[0], &culprit)
            .into_iter()
            .filter_map(|fix| fix.command)
            .collect();
        assert_eq!(commands, ["chrt -a -o -p 0 1001", "systemctl cat corosync.service"]);
    }
}
