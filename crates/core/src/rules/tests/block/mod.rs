// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cases that decide between the rules about block IO, or between a finding and silence.

mod flusher;
mod limits;
mod neighbours;

use super::{codes, disks, judged};
use crate::finding::{EntityKind, Evidence, Finding, Report, Severity};
use crate::recording::{
    DevId, IoCulprit, IoOp, IoPurpose, ProcId, Source, StallKind, WritebackPass,
};
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

fn closest<'r>(report: &'r Report, code: &str) -> &'r str {
    let item = report.ruled_out.iter().find(|item| item.code == code);
    &item.unwrap_or_else(|| panic!("{code}: {:?} {:?}", codes(report), report.not_checked)).closest
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
fn names_of_files_and_devices_stay_data() {
    let (mut scene, _) = disks::host(75);
    let disk = scene.disk("sd`; $(reboot)\u{1b}[2J");
    scene.setting("/sys/block/sd`; $(reboot)\u{1b}[2J/queue/wbt_lat_usec", "75000");
    let victim = disks::service(&mut scene, "java", "/java.service", 75);
    let file = scene.file(disk, "/data/a`b\u{202e}\n$(reboot)");
    let io = transfers(disk, IoPurpose::File(file), IoOp::Write, 100, 409_600, MS);
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
                // Commands are not wrapped.
                let command = line.trim_start().starts_with("sysctl")
                    || line.trim_start().starts_with("echo");
                assert!(command || line.chars().count() <= columns, "{columns}: {line}");
            }
        }
    }
}

/// IO waits, passes and blame of three processes on two disks, at any times.
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
