// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What this kernel offers to the block IO probes.
//!
//! Everything is found in one pass over the kernel's type information (BTF): whether a hook exists and how many
//! arguments it has, and the values of enumerations that differ between kernels.

mod modules;

use crate::prerequisites::{self, Fields, Prerequisites, arguments, names_of};
use libbpf_rs::btf::types::{Enum, Struct};
use libbpf_rs::btf::{Btf, BtfKind, BtfType, TypeId};
use std::collections::{BTreeMap, BTreeSet};

/// Tracepoints that the block IO probes can use.
pub(crate) const HOOKS: [&str; 27] = [
    "block_bio_queue",
    "block_split",
    "block_getrq",
    "block_io_start",
    "block_rq_insert",
    "block_rq_issue",
    "block_rq_merge",
    "block_rq_complete",
    "writeback_queue",
    "writeback_start",
    "writeback_written",
    "writeback_single_inode_start",
    "writeback_single_inode",
    "writeback_dirty_inode_enqueue",
    "balance_dirty_pages",
    "jbd2_start_commit",
    "jbd2_run_stats",
    "jbd2_end_commit",
    "ext4_sync_file_enter",
    "ext4_sync_file_exit",
    "xfs_file_fsync",
    "xlog_iclog_sync",
    "xlog_iclog_sync_done",
    "btrfs_sync_file",
    "btrfs_sync_file_enter",
    "btrfs_sync_file_exit",
    "btrfs_transaction_commit",
];

/// Fields without which a probe cannot work.
const NEEDED: [Fields; 9] = [
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

/// Kernel functions by which a program requests a callback when a task returns to
/// user space; the name depends on the kernel.
const RETURN_CALLS: [&str; 2] =
    ["bpf_task_work_schedule_resume", "bpf_task_work_schedule_resume_impl"];

/// Fields without which transfers that a limit held back are not told apart.
const OF_LIMITS: [Fields; 7] = [
    ("bio", &["bi_blkg", "bi_opf", "bi_flags"]),
    ("blkcg_gq", &["blkcg"]),
    ("blkcg", &["css"]),
    ("kthread", &["data"]),
    ("worker", &["current_pwq"]),
    ("pool_workqueue", &["wq"]),
    ("workqueue_struct", &["name"]),
];

/// Enumerations whose values differ between kernels.
const ENUMS: [&str; 5] = ["wb_reason", "req_flag_bits", "req_op", "req_opf", "bpf_func_id"];
/// An anonymous enumeration, identified by the prefix of its values' names.
const NAMELESS: &str = "BIO_";

/// Facts that decide which programs of the block IO probes are loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IoFacts {
    /// Privileges, type information, and the fields without which the probes cannot work.
    pub ground: Prerequisites,
    /// Tracepoints that exist, and how many arguments each has.
    pub hooks: BTreeMap<&'static str, u32>,
    /// Programs can request a callback when a task returns to user space, and can disable preemption meanwhile.
    pub calls_on_return: bool,
    /// The same for identifying transfers that were throttled by an IO limit.
    pub missing_for_limits: Vec<String>,
    /// The decoded enumerations, by name: the names of their values, and the values.
    pub enums: BTreeMap<&'static str, BTreeMap<String, i64>>,
}

impl IoFacts {
    /// The value of `name` in a kernel enumeration; `None` = this kernel does not have it.
    #[must_use]
    pub fn value(&self, enumeration: &str, name: &str) -> Option<i64> {
        self.enums.get(enumeration)?.get(name).copied()
    }

    /// Flags of a bio: every bio that was throttled by an IO limit has at least one of them set.
    pub(crate) fn limit_flags(&self) -> u32 {
        let names = ["BIO_THROTTLED", "BIO_BPS_THROTTLED"];
        names.iter().filter_map(|name| self.value(NAMELESS, name)).fold(0, |flags, bit| {
            flags | u32::try_from(bit).ok().and_then(|bit| 1_u32.checked_shl(bit)).unwrap_or(0)
        })
    }

    /// The writeback reasons by number: their names in lower case, without `WB_REASON_`.
    #[must_use]
    pub fn reasons(&self) -> BTreeMap<i64, String> {
        let Some(values) = self.enums.get("wb_reason") else { return BTreeMap::new() };
        values
            .iter()
            .filter_map(|(name, value)| {
                let word = name.strip_prefix("WB_REASON_")?;
                (word != "MAX").then(|| (*value, word.to_ascii_lowercase()))
            })
            .collect()
    }
}

/// Inspects the running kernel and this process.
#[must_use]
pub fn io_facts() -> IoFacts {
    let (ground, btf) = Prerequisites::look();
    let mut facts = IoFacts { ground, ..IoFacts::default() };
    if let Some(btf) = btf {
        read_btf(&btf, &mut facts);
        for (hook, count) in modules::hooks() {
            facts.hooks.entry(hook).or_insert(count);
        }
    }
    facts
}

fn read_btf(btf: &Btf<'_>, facts: &mut IoFacts) {
    let (mut asks, mut keeps) = (false, false);
    let mut fields: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for id in 1..u32::try_from(btf.len()).unwrap_or(u32::MAX) {
        let Some(found) = btf.type_by_id::<BtfType<'_>>(TypeId::from(id)) else { continue };
        let name = found.name().and_then(|name| name.to_str()).unwrap_or_default();
        match found.kind() {
            BtfKind::Typedef => {
                let Some(hook) = name.strip_prefix("btf_trace_") else { continue };
                let Some(hook) = HOOKS.iter().find(|known| **known == hook) else { continue };
                if let Some(count) = arguments(found) {
                    facts.hooks.insert(hook, count);
                }
            }
            BtfKind::Func => {
                asks |= RETURN_CALLS.contains(&name);
                keeps |= name == "bpf_preempt_disable";
            }
            BtfKind::Enum if name.is_empty() || ENUMS.contains(&name) => {
                read_enum(found, name, facts);
            }
            BtfKind::Struct => {
                let mut known = NEEDED.iter().chain(&OF_LIMITS);
                let Some((wanted, _)) = known.find(|known| known.0 == name) else { continue };
                let Ok(found) = Struct::try_from(found) else { continue };
                fields.entry(wanted).or_default().extend(names_of(found));
            }
            _ => {}
        }
    }
    facts.calls_on_return = asks && keeps;
    let there = |name: &str| fields.get(name).cloned().unwrap_or_default();
    facts.ground.missing = prerequisites::missing(&NEEDED, there);
    facts.missing_for_limits = prerequisites::missing(&OF_LIMITS, there);
}

/// Stores the values of an enumeration, if it is one of those that are decoded.
fn read_enum(found: BtfType<'_>, name: &str, facts: &mut IoFacts) {
    let Ok(found) = Enum::try_from(found) else { return };
    let first = found.get(0).and_then(|first| first.name?.to_str()).unwrap_or_default();
    let nameless = (name.is_empty() && first.starts_with(NAMELESS)).then_some(&NAMELESS);
    let Some(wanted) = ENUMS.iter().find(|known| **known == name).or(nameless) else { return };
    let values = facts.enums.entry(wanted).or_default();
    for member in found.iter() {
        if let Some(name) = member.name {
            values.insert(name.to_string_lossy().into_owned(), member.value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_tells_of_block_io() {
        let facts = io_facts();
        if facts.ground.btf_error.is_none() {
            assert_eq!(facts.hooks.get("block_rq_complete"), Some(&3), "{facts:?}");
            assert!(facts.ground.missing.is_empty(), "{:?}", facts.ground.missing);
            assert!(facts.reasons().values().any(|reason| reason == "periodic"));
            assert!(facts.value("req_flag_bits", "__REQ_META").is_some());
        }
    }
}
