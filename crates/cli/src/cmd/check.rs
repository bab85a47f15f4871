// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr check`: a recording's inner consistency.

use crate::failure::{Exit, Failure};
use crate::output;
use crate::store::Reader;
use std::path::Path;

/// Runs it.
pub(crate) fn run(file: &Path) -> anyhow::Result<Exit> {
    let reader = Reader::open(file).map_err(Failure::bad_input)?;
    let mut records = 0u64;
    reader.for_each(|_| records += 1).map_err(Failure::bad_input)?;
    output::print(format!("`{}`: {records} records\n", file.display()).as_bytes())?;
    Ok(Exit::Done)
}
