// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A cgroup limit on block IO (v1, `blkio.throttle`): requests that it throttles are counted, and BLK007 names it to
//! the process that waits. Without the limit neither happens.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::common;
use crate::disk;
use rusqlite::Connection;
use serde_json::Value;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Number of reads of 4 KiB, made one by one, past the page cache.
const READS: u64 = 100;
const TREE: &str = "/sys/fs/cgroup/blkio";
const LIMIT: &str = "blkio.throttle.read_iops_device";

/// A cgroup of the v1 `blkio` controller, removed on drop.
struct Group(PathBuf);

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Records a command that reads from `device` in that cgroup. Returns the recording, its report as JSON, and the
/// directory that holds the recording.
fn observed(device: &str, group: &Path) -> (Connection, Value, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.deburr");
    let read = format!(
        "echo $$ > {}/cgroup.procs; exec dd if={device} of=/dev/null bs=4k count={READS} iflag=direct",
        group.display()
    );
    let deburr = || Command::new(env!("CARGO_BIN_EXE_deburr"));
    let recorded = deburr()
        .args(["record", "-q", "-o"])
        .arg(&file)
        .args(["--", "sh", "-c", &read])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(recorded.status.success(), "{}", String::from_utf8_lossy(&recorded.stderr));
    let checked = deburr().arg("check").arg(&file).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    let report = deburr().args(["report", "--json"]).arg(&file).output().unwrap();
    let report = serde_json::from_slice(&report.stdout).unwrap();
    (Connection::open(&file).unwrap(), report, dir)
}

fn held(recording: &Connection) -> (u64, u64) {
    let sums =
        "SELECT coalesce(sum(ios), 0), coalesce(sum(bytes), 0) FROM io_held WHERE op = 'read'";
    let sums =
        recording.query_row(sums, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)));
    let (ios, bytes) = sums.unwrap();
    (ios.cast_unsigned(), bytes.cast_unsigned())
}

#[test]
fn what_a_limit_holds_back_is_counted_and_its_victim_hears_of_it() {
    common::tried(
        "kernel",
        "what_a_limit_holds_back_is_counted_and_its_victim_hears_of_it",
        try_what_a_limit_holds_back_is_counted_and_its_victim_hears_of_it,
    );
}

fn try_what_a_limit_holds_back_is_counted_and_its_victim_hears_of_it() {
    const TEST: &str = "what_a_limit_holds_back_is_counted_and_its_victim_hears_of_it";
    if !common::root_or_skip("kernel", TEST) {
        return;
    }
    if !Path::new(TREE).join(LIMIT).exists() {
        return common::skip("kernel", TEST, "no `blkio` controller of cgroup v1 that can limit");
    }
    let disk = match disk::Disk::new(16) {
        Ok(disk) => disk,
        Err(why) => return common::skip("kernel", TEST, &why),
    };
    let group = Group(Path::new(TREE).join(format!("deburr-test-{}", std::process::id())));
    std::fs::create_dir(&group.0).unwrap();
    let dev = std::fs::metadata(&disk.device).unwrap().rdev();
    let limit = format!("{}:{} 25", rustix::fs::major(dev), rustix::fs::minor(dev));

    let (recording, report, _dir) = observed(&disk.device, &group.0);
    assert_eq!(held(&recording), (0, 0), "there is no limit yet");
    let codes = |report: &Value| -> Vec<String> {
        let found = report["findings"].as_array().unwrap().iter();
        found.map(|finding| finding["code"].as_str().unwrap().to_owned()).collect()
    };
    assert!(!codes(&report).contains(&"BLK007".into()), "{:?}", codes(&report));

    std::fs::write(group.0.join(LIMIT), &limit).unwrap();
    let (recording, report, _dir) = observed(&disk.device, &group.0);
    let (ios, bytes) = held(&recording);
    // In each throttle slice of 100 ms some reads pass at once.
    assert!((READS / 4..=READS).contains(&ios) && bytes == ios * 4096, "{ios}, {bytes} B");
    let cgroup: String =
        recording.query_row("SELECT DISTINCT cgroup FROM io_held", [], |row| row.get(0)).unwrap();
    assert_eq!(Path::new(&cgroup), group.0);

    let found = report["findings"].as_array().unwrap().iter();
    let found = found.clone().find(|finding| finding["code"] == "BLK007");
    let found = found.unwrap_or_else(|| panic!("{:?}", codes(&report)));
    assert_eq!(found["victim"]["comm"], "dd");
    let cause = &found["causes"][0];
    assert_eq!(cause["key"].as_str().unwrap(), group.0.join(LIMIT).to_str().unwrap());
    assert_eq!(cause["value"].as_str().unwrap(), limit);
    // At 25 reads per second, one by one, nearly all of the window is lost to the limit.
    let lost = found["cost"]["lost_ns_per_s"].as_f64().unwrap() / 1e9;
    assert!((0.6..=1.0).contains(&lost), "{lost} s of every second");
}
