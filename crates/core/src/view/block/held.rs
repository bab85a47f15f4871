// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What limits of IO held back.

use crate::recording::{DevId, HeldTick, IoOp, ProcId};
use crate::view::Series;
use std::collections::{BTreeMap, BTreeSet};

/// Cgroups, devices and directions that are told apart; what is beyond is dropped and counted.
const MAX_KEYS: usize = 1000;
/// Processes of a cgroup that are known.
const MAX_MEMBERS: usize = 10_000;
/// Seconds before they are merged in pairs.
pub(in crate::view) const SECONDS: usize = 128;

/// Whose transfers, to which device: the cgroup's directory, if it is known.
pub type HeldKey = (DevId, IoOp, Option<String>);

/// What was held back, of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldBack {
    /// Transfers, when they were let go.
    pub ios: Series,
    /// Their bytes.
    pub bytes: u64,
    /// How long requests took that they became, together; those of ticks that do not tell are left out.
    pub service_ns: Series,
    /// Processes that were in the cgroup.
    pub members: BTreeSet<ProcId>,
}

impl Default for HeldBack {
    fn default() -> Self {
        let series = || Series::new(1_000_000_000, SECONDS);
        Self { ios: series(), bytes: 0, service_ns: series(), members: BTreeSet::new() }
    }
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AllHeld {
    by_key: BTreeMap<HeldKey, HeldBack>,
    /// Transfers of kinds that there was no room for.
    pub dropped: u64,
}

impl AllHeld {
    pub(super) fn push(&mut self, tick: &HeldTick) {
        let key = (tick.device, tick.op, tick.cgroup.clone());
        if self.by_key.len() >= MAX_KEYS && !self.by_key.contains_key(&key) {
            self.dropped = self.dropped.saturating_add(tick.ios);
            return;
        }
        let held = self.by_key.entry(key).or_default();
        held.ios.add(tick.t0_ns, tick.t1_ns, tick.ios);
        held.bytes = held.bytes.saturating_add(tick.bytes);
        let service_ns = tick.service_ns.unwrap_or(0).saturating_mul(tick.ios);
        held.service_ns.add(tick.t0_ns, tick.t1_ns, service_ns);
        let room = MAX_MEMBERS.saturating_sub(held.members.len());
        held.members.extend(tick.members.iter().take(room));
    }

    /// By device, direction and cgroup.
    #[must_use]
    pub fn by_key(&self) -> &BTreeMap<HeldKey, HeldBack> {
        &self.by_key
    }
}
