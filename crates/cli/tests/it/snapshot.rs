// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr snapshot`: what it writes, what it leaves out, and what it refuses.

use crate::program::{deburr, expect, run, scratch, stderr, stdout};
use deburr_core::snapshot::{Snapshot, Value};
use std::collections::BTreeSet;
use std::fs;

fn snapshot(arguments: &[&str]) -> Snapshot {
    let output = run(&[&["snapshot"], arguments].concat(), 0);
    Snapshot::parse(&output.stdout).unwrap()
}

/// Keys of the compared facts that differ between two snapshots.
fn changed(a: &Snapshot, b: &Snapshot) -> BTreeSet<String> {
    let compared = |snapshot: &Snapshot| {
        let facts = snapshot.facts.iter().filter(|fact| fact.class.is_compared());
        facts.map(|fact| (fact.key.clone(), fact.value.clone())).collect::<BTreeSet<_>>()
    };
    let (a, b) = (compared(a), compared(b));
    a.symmetric_difference(&b).map(|(key, _)| key.clone()).collect()
}

#[test]
fn this_host_is_told_in_a_small_file() {
    let scratch = scratch();
    let file = scratch.path().join("host.json");
    let output = run(&["snapshot", "-o", file.to_str().unwrap()], 0);
    assert_eq!(stdout(&output), "");
    assert!(stderr(&output).contains("facts"), "{}", stderr(&output));
    let document = fs::read(&file).unwrap();
    assert!(document.len() < 1_000_000, "{} bytes", document.len());
    let taken = Snapshot::parse(&document).unwrap();
    assert_eq!(taken.host.kernel, rustix::system::uname().release().to_str().unwrap());
    let release = taken.fact("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(release.value, Value::text(taken.host.kernel.clone()));
    assert!(matches!(taken.fact("/proc/sys/vm/swappiness").unwrap().value, Value::Integer(_)));
    let known =
        taken.facts.iter().filter(|fact| fact.value.is_known() && fact.value != Value::Absent);
    let (known, files) = (known.count(), taken.reading.files);
    assert!(known > 300 && files > 1000, "{known} facts of {files} files");
    assert!(taken.reading.median_ns > 0 && taken.reading.median_ns < taken.reading.took_ns);
}

#[test]
fn nothing_that_is_compared_changes_by_itself() {
    // Another test may change a setting of this host meanwhile, but not in every round.
    let mut changes: Option<BTreeSet<String>> = None;
    let mut before = snapshot(&[]);
    for _ in 0..3 {
        let after = snapshot(&[]);
        let changed = changed(&before, &after);
        changes = Some(match changes {
            None => changed,
            Some(known) => known.intersection(&changed).cloned().collect(),
        });
        before = after;
    }
    assert_eq!(changes, Some(BTreeSet::new()));
}

#[test]
fn the_name_of_the_host_stays_out_if_it_is_to() {
    let name = rustix::system::uname().nodename().to_str().unwrap().to_owned();
    assert_eq!(snapshot(&[]).host.name, Some(name));
    assert_eq!(snapshot(&["--redact"]).host.name, None);
    let scratch = scratch();
    let write = |path: &str, text: &str| {
        let path = scratch.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("proc/sys/kernel/hostname", "db-7.example.org\n");
    write("proc/cmdline", "foo=db-7 rd.iscsi.password=hunter2 ip=10.9.8.7 -- --token=init\n");
    write("proc/self/mountinfo", "1 0 8:2 / /srv/db-7 rw - nfs filer:/db-7 rw,addr=10.9.8.6\n");
    let output = run(&["snapshot", "--redact", "--root", scratch.path().to_str().unwrap()], 0);
    let text = stdout(&output);
    for secret in ["db-7", "example.org", "hunter2", "10.9.8", "filer", "--token"] {
        assert!(!text.contains(secret), "{secret}");
    }
    assert!(text.contains("/srv/(host)"));
}

#[test]
fn files_are_replaced_only_if_asked_and_never_half() {
    let scratch = scratch();
    let file = scratch.path().join("host.json");
    let path = file.to_str().unwrap();
    fs::write(&file, "mine").unwrap();
    let message = stderr(&run(&["snapshot", "-o", path], 2));
    assert!(message.contains("exists") && message.contains("--force"), "{message}");
    assert_eq!(fs::read(&file).unwrap(), b"mine");
    run(&["snapshot", "-q", "-o", path, "--force"], 0);
    Snapshot::parse(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1, "no temporary file is left");
}

#[test]
fn trees_that_are_none_are_refused() {
    let message = stderr(&run(&["snapshot", "--root", "/no-such\x1b[31m"], 2));
    assert!(message.contains("/no-such\\x1b[31m"), "{message}");
    let message = stderr(&run(&["snapshot", "--root", "/dev/null"], 2));
    assert!(message.contains("cannot read the tree at `/dev/null`"), "{message}");
}

#[test]
fn a_reader_of_the_output_may_leave() {
    let mut command = deburr(&["snapshot", "-q"]);
    let (ours, theirs) = std::io::pipe().unwrap();
    drop(ours);
    command.stdout(theirs);
    expect(&mut command, 0);
}
