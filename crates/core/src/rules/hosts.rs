// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules about what hosts are and how they are set up: they judge snapshots, not recordings.

use super::{Rule, Verdict, cpu, host, worse_first};
use crate::finding::{Entity, EntityKind, Evidence, Finding, NotChecked, RuledOut, Unit};
use crate::host_diff::document::HostDiff;
use crate::snapshot::{Fact, Snapshot, Value};
use crate::view::View;

/// A rule about hosts.
#[derive(Debug)]
pub struct HostRule {
    /// What it is; it answers `NoData` to recordings.
    pub rule: Rule,
    /// The detector.
    pub check: fn(&Hosts<'_>) -> Verdict,
}

/// Hosts and how they differ.
#[derive(Debug)]
pub struct Hosts<'a> {
    /// How they differ; of one host, in nothing.
    pub diff: &'a HostDiff,
    /// What they are, in the order of `diff.hosts`.
    pub snapshots: &'a [&'a Snapshot],
}

/// What the rules about hosts say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judged {
    /// What was found, worst first.
    pub findings: Vec<Finding>,
    /// What was looked for and not found.
    pub ruled_out: Vec<RuledOut>,
    /// What could not be looked for.
    pub not_checked: Vec<NotChecked>,
}

/// All rules about hosts, by code.
pub const HOST_RULES: &[&HostRule] =
    &[&cpu::frequency_capped::RULE, &cpu::deep_idle_states::RULE, &host::host_drift::RULE];

/// Runs every rule about hosts.
#[must_use]
pub fn judge_hosts(hosts: &Hosts<'_>) -> Judged {
    let mut judged = Judged::default();
    for rule in HOST_RULES {
        let (code, name) = (rule.rule.code.to_owned(), rule.rule.name.to_owned());
        match (rule.check)(hosts) {
            Verdict::Fired(fired) => judged.findings.extend(fired),
            Verdict::Quiet { closest } => {
                judged.ruled_out.push(RuledOut { code, name, closest });
            }
            Verdict::NoData { missing } => {
                judged.not_checked.push(NotChecked { code, name, missing });
            }
        }
    }
    judged.findings.sort_by(worse_first);
    judged
}

/// What a rule about hosts says of a recording.
pub(super) fn needs_snapshots(_: &View) -> Verdict {
    Verdict::NoData { missing: vec!["a snapshot: `deburr snapshot`, `deburr diff`".into()] }
}

/// A host as a victim.
pub(super) fn victim(name: &str) -> Entity {
    Entity { note: Some(name.to_owned()), ..Entity::new(EntityKind::Host) }
}

/// A number that was read from a file.
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

/// The smallest number among a fact's CPUs.
pub(super) fn least(fact: &Fact) -> Option<i128> {
    numbers(&fact.value)?.into_iter().min()
}

/// The largest number among a fact's CPUs.
pub(super) fn most(fact: &Fact) -> Option<i128> {
    numbers(&fact.value)?.into_iter().max()
}

/// `None` if any of them is no number.
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
