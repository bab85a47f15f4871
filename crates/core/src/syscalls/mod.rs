// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cost of system calls as a document, `deburr.syscalls/1` (`docs/syscalls.md`), and the difference of two such
//! documents, `deburr.syscalls-diff/1`.

mod diff;
mod profile;
#[cfg(test)]
mod tests;

pub use diff::{ChangeKind, DIFF_SCHEMA, Difference, RowChange, Side};
pub use profile::{
    CallRow, FileRow, OmittedFiles, OpRow, Profile, Run, SCHEMA, Setup, Spread, Subject, Times,
    profile,
};
