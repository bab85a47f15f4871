// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cases that decide between the rules about block IO, or between a finding and silence.

use super::{codes, disks, judged};
use crate::finding::{EntityKind, Evidence, Finding, Report, Severity};
use crate::recording::{DevId, IoCulprit, IoOp, IoWhat, ProcId, Source, StallKind, WritebackPass};
use crate::testkit::{MS, S, Scene, US, pass, transfers, view};
use proptest::prelude::*;

const SDA: DevId = DevId { major: 8, minor: 0 };

fn finding<'r>(report: &'r Report, code: &str) -> &'r Finding {
    let found = report.findings.iter().find(|finding| finding.code == code);
    found.unwrap_or_else(|| panic!("no {code} in {:?}", codes(report)))
}

fn line<'f>(finding: &'f Finding, name: &str) -> &'f Evidence {
    let line = finding.evidence.iter().find(|line| line.name == name);
    line.unwrap_or_else(|| panic!("no evidence `{name}` in {:?}", finding.evidence))
}

fn note<'f>(finding: &'f Finding, name: &str) -> &'f str {
    line(finding, name).note.as_deref().unwrap_or_default()
}

fn unchecked<'r>(report: &'r Report, code: &str) -> &'r str {
    let item = report.not_checked.iter().find(|item| item.code == code);
    &item
        .unwrap_or_else(|| panic!("{code} was checked: {:?} {:?}", codes(report), report.ruled_out))
        .missing[0]
}

#[test]
fn the_brokers_stalls_are_the_flushers_doing() {
    let report = judged(&disks::broker(75));
    assert_eq!(codes(&report), ["BLK001", "BLK002"]);
    let found = finding(&report, "BLK001");
    assert!(found.severity >= Severity::Medium && found.confidence > 0.8);
    assert_eq!(found.victim.comm.as_deref(), Some("java"));
    assert!(
        found.title.contains("up to 1.1 s at once") && found.title.contains("every 5.1 s"),
        "{}",
        found.title
    );
    let period = line(found, "period of the passes");
    assert!((5.0e9..5.5e9).contains(&period.value), "the interval and the pass: {}", period.value);
    assert!(note(found, "period of the passes").contains("`vm.dirty_writeback_centisecs` is 500"));
    assert_eq!(line(found, "stalls inside passes").value, 13.0);
    assert!(note(found, "the journal").contains("every 5.0 s"));
    assert!(note(found, "the journal").ends_with("another clock, and not the reason"));
    let dirtied = note(found, "dirtied by");
    assert!(dirtied.starts_with("`java`"), "{dirtied}");
    assert!(dirtied.contains("`/data/store/consumequeue/*/00000000` by `java`"), "{dirtied}");
    assert!(note(found, "device saturated for").contains("hide in seconds that are at most"));
    let table = found.files.as_ref().expect("a table of files");
    let first = &table.rows[0];
    assert_eq!((first.name.as_str(), first.files), ("/data/store/consumequeue/*/00000000", 40));
    assert!(
        (first.ios_share - 0.44).abs() < 0.01 && (first.bytes_share - 0.49).abs() < 0.01,
        "{first:?}"
    );
    let shares: f64 = table.rows.iter().map(|row| row.ios_share).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{shares}");
    assert!(found.fix.len() >= 4 && found.fix.iter().all(|fix| fix.risk.is_some()));
    let confirm = &found.confirm.as_ref().expect("an experiment").command;
    assert!(
        confirm.contains("dirty_writeback_centisecs=1000;") && confirm.ends_with("=500"),
        "{confirm}"
    );
}

#[test]
fn two_bursts_of_the_same_inodes_prove_a_cohort_and_one_does_not() {
    let report = judged(&disks::broker(75));
    let found = finding(&report, "BLK002");
    assert!(
        found.title.starts_with("1 500 inodes") && found.title.ends_with("every 32 s"),
        "{}",
        found.title
    );
    assert_eq!(found.causes[0].entity.key.as_deref(), Some("vm.dirty_expire_centisecs"));
    assert!(note(found, "passes with the cohort").starts_with("at 31.2, 63.3 s"));
    let report = judged(&disks::broker(45));
    let missing = unchecked(&report, "BLK002");
    assert!(missing.contains("a pass at 31.2 s") && missing.contains("needs 2"), "{missing}");
}

#[test]
fn a_healthy_disk_yields_nothing() {
    let report = judged(&disks::healthy());
    assert_eq!(codes(&report), [""; 0]);
    for code in ["BLK001", "BLK002", "BLK003", "BLK004", "BLK005", "BLK006", "BLK007"] {
        assert!(
            report.ruled_out.iter().any(|item| item.code == code),
            "{code}: {:?}",
            report.not_checked
        );
    }
}

#[test]
fn too_short_a_look_says_how_much_longer() {
    let mut scene = disks::broker(12);
    // Three more of its threads stall in each pass: one coincidence, four times the loss.
    for (at, _) in disks::broker_passes(ProcId(1)).into_iter().take(2) {
        for _ in 0..3 {
            scene.stall(at.clone(), ProcId(1), StallKind::Sync, Some(SDA), None);
        }
    }
    let report = judged(&scene);
    assert_eq!(
        codes(&report),
        ["BLK003"],
        "that the disk is full is seen at once, why takes longer"
    );
    let missing = unchecked(&report, "BLK001");
    assert!(
        missing.contains("stalled 2 times in a pass") && missing.contains("needs 12 s more"),
        "{missing}"
    );
}

#[test]
fn without_bpf_bursts_have_a_period_and_nobody_to_name() {
    let report = judged(&disks::broker_by_counters(75));
    assert_eq!(codes(&report), ["BLK001"]);
    let found = finding(&report, "BLK001");
    assert_eq!((found.severity, found.victim.kind), (Severity::Low, EntityKind::Device));
    assert!(found.confidence <= 0.7, "{}", found.confidence);
    assert!(found.title.contains("every 5.1 s"), "{}", found.title);
    assert!(note(found, "not told apart").contains("with BPF"));
    assert!(found.fix[0].command.as_deref().is_some_and(|command| command.starts_with("sudo")));
    let missing = judged(&disks::broker_by_counters(14));
    assert!(
        unchecked(&missing, "BLK001").contains("too few for a period: needs"),
        "{:?}",
        missing.not_checked
    );
}

#[test]
fn stalls_in_commits_are_the_journals_and_not_the_flushers() {
    let report = judged(&disks::journal());
    assert_eq!(codes(&report), ["BLK005"]);
    let found = finding(&report, "BLK005");
    assert_eq!(found.causes[0].entity.comm.as_deref(), Some("jbd2"));
    assert!(note(found, "commits").starts_with("every 5.0 s"));
    assert!(note(found, "passes of the flusher").starts_with("0 of the stalls"));
}

#[test]
fn each_filesystem_has_a_journal_of_its_own_kind() {
    for (kind, title, fix) in [
        ("jbd2", "while the journal of `sda` commits", "a longer `commit=` (now 5 s)"),
        ("xfs", "while the log of xfs on `sda` is written", "`mkfs.xfs -l logdev=DEVICE`"),
        ("btrfs", "while btrfs on `sda` commits a transaction", "a longer `commit=` (now 30 s)"),
    ] {
        let report = judged(&disks::journal_of(kind));
        let found = finding(&report, "BLK005");
        assert!(found.title.contains(title), "{}", found.title);
        assert!(found.fix.iter().any(|it| it.action.contains(fix)), "{kind}: {:?}", found.fix);
        assert_eq!(found.causes[0].entity.comm.as_deref(), Some(kind));
        let says_commit = found.fix.iter().any(|it| it.action.contains("`commit=`"));
        assert_eq!(says_commit, kind != "xfs", "xfs has no such option");
    }
}

#[test]
fn commits_that_fall_into_passes_do_not_hide_the_flusher() {
    let mut scene = disks::broker(75);
    for (at, _) in disks::broker_passes(ProcId(1)) {
        scene.commit(at.start + 5 * MS..at.end, SDA, "jbd2");
    }
    let report = judged(&scene);
    assert!(codes(&report).contains(&"BLK001"), "{:?}", codes(&report));
    assert!(!codes(&report).contains(&"BLK005"), "slow because of the pass");
}

#[test]
fn stalls_at_any_time_are_nobodys() {
    let (mut scene, disk) = disks::host(60);
    let java = disks::service(&mut scene, "java", "/java.service", 60);
    // Every 5 s like the passes, but the other half of the time.
    for number in 0..11 {
        scene.pass(
            disks::span(number * 5_100 * MS, 200 * MS),
            pass(disk, "periodic", 300, 300, 1_200_000),
        );
        let at = disks::span(number * 5_100 * MS + 2_500 * MS, 300 * MS);
        scene.stall(at, java, StallKind::Sync, Some(disk), None);
    }
    scene.io_wait(0..S, java, StallKind::Sync, Some(disk), &[(11, 300 * MS)]);
    let report = judged(&scene);
    assert_eq!(codes(&report), [""; 0]);
    let ruled_out = report.ruled_out.iter().find(|item| item.code == "BLK001").expect("quiet");
    assert!(ruled_out.closest.starts_with("0 of 11 stalls"), "{}", ruled_out.closest);
}

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
        .map(|cause| (cause.entity.kind, (cause.share * 100.0).round()))
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
fn pages_are_the_victims_own_where_its_memory_is_accounted() {
    let mut scene = disks::neighbour();
    // With cgroup v1 its memory may be elsewhere than its CPU time: beside the pages of another unit, says the path.
    scene.facts(ProcId(1), |postgres| postgres.memory_cgroup = Some("/logger.service".into()));
    let report = judged(&scene);
    let found = finding(&report, "BLK004");
    assert!(found.causes.iter().all(|cause| cause.entity.kind != EntityKind::Cgroup));
    let own: f64 = found
        .causes
        .iter()
        .filter(|cause| cause.entity.comm.as_deref() == Some("postgres"))
        .map(|cause| cause.share)
        .sum();
    assert!((0.225..0.235).contains(&own), "9 % of its requests and 14 % of writeback: {own}");
}

#[test]
fn who_fills_a_disk_alone_is_no_victim() {
    let (mut scene, disk) = disks::host(30);
    let fio = disks::service(&mut scene, "fio", "/fio.service", 30);
    let beside = [(IoCulprit::Process(fio), 95), (IoCulprit::Device, 5)];
    disks::requests(&mut scene, fio, disk, &[(50_000, 9 * MS), (2_000, 30 * MS)], &beside);
    disks::full_within(&mut scene, disk, std::slice::from_ref(&(0..30 * S)), 32);
    scene.io(0..S, transfers(disk, IoWhat::RawDevice, IoOp::Read, 52_000, 212_992_000, 9 * MS));
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
    assert!(found.title.starts_with("`sda` takes 10 ms for a request"), "{}", found.title);
}

#[test]
fn syncs_that_always_wait_for_a_journal_are_its_doing() {
    let (mut scene, disk) = disks::host(8);
    let log = disks::service(&mut scene, "broker", "/broker.service", 8);
    for number in 0..320 {
        scene.commit(disks::span(number * 25 * MS, 22 * MS), disk, "jbd2");
        scene.stall(disks::span(number * 25 * MS, 23 * MS), log, StallKind::Sync, Some(disk), None);
    }
    scene.io_wait(0..S, log, StallKind::Sync, Some(disk), &[(320, 23 * MS)]);
    let report = judged(&scene);
    assert_eq!(codes(&report), ["BLK005"]);
    assert!(finding(&report, "BLK005").confidence < 0.8, "there is no chance to compare with");
}

#[test]
fn a_limit_that_no_request_shows_is_not_ruled_out() {
    let mut scene = disks::healthy();
    let limited = disks::service(&mut scene, "mongod", "/mongod.service", 30);
    scene.setting(
        "/sys/fs/cgroup/mongod.service/io.max",
        "8:0 rbps=max wbps=1048576 riops=max wiops=20",
    );
    scene.io_wait(0..S, limited, StallKind::Sync, Some(SDA), &[(300, 78 * MS)]);
    disks::requests(&mut scene, limited, SDA, &[(300, 740 * US)], &[(IoCulprit::Device, 100)]);
    let report = judged(&scene);
    let missing = unchecked(&report, "BLK004");
    assert!(missing.contains("`mongod`") && missing.contains("io.max"), "{missing}");
    assert!(missing.contains("before a request exists"), "{missing}");
}

#[test]
fn what_a_limit_holds_back_is_lost_to_the_limit_of_that_direction() {
    let report = judged(&disks::limited(20));
    assert_eq!(codes(&report), ["BLK007"]);
    let found = finding(&report, "BLK007");
    // 24 s of waiting, without 20 requests of a millisecond in each of 30 seconds.
    assert_eq!(found.cost.lost_ns_per_s, 780 * MS);
    assert!(
        found
            .title
            .contains("`blkio.throttle.write_iops_device` of cgroup `/sys/fs/cgroup/blkio/mongod`")
    );
    assert!(note(found, "limit in force").contains("`8:0 20`"));
    assert_eq!(found.causes[0].entity.value.as_deref(), Some("8:0 20"));
    let command = found.fix[0].command.as_deref().unwrap_or_default();
    assert!(command.starts_with("echo '8:0 40' > /sys/fs/cgroup/blkio/mongod/"), "{command}");
    assert_eq!(found.evidence.iter().filter(|line| line.name == "limit in force").count(), 1);
}

#[test]
fn waiting_that_requests_explain_is_no_limits_doing() {
    let mut scene = disks::limited(20);
    let mongod = ProcId(1);
    disks::requests(&mut scene, mongod, SDA, &[], &[]);
    for second in 0..30 {
        let at = disks::span(second * S, S);
        scene.io_wait(at, mongod, StallKind::Request, Some(SDA), &[(8, 99 * MS)]);
    }
    let report = judged(&scene);
    assert!(!codes(&report).contains(&"BLK007"), "{:?}", codes(&report));
    let ruled_out = report.ruled_out.iter().find(|item| item.code == "BLK007").unwrap();
    assert!(ruled_out.closest.contains("600 transfers were held back"), "{}", ruled_out.closest);
}

#[test]
fn without_a_transfer_held_back_a_limit_is_nobodys_loss() {
    let mut scene = disks::healthy();
    scene.setting("/sys/fs/cgroup/blkio/a/blkio.throttle.write_iops_device", "8:0 20");
    let report = judged(&scene);
    assert_eq!(codes(&report), [""; 0]);
    let ruled_out = report.ruled_out.iter().find(|item| item.code == "BLK007").unwrap();
    assert_eq!(ruled_out.closest, "no transfer was held back; 1 limit is in force");
}

#[test]
fn waits_before_requests_name_the_tags_or_the_throttling() {
    let fix = |op, tags: &str| {
        let (mut scene, disk) = disks::host(30);
        scene.setting("/sys/block/sda/queue/nr_requests", tags);
        let victim = disks::service(&mut scene, "db", "/db.service", 30);
        disks::full_within(&mut scene, disk, &[disks::span(0, 30 * S)], 4);
        scene.waited_before(0..S, disk, op, &[(1000, MS, MS)], &[(1000, 6 * MS)]);
        disks::requests(&mut scene, victim, disk, &[(1000, 8 * MS)], &[(IoCulprit::Device, 100)]);
        let report = judged(&scene);
        let found = finding(&report, "BLK003").clone();
        let took = ["reads took", "writes took"].into_iter().find_map(|name| {
            let line = found.evidence.iter().find(|line| line.name == name)?;
            line.note.clone()
        });
        let took = took.expect("a line");
        assert!(took.contains("75 % of the time before the request, 13 % in the queue"), "{took}");
        found.fix[0].command.clone().unwrap_or_default()
    };
    assert_eq!(fix(IoOp::Read, "4"), "echo 64 > /sys/block/sda/queue/nr_requests");
    assert_eq!(fix(IoOp::Write, "4"), "echo 64 > /sys/block/sda/queue/nr_requests");
    assert_eq!(fix(IoOp::Write, "256"), "echo 0 > /sys/block/sda/queue/wbt_lat_usec");
}

#[test]
fn a_writer_that_pauses_hears_of_the_limit_that_binds() {
    let report = judged(&disks::scene("BLK006", "fires").expect("a scene"));
    let found = finding(&report, "BLK006");
    assert_eq!(found.causes[0].entity.key.as_deref(), Some("/sys/class/bdi/8:0/max_ratio"));
    assert!(note(found, "limits in force").contains("dirty_ratio` 20"));
}

#[test]
fn names_of_files_and_devices_stay_data() {
    let (mut scene, _) = disks::host(75);
    let disk = scene.disk("sd`; $(reboot)\u{1b}[2J");
    scene.setting("/sys/block/sd`; $(reboot)\u{1b}[2J/queue/wbt_lat_usec", "75000");
    let victim = disks::service(&mut scene, "java", "/java.service", 75);
    let file = scene.file(disk, "/data/a`b\u{202e}\n$(reboot)");
    let io = transfers(disk, IoWhat::File(file), IoOp::Write, 100, 409_600, MS);
    scene.io(0..S, crate::recording::IoTick { reason: Some("periodic".into()), ..io });
    for (at, pass) in disks::broker_passes(victim) {
        scene.stall(at.start..at.end, victim, StallKind::Sync, Some(disk), None);
        scene.pass(at, WritebackPass { device: disk, ..pass });
    }
    let report = judged(&scene);
    let found = finding(&report, "BLK001");
    assert_eq!(found.title.matches('`').count() % 2, 0, "{}", found.title);
    for command in found.fix.iter().filter_map(|fix| fix.command.as_deref()) {
        assert!(!command.contains('\u{1b}'), "{command}");
    }
    let shown = super::shown(&report);
    assert!(!shown.contains('\u{202e}') && !shown.contains('\u{1b}'), "{shown}");
    assert!(
        found.files.as_ref().is_some_and(|table| table.rows[0].name.contains('\u{202e}')),
        "the data keeps it"
    );
}

#[test]
fn a_source_that_is_missing_makes_no_claim() {
    let mut scene = disks::broker(75);
    scene.without(Source::Settings, "`/proc/sys` is not readable", "");
    assert!(codes(&judged(&scene)).contains(&"BLK001"));
}

#[test]
fn a_report_fits_a_narrow_terminal() {
    let report = judged(&disks::broker(75));
    for columns in [60, 80, 100] {
        for verbosity in 0..3 {
            let style = crate::render::TextStyle { columns, color: false, verbosity };
            for line in crate::render::text(&report, style).lines() {
                // Commands stay in one piece.
                let command = line.trim_start().starts_with("sysctl")
                    || line.trim_start().starts_with("echo");
                assert!(command || line.chars().count() <= columns, "{columns}: {line}");
            }
        }
    }
}

/// Hold-ups, passes and blame of three processes on two disks, at any times.
fn any_disk_life() -> impl Strategy<Value = Scene> {
    let span = || (0..40 * S, 0..3 * S);
    let stall = (0..3u32, 0..3u8, 0..3u8, span());
    let one_pass = (0..2u8, 0..3u8, span(), 0..2000u32, 0..40u32);
    let blame = (0..3u32, 0..7u8, 0..20 * S);
    let stalls = prop::collection::vec(stall, 0..30);
    (stalls, prop::collection::vec(one_pass, 0..20), prop::collection::vec(blame, 0..12)).prop_map(
        |(stalls, passes, blame)| {
            let (mut scene, sda) = disks::host(40);
            let sdb = scene.disk("sdb");
            let other = scene.cgroup("/other", None, None);
            for comm in ["a", "b", "a"] {
                scene.process(comm, None);
            }
            let device = |number: u8| [Some(sda), Some(sdb), None][usize::from(number) % 3];
            for (proc, kind, dev, (t0, length)) in stalls {
                let kind = [StallKind::Sync, StallKind::Request, StallKind::DirtyThrottle]
                    [usize::from(kind)];
                let proc = ProcId(proc + 1);
                scene.stall(disks::span(t0, length), proc, kind, device(dev), None);
                scene.io_wait(0..S, proc, kind, device(dev), &[(3, length)]);
            }
            for (dev, kind, (t0, length), inodes, age) in passes {
                let at = disks::span(t0, length);
                let dev = device(dev).unwrap_or(sda);
                match kind {
                    0 => scene.commit(at, dev, "jbd2"),
                    kind => {
                        let of = pass(
                            dev,
                            ["periodic", "background"][usize::from(kind) - 1],
                            inodes.into(),
                            5,
                            4096,
                        );
                        let (ages, since_last) = (vec![(age, inodes)], vec![(age, inodes)]);
                        scene.pass(at, WritebackPass { ages, since_last, ..of })
                    }
                };
            }
            for (victim, culprit, ns) in blame {
                let culprit = match culprit {
                    0 => IoCulprit::Device,
                    1 => IoCulprit::Filesystem,
                    2 => IoCulprit::Writeback(None),
                    3 => IoCulprit::Writeback(Some(other)),
                    id => IoCulprit::Process(ProcId(u32::from(id))),
                };
                scene.io_blame(0..S, ProcId(victim + 1), sda, culprit, ns);
            }
            scene
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn whatever_disks_do_blame_is_no_more_than_the_loss(scene in any_disk_life()) {
        super::properties::check(&judged(&scene))?;
    }

    #[test]
    fn a_recording_of_disks_that_is_cut_anywhere_is_judged(scene in any_disk_life(), at in any::<prop::sample::Index>()) {
        let records = scene.records();
        let cut = &records[..at.index(records.len() + 1)];
        super::properties::check(&crate::rules::report(&view(cut), "0.1.0", false))?;
    }
}
