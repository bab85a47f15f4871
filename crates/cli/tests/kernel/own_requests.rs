// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that wait for what they ask of a disk, in the call that asks or later, against what they measured themselves.

use crate::common::{self, skip_or_fail};
use crate::disk::Disk;
use crate::scratch::compiled;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// Service time of each request of the disk, in microseconds.
const REQUEST_US: u64 = 500;

/// Appends to a file and syncs it, for four seconds. Says for how long it was in the calls that sync.
const STORE: &str = r#"
import os, sys, time
fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY, 0o600)
os.posix_fallocate(fd, 0, 1 << 20)
stop, spent, at = time.monotonic() + 4.0, 0.0, 0
while time.monotonic() < stop:
    os.pwrite(fd, b"x" * 4096, at % (1 << 20))
    at += 4096
    begin = time.monotonic()
    os.fdatasync(fd)
    spent += time.monotonic() - begin
    time.sleep(0.001)
with open(sys.argv[2], "w") as told:
    told.write(str(spent / 4.0))
"#;

#[test]
fn who_waits_for_its_own_syncs_has_a_remark_about_them() {
    const TEST: &str = "who_waits_for_its_own_syncs_has_a_remark_about_them";
    common::tried("kernel", TEST, || on_slow_disk(TEST, |point| try_syncs(&point.join("log"))));
}

/// Runs something with the mount point of a slow disk.
fn on_slow_disk(test: &str, run: impl FnOnce(&Path)) {
    if !common::root_or_skip("kernel", test) {
        return;
    }
    let made = Disk::slow(64).and_then(|mut disk| {
        let device = disk.device.clone();
        let point = disk.mount(&device, "ext4")?;
        Ok((disk, point))
    });
    match made {
        Ok((mut disk, point)) => {
            disk.take_us(REQUEST_US);
            run(&point);
        }
        Err(why) => skip_or_fail("kernel", test, &why),
    }
}

fn try_syncs(log: &Path) {
    let scratch = tempfile::tempdir().unwrap();
    let told = scratch.path().join("told");
    let mut deburr = Command::new(env!("CARGO_BIN_EXE_deburr"));
    deburr.args(["--json", "--", "python3", "-c", STORE]).args([log, &told]);
    let output = deburr.stdin(Stdio::null()).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let spent: f64 = std::fs::read_to_string(&told).unwrap().parse().unwrap();
    let findings = report["findings"].as_array().unwrap();
    let it = findings.iter().find(|it| it["code"] == "BLK008");
    let it = it.unwrap_or_else(|| panic!("{spent} of each second: {report:#}"));
    assert_eq!(it["severity"], "info", "{it:#}");
    let lost = it["cost"]["lost_ns_per_s"].as_f64().unwrap() / 1e9;
    // Starting the program is within the window, and entering the call is no waiting.
    assert!((0.75 * spent..1.05 * spent).contains(&lost), "{lost} of {spent}");
    let evidence = it["evidence"].as_array().unwrap();
    let notes = evidence.iter().filter_map(|it| it["note"].as_str());
    assert!(notes.into_iter().any(|it| it.contains("`fdatasync`")), "{it:#}");
}

#[test]
fn who_waits_for_reads_that_it_asked_for_before_waits_for_the_disk() {
    const TEST: &str = "who_waits_for_reads_that_it_asked_for_before_waits_for_the_disk";
    common::tried("kernel", TEST, || on_slow_disk(TEST, try_rings));
}

fn try_rings(point: &Path) {
    let scratch = tempfile::tempdir().unwrap();
    let (program, file) = (scratch.path().join("rings"), point.join("file"));
    assert!(compiled("rings.c", &["-pthread"], &program), "cc");
    std::fs::write(&file, vec![b'x'; 16 << 20]).unwrap();
    for (mode, is_for_disk) in [("aio", true), ("ring", true), ("reaper", false), ("loop", false)] {
        let told = scratch.path().join("told");
        let mut deburr = Command::new(env!("CARGO_BIN_EXE_deburr"));
        deburr.args(["--json", "--"]).arg(&program).arg(&file).arg(mode).arg(&told);
        let output = deburr.stdin(Stdio::null()).output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let waited_s: f64 = std::fs::read_to_string(&told).unwrap().trim().parse().unwrap();
        let own = report["ledger"].as_array().unwrap().iter().filter(|it| it["awaited"] != true);
        let parts: Vec<&Value> = own.filter_map(|it| it["asleep"].as_array()).flatten().collect();
        let others = parts.iter().filter(|it| it["kind"] == "waits_for_others");
        let told_s: f64 = others.map(|it| it["ns"].as_f64().unwrap() / 1e9).sum();
        let context = format!("{mode}: {told_s} s of {waited_s} s: {parts:#?}");
        eprintln!("{mode}: {told_s:.2} s of {waited_s:.2} s");
        assert!(waited_s > 2.0, "{context}");
        let mut found = report["findings"].as_array().unwrap().iter();
        if is_for_disk {
            assert!((0.75 * waited_s..1.05 * waited_s).contains(&told_s), "{context}");
            // Several at a time keep the disk busy.
            let found = found.find(|it| it["code"] == "BLK008" || it["code"] == "BLK003");
            let found = found.unwrap_or_else(|| panic!("{context}: {report:#}"));
            let lost_s = found["cost"]["lost_ns_per_s"].as_f64().unwrap() / 1e9 * 4.0;
            assert!((0.75 * waited_s..1.15 * waited_s).contains(&lost_s), "{lost_s}: {context}");
        } else {
            // Who takes whatever comes, and whose reads another thread asks for, may be at rest.
            assert!(told_s < 0.05 * waited_s, "{context}");
        }
    }
}
