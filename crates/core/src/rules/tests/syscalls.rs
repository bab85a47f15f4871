// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SYS001 and SYS002: a tool that reads a slow file of the kernel, and one that makes too many calls.

use super::{codes, judged};
use crate::finding::{Finding, Report, Severity};
use crate::recording::{FileClass, ProcId, TargetSpec};
use crate::testkit::{MS, ProcessActivity, S, Scene, US};

const FREQ: &str = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq";

/// A host with counted system calls of one process.
fn counted() -> (Scene, Option<ProcId>) {
    let mut scene = Scene::new(4, 10 * S);
    let agent = scene.process("agent", None);
    scene.counted(Some(agent));
    (scene, Some(agent))
}

/// Reads of files as on a healthy host.
fn ordinary(scene: &mut Scene, of: Option<ProcId>) {
    for cpu in 0..8 {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/core_id");
        scene.reads(of, (&path, FileClass::Sys), 20, (6 * US, 0));
    }
    scene.reads(of, ("/proc/cpuinfo", FileClass::Proc), 40, (400 * US, 0));
    scene.reads(of, ("/srv/data", FileClass::Ordinary), 100, (40 * MS, 40 * MS));
}

/// The incident: 20 000 reads of 400 us each, all of it system time.
fn slow() -> Scene {
    let (mut scene, of) = counted();
    ordinary(&mut scene, of);
    scene.reads(of, (FREQ, FileClass::Sys), 20_000, (400 * US, 0));
    scene.calls(of, "read", 20_300, (400 * US, 0));
    scene
}

fn storm() -> Scene {
    let (mut scene, of) = counted();
    scene.reads(of, ("/srv/log", FileClass::Ordinary), 4_000_000, (600, 0));
    scene.calls(of, "read", 4_000_000, (600, 0));
    scene.calls(of, "futex", 100, (MS, MS));
    scene
}

pub(super) fn scene(code: &str, kind: &str) -> Option<Scene> {
    Some(match (code, kind) {
        ("SYS001", "fires") => slow(),
        ("SYS002", "fires") => storm(),
        (_, "quiet") => {
            let (mut scene, of) = counted();
            ordinary(&mut scene, of);
            scene.calls(of, "read", 300, (10 * US, 0));
            scene
        }
        (_, "nodata") => Scene::new(4, 10 * S),
        _ => return None,
    })
}

fn only<'r>(report: &'r Report, code: &str) -> &'r Finding {
    assert_eq!(codes(report), [code]);
    &report.findings[0]
}

#[test]
fn the_slow_file_is_named_with_what_the_kernel_does_meanwhile() {
    let report = judged(&slow());
    let found = only(&report, "SYS001");
    assert_eq!(found.severity, Severity::High);
    assert!(found.title.starts_with("`agent` (pid 1001) loses 800 ms of every second"));
    assert!(found.title.contains(FREQ) && found.title.ends_with("the kernel works meanwhile"));
    assert_eq!(found.causes[0].entity.path.as_deref(), Some(FREQ));
    assert!(found.fix.iter().any(|fix| fix.action.contains("firmware")));
}

#[test]
fn sleeping_in_a_file_is_told_from_working() {
    let (mut scene, of) = counted();
    let path = "/mnt/remote/`x`";
    scene.reads(of, (path, FileClass::Fuse), 45, (200 * MS, 199 * MS));
    let report = judged(&scene);
    let found = only(&report, "SYS001");
    assert!(found.title.contains("`/mnt/remote/'x'`"), "{}", found.title);
    assert!(found.title.ends_with("it sleeps until a process answers"), "{}", found.title);
    assert!(found.fix.iter().any(|fix| fix.action.contains("process that serves")));
}

#[test]
fn a_slow_disk_and_files_that_wait_for_events_are_no_slow_kernel_files() {
    let (mut scene, of) = counted();
    scene.reads(of, ("/srv/data", FileClass::Ordinary), 200, (40 * MS, 40 * MS));
    scene.reads(of, ("/proc/kmsg", FileClass::Proc), 9, (S, S));
    scene.reads(of, ("/sys/kernel/tracing/trace_pipe", FileClass::Debug), 9, (S, S));
    assert_eq!(codes(&judged(&scene)), [""; 0]);
}

#[test]
fn seldom_reads_are_no_matter_however_slow() {
    let (mut scene, of) = counted();
    scene.reads(of, ("/sys/firmware/slow", FileClass::Sys), 1, (100 * MS, 0));
    let report = judged(&scene);
    assert_eq!(codes(&report), [""; 0]);
    let quiet = report.ruled_out.iter().find(|it| it.code == "SYS001").expect("quiet");
    assert!(quiet.closest.contains("/sys/firmware/slow") && quiet.closest.contains("100 ms"));
}

#[test]
fn what_is_usual_is_learnt_where_there_is_enough() {
    // All files of a slow kind are alike, so none stands out.
    let (mut scene, of) = counted();
    for i in 0..8 {
        let path = format!("/sys/bus/slow/{i}");
        scene.reads(of, (&path, FileClass::Sys), 500, (2 * MS, 0));
    }
    assert_eq!(codes(&judged(&scene)), [""; 0]);
}

#[test]
fn a_storm_names_the_call_and_its_file() {
    let report = judged(&storm());
    let found = only(&report, "SYS002");
    assert!(found.severity <= Severity::Medium, "what it is good for is not known");
    assert!(found.title.contains("`read` 400 000 times a second, mostly on `/srv/log`"));
    assert!(found.fix[0].action.contains("larger pieces"));
    assert_eq!(found.confirm.as_ref().unwrap().command, "deburr syscalls -p 1001 -d 5");
}

#[test]
fn a_storm_of_readlink_is_none_of_reads() {
    let (mut scene, of) = counted();
    scene.reads(of, ("/srv/log", FileClass::Ordinary), 4_000_000, (600, 0));
    scene.calls(of, "readlinkat", 4_000_000, (600, 0));
    let report = judged(&scene);
    let found = only(&report, "SYS002");
    assert!(!found.title.contains("/srv/log"), "{}", found.title);
    assert!(found.fix[0].action.contains("keep the answer"), "{}", found.fix[0].action);
}

#[test]
fn calls_that_achieve_nothing_are_told_so() {
    let (mut scene, of) = counted();
    scene.calls(of, "futex", 100, (MS, MS));
    let mut failing = crate::recording::SyscallTotal {
        t1_ns: 10 * S,
        process: of,
        name: "recvfrom".into(),
        calls: 5_000_000,
        errors: 4_990_000,
        ns: 3 * S,
        max_ns: MS,
        ..Default::default()
    };
    let push = |scene: &mut Scene, total: &crate::recording::SyscallTotal| {
        let record = crate::recording::SyscallRecord::Call(total.clone());
        scene.push(crate::recording::Record::Syscalls(Box::new(record)));
    };
    let mut quiet = scene.clone();
    push(&mut scene, &failing);
    let report = judged(&scene);
    assert!(only(&report, "SYS002").fix[0].action.contains("wait for the event"));
    // Few long calls are not a storm.
    (failing.calls, failing.errors) = (50_000, 0);
    push(&mut quiet, &failing);
    assert_eq!(codes(&judged(&quiet)), [""; 0]);
}

#[test]
fn a_command_is_a_victim_too() {
    let mut scene = Scene::new(4, 10 * S);
    let command = "/usr/bin/lscpu -x".to_owned();
    scene.meta(|meta| meta.target = TargetSpec::Command { command, pid: 77 });
    scene.counted(None);
    scene.reads(None, (FREQ, FileClass::Sys), 20_000, (400 * US, 0));
    let report = judged(&scene);
    let found = only(&report, "SYS001");
    assert!(found.title.starts_with("`/usr/bin/lscpu -x` loses"), "{}", found.title);
    assert_eq!((found.victim.comm.as_deref(), found.victim.pid), (Some("lscpu"), Some(77)));
}

#[test]
fn what_one_of_many_busy_threads_loses_in_calls_is_a_small_share_of_what_they_want() {
    for (scene, code) in [(slow(), "SYS001"), (storm(), "SYS002")] {
        let id = ProcId(1);
        let severity = |scene: &Scene| {
            let report = judged(scene);
            report.findings.iter().find(|it| it.code == code).map(|it| it.severity)
        };
        assert!(severity(&scene) >= Some(Severity::Medium), "{code}");
        let mut busy = scene.clone();
        busy.did(
            id,
            &ProcessActivity { threads: 32, on_cpu_ns: 320 * S, ..ProcessActivity::default() },
        );
        assert_eq!(severity(&busy), None, "{code}: of 32 seconds that it wants in each");
    }
}
