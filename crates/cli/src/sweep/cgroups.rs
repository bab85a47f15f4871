// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cgroups in which the runs of a sweep take place: a fresh one for each run, with its limit and accounting.
//! All of them are children of one cgroup of the sweep, which its janitor removes even if the sweep is killed.

use crate::failure::{Exit, Failure};
use crate::host::cgroup::{self, Tree};
use crate::host::guard::Guard;
use crate::host::undo::DirectoryKind;
use anyhow::{Context as _, Result, ensure};
use deburr_core::procfs::cgroup_cpu;
use deburr_core::recording::CgroupVersion;
use deburr_core::sweep::Throttling;
use rustix::process::{getpriority_process, setpriority_process};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Nice value of the load generator.
const GENERATOR_NICE: i32 = -10;
/// Period of the CPU limit, in microseconds: the kernel's default, which container managers use.
const PERIOD_US: u64 = 100_000;
/// Smallest quota that the kernel accepts, in microseconds.
const MIN_QUOTA_US: u64 = 1000;
/// Longest wait until killed processes have left their cgroup.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// The sweep's own cgroups. Dropping this value removes them.
#[derive(Debug)]
pub(crate) struct SweepCgroups {
    // Removes the cgroups, in `clear` or when it is dropped.
    guard: Guard,
    tree: Tree,
    base: PathBuf,
    /// The sweep's cgroup in the hierarchy of the v1 `cpuacct` controller, where that is a separate one.
    account: Option<PathBuf>,
    program: PathBuf,
    /// Nice value for the command: the one that this program was started with.
    nice: i32,
    made: u32,
}

impl SweepCgroups {
    /// Creates the sweep's cgroups. An error names what is missing and has the exit status [`Exit::Missing`].
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
        let mut guard = Guard::new(&program, "sweep")?;
        let base = tree.mount.join(guard.name());
        let mut make = |dir: &Path| -> Result<()> {
            ensure!(guard.make(DirectoryKind::Cgroup, dir)?, "`{}` exists", dir.display());
            Ok(())
        };
        make(&base)?;
        let account = match tree.version {
            CgroupVersion::V1 if !base.join("cpuacct.usage").exists() => {
                let name = base.file_name().unwrap_or_default();
                let dir = cgroup::v1_mount("cpuacct")?.join(name);
                make(&dir)?;
                Some(dir)
            }
            _ => None,
        };
        let nice = be_punctual();
        Ok(Self { guard, tree, base, account, program, nice, made: 0 })
    }

    /// This program's own executable.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// The nice value that this program was started with.
    pub(crate) fn nice(&self) -> i32 {
        self.nice
    }

    /// Creates a fresh cgroup, with a limit in CPUs if there is one.
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

    /// Removes all cgroups of the sweep. An error says what could not be removed.
    pub(crate) fn clear(mut self) -> Result<()> {
        self.guard.finish()
    }
}

/// Raises this program's priority: the generator's own run queue waits would look like latency of the service.
/// Returns the previous nice value.
fn be_punctual() -> i32 {
    let nice = getpriority_process(None).unwrap_or(0);
    // Without the permission the priority stays as it is: the generator's lateness is measured anyway.
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

    /// CPU time of everything that has run in the cgroup, in nanoseconds.
    pub(crate) fn cpu_ns(&self) -> Result<u64> {
        if self.version == CgroupVersion::V1 {
            let dir = self.account.as_ref().unwrap_or(&self.dir);
            let text = read(&dir.join("cpuacct.usage"))?;
            return Ok(cgroup_cpu::single("cpuacct.usage", &text)?);
        }
        let stat = cgroup_cpu::cpu_stat(&read(&self.dir.join("cpu.stat"))?);
        stat.usage_ns.context("`cpu.stat` has no `usage_usec`")
    }

    /// Counters of its CPU limit so far; `None` without a limit.
    pub(crate) fn throttling(&self) -> Option<Throttling> {
        let text = fs::read(self.dir.join("cpu.stat")).ok().filter(|_| self.limited)?;
        let stat = cgroup_cpu::cpu_stat(&text);
        Some(Throttling {
            periods: stat.nr_periods?,
            throttled: stat.nr_throttled?,
            throttled_ns: stat.throttled_ns?,
        })
    }

    /// Process ids in the cgroup at present.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.dir.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Kills all processes in the cgroup and removes it.
    pub(crate) fn end(&self) -> Result<()> {
        self.dirs().try_for_each(|dir| cgroup::destroy(dir, END_TIMEOUT))
    }
}

fn read(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("cannot read `{}`", file.display()))
}
