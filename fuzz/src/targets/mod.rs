// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The targets. Each returns whether it could read its input.

pub(crate) mod disk;
pub(crate) mod facts;
pub(crate) mod jvm;
pub(crate) mod kernel_text;
mod log;
pub(crate) mod names;
pub(crate) mod page;
pub(crate) mod profile;
pub(crate) mod program;
pub(crate) mod reader;
pub(crate) mod recording;
pub(crate) mod rows;
pub(crate) mod runtimes;
pub(crate) mod snapshot;
pub(crate) mod sqlite;
pub(crate) mod transcript;

/// Splits an input in two: the first two bytes are the length of the second part.
fn halves(data: &[u8]) -> (&[u8], &[u8]) {
    let Some((length, rest)) = data.split_first_chunk::<2>() else { return (data, &[]) };
    let second = usize::from(u16::from_le_bytes(*length)).min(rest.len());
    rest.split_at(rest.len() - second)
}
