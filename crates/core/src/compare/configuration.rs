// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the hosts of two recordings differ in what they are and how they are configured.

use super::document::Configuration;
use super::summary::Summary;
use crate::host_diff::{self, HostInput};
use crate::snapshot::Snapshot;
use crate::view::View;

/// Most differences that are kept.
const MOST: usize = 200;

/// The facts of a recording about its host, or why there are none: the end of a sentence that begins with the recording.
pub(super) fn facts(view: &View) -> Result<Snapshot, String> {
    let facts = view.host_facts().ok_or("says nothing about how its host is configured")?;
    Snapshot::parse(facts.document.as_bytes()).map_err(|error| {
        format!("has facts about its host that cannot be read: the document {error}")
    })
}

/// What differs; `None` unless both recordings have facts.
pub(super) fn differences(sides: [&Summary; 2]) -> Option<Configuration> {
    let [a, b] = sides.map(|side| side.facts.as_ref().ok());
    let (a, b) = (a?, b?);
    let host = |snapshot, label| HostInput { snapshot, label, slow: None, golden: false };
    let mut diff = host_diff::diff(&[host(a, "A"), host(b, "B")], &[], "");
    diff.differences.truncate(MOST);
    Some(Configuration { facts: diff.facts, differences: diff.differences })
}

/// Which recordings have no facts, as a sentence; `None` if both have.
pub(super) fn not_known(sides: [&Summary; 2]) -> Option<String> {
    let [a, b] = sides.map(|side| side.facts.as_ref().err());
    let who = match (a, b) {
        (None, None) => return None,
        (Some(a), Some(b)) if a == b => format!("A and B: each {a}"),
        (Some(a), Some(b)) => format!("A {a}, and B {b}"),
        (Some(a), None) => format!("A {a}"),
        (None, Some(b)) => format!("B {b}"),
    };
    Some(format!(
        "{who}; configurations are not compared, beside the settings and quotas that were recorded"
    ))
}
