// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr limits`: shows what processes may use of the CPUs, and what their runtimes believe.

use super::show;
use crate::args::{Color, Target};
use crate::collect::Roots;
use crate::failure::{Exit, Failure};
use crate::limits::{self, SurveyRequest};
use crate::{output, target};
use deburr_core::render;

/// Arguments of `deburr limits`.
#[derive(Debug, clap::Args)]
pub(crate) struct LimitsArgs {
    /// Processes to look at in depth [default: all that have a limit or a known runtime, as a table]
    #[arg(value_name = "PID")]
    pub(crate) pids: Vec<u32>,
    /// Print one JSON document (schema deburr.limits/1)
    #[arg(long)]
    pub(crate) json: bool,
    /// Use colour [default: auto]
    #[arg(long, value_name = "WHEN", default_value = "auto", hide_default_value = true)]
    pub(crate) color: Color,
}

pub(crate) fn run(args: &LimitsArgs) -> anyhow::Result<Exit> {
    let roots = Roots::default();
    let mut pids = Vec::new();
    let mut missing = None;
    for &pid in &args.pids {
        let named = Target { pid: Some(pid), comm: None, cgroup: None, container: None };
        match target::resolve(&named, &roots) {
            Ok(_) if pids.contains(&pid) => {}
            Ok(_) => pids.push(pid),
            Err(error) => {
                let before = missing.map_or(String::new(), |before| before + "; ");
                missing = Some(before + &error.to_string());
            }
        }
    }
    if let (Some(missing), true) = (&missing, pids.is_empty()) {
        return Err(Failure::bad_input(missing));
    }
    let document = limits::look(&SurveyRequest { pids: &pids }, &roots);
    if let Some(pid) = pids.iter().find(|pid| document.processes.iter().all(|row| row.pid != **pid))
    {
        missing.get_or_insert_with(|| format!("process {pid} ended while it was looked at"));
    }
    let text = match args.json {
        true => render::json_document(&document)?,
        false => limits::text(&document, show::page(args.color)),
    };
    output::print(text.as_bytes())?;
    match missing {
        Some(missing) => Err(Failure::bad_input(missing)),
        None => Ok(Exit::Done),
    }
}
