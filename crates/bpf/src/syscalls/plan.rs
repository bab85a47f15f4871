// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decides from the facts whether the system call probe can be used. Pure.

use crate::facts::{Facts, Fields, Hook};

/// Fields without which it cannot work.
pub(crate) const NEEDED: &[Fields] = &[
    ("task_struct", &["pid", "tgid", "files", "fs"]),
    ("files_struct", &["fdt"]),
    ("fdtable", &["max_fds", "fd"]),
    ("fs_struct", &["pwd"]),
    ("inode", &["i_sb", "i_ino"]),
    ("super_block", &["s_dev", "s_magic"]),
    ("vfsmount", &["mnt_root"]),
    ("mount", &["mnt_parent", "mnt_mountpoint", "mnt"]),
];
const NEEDED_HOOKS: [Hook; 6] = [
    ("sys_enter", &[]),
    ("sys_exit", &[]),
    ("sched_switch", &[]),
    ("sched_process_fork", &[]),
    ("sched_process_exec", &[]),
    ("sched_process_exit", &[]),
];

/// That the probe can be used on this kernel, and what it can measure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyscallPlan {
    /// It is known how much of the time off the CPU was spent in a run queue.
    pub run_delay: bool,
}

impl SyscallPlan {
    /// Decides what can be measured.
    ///
    /// # Errors
    /// Why the probe cannot be used, as a clause: the kernel or the privileges do not suffice.
    pub fn new(facts: &Facts) -> Result<Self, String> {
        match facts.obstacle(NEEDED, &NEEDED_HOOKS) {
            Some(obstacle) => Err(obstacle),
            None => Ok(Self { run_delay: facts.has_field("sched_info", "run_delay") }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::tests::kernel_with;

    #[test]
    fn all_hooks_are_needed_and_the_time_in_run_queues_is_not() {
        let hooks = NEEDED_HOOKS.map(|(hook, _)| (hook, 2));
        let mut facts = kernel_with(&hooks);
        assert_eq!(SyscallPlan::new(&facts), Ok(SyscallPlan { run_delay: true }));
        facts.fields.remove(&("sched_info", "run_delay"));
        assert_eq!(SyscallPlan::new(&facts), Ok(SyscallPlan { run_delay: false }));
        let why = SyscallPlan::new(&kernel_with(&hooks[1..])).unwrap_err();
        assert_eq!(why, "this kernel lacks the tracepoint `sys_enter`");
    }
}
