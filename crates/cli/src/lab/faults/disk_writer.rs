// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Other processes that write to the same disk.

use super::Fault;
use crate::lab::io::{IoArgs, WriterSpec};
use crate::lab::scenario::{check_cgroup, check_comm};
use crate::lab::stage::{Job, Stage};
use anyhow::{Result, ensure};
use serde::Deserialize;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiskWriter {
    comm: String,
    /// Its cgroup, below the lab's own. Its file is in a directory of that name.
    cgroup: String,
    /// Number of such processes, each with a file of its own.
    #[serde(default = "one")]
    processes: usize,
    /// Whether its file is in an overlay, whose upper layer is on the disk.
    #[serde(default)]
    overlay: bool,
    /// What it writes.
    write: WriterSpec,
}

impl Fault for DiskWriter {
    fn validate(&self) -> Result<()> {
        check_comm("fault.comm", &self.comm)?;
        check_cgroup("fault.cgroup", &self.cgroup)?;
        ensure!((1..=64).contains(&self.processes), "`fault.processes` must be 1 to 64");
        self.write.validate()
    }

    fn describe(&self, _cpus: usize) -> String {
        let many = if self.processes == 1 {
            String::new()
        } else {
            format!("{} processes ", self.processes)
        };
        let overlay = if self.overlay { " (overlay)" } else { "" };
        format!(
            "{many}`{}` in cgroup `{}`{overlay}: {}",
            self.comm,
            self.cgroup,
            self.write.describe()
        )
    }

    fn comm(&self) -> Option<&str> {
        Some(&self.comm)
    }

    fn inject(&self, stage: &mut Stage) -> Result<()> {
        let mut dir = stage.files()?.join(&self.cgroup);
        std::fs::create_dir_all(&dir)?;
        if self.overlay {
            dir = stage.make_overlay(&dir)?.join(&self.cgroup);
        }
        let what: Result<Vec<_>> = (0..self.processes)
            .map(|number| {
                IoArgs::to_arguments("writer", &dir.join(number.to_string()), &self.write)
            })
            .collect();
        let what = what?;
        let job = |what| Job {
            comm: &self.comm,
            cgroup: &self.cgroup,
            cpus: None,
            nice: None,
            realtime: false,
            what,
        };
        stage.start(&what.iter().map(|what| job(what)).collect::<Vec<_>>())
    }
}

fn one() -> usize {
    1
}
