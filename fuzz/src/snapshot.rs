// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What questions to the process that reads hold of snapshots.

#[path = "../../crates/cli/src/snapshot/limits.rs"]
#[allow(dead_code, reason = "nothing is read within them here")]
mod limits;

pub(crate) use limits::Limits;
