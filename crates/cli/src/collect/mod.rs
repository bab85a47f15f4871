// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Collectors: each reads one source of the host and emits records.
//!
//! The session beats ten times a second. On each beat every collector may emit; on [`Beat::Start`] it takes
//! its baseline and says what it can see ([`deburr_core::recording::Coverage`]), on [`Beat::End`] it emits what
//! is left. A collector that cannot see anything is not an error: it is coverage.

mod affinity;
mod block;
mod cgroups;
mod cost;
mod cpu_time;
mod devices;
mod diskstats;
#[cfg(test)]
pub(crate) mod fixture;
mod held;
mod interrupts;
mod irq_devices;
mod kept;
mod listening;
mod net;
mod proc_stat;
mod processes;
mod profile;
mod psi;
mod reclaim;
mod requesters;
mod reread;
mod runtimes;
mod sched;
mod schedstat;
mod settings;
mod syscalls;

pub(crate) use affinity::{affinity, masks_of_threads};
pub(crate) use block::{BlockCollector, LoadedBlock, without_writeback};
pub(crate) use cgroups::{
    CgroupCollector, Cgroups, RuntimeFiles, shown as shown_path, walk as walk_cgroups,
};
pub(crate) use cpu_time::CpuTimeCollector;
pub(crate) use devices::Devices;
pub(crate) use diskstats::DiskstatsCollector;
pub(crate) use interrupts::InterruptCollector;
pub(crate) use listening::listening_in;
pub(crate) use net::{LoadedNet, NetCollector};
pub(crate) use proc_stat::ProcStatCollector;
pub(crate) use processes::{
    ObservedProcess, Processes, has_ended, living_thread, read_stat, read_statm,
};
pub(crate) use profile::ProfileCollector;
pub(crate) use psi::PsiCollector;
pub(crate) use reclaim::ReclaimCollector;
pub(crate) use runtimes::RuntimeCollector;
pub(crate) use sched::SchedCollector;
pub(crate) use schedstat::SchedstatCollector;
pub(crate) use settings::SettingsCollector;
pub(crate) use syscalls::SyscallCollector;

use crate::args::Asked;
use crate::clock::WindowClock;
use deburr_core::procfs::cpu_list;
use deburr_core::recording::{Entry, Record, TargetSpec};
use requesters::Requesters;
use std::path::PathBuf;

/// The kind of a beat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beat {
    /// The start of the window: `t_ns` is 0.
    Start,
    /// The end of a bin of 100 ms.
    Bin,
    /// The end of a second (also the end of a bin).
    Second,
    /// The end of the window, wherever it falls (also the end of a bin and of a second).
    End,
}

impl Beat {
    /// Whether per-second records are due.
    pub(crate) fn is_second(self) -> bool {
        matches!(self, Self::Second | Self::End)
    }
}

/// Time and kind of a beat.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BeatTime {
    /// Nanoseconds since the start of the window.
    pub(crate) t_ns: u64,
    /// Kind of the beat.
    pub(crate) beat: Beat,
}

/// The sink for a collector's records.
pub(crate) type Emit<'a> = &'a mut dyn FnMut(Record);

/// Roots of the kernel's file trees; tests set other directories.
#[derive(Clone, Debug)]
pub(crate) struct Roots {
    /// `/proc`
    pub(crate) proc: PathBuf,
    /// `/sys`
    pub(crate) sys: PathBuf,
    /// `/`: where container runtimes keep their files.
    pub(crate) root: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { proc: "/proc".into(), sys: "/sys".into(), root: "/".into() }
    }
}

/// What the collectors of a session share.
#[derive(Debug)]
pub(crate) struct Context {
    /// Where the kernel's trees are.
    pub(crate) roots: Roots,
    /// The time of the window.
    pub(crate) window: WindowClock,
    /// The target of the observation.
    pub(crate) target: TargetSpec,
    /// Which of its threads serve requests, as the user said.
    pub(crate) entries: Vec<Entry>,
    /// The target is not the host, be it that its command has not started yet.
    pub(crate) has_target: bool,
    /// What the user asked for beyond what is always observed.
    pub(crate) asked: Asked,
    /// The processes that were seen so far.
    pub(crate) processes: Processes,
    /// The cgroup tree of the cpu controller.
    pub(crate) cgroups: Cgroups,
    /// The block devices that were seen so far.
    pub(crate) devices: Devices,
    /// The threads that have asked them for something and slept meanwhile.
    pub(crate) requesters: Requesters,
}

impl Context {
    /// The state before anything was observed. The start of the window and the pid of a command are set later, when they are
    /// known.
    pub(crate) fn new(roots: Roots, target: TargetSpec, asked: Asked) -> Self {
        let processes = Processes::default();
        let cgroups = Cgroups::open(&roots).with_reader(processes.reader().clone());
        let devices = Devices::open(&roots);
        Self {
            roots,
            window: WindowClock::default(),
            has_target: target != TargetSpec::Host,
            target,
            entries: vec![],
            asked,
            processes,
            cgroups,
            devices,
            requesters: Requesters::default(),
        }
    }

    /// Forgets the processes and cgroups that ended long ago. Called once a second, after all collectors.
    pub(crate) fn forget_ended(&mut self) {
        self.processes.second(&self.roots);
        if self.cgroups.forget_removed() {
            self.processes.forget_cgroups(&self.cgroups);
        }
    }
}

/// One source of records.
pub(crate) trait Collector {
    /// Called at each beat. An error ends this collector, not the session: the session emits `Coverage::Partial` for
    /// its sources from then on.
    fn beat(&mut self, cx: &mut Context, now: BeatTime, emit: Emit<'_>) -> anyhow::Result<()>;
}

/// One more than the highest CPU number that this machine can ever have online; where `/sys` does not tell, that it has
/// online now.
pub(crate) fn possible_cpus(roots: &Roots) -> u32 {
    let read = |file: PathBuf| std::fs::read_to_string(file).ok();
    let possible = read(roots.sys.join("devices/system/cpu/possible"))
        .and_then(|text| text.trim().rsplit(['-', ',']).next()?.parse::<u32>().ok());
    let online = || {
        let text = read(roots.proc.join("stat"))?;
        let number = |line: &str| line.strip_prefix("cpu")?.split(' ').next()?.parse::<u32>().ok();
        text.lines().filter_map(number).max()
    };
    possible.or_else(online).map_or(1, |last| last + 1)
}

/// Identity of this boot of the host; `None` if it could not be read.
pub(crate) fn boot_id(roots: &Roots) -> Option<String> {
    let text = std::fs::read_to_string(roots.proc.join("sys/kernel/random/boot_id")).ok()?;
    Some(text.trim().to_owned()).filter(|id| !id.is_empty())
}

/// The online CPUs in ascending order; empty if the kernel does not list them.
pub(crate) fn cpus_online(roots: &Roots) -> Vec<u32> {
    let text = std::fs::read(roots.sys.join("devices/system/cpu/online")).unwrap_or_default();
    cpu_list::parse(&text).unwrap_or_default()
}
