// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::tests::{good, violated_by};
use super::*;
use crate::recording::{
    AcceptQueueTick, HeldBackTick, Meta, ProcId, ResentTick, SendingTick, SleepState, SleepTick,
    SleptOn, TargetSpec, ThreadLedger, ThreadStates, UnreadTick, WaitBin, WaitHist, WokenBy,
};

/// Bins of 100 ms with a wait of that length each.
fn bin(at: u64, proc: ProcId, wait_ns: u64) -> WaitBin {
    let mut waits = WaitHist::default();
    waits.add(wait_ns);
    WaitBin { t0_ns: at * WaitBin::BIN_NS, t1_ns: (at + 1) * WaitBin::BIN_NS, proc, waits }
}

#[test]
fn waits_in_bins_are_among_those_of_the_ticks() {
    // Both ticks of the process together have 206 ms of waits.
    let of_one = |wait_ns| violated_by(Record::WaitBin(Box::new(bin(3, ProcId(1), wait_ns))));
    assert_eq!(of_one(206_000_000), [] as [&str; 0]);
    assert_eq!(of_one(210_000_000), [of_target::IN_TICKS]);
    let others = Record::WaitBin(Box::new(bin(3, ProcId::OTHERS, 900_000_000)));
    assert_eq!(violated_by(others), [] as [&str; 0], "their processes are not known");
    let mut broken = bin(3, ProcId(1), 5_000);
    broken.waits.count[20] += 1;
    assert_eq!(violated_by(Record::WaitBin(Box::new(broken))).len(), 1);
}

#[test]
fn bins_of_a_process_do_not_overlap_and_belong_to_a_target() {
    let mut records = good();
    let end = records.len() - 1;
    let twice = [bin(3, ProcId(1), 5_000), bin(3, ProcId(1), 5_000)];
    records.splice(end..end, twice.map(|it| Record::WaitBin(Box::new(it))));
    let mut checker = Checker::default();
    records.iter().for_each(|record| checker.push(record));
    assert_eq!(checker.finish().violations.len(), 1);
    let mut checker = Checker::default();
    for mut record in good() {
        if let Record::Meta(meta) = &mut record {
            **meta = Meta { target: TargetSpec::Host, ..Meta::default() };
        }
        if !matches!(record, Record::TargetBin(_) | Record::End { .. }) {
            checker.push(&record);
        }
    }
    checker.push(&Record::WaitBin(Box::new(bin(3, ProcId(1), 5_000))));
    assert_eq!(checker.finish().violations.len(), 1, "of the host there are none");
}

#[test]
fn the_threads_of_a_process_sum_to_it() {
    // Both ticks of the process together: 3 s, of which 220 ms queued and 2.6 s asleep.
    let thread = |tid, wall_ns, queued_ns, sleep_ns| {
        let states = ThreadStates { queued_ns, sleep_ns, ..ThreadStates::default() };
        let (t0_ns, t1_ns, proc) = (0, 2_000_000_000, ProcId(1));
        let comm = "x".into();
        let it = ThreadLedger { t0_ns, t1_ns, proc, tid, comm, threads: 1, wall_ns, states };
        Record::ThreadLedger(Box::new(it))
    };
    let violated = |threads: [Record; 2]| {
        let mut records = good();
        let end = records.len() - 1;
        records.splice(end..end, threads);
        let mut checker = Checker::default();
        records.iter().for_each(|record| checker.push(record));
        checker.finish().violations.into_iter().map(|it| it.invariant).collect::<Vec<_>>()
    };
    const MS: u64 = 1_000_000;
    let first = || thread(Some(1), 1000 * MS, 100 * MS, 800 * MS);
    assert_eq!(violated([first(), thread(None, 2000 * MS, 120 * MS, 1800 * MS)]), [] as [&str; 0]);
    assert_eq!(
        violated([first(), thread(None, 2000 * MS, 20 * MS, 1800 * MS)]),
        [of_target::BY_THREAD],
        "too little of one state"
    );
    assert!(violated([first(), thread(None, 100 * MS, 120 * MS, 1800 * MS)]).len() == 2);
}

#[test]
fn what_threads_slept_on_is_no_more_than_they_slept() {
    // Both ticks of the process together: 2.6 s asleep.
    let of_one = |ns| {
        violated_by(Record::Sleep(Box::new(SleepTick {
            t0_ns: 0,
            t1_ns: 2_000_000_000,
            proc: ProcId(1),
            state: SleepState::Asleep,
            call: "futex".into(),
            on: SleptOn::NotKnown,
            woken: WokenBy::NotYet,
            thread: None,
            entry: None,
            asked: None,
            in_request: None,
            behind: vec![],
            ns,
            looked_at: 1,
            longest_ns: ns,
        })))
    };
    assert_eq!(of_one(2_650_000_000), [] as [&str; 0]);
    assert_eq!(of_one(3_500_000_000), [of_target::SLEPT]);
}

#[test]
fn connections_are_held_up_while_they_have_something_to_send() {
    let of = |busy_ns, window_ns, buffer_ns| {
        violated_by(Record::Sending(Box::new(SendingTick {
            t1_ns: 1_000_000_000,
            connections: 1,
            busy_ns,
            window_ns,
            buffer_ns,
            ..SendingTick::default()
        })))
    };
    assert_eq!(of(900_000_000, 500_000_000, 400_000_000), [] as [&str; 0]);
    assert_eq!(of(900_000_000, 500_000_000, 400_000_001), [net::HELD]);
    assert_eq!(of(1_100_000_000, 0, 0), [net::HELD]);
}

#[test]
fn what_waits_to_be_read_does_so_within_the_tick() {
    let of = |unread_ns, late_ns, on_cpu_ns, asleep_ns| {
        violated_by(Record::Unread(Box::new(UnreadTick {
            t1_ns: 1_000_000_000,
            connections: 2,
            unread_ns,
            late_ns,
            on_cpu_ns,
            asleep_ns,
            ..UnreadTick::default()
        })))
    };
    assert_eq!(of(1_600_000_000, 800_000_000, 500_000_000, 300_000_000), [] as [&str; 0]);
    assert_eq!(of(1_600_000_000, 800_000_000, 500_000_000, 300_000_001), [net::LATE]);
    assert_eq!(of(1_600_000_001, 800_000_000, 0, 0), [net::LATE]);
    assert_eq!(of(700_000_000, 800_000_000, 0, 0), [net::LATE]);
    assert_eq!(of(1_100_000_000, 1_100_000_000, 0, 0), [net::LATE]);
}

#[test]
fn connections_hold_something_back_within_the_tick() {
    let of = |held_ns, held_looks, corked_looks| {
        violated_by(Record::HeldBack(Box::new(HeldBackTick {
            t1_ns: 1_000_000_000,
            looks: 10,
            held_looks,
            corked_looks,
            held_ns,
            ..HeldBackTick::default()
        })))
    };
    assert_eq!(of(800_000_000, 8, 8), [] as [&str; 0]);
    assert_eq!(of(1_100_000_000, 8, 8), [net::HELD_BACK]);
    assert_eq!(of(800_000_000, 11, 8), [net::HELD_BACK]);
    assert_eq!(of(800_000_000, 8, 9), [net::HELD_BACK]);
}

#[test]
fn connections_wait_to_be_accepted_within_the_tick() {
    let of = |late_ns, waiting_ns, late_looks| {
        violated_by(Record::AcceptQueue(Box::new(AcceptQueueTick {
            t1_ns: 1_000_000_000,
            looks: 10,
            late_looks,
            waiting_ns,
            late_ns,
            most_waiting: 3,
            ..AcceptQueueTick::default()
        })))
    };
    assert_eq!(of(800_000_000, 2_400_000_000, 8), [] as [&str; 0]);
    assert_eq!(of(800_000_000, 2_400_000_001, 8), [net::ACCEPTED_LATE]);
    assert_eq!(of(800_000_000, 700_000_000, 8), [net::ACCEPTED_LATE]);
    assert_eq!(of(1_100_000_000, 1_100_000_000, 8), [net::ACCEPTED_LATE]);
    assert_eq!(of(800_000_000, 800_000_000, 11), [net::ACCEPTED_LATE]);
}

#[test]
fn timers_wait_one_after_the_other() {
    let of = |timeouts, timeout_ns| {
        violated_by(Record::Resent(Box::new(ResentTick {
            t1_ns: 1_000_000_000,
            connections: 1,
            times: 5,
            timeouts,
            timeout_ns,
            rto_ns: 800_000_000,
            ..ResentTick::default()
        })))
    };
    assert_eq!(of(5, 1_700_000_000), [] as [&str; 0]);
    assert_eq!(of(6, 0), [net::PARTS]);
    assert_eq!(of(5, 2_000_000_000), [net::WAITED]);
}
