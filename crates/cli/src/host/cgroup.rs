// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cgroup of an experiment: one directory in the tree of the cpu controller, v1 or v2, with everything below it.

use super::task::{Process, Property, Thread};
use anyhow::{Context as _, Result, anyhow, bail};
use deburr_core::procfs::cpu_list;
use deburr_core::recording::CgroupVersion;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, thread};

/// Longest time that the kernel takes to free a removed cgroup.
const FREED_WITHIN: Duration = Duration::from_secs(5);

/// The file with the CPUs that the processes of a cgroup may use, in both versions.
const EFFECTIVE_CPUS: [&str; 2] = ["cpuset.cpus.effective", "cpuset.effective_cpus"];

/// The default weight of a cgroup in cgroup v1.
pub(crate) const DEFAULT_SHARES: u32 = 1024;

/// A mounted tree of cgroups with the cpu controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tree {
    /// Where it is mounted.
    pub(crate) mount: PathBuf,
    /// Version of its interface.
    pub(crate) version: CgroupVersion,
}

impl Tree {
    /// Finds the tree of this host; an error says what is missing.
    pub(crate) fn find() -> Result<Self> {
        let mountinfo = fs::read_to_string("/proc/self/mountinfo")
            .context("cannot read `/proc/self/mountinfo`")?;
        let tree = Self::in_mountinfo(&mountinfo)
            .ok_or_else(|| anyhow!("no cgroup tree with the cpu controller is mounted"))?;
        if tree.version == CgroupVersion::V2 {
            let file = tree.mount.join("cgroup.subtree_control");
            let enabled = fs::read_to_string(&file).unwrap_or_default();
            if !enabled.split_whitespace().any(|controller| controller == "cpu") {
                let file = file.display();
                bail!("`cpu` is not enabled in `{file}`: `echo +cpu > {file}` enables it");
            }
        }
        Ok(tree)
    }

    /// The v1 mount with the cpu controller if there is one, else the v2 mount.
    fn in_mountinfo(text: &str) -> Option<Self> {
        let (mount, version) = match v1_mounts(text, "cpu").next() {
            Some(mount) => (mount, CgroupVersion::V1),
            None => (v2_mount(text)?, CgroupVersion::V2),
        };
        Some(Self { mount: mount.into(), version })
    }

    /// Creates the directory `path` below `base`, with the cpu controller enabled for it and its siblings.
    pub(crate) fn make(&self, base: &Path, path: &str) -> Result<PathBuf> {
        let mut dir = base.to_owned();
        for part in Path::new(path) {
            if self.version == CgroupVersion::V2 {
                write(&dir.join("cgroup.subtree_control"), "+cpu")?;
            }
            dir.push(part);
            make_dir(&dir)?;
        }
        Ok(dir)
    }

    /// Sets the weight of a cgroup to `times` the default weight.
    pub(crate) fn set_weight(&self, dir: &Path, times: u32) -> Result<()> {
        self.set_shares(dir, DEFAULT_SHARES * times)
    }

    /// Sets the weight of a cgroup in units of cgroup v1, where [`DEFAULT_SHARES`] is the default. On v2 it is scaled
    /// to the default of 100 and rounded down.
    pub(crate) fn set_shares(&self, dir: &Path, shares: u32) -> Result<()> {
        match self.version {
            CgroupVersion::V1 => write(&dir.join("cpu.shares"), &shares.to_string()),
            CgroupVersion::V2 => {
                let weight = (shares * 100 / DEFAULT_SHARES).clamp(1, 10_000);
                write(&dir.join("cpu.weight"), &weight.to_string())
            }
        }
    }

    /// Gives a cgroup `us_per_s` of CPU time for realtime tasks in every second on each CPU, where the kernel divides
    /// that among cgroups. Its parents must have at least as much.
    pub(crate) fn set_realtime(&self, dir: &Path, us_per_s: u32) -> Result<()> {
        let budget = dir.join("cpu.rt_runtime_us");
        if self.version == CgroupVersion::V2 || !budget.exists() {
            return Ok(());
        }
        write(&dir.join("cpu.rt_period_us"), "1000000")?;
        // A cgroup that was removed just before keeps its part until the kernel frees it.
        let deadline = Instant::now() + FREED_WITHIN;
        loop {
            match write(&budget, &us_per_s.to_string()) {
                Err(_) if Instant::now() < deadline => thread::sleep(Duration::from_millis(50)),
                written => return written,
            }
        }
    }

    /// Limits a cgroup to `quota_us` of CPU time in every `period_us`.
    pub(crate) fn set_quota(&self, dir: &Path, quota_us: u64, period_us: u64) -> Result<()> {
        match self.version {
            CgroupVersion::V1 => {
                write(&dir.join("cpu.cfs_period_us"), &period_us.to_string())?;
                write(&dir.join("cpu.cfs_quota_us"), &quota_us.to_string())
            }
            CgroupVersion::V2 => write(&dir.join("cpu.max"), &format!("{quota_us} {period_us}")),
        }
    }
}

/// Mount point of the v1 tree with that controller.
pub(crate) fn v1_mount(controller: &str) -> Result<PathBuf> {
    let mountinfo =
        fs::read_to_string("/proc/self/mountinfo").context("cannot read `/proc/self/mountinfo`")?;
    let found = v1_mounts(&mountinfo, controller).next().map(PathBuf::from);
    found.ok_or_else(|| anyhow!("no cgroup tree with the controller `{controller}` is mounted"))
}

/// Mount points of all trees in which cgroups may have files of that controller: v1, and then v2.
pub(crate) fn mounts_with(controller: &str) -> Result<Vec<PathBuf>> {
    let mountinfo =
        fs::read_to_string("/proc/self/mountinfo").context("cannot read `/proc/self/mountinfo`")?;
    Ok(v1_mounts(&mountinfo, controller).chain(v2_mount(&mountinfo)).map(PathBuf::from).collect())
}

/// The directories of a cgroup, given by its path from the root, in all trees that have it.
pub(crate) fn directories(path: &str) -> Result<Vec<PathBuf>> {
    let mountinfo =
        fs::read_to_string("/proc/self/mountinfo").context("cannot read `/proc/self/mountinfo`")?;
    let mounts = mountinfo.lines().filter_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let is_tree = right.starts_with("cgroup ") || right.starts_with("cgroup2 ");
        left.split(' ').nth(4).filter(|_| is_tree)
    });
    let mut all: Vec<PathBuf> = mounts
        .map(|mount| Path::new(mount).join(path.trim_start_matches('/')))
        .filter(|dir| dir.join("cgroup.procs").exists())
        .collect();
    all.sort();
    all.dedup();
    Ok(all)
}

/// Mount point of the v2 tree.
fn v2_mount(mountinfo: &str) -> Option<&str> {
    mountinfo.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        left.split(' ').nth(4).filter(|_| right.starts_with("cgroup2 "))
    })
}

/// Mount points of v1 trees with that controller.
fn v1_mounts<'a>(mountinfo: &'a str, controller: &'a str) -> impl Iterator<Item = &'a str> {
    mountinfo.lines().filter_map(move |line| {
        let (left, right) = line.split_once(" - ")?;
        let mut right = right.split(' ');
        let is_v1 = right.next()? == "cgroup";
        let has = right.nth(1)?.split(',').any(|option| option == controller);
        left.split(' ').nth(4).filter(|_| is_v1 && has)
    })
}

/// Creates one directory; it may exist already.
pub(crate) fn make_dir(dir: &Path) -> Result<()> {
    match fs::create_dir(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(error).with_context(|| format!("cannot make the cgroup `{}`", dir.display()))
        }
        _ => Ok(()),
    }
}

/// Moves the calling process into a cgroup.
pub(crate) fn join(dir: &Path) -> Result<()> {
    write(&dir.join("cgroup.procs"), "0")
}

fn write(file: &Path, value: &str) -> Result<()> {
    fs::write(file, value)
        .with_context(|| format!("cannot write `{value}` to `{}`", file.display()))
}

/// Kills every process in a cgroup and below it, and removes the directories. The cgroup need not exist.
pub(crate) fn destroy(dir: &Path, timeout: Duration) -> Result<()> {
    let deadline = Instant::now() + timeout;
    while dir.exists() {
        kill(dir, None);
        let Err(error) = remove_tree(dir) else { continue };
        if Instant::now() > deadline {
            return Err(error)
                .with_context(|| format!("cannot remove the cgroup `{}`", dir.display()));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn subdirs(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

/// Removes the directories from the leaves up: the files of a cgroup vanish with it.
fn remove_tree(dir: &Path) -> std::io::Result<()> {
    for child in subdirs(dir) {
        remove_tree(&child)?;
    }
    fs::remove_dir(dir)
}

/// Waits until no process is in a cgroup, which need not exist, or the time is over.
pub(crate) fn let_end(dir: &Path, timeout: Duration) {
    let deadline = Instant::now() + timeout;
    while !members(dir).is_empty() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(10));
    }
}

/// Kills every process in a cgroup and below it, except those in and below its child `except`.
pub(crate) fn kill(dir: &Path, except: Option<&str>) {
    for child in subdirs(dir) {
        if except.is_none_or(|name| !child.ends_with(name)) {
            kill(&child, None);
        }
    }
    for pid in members(dir) {
        // The pid may have been reused by now. Only a pidfd that was opened while the cgroup still listed the pid is
        // certain to refer to the member.
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        if members(dir).contains(&pid) {
            let _ = pidfd_send_signal(handle, Signal::KILL);
        }
    }
}

fn members(dir: &Path) -> Vec<Pid> {
    let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)).collect()
}

/// Threads in a cgroup and below it that may use some of its CPUs only.
pub(crate) fn threads_with_fewer_cpus(dir: &Path) -> Vec<Thread> {
    fewer_cpus(dir, None)
}

/// `inherited` are the CPUs of the cgroup above.
fn fewer_cpus(dir: &Path, inherited: Option<&str>) -> Vec<Thread> {
    let read = |name: &&str| fs::read(dir.join(name)).ok();
    let own = EFFECTIVE_CPUS.iter().find_map(read);
    let own = own.and_then(|text| cpu_list::parse(text.trim_ascii()).ok());
    let own = own.map(|cpus| cpu_list::format(&cpus));
    let Some(cpus) = own.as_deref().or(inherited) else { return vec![] };
    let processes = members(dir).into_iter().flat_map(|pid| Process::of(pid.as_raw_pid()));
    let mut threads: Vec<Thread> = processes.flat_map(|it| it.threads()).flatten().collect();
    threads.retain(|thread| {
        let own = thread.read(Property::Affinity).ok().flatten();
        own.is_some_and(|own| own != cpus)
    });
    threads.extend(subdirs(dir).iter().flat_map(|child| fewer_cpus(child, Some(cpus))));
    threads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_with_fewer_cpus_than_their_cgroup_are_found_below_it_too() {
        let dir = tempfile::tempdir().unwrap();
        let me = Process::of(std::process::id().cast_signed()).unwrap().main_thread();
        let own = me.read(Property::Affinity).unwrap().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let found = || threads_with_fewer_cpus(dir.path()).contains(&me);
        file("below/cgroup.procs", &format!("{}\n", me.pid));
        assert!(!found(), "nothing is known of the cgroup's CPUs");
        file("cpuset.cpus.effective", &format!("{own},4000\n"));
        assert!(found());
        file("below/cpuset.effective_cpus", &format!("{own}\n"));
        assert!(!found());
    }

    #[test]
    fn the_v1_mount_of_the_cpu_controller_wins() {
        let text = "\
25 20 0:22 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
26 20 0:23 / /sys/fs/cgroup/cpu,cpuacct rw shared:5 - cgroup cgroup rw,cpu,cpuacct\n\
27 20 0:24 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let tree = Tree::in_mountinfo(text).unwrap();
        assert_eq!(tree.version, CgroupVersion::V1);
        assert_eq!(tree.mount, Path::new("/sys/fs/cgroup/cpu,cpuacct"));
    }

    #[test]
    fn without_it_the_v2_mount_is_taken() {
        let text = "\
25 20 0:22 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
27 20 0:24 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        let tree = Tree::in_mountinfo(text).unwrap();
        assert_eq!(tree.version, CgroupVersion::V2);
        assert_eq!(tree.mount, Path::new("/sys/fs/cgroup"));
        assert_eq!(Tree::in_mountinfo("1 2 0:1 / / rw - ext4 /dev/sda rw\nnonsense\n"), None);
    }
}
