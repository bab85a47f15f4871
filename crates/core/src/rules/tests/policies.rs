// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Victims that run before all ordinary threads: where one ran meanwhile, it was not in their way.

use super::{codes, judged};
use crate::finding::{Finding, Report, Severity};
use crate::recording::{Culprit, IdleCpu, IdleTick, SchedPolicy, Scheduling};
use crate::testkit::{MS, ProcessActivity, S, Scene};

fn scheduled(policy: SchedPolicy, priority: u32, ran_ns: u64) -> Vec<Scheduling> {
    vec![Scheduling { policy, priority, nice: 0, threads: 1, tid: 1001, ran_ns }]
}

/// A victim that has a CPU for a tenth of the time, and a culprit that has it for the rest.
fn beside(victim: Vec<Scheduling>, culprit: Vec<Scheduling>) -> Scene {
    let mut scene = Scene::new(2, 10 * S);
    scene.cgroup("/", None, None);
    let (a, b) = (scene.cgroup("/a", None, None), scene.cgroup("/b", None, None));
    let control = scene.process("control", Some(a));
    let spinner = scene.process("spinner", Some(b));
    scene.facts(control, |process| process.scheduling = victim);
    scene.facts(spinner, |process| process.scheduling = culprit);
    let waits = vec![(100, 90 * MS)];
    scene.did(control, &ProcessActivity { on_cpu_ns: S, waits, ..ProcessActivity::default() });
    scene.did(spinner, &ProcessActivity { on_cpu_ns: 9 * S, ..ProcessActivity::default() });
    scene.blame(control, Culprit::Process(spinner), 9 * S);
    scene.busy(0.5).target(control);
    scene
}

fn found(scene: &Scene) -> Finding {
    let report: Report = judged(scene);
    assert_eq!(codes(&report), ["SCH001"]);
    report.findings.into_iter().next().unwrap()
}

fn commands(finding: &Finding) -> Vec<&str> {
    finding.fix.iter().filter_map(|fix| fix.command.as_deref()).collect()
}

#[test]
fn a_budget_of_its_own_is_not_the_fault_of_whoever_ran() {
    let ordinary = || scheduled(SchedPolicy::Other, 0, 9 * S);
    let fair = found(&beside(ordinary(), ordinary()));
    assert_eq!(fair.severity, Severity::High);
    assert!(fair.title.contains("100 % of it behind `spinner`"), "{}", fair.title);
    assert!(fair.fix[0].expect.is_some());
    let kinds = [
        (SchedPolicy::Deadline, 0, "SCHED_DEADLINE"),
        (SchedPolicy::Fifo, 50, "SCHED_FIFO priority 50"),
    ];
    for (policy, priority, how) in kinds {
        let own = found(&beside(scheduled(policy, priority, S), ordinary()));
        assert_eq!(own.severity, Severity::Medium);
        assert!(own.confidence < fair.confidence);
        let words = format!("for a CPU or its own budget ({how}), 100 % of it while `spinner`");
        assert!(own.title.contains(&words), "{}", own.title);
        let line = own.evidence.iter().find(|line| line.name == "own budget").unwrap();
        assert!(line.note.as_ref().unwrap().contains("until the next one"));
        assert!(own.causes[0].entity.note.as_ref().unwrap().contains("may not be in its way"));
        assert!(own.fix.iter().all(|fix| fix.expect.is_none()));
        let looks = if priority == 0 {
            "chrt -p 1001"
        } else {
            "sysctl kernel.sched_rt_runtime_us kernel.sched_rt_period_us"
        };
        assert_eq!(commands(&own), [looks]);
    }
}

#[test]
fn a_real_time_thread_does_wait_behind_another() {
    let scene =
        beside(scheduled(SchedPolicy::Fifo, 10, S), scheduled(SchedPolicy::Fifo, 50, 9 * S));
    let finding = found(&scene);
    assert_eq!(finding.severity, Severity::High);
    assert!(finding.title.contains("for a CPU, 100 % of it behind `spinner`"), "{}", finding.title);
    assert!(commands(&finding)[0].starts_with("chrt -o -p 0"));
    assert!(finding.fix.iter().all(|fix| fix.expect.is_none()));
    assert!(!commands(&finding).iter().any(|command| command.contains("rt_runtime")));
    // Nobody looked how the spinner is scheduled: nothing speaks against it.
    let unknown = found(&beside(scheduled(SchedPolicy::Fifo, 10, S), vec![]));
    assert!(unknown.title.contains("for a CPU, 100 % of it behind"), "{}", unknown.title);
}

#[test]
fn an_idle_cpu_does_not_help_who_used_up_its_budget() {
    let idle = |victim| {
        let mut scene = beside(victim, scheduled(SchedPolicy::Other, 0, 9 * S));
        scene.idle(IdleTick {
            t0_ns: 0,
            t1_ns: 0,
            victim: crate::recording::ProcId(1),
            min_wait_ns: MS,
            waits: 100,
            waits_ns: 9 * S,
            skipped_ns: 0,
            idle_allowed_ns: 0,
            idle_forbidden_ns: 9 * S,
            cpus: vec![IdleCpu { cpu: 1, allowed: false, idle_ns: 9 * S }],
        });
        let report = judged(&scene);
        report.findings.into_iter().find(|finding| finding.code == "SCH003").unwrap()
    };
    let ordinary = idle(scheduled(SchedPolicy::Other, 0, S));
    let deadline = idle(scheduled(SchedPolicy::Deadline, 0, S));
    assert!(deadline.severity < ordinary.severity);
    assert!(deadline.title.contains("for a CPU or its own budget"), "{}", deadline.title);
    assert!(deadline.fix.iter().all(|fix| fix.expect.is_none()));
}
