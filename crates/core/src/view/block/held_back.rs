// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long limits of block IO stalled the processes of a cgroup.

use super::HeldBack;
use crate::recording::{DevId, IoOp, ProcId, StallKind};
use crate::view::{Series, Usage, View};
use std::collections::{BTreeMap, BTreeSet};

/// Delayed transfers of one cgroup.
#[derive(Clone, Debug, Default)]
pub struct HeldOfCgroup<'v> {
    /// Delayed transfers by device and direction.
    pub kinds: BTreeMap<(DevId, IoOp), &'v HeldBack>,
    /// Time that each of its processes waited for block IO and that nothing but the limit explains, in nanoseconds.
    pub members: BTreeMap<ProcId, u64>,
}

/// All cgroups with delayed transfers, by directory.
#[must_use]
pub fn held_by_cgroup(view: &View) -> BTreeMap<&str, HeldOfCgroup<'_>> {
    let mut all: BTreeMap<&str, HeldOfCgroup<'_>> = BTreeMap::new();
    for ((device, op, cgroup), held) in view.block().held().by_key() {
        if let Some(cgroup) = cgroup {
            all.entry(cgroup).or_default().kinds.insert((*device, *op), held);
        }
    }
    for of in all.values_mut() {
        let ids: BTreeSet<ProcId> =
            of.kinds.values().flat_map(|held| held.members.iter().copied()).collect();
        of.members = unexplained(view, of.kinds.values().copied(), &ids);
    }
    all
}

/// Number of delayed transfers, in all cgroups.
#[must_use]
pub fn held_transfers(view: &View) -> u64 {
    let held = view.block().held().by_key().values();
    held.map(|held| held.ios.total()).fold(0, u64::saturating_add)
}

/// Time that each process waited for block IO, in nanoseconds, without its waits for requests, its pauses by dirty
/// throttling, and the service time of the delayed transfers (subtracted from each process in proportion). Only seconds
/// in which delayed transfers were dispatched, and the seconds before them, count.
fn unexplained<'v>(
    view: &View,
    held: impl Iterator<Item = &'v HeldBack> + Clone,
    ids: &BTreeSet<ProcId>,
) -> BTreeMap<ProcId, u64> {
    let block = view.block();
    let ledgers: BTreeMap<ProcId, Usage> =
        ids.iter().filter_map(|id| Some((*id, view.processes().get(id)?.usage()?))).collect();
    let series = ledgers.values().map(|usage| &usage.block_io);
    let others = ids.iter().filter_map(|id| block.held_up(*id));
    let own = held.clone().flat_map(|held| [&held.ios, &held.service_ns]);
    let width_ns = series.chain(others).chain(own).map(Series::width_ns).max().unwrap_or(1);
    let mut open = BTreeSet::new();
    for (bin, ios) in held.clone().flat_map(|held| bins(&held.ios, width_ns)) {
        if ios > 0 {
            open.insert(bin);
            // A transfer that was dispatched early in a second was delayed in the second before.
            open.insert(bin.saturating_sub(1));
        }
    }
    let inside = |series: &Series| -> u64 {
        bins(series, width_ns).filter(|(bin, _)| open.contains(bin)).map(|(_, n)| n).sum()
    };
    let mut times: BTreeMap<ProcId, u64> = BTreeMap::new();
    for id in ids {
        let waited_ns = match ledgers.get(id) {
            Some(usage) => inside(&usage.block_io),
            // Without thread states, only syncs are known to have waited.
            None => syncs_ns(view, *id),
        };
        let known_ns = block.held_up(*id).map_or(0, inside);
        times.insert(*id, waited_ns.saturating_sub(known_ns));
    }
    let all_ns: u64 = times.values().sum();
    let served_ns: u64 = held.map(|held| inside(&held.service_ns)).sum();
    let left = all_ns.saturating_sub(served_ns) as f64 / all_ns.max(1) as f64;
    times.values_mut().for_each(|ns| *ns = (*ns as f64 * left) as u64);
    times
}

/// Amounts of the bins of a series, each with the index of the bin of `width_ns` that contains it. `width_ns` is a
/// multiple of the series' own width.
fn bins(series: &Series, width_ns: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
    let each_ns = series.width_ns();
    series.known().map(move |(bin, n)| (u64::from(bin) * each_ns / width_ns, n))
}

fn syncs_ns(view: &View, id: ProcId) -> u64 {
    let of = view.block().waits_of(id).filter(|(key, _)| key.1 == StallKind::Sync);
    of.map(|(_, waits)| waits.waits.total_ns()).sum()
}
