// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every command: what it prints, where, and how it exits.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::program::{deburr, expect, refuse, run, stderr, stdout};

#[test]
fn every_command_explains_itself() {
    let help = stdout(&run(&["--help"], 0));
    for command in [
        "diagnose",
        "record",
        "report",
        "read",
        "compare",
        "explain",
        "lab",
        "limits",
        "check",
        "sector",
        "sweep",
        "syscalls",
        "completions",
    ] {
        assert!(help.lines().any(|line| line.trim_start().starts_with(command)), "{command}");
        assert!(stdout(&run(&[command, "--help"], 0)).contains("Usage:"), "{command}");
    }
    assert!(help.contains("Exit status:"));
    assert!(stdout(&run(&["--version"], 0)).contains(env!("CARGO_PKG_VERSION")));
}

#[test]
fn usage_errors_are_told_on_stderr() {
    for arguments in [
        &["--no-such-option"][..],
        &["no-such-command"],
        &["-p", "12", "--comm", "x", "-d", "1h"],
        &["-p", "-1"],
        &["record", "-d", "1h"],
        &["report"],
        &["explain"],
        &["completions", "no-such-shell"],
        &["--fail-on", "terrible"],
        &["-q", "-v"],
        &["-d", "1", "diagnose"],
    ] {
        assert!(!refuse(arguments).is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_wrong_duration_is_refused_with_what_is_accepted() {
    for duration in ["0", "0s", "-1", "-0.5", "1e9", "90000", "25h", "soon", "", "1d", "nan", "inf"]
    {
        for arguments in [
            &["-d", duration][..],
            &["diagnose", "-d", duration],
            &["record", "-d", duration, "-o", "/nonexistent/x"],
        ] {
            let message = refuse(arguments);
            assert!(message.contains("30s, 5m, 1h") && message.contains("24h"), "{message}");
        }
    }
}

#[test]
fn both_spellings_of_the_default_command_report() {
    for arguments in [&["-d", "0.3"][..], &["diagnose", "-d", "0.3"]] {
        let output = run(arguments, 0);
        assert!(stdout(&output).starts_with("watched host "), "{}", stdout(&output));
        // No progress where stderr is not a terminal.
        assert_eq!(stderr(&output), "");
    }
}

#[test]
fn a_report_is_one_json_document() {
    let output = run(&["-d", "0.3", "--json"], 0);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["schema"], "deburr.report/1");
    assert_eq!(report["window"]["source"], "live");
    let seconds = report["window"]["seconds"].as_f64().unwrap();
    assert!(seconds >= 0.3, "{seconds}");
}

#[test]
fn findings_of_the_asked_level_set_the_exit_status() {
    // A window this short is always a finding, of the lowest level.
    let output = run(&["-d", "0.3", "--fail-on", "info"], 1);
    assert!(stdout(&output).contains("OBS002"), "{}", stdout(&output));
}

#[test]
fn colour_is_for_terminals_or_on_request() {
    let colours = |arguments: &[&str], no_color: bool| {
        let mut command = deburr(arguments);
        if no_color {
            command.env("NO_COLOR", "1");
        }
        stdout(&expect(&mut command, 0)).contains('\x1b')
    };
    assert!(!colours(&["-d", "0.2"], false));
    assert!(colours(&["-d", "0.2", "--color", "always"], false));
    assert!(colours(&["-d", "0.2", "--color", "always"], true), "asked for is asked for");
    assert!(!colours(&["-d", "0.2", "--color", "never"], false));
    assert!(!colours(&["-d", "0.2"], true));
}

#[test]
fn findings_are_explained_by_code_and_unknown_codes_are_answered_with_the_known() {
    for code in ["SCH001", "sch002", "OBS003"] {
        assert!(stdout(&run(&["explain", code], 0)).contains(&code.to_uppercase()));
    }
    for kind in ["waits for work", "waits for others", "own timer", "not known", "no entry"] {
        assert!(stdout(&run(&["explain", "sleep"], 0)).contains(kind), "{kind}");
    }
    let message = refuse(&["explain", "SCH999\x1b[31m"]);
    assert!(message.contains("SCH999\\x1b[31m") && message.contains("SCH001"), "{message}");
}

#[test]
fn the_lab_lists_its_scenarios_and_knows_no_others() {
    let list = stdout(&run(&["lab", "list"], 0));
    assert!(list.contains("neighbour-4") && list.contains("healthy"), "{list}");
    let message = refuse(&["lab", "run", "no-such-scenario"]);
    assert!(message.contains("`no-such-scenario`") && message.contains("quota"), "{message}");
    let message = refuse(&["lab", "run", "healthy", "--prove"]);
    assert!(message.contains("`healthy`") && message.contains("decoy-limit"), "{message}");
    assert!(refuse(&["lab", "run", "quota", "--prove", "-d5"]).contains("--seconds"));
}

#[test]
fn completions_and_the_manual_page_are_generated() {
    for shell in ["bash", "zsh", "fish"] {
        let script = stdout(&run(&["completions", shell], 0));
        assert!(script.contains("fail-on"), "{shell}");
    }
    let page = stdout(&run(&["man"], 0));
    assert!(page.contains(".TH deburr 1") && page.contains("\\-\\-cgroup"), "{page}");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    for arguments in [
        &["explain", "SCH001"][..],
        &["lab", "list"],
        &["man"],
        &["--help"],
        &["-d", "0.2"],
        &["-d", "0.2", "--json"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = expect(deburr(arguments).stdout(writer), 0);
        assert_eq!(stderr(&output), "", "{arguments:?}");
    }
}

#[test]
fn messages_that_nobody_reads_are_no_error_either() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = deburr(&["report", "/nonexistent"]).stderr(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}
