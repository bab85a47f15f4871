// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Children that threads wait for until they end: their name, and what to do about them.

use super::waits::{Reason, Waits};
use crate::finding::{Fix, Severity};
use crate::rules::asleep::kind;
use crate::text::shell_quote;
use std::collections::BTreeMap;

/// Whether most of the waiting is for children that ended.
pub(super) fn are_most(waits: &Waits<'_>) -> bool {
    let ns = of_children(waits).fold(0, |sum: u64, (.., ns)| sum.saturating_add(ns));
    ns as f64 >= 0.5 * waits.ns as f64
}

/// The name of those that most of it is for.
pub(super) fn name<'v>(waits: &Waits<'v>) -> Option<&'v str> {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, ns) in of_children(waits) {
        let sum = sums.entry(name).or_default();
        *sum = sum.saturating_add(ns);
    }
    let (name, ns) = sums.into_iter().max_by_key(|(_, ns)| *ns)?;
    (!name.is_empty() && ns as f64 >= 0.5 * waits.ns as f64).then_some(name)
}

/// Those that were not seen to do something may have let time pass: then their parent rests.
pub(super) fn severity(severity: Severity, reason: Reason) -> Severity {
    match reason {
        Reason::Slept | Reason::NotSeen => Severity::Info,
        _ => severity,
    }
}

/// To look at others of that name, as these are gone; and not to start one each time.
pub(super) fn fixes(name: Option<&str>) -> Vec<Fix> {
    let look = Fix {
        action: "see where the time of its children goes".into(),
        command: name.map(|name| format!("sudo deburr --comm {} -d 30", shell_quote(name))),
        risk: None,
        expect: None,
    };
    let keep = Fix {
        action: "do it without a new process, or keep one running that does it each time".into(),
        command: None,
        risk: Some("what one request leaves behind in it is there in the next one".into()),
        expect: None,
    };
    vec![look, keep]
}

/// Their names, empty if they are not known, and how long each was waited for.
fn of_children<'a, 'v>(waits: &'a Waits<'v>) -> impl Iterator<Item = (&'v str, u64)> + use<'a, 'v> {
    let of_child = waits.sleeps.iter().filter(|(id, key, _)| kind::is_for_child(*id, &key.slept));
    of_child.map(|&(_, key, ns)| (key.behind.first().map_or("", |it| it.thread.as_str()), ns))
}
