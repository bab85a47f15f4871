// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Free memory that lies in small pieces between pages that are not free.

use super::Fault;
use crate::lab::disk::change;
use crate::lab::fragments::FragmentsArgs;
use crate::lab::scenario::{check_cgroup, check_comm};
use crate::lab::stage::{Job, Stage};
use anyhow::{Result, ensure};
use serde::Deserialize;
use std::path::Path;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fragments {
    /// Comm of the process that fragments the memory.
    comm: String,
    /// Its cgroup, below the lab's own.
    cgroup: String,
    /// Of so many pages one is not free.
    keep_one_of: u64,
    /// `vm.compaction_proactiveness`, in the run with the fault: how soon the kernel puts free pages together in the
    /// background; 0 = not unless somebody waits for it.
    proactiveness: u32,
}

impl Fault for Fragments {
    fn validate(&self) -> Result<()> {
        check_comm("fault.comm", &self.comm)?;
        check_cgroup("fault.cgroup", &self.cgroup)?;
        ensure!((2..=64).contains(&self.keep_one_of), "`fault.keep_one_of` must be 2 to 64");
        ensure!(self.proactiveness <= 100, "`fault.proactiveness` must be 0 to 100");
        Ok(())
    }

    fn describe(&self, _cpus: usize) -> String {
        format!(
            "`{}` in cgroup `{}` keeps one free page of {}, vm.compaction_proactiveness is {}",
            self.comm, self.cgroup, self.keep_one_of, self.proactiveness
        )
    }

    fn comm(&self) -> Option<&str> {
        Some(&self.comm)
    }

    fn inject(&self, stage: &mut Stage) -> Result<()> {
        let setting = Path::new("/proc/sys/vm/compaction_proactiveness");
        change(stage, setting, &self.proactiveness.to_string())?;
        stage.start(&[Job {
            comm: &self.comm,
            cgroup: &self.cgroup,
            cpus: None,
            nice: None,
            realtime: false,
            what: &FragmentsArgs::words(self.keep_one_of),
        }])
    }
}
