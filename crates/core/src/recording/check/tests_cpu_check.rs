// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the invariants of CPU checks.

use super::*;
use crate::recording::CpuCheckRecord;
use crate::testkit::Machine;

fn check(records: &[Record]) -> Vec<&'static str> {
    let mut checker = Checker::default();
    records.iter().for_each(|record| checker.push(record));
    checker.finish().violations.into_iter().map(|violation| violation.invariant).collect()
}

fn records() -> Vec<Record> {
    Machine::siblings(4).checked().records()
}

/// The records, with `change` applied to each record of the CPU check.
fn with(mut change: impl FnMut(&mut CpuCheckRecord)) -> Vec<Record> {
    let mut records = records();
    for record in &mut records {
        if let Record::CpuCheck(record) = record {
            change(record);
        }
    }
    records
}

#[test]
fn a_check_is_consistent() {
    assert_eq!(check(&records()), [""; 0]);
}

#[test]
fn what_cannot_be_is_found() {
    let more_cpu = |record: &mut CpuCheckRecord| {
        if let CpuCheckRecord::Worker(worker) = record {
            worker.run.cpu_ns = worker.run.wall_ns * 2;
        }
    };
    assert!(check(&with(more_cpu))[0].contains("no more CPU time and gaps than wall time"));
    let longer = |record: &mut CpuCheckRecord| {
        if let CpuCheckRecord::Round(round) = record {
            round.b_together.wall_ns = 9_000_000_000;
            round.b_together.cpu_ns = 9_000_000_000;
        }
    };
    assert!(check(&with(longer))[0].contains("nor more CPU time than its slot"));
    let kept_waiting = |record: &mut CpuCheckRecord| {
        if let CpuCheckRecord::Round(round) = record {
            round.b_together.wall_ns = 9_000_000_000;
        }
    };
    assert_eq!(check(&with(kept_waiting)), [""; 0], "a busy host keeps a worker from its CPU");
    let elsewhere = |record: &mut CpuCheckRecord| {
        if let CpuCheckRecord::Round(round) = record {
            round.b = round.a;
        }
    };
    assert!(check(&with(elsewhere))[0].contains("two of the CPUs"));
    let too_many = |record: &mut CpuCheckRecord| {
        if let CpuCheckRecord::Worker(worker) = record {
            worker.worker = worker.workers;
        }
    };
    assert!(check(&with(too_many))[0].contains("no more workers than it says"));
    let mut headless = records();
    headless
        .retain(|record| !matches!(record, Record::CpuCheck(r) if r.observed().range().is_none()));
    assert!(check(&headless).iter().any(|invariant| invariant.contains("says first how")));
}
