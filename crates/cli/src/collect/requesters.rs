// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which threads have lately asked disks for something themselves.

use std::collections::BTreeMap;

/// For so long a thread is known after its last request.
const KEPT_NS: u64 = 10_000_000_000;
/// Threads that are known at a time.
const MOST: usize = 10_000;

/// Threads by id, with the time in the window at which a request of theirs was last seen to be complete.
#[derive(Debug, Default)]
pub(crate) struct Requesters {
    seen_ns: BTreeMap<u32, u64>,
    looked_ns: u64,
}

impl Requesters {
    /// A thread has submitted a request that somebody waits for.
    pub(crate) fn note(&mut self, tid: u32, t_ns: u64) {
        if t_ns.saturating_sub(self.looked_ns) >= KEPT_NS {
            self.looked_ns = t_ns;
            self.seen_ns.retain(|_, seen_ns| t_ns.saturating_sub(*seen_ns) < KEPT_NS);
        }
        if self.seen_ns.len() < MOST || self.seen_ns.contains_key(&tid) {
            self.seen_ns.insert(tid, t_ns);
        }
    }

    /// Whether a thread has.
    pub(crate) fn has(&self, tid: u32) -> bool {
        self.seen_ns.contains_key(&tid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_no_more_is_forgotten() {
        let mut all = Requesters::default();
        all.note(7, 1_000);
        assert!(all.has(7) && !all.has(8));
        all.note(8, KEPT_NS + 2_000);
        assert!(all.has(8) && !all.has(7));
        (100..).take(2 * MOST).for_each(|tid| all.note(tid, KEPT_NS + 3_000));
        assert_eq!(all.seen_ns.len(), MOST);
    }
}
