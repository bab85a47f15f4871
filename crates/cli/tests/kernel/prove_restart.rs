// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Experiments that start a command anew for each block: with a setting that is the cause, with one that is not, and killed
//! in the middle.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::common::{root_or_skip, tried};
use crate::lab::{DEBURR, alone, until};
use assert_cmd::cargo::cargo_bin_cmd;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Two shells on one CPU that compute all the time, unless `IDLE` is 1: then one of them sleeps.
const TWO: &str = "taskset -pc 0 $$ >/dev/null; ([ \"$IDLE\" = 1 ] && exec sleep 600; while :; do :; done) & \
                   while :; do :; done";

fn outcome(set: &str) -> Value {
    let usual = ["prove", "--yes", "--json", "-q", "-d", "2", "--block", "1", "--warmup", "1"];
    let own = ["--seed", "5", "--measure", "queued", "--set", set, "--", "sh", "-c", TWO];
    let done = cargo_bin_cmd!("deburr").args(usual).args(own).assert().success();
    serde_json::from_slice(&done.get_output().stdout).unwrap()
}

#[test]
fn a_command_is_started_with_a_setting_and_without_it() {
    let name = "a_command_is_started_with_a_setting_and_without_it";
    let _one = alone();
    if !root_or_skip("kernel", name) {
        return;
    }
    tried("kernel", name, || {
        let is = outcome("env:IDLE=1");
        assert_eq!(is["result"]["outcome"], "confirmed", "{is:#}");
        assert_eq!(is["plan"]["starts"]["command"][0], "sh", "{is:#}");
        assert_eq!(is["plan"]["changes"][0]["from"], "unset", "{is:#}");
        assert_eq!(is["target"]["kind"], "command", "{is:#}");
        let is_not = outcome("env:UNUSED=1");
        assert_eq!(is_not["result"]["outcome"], "refuted", "{is_not:#}");
    });
}

#[test]
fn a_command_that_cannot_be_measured_is_refused_with_the_reason() {
    let _one = alone();
    if !root_or_skip("kernel", "a_command_that_cannot_be_measured_is_refused_with_the_reason") {
        return;
    }
    let set = ["--set", "env:A=1", "--measure", "queued"];
    let of = |options: &[&str], command: &[&str]| {
        let mut deburr = cargo_bin_cmd!("deburr");
        let deburr = deburr.args(["prove", "--yes", "-d", "1", "--warmup", "1"]).args(options);
        let done = deburr.arg("--").args(command).assert().code(2);
        String::from_utf8_lossy(&done.get_output().stderr).into_owned()
    };
    let busy = ["sh", "-c", "while :; do :; done"];
    for (options, command, message) in [
        (&set[..], &["deburr-no-such"][..], "cannot execute `deburr-no-such`"),
        (&set, &["sh", "-c", "echo no port >&2; exit 3"], "exit status 3"),
        (&set, &["sh", "-c", "echo no port >&2; exit 3"], "no port"),
        (&set, &["true"], "must stay in the foreground"),
        (&set, &["sleep", "600"], "there is none now"),
        (&["--cgroup", "/deburr-no-such", set[0], set[1], set[2], set[3]], &busy, "no cgroup"),
        (&["--set", "arg:9=x", "--measure", "queued"], &busy, "`arg:9=x`"),
        (&["--set", "vm.swappiness=10", "--measure", "queued"], &busy, "nothing of the command"),
        (&["SCH001"], &busy, "starts no command"),
        (&["SCH004"], &busy, "SCH004 was not found"),
    ] {
        let said = of(options, command);
        assert!(said.contains(message), "{options:?} {command:?}: {said}");
    }
    let done = cargo_bin_cmd!("deburr").args(["prove", "SCH004", "--yes"]).assert().code(2);
    let said = String::from_utf8_lossy(&done.get_output().stderr).into_owned();
    assert!(said.contains("-- CMD"), "{said}");
}

/// A command that has written the numbers of its processes to a file: a shell, what it started, and what left its session.
struct Started {
    deburr: Child,
    pids: Vec<u32>,
}

impl Started {
    fn start(dir: &Path) -> Self {
        let file = dir.join("pids");
        let all = "sleep 600 & echo $! >>\"$0\"; setsid sleep 600 & echo $! >>\"$0\"; echo $$ >>\"$0\"; while :; do :; done";
        let deburr = Command::new(DEBURR)
            .args(["prove", "--yes", "-q", "-d", "60", "--measure", "queued", "--set", "env:A=1"])
            .args(["--", "sh", "-c", all])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        let read = || fs::read_to_string(&file).unwrap_or_default();
        until("the command runs", || read().lines().count() == 3);
        let pids = read().lines().map(|line| line.parse().unwrap()).collect();
        Self { deburr, pids }
    }

    /// Its processes that have not ended.
    fn running(&self) -> Vec<u32> {
        let runs = |pid: &u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
            stat.is_ok_and(|stat| !stat.rsplit(") ").next().unwrap().starts_with('Z'))
        };
        self.pids.iter().copied().filter(runs).collect()
    }
}

/// Whether a journal of that process is there.
fn has_journal(pid: u32) -> bool {
    let files = fs::read_dir("/run/deburr").into_iter().flatten().flatten();
    let name = format!("deburr-command-{pid}-");
    files.into_iter().any(|file| file.file_name().to_string_lossy().starts_with(&name))
}

#[test]
fn a_killed_experiment_ends_the_command_that_it_started() {
    let _one = alone();
    if !root_or_skip("kernel", "a_killed_experiment_ends_the_command_that_it_started") {
        return;
    }
    type Kill = fn(Pid) -> rustix::io::Result<()>;
    let ways: [Kill; 3] = [
        |pid| kill_process(pid, Signal::KILL),
        |pid| kill_process_group(pid, Signal::KILL),
        |pid| kill_process(pid, Signal::INT),
    ];
    for kill in ways {
        let dir = tempfile::tempdir().unwrap();
        let mut started = Started::start(dir.path());
        assert_eq!(started.running().len(), 3, "{:?}", started.pids);
        assert!(has_journal(started.deburr.id()));
        kill(Pid::from_child(&started.deburr)).unwrap();
        started.deburr.wait().unwrap();
        until("its processes have ended", || started.running().is_empty());
        until("the journal is gone", || !has_journal(started.deburr.id()));
    }
}
