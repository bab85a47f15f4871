// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whose connections and sockets these are: what the rules of the network share.

use crate::finding::{Cause, Confirm, Entity, EntityKind, Finding, Share};
use crate::rules::Verdict;
use crate::rules::candidates::{may_suffer, target_is_host};
use crate::rules::words::{self, group_name, ticked};
use crate::text::units;
use crate::view::{Group, NetKey, View};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A group of processes, or the host where it is not known which process has a socket open.
pub(super) enum Victim<'v> {
    Group(Box<Group<'v>>),
    Host,
}

impl Victim<'_> {
    /// Its name in a sentence.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Group(group) => group_name(group),
            Self::Host => "a process that is not known".into(),
        }
    }

    pub(super) fn verb(&self, singular: &'static str, plural: &'static str) -> &'static str {
        match self {
            Self::Group(group) => words::verb(group, singular, plural),
            Self::Host => singular,
        }
    }

    pub(super) fn entity(&self, view: &View) -> Entity {
        match self {
            Self::Group(group) => words::group_entity(view, group),
            Self::Host => Entity::new(EntityKind::Host),
        }
    }

    pub(super) fn confirm(&self, expect: &str) -> Confirm {
        match self {
            Self::Group(group) => words::look_again(group, expect.into()),
            Self::Host => Confirm { command: "deburr -d 30".into(), expect: Some(expect.into()) },
        }
    }
}

/// Causes that are told one by one; of the rest only the share is told.
const MAX_CAUSES: usize = 3;
/// Of the loss: what caused less is not told.
const LEAST_SHARE: f64 = 0.05;

/// A socket of this host, or another host's end of a connection.
pub(super) fn socket_entity(address: &str, note: &str) -> Entity {
    Entity {
        address: Some(address.to_owned()),
        note: Some(note.to_owned()),
        ..Entity::new(EntityKind::Socket)
    }
}

/// Causes by what each cost, those of one entity added up, in order of that. What is empty is several together, and not told.
pub(super) fn causes(of: impl Iterator<Item = (Option<Entity>, u64)>) -> Vec<Cause> {
    let (mut sums, mut whole): (Vec<(Entity, u64)>, u64) = (Vec::new(), 0);
    for (entity, amount) in of {
        whole = whole.saturating_add(amount);
        let Some(entity) = entity else { continue };
        match sums.iter_mut().find(|(known, _)| *known == entity) {
            Some((_, sum)) => *sum = sum.saturating_add(amount),
            None => sums.push((entity, amount)),
        }
    }
    // Stable: of equals, the one that was seen first stays first.
    sums.sort_by_key(|(_, amount)| Reverse(*amount));
    sums.into_iter()
        .map(|(entity, amount)| Cause { entity, share: Share::of(amount, whole) })
        .filter(|cause| cause.share.get() >= LEAST_SHARE)
        .take(MAX_CAUSES)
        .collect()
}

/// A connection in words, or several whose ends are not known one by one.
pub(super) fn connection(key: &NetKey, number: u64) -> String {
    if key.local.is_empty() {
        return format!("{} together", units::counted(number, "connection", "connections"));
    }
    format!("that to {} (from {})", ticked(&key.remote), ticked(&key.local))
}

/// Victims that are told one by one.
const MAX_VICTIMS: usize = 5;

/// The verdict on what is known of each victim: a finding on each of those that lose most, or how near the first one came.
pub(super) fn verdict<T, K: Ord>(
    mut all: Vec<T>,
    loss: impl Fn(&T) -> K,
    finding: impl Fn(&T) -> Option<Finding>,
    closest: impl FnOnce(Option<&T>) -> String,
) -> Verdict {
    // Stable: of equals, the one that was seen first stays first.
    all.sort_by_key(|it| Reverse(loss(it)));
    let found: Vec<Finding> = all.iter().filter_map(finding).take(MAX_VICTIMS).collect();
    match found.is_empty() {
        true => Verdict::Quiet { closest: closest(all.first()) },
        false => Verdict::Fired(found),
    }
}

/// The verdict of a rule whose data are recorded for a target only, if there is none but the host.
pub(super) fn of_target_only(view: &View, what: &str) -> Option<Verdict> {
    target_is_host(view).then(|| {
        let missing = format!("{what} is recorded for a target only (`-p`, `--comm`, `--cgroup`)");
        Verdict::NoData { missing: vec![missing] }
    })
}

/// What was seen of connections or sockets, by those who may suffer from it. What is not of the target is left out; what
/// is of nobody that is known counts for the host, if that is the target.
pub(super) fn by_victim<'v, V>(
    view: &'v View,
    all: &'v BTreeMap<NetKey, V>,
) -> Vec<(Victim<'v>, Vec<(&'v NetKey, &'v V)>)> {
    let groups = view.groups();
    let mut of: BTreeMap<Option<usize>, Vec<(&NetKey, &V)>> = BTreeMap::new();
    for (key, it) in all {
        let group = match key.proc {
            Some(proc) => groups.index_of(proc),
            None => None,
        };
        if group.is_some() || target_is_host(view) {
            of.entry(group).or_default().push((key, it));
        }
    }
    let victim = |(group, of): (Option<usize>, _)| match group {
        Some(index) => {
            let group = groups.list().get(index)?;
            may_suffer(view, group).then(|| (Victim::Group(Box::new(group.clone())), of))
        }
        None => Some((Victim::Host, of)),
    };
    of.into_iter().filter_map(victim).collect()
}
