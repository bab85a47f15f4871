// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whose requests were queued or in the device while a group waited for its own: the group's wait in nanoseconds, by
//! culprit.

use crate::recording::{CgroupId, DevId, IoCulprit, IoPurpose};
use crate::view::{Group, Groups, View};
use std::collections::BTreeMap;

/// A culprit of waits for requests, in terms of groups and cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Neighbour {
    /// Requests that a group submitted.
    Group(usize),
    /// Writeback that a process of this group requested (`sync(2)`, `syncfs(2)`), regardless of the owner of the pages.
    Asked(usize),
    /// Writeback of pages that this group dirtied and that are accounted to the same cgroup as the victim's.
    Dirtied(usize),
    /// Writeback of pages that this cgroup owns.
    Writeback(CgroupId),
    /// Writeback of pages with an unknown owner.
    Unowned,
    /// Requests of a journal, or for metadata.
    Filesystem,
    /// No other requests: the service time of the group's own requests.
    Device,
    /// Requests of processes that belong to no group.
    Unnamed,
}

impl Neighbour {
    /// Converts a recorded culprit.
    #[must_use]
    pub fn of(view: &View, groups: &Groups<'_>, culprit: IoCulprit) -> Self {
        match culprit {
            IoCulprit::Process(id) => groups.index_of(id).map_or(Self::Unnamed, Self::Group),
            IoCulprit::Writeback(Some(id)) if view.path_of(id).is_some() => Self::Writeback(id),
            IoCulprit::Writeback(_) => Self::Unowned,
            IoCulprit::Filesystem => Self::Filesystem,
            IoCulprit::Device => Self::Device,
        }
    }
}

/// Wait of a group for its requests, by culprit.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    /// Wait for the group's own other requests, in nanoseconds.
    pub own_ns: u64,
    /// All other wait by culprit, in nanoseconds.
    pub beside: BTreeMap<Neighbour, u64>,
}

impl Shares {
    /// Wait of a group, for one disk or (`None`) for all.
    #[must_use]
    pub fn of(view: &View, groups: &Groups<'_>, victim: usize, device: Option<DevId>) -> Self {
        let own = &groups.list()[victim];
        let mut shares = Self::default();
        for ((proc, dev, culprit), ns) in view.block().blame() {
            let here = device.is_none_or(|device| view.block().disk_of(*dev) == device);
            if !here || groups.index_of(*proc) != Some(victim) {
                continue;
            }
            let mut ns = ns;
            let rest_ns;
            if let IoCulprit::Writeback(owner) = culprit {
                let disk = view.block().disk_of(*dev);
                let asked = asked_for(view, groups, disk, *owner);
                let theirs = asked.iter().map(|&(at, share)| (at, (*ns as f64 * share) as u64));
                let theirs: Vec<_> = theirs.collect();
                for &(at, ns) in &theirs {
                    match at == victim {
                        true => shares.own_ns += ns,
                        false => *shares.beside.entry(Neighbour::Asked(at)).or_default() += ns,
                    }
                }
                rest_ns = ns.saturating_sub(theirs.iter().map(|&(_, ns)| ns).sum());
                ns = &rest_ns;
            }
            match culprit {
                IoCulprit::Writeback(Some(id)) if is_own(view, own, *id) => {
                    let disk = view.block().disk_of(*dev);
                    let others = dirtied_by_others(view, groups, victim, (disk, *id));
                    let theirs =
                        others.iter().map(|&(at, share)| (at, (*ns as f64 * share) as u64));
                    let theirs: Vec<_> = theirs.collect();
                    shares.own_ns += ns.saturating_sub(theirs.iter().map(|&(_, ns)| ns).sum());
                    for (at, ns) in theirs {
                        *shares.beside.entry(Neighbour::Dirtied(at)).or_default() += ns;
                    }
                }
                _ => match Neighbour::of(view, groups, *culprit) {
                    Neighbour::Group(at) if at == victim => shares.own_ns += ns,
                    beside => *shares.beside.entry(beside).or_default() += ns,
                },
            }
        }
        shares
    }

    /// Total wait, in nanoseconds.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.own_ns + self.beside.values().sum::<u64>()
    }

    fn is_other(beside: Neighbour) -> bool {
        matches!(
            beside,
            Neighbour::Group(_)
                | Neighbour::Asked(_)
                | Neighbour::Dirtied(_)
                | Neighbour::Writeback(_)
                | Neighbour::Unnamed
        )
    }

    /// Wait for requests of other groups and cgroups, in nanoseconds: without the group's own requests, journals and
    /// metadata, service time, and writeback of pages with an unknown owner.
    #[must_use]
    pub fn others_ns(&self) -> u64 {
        self.beside.iter().filter(|(beside, _)| Self::is_other(**beside)).map(|(_, ns)| ns).sum()
    }

    /// The culprit with the largest part of [`Self::others_ns`], and that part.
    #[must_use]
    pub fn worst(&self) -> Option<(Neighbour, u64)> {
        let others = self.beside.iter().filter(|(beside, _)| Self::is_other(**beside));
        others
            .max_by_key(|&(beside, ns)| (*ns, std::cmp::Reverse(*beside)))
            .map(|(beside, ns)| (*beside, *ns))
    }
}

/// Whether `owner` is the cgroup to which the pages of the group `own` are accounted. With cgroup v1 the owner is a
/// directory of the memory controller's tree, where a process may have a different path than in the CPU controller's.
fn is_own(view: &View, own: &Group<'_>, owner: CgroupId) -> bool {
    let owner_path = view.path_of(owner);
    let mut elsewhere =
        own.members.iter().filter_map(|(_, process)| process.memory_cgroup.as_deref());
    match elsewhere.next() {
        Some(first) => {
            owner_path.is_some_and(|owner| first == owner || elsewhere.any(|it| it == owner))
        }
        None => {
            let own = own.cgroup;
            let own_path = own.and_then(|id| view.path_of(id));
            own == Some(owner) || own_path.is_some() && own_path == owner_path
        }
    }
}

/// Shares of the writeback of one owner's pages to a disk that groups other than the victim dirtied. Many hosts account
/// the memory of all processes to one cgroup. The owner then identifies no process, but the process that first dirtied
/// a file is known. Writeback without such a process stays with the owner.
fn dirtied_by_others(
    view: &View,
    groups: &Groups<'_>,
    victim: usize,
    (disk, owner): (DevId, CgroupId),
) -> Vec<(usize, f64)> {
    let (mut by_group, mut all_bytes) = (BTreeMap::<usize, u64>::new(), 0);
    for (key, sum) in view.block().sums() {
        let here = key.device == disk && key.owner == Some(owner) && key.reason.is_some();
        if !here {
            continue;
        }
        all_bytes += sum.bytes;
        let IoPurpose::File(file) = key.what else { continue };
        let dirtier = view.block().files().get(&file).and_then(|file| file.dirtied_by);
        if let Some(at) = dirtier.and_then(|id| groups.index_of(id)).filter(|&at| at != victim) {
            *by_group.entry(at).or_default() += sum.bytes;
        }
    }
    by_group.into_iter().map(|(at, bytes)| (at, bytes as f64 / all_bytes.max(1) as f64)).collect()
}

/// Shares of the writeback of one owner's pages to a disk that groups requested. The flusher's transfers have a reason,
/// and its passes have a reason and the processes that requested them.
fn asked_for(
    view: &View,
    groups: &Groups<'_>,
    disk: DevId,
    owner: Option<CgroupId>,
) -> Vec<(usize, f64)> {
    // By reason: bytes of all passes, and the part of them that each group requested.
    let mut passes = BTreeMap::<&str, (u64, BTreeMap<usize, u64>)>::new();
    for pass in view.block().passes() {
        if view.block().disk_of(pass.device) != disk {
            continue;
        }
        let (all_bytes, by_group) = passes.entry(&pass.reason).or_default();
        *all_bytes += pass.bytes;
        // Several processes may have requested one pass: its bytes are split by number of requests.
        let times: u64 = pass.asked_by.iter().map(|&(_, times)| u64::from(times)).sum();
        for &(id, of) in &pass.asked_by {
            if let Some(at) = groups.index_of(id) {
                *by_group.entry(at).or_default() += pass.bytes / times.max(1) * u64::from(of);
            }
        }
    }
    if passes.values().all(|(_, by_group)| by_group.is_empty()) {
        return vec![];
    }
    let (mut asked, mut all_bytes) = (BTreeMap::<usize, f64>::new(), 0);
    for (key, sum) in view.block().sums() {
        let Some(reason) = key.reason.as_deref().filter(|_| key.device == disk) else { continue };
        if key.owner != owner {
            continue;
        }
        all_bytes += sum.bytes;
        let Some((of_reason, by_group)) = passes.get(reason) else { continue };
        for (&at, &bytes) in by_group {
            let share = bytes as f64 / (*of_reason).max(1) as f64;
            *asked.entry(at).or_default() += sum.bytes as f64 * share;
        }
    }
    asked.into_iter().map(|(at, bytes)| (at, bytes / all_bytes.max(1) as f64)).collect()
}

/// Share of a group's wait for requests that it caused itself: its own other requests, and service time. `None` if it
/// did not wait.
#[must_use]
pub fn own_share(
    view: &View,
    groups: &Groups<'_>,
    victim: usize,
    device: Option<DevId>,
) -> Option<f64> {
    let shares = Shares::of(view, groups, victim, device);
    let alone = shares.beside.get(&Neighbour::Device).copied().unwrap_or(0);
    (shares.total_ns() > 0).then(|| (shares.own_ns + alone) as f64 / shares.total_ns() as f64)
}

/// Share of a group's wait for requests of other groups and cgroups ([`Shares::others_ns`]).
#[must_use]
pub fn others_share(view: &View, groups: &Groups<'_>, victim: usize, device: DevId) -> f64 {
    let shares = Shares::of(view, groups, victim, Some(device));
    shares.others_ns() as f64 / shares.total_ns().max(1) as f64
}

/// The disk for which a group waits most; `None` if it waits for none.
#[must_use]
pub fn main_device(view: &View, groups: &Groups<'_>, victim: usize) -> Option<DevId> {
    let mut by_device: BTreeMap<DevId, u64> = BTreeMap::new();
    for ((proc, device, _), ns) in view.block().blame() {
        if groups.index_of(*proc) == Some(victim) {
            *by_device.entry(view.block().disk_of(*device)).or_default() += ns;
        }
    }
    by_device
        .into_iter()
        .max_by_key(|&(device, ns)| (ns, std::cmp::Reverse(device)))
        .map(|(device, _)| device)
}
