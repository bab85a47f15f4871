// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether the system call probe can be used on this kernel.

use crate::prerequisites::{self, Fields, Prerequisites, fields_of};
use libbpf_rs::btf::types::Typedef;

const HOOKS: [&str; 6] = [
    "sys_enter",
    "sys_exit",
    "sched_switch",
    "sched_process_fork",
    "sched_process_exec",
    "sched_process_exit",
];

/// Fields without which it cannot work.
const NEEDED: [Fields; 8] = [
    ("task_struct", &["pid", "tgid", "files", "fs"]),
    ("files_struct", &["fdt"]),
    ("fdtable", &["max_fds", "fd"]),
    ("fs_struct", &["pwd"]),
    ("inode", &["i_sb", "i_ino"]),
    ("super_block", &["s_dev", "s_magic"]),
    ("vfsmount", &["mnt_root"]),
    ("mount", &["mnt_parent", "mnt_mountpoint", "mnt"]),
];

/// That the probe can be used on this kernel, and what it can measure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyscallPlan {
    /// It is known how much of the time off the CPU was spent in a run queue.
    pub run_delay: bool,
}

impl SyscallPlan {
    /// Inspects the running kernel and this process.
    ///
    /// # Errors
    /// Why the probe cannot be used, as a clause: the kernel or the privileges do not suffice.
    pub fn new() -> Result<Self, String> {
        let (mut ground, btf) = Prerequisites::look();
        let mut plan = Self::default();
        if let Some(btf) = btf {
            let there = |hook: &&str| {
                btf.type_by_name::<Typedef<'_>>(&format!("btf_trace_{hook}")).is_some()
            };
            let lacking = HOOKS.iter().filter(|hook| !there(hook));
            ground.missing = lacking.map(|hook| format!("the tracepoint `{hook}`")).collect();
            ground.missing.extend(prerequisites::missing(&NEEDED, |name| fields_of(&btf, name)));
            plan.run_delay = fields_of(&btf, "sched_info").contains("run_delay");
        }
        ground.obstacle().map_or(Ok(plan), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_has_what_it_takes() {
        let (ground, btf) = Prerequisites::look();
        if ground.privileged && btf.is_some() {
            assert_eq!(SyscallPlan::new(), Ok(SyscallPlan { run_delay: true }));
        }
    }
}
