// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The lab: every scenario on this kernel, and that nothing of one is left, however it ends.

use crate::common;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

const DEBURR: &str = env!("CARGO_BIN_EXE_deburr");

/// Scenarios load the CPUs that they measure: one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Waits until that is so.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not so after a minute");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Directories where this host's cgroups may be made, v1 and v2.
fn cgroup_roots() -> Vec<PathBuf> {
    ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup"]
        .into_iter()
        .map(PathBuf::from)
        .filter(|dir| dir.join("cgroup.procs").exists())
        .collect()
}

#[test]
fn the_janitor_ends_and_removes_what_it_was_told_of() {
    if !common::root_or_skip("lab", "the_janitor_ends_and_removes_what_it_was_told_of") {
        return;
    }
    let Some(root) = cgroup_roots().into_iter().next() else {
        return common::skip(
            "lab",
            "the_janitor_ends_and_removes_what_it_was_told_of",
            "no cgroups",
        );
    };
    let name = format!("deburr-lab-test-{}", std::process::id());
    let cgroup = root.join(&name);
    let scratch = std::env::temp_dir().join(&name);
    let mut janitor = Command::new(DEBURR)
        .args(["lab-worker", "janitor"])
        .args([&cgroup, &scratch])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::fs::create_dir_all(cgroup.join("inner")).unwrap();
    std::fs::create_dir(&scratch).unwrap();
    std::fs::write(scratch.join("file"), "").unwrap();
    let mut sleepers: Vec<Child> = (0..3)
        .map(|_| Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap())
        .collect();
    for sleeper in &sleepers {
        std::fs::write(cgroup.join("inner/cgroup.procs"), sleeper.id().to_string()).unwrap();
    }

    assert!(janitor.try_wait().unwrap().is_none(), "it waits for the end of its input");
    drop(janitor.stdin.take());
    let status = janitor.wait().unwrap();
    let left = (cgroup.exists(), scratch.exists());
    for sleeper in &mut sleepers {
        let killed = sleeper.try_wait().unwrap();
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert!(killed.is_some(), "a process of the cgroup still ran");
    }
    assert!(status.success());
    assert_eq!(left, (false, false));
}
