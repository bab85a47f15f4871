// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How `scripts/test` counts the results of its test programs: an inconclusive test has neither passed nor failed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Lets `scripts/test` account for a tier that printed `log`, ended with `status` and noted `inconclusive`.
fn account(log: &str, status: &str, inconclusive: &str) -> (Output, String) {
    account_all(log, status, [inconclusive, ""])
}

/// The same, with what was noted as inconclusive and as unsteady.
fn account_all(log: &str, status: &str, noted: [&str; 2]) -> (Output, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let log_file = dir.path().join("log");
    std::fs::write(&log_file, log).expect("a file");
    let notes = ["inconclusive", "unsteady"].map(|name| dir.path().join(name));
    for (file, text) in notes.iter().zip(noted) {
        std::fs::write(file, text).expect("a file");
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/test");
    let output = Command::new(script)
        .args(["--account", "3", "lab"])
        .arg(&log_file)
        .arg(status)
        .args(&notes)
        .env("DEBURR_REQUIRE", "lab")
        .output()
        .expect("the script runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    (output, said)
}

/// Each of the lines is one of what was said.
fn has_lines(said: &str, lines: &[&str]) {
    for line in lines {
        assert!(said.lines().any(|said| said == *line), "`{line}` is not in: {said}");
    }
}

const LOG: &str = "test lab::pinned ... ok\ntest lab::quota ... ok\n\
                   test result: ok. 25 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";

#[test]
fn what_is_inconclusive_is_counted_and_named_and_has_not_passed() {
    let (output, said) =
        account(LOG, "0", "lab\tpinned\t3 tries; half was stolen\nkernel\tother\tno\n");
    assert!(output.status.success(), "{said}");
    has_lines(
        &said,
        &[
            "3 lab        24 passed, 0 failed, 0 skipped, 1 inconclusive",
            "      inconclusive pinned: 3 tries; half was stolen",
            "24 passed, 0 failed, 0 skipped, 1 inconclusive",
        ],
    );
    assert!(!said.contains("ATTENTION"), "one of 25: {said}");
}

#[test]
fn what_is_unsteady_is_named_and_has_passed() {
    let notes = "lab\tpinned\tnot so: it comes first\n";
    let (output, said) = account_all(LOG, "0", ["", notes]);
    assert!(output.status.success(), "{said}");
    has_lines(
        &said,
        &[
            "3 lab        25 passed, 0 failed, 0 skipped, 0 inconclusive",
            "      unsteady pinned: not so: it comes first",
        ],
    );
}

/// A tier of several parts, in the second of which a test failed that then passed twice.
#[test]
fn what_passed_in_the_end_is_counted_once() {
    let counts = |passed, failed| {
        format!("test result: FAILED. {passed} passed; {failed} failed; 0 ignored; 0 measured\n")
    };
    let name = "together::held_back";
    let failed = format!("test {name} ... FAILED\n\nfailures:\n    {name}\n\n");
    let log = [counts(9, 0), failed, counts(4, 1), counts(7, 0), counts(2, 1)].concat();
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("log");
    std::fs::write(&file, log).expect("a file");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/test");
    let status = Command::new(script).args(["--as-passed", name]).arg(&file).status();
    assert!(status.expect("the script runs").success());
    let log = std::fs::read_to_string(&file).expect("a file");
    let passed = format!("test {name} ... ok\n\nfailures:\n\n");
    let expected = [counts(9, 0), passed, counts(5, 0), counts(7, 0), counts(2, 1)].concat();
    let without_spaces = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(without_spaces(&log), without_spaces(&expected));
}

#[test]
fn a_tenth_without_a_result_is_said_loudly() {
    let notes: String = ["a", "b", "c"].map(|name| format!("lab\t{name}\tit is stolen\n")).concat();
    let (output, said) = account(LOG, "0", &notes);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("ATTENTION: 3 of 25 tests of tier 3 (lab)"), "{said}");
}

#[test]
fn a_failure_is_one_whatever_else_is_inconclusive() {
    let log =
        LOG.replace("quota ... ok", "quota ... FAILED").replace("25 passed; 0", "24 passed; 1");
    let (output, said) = account(&log, "101", "lab\tpinned\tit is stolen\n");
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("23 passed, 1 failed, 0 skipped, 1 inconclusive"), "{said}");
    assert!(said.contains("failed lab::quota"), "{said}");
}

#[test]
fn a_tier_that_had_to_run_and_did_not_is_a_failure() {
    let (output, said) = account("", "0", "");
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("this tier had to run here and nothing of it did"), "{said}");
}

/// Functions of `tests/common` that take a tier: as the second argument of the last one, as the first of all others.
const NOTERS: [&str; 7] = [
    "skip(",
    "skip_or_fail(",
    "root_or_skip(",
    "inconclusive(",
    "unsteady(",
    "tried(",
    "tried_times(",
];

/// The tiers in the calls of these functions in a source file, as far as they are literals or constants of the file.
fn tiers_noted(source: &str) -> Vec<String> {
    let literal = |text: &str| Some(text.strip_prefix('"')?.split_once('"')?.0.to_owned());
    let mut tiers = Vec::new();
    for (call, (at, _)) in
        NOTERS.iter().flat_map(|call| source.match_indices(call).map(move |at| (call, at)))
    {
        // Part of a longer name, a method, or the definition of the function.
        if source[..at].ends_with(|c: char| c.is_alphanumeric() || "_.".contains(c))
            || source[..at].ends_with("fn ")
        {
            continue;
        }
        let mut argument = source[at + call.len()..].trim_start();
        if *call == "tried_times(" {
            // The number of tries stands before the tier.
            argument = argument.split_once(',').map_or("", |(_, rest)| rest.trim_start());
        }
        let name: String =
            argument.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let constant = format!("const {name}: &str = ");
        let value = source.find(&constant).map(|at| &source[at + constant.len()..]);
        tiers.extend(literal(argument).or(value.and_then(literal)));
    }
    tiers
}

/// The tiers that `scripts/test` runs and accounts for.
fn tiers_of_the_script() -> Vec<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/test");
    let text = std::fs::read_to_string(script).expect("the script");
    let tier = |line: &str| {
        let mut words = line.split_whitespace();
        let verb = words.next().filter(|verb| ["run", "privileged", "account"].contains(verb))?;
        let _number = words.next()?.parse::<u32>().ok()?;
        (!line.starts_with(' ') || verb == "account").then(|| words.next().map(str::to_owned))?
    };
    text.lines().filter_map(tier).collect()
}

/// All sources below a directory.
fn sources(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).expect("a directory").flatten();
    let paths = entries.map(|entry| entry.path());
    paths.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

#[test]
fn what_is_noted_is_noted_for_the_tier_that_runs_the_test() {
    let known = tiers_of_the_script();
    assert_eq!(
        known,
        ["pure", "program", "kernel", "lab", "replay", "vm", "oracle", "hostile", "fuzz"]
    );
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut seen = 0;
    for path in sources(&tests) {
        let inside = path.strip_prefix(&tests).expect("below it").to_string_lossy().into_owned();
        // As `scripts/test` assigns them, by the names of modules.
        let own = match inside.as_str() {
            "it/tiers.rs" => continue,
            "kernel/lab.rs" | "kernel/lab_disk.rs" => "lab",
            "it/replay.rs" => "replay",
            other if other.starts_with("kernel/") => "kernel",
            _ => "program",
        };
        for tier in tiers_noted(&std::fs::read_to_string(&path).expect("a source")) {
            assert!(known.contains(&tier), "{inside}: nobody accounts for tier `{tier}`");
            assert_eq!(tier, own, "{inside}: what is noted there is not counted with its tests");
            seen += 1;
        }
    }
    assert!(seen > 100, "only {seen} notes were understood");
}

#[test]
fn tiers_are_read_from_calls_of_every_form() {
    let source = r#"
        const TIER: &str = "four";
        common::skip("one", name, "why"); .skip(1) root_or_skip(
            "two", name) skip_or_fail(tier, "x") tried_times(3, "three", f) inconclusive(TIER, x)
        fn skip(tier: &str) "#;
    let mut tiers = tiers_noted(source);
    tiers.sort();
    assert_eq!(tiers, ["four", "one", "three", "two"]);
}

/// A log in which a test failed, and said why.
const FAILED: &str = "test net::quiet ... ok\ntest net::loss ... FAILED\n\nfailures:\n\n---- net::loss stdout ----\n\n\
    thread 'net::loss' (7) panicked at net.rs:1:2:\nRCU: 85, 86 to 107\nstack backtrace:\n   0: x\n\n\
    failures:\n    net::loss\n\n\
    test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n";

/// Lets `scripts/test` run again what failed in [`FAILED`], with a test program that runs `body`, a shell's.
fn again(body: &str) -> (Output, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let (log, program) = (dir.path().join("log"), dir.path().join("program"));
    std::fs::write(&log, FAILED).expect("a file");
    let text = format!("#!/bin/sh\ncd {}\n{body}\n", dir.path().display());
    std::fs::write(&program, text).expect("a file");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, executable).expect("it is the test's own");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/test");
    let output = Command::new(script)
        .arg("--again")
        .args([&log, &program])
        .output()
        .expect("the script runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    (output, said)
}

const PASSES: &str = "echo 'test result: ok. 1 passed; 0 failed; 0 ignored'";

#[test]
fn a_test_that_fails_once_and_then_passes_twice_has_passed_and_is_named_with_what_it_said() {
    let (output, said) = again(&format!("[ \"$1 $2\" = '--exact net::loss' ] && {PASSES}"));
    assert!(output.status.success(), "{said}");
    has_lines(
        &said,
        &[
            "test net::loss ... ok",
            "test result: FAILED. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
            "kernel\tnet::loss\tit failed once, and then passed twice: RCU: 85, 86 to 107",
        ],
    );
}

#[test]
fn a_test_that_fails_again_or_has_no_result_has_failed() {
    for body in [
        "echo 'test result: FAILED. 0 passed; 1 failed; 0 ignored'; exit 101".to_owned(),
        // The second time only.
        format!("[ -e once ] && exit 101; touch once; {PASSES}"),
        // No such test.
        "echo 'test result: ok. 0 passed; 0 failed; 0 ignored'".to_owned(),
        format!("printf 'kernel\\tnet::loss\\tno\\n' >>\"$DEBURR_SKIPPED\"; {PASSES}"),
        format!("printf 'kernel\\tnet::loss\\tno\\n' >>\"$DEBURR_INCONCLUSIVE\"; {PASSES}"),
    ] {
        let (output, said) = again(&body);
        assert_eq!(output.status.code(), Some(1), "{body}: {said}");
        assert!(said.contains("1 passed; 1 failed"), "{body}: {said}");
        assert!(!said.contains("failed once"), "{body}: {said}");
    }
}

#[test]
fn what_a_failed_test_said_is_in_the_summary() {
    let cut = FAILED.replace("net::loss ... FAILED", "net::loss ... \nrunning 1 test\nFAILED");
    for log in [FAILED, &format!("    word\n{cut}    word\n")] {
        let (_, said) = account(log, "101", "");
        let failed: Vec<&str> = said.lines().filter(|line| line.contains(" failed net")).collect();
        assert_eq!(failed, ["      failed net::loss: RCU: 85, 86 to 107"], "{said}");
        assert!(!said.contains("word"), "{said}");
    }
}

/// The names that are run and those that wait, of a turn.
fn divided(turn: &str, names: &str) -> [Vec<String>; 2] {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/turns");
    let mut divide = Command::new(script);
    divide.arg(turn).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut divide = divide.spawn().expect("the script runs");
    let mut input = divide.stdin.take().expect("it is a pipe");
    std::io::Write::write_all(&mut input, names.as_bytes()).expect("it reads");
    drop(input);
    let output = divide.wait_with_output().expect("it ends");
    let said = String::from_utf8(output.stdout).expect("it is text");
    ["now ", "later "].map(|word| {
        said.lines().filter_map(|line| line.strip_prefix(word)).map(str::to_owned).collect()
    })
}

#[test]
fn every_long_test_has_its_turn_and_the_incidents_always_have() {
    let scenarios = ["pool", "go_quota", "loss", "healthy", "tail", "journal", "neighbour_8"];
    let mut names: String = scenarios.iter().map(|name| format!("lab::{name}\n")).collect();
    names.push_str("remedies::x\nlab_disk::x\nnet::x\nprove_kills::x\nprove::x\n");
    let mut turns_of = std::collections::BTreeMap::<String, u32>::new();
    for turn in ["0", "1", "2"] {
        let [now, later] = divided(turn, &names);
        assert_eq!(now.len() + later.len(), names.lines().count(), "{now:?} {later:?}");
        assert_eq!(later.len(), 4, "two thirds of six: {later:?}");
        for name in now {
            *turns_of.entry(name).or_default() += 1;
        }
    }
    for name in names.lines() {
        let long = ["lab::pool", "lab::loss", "lab::tail", "lab::journal"];
        let turns =
            if long.contains(&name) || ["remedies::x", "prove::x"].contains(&name) { 1 } else { 3 };
        assert_eq!(turns_of[name], turns, "{name}");
    }
    let [now, later] = divided("all", &names);
    assert_eq!((now.len(), later.len()), (names.lines().count(), 0));
}

/// What is always run is there under that name.
#[test]
fn what_is_always_run_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/turns");
    let text = std::fs::read_to_string(script).expect("the script");
    let line = text.lines().find(|line| line.starts_with("readonly ALWAYS=")).expect("the list");
    let (_, names) = line.split_once("lab::(").expect("names");
    let (names, machines) = names.split_once(")|vm::(").expect("virtual machines");
    let names: Vec<&str> = names.split('|').collect();
    for machine in machines.trim_end_matches("))$'").split('|') {
        assert!(root.join(format!("../../tests/vm/{machine}")).exists(), "{machine}");
    }
    assert!(names.len() > 5, "{names:?}");
    let tests = std::fs::read_to_string(root.join("tests/kernel/lab.rs")).expect("a source");
    for name in names {
        let scenario = root.join(format!("../../lab/scenarios/{}.toml", name.replace('_', "-")));
        let function = format!("fn {}", name.trim_end_matches(".*"));
        assert!(scenario.exists() || tests.contains(&function), "{name}");
    }
}
