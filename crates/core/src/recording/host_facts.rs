// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the host was and how it was configured when it was observed.

use super::observed::observed;
use serde::{Deserialize, Serialize};

/// Longest document that a recording holds: ten times that of a host with hundreds of CPUs.
pub const MOST_FACT_BYTES: usize = 8 << 20;

/// A snapshot of the host: the document `deburr.snapshot/1`, which [`crate::snapshot`] reads. Here it is text, because a
/// recording may hold a document of another version, or one that somebody made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    /// The document.
    pub document: String,
}

observed! { it: HostFacts }
