// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why requests wait: because of a neighbour, the process itself, or the device.

use super::*;
use crate::finding::Cause;
use crate::recording::IoTick;
use std::collections::BTreeMap;

#[test]
fn a_neighbour_on_the_disk_is_named_with_its_share() {
    let report = judged(&disks::neighbour());
    assert_eq!(codes(&report)[0], "BLK004");
    let found = finding(&report, "BLK004");
    assert_eq!(found.victim.comm.as_deref(), Some("postgres"));
    assert!(found.title.contains("58 % of it beside requests of `rsync`"), "{}", found.title);
    let shares: Vec<_> = found
        .causes
        .iter()
        .map(|cause| (cause.entity.kind, (cause.share.get() * 100.0).round()))
        .collect();
    assert_eq!(
        shares,
        [
            (EntityKind::Process, 58.0),
            (EntityKind::Device, 16.0),
            (EntityKind::Cgroup, 14.0),
            (EntityKind::Process, 9.0),
            (EntityKind::Kernel, 3.0),
        ]
    );
    assert_eq!(found.causes[2].entity.cgroup.as_deref(), Some("/logger.service"));
    assert!(report.findings.iter().all(|finding| finding.victim.comm.as_deref() != Some("rsync")));
}

#[test]
fn who_fills_the_disk_comes_before_that_it_is_full() {
    let (mut scene, disk) = disks::host(30);
    let broker = disks::service(&mut scene, "broker", "/broker.service", 30);
    let job = disks::service(&mut scene, "job", "/job.service", 30);
    disks::full_within(&mut scene, disk, std::slice::from_ref(&(0..30 * S)), 20);
    let beside = [(IoCulprit::Process(job), 55), (IoCulprit::Device, 45)];
    disks::requests(&mut scene, broker, disk, &[(60, 30 * MS)], &beside);
    // Syncs take longer than the requests in them, so the loss to the full disk is more than the waits for requests.
    for at in 0..15 {
        let at = disks::span(at * 2 * S, 1_500 * MS);
        scene.stall(at, broker, StallKind::Sync, Some(disk), None);
    }
    let report = judged(&scene);
    assert_eq!(codes(&report)[0], "BLK004", "{:?}", codes(&report));
    let (full, neighbour) = (finding(&report, "BLK003"), finding(&report, "BLK004"));
    assert!(full.cost.lost_ns_per_s > neighbour.cost.lost_ns_per_s);
    assert!(full.severity < neighbour.severity);
}

#[test]
fn pages_are_the_victims_own_where_its_memory_is_accounted() {
    let mut scene = disks::neighbour();
    // With cgroup v1, a process's memory may be in another cgroup than its CPU time: here, by its path, in that of
    // another unit.
    scene.facts(ProcId(1), |postgres| postgres.memory_cgroup = Some("/logger.service".into()));
    let report = judged(&scene);
    let found = finding(&report, "BLK004");
    assert!(found.causes.iter().all(|cause| cause.entity.kind != EntityKind::Cgroup));
    let own: f64 = found
        .causes
        .iter()
        .filter(|cause| cause.entity.comm.as_deref() == Some("postgres"))
        .map(|cause| cause.share.get())
        .sum();
    assert!((0.225..0.235).contains(&own), "9 % of its requests and 14 % of writeback: {own}");
}

#[test]
fn pages_that_all_account_to_one_cgroup_are_whose_who_made_them_dirty() {
    let (mut scene, disk) = disks::host(30);
    let all = scene.cgroup("/", None, None);
    let broker = disks::service(&mut scene, "broker", "/broker.service", 30);
    let job = disks::service(&mut scene, "job", "/job.service", 30);
    for id in [broker, job] {
        scene.facts(id, |process| process.memory_cgroup = Some("/".into()));
    }
    let beside = [(IoCulprit::Writeback(Some(all)), 80), (IoCulprit::Device, 20)];
    disks::requests(&mut scene, broker, disk, &[(500, 30 * MS)], &beside);
    for (path, dirtier, bytes) in [
        ("/data/job/out", Some(job), 60 << 20),
        ("/data/broker/index", Some(broker), 30 << 20),
        ("/data/unknown", None, 10 << 20),
    ] {
        let file = scene.file_dirtied_by(disk, path, dirtier);
        let tick = transfers(disk, IoPurpose::File(file), IoOp::Write, 100, bytes, MS);
        scene.io(0..S, IoTick { owner: Some(all), reason: Some("sync".into()), ..tick });
    }
    let report = judged(&scene);
    let found = finding(&report, "BLK004");
    assert!(found.title.contains("48 % of it beside writeback of what `job`"), "{}", found.title);
    let share_of = |comm: &str| -> f64 {
        let causes = found.causes.iter().filter(|it| it.entity.comm.as_deref() == Some(comm));
        causes.map(|cause| cause.share.get()).sum()
    };
    // Of the 80 %, 60 in 100 are the job's; 30 are the broker's own, and so are the 10 of unknown origin.
    assert!((0.475..0.485).contains(&share_of("job")), "{:?}", found.causes);
    assert!((0.315..0.325).contains(&share_of("broker")), "{:?}", found.causes);
}

/// Writeback for a reason, some of whose passes `cron` asked for; the shares of `broker`'s waiting in percent, by comm.
fn writeback_asked_for(
    reason: &str,
    asks: impl Fn(usize) -> bool,
) -> (Report, BTreeMap<String, u32>) {
    let (mut scene, disk) = disks::host(30);
    let all = scene.cgroup("/", None, None);
    let broker = disks::service(&mut scene, "broker", "/broker.service", 30);
    let cron = disks::service(&mut scene, "cron", "/cron.service", 30);
    let beside = [(IoCulprit::Writeback(Some(all)), 80), (IoCulprit::Device, 20)];
    disks::requests(&mut scene, broker, disk, &[(500, 30 * MS)], &beside);
    for (reason, bytes) in [(reason, 60 << 20), ("background", 20 << 20)] {
        let file = scene.file_dirtied_by(disk, "/data/job/out", None);
        let tick = transfers(disk, IoPurpose::File(file), IoOp::Write, 100, bytes, MS);
        scene.io(0..S, IoTick { owner: Some(all), reason: Some(reason.into()), ..tick });
    }
    for at in 0..6 {
        let asked_by = if asks(at) { vec![(cron, 1)] } else { vec![] };
        let t0_ns = at as u64 * 5 * S;
        let of = pass(disk, reason, 10, 100, 10 << 20);
        scene.pass(t0_ns..t0_ns + 300 * MS, WritebackPass { asked_by, ..of });
    }
    let report = judged(&scene);
    let causes = finding(&report, "BLK004").causes.iter();
    let percent = |cause: &Cause| (cause.share.get() * 100.0).round() as u32;
    let shares = causes.filter_map(|it| Some((it.entity.comm.clone()?, percent(it)))).collect();
    (report, shares)
}

#[test]
fn writeback_that_somebody_asked_for_is_his_whosever_pages_it_is_of() {
    // 60 of 80 MiB are for that reason; `cron` asked for all of its passes, or for a third.
    let (report, shares) = writeback_asked_for("sync", |_| true);
    assert_eq!(shares.get("cron"), Some(&60));
    let title = &finding(&report, "BLK004").title;
    assert!(title.contains("60 % of it beside writeback that `cron`"), "{title}");
    assert!(finding(&report, "BLK004").fix[0].action.contains("fsync"));
    assert_eq!(writeback_asked_for("sync", |at| at < 2).1.get("cron"), Some(&20));
}

#[test]
fn the_flushers_own_clock_is_nobodys_request() {
    let (_, shares) = writeback_asked_for("periodic", |_| false);
    assert_eq!(shares.get("cron"), None);
}

#[test]
fn a_kernel_thread_beside_whose_requests_somebody_waits_is_not_held_back() {
    for (comm, command) in [
        ("kswapd0", Some("cat /proc/pressure/memory")),
        ("loop0", Some("losetup /dev/loop0")),
        ("kworker/u8:1", None),
    ] {
        let mut scene = disks::neighbour();
        scene.facts(ProcId(2), |process| {
            (process.comm, process.kernel_thread) = (comm.into(), Some(true));
        });
        let report = judged(&scene);
        let found = finding(&report, "BLK004");
        assert_eq!(found.fix.len(), 1, "{comm}");
        assert_eq!(found.fix[0].command.as_deref(), command);
        assert!(found.fix[0].action.contains("cannot be limited"), "{}", found.fix[0].action);
    }
}

#[test]
fn who_fills_a_disk_alone_is_no_victim() {
    let (mut scene, disk) = disks::host(30);
    let fio = disks::service(&mut scene, "fio", "/fio.service", 30);
    let beside = [(IoCulprit::Process(fio), 95), (IoCulprit::Device, 5)];
    disks::requests(&mut scene, fio, disk, &[(50_000, 9 * MS), (2_000, 30 * MS)], &beside);
    disks::full_within(&mut scene, disk, std::slice::from_ref(&(0..30 * S)), 32);
    scene.io(0..S, transfers(disk, IoPurpose::RawDevice, IoOp::Read, 52_000, 212_992_000, 9 * MS));
    let report = judged(&scene);
    assert!(
        report.findings.iter().all(|finding| finding.severity == Severity::Info),
        "{:?}",
        codes(&report)
    );
    assert_eq!(codes(&report), ["BLK003"], "that it is full is worth a line");
}

#[test]
fn a_device_that_is_slow_by_itself_is_nobodys_fault() {
    let (mut scene, disk) = disks::host(8);
    scene.setting("/sys/block/sda/queue/rotational", "0");
    let log = disks::service(&mut scene, "broker", "/broker.service", 8);
    let (service_ns, number) = (10 * MS, 760);
    disks::requests(&mut scene, log, disk, &[(number, service_ns)], &[(IoCulprit::Device, 100)]);
    scene.io_wait(0..S, log, StallKind::Sync, Some(disk), &[(number, service_ns + 100 * US)]);
    for at in 0..number {
        let at = disks::span(at * 10_400 * US, service_ns + 100 * US);
        scene.stall(at, log, StallKind::Sync, Some(disk), None);
    }
    scene.requests(0..S, disk, IoOp::Write, &[(number, 5 * US, service_ns)]);
    disks::full_within(&mut scene, disk, std::slice::from_ref(&(0..8 * S)), 1);
    let report = judged(&scene);
    assert_eq!(codes(&report), ["BLK003"]);
    let found = finding(&report, "BLK003");
    assert_eq!((found.severity, found.victim.comm.as_deref()), (Severity::High, Some("broker")));
    assert!(found.title.starts_with("`sda` takes 10 ms per request"), "{}", found.title);
}

/// Processes of one name that wait beside the given culprits, and no other process's requests.
fn alone(processes: usize, beside: impl Fn(usize, &[ProcId]) -> Vec<(IoCulprit, u64)>) -> Scene {
    let (mut scene, disk) = disks::host(30);
    let group = scene.cgroup("/writer.service", None, None);
    let all: Vec<_> = (0..processes).map(|_| scene.process("writer", Some(group))).collect();
    for (at, &id) in all.iter().enumerate() {
        disks::requests(&mut scene, id, disk, &[(500, 30 * MS)], &beside(at, &all));
    }
    scene
}

#[test]
fn its_own_other_requests_are_no_neighbour() {
    let own =
        |_: usize, all: &[ProcId]| vec![(IoCulprit::Process(all[0]), 75), (IoCulprit::Device, 25)];
    let report = judged(&alone(1, own));
    assert!(!codes(&report).contains(&"BLK004"), "{:?}", codes(&report));
    let closest = closest(&report, "BLK004");
    assert!(closest.contains("75 % of it beside its own other ones"), "{closest}");
    let nobody = judged(&alone(1, |_, _| vec![(IoCulprit::Device, 100)]));
    assert_eq!(super::closest(&nobody, "BLK004"), "no process waited for requests beside others");
}

#[test]
fn processes_of_one_name_wait_for_each_other() {
    let siblings = |at: usize, all: &[ProcId]| {
        let next = all[(at + 1) % all.len()];
        vec![
            (IoCulprit::Process(next), 60),
            (IoCulprit::Process(all[at]), 20),
            (IoCulprit::Device, 20),
        ]
    };
    let report = judged(&alone(6, siblings));
    assert!(!codes(&report).contains(&"BLK004"), "{:?}", codes(&report));
    let closest = closest(&report, "BLK004");
    assert!(
        closest.contains("wait ") && closest.contains("80 % of it beside each other"),
        "{closest}"
    );
}

#[test]
fn beside_a_neighbour_the_own_part_is_told_apart() {
    let (mut scene, disk) = disks::host(30);
    let reader = disks::service(&mut scene, "reader", "/reader.service", 30);
    let backup = disks::service(&mut scene, "backup", "/backup.service", 30);
    let own = IoCulprit::Process(reader);
    let beside = [(IoCulprit::Process(backup), 40), (own, 45), (IoCulprit::Device, 15)];
    disks::requests(&mut scene, reader, disk, &[(1_000, 12 * MS)], &beside);
    let report = judged(&scene);
    let found = finding(&report, "BLK004");
    assert!(found.title.contains("40 % of it beside requests of `backup`"), "{}", found.title);
    let note = found.causes[0].entity.note.as_deref();
    assert!(note.is_some_and(|note| note.starts_with("its own other requests")), "{note:?}");
    let shown = super::super::shown(&report);
    assert!(!shown.contains("alone, without anybody beside"), "{shown}");
}

#[test]
fn a_scheduler_that_prefers_reads_is_for_who_reads_while_others_write() {
    let offered = |is_none: bool, others_write: bool, own_writes_ms: u64| {
        let mut scene = disks::short_stretches();
        if is_none {
            scene.setting("/sys/block/sda/queue/scheduler", "[none] mq-deadline");
        }
        let write = |ms| transfers(SDA, IoPurpose::RawDevice, IoOp::Write, 9_000, 1 << 30, ms * MS);
        if others_write {
            scene.io(0..S, write(9));
        }
        if own_writes_ms > 0 {
            // The first process of the scene is the victim.
            let submitter = Some(ProcId(1));
            scene.io(0..S, IoTick { submitter, ..write(own_writes_ms) });
        }
        let report = judged(&scene);
        let fixes = &finding(&report, "BLK003").fix;
        fixes.iter().any(|fix| fix.command.as_ref().is_some_and(|it| it.contains("mq-deadline")))
    };
    assert!(offered(true, true, 0));
    assert!(!offered(false, true, 0), "it is set");
    assert!(!offered(true, false, 0), "nobody writes");
    assert!(!offered(true, true, 900), "it waits for its own writes");
}
