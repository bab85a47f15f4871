// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Transfers that limits of block IO (`io.max`, `blkio.throttle.*`) delayed.

use crate::recording::{DevId, HeldTick, IoOp, ProcId};
use crate::view::Series;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of combinations of cgroup, device and direction; transfers of further ones are only counted.
const MAX_KEYS: usize = 1000;
/// Maximum number of member processes of one combination.
const MAX_MEMBERS: usize = 10_000;
/// Maximum number of bins of a series: at first one per second, then merged in pairs.
pub(in crate::view) const SECONDS: u32 = 128;

/// Device, direction, and directory of the cgroup if known.
pub type HeldKey = (DevId, IoOp, Option<String>);

/// Delayed transfers of one device, direction and cgroup.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldBack {
    /// Number of transfers, by the time of their dispatch.
    pub ios: Series,
    /// Bytes of these transfers.
    pub bytes: u64,
    /// Sum over transfers of the time from dispatch to completion of their requests, in nanoseconds. Ticks without a
    /// service time count as 0.
    pub service_ns: Series,
    /// Processes in the cgroup.
    pub members: BTreeSet<ProcId>,
}

impl Default for HeldBack {
    fn default() -> Self {
        let series = || Series::new(1_000_000_000, SECONDS);
        Self { ios: series(), bytes: 0, service_ns: series(), members: BTreeSet::new() }
    }
}

/// All delayed transfers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeldTransfers {
    by_key: BTreeMap<HeldKey, HeldBack>,
    /// Number of transfers of combinations for which there was no room.
    pub dropped: u64,
}

impl HeldTransfers {
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

    /// Delayed transfers by device, direction and cgroup.
    #[must_use]
    pub fn by_key(&self) -> &BTreeMap<HeldKey, HeldBack> {
        &self.by_key
    }
}
