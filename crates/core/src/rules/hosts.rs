// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the rules about a host's hardware and configuration, which judge snapshots instead of recordings.

use super::{Check, RULES, Verdict, worse_first};
use crate::finding::{Entity, EntityKind, Evidence, NotChecked, RuledOut, Unit};
use crate::host_diff::document::HostDiff;
use crate::host_diff::{self, HostInput, Measured};
use crate::snapshot::{Fact, Snapshot, Value};

/// Host snapshots and how they differ.
#[derive(Debug)]
pub struct Hosts<'a> {
    /// Their differences; none if there is only one host.
    pub diff: &'a HostDiff,
    /// Their snapshots, in the order of `diff.hosts`.
    pub snapshots: &'a [&'a Snapshot],
}

/// Compares hosts, and runs every rule about hosts on the result. A single host is judged alone.
#[must_use]
pub fn diff(given: &[HostInput<'_>], measured: &[Measured], tool_version: &str) -> HostDiff {
    let mut diff = host_diff::diff(given, measured, tool_version);
    let snapshots: Vec<&Snapshot> = given.iter().map(|host| host.snapshot).collect();
    let hosts = Hosts { diff: &diff, snapshots: &snapshots };
    let (mut findings, mut ruled_out, mut not_checked) = (vec![], vec![], vec![]);
    for rule in RULES {
        let Check::Hosts(check) = rule.check else { continue };
        let (code, area, name) = (rule.code.to_owned(), rule.area, rule.name.to_owned());
        match check(&hosts) {
            Verdict::Fired(fired) => findings.extend(fired),
            Verdict::Quiet { closest } => ruled_out.push(RuledOut { code, area, name, closest }),
            Verdict::NoData { missing } => {
                not_checked.push(NotChecked { code, area, name, missing });
            }
        }
    }
    findings.sort_by(worse_first);
    (diff.findings, diff.ruled_out, diff.not_checked) = (findings, ruled_out, not_checked);
    diff
}

/// A host as the victim of a finding.
pub(super) fn victim(name: &str) -> Entity {
    Entity { note: Some(name.to_owned()), ..Entity::new(EntityKind::Host) }
}

/// Evidence line for a value read from a file, without a time range.
pub(super) fn read(name: &str, value: f64, unit: Unit, source: &str, note: String) -> Evidence {
    Evidence {
        name: name.to_owned(),
        value,
        unit,
        source: source.to_owned(),
        from_s: 0.0,
        to_s: 0.0,
        note: Some(note).filter(|note| !note.is_empty()),
    }
}

/// The smallest value of a fact over all CPUs; `None` if any value is not a number.
pub(super) fn least(fact: &Fact) -> Option<i128> {
    numbers(&fact.value)?.into_iter().min()
}

/// The largest value of a fact over all CPUs; `None` if any value is not a number.
pub(super) fn most(fact: &Fact) -> Option<i128> {
    numbers(&fact.value)?.into_iter().max()
}

/// All values of a fact as numbers; `None` if any of them is not a number.
fn numbers(value: &Value) -> Option<Vec<i128>> {
    match value {
        Value::Integer(integer) => Some(vec![integer.amount]),
        Value::Boolean(on) => Some(vec![i128::from(*on)]),
        Value::Text(text) => Some(vec![text.trim().parse().ok()?]),
        Value::Each(parts) => {
            let all: Option<Vec<Vec<i128>>> =
                parts.iter().map(|part| numbers(&part.value)).collect();
            all.map(|all| all.concat()).filter(|all| !all.is_empty())
        }
        _ => None,
    }
}
