// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's facts about the CPUs: which share a core, whether they are virtual, which frequencies are allowed,
//! which CPUs are offline.

use crate::collect::Roots;
use deburr_core::procfs::cpu_list;
use rustix::thread::{CpuSet, sched_getaffinity};
use std::collections::BTreeSet;
use std::path::Path;

/// Files of a CPU with its highest possible and its highest allowed frequency.
const FREQUENCIES: [&str; 2] = ["cpufreq/cpuinfo_max_freq", "cpufreq/scaling_max_freq"];

/// Lists of CPUs: those that are present, and those that are offline, some of which can never be online.
const LISTS: [&str; 2] = ["present", "offline"];

/// The kernel's facts about the CPUs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Machine {
    /// Groups of two and more CPUs that share a core; `None` if the kernel does not report them.
    pub(super) cores: Option<Vec<Vec<u32>>>,
    /// Whether the processor is virtual; `None` if unknown.
    pub(super) hypervisor: Option<bool>,
    /// Path and content of the files of [`FREQUENCIES`] and [`LISTS`] that exist.
    pub(super) settings: Vec<(String, String)>,
}

/// The CPUs that this process may run on, in ascending order.
pub(super) fn usable_cpus() -> Vec<u32> {
    let Ok(set) = sched_getaffinity(None) else { return vec![0] };
    (0..CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .filter_map(|cpu| u32::try_from(cpu).ok())
        .collect()
}

/// Reads the facts about these CPUs.
pub(super) fn look(roots: &Roots, cpus: &[u32]) -> Machine {
    let folder = |cpu: u32| roots.sys.join(format!("devices/system/cpu/cpu{cpu}"));
    let mut cores = BTreeSet::new();
    let mut told = false;
    let mut settings = Vec::new();
    for &cpu in cpus {
        if let Some(siblings) = list(&folder(cpu).join("topology/thread_siblings_list")) {
            told = true;
            let here: Vec<u32> =
                siblings.into_iter().filter(|other| cpus.contains(other)).collect();
            if here.len() > 1 {
                cores.insert(here);
            }
        }
        for name in FREQUENCIES {
            if let Ok(text) = std::fs::read_to_string(folder(cpu).join(name)) {
                let path = format!("/sys/devices/system/cpu/cpu{cpu}/{name}");
                settings.push((path, text.trim_end().to_owned()));
            }
        }
    }
    for name in LISTS {
        if let Ok(text) = std::fs::read_to_string(roots.sys.join("devices/system/cpu").join(name)) {
            settings.push((format!("/sys/devices/system/cpu/{name}"), text.trim_end().to_owned()));
        }
    }
    let cpuinfo = std::fs::read_to_string(roots.proc.join("cpuinfo")).ok();
    Machine {
        cores: told.then(|| cores.into_iter().collect()),
        hypervisor: cpuinfo.as_deref().and_then(hypervisor),
        settings,
    }
}

fn list(file: &Path) -> Option<Vec<u32>> {
    cpu_list::parse(&std::fs::read(file).ok()?).ok()
}

/// Whether the processor's flags say that it is virtual; `None` without flags (not x86).
fn hypervisor(cpuinfo: &str) -> Option<bool> {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"))?;
    Some(flags.split_whitespace().any(|flag| flag == "hypervisor"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::fixture::Host;

    #[test]
    fn siblings_among_the_usable_cpus() {
        let host = Host::empty();
        let sibling =
            |cpu: u32| format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        for (cpu, list) in [(0, "0,4"), (1, "1,5"), (4, "0,4"), (6, "2,6")] {
            host.write(&sibling(cpu), format!("{list}\n"));
        }
        host.write("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu hypervisor avx\n");
        host.write("sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq", "2000000\n");
        host.write("sys/devices/system/cpu/offline", "5,8-63\n");
        let machine = look(&host.roots, &[0, 1, 4, 6]);
        // 5 is offline or not in the cpuset, and so is 2: a CPU that is left alone on its core is in no group.
        assert_eq!(machine.cores, Some(vec![vec![0, 4]]));
        assert_eq!(machine.hypervisor, Some(true));
        let frequency = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq".to_owned();
        let offline = "/sys/devices/system/cpu/offline".to_owned();
        assert_eq!(machine.settings, [(frequency, "2000000".into()), (offline, "5,8-63".into())]);
    }

    #[test]
    fn what_is_not_told_is_not_known() {
        let host = Host::empty();
        assert_eq!(look(&host.roots, &[0, 1]), Machine::default());
        host.write("proc/cpuinfo", "processor\t: 0\nFeatures\t: fp asimd\n");
        host.write("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0\n");
        let machine = look(&host.roots, &[0, 1]);
        assert_eq!((machine.cores, machine.hypervisor), (Some(vec![]), None));
    }

    #[test]
    fn this_process_may_run_somewhere() {
        assert!(!usable_cpus().is_empty());
    }
}
