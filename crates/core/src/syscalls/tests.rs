// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Documents of synthetic measurements.

use super::*;
use crate::finding::{Host, Tool};
use crate::recording::{FileClass, SyscallFile, SyscallSpan, SyscallTotal};
use crate::render::{TextStyle, json_document, syscalls_diff_text, syscalls_text};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn setup(runs: usize) -> Setup {
    let host = Host { name: "shop".into(), kernel: "6.12".into(), cpus: 4, cgroup: "v2".into() };
    let run = Run { wall_ns: 90 * MS, user_ns: 5 * MS, system_ns: 60 * MS, ..Run::default() };
    Setup {
        tool: Tool { version: "0.1.0".into() },
        host,
        start: "2026-01-01T00:00:00Z".into(),
        subject: Subject::Command { command: vec!["lscpu".into(), "\x1b[31m".into()] },
        window_ns: 90 * MS * runs as u64,
        runs: vec![Run { exit_status: Some(0), ..run }; runs],
        run_calls: vec![],
        interrupted: false,
    }
}

fn total(name: &str, calls: u64, each_ns: u64) -> SyscallTotal {
    let mut hist = vec![0; 120];
    hist[60] = calls as u32;
    let ns = calls * each_ns;
    SyscallTotal { name: name.into(), calls, ns, max_ns: each_ns, hist, ..SyscallTotal::default() }
}

fn file(path: &str, class: FileClass, reads: u64, each_ns: u64) -> SyscallFile {
    let mut file =
        SyscallFile { path: path.into(), class, complete: true, ..SyscallFile::default() };
    file.calls[1] = reads;
    file.ns[1] = reads * each_ns;
    file.max_ns = each_ns;
    file
}

fn of(runs: usize, totals: &[SyscallTotal], files: &[SyscallFile]) -> Profile {
    let span = SyscallSpan { waits_known: true, processes: 1, ..SyscallSpan::default() };
    profile(setup(runs), &span, totals, files, None)
}

const STYLE: TextStyle = TextStyle { columns: 100, color: false, verbosity: 1 };

#[test]
fn the_slow_file_stands_on_top() {
    let freq = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq";
    let files = [
        file("/proc/cpuinfo", FileClass::Proc, 3, MS),
        file(freq, FileClass::Sys, 20_000, 250_000),
        file("/proc/cpuinfo", FileClass::Proc, 1, MS),
    ];
    let it = of(1, &[total("read", 20_004, 250_000), total("openat", 40, 2000)], &files);
    assert_eq!(it.files[0].path, freq);
    assert_eq!((it.files[0].calls, it.files[0].mean_ns), (20_000, 250_000));
    assert_eq!((it.files.len(), it.files[1].calls), (2, 4), "the same path is one file");
    assert_eq!(it.syscalls[0].name, "read");
    assert!(it.syscalls[0].p99_ns.is_some() && it.syscalls[1].p99_ns.is_none());
    let text = syscalls_text(&it, STYLE);
    let first = text.lines().find(|line| line.contains("cpufreq")).unwrap();
    assert!(first.contains("5.0 s") && first.contains("20 000"), "{text}");
    assert!(!text.contains('\x1b'), "names are hostile");
}

#[test]
fn what_has_no_row_is_summed() {
    let span = SyscallSpan {
        beyond_calls: 5,
        beyond_ns: 50,
        unread_calls: 1,
        unread_ns: 7,
        ..SyscallSpan::default()
    };
    let files: Vec<_> =
        (0..1003).map(|i| file(&format!("/f{i}"), FileClass::Ordinary, 1, 10_000 - i)).collect();
    let it = profile(setup(1), &span, &[], &files, None);
    assert_eq!((it.files.len(), it.more_files.files, it.more_files.calls), (1000, 3, 9));
    let all: u64 = it.files.iter().map(|row| row.times.total_ns).sum::<u64>() + it.more_files.ns;
    assert_eq!(all, files.iter().map(SyscallFile::all_ns).sum::<u64>() + 57);
}

#[test]
fn runs_are_shown_with_their_spread() {
    let mut setup = setup(2);
    setup.runs[1].wall_ns = 190 * MS;
    setup.runs[1].exit_status = None;
    setup.runs[1].signal = Some(9);
    setup.run_calls =
        vec![[("read".to_owned(), (10, 100))].into(), [("read".to_owned(), (14, 90))].into()];
    let span = SyscallSpan::default();
    let it = profile(setup, &span, &[total("read", 24, 8)], &[], None);
    let spread = Spread { calls_min: 10, calls_max: 14, ns_min: 90, ns_max: 100 };
    assert_eq!(it.syscalls[0].spread, Some(spread));
    let text = syscalls_text(&it, STYLE).replace("\n    ", " ");
    assert!(text.contains("wall 140 ms (90 ms to 190 ms)"), "{text}");
    assert!(text.contains("exit status 0, then killed by signal 9"), "{text}");
    assert!(text.contains("10-14"), "{text}");
}

#[test]
fn a_difference_is_ordered_by_the_seconds_it_explains() {
    let a = of(1, &[total("read", 20, 5000), total("openat", 10, 1000), total("old", 1, 10)], &[]);
    let slow = [file("/sys/x", FileClass::Sys, 20_000, 250_000)];
    // Twice the runs: means per run are compared.
    let b = of(
        2,
        &[total("read", 40_000, 250_000), total("openat", 20, 900_000), total("new", 2, 500)],
        &slow,
    );
    let it = Difference::new(&a, &b, "0.1.0");
    let names: Vec<_> = it.syscalls.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["read", "openat", "new", "old"]);
    let kinds: Vec<_> = it.syscalls.iter().map(|row| row.kind).collect();
    assert_eq!(kinds, [ChangeKind::Cost, ChangeKind::Cost, ChangeKind::New, ChangeKind::Gone]);
    for row in &it.syscalls {
        assert!((row.by_count_s + row.by_cost_s - row.seconds).abs() < 1e-9, "{row:?}");
    }
    assert_eq!((it.syscalls[0].calls_b, it.syscalls[0].mean_ns_b), (20_000.0, 250_000));
    assert_eq!(it.files[0].kind, ChangeKind::New);
    let text = syscalls_diff_text(&it, STYLE);
    assert!(text.contains("/sys/x (only in B)"), "{text}");
    assert_eq!(Difference::new(&a, &a, "0.1.0").syscalls, []);
}

#[test]
fn a_document_is_read_back_and_another_one_is_refused() {
    let it = of(1, &[total("read", 2000, 5000)], &[file("/a\x1b", FileClass::Unknown, 1, 1)]);
    let text = json_document(&it).unwrap();
    assert_eq!(Profile::parse(&text).unwrap(), it);
    for (bad, word) in [
        ("", "not JSON"),
        (&text[..text.len() / 2], "cut off"),
        ("[]", "no document"),
        (r#"{"schema": "deburr.report/1"}"#, "deburr.report/1"),
        (r#"{"schema": "deburr.syscalls/1"}"#, "missing field"),
    ] {
        let error = Profile::parse(bad).unwrap_err();
        assert!(error.contains(word), "{error}");
    }
}

proptest! {
    #[test]
    fn seconds_are_explained_wholly(a in 0..1000u64, b in 0..1000u64, ns_a in 1..1_000_000u64, ns_b in 1..1_000_000u64) {
        let (one, two) = (of(1, &[total("read", a, ns_a)], &[]), of(1, &[total("read", b, ns_b)], &[]));
        let it = Difference::new(&one, &two, "0");
        let sum: f64 = it.syscalls.iter().map(|row| row.by_count_s + row.by_cost_s).sum();
        prop_assert!((sum - ((b * ns_b) as f64 - (a * ns_a) as f64) / 1e9).abs() < 1e-6);
        prop_assert!(!syscalls_diff_text(&it, STYLE).is_empty());
    }
}
