// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr explain`: what a finding means.

use crate::failure::{Exit, Failure};

/// Runs it.
pub(crate) fn run(code: &str) -> anyhow::Result<Exit> {
    Err(Failure::bad_input(format!("there is no finding `{code}`")))
}
