// SPDX-License-Identifier: Apache-2.0 OR MIT
//! On what the threads of a process slept.

use crate::recording::{SleepState, SleepTick, SleptOn, WokenBy};
use std::collections::BTreeMap;

/// Kinds of sleep of a process that are kept. A recording has 48 of each second.
const KINDS: usize = 512;

/// What makes sleeps alike.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SleepKey {
    /// State of the ledger.
    pub state: SleepState,
    /// System call.
    pub call: String,
    /// On what.
    pub on: SleptOn,
    /// What ended it.
    pub woken: WokenBy,
}

/// The sleeps of a process, in nanoseconds that they stand for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sleeps {
    by_kind: BTreeMap<SleepKey, u64>,
}

impl Sleeps {
    pub(super) fn push(&mut self, tick: &SleepTick) {
        let SleepTick { state, call, on, woken, ns, .. } = tick;
        let mut key =
            SleepKey { state: *state, call: call.clone(), on: on.clone(), woken: woken.clone() };
        if self.by_kind.len() >= KINDS && !self.by_kind.contains_key(&key) {
            key = SleepKey {
                state: *state,
                call: "(others)".into(),
                on: SleptOn::Others,
                woken: WokenBy::NotKnown,
            };
        }
        *self.by_kind.entry(key).or_default() += ns;
    }

    /// Each kind, and how long it took.
    pub fn iter(&self) -> impl Iterator<Item = (&SleepKey, u64)> {
        self.by_kind.iter().map(|(key, &ns)| (key, ns))
    }
}
