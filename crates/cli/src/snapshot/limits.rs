// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long taking a snapshot may last.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Time limits of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Limits {
    /// For one file.
    pub(crate) file: Duration,
    /// For all files of one line of the whitelist; at least twice [`Limits::file`], so that after a file that hangs
    /// another one is tried.
    pub(crate) entry: Duration,
    /// For the whole snapshot.
    pub(crate) whole: Duration,
}

impl Limits {
    /// For a snapshot that an observation waits for.
    pub(crate) const BRIEF: Self = Self {
        file: Duration::from_millis(200),
        entry: Duration::from_millis(500),
        whole: Duration::from_secs(2),
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            file: Duration::from_secs(1),
            entry: Duration::from_secs(3),
            whole: Duration::from_secs(30),
        }
    }
}
