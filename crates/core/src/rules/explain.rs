// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The documentation page of a rule: its metadata, its prose and its limits; and pages on what several rules share.

use super::{Rule, Status, find};
use crate::recording::Source;
use std::fmt::Write as _;

/// What several rules share, by the name under which it is explained.
pub const TOPICS: [(&str, &str); 1] = [("sleep", include_str!("asleep/kinds.md"))];

/// The page of the rule with that code, or on that topic, in Markdown; `None` if there is none.
#[must_use]
pub fn explain(code: &str) -> Option<String> {
    let topic = || TOPICS.iter().find(|(name, _)| name.eq_ignore_ascii_case(code));
    find(code).map(page).or_else(|| topic().map(|(_, page)| (*page).to_owned()))
}

/// The page of a rule, in Markdown.
pub(super) fn page(rule: &Rule) -> String {
    let mut page = format!("# {} {}\n\n{}\n\n", rule.code, rule.name, capitalised(rule.summary));
    let status = match rule.status {
        Status::Preview(since) => format!("preview since {since}: its limits may still move"),
        Status::Stable(since) => format!("stable since {since}"),
    };
    let mut row = |name: &str, value: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(page, "- **{name}:** {value}");
    };
    row("status", &status);
    match rule.any_of {
        [] => {}
        [one] => row("needs", &format!("`{}`", one.label())),
        many => row("needs one of", &labels(many)),
    }
    if !rule.helps.is_empty() {
        row("helped by", &labels(rule.helps));
    }
    page.push('\n');
    page.push_str(rule.doc.trim());
    page.push_str("\n\n## Limits\n\n| limit | value | why |\n|---|---|---|\n");
    for limit in rule.limits() {
        let _ =
            writeln!(page, "| `{}` | {} {} | {} |", limit.name, limit.value, limit.unit, limit.why);
    }
    page
}

fn labels(sources: &[Source]) -> String {
    let labels: Vec<_> = sources.iter().map(|source| format!("`{}`", source.label())).collect();
    labels.join(", ")
}

fn capitalised(sentence: &str) -> String {
    let mut chars = sentence.chars();
    match chars.next() {
        Some(first) => format!("{}{}.", first.to_uppercase(), chars.as_str()),
        None => String::new(),
    }
}
