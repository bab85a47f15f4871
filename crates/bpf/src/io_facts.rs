// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What this kernel offers to the block IO probes.
//!
//! Everything is found in one pass over the kernel's type information (BTF): whether a hook exists and how many
//! arguments it has, and the values of enumerations that differ between kernels.

mod modules;

use crate::facts::may_load_bpf;
use libbpf_rs::btf::types::{Enum, FuncProto, Struct};
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

/// Fields without which the block probe cannot work.
const NEEDED: [(&str, &[&str]); 9] = [
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

/// Fields without which transfers throttled by an IO limit cannot be identified.
const OF_LIMITS: [(&str, &[&str]); 7] = [
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
    /// Why the kernel's type information could not be read; `None` = it was read.
    pub btf_error: Option<String>,
    /// Effective capabilities allow BPF tracing programs.
    pub privileged: bool,
    /// Tracepoints that exist, and how many arguments each has.
    pub hooks: BTreeMap<&'static str, u32>,
    /// Programs can request a callback when a task returns to user space, and can disable preemption meanwhile.
    pub calls_on_return: bool,
    /// Kernel fields that the block probe needs and this kernel lacks, as `struct.field`.
    pub missing_fields: Vec<String>,
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

    /// Why no block IO probe can be used, if so.
    pub(crate) fn obstacle(&self) -> Option<String> {
        if !self.privileged {
            return Some("BPF programs need root, or CAP_BPF and CAP_PERFMON".into());
        }
        let error = self.btf_error.as_ref()?;
        Some(format!("no kernel type information (CONFIG_DEBUG_INFO_BTF): {error}"))
    }
}

/// Inspects the running kernel and this process.
#[must_use]
pub fn io_facts() -> IoFacts {
    let mut facts = IoFacts { privileged: may_load_bpf(), ..IoFacts::default() };
    match Btf::from_vmlinux() {
        Ok(btf) => read_btf(&btf, &mut facts),
        Err(error) => facts.btf_error = Some(format!("/sys/kernel/btf/vmlinux: {error}")),
    }
    if facts.btf_error.is_none() {
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
                let there = fields.entry(wanted).or_default();
                there.extend(
                    found
                        .iter()
                        .filter_map(|member| Some(member.name?.to_string_lossy().into_owned())),
                );
            }
            _ => {}
        }
    }
    facts.calls_on_return = asks && keeps;
    facts.missing_fields = missing(&fields, &NEEDED);
    facts.missing_for_limits = missing(&fields, &OF_LIMITS);
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

/// The wanted fields that do not exist, as `struct.field`.
fn missing(there: &BTreeMap<&str, BTreeSet<String>>, wanted: &[(&str, &[&str])]) -> Vec<String> {
    let fields = wanted.iter().flat_map(|(name, all)| all.iter().map(move |field| (name, field)));
    fields
        .filter(|(name, field)| !there.get(*name).is_some_and(|there| there.contains(**field)))
        .map(|(name, field)| format!("{name}.{field}"))
        .collect()
}

/// Number of arguments of `typedef void (*btf_trace_NAME)(void *, ...)`, without the first.
fn arguments(hook: BtfType<'_>) -> Option<u32> {
    let pointer: BtfType<'_> = hook.skip_mods_and_typedefs();
    let function = FuncProto::try_from(pointer.next_type()?).ok()?;
    u32::try_from(function.len()).ok()?.checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_tells_of_block_io() {
        let facts = io_facts();
        if facts.btf_error.is_none() {
            assert_eq!(facts.hooks.get("block_rq_complete"), Some(&3), "{facts:?}");
            assert!(facts.missing_fields.is_empty(), "{:?}", facts.missing_fields);
            assert!(facts.reasons().values().any(|reason| reason == "periodic"));
            assert!(facts.value("req_flag_bits", "__REQ_META").is_some());
        }
    }
}
