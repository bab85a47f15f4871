// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a scenario needs of the machine, and whether it is there.

use super::cgroup::Tree;
use rustix::process::geteuid;
use rustix::thread::sched_getaffinity;
use serde::Deserialize;
use std::fmt;
use std::path::Path;

/// Something that a scenario cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub(crate) enum Need {
    /// Effective uid 0.
    Root,
    /// The kernel's type information, without which no BPF program can be fitted to it.
    Bpf,
    /// A tree of cgroups whose CPU time can be weighed and limited.
    CgroupCpu,
    /// That many CPUs that this process may use.
    Cpus(usize),
}

impl TryFrom<String> for Need {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "root" => Ok(Self::Root),
            "bpf" => Ok(Self::Bpf),
            "cgroup-cpu" => Ok(Self::CgroupCpu),
            _ => text.strip_prefix("cpus>=").and_then(|n| n.parse().ok()).map(Self::Cpus).ok_or(
                format!("unknown need `{text}`: `root`, `bpf`, `cgroup-cpu` and `cpus>=N` exist"),
            ),
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str("root"),
            Self::Bpf => f.write_str("bpf"),
            Self::CgroupCpu => f.write_str("cgroup-cpu"),
            Self::Cpus(n) => write!(f, "cpus>={n}"),
        }
    }
}

impl Need {
    /// Why it is not met here; `None` if it is.
    pub(crate) fn unmet(self) -> Option<String> {
        match self {
            Self::Root => (!geteuid().is_root()).then(|| "it needs root".into()),
            Self::Bpf => (!Path::new("/sys/kernel/btf/vmlinux").exists())
                .then(|| "the kernel has no BTF (`/sys/kernel/btf/vmlinux`)".into()),
            Self::CgroupCpu => Tree::find().err().map(|error| format!("{error:#}")),
            Self::Cpus(wanted) => {
                let usable = usable_cpus().len();
                (usable < wanted).then(|| format!("it needs {wanted} CPUs, usable are {usable}"))
            }
        }
    }
}

/// The CPUs that this process may use, in ascending order.
pub(crate) fn usable_cpus() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return vec![0] };
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_as_they_are_shown() {
        for name in ["root", "bpf", "cgroup-cpu", "cpus>=2"] {
            assert_eq!(Need::try_from(name.to_owned()).unwrap().to_string(), name);
        }
        assert!(Need::try_from("cpus>=".to_owned()).is_err());
    }

    #[test]
    fn too_many_cpus_are_an_unmet_need_with_both_numbers() {
        assert_eq!(Need::Cpus(1).unmet(), None);
        let reason = Need::Cpus(100_000).unmet().unwrap();
        assert!(reason.contains("100000") && reason.contains(&usable_cpus().len().to_string()));
    }
}
