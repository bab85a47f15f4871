// SPDX-License-Identifier: Apache-2.0 OR MIT
//! By which interrupt threads are told to be woken, against programs in which there is only one that can do it. A process of
//! another namespace sends without end on the CPU that serves these interrupts, to a cable that is not plugged in: it wakes
//! nobody, but is in such a call whenever one of them comes.

use crate::common;
use crate::scratch::{compiled, in_scratch, is_near, record};
use rusqlite::Connection;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How each thread is woken, and in which call it sleeps.
const EXPECTED: [(&str, &str, &str); 5] = [
    ("timeouts", "epoll_wait", "timer"),
    ("expires", "recvfrom", "kernel_timer"),
    ("polls", "poll", "timer"),
    ("receives", "recvfrom", "network"),
    ("reads", "io_getevents", "disk"),
];

/// Of the sleep of a thread, what may be told in another way: where there are too many interrupts to watch them all, it is not
/// known for a part of the time by which one it was woken.
const NOT_KNOWN: f64 = 0.3;
/// The same that may be told wrong: the first packets come at once, so that the other end's process wakes.
const OTHERWISE: f64 = 0.05;

/// A file of some megabytes on a disk, and whether it is on one that the kernel knows as a device.
fn on_disk() -> (PathBuf, bool) {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wakers");
    fs::write(&path, vec![1; 64 << 20]).unwrap();
    let device = fs::metadata(&path).unwrap().dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let is_disk = Path::new(&format!("/sys/dev/block/{major}:{minor}")).exists();
    (path, is_disk)
}

/// The kinds of the sleep in a call on that, as the report has them.
fn kinds(recording: &Path, call: &str, on: &str) -> BTreeSet<String> {
    let mut report = Command::new(env!("CARGO_BIN_EXE_deburr"));
    let output = report.args(["report", "--json"]).arg(recording).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let ledgers = report["ledger"].as_array().unwrap().iter();
    let parts = ledgers.flat_map(|it| it["asleep"].as_array().into_iter().flatten());
    let of_it = parts.filter(|it| {
        let is_on = it["on"].as_str().unwrap_or_default().starts_with(on);
        it["call"] == call && is_on && it["ns"].as_u64() > Some(100_000_000)
    });
    of_it.map(|it| it["kind"].as_str().unwrap().to_owned()).collect()
}

/// Sleep in seconds by thread, call, and what ended it, with the pid of a process that did.
type Woken = BTreeMap<(String, String, String), f64>;

fn woken(recording: &Path, pid: u32) -> (Woken, Vec<u32>) {
    let connection = Connection::open(recording).unwrap();
    let sql = "SELECT s.thread, s.call, s.woken ->> 'by', s.ns, (SELECT w.pid FROM processes w
               WHERE w.proc = s.woken ->> 'proc') FROM sleep s JOIN processes p USING (proc)
               WHERE p.pid = ? AND s.thread IS NOT NULL";
    let mut statement = connection.prepare(sql).unwrap();
    let mut rows = statement.query([pid]).unwrap();
    let (mut all, mut wakers) = (Woken::new(), vec![]);
    while let Some(row) = rows.next().unwrap() {
        let key = (row.get(0).unwrap(), row.get(1).unwrap(), row.get(2).unwrap());
        *all.entry(key).or_default() += row.get::<_, i64>(3).unwrap() as f64 / 1e9;
        wakers.extend(row.get::<_, Option<u32>>(4).unwrap());
    }
    (all, wakers)
}

#[test]
fn who_is_interrupted_wakes_nobody() {
    in_scratch("who_is_interrupted_wakes_nobody", |scratch| {
        let [program, recording, told] = ["wakers", "x.deburr", "told"].map(|it| scratch.join(it));
        assert!(compiled("wakers.c", &["-pthread"], &program), "cc");
        let (file, is_disk) = on_disk();
        let ended = record(&recording, &[]).arg(program).arg(&told).arg(file).status().unwrap();
        match ended.code() {
            Some(0) => {}
            Some(4) => return Some("a second CPU, and `ip` and `tc` with veth and tbf"),
            code => panic!("{code:?}"),
        }
        let text = fs::read_to_string(told).unwrap();
        let (first, rows) = text.split_once('\n').unwrap();
        let (pid, bystander) = first.split_once(' ').unwrap();
        let measured: BTreeMap<&str, f64> = rows
            .lines()
            .map(|row| row.split_once(' ').unwrap())
            .map(|(name, seconds)| (name, seconds.parse().unwrap()))
            .collect();
        if !is_disk {
            let of_disk = "who_is_interrupted_wakes_nobody (reads)";
            common::skip("kernel", of_disk, "the build's files are on no disk");
        }
        let (woken, wakers) = woken(&recording, pid.parse().unwrap());
        let bystander: u32 = bystander.parse().unwrap();
        assert!(!wakers.contains(&bystander), "{bystander}: {woken:#?}");
        for (thread, call, by) in
            EXPECTED.into_iter().filter(|(name, ..)| is_disk || *name != "reads")
        {
            let of_it =
                woken.iter().filter(|((name, in_call, _), _)| name == thread && in_call == call);
            let seconds: f64 = of_it.clone().map(|(_, seconds)| seconds).sum();
            assert!(
                is_near(seconds, measured[thread]),
                "{thread}: {seconds} s, {text}: {woken:#?}"
            );
            let by_kind = |is: &dyn Fn(&str) -> bool| -> f64 {
                of_it.clone().filter(|((.., by), _)| is(by)).map(|(_, seconds)| seconds).sum()
            };
            let right = by_kind(&|it| it == by);
            let not_known = by_kind(&|it| {
                ["not_known", "not_yet", "soft_interrupt", "hard_interrupt"].contains(&it)
            });
            assert!(not_known <= NOT_KNOWN * seconds, "{thread}: {woken:#?}");
            assert!(right + not_known >= (1.0 - OTHERWISE) * seconds, "{thread}: {woken:#?}");
        }
        // What was asked for did not come in time, whoever kept the time.
        let for_others = BTreeSet::from(["waits_for_others".to_owned()]);
        assert_eq!(kinds(&recording, "recvfrom", "127.0.0.1:"), for_others, "{woken:#?}");
        assert_eq!(kinds(&recording, "poll", "127.0.0.1:"), for_others, "{woken:#?}");
        assert_eq!(kinds(&recording, "epoll_wait", ""), BTreeSet::from(["own_timer".to_owned()]));
        None
    });
}
