// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decides from the facts which programs of the block probe are loaded, or why it cannot be used. Pure.

use crate::facts::{BIO_FLAGS, Facts, Fields, Hook};
use std::collections::BTreeMap;

/// Fields without which the probes of block IO and writeback cannot work.
pub(crate) const NEEDED: &[Fields] = &[
    ("request", &["q", "cmd_flags", "__data_len", "__sector", "bio"]),
    ("bio", &["bi_next", "bi_iter", "bi_end_io", "bi_private", "bi_io_vec"]),
    ("gendisk", &["major", "first_minor"]),
    ("inode", &["i_sb", "i_mapping", "i_ino", "i_generation"]),
    ("super_block", &["s_dev", "s_magic", "s_bdev"]),
    ("address_space", &["host"]),
    ("dentry", &["d_parent"]),
    ("file", &["f_inode", "f_mapping"]),
    ("task_struct", &["pid", "tgid", "flags", "group_leader", "start_boottime"]),
];
const NEEDED_HOOKS: [Hook; 2] = [("block_rq_complete", &[3]), ("block_rq_issue", &[1, 2])];

/// Fields without which transfers that a limit held back are not told apart.
pub(crate) const OF_LIMITS: &[Fields] = &[
    ("bio", &["bi_blkg", "bi_opf", "bi_flags"]),
    ("blkcg_gq", &["blkcg"]),
    ("blkcg", &["css"]),
    ("kthread", &["data"]),
    ("worker", &["current_pwq"]),
    ("pool_workqueue", &["wq"]),
    ("workqueue_struct", &["name"]),
];

/// Position of the request or bio among a hook's arguments: up to 5.10 the request queue came first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestHook {
    /// First argument.
    Alone,
    /// Second argument, after the request queue.
    AfterQueue,
    /// This kernel has no such hook, or one with an unknown number of arguments.
    Absent,
}

/// Values of this kernel by which `cmd_flags` is decoded: bit numbers of request flags, and the number of the zone
/// append operation; `None` = this kernel has no such flag or operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestFlags {
    pub(crate) sync: Option<u32>,
    pub(crate) meta: Option<u32>,
    pub(crate) idle: Option<u32>,
    pub(crate) swap: Option<u32>,
    pub(crate) zone_append: Option<u32>,
}

/// What to load and attach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockPlan {
    /// Use `block_io_start`, which reports each request at its creation. Without it, a request is first seen at its
    /// insertion or issue.
    pub io_start: bool,
    /// `block_rq_insert`, used without `block_io_start`.
    pub insert: RequestHook,
    /// `block_rq_issue`.
    pub issue: RequestHook,
    /// `block_rq_merge`; without it, requests that were merged into others are forgotten after two minutes.
    pub merge: RequestHook,
    /// `block_bio_queue`, by which the time is known that a bio waited for its request.
    pub queue: RequestHook,
    /// `block_split`; without it, that time is not known for the first parts of split bios.
    pub split: RequestHook,
    /// `block_getrq`, used without `block_io_start`.
    pub create: RequestHook,
    /// Flags of bios by which transfers throttled by a cgroup's IO limit are recognised;
    /// `None` = they cannot be identified.
    pub limits: Option<u32>,
    /// The writeback reason of a request is known.
    pub reasons: bool,
    pub(crate) reason_names: BTreeMap<i64, String>,
    pub(crate) bits: RequestFlags,
}

impl BlockPlan {
    /// Decides what to load.
    ///
    /// # Errors
    /// Why the probe cannot be used, as a clause: the kernel or the privileges do not suffice.
    pub fn new(facts: &Facts) -> Result<Self, String> {
        if let Some(obstacle) = facts.obstacle(NEEDED, &NEEDED_HOOKS) {
            return Err(obstacle);
        }
        let is = |name, alone, after| match facts.arguments(name) {
            Some(count) if count == alone => RequestHook::Alone,
            Some(count) if count == after => RequestHook::AfterQueue,
            _ => RequestHook::Absent,
        };
        let hook = |name| is(name, 1, 2);
        let queue = hook("block_bio_queue");
        let bit = |name| facts.value("req_flag_bits", name).and_then(|bit| u32::try_from(bit).ok());
        let op = |name| facts.value("req_op", name).or_else(|| facts.value("req_opf", name));
        Ok(Self {
            io_start: hook("block_io_start") == RequestHook::Alone,
            insert: hook("block_rq_insert"),
            issue: hook("block_rq_issue"),
            merge: hook("block_rq_merge"),
            queue,
            // The sector of the split is the last argument.
            split: is("block_split", 2, 3),
            // Kernels that pass the request queue pass the direction, too.
            create: is("block_getrq", 1, 3),
            limits: Some(limit_flags(facts)).filter(|&flags| {
                flags != 0 && queue != RequestHook::Absent && facts.missing(OF_LIMITS).is_empty()
            }),
            reasons: ["writeback_start", "writeback_written"]
                .iter()
                .all(|hook| facts.arguments(hook) == Some(2)),
            reason_names: facts.reasons(),
            bits: RequestFlags {
                sync: bit("__REQ_SYNC"),
                meta: bit("__REQ_META"),
                idle: bit("__REQ_IDLE"),
                swap: bit("__REQ_SWAP"),
                zone_append: op("REQ_OP_ZONE_APPEND").and_then(|op| u32::try_from(op).ok()),
            },
        })
    }

    /// The programs that are loaded and attached, in the order in which they are attached.
    pub(super) fn programs(&self) -> Vec<&'static str> {
        let queued = self.queue != RequestHook::Absent;
        // Of the two shapes of a hook, the one that this kernel has.
        let shape = |hook, alone, after_queue| match hook {
            RequestHook::Alone => Some(alone),
            RequestHook::AfterQueue => Some(after_queue),
            RequestHook::Absent => None,
        };
        let where_it =
            |condition: bool, program: Option<&'static str>| program.filter(|_| condition);
        [
            shape(self.queue, "on_queue_1", "on_queue_2"),
            where_it(queued, shape(self.split, "on_split_1", "on_split_2")),
            where_it(queued && !self.io_start, shape(self.create, "on_create_1", "on_create_2")),
            where_it(self.io_start, Some("on_start")),
            where_it(!self.io_start, shape(self.insert, "on_insert_1", "on_insert_2")),
            shape(self.issue, "on_issue_1", "on_issue_2"),
            shape(self.merge, "on_merge_1", "on_merge_2"),
            Some("on_complete"),
            where_it(self.reasons, Some("on_writeback_start")),
            where_it(self.reasons, Some("on_writeback_written")),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Flags of a bio: every bio that was throttled by an IO limit has at least one of them set.
fn limit_flags(facts: &Facts) -> u32 {
    let bits = ["BIO_THROTTLED", "BIO_BPS_THROTTLED"].map(|name| facts.value(BIO_FLAGS, name));
    bits.into_iter().flatten().fold(0, |flags, bit| {
        flags | u32::try_from(bit).ok().and_then(|bit| 1_u32.checked_shl(bit)).unwrap_or(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::tests::kernel_with;

    #[test]
    fn a_current_kernel_tells_of_the_creation_of_requests() {
        let all = kernel_with(&[
            ("block_bio_queue", 1),
            ("block_split", 2),
            ("block_getrq", 1),
            ("block_io_start", 1),
            ("block_rq_complete", 3),
            ("block_rq_issue", 1),
            ("block_rq_merge", 1),
            ("writeback_start", 2),
            ("writeback_written", 2),
        ]);
        let plan = BlockPlan::new(&all).unwrap();
        assert!(plan.io_start && plan.reasons);
        assert_eq!((plan.issue, plan.insert), (RequestHook::Alone, RequestHook::Absent));
        assert_eq!((plan.queue, plan.split), (RequestHook::Alone, RequestHook::Alone));
        let programs = plan.programs();
        assert_eq!(programs[..3], ["on_queue_1", "on_split_1", "on_start"], "no `block_getrq`");
        assert_eq!(plan.limits, None, "no such flag");
        let flags = [("BIO_CLONED".into(), 1), ("BIO_BPS_THROTTLED".into(), 7)];
        let mut all = Facts { enums: [(BIO_FLAGS, flags.into())].into(), ..all };
        assert_eq!(BlockPlan::new(&all).unwrap().limits, Some(1 << 7));
        all.fields.remove(&("bio", "bi_blkg"));
        assert_eq!(BlockPlan::new(&all).unwrap().limits, None);
    }

    #[test]
    fn an_old_kernel_names_the_queue_first() {
        let plan = BlockPlan::new(&kernel_with(&[
            ("block_bio_queue", 2),
            ("block_split", 3),
            ("block_getrq", 3),
            ("block_rq_complete", 3),
            ("block_rq_insert", 2),
            ("block_rq_issue", 2),
        ]))
        .unwrap();
        assert!(!plan.io_start && !plan.reasons);
        assert_eq!((plan.issue, plan.insert), (RequestHook::AfterQueue, RequestHook::AfterQueue));
        assert_eq!(plan.programs()[..3], ["on_queue_2", "on_split_2", "on_create_2"]);
        assert_eq!(plan.programs()[3..5], ["on_insert_2", "on_issue_2"]);
    }

    #[test]
    fn what_comes_before_a_request_is_looked_at_whole_or_not_at_all() {
        let plan = BlockPlan::new(&kernel_with(&[
            ("block_split", 2),
            ("block_getrq", 1),
            ("block_rq_complete", 3),
            ("block_rq_issue", 1),
        ]))
        .unwrap();
        assert_eq!(plan.queue, RequestHook::Absent);
        assert_eq!((plan.limits, plan.programs()[0]), (None, "on_issue_1"));
    }

    #[test]
    fn it_takes_the_issue_and_the_completion() {
        let why = |hooks: &[_]| BlockPlan::new(&kernel_with(hooks)).unwrap_err();
        assert!(why(&[("block_rq_issue", 1)]).contains("block_rq_complete"));
        assert!(why(&[("block_rq_complete", 4), ("block_rq_issue", 1)]).contains('4'));
        assert!(why(&[("block_rq_complete", 3)]).contains("block_rq_issue"));
    }
}
