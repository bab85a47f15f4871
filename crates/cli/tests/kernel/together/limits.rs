// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr limits` on processes whose limit and number of threads are known.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::cgroups::Nested;
use crate::common;
use crate::golang::{self, Running, Toolchain, start};
use deburr_core::limits::elf::{Elf, Linked};
use deburr_core::limits::{Biased, go};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const DEBURR: &str = env!("CARGO_BIN_EXE_deburr");

/// Row of a process in the output of `deburr limits`.
fn row(pid: u32) -> Value {
    let output =
        Command::new(DEBURR).args(["limits", "--json", &pid.to_string()]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    document["processes"][0].clone()
}

/// Repeats [`row`] until `ready` accepts it, for a process that is still starting; panics after 200 tries.
fn row_when(process: &Running, mut ready: impl FnMut(&Value) -> bool) -> Value {
    for _ in 0..200 {
        let row = row(process.0.id());
        if ready(&row) {
            return row;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("it never came so far: {}", row(process.0.id()))
}

/// Value and confidence of the first number of threads in the row.
fn number(row: &Value) -> (u64, &str) {
    let first = &row["runtime"]["parallelism"][0];
    (first["value"].as_u64().unwrap_or(0), first["confidence"].as_str().unwrap_or_default())
}

fn why(row: &Value) -> &str {
    row["runtime"]["belief"]["why"].as_str().unwrap_or_default()
}

/// The value; on `Err` the test is noted as skipped.
fn or_skip<T>(test: &str, found: Result<T, String>) -> Option<T> {
    found.map_err(|reason| common::skip("kernel", test, &reason)).ok()
}

/// Go toolchains, and nested cgroups for their programs; `None` = the test cannot run here.
fn go_in_nested(test: &str) -> Option<(Vec<Toolchain>, Nested)> {
    let toolchains = go_for_root(test)?;
    Some((toolchains, or_skip(test, Nested::make())?))
}

/// Go toolchains, if this process is root, which may read their programs' memory; `None` = the test cannot run here.
fn go_for_root(test: &str) -> Option<Vec<Toolchain>> {
    common::root_or_skip("kernel", test)
        .then(golang::toolchains)
        .and_then(|found| or_skip(test, found))
}

#[test]
fn gomaxprocs_of_go_programs_is_the_true_one() {
    const TEST: &str = "gomaxprocs_of_go_programs_is_the_true_one";
    let Some(toolchains) = go_for_root(TEST) else { return };
    let stripped = "-ldflags=-s -w";
    for toolchain in &toolchains {
        for (name, args) in [
            ("plain", &[][..]),
            ("stripped", &[stripped]),
            ("position-independent", &["-buildmode=pie"]),
            ("both", &["-buildmode=pie", stripped]),
        ] {
            let program = toolchain.build(name, "1.18", args, &[]);
            let running = start(Command::new(&program.file).env("GOMAXPROCS", "7"));
            let row = row_when(&running, |row| number(row).0 > 0);
            assert_eq!(number(&row), (7, "exact"), "{} {name}", toolchain.version);
            assert_eq!(row["runtime"]["version"], toolchain.version.as_str());
            assert_eq!((why(&row), &row["verdict"]), ("set", &Value::from("above")), "{row}");
        }
    }
    // What the program sets itself wins over what it was started with.
    let program = toolchains[0].build("sets", "1.18", &[stripped], &[]);
    let running = start(Command::new(&program.file).arg("5").env("GOMAXPROCS", "7"));
    let row = row_when(&running, |row| number(row).0 == 5);
    assert_eq!(why(&row), "program", "{row}");
}

/// A file's content as a program image.
struct Bytes(Vec<u8>);

impl deburr_core::limits::Image for Bytes {
    fn read(&self, at: u64, buf: &mut [u8]) -> bool {
        self.0.read(at, buf)
    }
}

#[test]
fn programs_of_arm64_are_decoded_from_their_file() {
    const TEST: &str = "programs_of_arm64_are_decoded_from_their_file";
    let Some(toolchains) = or_skip(TEST, golang::toolchains()) else { return };
    for toolchain in &toolchains {
        let program = toolchain.build("arm64", "1.18", &[], &[("GOARCH", "arm64")]);
        let file = Bytes(fs::read(&program.file).unwrap());
        let elf = Elf::read(&file).unwrap();
        let linked = Linked { file: &file, elf: &elf };
        let memory = Biased { image: &linked, bias: 0 };
        let version = go::build(&file, &elf, &memory).unwrap().version;
        let expected = toolchain.address_of(&program.file, "runtime.gomaxprocs");
        assert_eq!(go::locate(&file, &elf, &memory), Ok(expected), "{version}");
        assert_eq!(version, toolchain.version);
    }
}

/// A command that enters a cgroup first.
fn within(dir: &Path, script: &str) -> Command {
    let mut sh = Command::new("sh");
    sh.args(["-c", &format!("echo $$ > \"$0\" && {script}")]).arg(dir.join("cgroup.procs"));
    sh
}

#[test]
fn the_quota_of_a_level_above_binds_whatever_the_namespaces() {
    const TEST: &str = "the_quota_of_a_level_above_binds_whatever_the_namespaces";
    if !common::root_or_skip("kernel", TEST) {
        return;
    }
    let Some(nested) = or_skip(TEST, Nested::make()) else { return };
    nested.set_quota(50_000);
    let [top, _, leaf] = nested.dirs();
    let path =
        |dir: &Path| format!("/{}", dir.strip_prefix(top.parent().unwrap()).unwrap().display());
    for script in ["exec sleep 60", "exec unshare -C sleep 60", "exec unshare -Cm sleep 60"] {
        let running = start(&mut within(&leaf, script));
        let row = row_when(&running, |row| row["comm"] == "sleep");
        let limit = &row["limit"];
        assert_eq!(
            (&limit["cpus"], &limit["bound_by"]),
            (&0.5.into(), &"quota".into()),
            "{script}"
        );
        assert_eq!(
            (&limit["sight"], &row["cgroup"]),
            (&"whole".into(), &path(&leaf).into()),
            "{script}"
        );
        let quotas = limit["quotas"].as_array().unwrap();
        assert_eq!(quotas.len(), 1);
        assert_eq!((&quotas[0]["path"], &quotas[0]["own"]), (&path(&top).into(), &false.into()));
    }
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    if online.trim() != "0" {
        let running = start(Command::new("taskset").args(["-c", "0", "sleep", "60"]));
        let row = row_when(&running, |row| row["comm"] == "sleep");
        assert_eq!(
            (&row["limit"]["cpus"], &row["limit"]["bound_by"]),
            (&1.0.into(), &"affinity".into())
        );
        // A quota above that does not bind.
        nested.set_quota(150_000);
        let running = start(&mut within(&leaf, "exec taskset -c 0 sleep 60"));
        let row = row_when(&running, |row| row["comm"] == "sleep");
        let (limit, quota) = (&row["limit"], &row["limit"]["quotas"][0]);
        assert_eq!((&limit["cpus"], &limit["bound_by"]), (&1.0.into(), &"affinity".into()));
        assert_eq!((&quota["cpus"], &quota["binds"]), (&1.5.into(), &false.into()));
    }
}

#[test]
fn what_a_runtime_can_see_of_its_quota_is_told_with_the_reason() {
    const TEST: &str = "what_a_runtime_can_see_of_its_quota_is_told_with_the_reason";
    let Some((toolchains, nested)) = go_in_nested(TEST) else { return };
    // 1.9 CPUs: the runtime's own choice is two or more, hence above it.
    nested.set_quota(190_000);
    let [top, _, leaf] = nested.dirs();
    let tree = top.parent().unwrap().display().to_string();
    let toolchain = &toolchains[0];
    let program = toolchain.build("sees", "1.18", &["-ldflags=-s -w"], &[]);
    let run = format!("exec {} 9", program.file.display());
    let scratch = tempfile::tempdir().unwrap();
    let part = format!(
        "exec unshare -m sh -c 'mount --bind {} {} && umount -l {tree} && {run}'",
        leaf.display(),
        scratch.path().display()
    );
    let none = format!("exec unshare -m sh -c 'umount -l {tree} && {run}'");
    for (script, expected) in [
        (run.clone(), r#"{"files":"leaf","part":false}"#),
        (part, r#"{"files":"leaf","part":true}"#),
        (none, r#"{"files":"no_mount"}"#),
    ] {
        let running = start(&mut within(&leaf, &script));
        let row = row_when(&running, |row| number(row).0 == 9);
        let seen: Value = serde_json::from_str(expected).unwrap();
        assert_eq!(row["runtime"]["seen"], seen, "{script}");
        assert_eq!(
            (&row["limit"]["cpus"], &row["verdict"]),
            (&1.9.into(), &"above".into()),
            "{script}: {row:#}"
        );
        assert!(
            row["runtime"]["belief"]["fix"][0]["action"].as_str().unwrap().contains("GOMAXPROCS=2")
        );
    }
}

/// Report on a process. Its recording must be consistent, and a report made from it must have the same findings.
fn report_on(process: &Running) -> Value {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("limits.deburr");
    let pid = process.0.id().to_string();
    let mut observe = Command::new(DEBURR);
    observe.args(["-q", "--json", "-d", "3", "-p", &pid, "-o"]).arg(&file);
    let output = observe.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(Command::new(DEBURR).arg("check").arg(&file).output().unwrap().status.success());
    let again = Command::new(DEBURR).args(["report", "--json"]).arg(&file).output().unwrap();
    let (live, kept): (Value, Value) = (
        serde_json::from_slice(&output.stdout).unwrap(),
        serde_json::from_slice(&again.stdout).unwrap(),
    );
    assert_eq!(live["findings"], kept["findings"]);
    live
}

/// Codes of the findings, in their order.
fn codes(report: &Value) -> Vec<&str> {
    let findings = report["findings"].as_array().unwrap();
    findings.iter().map(|finding| finding["code"].as_str().unwrap()).collect()
}

#[test]
fn too_many_threads_under_a_quota_are_named_and_a_number_that_fits_is_not() {
    common::tried(
        "kernel",
        "too_many_threads_under_a_quota_are_named_and_a_number_that_fits_is_not",
        try_too_many_threads_under_a_quota_are_named_and_a_number_that_fits_is_not,
    );
}

fn try_too_many_threads_under_a_quota_are_named_and_a_number_that_fits_is_not() {
    const TEST: &str = "too_many_threads_under_a_quota_are_named_and_a_number_that_fits_is_not";
    let Some((toolchains, nested)) = go_in_nested(TEST) else { return };
    // So small that it is used up on a busy host too.
    nested.set_quota(10_000);
    let leaf = nested.dirs()[2].clone();
    let program = toolchains[0].build("spins", "1.18", &[], &[]);
    let run = |procs: u64, mode: &str| {
        let script = format!("exec env GOMAXPROCS={procs} {} {mode}", program.file.display());
        let running = start(&mut within(&leaf, &script));
        row_when(&running, |row| number(row).0 > 0);
        running
    };
    let many = run(16, "spin");
    let report = report_on(&many);
    // On a busy host a neighbour may come first. The finding on the threads (SCH004) precedes that on the quota that
    // they use up (SCH002).
    let found = codes(&report);
    let place = |code: &str| found.iter().position(|one| *one == code);
    assert!(place("SCH004").is_some() && place("SCH004") < place("SCH002"), "{found:?}");
    let found = &report["findings"][place("SCH004").unwrap()];
    let cause = &found["causes"][0];
    assert_eq!((&cause["key"], &cause["value"]), (&"GOMAXPROCS".into(), &"16".into()));
    assert_eq!(found["severity"], "high", "{found}");
    assert!(found["fix"][0]["action"].as_str().unwrap().contains("GOMAXPROCS=1"), "{found}");
    // Both findings name the cgroup that has the quota.
    let top = nested.dirs()[0].file_name().unwrap().to_string_lossy().into_owned();
    let limit =
        found["evidence"].as_array().unwrap().iter().find(|line| line["name"] == "CPU limit");
    assert_eq!(limit.unwrap()["note"], format!("quota of `/{top}` above it"), "{found}");
    let throttle = &report["findings"][place("SCH002").unwrap()];
    assert_eq!(throttle["causes"][0]["cgroup"], format!("/{top}"), "{throttle}");
    drop(many);

    // Idle threads lose nothing.
    let idle = run(16, "");
    let report = report_on(&idle);
    let risk =
        report["findings"].as_array().unwrap().iter().find(|finding| finding["code"] == "SCH004");
    assert_eq!(risk.unwrap()["severity"], "info", "{report}");
    drop(idle);

    // A single thread that needs more than the quota is throttled as often, but it is only the quota's victim.
    let one = run(1, "spin");
    let report = report_on(&one);
    assert!(!codes(&report).contains(&"SCH004") && codes(&report).contains(&"SCH002"), "{report}");
}

#[test]
fn flags_of_java_are_read_without_attaching() {
    const TEST: &str = "flags_of_java_are_read_without_attaching";
    if !common::root_or_skip("kernel", TEST) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let source = "public class S { public static void main(String[] a) throws Exception { Thread.sleep(3600000); } }";
    fs::write(scratch.path().join("S.java"), source).unwrap();
    let compiled = Command::new("javac").arg("S.java").current_dir(scratch.path()).status();
    if !compiled.is_ok_and(|status| status.success()) {
        return common::skip("kernel", TEST, "no Java compiler is installed");
    }
    let java = |args: &[&str]| {
        start(Command::new("java").args(args).args(["-Xmx64m", "-cp"]).arg(scratch.path()).arg("S"))
    };
    let set = java(&["-XX:ActiveProcessorCount=6", "-XX:+UseParallelGC"]);
    let row = row_when(&set, |row| number(row).0 > 0);
    assert_eq!((number(&row), why(&row)), ((6, "exact"), "set"));
    assert_eq!(row["runtime"]["settings"]["ActiveProcessorCount"], "6");
    let told = Command::new("java").arg("--version").output().unwrap().stdout;
    let told = String::from_utf8(told).unwrap();
    let version = row["runtime"]["version"].as_str().unwrap();
    assert!(
        told.contains(&format!(" {version} ")) || told.contains(&format!(" {version}+")),
        "{told}"
    );
    let threads = java(&["-XX:ParallelGCThreads=30", "-XX:+UseParallelGC"]);
    let row = row_when(&threads, |row| number(row).0 > 0);
    let first = &row["runtime"]["parallelism"][0];
    assert_eq!((&first["name"], &first["value"]), (&"ParallelGCThreads".into(), &30.into()));
    assert_eq!((why(&row), &row["verdict"]), ("set", &"above".into()), "{row}");

    // In a root directory of its own, as in a container, its library has another path than on the host.
    let other_root = scratch.path().join("root");
    fs::create_dir(&other_root).unwrap();
    let script = format!(
        "mount --rbind / {0} && exec chroot {0} \"$0\" -XX:ActiveProcessorCount=5 -Xmx64m -cp {1} S",
        other_root.display(),
        scratch.path().display()
    );
    let mut contained = Command::new("unshare");
    let program = fs::canonicalize(which("java")).unwrap();
    let contained = start(contained.args(["-m", "sh", "-c", &script]).arg(program));
    let row = row_when(&contained, |row| number(row).0 > 0);
    assert_eq!(number(&row), (5, "exact"), "{row}");
}

/// Path of a program, found by the shell.
fn which(program: &str) -> PathBuf {
    let output =
        Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap();
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

/// Builds a C program or library with clang, which builds the BPF programs too.
fn compile(file: &Path, args: &[&str], source: &str) {
    let text = file.with_extension("c");
    fs::write(&text, source).unwrap();
    let mut clang = Command::new("clang");
    clang.args(args).arg("-pthread").arg("-o").arg(file).arg(&text);
    assert!(clang.status().unwrap().success());
}

/// C program that sleeps in three threads beside the first one, which ends if there is an argument.
const THREADS: &str = "#include <pthread.h>
#include <unistd.h>
static void *wait(void *arg) { sleep(600); return arg; }
int main(int argc, char **argv)
{
    pthread_t thread;
    for (int i = 0; i < 3; i++)
        pthread_create(&thread, 0, wait, 0);
    if (argc > 1)
        pthread_exit(0);
    wait(argv);
}
";

#[test]
fn a_process_whose_first_thread_has_ended_is_told_by_the_others() {
    const TEST: &str = "a_process_whose_first_thread_has_ended_is_told_by_the_others";
    if !common::root_or_skip("kernel", TEST) {
        return;
    }
    let Some(nested) = or_skip(TEST, Nested::make()) else { return };
    nested.set_quota(50_000);
    let scratch = tempfile::tempdir().unwrap();
    // OpenMP is recognised only by the name of a loaded library and the number of threads.
    let (program, library) =
        (scratch.path().join("threads"), scratch.path().join("libx_openblas.so"));
    compile(&program, &[], THREADS);
    compile(&library, &["-shared", "-fPIC"], "int nothing;");
    let script = format!(
        "LD_PRELOAD={} OMP_NUM_THREADS=3 exec {} ended",
        library.display(),
        program.display()
    );
    let leaf = &nested.dirs()[2];
    let running = start(&mut within(leaf, &script));
    // While a thread ends, the report says that the process is ending: the first thread must have been a zombie before
    // the query.
    let stat = format!("/proc/{}/stat", running.0.id());
    let mut was_zombie = false;
    let row = row_when(&running, |row| {
        let before = was_zombie;
        was_zombie = fs::read_to_string(&stat).unwrap().contains(") Z ");
        row["threads"] == 4 && before
    });
    assert_eq!(row["limit"]["cpus"], 0.5, "{row}");
    assert!(row["cgroup"].as_str().unwrap().ends_with("/middle/leaf"), "{row}");
    assert!(row["notes"][0].as_str().unwrap().contains("first thread has ended"), "{row}");
    assert_eq!(row["runtime"]["kind"], "openmp", "{row}");
    assert_eq!((number(&row), why(&row)), ((3, "start"), "set"), "{row}");
}

#[test]
fn workers_of_nginx_are_those_that_are_not_leaving() {
    let script = "(exec -a 'nginx: worker process' sleep 60) & \
                  (exec -a 'nginx: worker process' sleep 60) & \
                  (exec -a 'nginx: worker process is shutting down' sleep 60) & \
                  (exec -a 'nginx: cache manager process' sleep 60) & \
                  exec -a 'nginx: master process /usr/sbin/nginx' sleep 60";
    let running = start(Command::new("bash").args(["-c", script]));
    let children = || {
        let pid = running.0.id();
        let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let title = |pid: &String| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let row = row_when(&running, |row| {
        let all = children();
        all.len() == 4
            && all.iter().all(|pid| title(pid).starts_with(b"nginx"))
            && number(row).0 > 0
    });
    let leaving = children();
    let told = (&row["runtime"]["kind"], number(&row));
    assert_eq!(told, (&"nginx".into(), (2, "exact")), "{row}");
    for pid in leaving {
        let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}
