// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The promises of remedies take everything into account that they depend on; where that is not known, nothing is
//! promised.

use super::{judged, scenes};
use crate::finding::{Finding, Fix};
use crate::recording::{
    CgroupId, Culprit, IdleCpu, IdleTick, ProcId, Process, Record, SchedPolicy, Scheduling,
};
use crate::testkit::{MS, ProcessActivity, S, Scene, US};

fn finding(scene: &Scene, code: &str) -> Finding {
    let found = judged(scene).findings.into_iter().find(|finding| finding.code == code);
    found.expect("it fires")
}

/// The first remedy of the finding with that code.
fn fix(scene: &Scene, code: &str) -> Fix {
    finding(scene, code).fix.into_iter().next().expect("a remedy")
}

fn left(fix: &Fix) -> Option<f64> {
    fix.expect.map(|promise| promise.left_at_most)
}

fn has_doubt(fix: &Fix, words: &str) -> bool {
    left(fix).is_none() && fix.risk.as_deref().is_some_and(|risk| risk.contains(words))
}

/// `envoy`, the second process of the scene, is the target, and `java` uses the same quota.
fn sidecar() -> Scene {
    let mut scene = scenes::nested_quota();
    scene.target(ProcId(2));
    scene
}

/// A spinner in a directory below another one; the quotas of the upper and the lower one, and how often each ran out.
fn nested(quotas_us: [Option<u64>; 2], throttled: [u64; 2]) -> Scene {
    let mut scene = Scene::new(4, 10 * S);
    scene.cgroup("/", None, None);
    let above = scene.cgroup("/pod", quotas_us[0], None);
    let own = scene.cgroup("/pod/own", quotas_us[1], None);
    let spinner = scene.process("spinner", Some(own));
    let waits = vec![(100, 20 * US)];
    scene.did(
        spinner,
        &ProcessActivity {
            on_cpu_ns: 5 * S,
            throttled_ns: 5 * S,
            waits,
            ..ProcessActivity::default()
        },
    );
    scene.cpu_stat(above, 5 * S, 100, throttled[0], 5 * S);
    scene.cpu_stat(own, 5 * S, 100, throttled[1], 5 * S);
    scene.target(spinner);
    scene
}

#[test]
fn a_quota_that_is_shared_is_raised_to_what_all_want_together() {
    let whole = fix(&scenes::nested_quota(), "SCH002");
    let fix = fix(&sidecar(), "SCH002");
    // 0.96 and 0.04 CPUs used, 1.4 and 0.06 throttled.
    assert!(fix.action.ends_with("to 2.5 CPUs"), "{}", fix.action);
    assert_eq!(left(&fix), Some(0.25));
    assert_eq!(fix, whole, "whoever asks, the quota is the same");
}

#[test]
fn where_others_under_the_quota_were_not_seen_nothing_is_promised() {
    let mut unseen = Scene::new(4, 10 * S);
    for record in sidecar().records() {
        let is_java = matches!(&record, Record::ProcessTick(tick) if tick.proc == ProcId(1));
        if !is_java && !matches!(record, Record::Meta(_) | Record::End { .. }) {
            unseen.push(record);
        }
    }
    let fix = fix(&unseen, "SCH002");
    assert!(has_doubt(&fix, "not all who use this quota were seen"), "{fix:?}");
    assert!(fix.action.ends_with("to 1.5 CPUs"), "more than what the counter says: {}", fix.action);
}

#[test]
fn a_second_quota_that_is_too_small_is_a_reason_to_promise_nothing() {
    let alone = fix(&nested([None, Some(50_000)], [0, 100]), "SCH002");
    assert_eq!(left(&alone), Some(0.25));
    let roomy = fix(&nested([Some(200_000), Some(50_000)], [0, 100]), "SCH002");
    assert_eq!(left(&roomy), Some(0.25));
    let above = fix(&nested([Some(60_000), Some(50_000)], [0, 100]), "SCH002");
    assert!(has_doubt(&above, "another quota"), "{above:?}");
    let below = fix(&nested([Some(50_000), Some(60_000)], [100, 0]), "SCH002");
    assert!(has_doubt(&below, "another quota"), "{below:?}");
    let guessed = fix(&nested([None, Some(50_000)], [0, 0]), "SCH002");
    assert!(has_doubt(&guessed, "no counter says"), "{guessed:?}");
}

#[test]
fn what_is_enough_in_the_mean_is_not_promised_to_be_enough_for_peaks() {
    let mut scene = Scene::new(8, 10 * S);
    scene.cgroup("/", None, None);
    let web = scene.cgroup("/web", Some(100_000), None);
    let server = scene.process("server", Some(web));
    // Once a second, four threads want 50 ms each at once: 100 ms are left when the quota has run out.
    let waits = vec![(100, 20 * US)];
    let did = ProcessActivity {
        threads: 4,
        on_cpu_ns: 5 * S,
        throttled_ns: 3 * S,
        waits,
        ..ProcessActivity::default()
    };
    scene.did(server, &did).cpu_stat(web, 5 * S, 100, 10, 3 * S).target(server);
    let peaks = fix(&scene, "SCH002");
    assert!(peaks.action.ends_with("to 1.5 CPUs"), "{}", peaks.action);
    assert!(has_doubt(&peaks, "perhaps not for peaks"), "{peaks:?}");
    let without_bpf = |throttled| {
        let mut scene = scenes::no_bpf();
        scene.cgroup("/", None, None);
        let web = scene.cgroup("/web", Some(100_000), None);
        let server = scene.process("server", Some(web));
        scene.schedstat(server, 5 * S, 3 * S, 100);
        scene.cpu_stat(web, 5 * S, 100, throttled, 3 * S).target(server);
        left(&fix(&scene, "SCH002"))
    };
    assert_eq!([without_bpf(10), without_bpf(95)], [None, Some(0.25)]);
}

const AUTOGROUP: &str = "/proc/sys/kernel/sched_autogroup_enabled";

/// A victim and a spinner in that cgroup that take turns on a CPU for 10 s, with those nice values; `autogroup` is the
/// content of [`AUTOGROUP`], if it is known.
fn turns(cgroup: Option<&str>, nice: [i32; 2], autogroup: Option<&str>) -> Scene {
    let mut scene = Scene::new(1, 10 * S);
    scene.cgroup("/", None, None);
    let at = cgroup.map(|path| scene.cgroup(path, None, None)).or(Some(CgroupId(1)));
    let (victim, spinner) = (scene.process("victim", at), scene.process("spinner", at));
    let waits = vec![(1_000, 5 * MS)];
    scene.did(
        victim,
        &ProcessActivity { on_cpu_ns: 5 * S, waits: waits.clone(), ..ProcessActivity::default() },
    );
    scene.did(spinner, &ProcessActivity { on_cpu_ns: 5 * S, waits, ..ProcessActivity::default() });
    scene.blame(victim, Culprit::Process(spinner), 5 * S).busy(1.0);
    for (id, nice) in [victim, spinner].into_iter().zip(nice) {
        scene.facts(id, |process| process.nice = Some(nice));
    }
    autogroup.map(|value| scene.setting(AUTOGROUP, value).clone());
    scene.target(victim);
    scene
}

#[test]
fn a_nice_value_promises_what_its_weight_gives() {
    let fix = |own, theirs| fix(&turns(None, [own, theirs], Some("0")), "SCH001");
    let ten_steps = fix(0, 0);
    assert!(ten_steps.command.as_deref().is_some_and(|it| it.starts_with("renice -n 10 ")));
    assert_eq!(left(&ten_steps), Some(0.5));
    let risk = ten_steps.risk.unwrap_or_default();
    assert!(risk.contains("gets about 9.7 % of a CPU"), "{risk}");
    // At nice 19 it would keep 15 of 36, and the victim would wait 29 % of the time instead of 50 %.
    let low = fix(15, 15);
    assert_eq!(low.command.as_deref(), Some("chrt -a -i -p 0 1002"));
    assert_eq!(left(&low), Some(0.5));
    // From 820 to 1024 beside 1024: the victim waits 44 % of the time instead of 50 %.
    let higher = fix(1, 0);
    assert!(left(&higher).is_some_and(|left| left >= 0.9), "{higher:?}");
}

#[test]
fn a_wait_behind_many_is_not_halved_by_a_tenth_of_their_weights() {
    let behind = |n: u64| {
        let mut scene = turns(None, [0, 0], Some("0"));
        let waits = vec![(1_000 * n, 5 * MS)];
        scene
            .did(ProcId(1), &ProcessActivity { on_cpu_ns: 0, waits, ..ProcessActivity::default() });
        scene.blame(ProcId(1), Culprit::Process(ProcId(2)), 5 * S * n);
        left(&fix(&scene, "SCH001"))
    };
    assert_eq!(behind(1), Some(0.5));
    // The victim has a 20th of the CPU; with 19 competing threads at a tenth of their weight it gets a third.
    let many = behind(18);
    assert!(many.is_some_and(|left| (0.65..0.75).contains(&left)), "{many:?}");
}

#[test]
fn between_two_sessions_a_nice_value_promises_nothing() {
    let nice = |cgroup, autogroup| fix(&turns(cgroup, [0, 0], autogroup), "SCH001");
    assert!(has_doubt(&nice(None, Some("1")), "between two sessions this changes nothing"));
    assert!(has_doubt(&nice(None, None), "which is not known"));
    assert_eq!(left(&nice(Some("/batch"), Some("1"))), Some(0.5), "a cgroup is before sessions");
    assert_eq!(left(&nice(Some("/batch"), None)), Some(0.5));
}

#[test]
fn who_keeps_its_weight_or_has_none_is_promised_nothing_of() {
    let mut scene = turns(None, [0, 0], Some("0"));
    let kind =
        |policy| Scheduling { policy, priority: 0, nice: 0, threads: 1, tid: 1002, ran_ns: S };
    let with = |scene: &Scene, policy| {
        let mut scene = scene.clone();
        scene.facts(ProcId(2), |process: &mut Process| process.scheduling = vec![kind(policy)]);
        finding(&scene, "SCH001").fix
    };
    assert_eq!(with(&scene, SchedPolicy::Idle).len(), 0, "it has only what others leave already");
    assert_eq!(left(&with(&scene, SchedPolicy::Ext)[0]), None, "a BPF scheduler decides");
    assert_eq!(left(&with(&scene, SchedPolicy::Other)[0]), Some(0.5));
    // The threads that run are nice already, the main thread is not.
    scene.facts(ProcId(1), |process| process.nice = Some(15));
    scene.facts(ProcId(2), |process| {
        process.scheduling = vec![Scheduling { nice: 15, ..kind(SchedPolicy::Other) }];
    });
    assert_eq!(fix(&scene, "SCH001").command.as_deref(), Some("chrt -a -i -p 0 1002"));
}

/// A victim beside a real-time thread in another cgroup of that weight, which runs for `run_ns` at a time.
fn real_time(weight: u64, run_ns: u64) -> Scene {
    let mut scene = Scene::new(1, 10 * S);
    scene.cgroup("/", None, None);
    let (web, audio) = (scene.cgroup("/web", None, None), scene.cgroup("/audio", None, None));
    let (victim, poller) = (scene.process("web", Some(web)), scene.process("poller", Some(audio)));
    scene.did(
        victim,
        &ProcessActivity {
            on_cpu_ns: S / 2,
            waits: vec![(1_000, 9 * MS)],
            ..ProcessActivity::default()
        },
    );
    let runs = 9 * S / run_ns;
    scene.did(
        poller,
        &ProcessActivity {
            on_cpu_ns: 9 * S,
            waits: vec![(runs, US)],
            ..ProcessActivity::default()
        },
    );
    scene.blame(victim, Culprit::Process(poller), 9 * S).target(victim);
    scene.facts(poller, |process| {
        let policy = SchedPolicy::Fifo;
        let (threads, tid, ran_ns) = (1, process.pid, 9 * S);
        process.scheduling =
            vec![Scheduling { policy, priority: 5, nice: 0, threads, tid, ran_ns }];
    });
    let mut changed = Scene::new(1, 10 * S);
    for mut record in scene.records() {
        if let Record::Cgroup(cgroup) = &mut record
            && cgroup.path == "/audio"
        {
            cgroup.weight = Some(weight);
        }
        if !matches!(record, Record::End { .. }) {
            changed.push(record);
        }
    }
    changed
}

#[test]
fn an_ordinary_thread_that_outweighs_the_victim_is_no_promise() {
    let left = |weight, run_ns| left(&fix(&real_time(weight, run_ns), "SCH001"));
    assert_eq!(left(100, 500 * MS), Some(0.7));
    assert_eq!(left(1_000, 500 * MS), None, "ten times its weight");
    assert_eq!(left(100, MS), None, "it would run as long as an ordinary thread");
}

#[test]
fn a_mask_is_to_blame_only_for_the_cpus_that_it_forbids() {
    let pinned = |change: &dyn Fn(&mut Scene)| {
        let mut scene = scenes::pinned();
        change(&mut scene);
        left(&fix(&scene, "SCH003"))
    };
    assert_eq!(pinned(&|_| ()), Some(0.25));
    let narrow = pinned(&|scene| {
        scene.facts(ProcId(1), |process| process.cpuset_cpus = Some("0-1".into()));
    });
    assert_eq!(narrow, None, "the cpuset has no more CPUs");
    let also_allowed = pinned(&|scene| {
        scene.idle(IdleTick {
            t0_ns: 0,
            t1_ns: 0,
            victim: ProcId(1),
            min_wait_ns: 100 * US,
            waits: 500,
            waits_ns: 1_480 * MS,
            skipped_ns: 0,
            idle_allowed_ns: 1_480 * MS,
            idle_forbidden_ns: 0,
            cpus: vec![IdleCpu { cpu: 0, allowed: true, idle_ns: 1_480 * MS }],
        });
    });
    assert_eq!(also_allowed, Some(0.63), "half of it was not the mask's");
}

#[test]
fn a_cpuset_that_one_above_may_bind_promises_nothing() {
    let cpuset = |others: Option<&str>| {
        let mut scene = scenes::pinned();
        scene.facts(ProcId(1), |process| process.cpuset_cpus = Some("0".into()));
        scene.facts(ProcId(2), |process| {
            process.cgroup = Some(CgroupId(1));
            process.cpuset_cpus = others.map(str::to_owned);
        });
        left(&fix(&scene, "SCH003"))
    };
    assert_eq!(cpuset(Some("0-3")), Some(0.25), "the one above has all CPUs");
    assert_eq!(cpuset(Some("0-1")), None);
    assert_eq!(cpuset(None), None);
}

#[test]
fn who_is_moved_to_busy_cpus_may_send_others_back() {
    let apart = |busy| {
        let mut scene = Scene::new(2, 10 * S);
        let (victim, spinner) = (scene.process("victim", None), scene.process("spinner", None));
        scene.facts(victim, |process| process.cpus_allowed = Some("0".into()));
        let waits = vec![(1_000, 4 * MS)];
        scene.did(
            victim,
            &ProcessActivity { on_cpu_ns: 3 * S, waits, ..ProcessActivity::default() },
        );
        scene.did(spinner, &ProcessActivity { on_cpu_ns: 6 * S, ..ProcessActivity::default() });
        scene.blame(victim, Culprit::Process(spinner), 4 * S).busy(busy).target(victim);
        let fixes = finding(&scene, "SCH001").fix;
        let apart =
            fixes.into_iter().find(|fix| fix.action.starts_with("keep")).expect("another CPU");
        left(&apart)
    };
    assert_eq!([apart(0.3), apart(0.9)], [Some(0.25), None]);
}
