// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a scenario needs from the machine, and whether the machine has it.

use super::fragments;
use crate::host::cgroup::{Tree, v1_mount};
use deburr_bpf::sched::plan::names_locks;
use rustix::param::clock_ticks_per_second;
use rustix::process::geteuid;
use rustix::thread::sched_getaffinity;
use serde::Deserialize;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// A requirement of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub(crate) enum Need {
    /// Effective user id 0.
    Root,
    /// The kernel's type information (BTF), without which no BPF program can be loaded.
    Bpf,
    /// A cgroup tree with CPU weights and CPU limits.
    CgroupCpu,
    /// At least this many CPUs that this process may use.
    Cpus(usize),
    /// Idle CPU time of about one CPU, when it is checked.
    IdleCpu,
    /// FUSE: filesystems in user space.
    Fuse,
    /// Loop devices and `losetup`.
    Loop,
    /// ext4 and `mkfs.ext4`.
    Ext4,
    /// The Go toolchain.
    Go,
    /// Limits on the dirty data of one disk, in bytes (Linux 6.2).
    BdiLimit,
    /// A cgroup v1 tree that can limit block IO.
    BlkioThrottle,
    /// A cgroup v1 tree that can bind processes to CPUs.
    Cpuset,
    /// A cgroup v1 tree that can limit memory.
    MemoryLimit,
    /// Real-time tasks in a cgroup of the lab's own.
    Realtime,
    /// overlayfs.
    Overlay,
    /// Temporary files that are on a disk of the host.
    HostDisk,
    /// The kernel says for which of its locks a thread sleeps.
    KernelLocks,
    /// Packets that another CPU receives than the one to which they came.
    Rps,
    /// Memory that can be fragmented, and large pages for which a thread puts it together itself.
    Compaction,
}

/// Interval over which idle CPU time is measured.
const WATCH: Duration = Duration::from_millis(500);
/// Minimum idle time, in CPUs. Less than 1, since there is always some background work.
const IDLE_SHARE: f64 = 0.7;

impl TryFrom<String> for Need {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "root" => Ok(Self::Root),
            "bpf" => Ok(Self::Bpf),
            "cgroup-cpu" => Ok(Self::CgroupCpu),
            "idle-cpu" => Ok(Self::IdleCpu),
            "fuse" => Ok(Self::Fuse),
            "loop" => Ok(Self::Loop),
            "ext4" => Ok(Self::Ext4),
            "go" => Ok(Self::Go),
            "bdi-limit" => Ok(Self::BdiLimit),
            "blkio-throttle" => Ok(Self::BlkioThrottle),
            "cpuset" => Ok(Self::Cpuset),
            "memory-limit" => Ok(Self::MemoryLimit),
            "realtime" => Ok(Self::Realtime),
            "overlay" => Ok(Self::Overlay),
            "host-disk" => Ok(Self::HostDisk),
            "kernel-locks" => Ok(Self::KernelLocks),
            "rps" => Ok(Self::Rps),
            "compaction" => Ok(Self::Compaction),
            _ => text.strip_prefix("cpus>=").and_then(|n| n.parse().ok()).map(Self::Cpus).ok_or(
                format!(
                    "unknown need `{text}`: `root`, `bpf`, `cgroup-cpu`, `idle-cpu`, `fuse`, `loop`, `ext4`, \
                     `go`, `bdi-limit`, `blkio-throttle`, `cpuset`, `memory-limit`, `realtime`, `overlay`, \
                     `host-disk`, `kernel-locks`, `rps`, `compaction` and `cpus>=N` exist"
                ),
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
            Self::IdleCpu => f.write_str("idle-cpu"),
            Self::Fuse => f.write_str("fuse"),
            Self::Loop => f.write_str("loop"),
            Self::Ext4 => f.write_str("ext4"),
            Self::Go => f.write_str("go"),
            Self::BdiLimit => f.write_str("bdi-limit"),
            Self::BlkioThrottle => f.write_str("blkio-throttle"),
            Self::Cpuset => f.write_str("cpuset"),
            Self::MemoryLimit => f.write_str("memory-limit"),
            Self::Realtime => f.write_str("realtime"),
            Self::Overlay => f.write_str("overlay"),
            Self::HostDisk => f.write_str("host-disk"),
            Self::KernelLocks => f.write_str("kernel-locks"),
            Self::Rps => f.write_str("rps"),
            Self::Compaction => f.write_str("compaction"),
        }
    }
}

impl Need {
    /// Why the requirement is not met here; `None` if it is.
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
            Self::Fuse => no_device("/dev/fuse"),
            Self::Loop => no_device("/dev/loop-control").or_else(|| no_program("losetup")),
            Self::Ext4 => no_filesystem("ext4").or_else(|| no_program("mkfs.ext4")),
            Self::Go => no_program("go"),
            Self::BdiLimit => {
                let bdis = std::fs::read_dir("/sys/class/bdi").into_iter().flatten().flatten();
                let has = bdis.map(|bdi| bdi.path().join("max_ratio_fine").exists()).next();
                (has != Some(true)).then(|| {
                    "the kernel cannot limit one disk's dirty data in bytes (Linux 6.2)".into()
                })
            }
            Self::BlkioThrottle => throttle_tree().is_none().then(|| {
                "it needs the `blkio` controller of cgroup v1, and a kernel that can limit by it".into()
            }),
            Self::Cpuset => v1_mount("cpuset").err().map(|error| format!("{error:#}")),
            Self::MemoryLimit => v1_mount("memory").err().map(|error| format!("{error:#}")),
            Self::Realtime => no_realtime(),
            Self::Overlay => no_filesystem("overlay"),
            Self::HostDisk => no_host_disk(),
            Self::KernelLocks => (!names_locks(&deburr_bpf::facts::facts())).then(|| {
                "the kernel does not say for which lock a thread sleeps (CONFIG_DETECT_HUNG_TASK_BLOCKER)".into()
            }),
            Self::Rps => (!Path::new("/sys/class/net/lo/queues/rx-0/rps_cpus").exists())
                .then(|| "the kernel cannot have other CPUs receive packets (CONFIG_RPS)".into()),
            Self::Compaction => fragments::unmet(),
            Self::IdleCpu => {
                let idle = idle_cpus()?;
                (idle < IDLE_SHARE).then(|| {
                    format!(
                        "it needs an idle CPU, and the host is busy: {:.0} % of one CPU idles",
                        idle * 100.0
                    )
                })
            }
        }
    }
}

/// The cgroup v1 tree that can limit block IO.
pub(crate) fn throttle_tree() -> Option<PathBuf> {
    let text = std::fs::read("/proc/self/mountinfo").ok()?;
    let mounts = deburr_core::procfs::mountinfo::parse(&text).ok()?;
    let mut v1 = mounts.iter().filter(|it| it.fs_type == "cgroup" && it.has_option("blkio"));
    let tree = v1.find(|mount| mount.root == b"/")?;
    let tree = PathBuf::from(OsStr::from_bytes(&tree.mount_point));
    tree.join("blkio.throttle.write_iops_device").exists().then_some(tree)
}

/// Why real-time tasks are not possible; `None` if they are. Where cgroups have a real-time budget (cgroup v1), the
/// lab sets its own, so only the budget of the root matters. Elsewhere a thread tries to get real-time priority.
fn no_realtime() -> Option<String> {
    let budget = v1_mount("cpu").ok().map(|tree| tree.join("cpu.rt_runtime_us"));
    let budget = budget.and_then(|file| std::fs::read_to_string(file).ok());
    if let Some(budget) = budget {
        let none = budget.trim() == "0";
        return none.then(|| "the kernel gives realtime tasks of cgroups no CPU time".into());
    }
    let error = thread::spawn(deburr_sys::realtime::take_precedence).join().ok()?.err()?;
    Some(format!("no task may go before ordinary ones: {error}"))
}

/// Why temporary files are not on a disk of the host; `None` if they are. Device major number 0 means that the
/// filesystem is in memory or on a network.
fn no_host_disk() -> Option<String> {
    let dir = std::env::temp_dir();
    let device = std::fs::metadata(&dir).map(|meta| rustix::fs::major(meta.dev())).unwrap_or(0);
    (device == 0).then(|| format!("`{}` is on no disk", dir.display()))
}

fn no_device(path: &str) -> Option<String> {
    let error = std::fs::File::options().read(true).write(true).open(path).err()?;
    Some(format!("it needs `{path}`: {error}"))
}

/// Why a filesystem cannot be mounted; `None` if it can. Its module may not be loaded yet: mounting loads it, unless
/// the kernel forbids loading modules.
fn no_filesystem(name: &str) -> Option<String> {
    let known = std::fs::read_to_string("/proc/filesystems").ok()?;
    let is_known = known.lines().any(|line| line.ends_with(&format!("\t{name}")));
    let modules_off = std::fs::read_to_string("/proc/sys/kernel/modules_disabled");
    let may_load = modules_off.is_ok_and(|text| text.trim() == "0");
    (!is_known && !may_load).then(|| format!("the kernel has no {name}"))
}

fn no_program(name: &str) -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
    (!found).then(|| format!("it needs the program `{name}` (`scripts/setup --lab` installs it)"))
}

/// The CPUs that this process may use, in ascending order.
pub(crate) fn usable_cpus() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return vec![0] };
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

/// Average number of idle CPUs during [`WATCH`]; `None` if the kernel does not report it.
fn idle_cpus() -> Option<f64> {
    let read = || -> Option<u64> {
        let text = std::fs::read_to_string("/proc/stat").ok()?;
        // cpu user nice system idle
        text.lines().next()?.split_whitespace().nth(4)?.parse().ok()
    };
    let (before, start) = (read()?, Instant::now());
    thread::sleep(WATCH);
    let idle_s = read()?.saturating_sub(before) as f64 / clock_ticks_per_second() as f64;
    Some(idle_s / start.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_as_they_are_shown() {
        for name in [
            "root",
            "bpf",
            "cgroup-cpu",
            "cpus>=2",
            "idle-cpu",
            "fuse",
            "loop",
            "ext4",
            "go",
            "bdi-limit",
            "blkio-throttle",
            "cpuset",
            "memory-limit",
            "realtime",
            "overlay",
            "host-disk",
            "kernel-locks",
            "rps",
            "compaction",
        ] {
            assert_eq!(Need::try_from(name.to_owned()).unwrap().to_string(), name);
        }
        assert!(Need::try_from("cpus>=".to_owned()).is_err());
    }

    #[test]
    fn what_is_missing_is_named() {
        assert!(no_device("/no/such/device").unwrap().contains("/no/such/device"));
        assert!(no_program("no-such-program").unwrap().contains("no-such-program"));
        assert_eq!(no_program("sh"), None);
    }

    #[test]
    fn too_many_cpus_are_an_unmet_need_with_both_numbers() {
        assert_eq!(Need::Cpus(1).unmet(), None);
        let reason = Need::Cpus(100_000).unmet().unwrap();
        assert!(reason.contains("100000") && reason.contains(&usable_cpus().len().to_string()));
    }
}
