// SPDX-License-Identifier: Apache-2.0 OR MIT
//! For each claim a case in which what goes with it is there, and is not it.

use super::super::{Document, Given, Weight};
use super::{assert_whole, cpus, number, one, read, said};
use std::fmt::Write as _;

fn none(document: &Document, name: &str) {
    let found = document.statements.iter().find(|it| it.name == name && it.weight == Weight::Found);
    assert!(found.is_none(), "{found:#?}");
}

fn vmstat(rows: &[(u32, u32)]) -> String {
    let mut text = "r b swpd free buff cache si so bi bo in cs us sy id wa st\n0 0 0 0 0 0 0 0 0 0 0 0 1 1 98 0 0\n".to_owned();
    for (runnable, idle) in rows {
        let busy = 100 - idle;
        writeln!(text, "{runnable} 0 0 0 0 0 0 0 0 0 9 9 {busy} 0 {idle} 0 0").unwrap();
    }
    text
}

#[test]
fn many_runnable_tasks_without_idle_time_are_no_bursts() {
    let document = read(&[("f", &vmstat(&[(9, 0), (8, 1), (11, 0), (7, 2)]))], cpus(4));
    none(&document, "runnable-bursts");
    assert!(said(&document, "cpus-full").title.contains("throughout"));
}

#[test]
fn one_look_at_many_tasks_is_no_burst() {
    let mut rows = vec![(2, 50); 20];
    rows[7] = (9, 50);
    let document = read(&[("f", &vmstat(&rows))], cpus(4));
    none(&document, "runnable-bursts");
    assert_eq!(said(&document, "runnable-tasks").weight, Weight::RuledOut);
    // Nor is a row or two evidence of the opposite.
    let document = read(&[("f", &vmstat(&[(1, 90)]))], cpus(4));
    assert_eq!(said(&document, "runnable-tasks").weight, Weight::Open);
}

fn histogram(counts: &[u64]) -> String {
    let mut text = "# runqlat 10 1\nTracing run queue latency... Hit Ctrl-C to end.\n\n     usecs : count distribution\n".to_owned();
    for (at, count) in counts.iter().enumerate() {
        let from = if at == 0 { 0 } else { 1u64 << at };
        writeln!(text, "{from} -> {} : {count} |**|", (2u64 << at) - 1).unwrap();
    }
    text
}

#[test]
fn a_long_tail_that_takes_little_time_is_not_heavy() {
    // 30 waits of 1 ms among a million of 100 us.
    let document = one(&histogram(&[0, 0, 0, 0, 0, 0, 1_000_000, 0, 0, 0, 30]));
    none(&document, "tail-heavy");
    assert_eq!(said(&document, "tail-heavy").weight, Weight::RuledOut);
}

#[test]
fn a_few_long_waits_are_chance_and_many_are_usual() {
    // 5 long ones are most of the time.
    let document = one(&histogram(&[0, 0, 100, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5]));
    none(&document, "tail-heavy");
    // Half of all are long: that is no tail.
    let document = one(&histogram(&[0, 0, 100, 0, 0, 0, 0, 0, 0, 0, 0, 0, 100]));
    none(&document, "tail-heavy");
    assert_eq!(said(&document, "usually-long").weight, Weight::Found);
    // All below an edge that is above a millisecond.
    let text = histogram(&[10, 10]).replace("usecs", "msecs").replace("2 -> 3", "1 -> 1");
    let short = one(&text.replace("1 -> 1 : 10 |**|\n", ""));
    assert!(
        said(&short, "tail-heavy").title.contains("shorter than 2.0 ms"),
        "{:#?}",
        short.statements
    );
}

fn iostat(queues: &[f64], utils: impl Fn(f64) -> f64) -> String {
    let mut text = "# iostat -xy 1\n".to_owned();
    for queue in queues {
        writeln!(text, "Device r/s w/s rkB/s wkB/s r_await w_await aqu-sz %util").unwrap();
        writeln!(
            text,
            "sda 0,00 100,00 0,00 400,00 0,00 {:.2} {queue:.2} {:.2}\n",
            queue * 10.0,
            utils(*queue)
        )
        .unwrap();
    }
    text
}

fn bursts_at(seconds: &[usize], of: usize) -> String {
    let queues: Vec<f64> = (0..of).map(|s| if seconds.contains(&s) { 6.0 } else { 0.02 }).collect();
    iostat(&queues, |queue| if queue > 1.0 { 30.0 } else { 2.0 })
}

#[test]
fn bursts_at_random_distances_have_no_period() {
    let document = one(&bursts_at(&[3, 10, 32], 60));
    assert_whole(&document);
    let found = said(&document, "device-bursts");
    assert!(
        found.title.contains("3 bursts") && found.title.contains("7.0 s, 22 s apart"),
        "{}",
        found.title
    );
    assert!(found.numbers.iter().all(|it| it.name != "period"), "{found:#?}");
    // At a distance that stays the same they have one.
    let document = one(&bursts_at(&[2, 7, 12, 17, 22, 27, 32, 37, 42, 47, 52, 57], 60));
    assert_eq!(number(said(&document, "device-bursts"), "period"), 5e9);
}

#[test]
fn a_device_that_is_always_busy_has_no_bursts() {
    let document = one(&iostat(&[8.0; 20], |_| 99.0));
    none(&document, "device-bursts");
    assert_eq!(said(&document, "device-full").weight, Weight::Found);
    // Busy, with one request at a time and pauses.
    let document = one(&iostat(&[0.3; 20], |_| 30.0));
    none(&document, "device-bursts");
    none(&document, "device-full");
    // A queue that rises from nothing to little is none.
    let document = one(&iostat(&[0.0, 0.0, 0.0, 0.2, 0.0, 0.0, 0.0], |_| 1.0));
    none(&document, "device-bursts");
}

#[test]
fn a_burst_that_fills_a_whole_report_is_not_shorter_than_it() {
    let mut queues = vec![0.02; 20];
    queues[5] = 60.0;
    let document = one(&iostat(&queues, |queue| if queue > 1.0 { 100.0 } else { 2.0 }));
    let found = said(&document, "device-bursts");
    assert!(!found.title.contains("shorter"), "{}", found.title);
}

fn flusher(passes: &[(u32, f64)]) -> String {
    let mut text = "TIME DEVICE PAGES REASON ms\n".to_owned();
    for (s, ms) in passes {
        writeln!(
            text,
            "{:02}:{:02}:{:02} 8:0 46702 periodic {ms:.3}",
            s / 3600,
            s / 60 % 60,
            s % 60
        )
        .unwrap();
    }
    text
}

#[test]
fn heavy_passes_in_any_order_are_no_pattern() {
    let heavy = |at: u32| if [0, 1, 5, 6, 9].contains(&at) { 90.0 } else { 0.7 };
    let passes: Vec<(u32, f64)> = (0..12).map(|at| (at * 5, heavy(at))).collect();
    let document = one(&flusher(&passes));
    let found = said(&document, "flusher");
    assert!(
        found.title.ends_with("5 of 12 passes are heavy, in no regular order"),
        "{}",
        found.title
    );
    // All alike: none is heavy.
    let alike: Vec<(u32, f64)> = (0..12).map(|at| (at * 5, 50.0 + f64::from(at))).collect();
    assert!(!said(&one(&flusher(&alike)), "flusher").title.contains("heavy"));
}

#[test]
fn passes_at_random_times_have_no_period() {
    let at = [0, 3, 4, 11, 13, 29, 31, 40, 52, 55, 73, 90];
    let passes: Vec<(u32, f64)> = at.iter().map(|s| (*s, 1.0)).collect();
    let document = one(&flusher(&passes));
    none(&document, "flusher");
    // Three are too few, however even.
    let document = one(&flusher(&[(0, 1.0), (5, 1.0), (10, 1.0)]));
    assert_eq!(said(&document, "flusher").weight, Weight::Open);
    // Other reasons are not the clock's.
    let all: Vec<(u32, f64)> = (0..12).map(|at| (at * 5, 1.0)).collect();
    let document = one(&flusher(&all).replace("periodic", "background"));
    assert!(document.statements.is_empty(), "{:#?}", document.statements);
}

fn workers(counts: &[u64]) -> Document {
    let lines: Vec<String> = counts.iter().map(u64::to_string).collect();
    one(&format!("loading {} CPUs for 30 seconds\n{}\n", counts.len(), lines.join("\n")))
}

#[test]
fn workers_that_are_slow_for_another_reason_share_nothing() {
    // One at half: nobody has the other half.
    none(&workers(&[1000, 1000, 1010, 500, 995]), "shared-core");
    // Two that are slow, and not equally.
    none(&workers(&[1000, 1000, 1010, 400, 600]), "shared-core");
    // Two that are equal, and not at half.
    none(&workers(&[1000, 1000, 1010, 800, 801]), "shared-core");
    let even = workers(&[1000, 1000, 1010, 990]);
    assert_eq!(said(&even, "shared-core").weight, Weight::RuledOut);
    let three = workers(&[1000, 335, 1010, 330, 333, 1000]);
    assert!(said(&three, "shared-core").title.contains("3 workers on one core"));
    let four = workers(&[1000, 500, 505, 503, 501]);
    assert!(said(&four, "shared-core").title.contains("two workers on each of 2 cores"));
}

const TURNS: &str = "# runqlat 10 1 -p 7 -m\n     msecs : count distribution\n 0 -> 1 : 5 |\n 2 -> 3 : 2406 |**|\n 4 -> 7 : 93 |\n\
                     # top\n PID S %CPU COMMAND P VIRT\n 7 R 24.9 spin 1 0\n 8 R 24.9 spin 1 0\n";

#[test]
fn a_task_that_also_sleeps_takes_no_turns() {
    assert_eq!(said(&one(TURNS), "takes-turns").weight, Weight::Found);
    // Its share of a CPU does not leave room for waits as long as these; the table is of another process; the waits
    // differ; the time is not known.
    for (from, to) in [
        ("7 R 24.9", "7 S 70.0"),
        ("7 R 24.9", "9 R 24.9"),
        (": 93 |", ": 900 |"),
        ("# runqlat 10 1 -p 7", "# runqlat -p 7"),
        ("24.9 spin 1 0\n 8", "37.0 spin 1 0\n 8"),
    ] {
        let text = TURNS.replace(from, to);
        assert_ne!(text, TURNS);
        none(&one(&text), "takes-turns");
    }
}

#[test]
fn mounts_of_other_trees_and_other_cgroups_are_not_taken() {
    let own = "6:cpu,cpuacct:/pods/a\n5:cpuset:/set\n";
    let mount =
        |root: &str, kind: &str| format!("30 1 0:28 {root} /m rw - cgroup cgroup rw,{kind}\n");
    let directory = |mount: &str| read(&[("c", own), ("m", mount)], Given::default());
    let found = directory(&mount("/pods", "cpu,cpuacct"));
    assert!(said(&found, "cgroup-directory").title.contains("`/m/a`"), "{:#?}", found.statements);
    for mount in [
        mount("/pods", "cpuset"),
        mount("/pod", "cpu,cpuacct"),
        mount("/pods/b", "cpu,cpuacct"),
        mount("/pods/a/b", "cpu,cpuacct"),
    ] {
        assert_eq!(said(&directory(&mount), "cgroup-directory").weight, Weight::Open, "{mount}");
    }
    // Outside of the reader's namespace.
    let outside = read(
        &[("c", "0::/../x\n"), ("m", "30 1 0:28 / /m rw - cgroup2 cgroup2 rw\n")],
        Given::default(),
    );
    assert_eq!(said(&outside, "cgroup-directory").weight, Weight::Open);
}

#[test]
fn a_sector_outside_of_the_partitions_is_of_none() {
    let snoop = "TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)\n0.0 a 1 sda W 100 4096 0.1\n";
    let table = "Device Boot Start End Blocks Id System\n/dev/sda1 * 2048 4095 1024 83 Linux\n/dev/sda2 1 4000 9 5 Extended\n\
                 /dev/sdab1 1 4000 9 83 Linux\n";
    let document = read(&[("s", snoop), ("t", table)], Given::default());
    assert_whole(&document);
    none(&document, "file-of-sector");
    assert!(document.statements.iter().all(|it| it.name != "file-of-sector"));
}

#[test]
fn runs_of_about_the_same_length_are_not_slow() {
    let document =
        one("real 0m1.0s\nuser 0m0.5s\nsys 0m0.1s\n\nreal 0m1.5s\nuser 0m0.5s\nsys 0m0.1s\n");
    assert_whole(&document);
    assert_eq!(said(&document, "run-times").weight, Weight::Fact);
}
