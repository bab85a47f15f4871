// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long a Java program waits while its virtual machine has stopped its threads, against the machine's own log.

use crate::common;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// Threads of the program that compute.
const THREADS: f64 = 2.0;
/// For so long they do.
const FOR_MS: &str = "5000";

/// What became of a program.
struct Ran {
    report: Value,
    /// For how long its threads were stopped, by the machine's log, each.
    stopped_s: f64,
}

impl Ran {
    fn of(scratch: &Path, collector: &str, mode: &str) -> Self {
        let log = scratch.join("log");
        let mut run = Command::new(env!("CARGO_BIN_EXE_deburr"));
        run.args(["--json", "--", "java", "-Xmx200m", collector, "-cp"]).arg(scratch);
        run.arg(format!("-Xlog:safepoint:file={}", log.display())).args(["Stops", mode, FOR_MS]);
        let output = run.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
        let total = |line: &str| {
            let (_, total) = line.rsplit_once("Total: ")?;
            total.trim().strip_suffix(" ns")?.parse::<f64>().ok()
        };
        let log = std::fs::read_to_string(log).unwrap();
        Self { report, stopped_s: log.lines().filter_map(total).sum::<f64>() / 1e9 }
    }

    fn lost_s(&self, code: &str) -> Option<f64> {
        let mut findings = self.report["findings"].as_array().unwrap().iter();
        let lost_ns = findings.find(|it| it["code"] == code)?["cost"]["lost_ns_per_s"].as_f64()?;
        Some(lost_ns / 1e9 * self.report["window"]["seconds"].as_f64().unwrap())
    }

    /// Sleep of that kind, by the report.
    fn slept_s(&self, kind: &str) -> f64 {
        let own = self.report["ledger"].as_array().unwrap().iter();
        let parts = own.filter(|it| it["awaited"] != true).filter_map(|it| it["asleep"].as_array());
        let of_kind = parts.flatten().filter(|part| part["kind"] == kind);
        of_kind.map(|part| part["ns"].as_f64().unwrap() / 1e9).sum()
    }
}

#[test]
fn who_is_stopped_by_its_virtual_machine_is_told_so() {
    const TEST: &str = "who_is_stopped_by_its_virtual_machine_is_told_so";
    if !common::root_or_skip("kernel", TEST) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernel/programs/Stops.java");
    let mut compile = Command::new("javac");
    let compiled = compile.arg("-d").arg(scratch.path()).arg(source).status();
    if !compiled.is_ok_and(|status| status.success()) {
        return common::skip("kernel", TEST, "no Java compiler is installed");
    }
    common::tried("kernel", TEST, || {
        for collector in ["-XX:+UseSerialGC", "-XX:+UseParallelGC", "-XX:+UseG1GC"] {
            let it = Ran::of(scratch.path(), collector, "allocates");
            let of_threads_s = THREADS * it.stopped_s;
            let told_s = it.lost_s("OFF010").unwrap_or_default();
            let others_s = it.slept_s("waits_for_others");
            eprintln!(
                "{collector}: {told_s:.2} of {of_threads_s:.2} s, {others_s:.2} s for others"
            );
            let context = format!("{told_s} of {of_threads_s} s: {:#}", it.report["findings"]);
            assert!(of_threads_s > 0.3, "{collector}: {context}");
            // What a thread waits for a CPU before it stops, and before it goes on, is none of its sleep; and the main
            // thread is stopped now and then.
            assert!(
                (0.7 * of_threads_s..1.1 * of_threads_s).contains(&told_s),
                "{collector}: {context}"
            );
            // Those of the machine rest meanwhile.
            assert!(
                others_s < 1.3 * of_threads_s + 0.3,
                "{collector}: {others_s} s: {:#}",
                it.report["ledger"]
            );
            for other in ["OFF001", "OFF003"] {
                let other_s = it.lost_s(other).unwrap_or_default();
                assert!(other_s < 0.2 * of_threads_s, "{collector}: {other}: {context}");
            }
        }
        // A lock whose holder computes.
        let it = Ran::of(scratch.path(), "-XX:+UseSerialGC", "takes-turns");
        let others_s = it.slept_s("waits_for_others");
        assert!(others_s > 2.0, "{others_s} s: {:#}", it.report["ledger"]);
        assert_eq!(it.lost_s("OFF010"), None, "{:#}", it.report["findings"]);
    });
}
