// SPDX-License-Identifier: Apache-2.0 OR MIT
//! In what functions threads go to sleep, and in what functions those are that wake them.

use crate::recording::{ProcId, SleepStack};
use std::collections::BTreeMap;

/// Maximum number of stacks of all processes; of further ones only the sleep is summed up.
const MAX_STACKS: usize = 20_000;

/// In what a process sleeps: the call, and the word of a `futex`.
pub type SleptIn = (String, Option<u64>);

/// Sleep of alike stacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackSleep {
    /// Sleeps that were looked at.
    pub samples: u64,
    /// Sleep that they stand for: an estimate.
    pub ns: u64,
}

impl StackSleep {
    /// Adds another.
    pub fn add(&mut self, other: Self) {
        self.samples = self.samples.saturating_add(other.samples);
        self.ns = self.ns.saturating_add(other.ns);
    }
}

/// The stacks of a kind of sleep: those of the sleeper with `None`, those of who ended it with its process.
pub type StacksOfKind = BTreeMap<(Option<ProcId>, String), StackSleep>;

/// The stacks of all processes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SleepStacks {
    of: BTreeMap<ProcId, BTreeMap<SleptIn, StacksOfKind>>,
    kept: usize,
}

impl SleepStacks {
    pub(super) fn push(&mut self, it: &SleepStack) {
        let kinds = self.of.entry(it.process).or_default();
        let stacks = kinds.entry((it.call.clone(), it.address)).or_default();
        let mut key = (it.waker, it.stack.clone());
        if !stacks.contains_key(&key) {
            match self.kept < MAX_STACKS {
                true => self.kept += 1,
                false => key = (it.waker, String::new()),
            }
        }
        stacks.entry(key).or_default().add(StackSleep { samples: it.samples, ns: it.ns });
    }

    /// The kinds of sleep of a process, and their stacks.
    pub fn of(&self, process: ProcId) -> impl Iterator<Item = (&SleptIn, &StacksOfKind)> {
        self.of.get(&process).into_iter().flatten()
    }

    /// Sleeps that were looked at.
    #[must_use]
    pub fn samples(&self) -> u64 {
        let stacks = self.of.values().flat_map(BTreeMap::values).flatten();
        let begun = stacks.filter(|((waker, _), _)| waker.is_none());
        begun.fold(0, |sum, (_, it)| sum.saturating_add(it.samples))
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(process: u32, stack: &str, ns: u64) -> SleepStack {
        let (process, call, stack) = (ProcId(process), "read".to_owned(), stack.to_owned());
        let (address, waker, samples) = (None, None, 1);
        SleepStack { t0_ns: 0, t1_ns: 1, process, call, address, waker, stack, samples, ns }
    }

    #[test]
    fn alike_stacks_are_summed_and_those_without_room_too() {
        let mut stacks = SleepStacks { kept: MAX_STACKS - 1, ..SleepStacks::default() };
        for (name, ns) in [("a", 1), ("b", 2), ("c", 4), ("a", u64::MAX)] {
            stacks.push(&stack(1, name, ns));
        }
        let kinds: Vec<_> = stacks.of(ProcId(1)).collect();
        let [(kind, stacks)] = kinds.as_slice() else { panic!("{kinds:?}") };
        assert_eq!(**kind, ("read".to_owned(), None));
        let sums: Vec<_> = stacks.iter().map(|((_, name), it)| (name.as_str(), it.ns)).collect();
        assert_eq!(sums, [("", 6), ("a", u64::MAX)]);
    }
}
