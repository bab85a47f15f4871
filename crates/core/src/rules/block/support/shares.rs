// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Beside whose requests a group waited, in shares of its waiting.

use crate::finding::{Cause, Entity, EntityKind, Share};
use crate::recording::{CgroupId, DevId, IoCulprit, IoWhat};
use crate::rules::words::{self, cgroup_entity, group_entity, group_name, ticked};
use crate::view::{Group, Groups, View};
use std::collections::BTreeMap;

/// Causes below this share are summed up.
const MIN_CAUSE: f64 = 0.01;
const MAX_CAUSES: usize = 5;

/// Beside whom, as groups and cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::rules::block) enum Beside {
    Group(usize),
    /// Writeback that somebody of that group asked for (`sync(2)`, `syncfs(2)`), whosever pages it is of.
    Asked(usize),
    /// Writeback of what that group made dirty, of pages that are accounted to where the victim's are, too.
    Dirtied(usize),
    Writeback(CgroupId),
    Unowned,
    Filesystem,
    Device,
    Unnamed,
}

impl Beside {
    pub(in crate::rules::block) fn of(
        view: &View,
        groups: &Groups<'_>,
        culprit: IoCulprit,
    ) -> Self {
        match culprit {
            IoCulprit::Process(id) => groups.index_of(id).map_or(Self::Unnamed, Self::Group),
            IoCulprit::Writeback(Some(id)) if words::cgroup_path(view, id).is_some() => {
                Self::Writeback(id)
            }
            IoCulprit::Writeback(_) => Self::Unowned,
            IoCulprit::Filesystem => Self::Filesystem,
            IoCulprit::Device => Self::Device,
        }
    }
}

/// The waiting of a group, by beside whom.
#[derive(Clone, Debug, Default)]
pub(in crate::rules::block) struct Shares {
    /// Beside its own other requests.
    pub(in crate::rules::block) own_ns: u64,
    /// Beside others.
    pub(in crate::rules::block) beside: BTreeMap<Beside, u64>,
}

impl Shares {
    pub(in crate::rules::block) fn of(
        view: &View,
        groups: &Groups<'_>,
        victim: usize,
        device: Option<DevId>,
    ) -> Self {
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
                        false => *shares.beside.entry(Beside::Asked(at)).or_default() += ns,
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
                        *shares.beside.entry(Beside::Dirtied(at)).or_default() += ns;
                    }
                }
                _ => match Beside::of(view, groups, *culprit) {
                    Beside::Group(at) if at == victim => shares.own_ns += ns,
                    beside => *shares.beside.entry(beside).or_default() += ns,
                },
            }
        }
        shares
    }

    pub(in crate::rules::block) fn total_ns(&self) -> u64 {
        self.own_ns + self.beside.values().sum::<u64>()
    }

    fn is_other(beside: Beside) -> bool {
        matches!(
            beside,
            Beside::Group(_)
                | Beside::Asked(_)
                | Beside::Dirtied(_)
                | Beside::Writeback(_)
                | Beside::Unnamed
        )
    }

    pub(in crate::rules::block) fn others_ns(&self) -> u64 {
        self.beside.iter().filter(|(beside, _)| Self::is_other(**beside)).map(|(_, ns)| ns).sum()
    }

    /// Who else most.
    pub(in crate::rules::block) fn worst(&self) -> Option<(Beside, u64)> {
        let others = self.beside.iter().filter(|(beside, _)| Self::is_other(**beside));
        others
            .max_by_key(|&(beside, ns)| (*ns, std::cmp::Reverse(*beside)))
            .map(|(beside, ns)| (*beside, *ns))
    }
}

/// Whether the pages of a cgroup are accounted to where the victim's are. With cgroup v1 the owner is a directory of the
/// memory controller's tree, and a process may be elsewhere in it than in the CPU controller's.
fn is_own(view: &View, own: &Group<'_>, owner: CgroupId) -> bool {
    let path = |id| words::cgroup_path(view, id);
    let owner_path = path(owner);
    let mut elsewhere =
        own.members.iter().filter_map(|(_, process)| process.memory_cgroup.as_deref());
    match elsewhere.next() {
        Some(first) => owner_path
            .as_deref()
            .is_some_and(|owner| first == owner || elsewhere.any(|it| it == owner)),
        None => {
            let own = own.cgroup;
            own == Some(owner) || own.and_then(path).is_some_and(|own| Some(own) == owner_path)
        }
    }
}

/// Of what was written back to a disk of one owner's pages, the shares that groups other than the victim made dirty. Many
/// a host accounts the memory of all its processes to one cgroup: the owner then says nothing, but of a file it is known
/// who made it dirty first. What is not known of stays the owner's.
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
        let IoWhat::File(file) = key.what else { continue };
        let dirtier = view.block().files().get(&file).and_then(|file| file.dirtied_by);
        if let Some(at) = dirtier.and_then(|id| groups.index_of(id)).filter(|&at| at != victim) {
            *by_group.entry(at).or_default() += sum.bytes;
        }
    }
    by_group.into_iter().map(|(at, bytes)| (at, bytes as f64 / all_bytes.max(1) as f64)).collect()
}

/// Of what was written back to a disk of one owner's pages, the shares that groups asked for. Of the flusher's transfers
/// the reason is known, and of its passes the reason and who asked.
fn asked_for(
    view: &View,
    groups: &Groups<'_>,
    disk: DevId,
    owner: Option<CgroupId>,
) -> Vec<(usize, f64)> {
    // By reason: bytes of passes, and of those, by who asked.
    let mut passes = BTreeMap::<&str, (u64, BTreeMap<usize, u64>)>::new();
    for pass in view.block().passes() {
        if view.block().disk_of(pass.device) != disk {
            continue;
        }
        let (all_bytes, by_group) = passes.entry(&pass.reason).or_default();
        *all_bytes += pass.bytes;
        // Several may have asked for one pass: each has its part of it.
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

/// Share of a group's waiting that is its own: beside its own other requests, or for the requests themselves.
pub(in crate::rules::block) fn own_share(
    view: &View,
    groups: &Groups<'_>,
    victim: usize,
    device: Option<DevId>,
) -> Option<f64> {
    let shares = Shares::of(view, groups, victim, device);
    let alone = shares.beside.get(&Beside::Device).copied().unwrap_or(0);
    (shares.total_ns() > 0).then(|| (shares.own_ns + alone) as f64 / shares.total_ns() as f64)
}

/// Share of a group's waiting that is beside others.
pub(in crate::rules::block) fn others_share(
    view: &View,
    groups: &Groups<'_>,
    victim: usize,
    device: DevId,
) -> f64 {
    let shares = Shares::of(view, groups, victim, Some(device));
    shares.others_ns() as f64 / shares.total_ns().max(1) as f64
}

/// Beside whom a group waited, as causes whose shares are of its waiting.
pub(in crate::rules::block) fn causes(
    view: &View,
    groups: &Groups<'_>,
    victim: usize,
    device: Option<DevId>,
) -> Vec<Cause> {
    let shares = Shares::of(view, groups, victim, device);
    let mut all: Vec<(Beside, u64)> =
        shares.beside.iter().map(|(beside, ns)| (*beside, *ns)).collect();
    if shares.own_ns > 0 {
        all.push((Beside::Group(victim), shares.own_ns));
    }
    all.sort_by_key(|&(beside, ns)| (std::cmp::Reverse(ns), beside));
    let whole = shares.total_ns().max(1) as f64;
    let is_shown = |ns: u64| ns as f64 / whole >= MIN_CAUSE;
    let rest: u64 = all.iter().skip(MAX_CAUSES).map(|(_, ns)| ns).sum();
    let mut causes: Vec<Cause> = all
        .iter()
        .take(MAX_CAUSES)
        .filter(|(_, ns)| is_shown(*ns))
        .map(|&(beside, ns)| Cause {
            entity: entity(view, groups, victim, beside),
            share: Share::of(ns, shares.total_ns()),
        })
        .collect();
    if is_shown(rest) {
        let note = Some("many others, each with little".into());
        causes.push(Cause {
            entity: Entity { note, ..Entity::new(EntityKind::Unknown) },
            share: Share::of(rest, shares.total_ns()),
        });
    }
    causes
}

fn entity(view: &View, groups: &Groups<'_>, victim: usize, beside: Beside) -> Entity {
    let kernel = |note: &str| {
        let note = Some(note.to_owned());
        Entity { note, ..Entity::new(EntityKind::Kernel) }
    };
    match beside {
        Beside::Group(at) => {
            let mut entity = group_entity(view, &groups.list()[at]);
            if at == victim {
                entity.note =
                    Some("its own other requests, and writeback of its cgroup's pages".into());
            }
            entity
        }
        Beside::Asked(at) => {
            let note =
                Some("writeback that it asked for (`sync`), of whatever was dirty".to_owned());
            Entity { note, ..group_entity(view, &groups.list()[at]) }
        }
        Beside::Dirtied(at) => {
            let note = Some("writeback of what it made dirty".to_owned());
            Entity { note, ..group_entity(view, &groups.list()[at]) }
        }
        Beside::Writeback(id) => {
            let note = Some("writeback of its pages".to_owned());
            Entity { note, ..cgroup_entity(view, id) }
        }
        Beside::Unowned => kernel("writeback of pages whose owner is not known"),
        Beside::Filesystem => kernel("requests of journals and metadata"),
        Beside::Device => {
            let mut entity = Entity::new(EntityKind::Device);
            entity.device =
                main_device(view, groups, victim).map(|device| view.block().device_name(device));
            entity.note = Some("for the requests themselves".into());
            entity
        }
        Beside::Unnamed => Entity {
            note: Some("processes that are not known".into()),
            ..Entity::new(EntityKind::Unknown)
        },
    }
}

pub(in crate::rules::block) fn name_of(view: &View, groups: &Groups<'_>, beside: Beside) -> String {
    match beside {
        Beside::Group(at) => format!("requests of {}", group_name(&groups.list()[at])),
        Beside::Asked(at) => {
            format!("writeback that {} asked for (`sync`)", group_name(&groups.list()[at]))
        }
        Beside::Dirtied(at) => {
            format!("writeback of what {} wrote", group_name(&groups.list()[at]))
        }
        Beside::Writeback(id) => match words::cgroup_path(view, id) {
            Some(path) => format!("writeback for {}", ticked(&path)),
            None => "writeback for another cgroup".into(),
        },
        _ => "requests of others".into(),
    }
}

/// The device that a group waits for most.
pub(in crate::rules::block) fn main_device(
    view: &View,
    groups: &Groups<'_>,
    victim: usize,
) -> Option<DevId> {
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
