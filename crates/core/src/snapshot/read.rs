// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parses a document into a snapshot, or explains why that is not possible.

use super::{SCHEMA, Snapshot, Value};
use serde::Deserialize;
use serde_json::error::Category;

/// Maximum size of a document: a hundred times what a host with hundreds of CPUs needs.
pub const MAX_BYTES: usize = 64 << 20;

/// Prefix of the schemas of all versions.
const FAMILY: &str = "deburr.snapshot/";
/// Signature of the files that `deburr record` writes.
const SQLITE: &[u8] = b"SQLite format 3\0";

/// Why a document cannot be read as a snapshot. The message continues a sentence that starts with the file's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The document is empty.
    #[error("is empty; `deburr snapshot -o FILE` writes a snapshot")]
    Empty,
    /// The document is larger than [`MAX_BYTES`].
    #[error("is larger than {} MB, which no snapshot is", MAX_BYTES >> 20)]
    TooLarge,
    /// The document is a recording.
    #[error("is a recording, not a snapshot: `deburr report` reads it")]
    Recording,
    /// The document is not JSON.
    #[error("is not a snapshot: no JSON at line {line}, column {column}")]
    NotJson {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
    },
    /// The document is truncated.
    #[error("is cut off at line {line}, column {column}; take or copy the snapshot again")]
    Truncated {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
    },
    /// The document is of another kind.
    #[error("is no snapshot: its schema is {}", .schema.as_ref().map_or("missing".into(), |s| format!("`{s}`")))]
    OtherKind {
        /// Schema of the document.
        schema: Option<String>,
    },
    /// The snapshot has another schema version.
    #[error(
        "is of another version: its schema is `{schema}`, and this deburr reads `{SCHEMA}`; read it with {} \
         or take it again",
        .tool.as_ref().map_or("the deburr that took it".into(), |tool| format!("deburr {tool}"))
    )]
    OtherVersion {
        /// Schema of the document.
        schema: String,
        /// Version of deburr that took it, if given.
        tool: Option<String>,
    },
    /// A field is missing or has the wrong type.
    #[error("is damaged at line {line}, column {column}: {what}")]
    Malformed {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// The error.
        what: String,
    },
    /// Two facts have the same key.
    #[error("is damaged: it has two facts `{key}`")]
    Twice {
        /// Key of the fact.
        key: String,
    },
    /// A fact has no key, nested instances, or a value without instances.
    #[error("is damaged: the fact `{key}` {what}")]
    BadFact {
        /// Key of the fact.
        key: String,
        /// The error.
        what: &'static str,
    },
}

/// Fields that every version of the document has.
#[derive(Deserialize)]
struct CommonFields {
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

fn check_schema(head: CommonFields) -> Result<(), SnapshotError> {
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
            // Line and column are fields of their own.
            let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
            SnapshotError::Malformed { line, column, what: what.to_owned() }
        }
        Category::Syntax | Category::Io => SnapshotError::NotJson { line, column },
    }
}
