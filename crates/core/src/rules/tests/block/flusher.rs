// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether the flusher, a journal or nothing known causes stalls.

use super::*;

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
    // Another look changes nothing; what would prove it is told in words.
    let confirm = found.confirm.as_ref().expect("another look");
    assert!(confirm.command.starts_with("deburr -d "), "{confirm:?}");
    let expect = confirm.expect.as_deref().unwrap_or_default();
    assert!(expect.contains("`vm.dirty_writeback_centisecs` at 1000 instead of 500"), "{expect}");
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
fn too_short_a_look_says_how_much_longer() {
    let mut scene = disks::broker(12);
    // Three more of its threads stall in each pass: still one coincidence, four times the loss.
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
    // Every 5 s like the passes, but half a period later.
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

/// A writer that syncs again at once: stalls of 200 ms, `between_ns` apart, in the first `seconds` of a window of 30.
fn syncs_without_a_pause(seconds: u64, between_ns: u64, passes: &[u64]) -> Scene {
    let (mut scene, disk) = disks::host(30);
    let writer = disks::service(&mut scene, "writer", "/writer.service", 30);
    let number = seconds * S / (200 * MS + between_ns);
    for at in 0..number {
        let t0_ns = at * (200 * MS + between_ns);
        let of = disks::span(t0_ns, 200 * MS);
        scene.stall(of, writer, StallKind::Sync, Some(disk), None);
        scene.commit(disks::span(t0_ns + 190 * MS, 5 * MS), disk, "jbd2");
    }
    scene.io_wait(0..S, writer, StallKind::Sync, Some(disk), &[(number, 200 * MS)]);
    for &at in passes {
        scene.pass(disks::span(at * S, 100 * MS), pass(disk, "periodic", 100, 100, 4096 * 100));
    }
    scene
}

#[test]
fn hold_ups_without_a_pause_ask_for_no_longer_look() {
    let report = judged(&syncs_without_a_pause(30, 20 * MS, &[7, 12]));
    for code in ["BLK001", "BLK005"] {
        let missing = unchecked(&report, code);
        assert!(missing.contains("have no pause of 500 ms"), "{code}: {missing}");
        assert!(!missing.contains("needs"), "{code}: {missing}");
    }
    // Passes after the last stall are not the cause, however few stalls there are to compare.
    let report = judged(&syncs_without_a_pause(20, 20 * MS, &[25, 28]));
    let quiet = closest(&report, "BLK001");
    assert!(quiet.contains("none of them touches a pass"), "{quiet}");
}

#[test]
fn one_hold_up_of_a_moment_asks_for_a_longer_look() {
    let report = judged(&syncs_without_a_pause(5, 20 * MS, &[2]));
    let missing = unchecked(&report, "BLK001");
    assert!(missing.contains("may be chance: needs"), "{missing}");
}
