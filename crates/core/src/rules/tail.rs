// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much waits add to the 99th percentile of what a target does repeatedly: turns on a CPU, requests to a disk.
//! Users complain about tail latency, and a few long waits hardly move a mean.
//!
//! The estimate is conservative: waits of a size count only if significantly more than one event in a hundred waited
//! that long. Waiting that no process caused is attributed to the shortest waits first; what does not fit there is
//! subtracted from the longer ones.

use super::Limit;
use super::candidates::target_is_host;
use crate::finding::{Evidence, Severity, Tail, TailOf, Unit};
use crate::recording::{WAIT_BUCKETS, WaitHist};
use crate::rules::words::evidence;
use crate::stats::{SIGNIFICANT, poisson};
use crate::text::units;
use crate::view::{Series, View};

/// One event in this many may be late without moving the 99th percentile.
const ONE_IN: f64 = 100.0;
/// Length of the interval for [`came_at_once`]: one second, in nanoseconds.
const SECOND_NS: u64 = 1_000_000_000;

pub(super) const LOW_TIMES: Limit = Limit {
    name: "tail_low_times",
    value: 2.0,
    unit: "times as long as without the waits is the 99th percentile",
    why: "less is what services that meet by chance do to each other; only findings about a target count by it",
};
pub(super) const LOW_ADDED: Limit = Limit {
    name: "tail_low_added",
    value: 1.0,
    unit: "ms that the waits add to the 99th percentile",
    why: "less is lost among the network's own",
};
pub(super) const MEDIUM_TIMES: Limit = Limit {
    name: "tail_medium_times",
    value: 3.0,
    unit: "times as long as without the waits is the 99th percentile",
    why: "whoever watches a 99th percentile does not take that for chance",
};
pub(super) const MEDIUM_ADDED: Limit = Limit {
    name: "tail_medium_added",
    value: 2.5,
    unit: "ms that the waits add to the 99th percentile",
    why: "a slice of a thread that computes",
};
pub(super) const HIGH_TIMES: Limit = Limit {
    name: "tail_high_times",
    value: 10.0,
    unit: "times as long as without the waits is the 99th percentile",
    why: "that breaks whatever was promised",
};
pub(super) const HIGH_ADDED: Limit = Limit {
    name: "tail_high_added",
    value: 20.0,
    unit: "ms that the waits add to the 99th percentile",
    why: "people notice a tenth of a second, and a request may wait five times",
};
pub(super) const MIN_LOST: Limit = Limit {
    name: "tail_min_lost",
    value: 2.0,
    unit: "ms of each second",
    why: "less is a single late answer now and then",
};
pub(super) const AT_ONCE: Limit = Limit {
    name: "tail_at_once",
    value: 0.5,
    unit: "of the waiting within one second of the window",
    why: "more is one moment, which may not come again",
};

/// The limits that [`severity`] and [`came_at_once`] use, for the `limits` of rules.
pub(super) const LIMITS: [Limit; 8] =
    [LOW_TIMES, LOW_ADDED, MEDIUM_TIMES, MEDIUM_ADDED, HIGH_TIMES, HIGH_ADDED, MIN_LOST, AT_ONCE];

/// Waiting that other processes are not to blame for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ExcludedWaiting {
    /// Time that no process caused, in nanoseconds: the wake-up latency of idle CPUs. Attributed to the shortest waits
    /// first.
    pub(super) nobodys_ns: u64,
    /// Share of the waiting that the observer itself caused, 0..1, the same for waits of every size.
    pub(super) observers_share: f64,
}

/// The tail of `events` events of `own_ns` nanoseconds each, whose waits are in the histogram. `None` if the 99th
/// percentile waits less than 1 us.
pub(super) fn of_waits(
    of: TailOf,
    (events, own_ns): (u64, u64),
    waits: &WaitHist,
    excused: ExcludedWaiting,
) -> Option<Tail> {
    let (mut count, mut ns, all_ns) = (0, 0, waits.total_ns());
    for bucket in (1..WAIT_BUCKETS).rev().filter(|&bucket| waits.count[bucket] > 0) {
        count += waits.count[bucket];
        ns += waits.ns[bucket];
        // Time without a cause that does not fit into the shorter waits is part of these, and such waits do not count.
        let nobodys_ns = excused.nobodys_ns.saturating_sub(all_ns - ns).min(ns);
        let others = (ns - nobodys_ns) as f64 / ns.max(1) as f64 * (1.0 - excused.observers_share);
        let late = (count as f64 * others.clamp(0.0, 1.0)) as u64;
        if late > 0 && poisson(late, events as f64 / ONE_IN) < SIGNIFICANT {
            let wait_ns = waits.ns[bucket] / waits.count[bucket];
            let (late_ns, p99_ns) = (ns / count, own_ns.saturating_add(wait_ns));
            return Some(Tail { of, events, late, late_ns, own_ns, p99_ns });
        }
    }
    None
}

/// Severity of a tail; `None` below the limits, and where the target is the whole host: there, some process always has
/// a long tail.
pub(super) fn severity(view: &View, tail: &Tail, lost_ns_per_s: u64) -> Option<Severity> {
    let reaches = |times: &Limit, added: &Limit| {
        tail.times() >= times.value && tail.added_ns() as f64 / 1e6 >= added.value
    };
    if target_is_host(view) || (lost_ns_per_s as f64 / 1e6) < MIN_LOST.value {
        None
    } else if reaches(&HIGH_TIMES, &HIGH_ADDED) {
        Some(Severity::High)
    } else if reaches(&MEDIUM_TIMES, &MEDIUM_ADDED) {
        Some(Severity::Medium)
    } else if reaches(&LOW_TIMES, &LOW_ADDED) {
        Some(Severity::Low)
    } else {
        None
    }
}

/// Whether more than [`AT_ONCE`] of the waiting fell into one second.
pub(super) fn came_at_once(waiting: &Series) -> bool {
    let bins = usize::try_from(SECOND_NS / waiting.width_ns().clamp(1, SECOND_NS)).unwrap_or(1);
    // The second may begin with any bin.
    let waits = waiting.bins();
    let most = waits.windows(bins.min(waits.len()).max(1));
    let most = most.map(|second| second.iter().sum::<u64>()).max().unwrap_or(0);
    most as f64 > AT_ONCE.value * waiting.total() as f64
}

/// Evidence line: the 99th percentile with the waits, and how it was estimated.
pub(super) fn line(view: &View, tail: &Tail, label: &str) -> Evidence {
    let (what, without) = match tail.of {
        TailOf::RunQueue => (["turn on a CPU", "waits"], "the mean length of a turn"),
        TailOf::Throttled => (["turn on a CPU", "is stopped"], "the mean length of a turn"),
        TailOf::BlockIo => (["request", "waits"], "the same without the part beside others"),
    };
    let [event, happens] = what;
    let note = format!(
        "{} ({} seen) {happens} {} on average; {} without that: {without}",
        one_in(tail, event),
        units::count(tail.events as f64),
        units::duration(tail.late_ns as f64),
        units::duration(tail.own_ns as f64)
    );
    evidence(view, "99th percentile", tail.p99_ns as f64, Unit::Ns, label, note)
}

/// `one in 40 turns`, or `nearly every turn`.
pub(super) fn one_in(tail: &Tail, event: &str) -> String {
    let every = (tail.events as f64 / tail.late.max(1) as f64).round().max(1.0);
    if every < 2.0 {
        return format!("nearly every {event}");
    }
    let (what, rest) =
        event.split_once(' ').map_or((event, ""), |(what, _)| (what, &event[what.len()..]));
    format!("one in {} {what}s{rest}", units::count(every))
}

/// `its 99th percentile is 5.1 ms instead of 1.0 ms`.
pub(super) fn words(tail: &Tail, its: &str) -> String {
    format!(
        "{its} 99th percentile is {} instead of {}",
        units::duration(tail.p99_ns as f64),
        units::duration(tail.own_ns as f64)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{MS, S, Scene, US, hist};
    use proptest::prelude::*;

    fn of(waits: &[(u64, u64)], own_ns: u64, nobodys_ns: u64) -> Option<Tail> {
        let waits = hist(waits);
        let excused = ExcludedWaiting { nobodys_ns, observers_share: 0.0 };
        of_waits(TailOf::RunQueue, (waits.total_count(), own_ns), &waits, excused)
    }

    #[test]
    fn few_long_waits_make_a_tail_that_the_mean_hides() {
        let tail = of(&[(1560, 0), (40, 4 * MS + 100 * US)], MS, 0).unwrap();
        assert_eq!((tail.events, tail.late), (1600, 40));
        assert_eq!((tail.own_ns, tail.p99_ns), (MS, 5 * MS + 100 * US));
        assert_eq!(one_in(&tail, "turn on a CPU"), "one in 40 turns on a CPU");
        assert_eq!(one_in(&Tail { late: 1500, ..tail }, "turn"), "nearly every turn");
    }

    #[test]
    fn one_in_a_hundred_may_be_chance_and_few_samples_are_none() {
        let p99 = |waits: &[(u64, u64)]| of(waits, MS, 0).map(|tail| tail.p99_ns);
        assert_eq!(p99(&[(1584, 0), (16, 4 * MS)]), None, "one in a hundred");
        assert_eq!(p99(&[(48, 0), (2, 4 * MS)]), None, "2 of 50");
        assert_eq!(p99(&[(46, 0), (4, 4 * MS)]), Some(5 * MS), "4 of 50 are no chance");
        // The longest waits are too few to count; the next shorter ones are not.
        assert_eq!(p99(&[(1500, 0), (90, 3 * MS), (10, 50 * MS)]), Some(4 * MS));
    }

    #[test]
    fn what_nobody_caused_is_not_counted_as_late() {
        let waits = [(1500, 50 * US), (100, 4 * MS)];
        assert!(of(&waits, MS, 75 * MS).is_some_and(|tail| tail.p99_ns == 5 * MS), "short ones");
        assert!(of(&waits, MS, 475 * MS).is_none_or(|tail| tail.added_ns() < MS), "long ones");
    }

    #[test]
    fn what_the_observer_does_is_not_complained_of() {
        let waits = hist(&[(1600, 0), (40, 4 * MS)]);
        let of = |observers_share| {
            let excused = ExcludedWaiting { nobodys_ns: 0, observers_share };
            of_waits(TailOf::RunQueue, (1640, MS), &waits, excused)
        };
        assert_eq!(of(0.1).unwrap().late, 36);
        assert_eq!(of(0.5), None, "20 of 1640 are no more than one in a hundred by far");
    }

    #[test]
    fn only_a_target_has_a_tail_that_counts() {
        let tail = of(&[(1560, 0), (40, 4 * MS)], MS, 0).unwrap();
        let mut scene = Scene::new(2, 8 * S);
        assert_eq!(severity(&scene.view(), &tail, 20 * MS), None, "the whole host");
        let process = scene.process("shop", None);
        scene.target(process);
        assert_eq!(severity(&scene.view(), &tail, 20 * MS), Some(Severity::Medium));
        assert_eq!(severity(&scene.view(), &tail, MS), None, "now and then");
    }

    #[test]
    fn one_moment_is_no_tail() {
        let mut series = Series::new(100 * MS, 1200);
        (0..8).for_each(|second| series.add(second * S, second * S + S, 10));
        assert!(!came_at_once(&series));
        series.add(2 * S + 500 * MS, 3 * S + 300 * MS, 100);
        assert!(came_at_once(&series), "in the halves of two seconds");
        assert!(!came_at_once(&Series::new(S, 8)), "nothing came at all");
    }

    proptest! {
        #[test]
        fn waiting_more_never_shortens_a_tail(
            waits in prop::collection::vec((1..500u64, 0..1_000_000_000u64), 1..8),
            own_ns in 1..100_000_000u64,
            nobodys_ns in 0..10_000_000_000u64,
        ) {
            if let Some(tail) = of(&waits, own_ns, nobodys_ns) {
                prop_assert!(tail.p99_ns >= tail.own_ns && tail.late <= tail.events);
                prop_assert!(tail.late as f64 > tail.events as f64 / ONE_IN);
                let without = of(&waits, own_ns, 0).unwrap();
                prop_assert!(tail.p99_ns <= without.p99_ns, "{tail:?} {without:?}");
                prop_assert!(without.p99_ns - own_ns <= waits.iter().map(|wait| wait.1).max().unwrap());
            }
        }
    }
}
