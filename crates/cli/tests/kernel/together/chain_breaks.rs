// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Chains whose links come to an end while they are waited for: what was waited for is told, of whoever it was, and of nobody
//! else.

use super::chains::sleeps_behind;
use crate::lab::until;
use crate::scratch::{compiled, in_scratch, is_near, record};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// What the times of the program are drawn from.
fn seed() -> u32 {
    std::process::id()
}

/// What the program told of itself. Times in seconds.
#[derive(Debug)]
struct Told {
    pid: u32,
    waited: f64,
    napped: f64,
    computed: f64,
    rounds: u32,
}

/// A recording of the program in that mode; `None` = this kernel does not let it.
fn recorded(scratch: &Path, mode: &str) -> Option<(PathBuf, Told)> {
    recorded_while(scratch, mode, |_| {})
}

/// `meanwhile` = what is done with deburr's process while it records.
fn recorded_while(
    scratch: &Path,
    mode: &str,
    meanwhile: impl Fn(&Child),
) -> Option<(PathBuf, Told)> {
    let [program, recording, told] = ["breaks", "x.deburr", "told"].map(|it| scratch.join(it));
    assert!(compiled("chain_breaks.c", &["-pthread"], &program), "cc");
    let mut run = record(&recording, &[]);
    let mut run = run.arg(program).arg(mode).arg(&told).arg(seed().to_string()).spawn().unwrap();
    meanwhile(&run);
    let status = run.wait().unwrap();
    if status.code() == Some(2) {
        return None;
    }
    assert!(status.success(), "{status}");
    let text = std::fs::read_to_string(told).unwrap();
    let mut words = text.split_whitespace();
    let mut next = || words.next().unwrap();
    let told = Told {
        pid: next().parse().unwrap(),
        waited: next().parse().unwrap(),
        napped: next().parse().unwrap(),
        computed: next().parse().unwrap(),
        rounds: next().parse().unwrap(),
    };
    Some((recording, told))
}

/// The sleep of the thread that waits in that call, in seconds: by the names of the threads of the chain, and by what the first
/// of them did.
fn chains(recording: &Path, pid: u32, call: &str) -> BTreeMap<(String, String), f64> {
    let is_so = format!("s.call = '{call}' AND coalesce(s.thread, '') != 'link'");
    let mut all = BTreeMap::new();
    for (behind, seconds) in sleeps_behind(recording, pid, &is_so) {
        let names: Vec<&str> = behind.iter().map(|it| it["thread"].as_str().unwrap()).collect();
        let did = behind.first().map_or("", |first| first["did"].as_str().unwrap());
        *all.entry((names.join(" < "), did.to_owned())).or_default() += seconds;
    }
    all
}

/// Sum of the chains whose names and first deed are so.
fn sum(chains: &BTreeMap<(String, String), f64>, is_it: impl Fn(&str, &str) -> bool) -> f64 {
    chains.iter().filter(|((names, did), _)| is_it(names, did)).map(|(_, seconds)| seconds).sum()
}

fn renders(recording: &Path) {
    for more in [&[][..], &["--json"]] {
        let mut report = Command::new(env!("CARGO_BIN_EXE_deburr"));
        let output = report.arg("report").args(more).arg(recording).output().unwrap();
        assert!(output.status.success() && !output.stdout.is_empty(), "{output:?}");
    }
}

/// `names` = of whom chains may consist.
fn try_links(scratch: &Path, mode: &str, call: &str, names: &[&str]) {
    let (recording, told) = recorded(scratch, mode).unwrap();
    let chains = chains(&recording, told.pid, call);
    let all = format!("seed {}, {told:?}: {chains:#?}", seed());
    assert!(told.rounds > 20, "{all}");
    assert!(is_near(sum(&chains, |_, _| true), told.waited), "the whole wait: {all}");
    // Of who ended a moment before the last look, nobody knows the name: one round of 20 in a second.
    let is_named = |it: &str| it.split(" < ").all(|name| names.contains(&name));
    let is_unnamed = |it: &str| it.split(" < ").any(str::is_empty);
    let others = sum(&chains, |it, _| !is_named(it) && !is_unnamed(it));
    assert!(others == 0.0, "somebody else: {all}");
    assert!(sum(&chains, |it, _| is_unnamed(it)) < 0.1 * told.waited, "unnamed: {all}");
    // What it was in the moment in which it ended: not all of a round, but of each round a little.
    let not_seen = sum(&chains, |_, did| did.is_empty() || did == "not_seen");
    assert!(not_seen < 0.05 * told.waited, "not seen: {all}");
    // Of each of some 500 naps, what is done between two readings of a clock; and the last one's wait for a CPU.
    let slack = 0.03 * told.waited + 0.02 + not_seen;
    let slept = sum(&chains, |_, did| did == "slept");
    assert!((slept - told.napped).abs() < slack, "napped: {all}");
    let awake = sum(&chains, |_, did| matches!(did, "on_cpu" | "queued"));
    assert!((awake - told.computed).abs() < slack, "computed: {all}");
    renders(&recording);
}

/// Whoever ended its last nap is the next of the chain.
#[test]
fn who_is_killed_is_what_was_waited_for() {
    in_scratch("who_is_killed_is_what_was_waited_for", |scratch| {
        try_links(scratch, "killed", "read", &["link", "killer"]);
        None
    });
}

#[test]
fn who_exits_is_what_was_waited_for() {
    in_scratch("who_exits_is_what_was_waited_for", |scratch| {
        try_links(scratch, "exits", "read", &["link"]);
        None
    });
}

/// A process has one name, and what it did before it executed a program is told with the name that it has since.
#[test]
fn who_executes_a_program_is_what_was_waited_for_before_and_after() {
    in_scratch("who_executes_a_program_is_what_was_waited_for_before_and_after", |scratch| {
        try_links(scratch, "executes", "read", &["link", "another", "exe"]);
        None
    });
}

#[test]
fn who_ends_with_a_lock_in_hand_is_what_was_waited_for() {
    in_scratch("who_ends_with_a_lock_in_hand_is_what_was_waited_for", |scratch| {
        try_links(scratch, "lock", "futex", &["link"]);
        None
    });
}

/// The first one computes and ends, and the second one naps: it is not blamed for what it did not compute.
#[test]
fn who_has_the_pid_of_another_one_has_not_done_what_that_one_did() {
    in_scratch("who_has_the_pid_of_another_one_has_not_done_what_that_one_did", |scratch| {
        let Some((recording, told)) = recorded(scratch, "pid") else {
            return Some("no process may choose its pid here");
        };
        let chains = chains(&recording, told.pid, "read");
        let all = format!("seed {}, {told:?}: {chains:#?}", seed());
        assert!(is_near(sum(&chains, |_, _| true), told.waited), "{all}");
        let slept = sum(&chains, |it, did| it == "second" && did == "slept");
        assert!(is_near(slept, told.napped), "{all}");
        let awake = sum(&chains, |_, did| matches!(did, "on_cpu" | "queued"));
        assert!(awake < 0.1 * told.computed, "blamed for another one: {all}");
        renders(&recording);
        None
    });
}

/// Stops deburr while a crowd sleeps so often that the logs of sleeps and the rings of runs are overwritten.
fn stop_while_crowded(scratch: &Path, deburr: &Child) {
    let file = |what: &str| scratch.join(format!("told.{what}"));
    let pid = Pid::from_child(deburr);
    until("it is waited for", || file("begun").exists());
    kill_process(pid, Signal::STOP).unwrap();
    std::fs::write(file("stopped"), "").unwrap();
    until("the crowd has slept", || file("crowded").exists());
    kill_process(pid, Signal::CONT).unwrap();
}

#[test]
fn what_is_lost_is_not_seen_and_nobodys_fault() {
    in_scratch("what_is_lost_is_not_seen_and_nobodys_fault", |scratch| {
        let stop = |deburr: &Child| stop_while_crowded(scratch, deburr);
        let (recording, told) = recorded_while(scratch, "lost", stop).unwrap();
        let chains = chains(&recording, told.pid, "read");
        let all = format!("seed {}, {told:?}: {chains:#?}", seed());
        let lost = lost(&recording);
        assert!(lost > 1000, "{lost} sleeps were lost: {all}");
        assert!(is_near(sum(&chains, |_, _| true), told.waited), "the whole wait: {all}");
        assert_eq!(sum(&chains, |it, _| !matches!(it, "link" | "")), 0.0, "somebody else: {all}");
        // The crowd was there for 0.6 s, of which the logs have the end.
        let not_seen = sum(&chains, |_, did| did.is_empty() || did == "not_seen");
        assert!(not_seen > 0.3, "it tells what it has not seen: {all}");
        let slack = 0.05 * told.waited + 0.02;
        let slept = sum(&chains, |_, did| did == "slept");
        assert!(slept < told.napped + slack, "it did not nap so long: {all}");
        let awake = sum(&chains, |_, did| matches!(did, "on_cpu" | "queued"));
        assert!(awake < told.computed + slack, "it did not compute so long: {all}");
        renders(&recording);
        None
    });
}

/// Records of sleeps that the report counts as lost.
fn lost(recording: &Path) -> u64 {
    let mut report = Command::new(env!("CARGO_BIN_EXE_deburr"));
    let output = report.args(["report", "--json"]).arg(recording).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["observer"]["lost_detail"]["sleeps_overrun"].as_u64().unwrap_or_default()
}
