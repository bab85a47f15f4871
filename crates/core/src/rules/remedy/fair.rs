// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much of a wait is left under fair scheduling, where each of two competitors for a CPU gets time in proportion to
//! its weight.

use super::Culprit;
use crate::finding::Promise;
use crate::recording::{Process, SchedPolicy, Scheduling};
use crate::view::Group;

/// Weights of the nice values -20 to 19: `sched_prio_to_weight` in `kernel/sched/core.c` of Linux, unchanged since
/// 2.6.23.
const OF_NICE: [u32; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, //
    9548, 7620, 6100, 4904, 3906, 3121, 2501, 1991, 1586, 1277, //
    1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, //
    110, 87, 70, 56, 45, 36, 29, 23, 18, 15,
];
/// The weight of a `SCHED_IDLE` thread: `WEIGHT_IDLEPRIO` in `kernel/sched/sched.h`.
pub(super) const IDLE: u32 = 3;

/// The weight of a nice value.
pub(super) fn weight_of_nice(nice: i32) -> u32 {
    OF_NICE[(nice.clamp(-20, 19) + 20) as usize]
}

/// The nice value of those non-real-time threads of a process that ran most; if none are known, that of the main
/// thread.
pub(super) fn nice_of(process: &Process) -> i32 {
    doer(process).map(|kind| kind.nice).or(process.nice).unwrap_or(0)
}

/// Whether any nice value of a process is known.
pub(super) fn is_nice_known(process: &Process) -> bool {
    doer(process).is_some() || process.nice.is_some()
}

/// Whether the non-real-time threads of a process that ran most are `SCHED_IDLE`.
pub(super) fn is_idle(process: &Process) -> bool {
    doer(process).is_some_and(|kind| kind.policy == SchedPolicy::Idle)
}

/// The weight of a thread of a process.
pub(super) fn weight_of(process: &Process) -> u32 {
    if is_idle(process) { IDLE } else { weight_of_nice(nice_of(process)) }
}

/// The promise of a remedy that makes the culprit's weight, relative to the victim's, `ratio` times what it is; never
/// that less than `least` of the waiting is left. `None` if a `sched_ext` scheduler is involved.
pub(super) fn promise(
    victim: &Group<'_>,
    culprit: &Culprit<'_>,
    ratio: f64,
    least: f64,
) -> Option<Promise> {
    let victims = victim.members.iter().map(|&(_, process)| process);
    // A `sched_ext` scheduler does not follow these weights.
    let is_ext = |process: &Process| doer(process).is_some_and(|it| it.policy == SchedPolicy::Ext);
    if victims.chain(culprit.processes.iter().copied()).any(is_ext) {
        return None;
    }
    culprit.leaves(left(victim, ratio).max(least))
}

fn doer(process: &Process) -> Option<&Scheduling> {
    let fair = process.scheduling.iter().filter(|kind| !kind.policy.is_real_time());
    fair.max_by_key(|kind| kind.ran_ns)
}

/// The share of a victim's waiting that is left, 0..1, if the weight of the threads that it waits behind, relative to
/// its own, becomes `ratio` times what it is. Their weight now follows from the share of the time in which the victim
/// wants to run that they take from it. 1 if it is not known how much the victim waits.
fn left(victim: &Group<'_>, ratio: f64) -> f64 {
    let waits = match (&victim.usage, &victim.delay) {
        (Some(usage), _) => share(usage.contended_ns(), usage.states.on_cpu_ns),
        (None, Some(delay)) => share(delay.delay_ns, delay.on_cpu_ns),
        (None, None) => 1.0,
    };
    (ratio / (1.0 - waits + ratio * waits).max(f64::MIN_POSITIVE)).min(1.0)
}

fn share(waits_ns: u64, on_cpu_ns: u64) -> f64 {
    waits_ns as f64 / (waits_ns + on_cpu_ns).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{MS, ProcessActivity, S, Scene};

    #[test]
    fn each_nice_value_is_a_tenth_of_a_cpu_and_weights_never_rise() {
        assert_eq!([-20, 0, 10, 15, 19].map(weight_of_nice), [88761, 1024, 110, 36, 15]);
        assert!(OF_NICE.windows(2).all(|pair| pair[0] > pair[1]));
    }

    #[test]
    fn what_is_left_is_what_two_weights_leave() {
        let mut scene = Scene::new(1, 10 * S);
        let victim = scene.process("victim", None);
        scene.did(
            victim,
            &ProcessActivity {
                on_cpu_ns: 5 * S,
                waits: vec![(1000, 5 * MS)],
                ..ProcessActivity::default()
            },
        );
        let view = scene.view();
        let groups = view.groups();
        let victim = &groups.list()[0];
        // Two at nice 15, of which one goes to 19: 15 / (36 + 15) instead of a half.
        let part = left(victim, 15.0 / 36.0);
        assert!((part - (15.0 / 51.0) / 0.5).abs() < 0.02, "{part}");
        assert!((left(victim, 1.0) - 1.0).abs() < 1e-9);
        assert!(left(victim, 0.0) < 1e-9);
    }
}
