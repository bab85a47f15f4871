// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shares and bins of requests that overlap.

use super::*;
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn request(process: u32, start_ms: u64, done_ms: u64) -> Request {
    Request {
        queued_ns: start_ms * MS,
        start_ns: start_ms * MS,
        done_ns: done_ms * MS,
        account: IoCulprit::Process(ProcId(process)),
        waiter: Some(Waiter { proc: ProcId(process), tid: process }),
        file: Some(FileId(7)),
        bytes: 4096,
        weight: 1,
    }
}

fn blame_ms(past: &Accounted, victim: u32, culprit: IoCulprit) -> u64 {
    past.blame.get(&(ProcId(victim), culprit)).copied().unwrap_or(0) / MS
}

#[test]
fn a_request_alone_waits_for_the_device() {
    let mut flight = Flight::begin(0);
    flight.push(request(1, 5, 25));
    let past = flight.settle(100 * MS);
    assert_eq!(past.bins.len(), 10);
    let busy_ms: Vec<u64> = past.bins.iter().map(|bin| bin.busy_ns / MS).collect();
    assert_eq!(busy_ms, [5, 10, 5, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(past.bins.iter().map(|bin| bin.ios).collect::<Vec<_>>()[..4], [0, 0, 1, 0]);
    assert_eq!(past.waits[&ProcId(1)].max_ns, 20 * MS);
    assert_eq!(past.blame, BTreeMap::from([((ProcId(1), IoCulprit::Device), 20 * MS)]));
    let (t0_ns, t1_ns) = (5 * MS, 25 * MS);
    let long = LongWait { t0_ns, t1_ns, proc: ProcId(1), file: Some(FileId(7)) };
    assert_eq!(past.long, [long]);
}

#[test]
fn a_thread_waits_once_for_all_that_it_has_in_flight() {
    let mut flight = Flight::begin(0);
    for readahead in 0..10 {
        flight.push(request(1, 0, 10 + readahead));
    }
    flight.push(request(1, 30, 40));
    let past = flight.settle(100 * MS);
    assert_eq!(past.waits[&ProcId(1)].sizes.total_ns(), (19 + 10) * MS);
}

#[test]
fn two_in_flight_share_their_time() {
    let mut flight = Flight::begin(0);
    flight.push(request(1, 0, 20));
    flight.push(request(2, 10, 30));
    let past = flight.settle(40 * MS);
    assert_eq!(blame_ms(&past, 1, IoCulprit::Process(ProcId(2))), 5);
    assert_eq!(blame_ms(&past, 1, IoCulprit::Device), 15);
    assert_eq!(blame_ms(&past, 2, IoCulprit::Process(ProcId(1))), 5);
    assert_eq!(past.bins.iter().map(|bin| bin.depth_ns / MS).collect::<Vec<_>>(), [10, 20, 10, 0]);
}

#[test]
fn waiting_begins_before_the_request_and_is_shared_among_those_in_flight() {
    let mut flight = Flight::begin(0);
    let (writer, reader) = (IoCulprit::Process(ProcId(2)), ProcId(1));
    flight.push(Request { waiter: None, ..request(2, 0, 30) });
    flight.push(Request { queued_ns: 10 * MS, ..request(1, 30, 40) });
    let past = flight.settle(100 * MS);
    assert_eq!(past.waits[&reader].sizes.total_ns(), 30 * MS);
    assert_eq!(blame_ms(&past, 1, writer), 20, "it alone is in flight");
    assert_eq!(blame_ms(&past, 1, IoCulprit::Device), 10);
    let spans: Vec<(u64, u64)> = past.long.iter().map(|long| (long.t0_ns, long.t1_ns)).collect();
    assert_eq!(spans, [(10 * MS, 40 * MS)]);
    let busy_ms: Vec<u64> = past.bins[..5].iter().map(|bin| bin.busy_ns / MS).collect();
    assert_eq!(busy_ms, [10, 10, 10, 10, 0]);
    let depth: u64 = past.bins.iter().map(|bin| bin.depth_ns).sum();
    assert_eq!(depth, 40 * MS, "what waits for a tag is not in the device");
}

#[test]
fn a_burst_of_writeback_takes_its_part_of_a_sync_write() {
    let mut flight = Flight::begin(0);
    let writeback = IoCulprit::Writeback(None);
    for _ in 0..9 {
        flight.push(Request { account: writeback, waiter: None, ..request(9, 0, 100) });
    }
    flight.push(request(1, 0, 100));
    let past = flight.settle(100 * MS);
    assert_eq!(blame_ms(&past, 1, writeback), 90);
    assert_eq!(past.waits.len(), 1);
}

#[test]
fn who_waits_for_a_request_that_takes_long_waits_from_its_beginning() {
    let mut flight = Flight::begin(0);
    let writer = IoCulprit::Process(ProcId(2));
    flight.push(Request { waiter: None, ..request(2, 20, 40) });
    flight.settle(50 * MS);
    flight.push(request(1, 10, 60));
    let past = flight.settle(100 * MS);
    assert_eq!((flight.late, past.waits[&ProcId(1)].max_ns), (1, 50 * MS));
    assert_eq!((past.long[0].t0_ns, past.long[0].t1_ns), (10 * MS, 60 * MS));
    // In the history, the writer's 20 ms are spread over the stretch of 50 ms, of which the wait has 40.
    assert_eq!(blame_ms(&past, 1, writer), 16);
    assert_eq!(blame_ms(&past, 1, IoCulprit::Device), 34);
}

#[test]
fn what_a_thread_waited_before_is_not_part_of_a_wait_that_is_told_late() {
    let mut flight = Flight::begin(0);
    flight.push(request(1, 10, 30));
    let first = flight.settle(50 * MS);
    flight.push(request(1, 20, 80));
    let past = flight.settle(100 * MS);
    let waited = |past: &Accounted| past.waits[&ProcId(1)].sizes.total_ns();
    assert_eq!((waited(&first), waited(&past)), (20 * MS, 50 * MS));
}

#[test]
fn beyond_the_number_of_culprits_they_are_others() {
    let mut flight = Flight::begin(0);
    for process in 1..200 {
        flight.push(request(process, 0, 10));
    }
    let past = flight.settle(10 * MS);
    let culprits: std::collections::BTreeSet<_> = past.blame.keys().map(|(_, c)| *c).collect();
    assert!(culprits.len() <= CULPRITS + 1, "{}", culprits.len());
    assert!(culprits.contains(&IoCulprit::Process(ProcId::OTHERS)));
}

proptest! {
    #[test]
    fn blame_sums_to_the_waiting_and_bins_to_the_time_in_flight(
        requests in prop::collection::vec((1u32..6, 0u64..500, 1u64..400, 1u32..4), 0..60),
        cuts in prop::collection::vec(1u64..200, 0..8),
    ) {
        let mut flight = Flight::begin(0);
        let mut in_flight_ns = 0;
        // The milliseconds in which each process has something in flight.
        let mut waiting = std::collections::BTreeSet::new();
        for &(process, start, length, weight) in &requests {
            flight.push(Request { weight, ..request(process, start, start + length) });
            in_flight_ns += length * MS * u64::from(weight);
            waiting.extend((start..start + length).map(|ms| (process, ms)));
        }
        let mut stretches = Vec::new();
        let mut at_ms = 0;
        for cut in cuts {
            at_ms += cut;
            stretches.push(flight.settle(at_ms * MS));
        }
        stretches.push(flight.settle((at_ms + 2000) / 10 * 10 * MS));
        let waits = stretches.iter().flat_map(|p| p.waits.values());
        let waited: u64 = waits.map(|w| w.sizes.total_ns()).sum();
        let blamed: u64 = stretches.iter().flat_map(|p| p.blame.values()).sum();
        prop_assert_eq!(waited, blamed);
        prop_assert_eq!(waited, waiting.len() as u64 * MS);
        let bins = || stretches.iter().flat_map(|p| &p.bins);
        prop_assert_eq!(bins().map(|bin| bin.depth_ns).sum::<u64>(), in_flight_ns);
        prop_assert!(bins().all(|bin| bin.busy_ns <= BIN_NS));
    }
}

proptest! {
    #[test]
    fn whenever_it_is_told_of_a_wait_has_its_length(
        requests in prop::collection::vec((1u32..4, 0u64..50, 1u64..900), 0..40),
        cut_ms in 1u64..200,
    ) {
        let mut ends = BTreeMap::new();
        let mut to_tell = Vec::new();
        let mut truth = BTreeMap::new();
        // The requests of a process are one after the other.
        for &(process, pause, length) in &requests {
            let end: &mut u64 = ends.entry(process).or_default();
            let start = *end + pause;
            *end = start + length;
            to_tell.push((*end, process, start));
            *truth.entry(ProcId(process)).or_insert(0) += length * MS;
        }
        to_tell.sort_unstable();
        let (mut flight, mut waits, mut blame) = (Flight::begin(0), BTreeMap::new(), 0);
        let mut to_tell = to_tell.into_iter().peekable();
        let mut now_ms = 0;
        while to_tell.peek().is_some() {
            now_ms += cut_ms;
            // What ends in this stretch may have begun in any before it.
            while let Some((end, process, start)) = to_tell.next_if(|(end, ..)| *end <= now_ms) {
                flight.push(request(process, start, end));
            }
            let past = flight.settle(now_ms * MS);
            blame += past.blame.values().sum::<u64>();
            for (process, it) in past.waits {
                *waits.entry(process).or_insert(0) += it.sizes.total_ns();
            }
        }
        prop_assert_eq!(&waits, &truth);
        prop_assert_eq!(blame, truth.values().sum::<u64>());
    }
}

#[test]
fn who_waits_for_a_commit_waits_beside_all_that_is_in_flight() {
    let mut flight = Flight::begin(0);
    let journal = IoCulprit::Filesystem;
    flight.push(Request { account: journal, waiter: None, ..request(9, 10, 50) });
    flight.push(Request { waiter: None, ..request(2, 10, 30) });
    let waiter = Waiter { proc: ProcId(1), tid: 1 };
    flight.push(Request::of_others(Span::new(10 * MS, 60 * MS), waiter, FileId(7)));
    let past = flight.settle(100 * MS);
    assert_eq!(past.waits[&ProcId(1)].sizes.total_ns(), 50 * MS);
    assert_eq!(blame_ms(&past, 1, IoCulprit::Process(ProcId(2))), 10);
    assert_eq!(blame_ms(&past, 1, journal), 30);
    // For the last 10 ms nothing was in flight.
    assert_eq!(blame_ms(&past, 1, IoCulprit::Device), 10);
    assert_eq!(past.long.len(), 1);
    assert_eq!(past.bins.iter().map(|bin| bin.ios).sum::<u32>(), 2);
}

#[test]
fn who_is_alone_waits_beside_its_own_other_requests() {
    let mut flight = Flight::begin(0);
    let own = IoCulprit::Process(ProcId(1));
    for tid in 0..4 {
        let waiter = Some(Waiter { proc: ProcId(1), tid });
        flight.push(Request { waiter, ..request(1, 0, 40) });
    }
    let past = flight.settle(100 * MS);
    assert_eq!(past.waits[&ProcId(1)].sizes.total_ns(), 4 * 40 * MS);
    assert_eq!(blame_ms(&past, 1, IoCulprit::Device), 4 * 10, "a turn in four");
    assert_eq!(blame_ms(&past, 1, own), 4 * 30);
    assert_eq!(past.blame.len(), 2);
}

#[test]
fn requests_of_a_thread_that_are_in_flight_together_are_beside_each_other() {
    let mut flight = Flight::begin(0);
    flight.push(request(1, 0, 20));
    flight.push(request(1, 0, 40));
    flight.push(Request { waiter: None, ..request(2, 20, 40) });
    let past = flight.settle(100 * MS);
    assert_eq!(blame_ms(&past, 1, IoCulprit::Process(ProcId(1))), 10);
    assert_eq!(blame_ms(&past, 1, IoCulprit::Process(ProcId(2))), 10);
    assert_eq!(blame_ms(&past, 1, IoCulprit::Device), 20);
}

#[test]
fn before_its_request_is_in_flight_a_thread_has_no_turn() {
    let mut flight = Flight::begin(0);
    let waiter = Some(Waiter { proc: ProcId(1), tid: 77 });
    flight.push(Request { waiter: None, ..request(1, 0, 30) });
    flight.push(Request { waiter, queued_ns: 10 * MS, ..request(1, 30, 40) });
    let past = flight.settle(100 * MS);
    assert_eq!(blame_ms(&past, 1, IoCulprit::Process(ProcId(1))), 20, "another one has the tag");
    assert_eq!(blame_ms(&past, 1, IoCulprit::Device), 10);
}

#[test]
fn a_request_that_stands_for_many_is_not_beside_itself() {
    let mut flight = Flight::begin(0);
    for at in 0..5 {
        flight.push(Request { weight: 4, ..request(1, at * 10, at * 10 + 7) });
    }
    let past = flight.settle(100 * MS);
    assert_eq!(past.blame, BTreeMap::from([((ProcId(1), IoCulprit::Device), 35 * MS)]));
}

#[test]
fn a_burst_of_requests_gives_its_memory_back() {
    let mut flight = Flight::begin(0);
    for at in 0..50_000 {
        flight.push(request(1, at / 1000, 60 + at / 1000));
    }
    assert!(flight.requests.capacity() >= 50_000);
    flight.settle(200 * MS);
    flight.push(request(1, 210, 220));
    flight.settle(300 * MS);
    assert!(flight.requests.capacity() < 5000, "{}", flight.requests.capacity());
    assert!(flight.edges.capacity() < 5000, "{}", flight.edges.capacity());
}
