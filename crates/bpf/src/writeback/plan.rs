// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decides from the facts which programs of the writeback probe are loaded, or why it cannot be used. Pure.

use crate::block;
use crate::facts::Facts;
use std::collections::BTreeMap;

/// Kernel functions by which a program requests a callback when a task returns to user space (the name of the first
/// depends on the kernel), and disables preemption in it.
pub(crate) const RETURN_CALLS: [&str; 3] =
    ["bpf_task_work_schedule_resume", "bpf_task_work_schedule_resume_impl", "bpf_preempt_disable"];

/// What to load: each hook is used where the kernel has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WritebackPlan {
    /// Passes of the flusher are reported.
    pub passes: bool,
    /// Requests for work to the flusher are reported; needs `passes`.
    pub asked: bool,
    /// Writeback of inodes is reported.
    pub inodes: bool,
    /// Dirtying of clean inodes is reported.
    pub dirtied: bool,
    /// Commits of jbd2 (ext4, ocfs2) are reported.
    pub commits: bool,
    /// Their number of blocks is reported.
    pub commit_blocks: bool,
    /// Writes of the xfs log are reported.
    pub xfs_commits: bool,
    /// Transaction commits of btrfs are reported.
    pub btrfs_commits: bool,
    /// Syncs of files on ext4 are reported.
    pub syncs: bool,
    /// Beginnings of syncs of files on xfs are reported.
    pub xfs_syncs: bool,
    /// The same for btrfs.
    pub btrfs_syncs: bool,
    /// The kernel reports both the beginning and the end of syncs on btrfs.
    pub btrfs_both: bool,
    /// For `xfs_syncs` and `btrfs_syncs` the end is known as well, if the thread returns to user space.
    pub returns: bool,
    /// Number of arguments of `balance_dirty_pages`, which reports pauses; `None` = it does not exist, or has an
    /// unknown number of arguments.
    pub pause_args: Option<u32>,
    pub(crate) reason_names: BTreeMap<i64, String>,
}

impl WritebackPlan {
    /// Decides what to load.
    ///
    /// # Errors
    /// Why the probe cannot be used, as a clause: the kernel or the privileges do not suffice.
    pub fn new(facts: &Facts) -> Result<Self, String> {
        if let Some(obstacle) = facts.obstacle(block::NEEDED, &[]) {
            return Err(obstacle);
        }
        let has = |name, count| facts.arguments(name) == Some(count);
        let [asks, asks_too, keeps] = RETURN_CALLS.map(|name| facts.has_function(name));
        let commits = has("jbd2_start_commit", 2) && has("jbd2_end_commit", 2);
        let plan = Self {
            passes: has("writeback_start", 2) && has("writeback_written", 2),
            asked: has("writeback_queue", 2),
            inodes: has("writeback_single_inode_start", 3),
            dirtied: has("writeback_dirty_inode_enqueue", 1),
            commits,
            commit_blocks: commits && has("jbd2_run_stats", 3),
            xfs_commits: has("xlog_iclog_sync", 2) && has("xlog_iclog_sync_done", 2),
            btrfs_commits: has("btrfs_transaction_commit", 1),
            syncs: has("ext4_sync_file_enter", 2) && has("ext4_sync_file_exit", 2),
            xfs_syncs: has("xfs_file_fsync", 1),
            btrfs_syncs: has("btrfs_sync_file", 2),
            btrfs_both: has("btrfs_sync_file_enter", 2) && has("btrfs_sync_file_exit", 2),
            returns: (asks || asks_too) && keeps,
            pause_args: facts
                .arguments("balance_dirty_pages")
                .filter(|count| [8, 12].contains(count)),
            reason_names: facts.reasons(),
        };
        if plan.programs().is_empty() {
            return Err("this kernel's type information lacks the tracepoints of writeback".into());
        }
        Ok(plan)
    }

    /// The programs that are loaded and attached, in the order in which they are attached.
    pub(super) fn programs(&self) -> Vec<&'static str> {
        let all = [
            (self.passes, "on_start"),
            (self.passes, "on_written"),
            (self.passes && self.asked, "on_asked"),
            (self.inodes, "on_inode"),
            (self.dirtied, "on_dirtied"),
            (self.syncs, "on_sync_began"),
            (self.syncs, "on_sync_ended"),
            (self.commits, "on_commit_began"),
            (self.commit_blocks, "on_commit_counted"),
            (self.commits, "on_commit_ended"),
            (self.xfs_commits, "on_buffer_began"),
            (self.xfs_commits, "on_buffer_ended"),
            (self.btrfs_commits, "on_transaction_ended"),
            (self.xfs_syncs && !self.returns, "on_xfs_sync"),
            (self.xfs_syncs && self.returns, "on_xfs_sync_both"),
            (self.btrfs_syncs && !self.returns, "on_btrfs_sync"),
            (self.btrfs_syncs && self.returns, "on_btrfs_sync_both"),
            (self.btrfs_both, "on_btrfs_sync_began"),
            (self.btrfs_both, "on_btrfs_sync_ended"),
            (self.pause_args == Some(8), "on_paused_8"),
            (self.pause_args == Some(12), "on_paused_12"),
        ];
        all.into_iter().filter(|(loaded, _)| *loaded).map(|(_, name)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::tests::kernel_with;

    #[test]
    fn each_hook_is_used_where_it_is_there() {
        let plan = WritebackPlan::new(&kernel_with(&[
            ("writeback_start", 2),
            ("writeback_written", 2),
            ("balance_dirty_pages", 12),
            ("jbd2_end_commit", 2),
            ("ext4_sync_file_enter", 2),
        ]))
        .unwrap();
        assert!(plan.passes && !plan.inodes && !plan.dirtied);
        assert!(!plan.commits && !plan.syncs, "one end is not enough");
        assert_eq!(plan.pause_args, Some(12));
    }

    #[test]
    fn an_unknown_shape_is_not_used() {
        let plan = WritebackPlan::new(&kernel_with(&[
            ("writeback_single_inode_start", 3),
            ("balance_dirty_pages", 9),
        ]))
        .unwrap();
        assert_eq!((plan.inodes, plan.pause_args), (true, None));
    }

    #[test]
    fn a_callback_takes_one_way_to_request_it_and_the_way_to_keep_the_cpu() {
        let returns = |functions: &[&'static str]| {
            let functions = functions.iter().copied().collect();
            let facts = Facts { functions, ..kernel_with(&[("xfs_file_fsync", 1)]) };
            WritebackPlan::new(&facts).unwrap().returns
        };
        assert!(returns(&["bpf_task_work_schedule_resume", "bpf_preempt_disable"]));
        assert!(returns(&["bpf_task_work_schedule_resume_impl", "bpf_preempt_disable"]));
        assert!(!returns(&["bpf_task_work_schedule_resume"]));
        assert!(!returns(&["bpf_preempt_disable"]));
    }

    #[test]
    fn without_any_hook_it_cannot_be_used() {
        assert!(WritebackPlan::new(&kernel_with(&[])).unwrap_err().contains("tracepoints"));
    }
}
