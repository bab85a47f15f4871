// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program that others stop, by signals, as its tracer, and with the freezers of both versions of cgroups, against what it
//! notices itself: its clock has jumped.

use crate::scratch::{in_scratch, record};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Stops its child in that way for 200 ms, eight times. The child writes its pid, and by how much its clock has jumped.
const HOLDER: &str = r#"
import ctypes, os, signal, sys, time
way, told, cgroup = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
INTERRUPT, SEIZE, CONTINUE = 0x4207, 0x4206, 7

def write(name, text):
    with open(os.path.join(cgroup, name), "w") as file:
        file.write(text)

pid = os.fork()
if pid == 0:
    jumped, last = 0.0, time.monotonic()
    end = last + 5.0
    while last < end:
        # Who sleeps when version 1 freezes it sleeps on.
        if way != "v1":
            time.sleep(0.002)
        now = time.monotonic()
        passed, last = now - last, now
        jumped += passed if passed > 0.05 else 0.0
    with open(told, "w") as file:
        file.write(f"{os.getpid()} {jumped}\n")
    os._exit(0)

def ptrace(request, data=0):
    if libc.ptrace(request, pid, None, ctypes.c_void_p(data)) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")

with open("/proc/self/comm", "w") as file:
    file.write("holder")
if way in ("v1", "v2"):
    write("cgroup.procs", str(pid))
if way == "tracer":
    ptrace(SEIZE)
for _ in range(8):
    time.sleep(0.3)
    if way == "signals":
        os.kill(pid, signal.SIGSTOP)
    elif way == "tracer":
        ptrace(INTERRUPT)
        os.waitpid(pid, 0x40000000)
    else:
        write(*(("cgroup.freeze", "1") if way == "v2" else ("freezer.state", "FROZEN")))
    time.sleep(0.2)
    if way == "signals":
        os.kill(pid, signal.SIGCONT)
    elif way == "tracer":
        ptrace(CONTINUE)
    else:
        write(*(("cgroup.freeze", "0") if way == "v2" else ("freezer.state", "THAWED")))
os.waitpid(pid, 0)
"#;

/// A new cgroup, which is removed at the end.
struct Cgroup(PathBuf);

impl Cgroup {
    /// In the hierarchy that has that file in a cgroup.
    fn with(file: &str) -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let trees = mounts.lines().filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (tree, kind) = (fields.next()?, fields.next()?);
            kind.starts_with("cgroup").then(|| PathBuf::from(tree))
        });
        let new = trees.map(|tree| tree.join(format!("deburr-stops-{}", std::process::id())));
        new.map(Self).find(|it| std::fs::create_dir(&it.0).is_ok() && it.0.join(file).exists())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

fn is_before_6_1() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|it| it.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap(), numbers.next().unwrap_or(0)) < (6, 1)
}

fn try_stops(scratch: &Path, way: &str, cgroup: &Path, words: &str) {
    let [recording, told] = ["x.deburr", "told"].map(|it| scratch.join(it));
    let mut run = record(&recording, &[]);
    run.args(["python3", "-c", HOLDER, way]).arg(&told).arg(cgroup);
    assert!(run.status().unwrap().success(), "{way}");
    let told = std::fs::read_to_string(told).unwrap();
    let (pid, jumped_s) = told.trim().split_once(' ').unwrap();
    let (pid, jumped_s): (u64, f64) = (pid.parse().unwrap(), jumped_s.parse().unwrap());
    assert!(jumped_s > 1.4, "{way}: {jumped_s} s");

    let mut report = Command::new(env!("CARGO_BIN_EXE_deburr"));
    let output = report.args(["report", "--json"]).arg(recording).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of_child = |it: &&Value| it["victim"]["pid"] == pid;
    let findings = report["findings"].as_array().unwrap();
    let finding = findings.iter().find(|it| it["code"] == "SCH005" && of_child(it));
    let finding = finding.unwrap_or_else(|| panic!("{way}: {findings:#?}"));
    assert!(finding["title"].as_str().unwrap().ends_with(words), "{way}: {finding:#}");
    assert_eq!(finding["causes"][0]["comm"], "holder", "{way}: {finding:#}");
    assert!(finding["causes"][0]["share"].as_f64().unwrap() > 0.8, "{way}: {finding:#}");
    let ledger = report["ledger"].as_array().unwrap().iter().find(of_child).unwrap();
    let parts = ledger["parts"].as_array().unwrap();
    let stopped = parts.iter().find(|it| it["state"] == "stopped").unwrap();
    let stopped_s = stopped["ns"].as_f64().unwrap() / 1e9;
    // Each jump contains a nap of 2 ms, and the wait for a CPU after it.
    let slack_s = 8.0 * 0.020;
    let near = stopped_s - 0.02 < jumped_s && jumped_s < stopped_s + slack_s;
    assert!(near, "{way}: {stopped_s} s, and its clock {jumped_s} s");
}

#[test]
fn who_stops_a_process_is_named_and_for_how_long() {
    in_scratch("who_stops_a_process_is_named_and_for_how_long", |scratch| {
        try_stops(scratch, "signals", scratch, "`holder` sends the signal that continues it");
        try_stops(scratch, "tracer", scratch, "`holder` traces it");
        let freezers = ["cgroup.freeze", "freezer.state"].map(Cgroup::with);
        let mut missing = None;
        for (way, cgroup) in ["v2", "v1"].into_iter().zip(&freezers) {
            match cgroup {
                Some(_) if way == "v1" && is_before_6_1() => {
                    missing = Some("before Linux 6.1, version 1 freezes in uninterruptible sleep");
                }
                Some(Cgroup(path)) => try_stops(scratch, way, path, "`holder` thaws its cgroup"),
                None => missing = Some("not both versions of cgroups have a freezer here"),
            }
        }
        missing
    });
}
