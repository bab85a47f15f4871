// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program that waits for what it asks of its disk, against what it measured itself.

use crate::common::{self, skip_or_fail};
use crate::disk::Disk;
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
    common::tried("kernel", TEST, || {
        if !common::root_or_skip("kernel", TEST) {
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
                try_syncs(&point.join("log"));
            }
            Err(why) => skip_or_fail("kernel", TEST, &why),
        }
    });
}

fn try_syncs(log: &std::path::Path) {
    let scratch = tempfile::tempdir().unwrap();
    let told = scratch.path().join("told");
    let mut deburr = Command::new(env!("CARGO_BIN_EXE_deburr"));
    deburr.args(["--json", "--", "python3", "-c", STORE]).args([log, &told]);
    let output = deburr.stdin(Stdio::null()).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
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
