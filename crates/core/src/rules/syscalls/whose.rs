// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whose system calls they are.

use crate::finding::{Entity, EntityKind};
use crate::recording::{ProcId, TargetSpec};
use crate::rules::words::ticked;
use crate::view::View;

/// As a victim, and as a sentence begins with it.
pub(super) fn whose(view: &View, process: Option<ProcId>) -> (Entity, String) {
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
            // Its first word.
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
