// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr explain`: says what a finding means, how it is computed, and when it is wrong; and how sleep is told apart.

use crate::args::Color;
use crate::failure::{Exit, Failure};
use crate::output;
use deburr_core::render;
use deburr_core::rules;

/// Arguments of `deburr explain`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    /// Code of a finding, like SCH001; `sleep`: how the kinds of sleep are told apart
    code: String,
}

pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<Exit> {
    let code = &args.code;
    let page = rules::explain(code).ok_or_else(|| {
        let codes = rules::RULES.iter().map(|rule| rule.code);
        let topics = rules::TOPICS.iter().map(|(name, _)| *name);
        let known: Vec<&str> = codes.chain(topics).collect();
        let known = known.join(", ");
        Failure::bad_input(format!("there is no finding `{code}`; there are {known}"))
    })?;
    output::print(render::manual(&page, super::show::page(Color::Auto)).as_bytes())?;
    Ok(Exit::Done)
}
