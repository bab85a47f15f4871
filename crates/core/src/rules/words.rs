// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How rules name things: entities for the report's data, names in backticks for its sentences.

use crate::finding::{Cause, Confirm, Entity, EntityKind, Evidence, Unit};
use crate::recording::{CgroupId, Container, ProcId};
pub(super) use crate::text::ticked;
use crate::text::units;
use crate::text::{Share, shell_quote};
use crate::view::{Group, View};
use jiff::Timestamp;

/// `` `ruby` (pid 15919) ``, `` `stress-ng` (16 processes) `` or `` `cc1` (more than 300 processes) ``.
pub(super) fn group_name(group: &Group<'_>) -> String {
    let comm = ticked(group.comm);
    match group.members.as_slice() {
        [(_, process)] if process.many => format!("{comm} (short-lived processes)"),
        [(_, process)] => format!("{comm} (pid {})", process.pid),
        members if group.has_many() => {
            format!(
                "{comm} (more than {})",
                units::counted(members.len() as u64 - 1, "process", "processes")
            )
        }
        members => format!("{comm} ({} processes)", members.len()),
    }
}

/// The word after [`group_name`], in the number of that name: `` `ruby` (pid 15919) waits ``, `` `cc1` (short-lived
/// processes) wait ``.
pub(super) fn verb(
    group: &Group<'_>,
    singular: &'static str,
    plural: &'static str,
) -> &'static str {
    match group.members.as_slice() {
        [(_, process)] if !process.many => singular,
        _ => plural,
    }
}

/// A group as a victim or cause.
pub(super) fn group_entity(view: &View, group: &Group<'_>) -> Entity {
    let mut entity = Entity::new(EntityKind::Process);
    match group.members.as_slice() {
        [(_, process)] if !process.many => entity.pid = Some(process.pid),
        members => entity.processes = Some(members.len() as u32),
    }
    entity.comm = Some(group.comm.to_owned());
    entity.cgroup = group.cgroup.and_then(|id| cgroup_path(view, id));
    entity.container = group.cgroup.and_then(|id| container(view, id)).cloned();
    entity
}

/// One process as a victim or cause, with what is known of it.
pub(super) fn process_entity(view: &View, id: ProcId) -> Entity {
    let mut entity = Entity::new(EntityKind::Process);
    if let Some(facts) = view.processes().get(&id).and_then(|it| it.facts.as_ref()) {
        entity.comm = Some(facts.comm.clone());
        entity.pid = (!facts.many).then_some(facts.pid);
        entity.cgroup = facts.cgroup.and_then(|id| cgroup_path(view, id));
        entity.container = facts.cgroup.and_then(|id| container(view, id)).cloned();
    }
    entity
}

/// These causes, and the rest as one that is not known, if that is at least so large a share.
pub(super) fn and_others(mut causes: Vec<Cause>, least: f64) -> Vec<Cause> {
    let told: f64 = causes.iter().map(|cause| cause.share.get()).sum();
    if told < 1.0 - least {
        let mut entity = Entity::new(EntityKind::Unknown);
        entity.note = Some("others, or not seen".into());
        causes.push(Cause { entity, share: Share::saturating(1.0 - told) });
    }
    causes
}

/// A cgroup as a victim or cause.
pub(super) fn cgroup_entity(view: &View, id: CgroupId) -> Entity {
    let mut entity = Entity::new(EntityKind::Cgroup);
    entity.cgroup = cgroup_path(view, id);
    entity.container = container(view, id).cloned();
    entity
}

/// The container that a cgroup is or is part of.
pub(super) fn container(view: &View, id: CgroupId) -> Option<&Container> {
    view.cgroup_path(id)
        .into_iter()
        .find_map(|(_, cgroup)| cgroup.facts.as_ref()?.container.as_ref())
}

/// Path of a cgroup; `None` if its facts were not recorded.
pub(super) fn cgroup_path(view: &View, id: CgroupId) -> Option<String> {
    view.path_of(id).map(str::to_owned)
}

/// An amount per second in words: `212 ms of every second`. Above one second per second, the text says that thread time
/// is summed.
pub(super) fn of_every_second(ns_per_s: u64) -> String {
    let text = units::duration(ns_per_s as f64);
    if ns_per_s > 1_000_000_000 {
        format!("{text} of thread time in every second")
    } else {
        format!("{text} of every second")
    }
}

/// The same of connections.
pub(super) fn of_every_second_of_connections(ns_per_s: u64) -> String {
    let text = units::duration(ns_per_s as f64);
    if ns_per_s > 1_000_000_000 {
        format!("{text} of connection time in every second")
    } else {
        format!("{text} of every second")
    }
}

/// An evidence line that covers the whole window.
pub(super) fn evidence(
    view: &View,
    name: &str,
    value: f64,
    unit: Unit,
    source: &str,
    note: impl Into<Option<String>>,
) -> Evidence {
    Evidence {
        name: name.into(),
        value,
        unit,
        source: source.into(),
        from_s: 0.0,
        to_s: view.window_ns() as f64 / 1e9,
        note: note.into(),
    }
}

/// A time of the window, in nanoseconds since its start, as RFC 3339 in UTC.
pub(super) fn window_time(view: &View, t_ns: u64) -> String {
    let start_ns = view.meta().map_or(0, |meta| meta.start_unix_ns);
    let at =
        Timestamp::from_nanosecond(i128::from(start_ns) + i128::from(t_ns)).unwrap_or_default();
    format!("{at:.3}")
}

/// The command that records the group again, and what it should show.
pub(super) fn look_again(group: &Group<'_>, expect: String) -> Confirm {
    let command = match group.members.as_slice() {
        [(_, process)] if !process.many => format!("deburr -p {} -d 30", process.pid),
        _ => format!("deburr --comm={} -d 30", shell_quote(group.comm)),
    };
    Confirm { command, expect: Some(expect) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{S, Scene};

    #[test]
    fn a_name_cannot_end_its_identifier() {
        assert_eq!(ticked("a` is fine, `b"), "`a' is fine, 'b`");
    }

    #[test]
    fn the_verb_agrees_with_the_name() {
        let sentence = |processes: usize, many: bool| {
            let mut scene = Scene::new(2, S);
            for _ in 0..processes {
                let process = scene.process("ruby", None);
                scene.facts(process, |facts| facts.many = many);
            }
            let view = scene.view();
            let groups = view.groups();
            let group = &groups.list()[0];
            format!("{} {}", group_name(group), verb(group, "waits", "wait"))
        };
        assert_eq!(sentence(1, false), "`ruby` (pid 1001) waits");
        assert_eq!(sentence(2, false), "`ruby` (2 processes) wait");
        assert_eq!(sentence(1, true), "`ruby` (short-lived processes) wait");
    }

    #[test]
    fn more_than_a_second_of_a_second_is_thread_time() {
        assert_eq!(of_every_second(212_000_000), "212 ms of every second");
        assert_eq!(of_every_second(14_000_000_000), "14 s of thread time in every second");
    }
}
