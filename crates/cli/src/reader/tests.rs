// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads that do not end, and what comes of that for others.

use super::given_up::{About, Ledger};
use super::{NotRead, Reader};
use crate::collect::fixture::Host;
use crate::files::Inquiry;
use crate::snapshot::Limits;
use deburr_core::recording::DevId;
use deburr_core::snapshot::Value;
use std::fs;
use std::time::Duration;

/// A process of that user whose command line is a FIFO: opening it waits for its other end, which never comes.
fn endless(host: &Host, pid: u32, user: u32) {
    host.process(pid, "endless");
    host.write(&format!("proc/{pid}/comm"), "endless\n");
    host.write(&format!("proc/{pid}/status"), format!("Uid:\t{user}\t{user}\t{user}\t{user}\n"));
    let file = host.path(&format!("proc/{pid}/cmdline"));
    fs::remove_file(&file).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, file, 0o600.into()).unwrap();
}

#[test]
fn a_read_that_does_not_end_is_given_up_and_others_are_answered() {
    let host = Host::empty();
    endless(&host, 7, 1000);
    host.process(8, "free");
    let reader = Reader::default();
    let line = |pid| reader.command_line(&host.roots, pid, 256);
    assert_eq!(line(8), Ok(Some("free".into())));
    assert_eq!(line(7), Err(NotRead::Stuck));
    assert_eq!(line(7), Err(NotRead::Stuck), "it is not asked about again");
    assert_eq!(line(8), Ok(Some("free".into())), "by a new reader");
    assert_eq!(line(9), Ok(None), "there is no such process");
    let said = reader.given_up().unwrap();
    assert_eq!(said, "reading the program, environment or memory of `endless` (pid 7) did not end");
}

#[test]
fn a_snapshot_is_one_of_the_answers_or_why_there_is_none() {
    let host = Host::empty();
    host.write("proc/sys/vm/swappiness", "60\n");
    let taken = super::snapshot(host.path(""), Limits::default(), true).unwrap().unwrap();
    assert_eq!(taken.fact("/proc/sys/vm/swappiness").unwrap().value, Value::integer(60));
    let refused = super::snapshot(host.path("none"), Limits::default(), true).unwrap().unwrap_err();
    assert!(refused.contains("No such file"), "{refused}");
}

/// A ledger in which these processes of these users were given up.
fn ledger(host: &Host, given_up: &[(u32, u32)]) -> Ledger {
    let mut ledger = Ledger::default();
    for &(pid, user) in given_up {
        endless(host, pid, user);
        assert_eq!(ledger.may_ask(&host.roots, About::Process(pid)), Ok(()), "{pid} of {user}");
        let took = Duration::from_millis(500);
        ledger.note(&host.roots, About::Process(pid), took, Some(NotRead::Stuck));
    }
    ledger
}

#[test]
fn who_holds_up_reads_is_left_alone_and_others_are_not() {
    let host = Host::empty();
    let mut ledger = ledger(&host, &[(1, 1000), (2, 1000), (3, 1000), (4, 1000)]);
    endless(&host, 5, 1000);
    endless(&host, 6, 1001);
    assert_eq!(ledger.may_ask(&host.roots, About::Process(5)), Err(NotRead::NotTried));
    assert_eq!(ledger.may_ask(&host.roots, About::Process(6)), Ok(()));
    let said = ledger.text().unwrap();
    assert!(said.contains("`endless` (pid 4)"), "{said}");
    assert!(said.contains("1 process of users whose processes held up such reads"), "{said}");
}

#[test]
fn only_so_many_reads_are_given_up_whoever_asks_for_it() {
    let host = Host::empty();
    let all: Vec<(u32, u32)> = (0..16).map(|at| (at + 1, 1000 + at / 4)).collect();
    let mut ledger = ledger(&host, &all);
    endless(&host, 50, 5000);
    assert_eq!(ledger.may_ask(&host.roots, About::Process(50)), Err(NotRead::NotTried));
    assert!(ledger.text().unwrap().contains("12 more"));
}

#[test]
fn slow_reads_are_paid_for_by_their_user() {
    let host = Host::empty();
    let mut ledger = Ledger::default();
    for pid in [1, 2, 3] {
        endless(&host, pid, if pid == 3 { 1001 } else { 1000 });
    }
    ledger.note(&host.roots, About::Process(1), Duration::from_secs(6), None);
    assert_eq!(ledger.may_ask(&host.roots, About::Process(2)), Err(NotRead::NotTried));
    assert_eq!(ledger.may_ask(&host.roots, About::Process(3)), Ok(()));
    // What is quick costs nothing, however often it is asked for.
    for _ in 0..10_000 {
        ledger.note(&host.roots, About::Process(3), Duration::from_millis(1), None);
    }
    assert_eq!(ledger.may_ask(&host.roots, About::Process(3)), Ok(()));
}

#[test]
fn a_filesystem_that_does_not_answer_rests_and_is_named() {
    let host = Host::empty();
    let mut ledger = Ledger::default();
    let of = |minor| Inquiry::nowhere(DevId { major: 7, minor });
    let (silent, other) = (of(0), of(1));
    let took = Duration::from_millis(500);
    assert_eq!(ledger.may_ask(&host.roots, About::Files(&silent)), Ok(()));
    ledger.note(&host.roots, About::Files(&silent), took, Some(NotRead::Stuck));
    assert_eq!(ledger.may_ask(&host.roots, About::Files(&silent)), Err(NotRead::NotTried));
    assert_eq!(ledger.may_ask(&host.roots, About::Files(&other)), Ok(()));
    // A disk may be slow.
    ledger.note(&host.roots, About::Files(&other), took, None);
    assert_eq!(ledger.may_ask(&host.roots, About::Files(&other)), Ok(()));
    let said = ledger.filesystems_text().unwrap();
    assert!(said.starts_with("looking up files of 7:0 did not end"), "{said}");
    assert_eq!(ledger.text(), None, "that is not about processes");
}

#[test]
fn a_reader_that_cannot_be_started_is_nobodys_fault() {
    let host = Host::empty();
    endless(&host, 1, 1000);
    let mut ledger = Ledger::default();
    for _ in 0..10 {
        let process = About::Process(1);
        assert_eq!(ledger.may_ask(&host.roots, process), Ok(()));
        ledger.note(&host.roots, process, Duration::ZERO, Some(NotRead::NotStarted));
    }
    let said = ledger.text().unwrap();
    assert!(said.contains("could not be started, so 10 questions were not asked"), "{said}");
    assert!(!said.contains("endless"), "{said}");
}
