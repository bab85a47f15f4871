// SPDX-License-Identifier: Apache-2.0 OR MIT
//! On what the threads of a ledger slept.

use super::portion;
use super::report::state;
use crate::finding::{Ledger, LedgerState, SleepKind, SleepLink, SleepPart};
use crate::text::escape::sentence;
use crate::text::units::share;

/// Why somebody sleeps.
pub(in super::super) fn kind(kind: SleepKind) -> &'static str {
    match kind {
        SleepKind::WaitsForWork => "waits for work",
        SleepKind::WaitsForOthers => "waits for others",
        SleepKind::OwnTimer => "own timer",
        SleepKind::NotKnown => "not known",
    }
}

/// All kinds, in the order in which they are told.
const KINDS: [SleepKind; 4] =
    [SleepKind::WaitsForWork, SleepKind::WaitsForOthers, SleepKind::OwnTimer, SleepKind::NotKnown];

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
