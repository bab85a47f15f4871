// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be done to a host, one fault per file. A fault only changes the lab's own cgroup, whose removal undoes
//! it, or what is registered with the janitor.

mod bursts;
mod committer;
mod cpuset;
mod disk_settings;
mod disk_writer;
mod fork_storm;
mod fragments;
mod io_limit;
mod load;
mod lossy_path;
mod memory_limit;
mod packets;
mod quota;
mod slow_reads;
mod spinners;
mod stops;
mod syncs;
mod timers;
mod v1;
mod weight;

use super::stage::Stage;
use anyhow::Result;
use serde::Deserialize;

/// A fault with its parameters, as scenario files write it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum FaultSpec {
    /// CPU-bound processes that never sleep.
    Spinners(spinners::Spinners),
    /// A limit on the CPU time of a cgroup.
    Quota(quota::Quota),
    /// Processes that serve a load.
    Load(load::Load),
    /// Many short-lived processes.
    ForkStorm(fork_storm::ForkStorm),
    Weight(weight::Weight),
    /// A cpuset of a cgroup.
    Cpuset(cpuset::Cpuset),
    /// A process that calls `sync(2)`.
    Syncs(syncs::Syncs),
    /// A process that writes to the disk.
    DiskWriter(disk_writer::DiskWriter),
    /// A process that makes the journal write.
    Committer(committer::Committer),
    /// Intervals of writeback and age of dirty data.
    WritebackKnobs(disk_settings::WritebackKnobs),
    /// A limit on the dirty data of the disk.
    DirtyLimit(disk_settings::DirtyLimit),
    /// A limit on the block IO of a cgroup.
    IoLimit(io_limit::IoLimit),
    /// A limit on the memory of a cgroup.
    MemoryLimit(memory_limit::MemoryLimit),
    /// A disk that becomes slow.
    SlowDisk(disk_settings::SlowDisk),
    /// A file whose reads take long.
    SlowReads(slow_reads::SlowReads),
    /// A path that drops what comes too fast.
    LossyPath(lossy_path::LossyPath),
    /// A process that sends much at once over the network.
    Bursts(bursts::Bursts),
    /// Traffic that another CPU receives.
    Packets(packets::Packets),
    /// Timers that expire on a CPU.
    Timers(timers::Timers),
    /// A process that stops others.
    Stops(stops::Stops),
    /// Free memory in small pieces.
    Fragments(fragments::Fragments),
}

impl FaultSpec {
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
            Self::LossyPath(fault) => fault,
            Self::Bursts(fault) => fault,
            Self::Packets(fault) => fault,
            Self::Timers(fault) => fault,
            Self::Stops(fault) => fault,
            Self::Fragments(fault) => fault,
        }
    }
}

/// A way to disturb the victim.
pub(crate) trait Fault {
    /// Rejects parameters that cannot work.
    fn validate(&self) -> Result<()>;

    /// A description in words, for a machine with this many usable CPUs.
    fn describe(&self, cpus: usize) -> String;

    /// The name of its processes, if it has any.
    fn comm(&self) -> Option<&str> {
        None
    }

    fn inject(&self, stage: &mut Stage) -> Result<()>;

    /// Does what the control run needs in its place.
    fn leave_out(&self, _stage: &mut Stage) -> Result<()> {
        Ok(())
    }
}
