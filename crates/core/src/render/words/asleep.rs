// SPDX-License-Identifier: Apache-2.0 OR MIT
//! On what the threads of a ledger slept.

use super::portion;
use super::report::state;
use crate::finding::{Ledger, LedgerState, SleepKind, SleepLink, SleepPart, Target, TargetEntry};
use crate::recording::{Entry, RuntimeKind};
use crate::text::escape::{identifier, sentence};
use crate::text::units::{duration, share};

/// Width of a thread's name in a sentence.
const NAME_COLUMNS: usize = 40;

/// Why somebody sleeps.
pub(in super::super) fn kind(kind: SleepKind) -> &'static str {
    match kind {
        SleepKind::WaitsForWork => "waits for work",
        SleepKind::WaitsForOthers => "waits for others",
        SleepKind::OwnTimer => "own timer",
        SleepKind::NotKnown => "not known",
        SleepKind::NoEntry => "no entry",
    }
}

/// All kinds, in the order in which they are told.
const KINDS: [SleepKind; 5] = [
    SleepKind::WaitsForWork,
    SleepKind::WaitsForOthers,
    SleepKind::OwnTimer,
    SleepKind::NotKnown,
    SleepKind::NoEntry,
];

/// How the sleep divides into its kinds, as shares of all the time; `None` if it was not recorded.
pub(in super::super) fn kinds(ledger: &Ledger) -> Option<String> {
    let ns = |kind| {
        let of = ledger.asleep.iter().filter(|part| part.kind == kind);
        of.map(|part| part.ns).fold(0, u64::saturating_add)
    };
    let each = KINDS.into_iter().map(|it| (it, ns(it))).filter(|(_, ns)| *ns > 0);
    let each: Vec<String> = each
        .map(|(it, ns)| format!("{} {}", kind(it), share(portion(ns, ledger.wall_ns))))
        .collect();
    (!each.is_empty()).then(|| format!("asleep: {}", each.join(", ")))
}

/// Waits that no thread sleeps for, if it may have any.
pub(super) fn unseen(ledger: &Ledger) -> Option<String> {
    let tasks = ledger.tasks_of.iter().map(|kind| match kind {
        RuntimeKind::Go => "goroutines".to_owned(),
        RuntimeKind::Node => "promises of Node.js".to_owned(),
        other => format!("tasks of {}", other.name()),
    });
    let tasks: Vec<String> = tasks.collect();
    (!tasks.is_empty()).then(|| {
        format!(
            "not in it: waits of {} for locks, for queues and for one another; a thread that has none to go on with sleeps as \
             one without work",
            tasks.join(" and ")
        )
    })
}

/// Which threads serve requests, as the user said, and how long they were seen asleep; `None` if nothing was said.
pub(in super::super) fn entries(target: &Target) -> Option<String> {
    let told = target.entries.iter().map(|TargetEntry { entry, asleep_ns }| {
        let which = match entry {
            Entry::Thread { tid } => format!("thread {tid}"),
            Entry::Name { name } => format!("threads named {}", identifier(name, NAME_COLUMNS)),
            Entry::Port { port } => format!("threads that serve port {port}"),
        };
        match asleep_ns {
            None => format!("{which} (on what threads slept was not recorded)"),
            Some(0) => format!("{which} (none was seen asleep)"),
            Some(ns) => format!("{which} (asleep for {} in all)", duration(*ns as f64)),
        }
    });
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| told.join(", "))
}

/// In which call, on what, and what ended it.
pub(in super::super) fn what(part: &SleepPart) -> String {
    let mut text = match part.state {
        LedgerState::Sleep => sentence(&part.call),
        other => format!("{}, {}", sentence(&part.call), state(other)),
    };
    if let Some(on) = &part.on {
        text += &format!(": {}", sentence(on));
    }
    if let Some(by) = &part.woken_by {
        text += &format!("; woken by {}", sentence(by));
    }
    for SleepLink { who, did } in &part.behind {
        text += &format!(" <- {} {}", sentence(who), sentence(did));
    }
    text
}
