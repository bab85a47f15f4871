// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recorded limits and throttle counters of a cgroup and of all its ancestors agree with the kernel's files.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::common;
use rusqlite::{Connection, OpenFlags};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

const DEBURR: &str = env!("CARGO_BIN_EXE_deburr");
const PERIOD_US: u64 = 100_000;

/// Three nested cgroups, removed on drop: the outermost gets the quota, a spinner runs in the innermost.
pub(crate) struct Nested {
    v2: bool,
    top: PathBuf,
    spinner: Option<Child>,
}

impl Nested {
    /// Creates the cgroups; `Err` = why that is not possible on this host.
    pub(crate) fn make() -> Result<Self, String> {
        let v1 = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"].map(Path::new);
        let v1 = v1.into_iter().find(|dir| dir.join("cpu.cfs_quota_us").exists());
        let v2 = Path::new("/sys/fs/cgroup");
        let control = fs::read_to_string(v2.join("cgroup.subtree_control")).unwrap_or_default();
        let root = match v1 {
            Some(root) => root,
            None if control.split_whitespace().any(|name| name == "cpu") => v2,
            None => return Err("no cgroup tree has the cpu controller".into()),
        };
        let top = root.join(format!("deburr-test-{}", std::process::id()));
        let nested = Self { v2: v1.is_none(), top, spinner: None };
        for dir in nested.dirs() {
            if nested.v2 && dir != nested.top {
                write(&dir.parent().unwrap().join("cgroup.subtree_control"), "+cpu")?;
            }
            fs::create_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        }
        Ok(nested)
    }

    pub(crate) fn dirs(&self) -> [PathBuf; 3] {
        let middle = self.top.join("middle");
        let leaf = middle.join("leaf");
        [self.top.clone(), middle, leaf]
    }

    pub(crate) fn set_quota(&self, quota_us: u64) {
        let set = match self.v2 {
            true => write(&self.top.join("cpu.max"), &format!("{quota_us} {PERIOD_US}")),
            false => write(&self.top.join("cpu.cfs_quota_us"), &quota_us.to_string()),
        };
        set.unwrap();
    }

    fn spin(&mut self) {
        let script = "echo $$ > \"$0\" && while :; do :; done";
        let procs = self.dirs()[2].join("cgroup.procs");
        let mut sh = Command::new("sh");
        let spinner = sh.args(["-c", script]).arg(procs).stdin(Stdio::null()).spawn();
        self.spinner = Some(spinner.unwrap());
    }

    fn nr_throttled(&self) -> u64 {
        let text = fs::read_to_string(self.top.join("cpu.stat")).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("nr_throttled "));
        line.unwrap().parse().unwrap()
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        if let Some(spinner) = &mut self.spinner {
            let _ = spinner.kill();
            let _ = spinner.wait();
        }
        for dir in self.dirs().iter().rev() {
            // A process leaves its cgroup a moment after it was waited for.
            for _ in 0..100 {
                if fs::remove_dir(dir).is_ok() || !dir.exists() {
                    break;
                }
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

fn write(file: &Path, value: &str) -> Result<(), String> {
    fs::write(file, value).map_err(|error| format!("{}: {error}", file.display()))
}

/// Quotas of a cgroup, in microseconds, in the order in which they were recorded; `None` = no limit.
fn quotas(recording: &Connection, path: &str) -> Vec<Option<u64>> {
    let sql = "SELECT quota_us FROM cgroup WHERE path = ?1 ORDER BY seq";
    let mut rows = recording.prepare(sql).unwrap();
    let quotas = rows.query_map([path], |row| row.get::<_, Option<i64>>(0)).unwrap();
    quotas.map(|quota| quota.unwrap().map(i64::cast_unsigned)).collect()
}

/// Throttled periods of a cgroup so far, at each reading.
fn throttled(recording: &Connection, path: &str) -> Vec<u64> {
    let sql = "SELECT nr_throttled FROM cgroup_reading WHERE cgroup IN \
               (SELECT cgroup FROM cgroup WHERE path = ?1) ORDER BY seq";
    let mut rows = recording.prepare(sql).unwrap();
    let counts = rows.query_map([path], |row| row.get::<_, i64>(0)).unwrap();
    counts.map(|count| count.unwrap().cast_unsigned()).collect()
}

#[test]
fn limits_and_counters_of_every_ancestor_are_read() {
    common::tried(
        "kernel",
        "limits_and_counters_of_every_ancestor_are_read",
        try_limits_and_counters_of_every_ancestor_are_read,
    );
}

fn try_limits_and_counters_of_every_ancestor_are_read() {
    const TEST: &str = "limits_and_counters_of_every_ancestor_are_read";
    if !common::root_or_skip("kernel", TEST) {
        return;
    }
    let mut nested = match Nested::make() {
        Ok(nested) => nested,
        Err(reason) => return common::skip("kernel", TEST, &reason),
    };
    nested.set_quota(30_000);
    nested.spin();
    let doctor = Command::new(DEBURR).args(["doctor", "--json"]).output().unwrap();
    assert!(String::from_utf8_lossy(&doctor.stdout).contains("\"quota_in_use\": true"));

    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("quota.deburr");
    let before = nested.nr_throttled();
    let mut record = Command::new(DEBURR)
        .args(["record", "-q", "-d", "3", "--cgroup"])
        .arg(&nested.dirs()[2])
        .arg("-o")
        .arg(&file)
        .spawn()
        .unwrap();
    thread::sleep(Duration::from_millis(1500));
    nested.set_quota(20_000);
    assert!(record.wait().unwrap().success());
    let after = nested.nr_throttled();

    let recording = Connection::open_with_flags(&file, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let [top, middle, leaf] = nested.dirs().map(|dir| {
        format!("/{}", dir.strip_prefix(nested.top.parent().unwrap()).unwrap().display())
    });
    assert_eq!(quotas(&recording, &top), [Some(30_000), Some(20_000)]);
    assert_eq!((quotas(&recording, &middle), quotas(&recording, &leaf)), (vec![None], vec![None]));
    assert_eq!(quotas(&recording, "/").len(), 1);

    // Only the cgroup with the quota counts; its counters lie between what its `cpu.stat` had before and after.
    let counts = throttled(&recording, &top);
    assert!(counts.len() >= 3 && counts.is_sorted(), "{counts:?}");
    let (first, last) = (counts[0], counts[counts.len() - 1]);
    assert!(before <= first && last <= after, "{before} {counts:?} {after}");
    // A spinner uses up its quota in each of the 30 periods, unless the host is very busy.
    assert!(last - first >= 10, "{counts:?}");
    for below in [middle, leaf] {
        let counts = throttled(&recording, &below);
        assert!(counts.len() >= 3 && counts.iter().all(|&count| count == 0), "{below}: {counts:?}");
    }
}
