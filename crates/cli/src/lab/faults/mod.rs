// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be done to a host, one fault a file. A fault works only inside of the lab's own cgroup, so that
//! removing that undoes it, or on what the janitor was told of.

mod committer;
mod cpuset;
mod disk_settings;
mod disk_writer;
mod fork_storm;
mod io_limit;
mod load;
mod memory_limit;
mod quota;
mod slow_reads;
mod spinners;
mod syncs;
mod v1;
mod weight;

use super::stage::Stage;
use anyhow::Result;
use serde::Deserialize;

/// A fault with its parameters, as scenario files write it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum FaultSpec {
    /// Processes that never sleep.
    Spinners(spinners::Spinners),
    /// A limit on the CPU time of a cgroup.
    Quota(quota::Quota),
    /// Processes that serve a load.
    Load(load::Load),
    /// Many short processes.
    ForkStorm(fork_storm::ForkStorm),
    /// A CPU weight.
    Weight(weight::Weight),
    /// CPUs that a cgroup must stay on.
    Cpuset(cpuset::Cpuset),
    /// A process that has everything written out.
    Syncs(syncs::Syncs),
    /// A process that writes to the disk.
    DiskWriter(disk_writer::DiskWriter),
    /// A process that makes the journal write.
    Committer(committer::Committer),
    /// The page cache's clocks.
    WritebackKnobs(disk_settings::WritebackKnobs),
    /// A limit on the page cache of the disk.
    DirtyLimit(disk_settings::DirtyLimit),
    /// A limit on the block IO of a cgroup.
    IoLimit(io_limit::IoLimit),
    /// A limit on the memory of a cgroup.
    MemoryLimit(memory_limit::MemoryLimit),
    /// A disk that became slow.
    SlowDisk(disk_settings::SlowDisk),
    /// A file that takes its time.
    SlowReads(slow_reads::SlowReads),
}

impl FaultSpec {
    /// What it does.
    pub(crate) fn as_fault(&self) -> &dyn Fault {
        match self {
            Self::Spinners(fault) => fault,
            Self::Quota(fault) => fault,
            Self::Load(fault) => fault,
            Self::ForkStorm(fault) => fault,
            Self::Weight(fault) => fault,
            Self::Cpuset(fault) => fault,
            Self::Syncs(fault) => fault,
            Self::DiskWriter(fault) => fault,
            Self::Committer(fault) => fault,
            Self::WritebackKnobs(fault) => fault,
            Self::DirtyLimit(fault) => fault,
            Self::IoLimit(fault) => fault,
            Self::MemoryLimit(fault) => fault,
            Self::SlowDisk(fault) => fault,
            Self::SlowReads(fault) => fault,
        }
    }
}

/// One way to disturb.
pub(crate) trait Fault {
    /// Refuses parameters that cannot work.
    fn validate(&self) -> Result<()>;

    /// What is done, in words, on a machine with so many usable CPUs.
    fn describe(&self, cpus: usize) -> String;

    /// Does it.
    fn inject(&self, stage: &mut Stage) -> Result<()>;

    /// What the run without it needs in its place.
    fn leave_out(&self, _stage: &mut Stage) -> Result<()> {
        Ok(())
    }
}
