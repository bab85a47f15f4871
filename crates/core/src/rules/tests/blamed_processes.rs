// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which of several processes of one name is blamed, and which remedies are proposed against it.

use super::judged;
use crate::finding::Finding;
use crate::recording::{Culprit, SchedPolicy, Scheduling};
use crate::testkit::{MS, ProcessActivity, S, Scene};

/// The finding for a victim that waits behind processes of one name, each to blame for that percentage of its waiting.
fn found(parts: &[u64], change: impl FnOnce(&mut Scene)) -> Finding {
    let mut scene = Scene::new(2, 10 * S);
    scene.cgroup("/", None, None);
    let (web, batch) = (scene.cgroup("/web", None, None), scene.cgroup("/batch", None, None));
    let victim = scene.process("nginx", Some(web));
    let waits = vec![(1_000, 4 * MS)];
    scene.did(victim, &ProcessActivity { on_cpu_ns: 2 * S, waits, ..ProcessActivity::default() });
    for &part in parts {
        let culprit = scene.process("python3", Some(batch));
        scene.blame(victim, Culprit::Process(culprit), 4 * S / 100 * part);
        scene.facts(culprit, |process| {
            process.cmdline = format!("/usr/bin/python3 /srv/job-{}.py", process.pid);
        });
    }
    scene.target(victim);
    change(&mut scene);
    let report = judged(&scene);
    report.findings.into_iter().find(|finding| finding.code == "SCH001").unwrap()
}

fn kind(policy: SchedPolicy, priority: u32, tid: u32, ran_ns: u64) -> Scheduling {
    Scheduling { policy, priority, nice: 0, threads: 1, tid, ran_ns }
}

#[test]
fn a_real_time_thread_of_one_of_two_is_named_and_made_an_ordinary_one() {
    let finding = found(&[1, 96], |scene| {
        let fifo = kind(SchedPolicy::Fifo, 50, 2042, 7 * S);
        let other = kind(SchedPolicy::Other, 0, 1003, 0);
        scene.facts(crate::recording::ProcId(3), |it| it.scheduling = vec![fifo, other]);
    });
    assert!(
        finding
            .title
            .ends_with("96 % of it behind `python3` (pid 1003, one of 2, SCHED_FIFO priority 50)"),
        "{}",
        finding.title
    );
    let whom = finding.causes[0].entity.whom.as_ref().unwrap();
    assert_eq!((whom.of, whom.carriers, whom.few), (2, 1, true));
    let first = &whom.processes[0];
    assert_eq!((first.pid, first.runs.as_deref()), (1003, Some("job-1003.py")));
    assert_eq!(first.scheduling[0].tid, 2042);
    assert_eq!(finding.fix[0].command.as_deref(), Some("chrt -o -p 0 2042"));
}

#[test]
fn one_of_forty_is_told_from_all_of_forty() {
    let mut parts = vec![0; 40];
    parts[6] = 96;
    let one = found(&parts, |_| ());
    assert!(one.title.ends_with("behind `python3` (pid 1008, one of 40)"), "{}", one.title);
    let apart = one.fix.iter().filter_map(|fix| fix.command.as_deref());
    let apart: Vec<_> = apart.filter(|command| command.contains("taskset")).collect();
    assert_eq!(apart, ["taskset -acp 1 1008"], "the other 39 are left alone");
    let many = found(&[2; 40], |_| ());
    assert_eq!(
        many.fix[0].expect.map(|it| it.left_at_most),
        Some(0.6),
        "80 % is theirs, half of it goes"
    );
    assert!(many.title.ends_with("behind `python3` (40 processes)"), "{}", many.title);
    assert!(!many.causes[0].entity.whom.as_ref().unwrap().few);
}

#[test]
fn an_old_recording_says_less() {
    let finding = found(&[96], |scene| {
        scene.facts(crate::recording::ProcId(2), |process| process.cmdline.clear());
    });
    assert!(finding.title.ends_with("behind `python3` (pid 1002)"), "{}", finding.title);
    let whom = finding.causes[0].entity.whom.as_ref().unwrap();
    assert_eq!((whom.processes[0].runs.as_deref(), whom.processes[0].scheduling.len()), (None, 0));
}
