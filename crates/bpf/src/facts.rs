// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which BPF features this kernel offers, and what the privileges of this process allow.
//!
//! Kernel features are found in the kernel's type information (BTF): a field or a function exists or it does not.

use libbpf_rs::btf::types::{FuncProto, Struct, Typedef};
use libbpf_rs::btf::{Btf, BtfType};
use std::collections::BTreeSet;
use std::path::Path;

/// Which field records how long a run queue has been throttled; the kernel's accounting changed twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThrottleClock {
    /// `cfs_rq->throttled_clock_self` (seen from 6.6 on).
    Own,
    /// `cfs_rq->throttled_clock_pelt` (5.18 to 6.5).
    Pelt,
    /// `cfs_rq->throttled_clock_task` (before).
    Task,
    /// This kernel has no CFS bandwidth control, so nothing is ever throttled.
    None,
}

impl ThrottleClock {
    /// The field of `cfs_rq` that holds this clock.
    #[must_use]
    pub fn field(self) -> Option<&'static str> {
        match self {
            Self::Own => Some("throttled_clock_self"),
            Self::Pelt => Some("throttled_clock_pelt"),
            Self::Task => Some("throttled_clock_task"),
            Self::None => None,
        }
    }
}

/// Facts that decide which programs can be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Why the kernel's type information could not be read; `None` = it was read.
    pub btf_error: Option<String>,
    /// Number of arguments of the `sched_switch` tracepoint: 4 with `prev_state`, 3
    /// without it; `None` = it does not exist.
    pub switch_args: Option<u32>,
    /// Kernel fields that the scheduler probe needs and this kernel lacks, as `struct.field`.
    pub missing_fields: Vec<&'static str>,
    /// How this kernel accounts throttled time.
    pub throttle_clock: ThrottleClock,
    /// Threads are throttled one by one (from 6.18 on), and not their whole group at once.
    pub task_throttle: bool,
    /// `iter/task` programs exist.
    pub task_iterator: bool,
    /// Effective capabilities allow BPF tracing programs: `CAP_SYS_ADMIN`, or `CAP_BPF` and `CAP_PERFMON`.
    pub privileged: bool,
    /// This process is in the initial pid namespace: it sees the same pids as the kernel.
    pub initial_pid_namespace: bool,
}

/// Kernel fields that the scheduler probe needs, all of them.
const NEEDED: [(&str, &[&str]); 5] = [
    (
        "task_struct",
        &[
            "pid",
            "tgid",
            "on_cpu",
            "comm",
            "start_boottime",
            "group_leader",
            "real_parent",
            "se",
            "sched_info",
            "cgroups",
            "sched_task_group",
            "in_iowait",
        ],
    ),
    ("sched_entity", &["cfs_rq"]),
    ("cfs_rq", &["rq"]),
    ("rq", &["clock", "cpu"]),
    ("sched_info", &["run_delay", "last_arrival", "last_queued", "pcount"]),
];

/// Linux capability numbers, `include/uapi/linux/capability.h`.
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// Inode number of the initial pid namespace, `PROC_PID_INIT_INO` in `include/linux/proc_ns.h`.
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Inspects the running kernel and this process.
#[must_use]
pub fn facts() -> Facts {
    let mut facts = Facts {
        btf_error: None,
        switch_args: None,
        missing_fields: Vec::new(),
        throttle_clock: ThrottleClock::None,
        task_throttle: false,
        task_iterator: false,
        privileged: may_load_bpf(),
        initial_pid_namespace: std::fs::read_link("/proc/self/ns/pid")
            .is_ok_and(|link| link == Path::new(INITIAL_PID_NAMESPACE)),
    };
    match Btf::from_vmlinux() {
        Ok(btf) => read_btf(&btf, &mut facts),
        Err(error) => facts.btf_error = Some(format!("/sys/kernel/btf/vmlinux: {error}")),
    }
    facts
}

fn read_btf(btf: &Btf<'_>, facts: &mut Facts) {
    facts.switch_args = switch_args(btf);
    for (name, fields) in NEEDED {
        let there = fields_of(btf, name);
        for &field in fields {
            if !there.contains(field) {
                facts.missing_fields.push(qualified(name, field));
            }
        }
    }
    let queue = fields_of(btf, "cfs_rq");
    facts.throttle_clock = if !queue.contains("throttle_count") {
        ThrottleClock::None
    } else if queue.contains("throttled_clock_self_time") {
        ThrottleClock::Own
    } else if queue.contains("throttled_clock_pelt_time") {
        ThrottleClock::Pelt
    } else if queue.contains("throttled_clock_task_time") {
        ThrottleClock::Task
    } else {
        ThrottleClock::None
    };
    facts.task_throttle = fields_of(btf, "task_struct").contains("throttled");
    facts.task_iterator = btf.type_by_name::<Struct<'_>>("bpf_iter__task").is_some();
}

fn qualified(name: &'static str, field: &'static str) -> &'static str {
    // Leaks little: the names are a handful of constants, and facts are read once or twice in the life of a process.
    Box::leak(format!("{name}.{field}").into_boxed_str())
}

/// Number of arguments of `typedef void (*btf_trace_sched_switch)(void *, bool,
/// struct task_struct *, ...)`, without the first.
fn switch_args(btf: &Btf<'_>) -> Option<u32> {
    let name = btf.type_by_name::<Typedef<'_>>("btf_trace_sched_switch")?;
    let pointer: BtfType<'_> = name.skip_mods_and_typedefs();
    let function = FuncProto::try_from(pointer.next_type()?).ok()?;
    u32::try_from(function.len()).ok()?.checked_sub(1)
}

pub(crate) fn fields_of(btf: &Btf<'_>, name: &str) -> BTreeSet<String> {
    let Some(found) = btf.type_by_name::<Struct<'_>>(name) else { return BTreeSet::new() };
    let mut fields = BTreeSet::new();
    for member in found.iter() {
        if let Some(name) = member.name {
            fields.insert(name.to_string_lossy().into_owned());
        }
    }
    fields
}

pub(crate) fn may_load_bpf() -> bool {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return false };
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    let has = |capability: u32| effective >> capability & 1 == 1;
    has(CAP_SYS_ADMIN) || (has(CAP_BPF) && has(CAP_PERFMON))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_has_a_sched_switch_with_three_or_four_arguments() {
        let facts = facts();
        if facts.btf_error.is_none() {
            assert!(matches!(facts.switch_args, Some(3 | 4)), "{facts:?}");
        }
    }
}
