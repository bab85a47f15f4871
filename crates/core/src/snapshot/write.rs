// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes a snapshot as JSON, with one line for each fact, so that diffs in version control are readable.

use super::Snapshot;
use crate::text::escape;
use serde::Serialize;
use std::fmt::Write as _;

/// The snapshot as a document.
///
/// # Errors
/// Never for a snapshot that this crate created or parsed, because all of its values can be written as JSON.
pub(super) fn document(snapshot: &Snapshot) -> serde_json::Result<String> {
    let mut text = String::from("{\n");
    field(&mut text, "schema", &snapshot.schema)?;
    field(&mut text, "tool", &snapshot.tool)?;
    field(&mut text, "taken", &snapshot.taken)?;
    field(&mut text, "host", &snapshot.host)?;
    field(&mut text, "reading", &snapshot.reading)?;
    text.push_str("  \"facts\": [");
    for (index, fact) in snapshot.facts.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        // Writing to a String cannot fail.
        let _ = write!(text, "{comma}\n    {}", serde_json::to_string(fact)?);
    }
    text.push_str("\n  ]\n}\n");
    Ok(escape::json(&text))
}

fn field(text: &mut String, name: &str, value: &impl Serialize) -> serde_json::Result<()> {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "  \"{name}\": {},", serde_json::to_string(value)?);
    Ok(())
}
