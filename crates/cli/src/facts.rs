// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Collects the facts about this host that determine what can be observed. Draws no conclusions from them.

use crate::collect::{Cgroups, Context, Roots, cpus_online};
use crate::failure::{Exit, Failure};
use deburr_bpf::facts::facts;
use deburr_bpf::sched::plan::{self, Needs, ThrottleClock, plan};
use deburr_core::procfs::cpu_list;
use deburr_core::procfs::mountinfo::{self, Mount};
use deburr_core::recording::CgroupVersion;
use deburr_core::text::name;
use serde::Serialize;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;

/// Fails where there is no `/proc`: what is observed would look like a host without processes.
pub(crate) fn require_proc(roots: &Roots) -> anyhow::Result<()> {
    if roots.proc.join("self/stat").exists() {
        return Ok(());
    }
    let why = "no `/proc` is mounted here, and everything about processes comes from it; `mount -t proc proc /proc` mounts it";
    Err(Failure::error(Exit::Missing, why))
}

/// What this kernel, the user's privileges and the host's configuration offer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Facts {
    /// `uname -n`.
    pub(crate) host: String,
    /// `uname -r`.
    pub(crate) kernel: String,
    /// The online CPUs as a list, like `0-3,8`.
    pub(crate) cpus_online: String,
    pub(crate) effective_uid: u32,
    /// `/proc` does not show the processes of other users (`hidepid`).
    pub(crate) others_hidden: bool,
    pub(crate) bpf: BpfFacts,
    pub(crate) cgroups: CgroupFacts,
}

/// What BPF programs can do here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct BpfFacts {
    /// The capabilities of this process suffice to load BPF programs.
    pub(crate) privileged: bool,
    /// Why the kernel's type information (BTF) cannot be read; `None` if it can.
    pub(crate) btf_error: Option<String>,
    /// This process is in the host's pid namespace.
    pub(crate) initial_pid_namespace: bool,
    pub(crate) sched_switch_arguments: Option<u32>,
    /// Fields of kernel structures that the scheduler probe needs and that this kernel does not have.
    pub(crate) missing_fields: Vec<String>,
    pub(crate) throttling: Throttling,
    /// Field of the kernel's `cfs_rq` that records how long a run queue has been throttled.
    pub(crate) throttle_clock: Option<&'static str>,
    /// A BPF task iterator can list the threads that are not running.
    pub(crate) task_iterator: bool,
    /// Tracepoints that the scheduler probe attaches to; none if it cannot be used.
    pub(crate) hooks: Vec<&'static str>,
    /// Why the scheduler probe cannot be used, as part of a sentence.
    pub(crate) refusal: Option<String>,
}

/// What leaves the run queue when a quota is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Throttling {
    /// The kernel has no quotas, or does not show when one is used up.
    Unknown,
    /// The whole group at once.
    ByGroup,
    /// Each thread by itself, when it returns to user space.
    ByThread,
}

/// How the cgroup trees are laid out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct CgroupFacts {
    /// `v1`, `v2`, `mixed` or `none`.
    pub(crate) layout: &'static str,
    pub(crate) cpu_controller: Option<CgroupVersion>,
    /// Mount point of the tree with the cpu controller; if no tree has the controller, that of the v2 tree.
    pub(crate) mount_point: Option<String>,
    /// The root of the whole hierarchy is visible. Inside a container it is not.
    pub(crate) whole: bool,
    pub(crate) quota_in_use: bool,
    /// Number of containers that have a cgroup.
    pub(crate) containers: usize,
}

/// Collects the facts about this host.
pub(crate) fn look(cx: &mut Context) -> Facts {
    let host = rustix::system::uname();
    let cgroups = cgroup_facts(&mut cx.cgroups);
    Facts {
        host: name::decode(host.nodename().to_bytes()),
        kernel: name::decode(host.release().to_bytes()),
        cpus_online: cpu_list::format(&cpus_online(&cx.roots)),
        effective_uid: rustix::process::geteuid().as_raw(),
        others_hidden: others_are_hidden(&cx.roots),
        bpf: bpf_facts(&cgroups),
        cgroups,
    }
}

fn cgroup_facts(cgroups: &mut Cgroups) -> CgroupFacts {
    cgroups.walk();
    let mount_point = cgroups.mount_point();
    CgroupFacts {
        layout: cgroups.layout(),
        cpu_controller: cgroups.cpu_controller(),
        mount_point: mount_point.map(|dir| name::decode(dir.as_os_str().as_bytes())),
        whole: cgroups.is_whole(),
        quota_in_use: cgroups.quota_in_use(),
        containers: cgroups.containers().len(),
    }
}

fn bpf_facts(cgroups: &CgroupFacts) -> BpfFacts {
    let facts = facts();
    let needs = Needs {
        // Determines only the size of a BPF map, which is not among the facts.
        threads: 0,
        cgroup_v2: cgroups.cpu_controller != Some(CgroupVersion::V1),
        quota_in_use: cgroups.quota_in_use,
        sleeps: true,
    };
    let planned = plan(&facts, needs);
    let hooks = planned.as_ref().map_or_else(
        |_| vec![],
        |plan| match plan.wakeup_hook {
            true => {
                vec!["sched_switch", "sched_migrate_task", "sched_wakeup", "sched_wakeup_new"]
            }
            false => vec!["sched_switch", "sched_migrate_task"],
        },
    );
    let throttle_clock = ThrottleClock::of(&facts);
    BpfFacts {
        privileged: facts.privileged,
        initial_pid_namespace: facts.initial_pid_namespace,
        sched_switch_arguments: facts.arguments("sched_switch"),
        throttling: match (throttle_clock, plan::throttles_threads(&facts)) {
            (ThrottleClock::None, _) => Throttling::Unknown,
            (_, true) => Throttling::ByThread,
            (_, false) => Throttling::ByGroup,
        },
        throttle_clock: throttle_clock.field(),
        task_iterator: plan::has_task_iterator(&facts),
        missing_fields: facts.missing(plan::NEEDED),
        btf_error: facts.btf_error.clone(),
        hooks,
        refusal: planned.err(),
    }
}

/// Whether `/proc` hides other users' processes from this user.
pub(crate) fn others_are_hidden(roots: &Roots) -> bool {
    if rustix::process::geteuid().is_root() {
        return false;
    }
    let text = fs::read(roots.proc.join("self/mountinfo")).unwrap_or_default();
    hides_others(&mountinfo::parse(&text).unwrap_or_default())
}

/// Whether the mount that is visible at `/proc` hides processes. The last mount at a mount point covers earlier ones.
fn hides_others(mounts: &[Mount]) -> bool {
    let proc = mounts.iter().rfind(|mount| mount.mount_point == b"/proc");
    let modes = proc.into_iter().flat_map(|mount| &mount.super_options);
    modes
        .filter_map(|option| option.strip_prefix("hidepid="))
        .any(|mode| mode != "0" && mode != "off")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_processes_are_told_by_the_mount_option() {
        let hides = |options: &str| {
            let line = format!("22 1 0:21 / /proc rw,nosuid - proc proc rw{options}\n");
            hides_others(&mountinfo::parse(line.as_bytes()).unwrap())
        };
        assert!(hides(",hidepid=2") && hides(",gid=4,hidepid=invisible"));
        assert!(!hides("") && !hides(",hidepid=off") && !hides(",hidepid=0"));
        assert!(!hides_others(&[]));
    }
}
