// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which process the counted system calls belong to, and what share of its time they cost.

use crate::finding::{Entity, EntityKind};
use crate::recording::{ProcId, TargetSpec};
use crate::rules::words::ticked;
use crate::view::{SyscallGroup, View};

/// The process as a victim, and its name for the start of a sentence.
pub(super) fn caller(view: &View, process: Option<ProcId>) -> (Entity, String) {
    let facts = process.and_then(|id| view.processes().get(&id)?.facts.as_ref());
    let mut entity = Entity::new(EntityKind::Process);
    if let Some(facts) = facts {
        entity.pid = Some(facts.pid);
        entity.comm = Some(facts.comm.clone());
        return (entity, format!("{} (pid {})", ticked(&facts.comm), facts.pid));
    }
    let name = match view.meta().map(|meta| &meta.target) {
        Some(TargetSpec::Command { command, pid }) => {
            entity.pid = Some(*pid).filter(|pid| *pid != 0);
            // comm of the command's first word.
            let comm = command.split(' ').next().unwrap_or_default();
            entity.comm = Some(comm.rsplit('/').next().unwrap_or_default().into());
            entity.note = Some("the command and all that it starts".into());
            ticked(command)
        }
        Some(TargetSpec::Process { pid, comm }) => {
            entity.pid = Some(*pid);
            entity.comm = Some(comm.clone());
            format!("{} (pid {pid})", ticked(comm))
        }
        Some(TargetSpec::Comm { comm }) => {
            entity.comm = Some(comm.clone());
            ticked(comm)
        }
        _ => {
            entity.note = Some("all that was looked at".into());
            "what was looked at".into()
        }
    };
    (entity, name)
}

/// A loss of `lost_ns` in calls, of which `off_cpu_ns` passed off CPU, as a share (0..1) of the time in which the
/// callers wanted to make progress: what all their threads wanted together, but at least the wall time.
pub(super) fn share(
    view: &View,
    process: Option<ProcId>,
    group: &SyscallGroup,
    (lost_ns, off_cpu_ns): (u64, u64),
) -> f64 {
    let is_theirs = |id: &ProcId, in_target: bool| process.map_or(in_target, |it| it == *id);
    let wanted_ns: u64 = view
        .processes()
        .iter()
        .filter(|(id, it)| is_theirs(id, it.facts.as_ref().is_some_and(|facts| facts.in_target)))
        .filter_map(|(_, it)| it.usage())
        .map(|usage| usage.wanted_ns())
        .sum();
    // Calls may have been counted for only a part of the window.
    let counted = group.window_ns() as f64 / view.window_ns().max(1) as f64;
    let wanted_ns = wanted_ns as f64 * counted.min(1.0) + off_cpu_ns as f64;
    (lost_ns as f64 / wanted_ns.max(group.window_ns() as f64).max(1.0)).min(1.0)
}
