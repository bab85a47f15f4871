// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::{IncompleteReason, MAX_THREADS, SchedstatCollector};
use crate::collect::fixture::{Host, beat, stat};
use crate::collect::{Beat, Context};
use deburr_core::recording::{Record, SchedstatTick, State, TargetSpec};
use std::fs;

fn host() -> Host {
    let host = Host::empty();
    host.write("proc/self/schedstat", "5 5 5\n");
    host
}

fn ticks(records: &[Record]) -> Vec<SchedstatTick> {
    records
        .iter()
        .filter_map(|record| match record {
            Record::Schedstat(tick) => Some(*tick),
            _ => None,
        })
        .collect()
}

fn states(records: &[Record]) -> Vec<State> {
    records
        .iter()
        .filter_map(|record| match record {
            Record::Coverage(coverage) => Some(coverage.state.clone()),
            _ => None,
        })
        .collect()
}

fn open(cx: &Context) -> SchedstatCollector {
    SchedstatCollector::open(cx).unwrap()
}

#[test]
fn a_process_is_the_sum_of_its_threads_seen_twice() {
    let host = host();
    host.process(7, "java");
    host.schedstat(7, 7, 1000, 100, 1);
    host.schedstat(7, 8, 2000, 200, 2);
    let mut cx = host.context();
    let mut collector = open(&cx);
    let start = beat(&mut collector, &mut cx, Beat::Start);
    assert_eq!((states(&start), ticks(&start)), (vec![State::Active], vec![]));
    assert!(ticks(&beat(&mut collector, &mut cx, Beat::Bin)).is_empty());

    host.schedstat(7, 7, 1500, 150, 4);
    host.schedstat(7, 8, 2100, 210, 3);
    host.schedstat(7, 9, 77, 77, 7);
    let second = ticks(&beat(&mut collector, &mut cx, Beat::Second));
    let [tick] = second[..] else { panic!("{second:?}") };
    assert_eq!((tick.threads, tick.on_cpu_ns, tick.delay_ns, tick.slices), (2, 600, 60, 4));
    assert_eq!((tick.t0_ns, tick.t1_ns), (0, 1_000_000_000));
    // The same time for each of the two threads.
    assert!(tick.wall_ns > 0 && tick.wall_ns % 2 == 0, "{tick:?}");

    fs::remove_dir_all(host.path("proc/7/task/8")).unwrap();
    host.schedstat(7, 9, 80, 78, 8);
    let end = ticks(&beat(&mut collector, &mut cx, Beat::End));
    // The file of an ended thread may still be open. On a real `/proc` it cannot be read any more.
    assert!(end[0].threads >= 2 && end[0].on_cpu_ns == 3, "{end:?}");
    assert_eq!(end[0].t0_ns, tick.t1_ns);
}

#[test]
fn only_the_target_is_read() {
    let host = host();
    for (pid, comm) in [(7, "java"), (8, "sh"), (9, "java")] {
        host.process(pid, comm);
        host.schedstat(pid, pid, 1, 1, 1);
    }
    let read = |target| {
        let mut cx = host.context_of(target);
        let mut collector = open(&cx);
        beat(&mut collector, &mut cx, Beat::Start);
        ticks(&beat(&mut collector, &mut cx, Beat::Second)).len()
    };
    assert_eq!(read(TargetSpec::Host), 3);
    assert_eq!(read(TargetSpec::Comm { comm: "java".into() }), 2);
    assert_eq!(read(TargetSpec::Process { pid: 8, comm: "sh".into() }), 1);
    assert_eq!(read(TargetSpec::Process { pid: 10, comm: "gone".into() }), 0);
}

#[test]
fn a_reused_pid_starts_anew() {
    let host = host();
    host.process(7, "old");
    host.schedstat(7, 7, 9000, 9000, 9);
    let mut cx = host.context();
    let mut collector = open(&cx);
    beat(&mut collector, &mut cx, Beat::Start);
    let old = ticks(&beat(&mut collector, &mut cx, Beat::Second))[0].proc;
    host.write("proc/7/stat", stat(7, "new", 1, 0).replace(" 507 0\n", " 99507 0\n"));
    host.schedstat(7, 7, 10, 10, 1);
    assert_eq!(ticks(&beat(&mut collector, &mut cx, Beat::Second)), []);
    host.schedstat(7, 7, 30, 10, 2);
    let new = ticks(&beat(&mut collector, &mut cx, Beat::End))[0];
    assert_ne!(new.proc, old);
    assert_eq!(new.on_cpu_ns, 20);
}

#[test]
fn of_too_many_threads_the_busiest_are_read_and_that_is_said_once() {
    let host = host();
    let half = MAX_THREADS / 2 + 1;
    for (pid, cpu_ticks) in [(7, 5), (8, 0), (9, 900_000)] {
        host.process(pid, "java");
        host.write(&format!("proc/{pid}/stat"), stat(pid, "java", half as u32, cpu_ticks));
        for tid in 0..half as u32 {
            host.schedstat(pid, pid * 10_000 + tid, 1, 1, 1);
        }
    }
    let mut cx = host.context();
    let mut collector = open(&cx);
    let start = beat(&mut collector, &mut cx, Beat::Start);
    let [State::Partial { reason }] = &states(&start)[..] else { panic!("{:?}", states(&start)) };
    assert!(
        reason.starts_with(&format!("{MAX_THREADS} of {} threads are read", 3 * half)),
        "{reason}"
    );
    let second = beat(&mut collector, &mut cx, Beat::Second);
    assert_eq!(states(&second), []);
    let read: Vec<u32> = ticks(&second).iter().map(|tick| tick.threads).collect();
    let busiest = collector.processes[&9].proc;
    assert_eq!(ticks(&second)[0].proc, busiest);
    assert_eq!(read.iter().sum::<u32>() as usize, MAX_THREADS);
    let kept: usize = collector.processes.values().map(|watched| watched.threads.kept()).sum();
    assert!(kept <= collector.max_kept, "{kept}");
}

#[test]
fn a_kernel_that_does_not_count_is_told_by_our_own_zeros() {
    let host = Host::empty();
    let reason = |host: &Host| match SchedstatCollector::open(&host.context()) {
        Err(State::Missing { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    assert!(reason(&host).contains("`/proc/self/schedstat`"));
    host.write("proc/self/schedstat", "0 0 0\n");
    assert_eq!(reason(&host), "this kernel does not count run-queue delay");
}

#[test]
fn churn_is_said_when_it_comes_and_not_again() {
    let host = host();
    host.process(7, "make");
    host.schedstat(7, 7, 1, 1, 1);
    let mut cx = host.context();
    let mut collector = open(&cx);
    beat(&mut collector, &mut cx, Beat::Start);
    for tid in 100..200 {
        host.schedstat(7, tid, 1, 1, 1);
    }
    let second = beat(&mut collector, &mut cx, Beat::Second);
    let [State::Partial { reason }] = &states(&second)[..] else { panic!("{second:?}") };
    assert_eq!(*reason, IncompleteReason::Churn.reason());
    for tid in 200..300 {
        host.schedstat(7, tid, 1, 1, 1);
    }
    assert_eq!(states(&beat(&mut collector, &mut cx, Beat::Second)), []);
}
