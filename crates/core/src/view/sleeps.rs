// SPDX-License-Identifier: Apache-2.0 OR MIT
//! On what the threads of a process slept.

use crate::recording::{Awaited, CHAIN, SleepTick, Slept, SleptOn, WokenBy};
use std::collections::BTreeMap;

/// Kinds of sleep of a process that are kept. A recording has a hundred of each second, at most.
const KINDS: usize = 1024;

/// What the user said of threads: whether they serve requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Nothing was said of any thread.
    #[default]
    NotSaid,
    /// They do.
    Entry {
        /// Place of the entry that they belong to, in the session's.
        at: u32,
        /// See [`SleepTick::asked`].
        asked: Option<bool>,
    },
    /// Others do.
    NoEntry,
}

/// What makes sleeps alike.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SleepKey {
    /// Whether the threads serve requests.
    pub role: Role,
    /// How they slept.
    pub slept: Slept,
    /// Name of the threads.
    pub thread: Option<String>,
    /// What they waited for.
    pub behind: Vec<Awaited>,
}

/// The sleeps of a process, in nanoseconds that they stand for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sleeps {
    by_kind: BTreeMap<SleepKey, u64>,
}

impl Sleeps {
    /// Adds a tick. `has_entries` = the user said which threads serve requests.
    pub(super) fn push(&mut self, tick: &SleepTick, has_entries: bool) {
        let SleepTick { state, call, on, woken, thread, entry, asked, behind, ns, .. } = tick;
        let role = match *entry {
            Some(at) => Role::Entry { at, asked: *asked },
            None if has_entries => Role::NoEntry,
            None => Role::NotSaid,
        };
        let (state, woken) = (*state, woken.clone());
        let slept = Slept { state, call: call.clone(), on: on.clone(), woken };
        let behind = behind.iter().take(CHAIN).cloned().collect();
        let mut key = SleepKey { role, slept, thread: thread.clone(), behind };
        if self.is_full_for(&key) {
            (key.thread, key.behind) = (None, vec![]);
        }
        if self.is_full_for(&key) {
            let (call, on, woken) = ("(others)".into(), SleptOn::Others, WokenBy::NotKnown);
            key.slept = Slept { state, call, on, woken };
        }
        let sum = self.by_kind.entry(key).or_default();
        *sum = sum.saturating_add(*ns);
    }

    fn is_full_for(&self, key: &SleepKey) -> bool {
        self.by_kind.len() >= KINDS && !self.by_kind.contains_key(key)
    }

    /// Each kind, and how long it took.
    pub fn iter(&self) -> impl Iterator<Item = (&SleepKey, u64)> {
        self.by_kind.iter().map(|(key, &ns)| (key, ns))
    }
}
