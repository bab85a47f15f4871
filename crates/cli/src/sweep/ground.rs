// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the runs of a sweep take place: a cgroup for each, fresh, limited and accounted for. All of them are
//! below one of the sweep's own, which its janitor removes, whatever happens to the sweep.

use crate::failure::{Exit, Failure};
use crate::host::cgroup::{self, Tree};
use crate::host::guard::Guard;
use crate::host::undo::Undo;
use anyhow::{Context as _, Result};
use deburr_core::procfs::cgroup_cpu;
use deburr_core::recording::CgroupVersion;
use deburr_core::sweep::Throttling;
use rustix::process::{getpriority_process, setpriority_process};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Nice value of the generator.
const GENERATOR_NICE: i32 = -10;
/// Length of the limit's periods: the kernel's default, which container managers use.
const PERIOD_US: u64 = 100_000;
/// Least limit that the kernel takes for such periods.
const MIN_QUOTA_US: u64 = 1000;
/// Longest time that what ran may take to die.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// The sweep's own cgroups. Dropping it removes them.
#[derive(Debug)]
pub(crate) struct Ground {
    // Taken away in the end, in good order or by being dropped.
    guard: Guard,
    tree: Tree,
    base: PathBuf,
    /// The same in the tree that accounts for CPU time, where that is another.
    account: Option<PathBuf>,
    program: PathBuf,
    /// What the command shall have.
    nice: i32,
    made: u32,
}

impl Ground {
    /// Makes them. An error says what is missing, and ends the program as such.
    pub(crate) fn new() -> Result<Self> {
        Self::make().map_err(|error| {
            Failure::error(
                Exit::Missing,
                format!(
                    "{error:#}; a sweep runs the command in cgroups of its own, which takes root and a tree that \
                     may be written to"
                ),
            )
        })
    }

    fn make() -> Result<Self> {
        let tree = Tree::find()?;
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let name = format!("deburr-sweep-{}", std::process::id());
        let base = tree.mount.join(&name);
        let mut guard = Guard::new(&program, &base, None)?;
        cgroup::make_dir(&base)?;
        let account = match tree.version {
            CgroupVersion::V1 if !base.join("cpuacct.usage").exists() => {
                let dir = cgroup::v1_mount("cpuacct")?.join(&name);
                guard.will_undo(&Undo::Cgroup { dir: dir.clone() })?;
                cgroup::make_dir(&dir)?;
                Some(dir)
            }
            _ => None,
        };
        let nice = be_punctual();
        Ok(Self { guard, tree, base, account, program, nice, made: 0 })
    }

    /// This program's own file.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// The nice value that this program was started with.
    pub(crate) fn nice(&self) -> i32 {
        self.nice
    }

    /// A fresh cgroup with a limit in CPUs.
    pub(crate) fn cgroup(&mut self, limit_cpus: Option<f64>) -> Result<RunGroup> {
        let name = format!("run-{}", self.made);
        self.made += 1;
        let dir = self.tree.make(&self.base, &name)?;
        if let Some(cpus) = limit_cpus {
            let quota_us = ((cpus * PERIOD_US as f64).round() as u64).max(MIN_QUOTA_US);
            self.tree.set_quota(&dir, quota_us, PERIOD_US)?;
        }
        let account = self.account.as_ref().map(|base| base.join(&name));
        if let Some(dir) = &account {
            cgroup::make_dir(dir)?;
        }
        Ok(RunGroup { dir, account, version: self.tree.version, limited: limit_cpus.is_some() })
    }

    /// Removes everything, and says if that did not work.
    pub(crate) fn clear(self) -> Result<()> {
        self.guard.finish()
    }
}

/// A generator that waits for a CPU makes its own waiting look like the service's. Returns the nice value before.
fn be_punctual() -> i32 {
    let nice = getpriority_process(None).unwrap_or(0);
    // Where that is not allowed it goes on as it is: how late it was is measured anyway.
    let _ = setpriority_process(None, GENERATOR_NICE);
    nice
}

/// The cgroup of one run.
#[derive(Clone, Debug)]
pub(crate) struct RunGroup {
    dir: PathBuf,
    account: Option<PathBuf>,
    version: CgroupVersion,
    limited: bool,
}

impl RunGroup {
    /// The directories that a process must join.
    pub(crate) fn dirs(&self) -> impl Iterator<Item = &Path> {
        [Some(self.dir.as_path()), self.account.as_deref()].into_iter().flatten()
    }

    /// CPU time of all that ever ran in it.
    pub(crate) fn cpu_ns(&self) -> Result<u64> {
        if self.version == CgroupVersion::V1 {
            let dir = self.account.as_ref().unwrap_or(&self.dir);
            let text = read(&dir.join("cpuacct.usage"))?;
            return Ok(cgroup_cpu::single("cpuacct.usage", &text)?);
        }
        let stat = cgroup_cpu::cpu_stat(&read(&self.dir.join("cpu.stat"))?);
        stat.usage_ns.context("`cpu.stat` has no `usage_usec`")
    }

    /// Periods of its limit so far; `None` without a limit.
    pub(crate) fn throttling(&self) -> Option<Throttling> {
        let text = fs::read(self.dir.join("cpu.stat")).ok().filter(|_| self.limited)?;
        let stat = cgroup_cpu::cpu_stat(&text);
        Some(Throttling {
            periods: stat.nr_periods?,
            throttled: stat.nr_throttled?,
            throttled_ns: stat.throttled_ns?,
        })
    }

    /// Processes in it now.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.dir.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Ends what runs in it and removes it.
    pub(crate) fn end(&self) -> Result<()> {
        self.dirs().try_for_each(|dir| cgroup::destroy(dir, END_TIMEOUT))
    }
}

fn read(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("cannot read `{}`", file.display()))
}
