// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whose connections and sockets these are: what the rules of the network share.

use crate::finding::{Confirm, Entity, EntityKind};
use crate::rules::candidates::{may_suffer, target_is_host};
use crate::rules::words::{self, group_name, ticked};
use crate::text::units;
use crate::view::{Group, NetKey, View};
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

/// A connection in words, or several whose ends are not known one by one.
pub(super) fn connection(key: &NetKey, number: u64) -> String {
    if key.local.is_empty() {
        return format!("{} together", units::counted(number, "connection", "connections"));
    }
    format!("that to {} (from {})", ticked(&key.remote), ticked(&key.local))
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
