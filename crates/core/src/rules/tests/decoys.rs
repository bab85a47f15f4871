// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decoys: the correlate is present, but is not the cause. `docs/decoys.md` lists them, with those in other files.

use super::{codes, disks, judged};
use crate::finding::{EntityKind, Finding, Report, Severity};
use crate::recording::{
    Culprit, DiskCounters, IdleTick, IoCulprit, ProcessTick, Record, ThreadStates,
};
use crate::render::{TextStyle, text};
use crate::testkit::{MS, ProcessActivity, S, Scene};

pub(super) fn finding<'r>(report: &'r Report, code: &str) -> &'r Finding {
    let found = report.findings.iter().find(|finding| finding.code == code);
    found.unwrap_or_else(|| panic!("{code} is not among {:?}", codes(report)))
}

/// A server that waits a third of the time in which it wants to run, beside two processes that use the same CPU time.
#[test]
fn who_burns_cpu_time_elsewhere_is_not_named() {
    let mut scene = Scene::new(4, 10 * S);
    scene.cgroup("/", None, None);
    let group = scene.cgroup("/web", None, None);
    let other = scene.cgroup("/batch", None, None);
    let server = scene.process("server", Some(group));
    let here = scene.process("culprit", Some(other));
    let elsewhere = scene.process("hog", Some(other));
    let did = ProcessActivity {
        on_cpu_ns: 2 * S,
        waits: vec![(250, 4 * MS)],
        ..ProcessActivity::default()
    };
    scene.did(server, &did);
    for id in [here, elsewhere] {
        scene.did(id, &ProcessActivity { on_cpu_ns: 9 * S, ..ProcessActivity::default() });
    }
    // What distinguishes them is which of them ran on the server's CPU while it waited.
    scene.blame(server, Culprit::Process(here), S);
    scene.busy(0.6);
    let report = judged(&scene);
    let found = finding(&report, "SCH001");
    assert_eq!(found.victim.comm.as_deref(), Some("server"));
    let named: Vec<_> = found.causes.iter().filter_map(|c| c.entity.comm.as_deref()).collect();
    assert_eq!(named, ["culprit"]);
}

/// A device without a limit of its own still shows one in bytes: what the host allows.
#[test]
fn what_the_host_allows_is_no_limit_of_the_device() {
    let named = |max_ratio: &str| {
        let mut scene = disks::throttled();
        scene.setting("/sys/class/bdi/8:0/max_ratio", max_ratio);
        scene.setting("/sys/class/bdi/8:0/max_bytes", "4890923008");
        let report = judged(&scene);
        let fixes = &finding(&report, "BLK006").fix;
        let of_device = fixes.iter().filter_map(|fix| fix.command.clone()).next();
        (
            of_device,
            report.findings[0]
                .causes
                .iter()
                .any(|it| it.entity.key.as_deref().is_some_and(|key| key.contains("/bdi/"))),
        )
    };
    assert_eq!(named("100"), (None, false));
    let (command, is_cause) = named("1");
    assert_eq!(command.as_deref(), Some("echo 100 > /sys/class/bdi/8:0/max_ratio"));
    assert!(is_cause);
}

/// There is a quota, and its periods are counted, but a neighbour delays the threads.
#[test]
fn threads_that_are_queued_under_a_quota_that_did_not_run_out_are_not_throttled() {
    let mut scene = Scene::new(2, 10 * S);
    scene.cgroup("/", None, None);
    let group = scene.cgroup("/web", Some(50_000), None);
    let server = scene.process("server", Some(group));
    let hog = scene.process("hog", None);
    let did = ProcessActivity {
        on_cpu_ns: 2 * S,
        waits: vec![(500, 4 * MS)],
        ..ProcessActivity::default()
    };
    scene.did(server, &did);
    scene.did(hog, &ProcessActivity { on_cpu_ns: 9 * S, ..ProcessActivity::default() });
    scene.blame(server, Culprit::Process(hog), 2 * S);
    scene.cpu_stat(group, 2 * S, 100, 0, 0);
    scene.busy(0.6);
    let report = judged(&scene);
    assert_eq!(codes(&report), ["SCH001"]);
    assert_eq!(finding(&report, "SCH001").causes[0].entity.comm.as_deref(), Some("hog"));
    assert!(report.ruled_out.iter().any(|rule| rule.code == "SCH002"));
}

/// A pinned process waits, and the other CPUs are idle at other times: the host is half idle.
#[test]
fn waiting_while_no_cpu_idles_is_not_blamed_on_masks() {
    let scene = |idle_ns: u64| {
        let mut scene = Scene::new(4, 10 * S);
        let server = scene.process("server", None);
        scene.facts(server, |facts| facts.cpus_allowed = Some("1".into()));
        let hog = scene.process("hog", None);
        let did = ProcessActivity {
            on_cpu_ns: 2 * S,
            waits: vec![(500, 4 * MS)],
            ..ProcessActivity::default()
        };
        scene.did(server, &did);
        scene.blame(server, Culprit::Process(hog), 2 * S);
        scene.idle(IdleTick {
            t0_ns: 0,
            t1_ns: 0,
            victim: server,
            min_wait_ns: MS,
            waits: 500,
            waits_ns: 2 * S,
            skipped_ns: 0,
            idle_allowed_ns: 0,
            idle_forbidden_ns: idle_ns,
            cpus: vec![],
        });
        scene.busy(0.5);
        judged(&scene)
    };
    assert!(codes(&scene(1_900 * MS)).contains(&"SCH003"));
    let report = scene(10 * MS);
    assert!(!codes(&report).contains(&"SCH003"), "{:?}", codes(&report));
    assert!(codes(&report).contains(&"SCH001"));
}

/// Other machines or a limit on this one: the steal counter is the same.
#[test]
fn stolen_time_names_no_neighbour() {
    let mut scene = Scene::new(4, 30 * S);
    scene.stolen(0.5, 0.2);
    let report = judged(&scene);
    let found = finding(&report, "CPU001");
    assert!(found.severity > Severity::Info);
    let [cause] = found.causes.as_slice() else { panic!("{:?}", found.causes) };
    assert_eq!(cause.entity.kind, EntityKind::Unknown);
    let note = cause.entity.note.as_deref().unwrap();
    assert!(note.contains("other machines") && note.contains("a limit on this one"), "{note}");
}

/// Requests of the same lengths beside the same neighbour: one process sleeps until they are done, the other one reads
/// ahead and computes.
#[test]
fn requests_that_nobody_waits_for_are_no_loss() {
    let report = |on_cpu_ns: u64| {
        let (mut scene, disk) = disks::host(30);
        let reader = scene.process("reader", None);
        let backup = disks::service(&mut scene, "backup", "/backup.service", 30);
        scene.did(reader, &ProcessActivity { threads: 1, on_cpu_ns, ..ProcessActivity::default() });
        let beside = [(IoCulprit::Process(backup), 80), (IoCulprit::Device, 20)];
        disks::requests(&mut scene, reader, disk, &[(450, 60 * MS)], &beside);
        judged(&scene)
    };
    assert!(codes(&report(S)).contains(&"BLK004"));
    assert_eq!(codes(&report(30 * S)), [""; 0], "its threads ran all the time");
}

/// Requests that do not end, and few requests that do: the probe sees as little of both.
#[test]
fn a_disk_that_ends_nothing_is_told_from_one_that_has_little_to_do() {
    let report = |ends_per_s: u64, in_flight: bool| {
        let (mut scene, disk) = disks::host(30);
        let broker = scene.process("broker", None);
        let block_io_ns = if in_flight { 29 * S } else { 100 * MS };
        scene.did(
            broker,
            &ProcessActivity { on_cpu_ns: S, block_io_ns, ..ProcessActivity::default() },
        );
        scene.diskstats(disk, |t_ns| DiskCounters {
            writes: ends_per_s * t_ns / S,
            busy_ns: if in_flight { t_ns } else { t_ns / 100 },
            depth_ns: t_ns,
            in_flight: u64::from(in_flight),
            ..DiskCounters::default()
        });
        judged(&scene)
    };
    let hung = report(0, true);
    let found = finding(&hung, "BLK003");
    assert_eq!(found.severity, Severity::High);
    assert!(found.title.contains("in flight for 30 s and ended none"), "{}", found.title);
    assert_eq!(found.victim.comm.as_deref(), Some("broker"));
    assert!(!codes(&report(0, false)).contains(&"BLK003"), "nothing is in flight");
    assert!(!codes(&report(50, true)).contains(&"BLK003"), "its requests end");
}

/// The same pages come from the same disk for the first time.
#[test]
fn first_reads_wait_for_the_disk_and_not_for_memory() {
    let waiting = |block_io_ns, mem_stall_ns| {
        let mut scene = Scene::new(4, 10 * S);
        let reader = scene.process("reader", None);
        scene.did(
            reader,
            &ProcessActivity {
                on_cpu_ns: S,
                block_io_ns,
                mem_stall_ns,
                ..ProcessActivity::default()
            },
        );
        codes(&judged(&scene)).contains(&"MEM003")
    };
    assert!(waiting(0, 4 * S));
    assert!(!waiting(4 * S, 0));
}

/// Whose memory is short is not measured: what speaks for the host is said, and blames nobody.
#[test]
fn who_else_waits_for_memory_is_evidence_and_no_cause() {
    let note = |waits: [u64; 2]| {
        let mut scene = Scene::new(4, 10 * S);
        scene.cgroup("/", None, None);
        for (name, mem_stall_ns) in ["index", "nginx"].into_iter().zip(waits) {
            let cgroup = scene.cgroup(&format!("/{name}"), None, None);
            let process = scene.process(name, Some(cgroup));
            scene.did(
                process,
                &ProcessActivity { on_cpu_ns: S, mem_stall_ns, ..ProcessActivity::default() },
            );
        }
        let report = judged(&scene);
        let found = finding(&report, "MEM003");
        assert!(found.causes.is_empty());
        let line = found.evidence.iter().find(|line| line.name == "others who wait").unwrap();
        line.note.clone().unwrap()
    };
    assert!(note([4 * S, 0]).contains("a limit of that cgroup is more likely"));
    assert!(note([4 * S, 2 * S]).contains("so do processes in 1 other cgroup"));
}

/// Both wait for the disk; they differ in whether memory was short.
#[test]
fn the_ledger_says_what_counts_as_waiting_for_memory() {
    let shown = |block_io_ns: u64, mem_stall_ns: u64| {
        let mut scene = Scene::new(4, 10 * S);
        let reader = scene.process("reader", None);
        scene.target(reader);
        let sleep_ns = 10 * S - block_io_ns - mem_stall_ns;
        scene.push(Record::ProcessTick(Box::new(ProcessTick {
            t0_ns: 0,
            t1_ns: 10 * S,
            proc: reader,
            threads: 1,
            wall_ns: 10 * S,
            states: ThreadStates { block_io_ns, mem_stall_ns, sleep_ns, ..ThreadStates::default() },
            waits: crate::testkit::hist(&[]),
            wait_max_ns: 0,
            switches: 1,
            wakeup_latency_ns: 0,
        })));
        let style = TextStyle { columns: 100, color: false, verbosity: 1 };
        let text = text(&judged(&scene), style);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let (disk, memory) = (shown(4 * S, 0), shown(S, 4 * S));
    assert!(disk.contains("block IO 40 %") && !disk.contains("in use because"), "{disk}");
    assert!(
        memory.contains("block IO 10 %") && memory.contains("waiting for memory 40 %"),
        "{memory}"
    );
    assert!(memory.contains("dropped in use because memory was short"), "{memory}");
}
