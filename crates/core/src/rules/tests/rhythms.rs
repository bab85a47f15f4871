// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which process's timer a device's bursts and the stalls of others follow.

use super::{codes, disks, judged};
use crate::finding::{Finding, Report};
use crate::recording::{DevId, IoCulprit, IoOp, IoPurpose, IoTick, ProcId, StallKind};
use crate::testkit::{MS, S, Scene, transfers};
use std::ops::Range;

fn finding<'r>(report: &'r Report, code: &str) -> &'r Finding {
    let found = report.findings.iter().find(|finding| finding.code == code);
    found.unwrap_or_else(|| panic!("no {code} in {:?}", codes(report)))
}

fn note(finding: &Finding, name: &str) -> String {
    let line = finding.evidence.iter().find(|line| line.name == name);
    line.and_then(|line| line.note.clone()).unwrap_or_default()
}

/// A database on whose disk a backup writes at those times, for half a second each, and a logger writes all the time.
fn backup(seconds: u64, starts_ms: &[u64], stalls: impl Fn(u64) -> Range<u64>) -> (Scene, DevId) {
    let (mut scene, disk) = disks::host(seconds);
    let postgres = disks::service(&mut scene, "postgres", "/postgresql.service", seconds);
    let backup = disks::service(&mut scene, "backup", "/backup.service", seconds);
    let log = disks::service(&mut scene, "logger", "/logger.service", seconds);
    let bursts: Vec<Range<u64>> = starts_ms
        .iter()
        .map(|ms| disks::span(ms * MS, 500 * MS))
        .filter(|at| at.end < seconds * S)
        .collect();
    let number = bursts.len() as u64;
    for burst in &bursts {
        let at = stalls(burst.start);
        scene.stall(at, postgres, StallKind::Request, Some(disk), None);
    }
    let beside =
        [(IoCulprit::Process(backup), 80), (IoCulprit::Device, 15), (IoCulprit::Process(log), 5)];
    disks::requests(&mut scene, postgres, disk, &[(3_000, MS / 2), (number, 400 * MS)], &beside);
    let inside =
        |t_ns: u64| bursts.iter().any(|burst| burst.start < t_ns + 100 * MS && t_ns < burst.end);
    let by = [IoCulprit::Process(backup), IoCulprit::Process(log), IoCulprit::Process(postgres)];
    scene.pace(disk, &by, |by, t_ns| match by {
        IoCulprit::Process(id) if id == backup => u64::from(inside(t_ns)) * 40_000,
        IoCulprit::Process(id) if id == log => 4_000 + t_ns / (100 * MS) % 7,
        _ => 300,
    });
    disks::full_within(&mut scene, disk, &bursts, 16);
    for number in 0..seconds / 5 {
        scene.commit(disks::span(number * 5 * S + 1_900 * MS, 6 * MS), disk, "jbd2");
    }
    let tar = scene.file(disk, "/data/backup/full.tar");
    let written = |by: ProcId, what, bytes| IoTick {
        submitter: Some(by),
        ..transfers(disk, what, IoOp::Write, number * 200, bytes, 20 * MS)
    };
    scene.io(0..S, written(backup, IoPurpose::File(tar), number * 102_400_000));
    (scene, disk)
}

/// A timer of 3 s that comes a little late, in milliseconds.
fn timer() -> Vec<u64> {
    (0..20).map(|n| 700 + n * 3_040 + n * n % 5 * 12).collect()
}

fn within(start_ns: u64) -> Range<u64> {
    start_ns + 60 * MS..start_ns + 460 * MS
}

#[test]
fn stalls_that_come_with_a_neighbours_timer_are_said_to() {
    let report = judged(&backup(40, &timer(), within).0);
    assert_eq!(codes(&report)[0], "BLK004");
    for code in ["BLK004", "BLK003"] {
        let found = finding(&report, code);
        assert!(found.title.ends_with(", every 3.0 s, when `backup` writes"), "{}", found.title);
        let rhythm_ms = found.rhythm_ns.map(|ns| ns / MS);
        assert!(rhythm_ms.is_some_and(|ms| ms.abs_diff(3000) <= 100), "{rhythm_ms:?}");
        let rhythm = note(found, "rhythm");
        assert!(
            rhythm.starts_with("of the requests of `backup` (pid 1002): 12 of 13 bursts"),
            "{rhythm}"
        );
        assert!(rhythm.contains("13 of 13 stalls begin in one"), "{rhythm}");
        let journal = note(found, "the journal");
        assert!(journal.contains("every 5.0 s (`commit=` is 5.0 s)"), "{journal}");
        assert!(journal.ends_with("another clock, and not the reason"), "{journal}");
        let chart = found.chart.as_ref().expect("a chart");
        let names: Vec<&str> = chart.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["sda busy", "`backup`", "stalls"]);
        assert!(chart.rows.iter().all(|row| row.values.len() == 40), "40 s in steps of 1 s");
        let marks =
            |row: usize| chart.rows[row].values.iter().filter(|value| **value > 0.0).count();
        assert!(marks(1) >= 13 && marks(2) >= 13 && marks(2) <= 26, "{chart:?}");
    }
}

#[test]
fn a_timer_that_nobody_follows_is_not_blamed() {
    // The stalls come between the bursts.
    let report = judged(&backup(40, &timer(), |t| t + 1_500 * MS..t + 1_900 * MS).0);
    let found = finding(&report, "BLK004");
    assert!(!found.title.contains(", every"), "{}", found.title);
    assert_eq!((note(found, "rhythm").as_str(), found.rhythm_ns), ("", None));
}

#[test]
fn bursts_without_a_clock_have_no_period() {
    let any =
        [300, 1_900, 2_700, 6_900, 8_100, 13_200, 14_000, 20_900, 22_600, 30_100, 31_200, 37_900];
    let report = judged(&backup(40, &any, within).0);
    let found = finding(&report, "BLK004");
    assert!(!found.title.contains("every 3") && found.chart.is_none(), "{}", found.title);
    assert_eq!(note(found, "the journal"), "", "no clock, no other clock");
}

#[test]
fn too_few_bursts_say_how_much_longer_to_look() {
    let report = judged(&backup(11, &timer(), within).0);
    let found = finding(&report, "BLK004");
    let rhythm = note(found, "rhythm");
    assert!(rhythm.contains("too few to tell a clock from chance: needs"), "{rhythm}");
    assert!(!found.title.contains("every 3") && found.rhythm_ns.is_none(), "{}", found.title);
}

#[test]
fn a_recording_without_paces_says_nothing_of_rhythms() {
    let report = judged(&disks::neighbour());
    assert_eq!(note(finding(&report, "BLK004"), "rhythm"), "");
}
