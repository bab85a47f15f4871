// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A document in, a snapshot out, or what is wrong with it.

use super::{SCHEMA, Snapshot, Value};
use serde::Deserialize;
use serde_json::error::Category;

/// Largest document that is read: a hundred times what a host with hundreds of CPUs needs.
pub const MAX_BYTES: usize = 64 << 20;

/// Schemas of snapshots, whatever their version.
const FAMILY: &str = "deburr.snapshot/";
/// Signature of the files that `deburr record` writes.
const SQLITE: &[u8] = b"SQLite format 3\0";

/// Why a document is no snapshot that can be read. The message is the part of a sentence after the file's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// It has no content.
    #[error("is empty; `deburr snapshot -o FILE` writes a snapshot")]
    Empty,
    /// It is larger than [`MAX_BYTES`].
    #[error("is larger than {} MB, which no snapshot is", MAX_BYTES >> 20)]
    TooLarge,
    /// It is a recording.
    #[error("is a recording, not a snapshot: `deburr report` reads it")]
    Recording,
    /// It is no JSON.
    #[error("is not a snapshot: no JSON at line {line}, column {column}")]
    NotJson {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
    },
    /// It ends before it is complete.
    #[error("is cut off at line {line}, column {column}; take or copy the snapshot again")]
    Truncated {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
    },
    /// It is another kind of document.
    #[error("is no snapshot: its schema is {}", .schema.as_ref().map_or("missing".into(), |s| format!("`{s}`")))]
    OtherKind {
        /// The schema it has.
        schema: Option<String>,
    },
    /// It is of another version.
    #[error(
        "is of another version: its schema is `{schema}`, and this deburr reads `{SCHEMA}`; read it with {} \
         or take it again",
        .tool.as_ref().map_or("the deburr that took it".into(), |tool| format!("deburr {tool}"))
    )]
    OtherVersion {
        /// The schema it has.
        schema: String,
        /// Version of deburr that took it, if it says so.
        tool: Option<String>,
    },
    /// It is damaged: a field is missing or has another type.
    #[error("is damaged at line {line}, column {column}: {what}")]
    Malformed {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What was not understood.
        what: String,
    },
    /// It is damaged: a fact is given twice.
    #[error("is damaged: it has two facts `{key}`")]
    Twice {
        /// The fact's key.
        key: String,
    },
    /// It is damaged: a fact has no key, or instances of instances.
    #[error("is damaged: the fact `{key}` {what}")]
    BadFact {
        /// The fact's key.
        key: String,
        /// What is wrong with it.
        what: &'static str,
    },
}

/// What every version of the document has.
#[derive(Deserialize)]
struct Head {
    schema: Option<serde_json::Value>,
    tool: Option<serde_json::Value>,
}

pub(super) fn parse(document: &[u8]) -> Result<Snapshot, SnapshotError> {
    if document.len() > MAX_BYTES {
        return Err(SnapshotError::TooLarge);
    }
    if document.starts_with(SQLITE) {
        return Err(SnapshotError::Recording);
    }
    let document = document.strip_prefix(b"\xef\xbb\xbf").unwrap_or(document);
    if document.trim_ascii().is_empty() {
        return Err(SnapshotError::Empty);
    }
    check_schema(serde_json::from_slice(document).map_err(|error| broken(&error))?)?;
    let mut snapshot: Snapshot =
        serde_json::from_slice(document).map_err(|error| broken(&error))?;
    for fact in &snapshot.facts {
        let bad = |what| Err(SnapshotError::BadFact { key: fact.key.clone(), what });
        if fact.key.is_empty() {
            return bad("has no key");
        }
        if let Value::Each(parts) = &fact.value {
            if parts.iter().any(|part| matches!(part.value, Value::Each(_))) {
                return bad("has instances of instances");
            }
            if parts.iter().any(|part| part.of.is_empty()) {
                return bad("has a value of no instance");
            }
        }
    }
    snapshot.facts.sort_by(|a, b| a.key.cmp(&b.key));
    let twice = snapshot.facts.windows(2).find(|pair| pair[0].key == pair[1].key);
    match twice {
        Some(pair) => Err(SnapshotError::Twice { key: pair[0].key.clone() }),
        None => Ok(snapshot),
    }
}

fn check_schema(head: Head) -> Result<(), SnapshotError> {
    let schema = head.schema.and_then(|schema| schema.as_str().map(str::to_owned));
    match schema {
        Some(schema) if schema == SCHEMA => Ok(()),
        Some(schema) if schema.starts_with(FAMILY) => {
            let tool = head.tool.as_ref().and_then(|tool| tool.get("version")?.as_str());
            Err(SnapshotError::OtherVersion { schema, tool: tool.map(str::to_owned) })
        }
        schema => Err(SnapshotError::OtherKind { schema }),
    }
}

fn broken(error: &serde_json::Error) -> SnapshotError {
    let (line, column) = (error.line(), error.column());
    match error.classify() {
        Category::Eof => SnapshotError::Truncated { line, column },
        Category::Data => {
            let text = error.to_string();
            // The place is said apart.
            let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
            SnapshotError::Malformed { line, column, what: what.to_owned() }
        }
        Category::Syntax | Category::Io => SnapshotError::NotJson { line, column },
    }
}
