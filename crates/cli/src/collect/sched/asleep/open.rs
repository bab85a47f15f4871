// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sleeps in progress, held back for a second: if they end meanwhile, it is known what ended them.

use deburr_bpf::sched::{Context, Sleep};
use std::collections::BTreeMap;

/// Sleeps that are held back.
const HELD: usize = 4096;

/// The sleeps in progress, by thread and beginning.
#[derive(Debug, Default)]
pub(super) struct Open {
    held: BTreeMap<(u32, u64), Sleep>,
    /// Those of this second.
    new: BTreeMap<(u32, u64), Sleep>,
}

impl Open {
    /// Takes what was slept. Returns what can be told of it: a sleep that has ended, with what was held back of it.
    pub(super) fn take(&mut self, mut sleep: Sleep) -> Option<Sleep> {
        let key = (sleep.tid, sleep.since_ns);
        if sleep.waker.context != Context::NotYet {
            for held in [self.held.remove(&key), self.new.remove(&key)].into_iter().flatten() {
                sleep.stands_for_ns += held.stands_for_ns;
            }
            return Some(sleep);
        }
        if self.new.len() >= HELD {
            return Some(sleep);
        }
        self.new.insert(key, sleep);
        None
    }

    /// A second is over. Returns the parts of sleeps that are held back no longer.
    pub(super) fn second(&mut self, last: bool) -> Vec<Sleep> {
        let mut told = std::mem::replace(&mut self.held, std::mem::take(&mut self.new));
        if last {
            // Of most of them, the second before is held back, too.
            for (key, mut sleep) in std::mem::take(&mut self.held) {
                sleep.stands_for_ns += told.get(&key).map_or(0, |before| before.stands_for_ns);
                told.insert(key, sleep);
            }
        }
        told.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::kind::tests::sleep;
    use super::*;
    use deburr_bpf::sched::Object;

    fn part(since_ns: u64, stands_for_ns: u64, ended: bool) -> Sleep {
        let context = if ended { Context::Thread } else { Context::NotYet };
        Sleep { since_ns, stands_for_ns, ..sleep(Object::None, context) }
    }

    fn told(all: Vec<Sleep>) -> Vec<(u64, u64)> {
        all.into_iter().map(|it| (it.since_ns, it.stands_for_ns)).collect()
    }

    #[test]
    fn what_ends_within_a_second_is_told_whole_and_nothing_is_lost() {
        let mut open = Open::default();
        let ended = |it: Option<Sleep>| it.map(|it| it.stands_for_ns);
        assert_eq!(ended(open.take(part(1, 600, false))), None);
        assert_eq!(ended(open.take(part(2, 500, false))), None);
        assert_eq!(open.second(false), []);
        // One ends, the other goes on.
        assert_eq!(ended(open.take(part(1, 50, true))), Some(650));
        assert_eq!(ended(open.take(part(3, 7, true))), Some(7));
        assert_eq!(ended(open.take(part(2, 1000, false))), None);
        assert_eq!(told(open.second(false)), [(2, 500)]);
        // It ends, and what it was longer is not due.
        assert_eq!(told(open.second(false)), [(2, 1000)]);
        open.take(part(4, 10, false));
        assert_eq!(told(open.second(true)), [(4, 10)]);
        open.take(part(5, 600, false));
        assert_eq!(open.second(false), []);
        open.take(part(5, 1000, false));
        open.take(part(6, 7, false));
        assert_eq!(told(open.second(true)), [(5, 1600), (6, 7)], "the last two seconds");
    }

    #[test]
    fn what_is_held_is_bounded() {
        let mut open = Open::default();
        let told = (0..10_000).filter_map(|since| open.take(part(since, 1, false))).count();
        assert_eq!(told + open.new.len(), 10_000);
        assert!(open.new.len() <= HELD);
    }
}
