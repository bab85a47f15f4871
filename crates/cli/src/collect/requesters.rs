// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which threads have asked disks for something and slept meanwhile as if they waited for nothing.

use deburr_core::stats::Span;
use std::collections::{BTreeMap, VecDeque};

/// For so long a thread is known after the last request of which that was seen.
const KEPT_NS: u64 = 10_000_000_000;
/// Threads that are asked about at a time, and the latest times for each.
const THREADS: usize = 1000;
const TIMES: usize = 16;

/// Times are those of `CLOCK_MONOTONIC`.
#[derive(Debug, Default)]
pub(crate) struct Requesters {
    asked: BTreeMap<u32, Asked>,
}

/// What is asked about a thread, and what is known.
#[derive(Debug, Default)]
struct Asked {
    at_ns: VecDeque<u64>,
    last_ns: u64,
    had_ns: Option<u64>,
}

impl Requesters {
    /// Asks whether a thread had a request in flight then, and says whether it lately had one when that was asked.
    pub(crate) fn had(&mut self, tid: u32, at_ns: u64) -> bool {
        if self.asked.len() >= THREADS && !self.asked.contains_key(&tid) {
            self.asked.retain(|_, it| at_ns.saturating_sub(it.last_ns) < KEPT_NS);
            if self.asked.len() >= THREADS {
                return false;
            }
        }
        let it = self.asked.entry(tid).or_default();
        if it.at_ns.len() >= TIMES {
            it.at_ns.pop_front();
        }
        it.at_ns.push_back(at_ns);
        it.last_ns = it.last_ns.max(at_ns);
        it.had_ns.is_some_and(|had_ns| at_ns.saturating_sub(had_ns) < KEPT_NS)
    }

    /// A request of a thread is complete.
    pub(crate) fn note(&mut self, tid: u32, in_flight: Span) {
        let Some(it) = self.asked.get_mut(&tid) else { return };
        if it.at_ns.iter().any(|at_ns| (in_flight.t0_ns..in_flight.t1_ns).contains(at_ns)) {
            it.had_ns = Some(in_flight.t1_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_had_requests_in_flight_is_known_for_a_while() {
        let mut all = Requesters::default();
        assert!(!all.had(7, 1_000));
        all.note(7, Span { t0_ns: 1_001, t1_ns: 1_100 });
        assert!(!all.had(7, 1_200), "it began afterwards");
        all.note(7, Span { t0_ns: 1_150, t1_ns: 1_250 });
        all.note(8, Span { t0_ns: 1_150, t1_ns: 1_250 });
        assert!(all.had(7, 2_000));
        assert!(!all.had(8, 2_000), "nobody had asked");
        assert!(!all.had(7, KEPT_NS + 1_250));
        (100..).take(2 * THREADS).for_each(|tid| assert!(!all.had(tid, KEPT_NS)));
        assert_eq!(all.asked.len(), THREADS);
        assert!(!all.had(9, 3 * KEPT_NS));
        assert_eq!(all.asked.len(), 1, "who was not asked about for long made room");
    }
}
