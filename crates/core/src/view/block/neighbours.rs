// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whose requests were queued or in the device while a group waited for its own: the group's wait in nanoseconds, by
//! culprit.

use crate::recording::{CgroupId, DevId, IoCulprit};
use crate::view::{Group, Groups, View};
use std::collections::{BTreeMap, BTreeSet};

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
        let own = OwnCgroups::of(view, &groups.list()[victim]);
        let mut shares = Self::default();
        let members = groups.list()[victim].members.iter();
        for (dev, culprit, ns) in members.flat_map(|(id, _)| view.block().blame_of(*id)) {
            let disk = view.block().disk_of(dev);
            if device.is_some_and(|device| device != disk) {
                continue;
            }
            let mut rest_ns = ns;
            if let IoCulprit::Writeback(owner) = culprit {
                for (at, share) in groups.writeback().asked(disk, owner) {
                    let theirs_ns = (ns as f64 * share) as u64;
                    if at == victim {
                        shares.own_ns += theirs_ns;
                    } else {
                        *shares.beside.entry(Neighbour::Asked(at)).or_default() += theirs_ns;
                    }
                    rest_ns = rest_ns.saturating_sub(theirs_ns);
                }
            }
            match culprit {
                IoCulprit::Writeback(Some(id)) if own.has(view, id) => {
                    let mut own_ns = rest_ns;
                    for (at, share) in groups.writeback().dirtied(disk, id) {
                        if at != victim {
                            let theirs_ns = (rest_ns as f64 * share) as u64;
                            *shares.beside.entry(Neighbour::Dirtied(at)).or_default() += theirs_ns;
                            own_ns = own_ns.saturating_sub(theirs_ns);
                        }
                    }
                    shares.own_ns += own_ns;
                }
                _ => match Neighbour::of(view, groups, culprit) {
                    Neighbour::Group(at) if at == victim => shares.own_ns += rest_ns,
                    beside => *shares.beside.entry(beside).or_default() += rest_ns,
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

/// The cgroups to which the pages of a group are accounted. With cgroup v1 they are directories of the memory
/// controller's tree, where a process may have a different path than in the CPU controller's.
struct OwnCgroups<'v> {
    /// Paths in the memory controller's tree; empty if that is the CPU controller's tree.
    memory_paths: BTreeSet<&'v str>,
    cgroup: Option<CgroupId>,
    path: Option<&'v str>,
}

impl<'v> OwnCgroups<'v> {
    fn of(view: &'v View, group: &Group<'v>) -> Self {
        let members = group.members.iter();
        let memory_paths =
            members.filter_map(|(_, process)| process.memory_cgroup.as_deref()).collect();
        let path = group.cgroup.and_then(|id| view.path_of(id));
        Self { memory_paths, cgroup: group.cgroup, path }
    }

    fn has(&self, view: &View, owner: CgroupId) -> bool {
        let owner_path = view.path_of(owner);
        if self.memory_paths.is_empty() {
            self.cgroup == Some(owner) || self.path.is_some() && self.path == owner_path
        } else {
            owner_path.is_some_and(|owner| self.memory_paths.contains(owner))
        }
    }
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
    for (id, _) in &groups.list()[victim].members {
        for (device, _, ns) in view.block().blame_of(*id) {
            *by_device.entry(view.block().disk_of(device)).or_default() += ns;
        }
    }
    by_device
        .into_iter()
        .max_by_key(|&(device, ns)| (ns, std::cmp::Reverse(device)))
        .map(|(device, _)| device)
}
