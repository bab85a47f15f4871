// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waits of a program for its Java virtual machine (HotSpot).

use super::waits::{Reason, Sleep};
use crate::recording::RuntimeKind;
use crate::view::{Role, View};

/// The thread that stops the others and lets them go on (`VMThread` in `src/hotspot/share/runtime/vmThread.cpp`).
const STOPS: &str = "VM Thread";
/// Beginnings of the names of those for which a program waits that has no memory left to allocate, with collectors that work
/// beside it.
const FREES: &[&str] = &["ZDriver", "XDriver", "Shenandoah "];
/// For what a program waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Machine {
    /// It has stopped its threads.
    Stops,
    /// It frees memory that they want to have.
    Frees,
}

/// For what a thread of a program waits, if it waits for a thread of its machine while that one, or whom it waits for, does
/// something. Of threads without a name it is not known whether they are the machine's own.
pub(super) fn awaited(view: &View, (id, key, _): &Sleep<'_>) -> Option<Machine> {
    let runtime = view.processes().get(id)?.runtime.as_ref()?;
    let is_programs = key.thread.is_some() && key.role != Role::Runtime;
    let works = !matches!(Reason::of(&key.behind), Reason::Slept | Reason::NotSeen);
    if runtime.kind != RuntimeKind::Jvm || !is_programs || !works {
        return None;
    }
    let has =
        |is: &dyn Fn(&str) -> bool| key.behind.iter().any(|it| it.proc == *id && is(&it.thread));
    if has(&|name| name == STOPS) {
        return Some(Machine::Stops);
    }
    has(&|name| FREES.iter().any(|it| name.starts_with(it))).then_some(Machine::Frees)
}
