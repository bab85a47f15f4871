// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is left when the runner of an experiment and its janitor are both killed: the next command says so, and
//! `deburr lab clean` removes it, and nothing else.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::common;
use crate::lab::{DEBURR, alone, cgroup_roots, janitor, lab_run, made, made_by, until};
use crate::lab_disk::{attached_below, lacks_disk, mounts_below, settings};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, SystemTime};

fn deburr(arguments: &[&str]) -> Output {
    Command::new(DEBURR).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat()
}

/// The janitor of that runner, once it is there.
fn janitor_of(runner: u32) -> Option<Pid> {
    let children = std::fs::read_to_string(format!("/proc/{runner}/task/{runner}/children"));
    let children = children.unwrap_or_default();
    let mut pids = children.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok());
    let is_janitor = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|&byte| byte == 0).any(|word| word == b"janitor")
    };
    Pid::from_raw(pids.find(is_janitor)?)
}

/// Processes of the lab, by their executable and their first argument, except zombies.
fn workers() -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|it| {
        let exe = std::fs::read_link(it.path().join("exe")).ok()?;
        let line = std::fs::read(it.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        (exe == Path::new(DEBURR) && line.contains("lab-worker")).then_some(line)
    });
    lines.collect()
}

/// Whether no process of an experiment holds this journal.
fn is_unlocked(journal: &Path) -> bool {
    use rustix::fs::{FlockOperation, flock};
    let file = std::fs::File::open(journal);
    file.is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok())
}

/// Starts a run and kills its janitor and then itself, some time after the janitor is there.
fn killed_twice(scenario: &str, after: Duration) -> u32 {
    let mut lab = lab_run(&[scenario, "-d2"]);
    let pid = lab.id();
    until("its janitor is there", || janitor_of(pid).is_some());
    std::thread::sleep(after);
    // It must not start another janitor meanwhile, as between the control run and the other.
    kill_process(Pid::from_child(&lab), Signal::STOP).unwrap();
    if let Some(janitor) = janitor_of(pid) {
        kill_process(janitor, Signal::KILL).unwrap();
    }
    kill_process(Pid::from_child(&lab), Signal::KILL).unwrap();
    lab.wait().unwrap();
    // A killed janitor needs a moment to end, and one that had just been started was not recognised: it does its work.
    let journal = || made_by(pid, Path::new("/run/deburr"));
    until("no janitor is there", || journal().is_none_or(|journal| is_unlocked(&journal)));
    pid
}

#[test]
fn lab_clean_removes_what_two_sigkills_left() {
    let _one = alone();
    let name = "lab_clean_removes_what_two_sigkills_left";
    if !common::root_or_skip("kernel", name) {
        return;
    }
    let scenario = "writeback-fast";
    if let Some(reason) = lacks_disk(scenario) {
        return common::skip_or_fail("kernel", name, &reason);
    }
    let before = settings();
    let mut cleaned_rounds = 0;
    let seed = SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
    for round in 0..5_u32 {
        // From just after the janitor's start to the middle of the observation.
        let random = seed.wrapping_mul(2_654_435_761).wrapping_add(round * 1_013_904_223) % 1000;
        let after = Duration::from_millis(u64::from(round * 900 + random * 9 / 10));
        let pid = killed_twice(scenario, after);
        let places = || {
            let more = [std::env::temp_dir(), PathBuf::from("/run/deburr")];
            cgroup_roots().into_iter().chain(more).filter_map(|dir| made_by(pid, &dir))
        };
        let scratch = made_by(pid, &std::env::temp_dir());
        if made_by(pid, Path::new("/run/deburr")).is_some() {
            let told = deburr(&["explain", "SCH001"]);
            assert!(said(&told).contains("deburr lab clean"), "{after:?}: {}", said(&told));
            let cleaned = deburr(&["lab", "clean"]);
            assert!(cleaned.status.success(), "{after:?}: {}", said(&cleaned));
            assert!(said(&cleaned).contains("undone"), "{after:?}: {}", said(&cleaned));
            cleaned_rounds += 1;
        }
        assert_eq!(places().collect::<Vec<_>>(), Vec::<PathBuf>::new(), "{after:?}");
        if let Some(scratch) = scratch {
            assert_eq!((mounts_below(&scratch), attached_below(&scratch)), (0, false), "{after:?}");
        }
        assert_eq!(settings(), before, "{after:?}");
        until("no process is left", || workers().is_empty());
    }
    // Otherwise every kill hit the moment between two janitors.
    assert!(cleaned_rounds > 0);
    assert!(said(&deburr(&["lab", "clean"])).contains("nothing was left behind"));
    assert!(!said(&deburr(&["explain", "SCH001"])).contains("lab clean"));
}

/// A process and a directory of somebody else under a name like the lab's, and even at a path that a journal names.
#[test]
fn what_somebody_else_made_survives() {
    let _one = alone();
    let name = "what_somebody_else_made_survives";
    if !common::root_or_skip("kernel", name) {
        return;
    }
    let Some(root) = cgroup_roots().into_iter().next() else {
        return common::skip_or_fail("kernel", name, "no cgroups");
    };
    let here = tempfile::tempdir().unwrap();
    let (own, foreign) = (here.path().join("own"), here.path().join("deburr-lab-1-x"));
    for directory in [&own, &foreign] {
        std::fs::create_dir(directory).unwrap();
        std::fs::write(directory.join("file"), "").unwrap();
    }
    let cgroup = root.join(format!("deburr-lab-test-{}", std::process::id()));
    std::fs::create_dir(&cgroup).unwrap();
    let mut sleeper: Child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
    std::fs::write(cgroup.join("cgroup.procs"), sleeper.id().to_string()).unwrap();
    // What the journal means by these paths was something else.
    let entries = [
        made("cgroup", &cgroup, here.path()),
        made("files", &foreign, here.path()),
        made("files", &own, &own),
    ];
    let (mut janitor, journal) = janitor(here.path(), &entries);
    drop(janitor.stdin.take());
    let status = janitor.wait().unwrap();
    let survived = sleeper.try_wait().unwrap().is_none();
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    let there = cgroup.exists();
    until("the cgroup can be removed", || std::fs::remove_dir(&cgroup).is_ok());
    assert!(status.success() && survived && there);
    assert!(foreign.join("file").exists());
    assert!(!own.exists() && !journal.exists());
}
