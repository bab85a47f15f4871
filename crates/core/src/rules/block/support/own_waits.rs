// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long groups wait for what they ask of a disk themselves.

use super::victims::Victim;
use crate::recording::{DevId, ProcId, SleptOn, StallKind};
use crate::rules::memory::reads_again_ns;
use crate::view::block::{Neighbour, Shares, held_by_cgroup, main_device};
use crate::view::{Groups, View};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Waiting of others for syncs, of the victim's own, that is too little to matter.
const OTHERS_SYNC: f64 = 0.05;

/// A group that waits for its own requests.
pub(in crate::rules::block) struct Own<'g> {
    pub(in crate::rules::block) victim: Victim<'g>,
    /// The disk for which it waits most.
    pub(in crate::rules::block) device: DevId,
    /// Its waiting for its own requests there.
    pub(in crate::rules::block) ns: u64,
    /// That, of all its waiting for the disk.
    pub(in crate::rules::block) part: f64,
}

impl<'g> Own<'g> {
    /// All of them, the one that waits longest first.
    pub(in crate::rules::block) fn all(view: &'g View, groups: &'g Groups<'g>) -> Vec<Self> {
        let around = Around::of(view, groups);
        let all = Victim::all(view, groups).into_iter();
        let mut all: Vec<Self> =
            all.filter_map(|victim| Self::of(view, groups, &around, victim)).collect();
        all.sort_by_key(|it| (Reverse(it.ns), it.victim.at));
        all
    }

    fn of(view: &View, groups: &Groups<'_>, around: &Around, victim: Victim<'g>) -> Option<Self> {
        let device = main_device(view, groups, victim.at)?;
        let shares = Shares::of(view, groups, victim.at, Some(device));
        let beside = |whom| shares.beside.get(&whom).copied().unwrap_or(0);
        let mut own_ns = shares.own_ns + beside(Neighbour::Device);
        let mut total_ns = shares.total_ns();
        if around.syncs_alone(device, victim.at) {
            own_ns += beside(Neighbour::Filesystem);
            let flushes_ns = around.flushes_ns(&victim);
            own_ns += flushes_ns;
            total_ns += flushes_ns;
        }
        let part = own_ns as f64 / total_ns.max(1) as f64;
        // What no thread was off its CPU for was waited for by none.
        let slept_ns = victim.group.usage.as_ref().map_or(own_ns, |usage| {
            let states = &usage.states;
            states.block_io_ns + states.uninterruptible_ns + transfers_ns(view, &victim)
        });
        let ns = own_ns.min(slept_ns);
        (ns > 0).then_some(Self { victim, device, ns, part })
    }

    /// The same without the waiting to read again what was in memory (MEM003).
    pub(in crate::rules::block) fn without_read_again(&self, view: &View) -> Self {
        let again_ns = reads_again_ns(view, self.victim.group);
        Self { victim: self.victim.clone(), ns: self.ns.saturating_sub(again_ns), ..*self }
    }
}

/// How long its threads slept for transfers that they had asked for without waiting, where that was recorded.
fn transfers_ns(view: &View, victim: &Victim<'_>) -> u64 {
    let members = victim.group.members.iter();
    let sleeps = members.filter_map(|(id, _)| view.processes().get(id)?.sleeps.as_ref());
    let of = sleeps.flat_map(|it| it.iter());
    of.filter(|(key, _)| key.slept.on == SleptOn::Transfers).map(|(_, ns)| ns).sum()
}

/// What else is there.
struct Around {
    /// How long groups wait for syncs, by disk; `None` = on a disk, or by a process, that is not known.
    syncing: BTreeMap<Option<DevId>, BTreeMap<Option<usize>, u64>>,
    /// Processes of which a limit held transfers back (BLK007).
    held: BTreeSet<ProcId>,
}

impl Around {
    fn of(view: &View, groups: &Groups<'_>) -> Self {
        let mut syncing: BTreeMap<_, BTreeMap<_, u64>> = BTreeMap::new();
        for ((proc, kind, device), held) in view.block().waits() {
            if *kind == StallKind::Sync {
                let disk = device.map(|device| view.block().disk_of(device));
                let of_disk = syncing.entry(disk).or_default();
                *of_disk.entry(groups.index_of(*proc)).or_default() += held.waits.total_ns();
            }
        }
        let held = held_by_cgroup(view);
        let held = held.values().flat_map(|of| of.members.keys().copied()).collect();
        Self { syncing, held }
    }

    /// Whether hardly anybody else waits for syncs on a disk: then the journal works for this group, and the disk's cache is
    /// flushed for it.
    fn syncs_alone(&self, device: DevId, victim: usize) -> bool {
        let here = [Some(device), None];
        let here = here.into_iter().filter_map(|disk| self.syncing.get(&disk)).flatten();
        let (own, others): (Vec<_>, Vec<_>) = here.partition(|(group, _)| **group == Some(victim));
        let sum_ns = |of: &[(&Option<usize>, &u64)]| of.iter().map(|(_, ns)| **ns).sum::<u64>();
        sum_ns(&others) as f64 <= OTHERS_SYNC * sum_ns(&own) as f64
    }

    /// What syncs of a group take beyond its requests. Flushes are no requests that somebody waits for; who syncs waits for them.
    /// Nothing where a limit held transfers back meanwhile.
    fn flushes_ns(&self, victim: &Victim<'_>) -> u64 {
        if victim.group.members.iter().any(|(id, _)| self.held.contains(id)) {
            return 0;
        }
        let waited_ns = |kind| victim.held(kind).waits.total_ns();
        waited_ns(StallKind::Sync).saturating_sub(waited_ns(StallKind::Request))
    }
}
