// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From facts to which programs of the block probe are loaded, or why none can be. Pure.

use crate::io_facts::IoFacts;
use std::collections::BTreeMap;

/// Which arguments a hook has that was told the request queue first, up to 5.10.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestHook {
    /// The request only.
    Alone,
    /// The request queue, then the request.
    AfterQueue,
    /// There is no such hook.
    Absent,
}

/// Numbers of this kernel that are decoded here; `None` = it has no such thing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bits {
    pub(crate) sync: Option<u32>,
    pub(crate) meta: Option<u32>,
    pub(crate) idle: Option<u32>,
    pub(crate) swap: Option<u32>,
    pub(crate) zone_append: Option<u32>,
}

/// What to load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockPlan {
    /// `block_io_start` tells of each request when it is created; without it the first sight of a request is its
    /// insertion or issue.
    pub io_start: bool,
    /// `block_rq_insert`, used without `block_io_start`.
    pub insert: RequestHook,
    /// `block_rq_issue`.
    pub issue: RequestHook,
    /// `block_rq_merge`; without it requests that were merged are forgotten after two minutes.
    pub merge: RequestHook,
    /// The reason of writeback is known.
    pub reasons: bool,
    pub(crate) reason_names: BTreeMap<i64, String>,
    pub(crate) bits: Bits,
}

impl BlockPlan {
    /// Decides. `Err` = why the probe cannot be used, as a sentence part.
    ///
    /// # Errors
    /// If the kernel or the privileges do not suffice.
    pub fn new(facts: &IoFacts) -> Result<Self, String> {
        if let Some(obstacle) = facts.obstacle() {
            return Err(obstacle);
        }
        match facts.hooks.get("block_rq_complete") {
            Some(3) => {}
            Some(n) => {
                return Err(format!("`block_rq_complete` has {n} arguments: not a known kernel"));
            }
            None => return Err("this kernel's type information lacks `block_rq_complete`".into()),
        }
        if !facts.missing_fields.is_empty() {
            return Err(format!("this kernel lacks {}", facts.missing_fields.join(", ")));
        }
        let hook = |name| match facts.hooks.get(name) {
            Some(1) => RequestHook::Alone,
            Some(2) => RequestHook::AfterQueue,
            _ => RequestHook::Absent,
        };
        let issue = hook("block_rq_issue");
        if issue == RequestHook::Absent {
            return Err("this kernel's type information lacks `block_rq_issue`".into());
        }
        let bit = |name| facts.value("req_flag_bits", name).and_then(|bit| u32::try_from(bit).ok());
        let op = |name| facts.value("req_op", name).or_else(|| facts.value("req_opf", name));
        Ok(Self {
            io_start: hook("block_io_start") == RequestHook::Alone,
            insert: hook("block_rq_insert"),
            issue,
            merge: hook("block_rq_merge"),
            reasons: ["writeback_start", "writeback_written"]
                .iter()
                .all(|hook| facts.hooks.get(hook) == Some(&2)),
            reason_names: facts.reasons(),
            bits: Bits {
                sync: bit("__REQ_SYNC"),
                meta: bit("__REQ_META"),
                idle: bit("__REQ_IDLE"),
                swap: bit("__REQ_SWAP"),
                zone_append: op("REQ_OP_ZONE_APPEND").and_then(|op| u32::try_from(op).ok()),
            },
        })
    }

    /// Which programs are loaded, in the order in which the driver lists them.
    pub(super) fn loads(&self) -> [bool; 10] {
        let insert = |hook| !self.io_start && self.insert == hook;
        [
            self.io_start,
            insert(RequestHook::Alone),
            insert(RequestHook::AfterQueue),
            self.issue == RequestHook::Alone,
            self.issue == RequestHook::AfterQueue,
            self.merge == RequestHook::Alone,
            self.merge == RequestHook::AfterQueue,
            true,
            self.reasons,
            self.reasons,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(hooks: &[(&'static str, u32)]) -> IoFacts {
        IoFacts { privileged: true, hooks: hooks.iter().copied().collect(), ..IoFacts::default() }
    }

    #[test]
    fn a_current_kernel_tells_of_the_creation_of_requests() {
        let plan = BlockPlan::new(&facts(&[
            ("block_io_start", 1),
            ("block_rq_complete", 3),
            ("block_rq_issue", 1),
            ("block_rq_merge", 1),
            ("writeback_start", 2),
            ("writeback_written", 2),
        ]))
        .unwrap();
        assert!(plan.io_start && plan.reasons);
        assert_eq!((plan.issue, plan.insert), (RequestHook::Alone, RequestHook::Absent));
    }

    #[test]
    fn an_old_kernel_names_the_queue_first() {
        let plan = BlockPlan::new(&facts(&[
            ("block_rq_complete", 3),
            ("block_rq_insert", 2),
            ("block_rq_issue", 2),
        ]))
        .unwrap();
        assert!(!plan.io_start && !plan.reasons);
        assert_eq!((plan.issue, plan.insert), (RequestHook::AfterQueue, RequestHook::AfterQueue));
    }

    #[test]
    fn every_obstacle_is_named() {
        let good = facts(&[("block_rq_complete", 3), ("block_rq_issue", 1)]);
        let why = |facts: IoFacts| BlockPlan::new(&facts).unwrap_err();
        assert!(why(IoFacts { privileged: false, ..good.clone() }).contains("CAP_BPF"));
        assert!(why(IoFacts { btf_error: Some("gone".into()), ..good.clone() }).contains("gone"));
        assert!(why(facts(&[("block_rq_issue", 1)])).contains("block_rq_complete"));
        assert!(why(facts(&[("block_rq_complete", 4), ("block_rq_issue", 1)])).contains('4'));
        assert!(why(facts(&[("block_rq_complete", 3)])).contains("block_rq_issue"));
        let lacking = IoFacts { missing_fields: vec!["bio.bi_next".into()], ..good };
        assert!(why(lacking).contains("bio.bi_next"));
    }
}
