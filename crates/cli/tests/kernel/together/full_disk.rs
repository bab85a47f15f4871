// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks that are full, or become full while they are written to. Each is a filesystem of 2 MB in a mount namespace of its
//! own.

use crate::common;
use std::process::{Command, Stdio};

/// What a script printed on such a disk.
struct Outcome {
    stdout: String,
    stderr: String,
}

/// Runs a shell script. `$disk` is the directory of the filesystem, `$deburr` the program, and `$fill` fills the disk.
/// `None` if that is not possible here, which is noted.
fn on_small_disk(test: &str, script: &str) -> Option<Outcome> {
    if !common::root_or_skip("kernel", test) {
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let whole = format!("mount -t tmpfs -o size=2m none \"$disk\" || exit 99\n{script}");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &whole]);
    command.env("fill", "head -c 4M /dev/zero 2>/dev/null >\"$disk/fill\"");
    command.env("disk", directory.path()).env("deburr", env!("CARGO_BIN_EXE_deburr"));
    let output = command.stdin(Stdio::null()).output().unwrap();
    if output.status.code() == Some(99) {
        common::skip("kernel", test, "a filesystem cannot be mounted in a namespace of its own");
        return None;
    }
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    Some(Outcome { stdout, stderr })
}

/// What stands after such a word on a line of its own.
fn said<'t>(text: &'t str, word: &str) -> Vec<&'t str> {
    text.lines().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' ')).collect()
}

#[test]
fn a_full_disk_is_told_before_anything_is_observed_or_run() {
    const TEST: &str = "a_full_disk_is_told_before_anything_is_observed_or_run";
    let script = r#"eval "$fill"
        "$deburr" record -d 20 -o "$disk/x.out"; echo status $?
        "$deburr" -d 20 -o "$disk/x.out"; echo status $?
        "$deburr" snapshot -o "$disk/x.out"; echo status $?
        "$deburr" lab run neighbour-2 --force --keep "$disk/x.out"; echo status $?
        for name in $(ls -A "$disk"); do echo left $name; done"#;
    let Some(outcome) = on_small_disk(TEST, script) else { return };
    assert_eq!(said(&outcome.stdout, "status"), ["4"; 4], "{}", outcome.stderr);
    assert_eq!(said(&outcome.stdout, "left"), ["fill"]);
    let told = outcome.stderr.lines().filter(|line| line.contains("x.out`: No space left"));
    assert_eq!(told.count(), 4, "{}", outcome.stderr);
    // The lab did not begin either.
    assert_eq!(outcome.stderr.lines().count(), 4, "{}", outcome.stderr);
    assert!(!outcome.stderr.contains(".deburr-"), "a temporary name is told");
}

#[test]
fn a_recording_whose_disk_becomes_full_can_be_read_and_says_that_it_is_cut() {
    const TEST: &str = "a_recording_whose_disk_becomes_full_can_be_read_and_says_that_it_is_cut";
    // Filled once something is committed.
    let script = r#"(while [ ! -s "$disk/x.deburr-wal" ]; do sleep 0.1; done; sleep 2; eval "$fill") &
        "$deburr" record -q -d 20 -o "$disk/x.deburr"; echo status $?
        wait
        rm -f "$disk/fill"
        "$deburr" check "$disk/x.deburr" >"$disk/checked"; echo check "$(head -n 1 "$disk/checked")"
        "$deburr" report "$disk/x.deburr" >"$disk/report"; echo report $?
        echo note "$(grep -c 'cut short' "$disk/report")""#;
    let Some(outcome) = on_small_disk(TEST, script) else { return };
    let Outcome { stdout, stderr } = &outcome;
    assert_eq!(said(stdout, "status"), ["4"], "{stderr}");
    assert!(stderr.contains("x.deburr` ends here: database or disk is full"), "{stderr}");
    let checked = said(stdout, "check").concat();
    let records = checked.split_once("`: ").and_then(|(_, rest)| rest.split_once(" records"));
    let records: usize = records.and_then(|(number, _)| number.parse().ok()).unwrap_or_default();
    assert!(records > 20 && checked.contains("cut short"), "{checked}");
    assert_eq!((said(stdout, "report"), said(stdout, "note")), (vec!["0"], vec!["1"]), "{stderr}");
}

#[test]
fn what_is_written_at_the_end_leaves_nothing_half_on_a_disk_that_became_full() {
    const TEST: &str = "what_is_written_at_the_end_leaves_nothing_half_on_a_disk_that_became_full";
    // Of 64 kB, the trial of a claim takes some, and a snapshot more than is left.
    let script = r#"head -c 2032K /dev/zero >"$disk/fill"
        "$deburr" snapshot -o "$disk/x.out"; echo snapshot $?
        for name in $(ls -A "$disk"); do echo after-snapshot $name; done
        rm "$disk/fill"
        (sleep 2; eval "$fill") &
        "$deburr" lab run neighbour-2 --force --keep "$disk/x.out" >/dev/null; echo keep $?
        wait
        for name in $(ls -A "$disk"); do echo after-keep $name; done"#;
    let Some(outcome) = on_small_disk(TEST, script) else { return };
    let Outcome { stdout, stderr } = &outcome;
    assert_eq!(said(stdout, "snapshot"), ["4"], "{stderr}");
    assert_eq!(said(stdout, "after-snapshot"), ["fill"]);
    assert_eq!(said(stdout, "keep"), ["4"], "{stderr}");
    assert_eq!(said(stdout, "after-keep"), ["fill"]);
    assert_eq!(stderr.matches("x.out`: No space left on device").count(), 2, "{stderr}");
}
