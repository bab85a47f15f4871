// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waits that no thread sleeps for: those of the tasks of a runtime.

use crate::recording::RuntimeKind;
use crate::view::{Group, View};
use std::collections::BTreeSet;

/// The runtimes of a group whose tasks wait so.
pub(in crate::rules) fn of(group: &Group<'_>) -> Vec<RuntimeKind> {
    let kinds = group.runtimes.iter().flatten().map(|reading| reading.kind);
    kinds.filter(|kind| kind.has_tasks()).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Whether the target has tasks that wait so.
pub(in crate::rules) fn are_in_target(view: &View) -> bool {
    view.processes().values().any(|process| {
        process.facts.as_ref().is_some_and(|facts| facts.in_target)
            && process.runtime.as_ref().is_some_and(|reading| reading.kind.has_tasks())
    })
}
