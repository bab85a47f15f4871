// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cases that decide between rules, or between a finding and silence.

use super::{codes, disks, judged, runtimes, scenes};
use crate::finding::{EntityKind, Finding, LedgerState, Report, Severity};
use crate::recording::{
    Culprit, EventKind, ObserverTick, ProcId, ProcessTick, Record, Source, StallKind, ThreadStates,
    WaitHist,
};
use crate::rules::report;
use crate::testkit::{MS, ProcessActivity, S, Scene, US, view};

fn finding<'r>(report: &'r Report, code: &str) -> &'r Finding {
    let found = report.findings.iter().find(|finding| finding.code == code);
    found.unwrap_or_else(|| panic!("no {code} in {:?}", report.findings))
}

fn worst(report: &Report) -> Option<Severity> {
    report.findings.iter().map(|finding| finding.severity).max()
}

fn note<'f>(finding: &'f Finding, name: &str) -> &'f str {
    let line = finding.evidence.iter().find(|line| line.name == name);
    let line = line.unwrap_or_else(|| panic!("no evidence `{name}` in {:?}", finding.evidence));
    line.note.as_deref().unwrap_or_default()
}

/// Spinners that share 2 busy CPUs equally and queue behind each other.
fn spinners(scene: &mut Scene, number: u32) -> Vec<ProcId> {
    let cgroup = scene.cgroup("/batch", None, None);
    let all: Vec<ProcId> = (0..number).map(|_| scene.process("stress-ng", Some(cgroup))).collect();
    let on_cpu_ns = 20 * S / u64::from(number);
    let parent = scene.process("stress-ng", Some(cgroup));
    scene.did(parent, &ProcessActivity::default());
    for &id in &all {
        let waits = vec![((10 * S - on_cpu_ns) / (28 * MS), 28 * MS)];
        scene.did(id, &ProcessActivity { on_cpu_ns, waits, ..ProcessActivity::default() });
        for &other in &all {
            scene.blame(
                id,
                Culprit::Process(other),
                (10 * S - on_cpu_ns) / u64::from(number) * 9 / 10,
            );
        }
    }
    all
}

#[test]
fn a_target_that_only_sleeps_is_shown_asleep() {
    let mut scene = Scene::new(2, 10 * S);
    let idle = scene.process("sleep", None);
    scene.did(idle, &ProcessActivity::default());
    assert_eq!(judged(&scene).ledger, []);
    scene.target(idle);
    let report = judged(&scene);
    let [ledger] = report.ledger.as_slice() else { panic!("{:?}", report.ledger) };
    assert_eq!(ledger.victim.comm.as_deref(), Some("sleep"));
    for part in &ledger.parts {
        assert_eq!(part.ns, if part.state == LedgerState::Sleep { 10 * S } else { 0 }, "{part:?}");
    }
}

#[test]
fn what_was_counted_twice_is_said_and_not_hidden() {
    let mut scene = Scene::new(2, 10 * S);
    let twice = scene.process("twice", None);
    scene
        .did(twice, &ProcessActivity { on_cpu_ns: 10 * S, ..ProcessActivity::default() })
        .target(twice);
    let excess = |scene: &Scene, wall_ns| {
        let mut records = scene.records();
        for record in &mut records {
            if let Record::ProcessTick(tick) = record {
                tick.wall_ns = wall_ns;
            }
        }
        let report = report(&view(&records), "0.1.0", true);
        let text = super::shown(&report);
        (report.ledger[0].wall_ns, report.ledger[0].excess_ns, text.contains("counted twice"))
    };
    // Clocks that are read one after the other may differ by this much.
    assert_eq!(excess(&scene, 10 * S - MS), (10 * S, 0, false));
    assert_eq!(excess(&scene, 6 * S), (10 * S, 4 * S, true));
}

/// Of `init` the kernel does not tell when it leaves a CPU: its time on CPUs is in no sum, so that its waiting is not the
/// share of anything.
#[test]
fn a_share_of_time_that_was_not_seen_is_told_as_at_most() {
    let told = |unseen_ns: u64, queued_ns: u64| {
        let mut scene = Scene::new(2, 10 * S);
        let init = scene.process("init", None);
        let other = scene.process("other", None);
        let waits = vec![(100, queued_ns / 100)];
        let on_cpu_ns = queued_ns / 2;
        scene.did(init, &ProcessActivity { on_cpu_ns, waits, ..ProcessActivity::default() });
        scene.did(
            other,
            &ProcessActivity { on_cpu_ns: 30 * S, threads: 4, ..ProcessActivity::default() },
        );
        let mut records = scene.records();
        for record in &mut records {
            if let Record::ProcessTick(tick) = record {
                let unseen_ns = unseen_ns.min(tick.states.sleep_ns);
                tick.states.sleep_ns -= if tick.proc == init { unseen_ns } else { 0 };
            }
        }
        report(&view(&records), "0.1.0", true)
    };
    let quiet = |report: &Report| {
        let of = report.ruled_out.iter().find(|it| it.code == "SCH001").expect("quiet");
        of.closest.clone()
    };
    let seen = quiet(&told(0, 150 * MS));
    assert!(seen.ends_with("67 % of the time in which it wanted to run"), "{seen}");
    let unseen = told(8 * S, 150 * MS);
    let text = quiet(&unseen);
    assert!(text.contains("at most 67 % of the time in which it wanted to run"), "{text}");
    let host = &unseen.ledger[0];
    assert_eq!((host.victim.kind, host.unseen_ns), (EntityKind::Host, 8 * S));
    assert!(super::shown(&unseen).contains("not in it: 8.0 s of threads"));
    // What is certain decides, and both ends are told.
    assert!(told(0, 2 * S).findings.iter().any(|it| it.code == "SCH001"));
    let between = told(5 * S, 2 * S);
    let cost = &finding(&between, "SCH001").cost;
    let at_most = cost.share_at_most.expect("much is not known");
    assert!(cost.share < 0.3 && at_most > 0.6, "{cost:?}");
    assert!(
        super::shown(&between).contains("between 25 % and 67 % of the time in which it wanted")
    );
}

#[test]
fn a_noisy_neighbour_is_named_with_its_part() {
    let report = judged(&scenes::neighbour());
    assert_eq!(codes(&report), ["SCH001"]);
    let found = finding(&report, "SCH001");
    assert_eq!(found.severity, Severity::High);
    let stress = &found.causes[0];
    assert_eq!(
        (stress.entity.comm.as_deref(), stress.entity.processes),
        (Some("stress"), Some(16))
    );
    assert!((stress.share.get() - 0.71).abs() < 0.01, "{}", stress.share.get());
    assert!(found.title.contains("71 % of it behind `stress` (16 processes)"), "{}", found.title);
    let own = found.causes.iter().find(|cause| cause.entity.comm.as_deref() == Some("ruby"));
    assert!(own.is_some_and(|own| own.entity.note.as_deref() == Some("its own other threads")));
    let moved = found.causes.iter().find(|cause| cause.entity.kind == EntityKind::Unknown);
    assert!(moved.is_some_and(|moved| (moved.share.get() - 0.03).abs() < 0.001));
    assert!(note(found, "wake-up latency").contains("not counted as contention"));
    assert!(found.sizes.len() > 3);
    let commands: Vec<_> = found.fix.iter().filter_map(|fix| fix.command.as_deref()).collect();
    assert_eq!(commands[0], "echo 1000 > /sys/fs/cgroup/docker/bbda0b6e9d3f/cpu.weight");
    assert!(found.fix.iter().all(|fix| fix.risk.is_some()));
    assert_eq!(
        found.confirm.as_ref().map(|confirm| confirm.command.as_str()),
        Some("deburr -p 1001 -d 30")
    );
}

#[test]
fn the_small_server_comes_before_the_spinners_that_queue_behind_each_other() {
    let mut scene = Scene::new(2, 10 * S);
    scene.cgroup("/", None, None);
    let web = scene.cgroup("/web", None, None);
    let server = scene.process("server", Some(web));
    let stress = spinners(&mut scene, 16);
    scene.did(
        server,
        &ProcessActivity {
            threads: 2,
            on_cpu_ns: 300 * MS,
            waits: vec![(1_000, 600 * US)],
            ..ProcessActivity::default()
        },
    );
    for &id in &stress {
        scene.blame(server, Culprit::Process(id), 35 * MS);
    }
    scene.busy(1.0);
    let report = judged(&scene);
    assert_eq!(codes(&report), ["SCH001", "SCH001"]);
    let (first, second) = (&report.findings[0], &report.findings[1]);
    assert_eq!(first.victim.comm.as_deref(), Some("server"));
    assert!(first.severity >= Severity::Medium);
    assert_eq!((second.victim.processes, second.severity), (Some(17), Severity::Info));
    assert!(second.title.contains("behind each other"), "{}", second.title);
    assert!(second.cost.lost_ns_per_s > 100 * first.cost.lost_ns_per_s, "in spite of its loss");
}

#[test]
fn a_healthy_host_yields_nothing() {
    let mut scene = scenes::healthy();
    scene.runtime(runtimes::go(ProcId(1), "go1.24.3", 2));
    let report = judged(&scene);
    assert_eq!(codes(&report), [""; 0]);
    // Whether CPUs share a core is not found by observing.
    let not_checked: Vec<_> = report.not_checked.iter().map(|rule| rule.code.as_str()).collect();
    // Nor is the cost of system calls counted unless that is asked for.
    // On what threads sleep, and what connections have to send, is recorded for a target only.
    let others = not_checked.iter().filter(|code| {
        !code.starts_with("OFF") && !matches!(**code, "NET004" | "NET005" | "NET006" | "NET007")
    });
    assert_eq!(others.collect::<Vec<_>>(), [&"CPU002", &"CPU005", &"SYS001", &"SYS002"]);
    assert_eq!(report.ruled_out.len(), super::of_recordings().count() - not_checked.len());
}

#[test]
fn a_moderately_loaded_host_yields_nothing_above_info() {
    let mut scene = Scene::new(2, 10 * S);
    for name in ["gcc", "web", "db"] {
        let process = scene.process(name, None);
        let waits = vec![(5_000, 10 * US), (200, MS)];
        scene.did(
            process,
            &ProcessActivity { threads: 4, on_cpu_ns: 4 * S, waits, ..ProcessActivity::default() },
        );
    }
    scene.busy(0.6);
    assert!(worst(&judged(&scene)) <= Some(Severity::Info));
}

#[test]
fn a_spinner_under_a_quota_is_throttled_and_not_waiting() {
    let mut scene = Scene::new(2, 10 * S);
    scene.cgroup("/", None, None);
    let limited = scene.cgroup("/limited", Some(50_000), None);
    let spinner = scene.process("spinner", Some(limited));
    let waits = vec![(100, 3 * MS)];
    scene.did(
        spinner,
        &ProcessActivity {
            on_cpu_ns: 5 * S,
            throttled_ns: 4_700 * MS,
            waits,
            ..ProcessActivity::default()
        },
    );
    scene.cpu_stat(limited, 5 * S, 100, 99, 4_700 * MS);
    for target in [None, Some(spinner)] {
        let mut scene = scene.clone();
        target.map(|id| scene.target(id).clone());
        let report = judged(&scene);
        assert_eq!(codes(&report), ["SCH002"]);
        let found = finding(&report, "SCH002");
        assert_eq!(found.severity, Severity::High);
        assert_eq!(found.cost.lost_ns_per_s, 470 * MS);
        assert_eq!(found.causes[0].entity.cgroup.as_deref(), Some("/limited"));
        assert!(note(found, "throttled queues").contains("not wall time"));
        assert_eq!(
            found.fix[0].command.as_deref(),
            Some("echo '100000 100000' > /sys/fs/cgroup/limited/cpu.max")
        );
    }
}

#[test]
fn the_level_that_binds_is_named_and_not_the_cgroup_below_it() {
    let report = judged(&scenes::nested_quota());
    assert_eq!(codes(&report), ["SCH002"], "one quota is one finding, however many it stops");
    let found = finding(&report, "SCH002");
    assert_eq!(found.victim.comm.as_deref(), Some("java"));
    assert_eq!(found.causes[0].entity.cgroup.as_deref(), Some("/kubepods.slice/pod1f"));
    assert!(note(found, "also stopped by it").contains("`envoy`"));
    assert!(found.fix[0].risk.as_deref().is_some_and(|risk| risk.contains("kubelet")));
}

#[test]
fn without_bpf_waiting_has_a_size_but_nobody_to_blame() {
    let mut scene = scenes::no_bpf();
    let victim = scene.process("ruby", None);
    scene.schedstat(victim, 2 * S, 3 * S, 9_000).target(victim);
    let report = judged(&scene);
    let found = finding(&report, "SCH001");
    assert!(found.title.ends_with("queued or throttled"), "{}", found.title);
    assert!(found.causes.is_empty() && found.confidence < 0.8, "{}", found.confidence);
    assert!(
        found.fix.iter().any(|fix| fix.command.as_deref() == Some("sudo deburr -p 1002 -d 30"))
    );
    assert!(report.ledger[0].parts.iter().any(|part| part.state == LedgerState::QueuedOrThrottled));
    assert!(report.not_checked.iter().any(|item| item.code == "SCH003"));
}

#[test]
fn without_bpf_counters_say_that_delay_was_throttling() {
    // Without the cpuacct controller of cgroup v1, usage is not counted.
    for used_ns in [Some(5 * S), None] {
        let mut scene = scenes::no_bpf();
        scene.cgroup("/", None, None);
        let limited = scene.cgroup("/limited", Some(50_000), None);
        let spinner = scene.process("spinner", Some(limited));
        scene.schedstat(spinner, 5 * S, 5 * S, 100);
        scene.cpu_stat(limited, used_ns, 100, 98, 5 * S).target(spinner);
        let report = judged(&scene);
        assert_eq!(codes(&report), ["SCH002"]);
        let found = finding(&report, "SCH002");
        assert_eq!(found.victim.kind, EntityKind::Cgroup);
        assert!((found.cost.share - 0.5).abs() < 0.01, "{}", found.cost.share);
        assert!(found.confidence < 0.8);
        assert!(found.title.contains("98 % of the periods"), "{}", found.title);
    }
}

#[test]
fn without_bpf_a_little_throttling_does_not_hide_waiting() {
    let mut scene = scenes::no_bpf();
    scene.cgroup("/", None, None);
    let limited = scene.cgroup("/limited", Some(50_000), None);
    let server = scene.process("server", Some(limited));
    scene.schedstat(server, 2 * S, 4 * S, 4_000).cpu_stat(limited, 2 * S, 100, 15, 100 * MS);
    let report = judged(&scene);
    assert_eq!(codes(&report), ["SCH001"]);
    let ruled_out = report.ruled_out.iter().find(|item| item.code == "SCH002").expect("quiet");
    assert!(ruled_out.closest.contains("ran out in 15 % of the periods"), "{}", ruled_out.closest);
}

#[test]
fn a_pinned_process_waits_because_of_its_mask() {
    let report = judged(&scenes::pinned());
    assert_eq!(codes(&report), ["SCH003", "SCH001"]);
    let found = finding(&report, "SCH003");
    assert!(
        found.title.ends_with("while CPUs 1-3, where it may not run, are idle"),
        "{}",
        found.title
    );
    assert_eq!(found.causes[0].entity.value.as_deref(), Some("0"));
    assert_eq!(found.fix[0].command.as_deref(), Some("taskset -acp 0-3 1001"));
    assert!(report.findings[1].severity < found.severity);
}

/// The report on the pinned server if only so many of its 500 waits were looked at.
fn pinned_with_looks_at(waits: u64) -> Report {
    let mut records = scenes::pinned().records();
    for record in &mut records {
        if let Record::Idle(tick) = record {
            let whole_ns = tick.waits_ns;
            let part = |ns: u64| ns * waits / 500;
            tick.waits = waits;
            tick.waits_ns = part(whole_ns);
            tick.skipped_ns = whole_ns - tick.waits_ns;
            tick.idle_forbidden_ns = part(tick.idle_forbidden_ns);
            tick.cpus.iter_mut().for_each(|cpu| cpu.idle_ns = part(cpu.idle_ns));
        }
    }
    report(&view(&records), "0.1.0", true)
}

#[test]
fn waits_that_were_looked_at_stand_for_the_others() {
    let (all, some) = (pinned_with_looks_at(500), pinned_with_looks_at(25));
    let (all, some) = (finding(&all, "SCH003"), finding(&some, "SCH003"));
    assert!(all.cost.lost_ns_per_s.abs_diff(some.cost.lost_ns_per_s) < MS);
    assert_eq!(all.title, some.title);
    assert!(some.confidence < all.confidence);
    let line = "a CPU that it may not use idled";
    assert!(note(some, line).contains("5.0 % of the time in such waits was looked at"));
    assert!(!note(all, line).contains("looked at"));
}

#[test]
fn waiting_that_was_not_looked_at_is_not_ruled_out() {
    for waits in [0, 3] {
        let report = pinned_with_looks_at(waits);
        assert_eq!(codes(&report), ["SCH001"]);
        let missing = report.not_checked.iter().find(|item| item.code == "SCH003").unwrap();
        assert!(missing.missing[0].contains("`redis-server`"), "{:?}", missing.missing);
        let told = note(finding(&report, "SCH001"), "idle CPUs meanwhile");
        assert!(told.contains("looked at") && !told.contains("long enough"), "{told}");
    }
}

#[test]
fn a_cpuset_and_an_affinity_are_told_apart() {
    let mut scene = scenes::pinned();
    scene.facts(ProcId(1), |process| process.cpuset_cpus = Some("0".into()));
    let report = judged(&scene);
    let found = finding(&report, "SCH003");
    assert_eq!(found.causes[0].entity.key.as_deref(), Some("cpuset.cpus"));
    assert_eq!(
        found.fix[0].command.as_deref(),
        Some("systemctl set-property --runtime redis-server.service AllowedCPUs=0-3")
    );
}

#[test]
fn threads_that_queue_behind_each_other_are_told_so() {
    let mut scene = Scene::new(2, 10 * S);
    let busy = scene.process("busy", None);
    let waits = vec![(2_000, 4 * MS)];
    scene
        .did(
            busy,
            &ProcessActivity { threads: 8, on_cpu_ns: 6 * S, waits, ..ProcessActivity::default() },
        )
        .target(busy);
    scene.blame(busy, Culprit::Process(busy), 7_800 * MS);
    let report = judged(&scene);
    let found = finding(&report, "SCH001");
    assert!(found.title.contains("98 % of it behind its own other threads"), "{}", found.title);
    assert_eq!(
        found.severity,
        Severity::Medium,
        "a level below that of the same loss behind others"
    );
}

#[test]
fn losses_lower_the_confidence_of_other_findings() {
    let sure = |lost: u64| {
        let mut scene = scenes::neighbour();
        let lost = [("thread_table_full".to_owned(), lost)].into();
        scene.observer(ObserverTick { lost, ..ObserverTick::default() });
        finding(&judged(&scene), "SCH001").confidence
    };
    assert!(sure(20_000) < sure(0));
}

#[test]
fn a_missed_beat_loses_nothing_and_is_time_for_which_the_observer_was_late() {
    let missed = |beats: u64| {
        let mut scene = scenes::neighbour();
        let lost = [(ObserverTick::BEATS_MISSED.to_owned(), beats)].into();
        scene.observer(ObserverTick { lost, ..ObserverTick::default() });
        judged(&scene)
    };
    let sure = |report: &Report| finding(report, "SCH001").confidence;
    let (none, some, many) = (missed(0), missed(5), missed(100));
    assert!(!codes(&some).contains(&"OBS001"), "half a second in all");
    assert_eq!(sure(&some), sure(&none));
    assert_eq!(some.observer.lost_detail[ObserverTick::BEATS_MISSED], 5);
    let found = finding(&many, "OBS001");
    assert!(found.title.contains("late by 10 s in total"), "{}", found.title);
}

#[test]
fn hold_ups_that_are_in_the_sums_only_are_compared_with_hold_ups() {
    let mut scene = disks::neighbour();
    scene.io_wait(0..S, ProcId(1), StallKind::Sync, None, &[(30_000, 20 * MS)]);
    let seen = view(&scene.records());
    let all: u64 = seen.block().waits().values().map(|held| held.waits.total_count()).sum();
    assert_ne!(all, seen.block().transfers());
    let lost = [("block_stalls_untold".to_owned(), all / 4)].into();
    scene.observer(ObserverTick { lost, ..ObserverTick::default() });
    let report = judged(&scene);
    let found = finding(&report, "OBS001");
    assert!((found.cost.share - 0.25).abs() < 0.01, "{} of {all}", found.cost.share);
    assert!(found.title.contains("25 % of the hold-ups"), "{}", found.title);
}

#[test]
fn stalls_that_a_report_has_no_room_for_are_a_loss() {
    let lost = |stalls: u64| {
        let mut scene = disks::neighbour();
        for at in 0..stalls {
            scene.stall(at * 1000..at * 1000 + 500, ProcId(1), StallKind::Sync, None, None);
        }
        judged(&scene)
    };
    let few = lost(100);
    assert!(few.observer.lost_detail.is_empty(), "{:?}", few.observer.lost_detail);
    let many = lost(20_000);
    assert!(many.observer.lost_detail["block_beyond_report"] >= 10_000);
    let found = finding(&many, "OBS001");
    assert!((0.45..0.55).contains(&found.cost.share), "{}", found.title);
}

#[test]
fn of_two_quotas_the_one_that_came_nearer_to_its_limits_is_named() {
    let mut scene = Scene::new(4, 10 * S);
    scene.cgroup("/", None, None);
    for (name, throttled_ns) in [("far", 20 * MS), ("near", 150 * MS), ("farther", MS)] {
        let cgroup = scene.cgroup(&format!("/{name}"), Some(50_000), None);
        let process = scene.process(name, Some(cgroup));
        scene.did(
            process,
            &ProcessActivity { on_cpu_ns: S, throttled_ns, ..ProcessActivity::default() },
        );
        scene.cpu_stat(cgroup, S, 100, 1, throttled_ns);
    }
    let report = judged(&scene);
    let quiet = report.ruled_out.iter().find(|it| it.code == "SCH002").expect("quiet");
    assert!(quiet.closest.starts_with("`near`"), "{}", quiet.closest);
}

#[test]
fn names_from_the_host_stay_data() {
    let mut scene = scenes::neighbour();
    let name = "a`; $(reboot)\n'\u{1b}[2J";
    for id in 1..=17 {
        scene.facts(ProcId(id), |process| process.comm = name.into());
    }
    let report = judged(&scene);
    let found = finding(&report, "SCH001");
    assert_eq!(found.title.matches('`').count() % 2, 0, "{}", found.title);
    assert_eq!(found.causes[0].entity.comm.as_deref(), Some(name), "the data keeps the name");
    for command in found.fix.iter().filter_map(|fix| fix.command.as_deref()) {
        assert!(!command.contains("$(reboot)") && !command.contains('\u{1b}'), "{command}");
    }
}

#[test]
fn what_happened_to_the_session_is_told_in_sentences() {
    let mut scene = Scene::new(2, 10 * S);
    scene
        .event(EventKind::ClockJump { by_ns: -(3 * S as i64) })
        .event(EventKind::Interrupted { signal: "SIGINT".into() });
    let mut records = scene.records();
    records.pop();
    let said = report(&view(&records), "0.1.0", false);
    assert_eq!(
        said.window.events,
        [
            "at 5.0 s the wall clock was set back by 3.0 s",
            "SIGINT ended the window at 5.0 s",
            "the recording was cut short: it has no end",
        ]
    );
    assert_eq!(said.window.start, "2026-01-02T03:04:05Z");
    assert_eq!(said.window.source, "recording");
}

#[test]
fn what_could_not_be_checked_says_why_and_what_one_would_gain() {
    let mut scene = Scene::new(2, 10 * S);
    scene.without_bpf().without(Source::Schedstat, "not in this kernel", "");
    let report = judged(&scene);
    let item = report.not_checked.iter().find(|item| item.code == "SCH001").expect("not checked");
    assert_eq!(item.missing.len(), 2);
    assert!(item.missing[0].starts_with("bpf:sched: BPF programs need root"));
    assert!(item.missing[0].ends_with("run as root to see behind whom processes wait"));
}

#[test]
fn what_was_not_seen_is_not_ruled_out() {
    let mut scene = Scene::new(2, 10 * S);
    let hidden = scene.process("hidden", None);
    scene.target(hidden);
    scene.push(Record::ProcessTick(Box::new(ProcessTick {
        t0_ns: 0,
        t1_ns: 10 * S,
        proc: hidden,
        threads: 1,
        wall_ns: 10 * S,
        states: ThreadStates { sleep_ns: S, ..ThreadStates::default() },
        waits: WaitHist::default(),
        wait_max_ns: 0,
        switches: 1,
        wakeup_latency_ns: 0,
    })));
    let report = judged(&scene);
    assert!(report.ruled_out.iter().all(|rule| rule.code != "SCH001"), "{:?}", report.ruled_out);
    let missing = report.not_checked.iter().find(|rule| rule.code == "SCH001").unwrap();
    assert!(missing.missing[0].contains("90 %"), "{missing:?}");
}

#[test]
fn the_longest_wait_is_told_whole_and_only_if_it_is_the_longest() {
    let judgement = judged(&scenes::neighbour());
    let longest = finding(&judgement, "SCH001").longest.clone().expect("it is known");
    assert_eq!(Some(longest.wait_ns), finding(&judgement, "SCH001").cost.max_ns);
    assert_eq!(longest.parts.iter().map(|part| part.ns).sum::<u64>(), longest.wait_ns);
    assert_eq!(longest.parts[0].entity.comm.as_deref(), Some("stress"));
    // The longest wait began before the window: the longest of those that are known is another one.
    let told = |change: fn(&mut ProcessTick)| {
        let mut records = scenes::neighbour().records();
        for record in &mut records {
            if let Record::ProcessTick(tick) = record {
                change(tick);
            }
        }
        let report = report(&view(&records), "0.1.0", true);
        finding(&report, "SCH001").longest.clone()
    };
    assert_eq!(told(|tick| tick.wait_max_ns *= 2), None);
    assert_eq!(told(|tick| tick.states.throttled_ns = 1), None, "a part of it was a quota");
}
