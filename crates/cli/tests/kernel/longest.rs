// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The longest waits for a CPU, as recorded, against what the waiting thread saw of them itself: the gaps between two
//! readings of the clock.

use crate::cgroups::Nested;
use crate::common;
use rusqlite::Connection;
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Where the watcher writes its gaps to.
const WATCH: &str = "DEBURR_TEST_WATCH";
/// How long it watches.
const WATCHED: Duration = Duration::from_millis(3500);
/// Shorter gaps are no waits that are told.
const MIN_GAP_NS: u64 = 1_000_000;

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap()
}

/// How long this thread has waited in run queues, as the kernel counts it, and how often it has got a CPU.
fn delayed() -> (u64, u64) {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let mut numbers = text.split_whitespace().skip(1).map(|number| number.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

/// Not a test itself: the thread that waits. It reads the clock all the time, and notes when it could not: end and length
/// of each gap, and how much of it the kernel counts as waiting. Passes at once without [`WATCH`].
#[test]
fn be_a_watcher_if_told() {
    let Ok(path) = std::env::var(WATCH) else { return };
    let (begin, begin_ns, mut gaps) = (Instant::now(), now_ns(), String::new());
    let (mut last_ns, (mut last_delayed_ns, mut last_turns)) = (begin_ns, delayed());
    while begin.elapsed() < WATCHED {
        let at_ns = now_ns();
        if at_ns - last_ns >= MIN_GAP_NS {
            let (delayed_ns, turns) = delayed();
            let since = [at_ns - last_ns, delayed_ns - last_delayed_ns, turns - last_turns];
            let [length_ns, new_delayed_ns, new_turns] = since;
            gaps += &format!("{at_ns} {length_ns} {new_delayed_ns} {new_turns}\n");
            (last_delayed_ns, last_turns) = (delayed_ns, turns);
        }
        last_ns = at_ns;
    }
    fs::write(
        path,
        format!("{begin_ns} {last_ns} {} 0\n{gaps}", rustix::thread::gettid().as_raw_nonzero()),
    )
    .unwrap();
}

/// Killed on drop.
struct Spinner(Child);

impl Drop for Spinner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_longest_waits_are_those_that_the_victim_saw() {
    common::tried(
        "kernel",
        "the_longest_waits_are_those_that_the_victim_saw",
        try_the_longest_waits_are_those_that_the_victim_saw,
    );
}

fn try_the_longest_waits_are_those_that_the_victim_saw() {
    const TEST: &str = "the_longest_waits_are_those_that_the_victim_saw";
    if !common::root_or_skip("kernel", TEST) {
        return;
    }
    let nested = match Nested::make() {
        Ok(nested) => nested,
        Err(reason) => return common::skip("kernel", TEST, &reason),
    };
    let scratch = tempfile::tempdir().unwrap();
    let recording = scratch.path().join("x.deburr");
    // Beside a spinner on the same CPU it has used up 30 ms after about 60 of 100.
    for quota_us in [30_000, 1_000_000] {
        nested.set_quota(quota_us);
        let spinner =
            Command::new("taskset").args(["-c", "0", "sh", "-c", "while :; do :; done"]).spawn();
        let spinner = Spinner(spinner.unwrap());
        let seen = watch(&nested.dirs()[2], &recording, scratch.path());
        let neighbour = spinner.0.id();
        drop(spinner);
        compare(&recording, &seen, neighbour, quota_us == 30_000);
    }
}

/// What the watcher saw: from when until when it looked, and its gaps.
struct Seen {
    from_ns: u64,
    to_ns: u64,
    /// The thread that watched: its process has another one, which waits too.
    tid: u64,
    gaps: Vec<Gap>,
}

/// A time in which the watcher did not run, and what the kernel counts of it (and of shorter ones before) as waiting in
/// a run queue.
#[derive(Debug)]
struct Gap {
    end_ns: u64,
    length_ns: u64,
    delayed_ns: u64,
    /// How often it has got the CPU since the gap before.
    turns: u64,
}

/// Records the watcher in that cgroup on CPU 0.
fn watch(cgroup: &Path, recording: &Path, scratch: &Path) -> Seen {
    let noted = scratch.join("gaps");
    let script = "echo $$ > \"$0\" && exec taskset -c 0 \"$@\"";
    let mut record = Command::new(env!("CARGO_BIN_EXE_deburr"));
    record.args(["record", "-q", "--force", "-o"]).arg(recording).args(["--", "sh", "-c", script]);
    record.arg(cgroup.join("cgroup.procs")).arg(std::env::current_exe().unwrap());
    record.args(["--exact", "longest::be_a_watcher_if_told", "--nocapture"]);
    record.env(WATCH, &noted).stdin(Stdio::null()).stdout(Stdio::null());
    assert!(record.status().unwrap().success());
    let text = fs::read_to_string(noted).unwrap();
    let mut lines = text.lines().map(|line| {
        let mut numbers = line.split(' ').map(|number| number.parse::<u64>().unwrap());
        [(); 4].map(|()| numbers.next().unwrap())
    });
    let [from_ns, to_ns, tid, _] = lines.next().unwrap();
    let gaps = lines.map(|[end_ns, length_ns, delayed_ns, turns]| Gap {
        end_ns,
        length_ns,
        delayed_ns,
        turns,
    });
    Seen { from_ns, to_ns, tid, gaps: gaps.collect() }
}

/// A wait as recorded: end in the monotonic clock, length, throttled time, time behind the neighbour and behind other processes of
/// the host, sum of all parts.
#[derive(Debug, Default)]
struct Told {
    end_ns: u64,
    wait_ns: u64,
    throttled_ns: u64,
    behind_ns: u64,
    others_ns: u64,
    parts_ns: u64,
}

fn compare(recording: &Path, watched: &Seen, neighbour: u32, throttled: bool) {
    let connection = Connection::open(recording).unwrap();
    let start = connection.query_row("SELECT start_mono_ns FROM meta", [], |row| row.get(0));
    let start_ns: i64 = start.unwrap();
    let sql = "SELECT w.t_ns, w.wait_ns, sum(iif(w.culprit = -3, w.ns, 0)), sum(iif(c.pid = ?1, w.ns, 0)),
                      sum(iif(c.pid != ?1, w.ns, 0)), sum(w.ns)
               FROM long_wait w JOIN processes v ON v.proc = w.victim LEFT JOIN processes c ON c.proc = w.culprit
               WHERE v.comm LIKE 'kernel-%' AND w.tid = ?2 GROUP BY w.t_ns, w.tid, w.wait_ns";
    let mut statement = connection.prepare(sql).unwrap();
    let told = statement.query_map([i64::from(neighbour), watched.tid.cast_signed()], |row| {
        let ns = |at| row.get::<_, i64>(at).map(|ns| u64::try_from(ns).unwrap());
        Ok(Told {
            end_ns: u64::try_from(start_ns).unwrap() + ns(0)?,
            wait_ns: ns(1)?,
            throttled_ns: ns(2)?,
            behind_ns: ns(3)?,
            others_ns: ns(4)?,
            parts_ns: ns(5)?,
        })
    });
    let told: Vec<Told> = told.unwrap().map(Result::unwrap).collect();
    // Of each second the longest wait is told, which may be one from before it watched.
    let longest_ns = told.iter().map(|wait| wait.wait_ns).max().unwrap_or(0);
    let Seen { from_ns, to_ns, gaps, .. } = watched;
    // It also waits while it begins and ends.
    let told: Vec<Told> = told
        .into_iter()
        .filter(|it| it.end_ns - it.wait_ns > *from_ns && it.end_ns < *to_ns)
        .collect();
    assert!(told.len() >= 2, "about one for each second: {told:?}");
    for wait in &told {
        // Interrupts and the hypervisor lengthen a gap, but not the wait. Where threads are throttled one by one, a thread
        // gets the CPU in order to be stopped, which ends one wait of some milliseconds, and another begins.
        let more_ns = if throttled { 12_000_000 } else { wait.wait_ns / 20 };
        // What ran in the kernel only, before it was preempted again, saw no end of its gap: that has several waits.
        let seen = gaps.iter().any(|&Gap { end_ns, length_ns, turns, .. }| {
            end_ns.abs_diff(wait.end_ns) < 1_000_000
                && length_ns + 300_000 > wait.wait_ns
                && (turns > 1 || length_ns < wait.wait_ns + 300_000 + more_ns)
        });
        let near: Vec<_> =
            gaps.iter().filter(|gap| gap.end_ns.abs_diff(wait.end_ns) < 200_000_000).collect();
        assert!(seen, "{wait:?} is none of {near:?}");
        assert!(wait.parts_ns <= wait.wait_ns, "{wait:?}");
        // Others of the host may take their turn on the CPU.
        let known_ns = wait.throttled_ns + wait.behind_ns + wait.others_ns;
        assert!(known_ns > wait.wait_ns * 8 / 10, "behind the neighbour and its quota: {wait:?}");
        assert_eq!(wait.throttled_ns > 0, throttled, "{wait:?}");
        assert!(!throttled || wait.throttled_ns > wait.wait_ns / 2, "{wait:?}");
    }
    let sum = |of: fn(&Told) -> u64| told.iter().map(of).sum::<u64>();
    assert!(sum(|it| it.behind_ns) > sum(|it| it.others_ns), "the neighbour most of all: {told:?}");
    // The kernel does not count throttled time as waiting; without a quota, a gap that it does not count was the hypervisor's.
    let felt_ns =
        |gap: &Gap| if throttled { gap.length_ns } else { gap.delayed_ns.min(gap.length_ns) };
    let longest_gap_ns = gaps.iter().map(felt_ns).max().unwrap_or(0);
    assert!(longest_ns >= longest_gap_ns * 8 / 10, "{longest_ns} of {longest_gap_ns} ns");
}
