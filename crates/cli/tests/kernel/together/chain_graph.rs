// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the root of a random graph of threads waited for, as recorded, against the critical path that follows from when each
//! thread slept and for whom, as they measured it themselves. The graph has threads of several processes, that ask each other
//! over pipes and sockets, several of them the same one, and take locks.

use super::chains::sleeps_behind;
use crate::scratch::{compiled, in_scratch, record};
use std::collections::BTreeMap;
use std::path::Path;

/// Random graphs that are tried each time.
const GRAPHS: u32 = 2;

/// Why a thread slept; the numbers of the program.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Why {
    Naps,
    WaitsFor(usize),
    WaitsForLock(usize),
    Rests,
}

/// From when until when, in seconds.
#[derive(Clone, Copy, Debug)]
struct Slept {
    start: f64,
    end: f64,
    why: Why,
}

/// A lock in the hand of a thread.
#[derive(Clone, Copy, Debug)]
struct Held {
    start: f64,
    end: f64,
    by: usize,
}

/// What the threads measured. Thread 0 is the root.
struct Measured {
    pid: u32,
    nodes: usize,
    sleeps: Vec<Vec<Slept>>,
    locks: [Vec<Held>; 2],
}

impl Measured {
    fn of(text: &str) -> Self {
        let mut lines = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let first = lines.next().unwrap();
        let number = |text: &str| text.parse::<usize>().unwrap();
        let (nodes, clients) = (number(first[1]), number(first[2]));
        let pid = first[0].parse().unwrap();
        let mut all = Self {
            pid,
            nodes,
            sleeps: vec![Vec::new(); nodes + clients],
            locks: Default::default(),
        };
        for line in lines {
            let (by, of) = (number(line[0]), number(line[2]));
            let [start, end] = [3, 4].map(|at| line[at].parse::<f64>().unwrap());
            let why = match line[1] {
                "0" => Why::Naps,
                "1" => Why::WaitsFor(of),
                "2" => Why::WaitsForLock(of),
                "3" => Why::Rests,
                _ => {
                    all.locks[of].push(Held { start, end, by });
                    continue;
                }
            };
            all.sleeps[by].push(Slept { start, end, why });
        }
        all.sleeps.iter_mut().for_each(|it| it.sort_by(|a, b| a.start.total_cmp(&b.start)));
        all.locks.iter_mut().for_each(|it| it.sort_by(|a, b| a.start.total_cmp(&b.start)));
        all
    }

    fn name(&self, thread: usize) -> String {
        match thread {
            0 => "root".into(),
            it if it < self.nodes => format!("node-{it}"),
            it => format!("client-{it}"),
        }
    }

    /// The last of the chain from that thread on which did not sleep then, or slept for a reason of its own.
    fn last(&self, thread: usize, at: f64, depth: usize) -> (usize, &'static str) {
        let sleeps = &self.sleeps[thread];
        let after = sleeps.partition_point(|it| it.start <= at);
        let asleep = after.checked_sub(1).map(|it| sleeps[it]).filter(|it| it.end > at);
        let next = match asleep.map(|it| it.why) {
            None => return (thread, "busy"),
            Some(Why::Naps) => return (thread, "naps"),
            Some(Why::Rests) => return (thread, "rests"),
            Some(Why::WaitsFor(other)) => other,
            Some(Why::WaitsForLock(lock)) => {
                let after = self.locks[lock].partition_point(|it| it.end <= at);
                match self.locks[lock].get(after) {
                    Some(held) if held.start <= at => held.by,
                    // It is being handed over.
                    Some(held) => return (held.by, "busy"),
                    None => return (thread, "rests"),
                }
            }
        };
        if depth == 8 { (next, "rests") } else { self.last(next, at, depth + 1) }
    }

    /// How long the root waited for each.
    fn behind_root(&self) -> BTreeMap<String, f64> {
        let ends = self.sleeps.iter().flatten().flat_map(|it| [it.start, it.end]);
        let held = self.locks.iter().flatten().flat_map(|it| [it.start, it.end]);
        let mut times: Vec<f64> = ends.chain(held).collect();
        times.sort_by(f64::total_cmp);
        let mut all = BTreeMap::new();
        for wait in &self.sleeps[0] {
            if matches!(wait.why, Why::Naps) {
                continue;
            }
            let from = times.partition_point(|it| *it < wait.start);
            let to = times.partition_point(|it| *it <= wait.end);
            for pair in times[from..to].windows(2) {
                let (thread, did) = self.last(0, f64::midpoint(pair[0], pair[1]), 0);
                let name = if did == "rests" { did.into() } else { self.name(thread) + " " + did };
                *all.entry(name).or_default() += pair[1] - pair[0];
            }
        }
        all
    }
}

/// The same as recorded.
fn recorded(recording: &Path, pid: u32) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    for (behind, seconds) in sleeps_behind(recording, pid, "s.call IN ('read', 'futex')") {
        let name = behind.last().map_or_else(
            || "not seen".to_owned(),
            |last| match last["did"].as_str().unwrap() {
                "on_cpu" | "queued" => format!("{} busy", last["thread"].as_str().unwrap()),
                "slept" if last["call"] == "clock_nanosleep" => {
                    format!("{} naps", last["thread"].as_str().unwrap())
                }
                "slept" => "rests".into(),
                _ => "not seen".into(),
            },
        );
        *all.entry(name).or_default() += seconds;
    }
    all
}

#[test]
fn what_a_root_waits_for_is_the_critical_path_of_a_random_graph() {
    in_scratch("what_a_root_waits_for_is_the_critical_path_of_a_random_graph", |scratch| {
        let program = scratch.join("graph");
        assert!(compiled("chain_graph.c", &["-pthread"], &program), "cc");
        let first = std::process::id();
        for seed in first..first + GRAPHS {
            try_graph(scratch, &program, seed);
        }
        None
    });
}

fn try_graph(scratch: &Path, program: &Path, seed: u32) {
    let [recording, told] = ["x.deburr", "told"].map(|name| scratch.join(name));
    let mut run = record(&recording, &[]);
    assert!(run.arg(program).arg(&told).arg(seed.to_string()).status().unwrap().success());
    let measured = Measured::of(&std::fs::read_to_string(&told).unwrap());
    let (recorded, measured) = (recorded(&recording, measured.pid), measured.behind_root());
    let [is, should] = [&recorded, &measured].map(|it| it.values().sum::<f64>());
    let all = format!("seed {seed}, {is} s of {should} s: {recorded:#?}, measured {measured:#?}");
    // A node that is asked is at rest until its CPU has left its idle state, 0.1 ms for each question; and sleeps of less than
    // a millisecond, as of a lock that is handed over, are not told one by one. Of 20 graphs the largest difference was 26 ms
    // in 1.9 s, and the median of the largest of each 13 ms.
    let slack = 0.02 * should + 0.01;
    assert!((is - should).abs() < slack, "in all: {all}");
    for name in recorded.keys().chain(measured.keys()) {
        let [is, should] = [&recorded, &measured].map(|it| it.get(name).copied().unwrap_or(0.0));
        assert!((is - should).abs() < slack, "{name}: {all}");
    }
    assert!(measured.len() > 8 && should > 1.0, "a graph that asks: {all}");
}
