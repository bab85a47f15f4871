// SPDX-License-Identifier: Apache-2.0 OR MIT
//! On what the threads of a process slept.

use crate::recording::{
    Awaited, CHAIN, Did, RuntimeKind, SleepState, SleepTick, Slept, SleptOn, WokenBy,
};
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
    /// Nothing was said, and they are their runtime's own: see [`RuntimeKind::is_own_thread`].
    Runtime,
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
    /// Inside of requests: see [`SleepTick::in_request`].
    pub in_request: bool,
    /// What they waited for.
    pub behind: Vec<Awaited>,
}

impl SleepKey {
    /// The same without what each thread has of its own: its name, and the addresses of conditions.
    fn of_any_condition(mut self) -> Self {
        self.thread = None;
        self.slept.on = self.slept.on.of_any_condition();
        for awaited in &mut self.behind {
            if let Did::Slept(slept) = &mut awaited.did {
                slept.on = std::mem::take(&mut slept.on).of_any_condition();
            }
        }
        self
    }
}

fn is_of(runtime: Option<RuntimeKind>, thread: Option<&str>) -> bool {
    runtime.zip(thread).is_some_and(|(runtime, thread)| runtime.is_own_thread(thread))
}

/// How long alike sleeps took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lengths {
    /// Sleep that they stand for.
    pub ns: u64,
    /// Number that was looked at: of those of a millisecond and longer, each.
    pub looked_at: u64,
    /// Ticks that had any, a second each, and the sum of the longest of each.
    ticks: u64,
    longest_ns: u64,
}

impl Lengths {
    fn of(tick: &SleepTick) -> Self {
        let SleepTick { ns, looked_at, longest_ns, .. } = *tick;
        Self { ns, looked_at, ticks: 1, longest_ns }
    }

    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        let Self { ns, looked_at, ticks, longest_ns } = self;
        for (sum, other) in [
            (ns, other.ns),
            (looked_at, other.looked_at),
            (ticks, other.ticks),
            (longest_ns, other.longest_ns),
        ] {
            *sum = sum.saturating_add(other);
        }
    }

    /// Their mean, if each was looked at.
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        self.ns as f64 / self.looked_at.max(1) as f64
    }

    /// The longest of a second, on average.
    #[must_use]
    pub fn longest_ns(&self) -> f64 {
        self.longest_ns as f64 / self.ticks.max(1) as f64
    }
}

/// The sleeps of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sleeps {
    by_kind: BTreeMap<SleepKey, Lengths>,
    /// By what ended them.
    stops: BTreeMap<WokenBy, Lengths>,
    longest_stop_ns: u64,
}

impl Sleeps {
    /// Adds a tick. `has_entries` = the user said which threads serve requests; `runtime` = that of the process, if it is known.
    pub(super) fn push(
        &mut self,
        tick: &SleepTick,
        has_entries: bool,
        runtime: Option<RuntimeKind>,
    ) {
        let SleepTick { state, call, on, woken, thread, entry, asked, in_request, behind, .. } =
            tick;
        if *state == SleepState::Stopped {
            self.longest_stop_ns = self.longest_stop_ns.max(tick.longest_ns);
            if self.stops.len() < KINDS || self.stops.contains_key(woken) {
                self.stops.entry(woken.clone()).or_default().add(&Lengths::of(tick));
            }
            return;
        }
        let role = match *entry {
            Some(at) => Role::Entry { at, asked: *asked },
            None if has_entries => Role::NoEntry,
            None if is_of(runtime, thread.as_deref()) => Role::Runtime,
            None => Role::NotSaid,
        };
        let (state, woken) = (*state, woken.clone());
        let slept = Slept { state, call: call.clone(), on: on.clone(), woken };
        let behind = behind.iter().take(CHAIN).cloned().collect();
        let (thread, in_request) = (thread.clone(), *in_request == Some(true));
        let mut key = SleepKey { role, slept, thread, in_request, behind };
        if self.is_full_for(&key) {
            key = key.of_any_condition();
        }
        if self.is_full_for(&key) {
            key.behind = vec![];
        }
        if self.is_full_for(&key) {
            let (call, on, woken) = ("(others)".into(), SleptOn::Others, WokenBy::NotKnown);
            key.slept = Slept { state, call, on, woken };
        }
        self.by_kind.entry(key).or_default().add(&Lengths::of(tick));
    }

    /// The runtime of the process is known from now on.
    pub(super) fn has_runtime(&mut self, runtime: RuntimeKind) {
        for (mut key, lengths) in std::mem::take(&mut self.by_kind) {
            if key.role == Role::NotSaid && is_of(Some(runtime), key.thread.as_deref()) {
                key.role = Role::Runtime;
            }
            self.by_kind.entry(key).or_default().add(&lengths);
        }
    }

    fn is_full_for(&self, key: &SleepKey) -> bool {
        self.by_kind.len() >= KINDS && !self.by_kind.contains_key(key)
    }

    /// Each kind, and how long it took.
    pub fn iter(&self) -> impl Iterator<Item = (&SleepKey, u64)> {
        self.by_kind.iter().map(|(key, it)| (key, it.ns))
    }

    /// Times in which its threads were stopped, held by a tracer or frozen, by what ended them.
    pub fn stops(&self) -> impl Iterator<Item = (&WokenBy, &Lengths)> {
        self.stops.iter()
    }

    /// The longest of these that was looked at.
    #[must_use]
    pub fn longest_stop_ns(&self) -> u64 {
        self.longest_stop_ns
    }

    /// Each kind, and how long its sleeps took.
    pub fn lengths(&self) -> impl Iterator<Item = (&SleepKey, &Lengths)> {
        self.by_kind.iter()
    }
}
