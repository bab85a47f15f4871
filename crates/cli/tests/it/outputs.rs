// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that are written: every command treats the same fault of its output in the same way.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::program::{deburr, deburr_after, expect, refuse, run, scratch, stderr, stdout};
use crate::repo::root;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, symlink};
use std::path::Path;

/// Every command that writes a file, with arguments that are right up to the file's name.
fn writers() -> Vec<Vec<String>> {
    let fixture = |name: &str| root().join("fixtures/syscalls").join(name).display().to_string();
    let (good, bad) = (fixture("good.json"), fixture("bad.json"));
    [
        &["diagnose", "-d1h", "-o"][..],
        &["diagnose", "-d1h", "--html"],
        &["report", "/nonexistent", "--html"],
        &["record", "-d1h", "-o"],
        &["cpu-check", "-o"],
        &["cpu-check", "--html"],
        &["snapshot", "-o"],
        &["syscalls", "--diff", &good, &bad, "-o"],
        &["sweep", "--cmd", "-o"],
        &["sweep", "--cmd", "--html"],
        &["lab", "run", "healthy", "--keep"],
        &["lab", "score", "--count", "--log", "/dev/null", "--write"],
    ]
    .iter()
    .map(|arguments| arguments.iter().map(|&argument| argument.to_owned()).collect())
    .collect()
}

/// The arguments of a writer with its file, and what has to follow.
fn to<'a>(writer: &'a [String], file: &'a str, force: bool) -> Vec<&'a str> {
    let mut arguments: Vec<&str> = writer.iter().map(String::as_str).collect();
    arguments.push(file);
    arguments.extend(force.then_some("--force"));
    if writer[0] == "sweep" {
        arguments.extend(["--", "true"]);
    }
    arguments
}

#[test]
fn a_bad_place_is_refused_before_anything_is_done() {
    let here = scratch();
    let place = |name: &str| here.path().join(name).to_str().unwrap().to_owned();
    let (taken, link, dangling, pipe) = (place("taken"), place("link"), place("loose"), place("p"));
    fs::write(&taken, "precious").unwrap();
    symlink(&taken, &link).unwrap();
    symlink(place("nothing"), &dangling).unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, fifo, 0o666.into(), 0).unwrap();
    let (lost, directory) = (place("no/x"), place(""));
    let cases: [(&str, bool, &str); 12] = [
        (&lost, false, "there is no directory"),
        (&lost, true, "there is no directory"),
        (&directory, true, "is a directory"),
        (&taken, false, "--force"),
        (&link, false, "symbolic link"),
        (&link, true, "symbolic link"),
        (&dangling, true, "symbolic link"),
        (&pipe, true, "not a regular file"),
        ("/dev/null", false, "not a regular file"),
        ("/dev/null", true, "not a regular file"),
        ("/proc/x.out", false, "cannot create"),
        ("/deburr-test.out", true, "Permission denied"),
    ];
    for writer in writers() {
        for (file, force, expected) in cases {
            let message = refuse(&to(&writer, file, force));
            assert!(message.contains(expected), "{writer:?} {file}: {message}");
            assert!(message.contains(file.trim_end_matches('/')), "{writer:?}: {message}");
            assert_eq!(message.lines().count(), 1, "{message}");
        }
    }
    assert_eq!(fs::read(&taken).unwrap(), b"precious");
    assert!(Path::new(&pipe).symlink_metadata().unwrap().file_type().is_fifo());
    assert!(Path::new("/dev/null").symlink_metadata().unwrap().file_type().is_char_device());
    assert_eq!(fs::read_dir(here.path()).unwrap().count(), 4, "nothing was left");
}

/// The limit on the size of files stands for the full disk, which only root can make.
#[test]
fn a_full_disk_is_told_before_anything_is_done() {
    let here = scratch();
    let file = here.path().join("x.out");
    let shown = file.to_str().unwrap();
    for writer in writers() {
        let output = expect(&mut deburr_after("ulimit -f 0", &to(&writer, shown, false)), 4);
        let message = stderr(&output);
        assert!(message.contains(shown) && message.contains("too large"), "{writer:?}: {message}");
        assert!(!message.contains(".deburr-"), "{message}");
        assert_eq!(fs::read_dir(here.path()).unwrap().count(), 0, "{writer:?}");
    }
}

#[test]
fn a_disk_that_fills_up_later_leaves_what_was_there() {
    let here = scratch();
    let file = here.path().join("x.out");
    let shown = file.to_str().unwrap();
    fs::write(&file, "precious").unwrap();
    // Room for what is written as a trial, and not for the document.
    let mut command = deburr_after("ulimit -f 8", &["snapshot", "--force", "-o", shown]);
    let message = stderr(&expect(&mut command, 4));
    assert!(message.contains(shown) && !message.contains(".deburr-"), "{message}");
    assert_eq!(fs::read(&file).unwrap(), b"precious");
    assert_eq!(fs::read_dir(here.path()).unwrap().count(), 1);
}

#[test]
fn what_is_written_is_for_its_owner_only_and_replaces_whole_files() {
    let here = scratch();
    let file = here.path().join("x.out");
    let shown = file.to_str().unwrap();
    let fixture = |name: &str| root().join("fixtures/syscalls").join(name).display().to_string();
    let (good, bad) = (fixture("good.json"), fixture("bad.json"));
    for arguments in [
        &["snapshot", "-o"][..],
        &["syscalls", "--diff", &good, &bad, "-o"],
        &["record", "-d0.2", "-o"],
        &["diagnose", "-d0.2", "-o"],
        &["diagnose", "-d0.2", "--html"],
        &["lab", "score", "--count", "--log", "/dev/null", "--write"],
    ] {
        fs::write(&file, "precious").unwrap();
        let old = fs::File::open(&file).unwrap();
        // The scorecard of no runs is not all right.
        let expected = i32::from(arguments[0] == "lab");
        run(&[arguments, &[shown, "--force"]].concat(), expected);
        let meta = file.metadata().unwrap();
        assert_eq!(meta.mode() & 0o777, 0o600, "{arguments:?}");
        assert_ne!(meta.ino(), old.metadata().unwrap().ino(), "{arguments:?} wrote over it");
        assert_eq!(old.metadata().unwrap().len(), 8, "{arguments:?} wrote over it");
        assert_eq!(fs::read_dir(here.path()).unwrap().count(), 1, "{arguments:?}");
    }
}

#[test]
fn an_old_recording_stays_until_the_new_one_begins() {
    let here = scratch();
    let file = here.path().join("x.deburr");
    let shown = file.to_str().unwrap();
    fs::write(&file, "precious").unwrap();
    for command in ["record", "diagnose"] {
        refuse(&[command, "--force", "-o", shown, "--", "/nonexistent/\x1b[31mcommand"]);
        assert_eq!(fs::read(&file).unwrap(), b"precious", "{command}");
    }
}

#[test]
fn standard_output_has_two_names() {
    let fixture = |name: &str| root().join("fixtures/syscalls").join(name).display().to_string();
    let (good, bad) = (fixture("good.json"), fixture("bad.json"));
    for name in ["-", "/dev/stdout"] {
        for arguments in [&["snapshot", "-o"][..], &["syscalls", "--diff", &good, &bad, "-o"]] {
            let output = run(&[arguments, &[name]].concat(), 0);
            let document: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
            assert!(document["schema"].as_str().unwrap().starts_with("deburr."));
        }
        for writer in [&["record", "-d1h"][..], &["-d1h"], &["cpu-check"]] {
            let message = refuse(&[writer, &["-o", name]].concat());
            assert!(message.contains("name a file"), "{message}");
        }
        assert!(refuse(&["lab", "run", "healthy", "--keep", name]).contains("name a file"));
    }
    assert!(!Path::new("-").exists());
}

/// Whatever a command prints: if it cannot be written, that is exit status 4.
#[test]
fn a_full_standard_output_is_told_by_every_command() {
    let fixture = |name: &str| root().join("fixtures").join(name).display().to_string();
    let (good, bad) = (fixture("syscalls/good.json"), fixture("syscalls/bad.json"));
    // The directory of the recording need not be writable for others.
    let here = scratch();
    let recording = here.path().join("x.deburr");
    fs::copy(fixture("recordings/v1/small.deburr"), &recording).unwrap();
    let recording = recording.to_str().unwrap();
    for arguments in [
        &["--help"][..],
        &["record", "--help"],
        &["--version"],
        &["-d0.2"],
        &["-d0.2", "--json"],
        &["explain", "SCH001"],
        &["report", recording],
        &["check", recording],
        &["doctor"],
        &["limits"],
        &["snapshot", "-q"],
        &["snapshot", "-q", "-o", "-"],
        &["syscalls", "--diff", &good, &bad],
        &["lab", "list"],
        &["completions", "bash"],
        &["man"],
    ] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = deburr(arguments).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(4), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("standard output"), "{arguments:?}: {}", stderr(&output));
    }
}
