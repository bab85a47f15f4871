// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr limits` beside processes whose limit and number of threads are known.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::cgroups::Nested;
use crate::common;
use crate::golang::{self, Running, start};
use deburr_core::limits::elf::{Elf, Linked};
use deburr_core::limits::{Biased, go};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

const DEBURR: &str = env!("CARGO_BIN_EXE_deburr");

/// What is said of a process.
fn row(pid: u32) -> Value {
    let output =
        Command::new(DEBURR).args(["limits", "--json", &pid.to_string()]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    document["processes"][0].clone()
}

/// The same, when what was started has become what it is to be.
fn row_when(process: &Running, ready: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..200 {
        let row = row(process.0.id());
        if ready(&row) {
            return row;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("it never came so far: {}", row(process.0.id()))
}

/// The number that counts, and what it is worth.
fn number(row: &Value) -> (u64, &str) {
    let first = &row["runtime"]["parallelism"][0];
    (first["value"].as_u64().unwrap_or(0), first["confidence"].as_str().unwrap_or_default())
}

fn why(row: &Value) -> &str {
    row["runtime"]["belief"]["why"].as_str().unwrap_or_default()
}

#[test]
fn gomaxprocs_of_go_programs_is_the_true_one() {
    const TEST: &str = "gomaxprocs_of_go_programs_is_the_true_one";
    if !common::root_or_skip("kernel", TEST) {
        return;
    }
    let toolchains = match golang::toolchains() {
        Ok(toolchains) => toolchains,
        Err(reason) => return common::skip("kernel", TEST, &reason),
    };
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

/// A file as an image.
struct Bytes(Vec<u8>);

impl deburr_core::limits::Image for Bytes {
    fn read(&self, at: u64, buf: &mut [u8]) -> bool {
        self.0.read(at, buf)
    }
}

#[test]
fn programs_of_arm64_are_decoded_from_their_file() {
    const TEST: &str = "programs_of_arm64_are_decoded_from_their_file";
    let toolchains = match golang::toolchains() {
        Ok(toolchains) => toolchains,
        Err(reason) => return common::skip("kernel", TEST, &reason),
    };
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

/// A command that goes into a cgroup first.
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
    let nested = match Nested::make() {
        Ok(nested) => nested,
        Err(reason) => return common::skip("kernel", TEST, &reason),
    };
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
    }
}

#[test]
fn what_a_runtime_can_see_of_its_quota_is_told_with_the_reason() {
    const TEST: &str = "what_a_runtime_can_see_of_its_quota_is_told_with_the_reason";
    if !common::root_or_skip("kernel", TEST) {
        return;
    }
    let toolchains = match golang::toolchains() {
        Ok(toolchains) => toolchains,
        Err(reason) => return common::skip("kernel", TEST, &reason),
    };
    let nested = match Nested::make() {
        Ok(nested) => nested,
        Err(reason) => return common::skip("kernel", TEST, &reason),
    };
    // As many CPUs as there are, less a tenth: the runtime's own choice is above it, and not below two.
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
        assert_eq!((&row["limit"]["cpus"], &row["verdict"]), (&1.9.into(), &"above".into()));
        assert!(
            row["runtime"]["belief"]["fix"][0]["action"].as_str().unwrap().contains("GOMAXPROCS=2")
        );
    }
}

/// The report on a process, and what of it was recorded consistently.
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
    const TEST: &str = "too_many_threads_under_a_quota_are_named_and_a_number_that_fits_is_not";
    if !common::root_or_skip("kernel", TEST) {
        return;
    }
    let toolchains = match golang::toolchains() {
        Ok(toolchains) => toolchains,
        Err(reason) => return common::skip("kernel", TEST, &reason),
    };
    let nested = match Nested::make() {
        Ok(nested) => nested,
        Err(reason) => return common::skip("kernel", TEST, &reason),
    };
    // So little that it runs out on a host that is busy with other things too.
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
    // A neighbour on a busy host may come first; the quota that is used up comes after who uses it up.
    let found = codes(&report);
    let place = |code: &str| found.iter().position(|one| *one == code);
    assert!(place("SCH004").is_some() && place("SCH004") < place("SCH002"), "{found:?}");
    let found = &report["findings"][place("SCH004").unwrap()];
    let cause = &found["causes"][0];
    assert_eq!((&cause["key"], &cause["value"]), (&"GOMAXPROCS".into(), &"16".into()));
    assert_eq!(found["severity"], "high", "{found}");
    assert!(found["fix"][0]["action"].as_str().unwrap().contains("GOMAXPROCS=1"), "{found}");
    drop(many);

    // Threads that have nothing to do lose nothing.
    let idle = run(16, "");
    let report = report_on(&idle);
    let risk =
        report["findings"].as_array().unwrap().iter().find(|finding| finding["code"] == "SCH004");
    assert_eq!(risk.unwrap()["severity"], "info", "{report}");
    drop(idle);

    // One that is stopped as often, for it wants more than it may have, is the quota's victim only.
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
    let threads = java(&["-XX:ParallelGCThreads=3", "-XX:+UseParallelGC"]);
    let row = row_when(&threads, |row| number(row).0 > 0);
    let first = &row["runtime"]["parallelism"][0];
    assert_eq!((&first["name"], &first["value"]), (&"ParallelGCThreads".into(), &3.into()));
}
