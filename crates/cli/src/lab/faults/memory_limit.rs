// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A memory limit on a cgroup that is smaller than the files that it reads again and again.

use super::Fault;
use super::v1::move_members;
use crate::host::cgroup::v1_mount;
use crate::lab::scenario::check_cgroup;
use crate::lab::stage::Stage;
use anyhow::{Context as _, Result, ensure};
use rustix::fs::{Advice, fadvise};
use serde::Deserialize;
use std::fs::{self, File};
use std::path::Path;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MemoryLimit {
    /// The cgroup, below the lab's own, whose processes are limited: those that it contains at the time, and the
    /// memory that they use from then on.
    cgroup: String,
    /// The limit, in MiB.
    mib: u64,
}

impl Fault for MemoryLimit {
    fn validate(&self) -> Result<()> {
        check_cgroup("fault.cgroup", &self.cgroup)?;
        ensure!((4..=4096).contains(&self.mib), "`fault.mib` must be 4 to 4096");
        Ok(())
    }

    fn describe(&self, _cpus: usize) -> String {
        format!("at most {} MiB of memory for cgroup `{}`", self.mib, self.cgroup)
    }

    fn inject(&self, stage: &mut Stage) -> Result<()> {
        let tree = v1_mount("memory")?;
        let settings = [("memory.limit_in_bytes", (self.mib << 20).to_string())];
        move_members(stage, &tree, &self.cgroup, &settings)?;
        // Pages that are cached already are charged to the cgroup in which the processes were before.
        forget(stage.files()?)
    }
}

/// Drops the cached pages of all files below a directory.
fn forget(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read `{}`", dir.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            forget(&entry.path())?;
        } else {
            fadvise(File::open(entry.path())?, 0, None, Advice::DontNeed)?;
        }
    }
    Ok(())
}
