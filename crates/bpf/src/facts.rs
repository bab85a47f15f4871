// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which BPF features this kernel offers, and what the privileges of this process allow.
//!
//! Kernel features are found in the kernel's type information (BTF): a field or a function exists or it does not.

use crate::prerequisites::{self, Fields, Prerequisites, fields_of};
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{DataSec, Struct, Typedef, Var, VarSecInfo};
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
    /// Privileges, type information, and the fields without which the scheduler probe cannot work.
    pub ground: Prerequisites,
    /// Arguments of the `sched_switch` tracepoint: 4 with `prev_state`, 3 without; `None` = no such tracepoint.
    pub switch_args: Option<u32>,
    /// How this kernel accounts throttled time.
    pub throttle_clock: ThrottleClock,
    /// Threads are throttled one by one (from 6.18 on), and not their whole group at once.
    pub task_throttle: bool,
    /// Distance in bytes from a CPU's run queue to its pressure-stall account of the whole host, in which the kernel
    /// writes the time of most switches; `None` = not in the type information, or without `CONFIG_PSI`.
    pub pressure_minus_rq: Option<i64>,
    /// `iter/task` programs exist.
    pub task_iterator: bool,
    /// This process sees the pids that the kernel sees: it is in the initial pid namespace.
    pub initial_pid_namespace: bool,
}

/// Fields of which the scheduler probe needs every one.
const NEEDED: [Fields; 5] = [
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

/// Inode number of the initial pid namespace, `PROC_PID_INIT_INO` in `include/linux/proc_ns.h`.
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Inspects the running kernel and this process.
#[must_use]
pub fn facts() -> Facts {
    let (ground, btf) = Prerequisites::look();
    let mut facts = Facts {
        ground,
        switch_args: None,
        throttle_clock: ThrottleClock::None,
        task_throttle: false,
        pressure_minus_rq: None,
        task_iterator: false,
        initial_pid_namespace: std::fs::read_link("/proc/self/ns/pid")
            .is_ok_and(|link| link == Path::new(INITIAL_PID_NAMESPACE)),
    };
    if let Some(btf) = btf {
        read_btf(&btf, &mut facts);
    }
    facts
}

fn read_btf(btf: &Btf<'_>, facts: &mut Facts) {
    facts.switch_args = switch_args(btf);
    facts.ground.missing = prerequisites::missing(&NEEDED, |name| fields_of(btf, name));
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
    facts.pressure_minus_rq = pressure_minus_rq(btf);
    facts.task_iterator = btf.type_by_name::<Struct<'_>>("bpf_iter__task").is_some();
}

/// The section of per-CPU variables. Their distances are the same in the memory of each CPU.
const PER_CPU: &str = ".data..percpu";

fn pressure_minus_rq(btf: &Btf<'_>) -> Option<i64> {
    if !fields_of(btf, "psi_group_cpu").contains("state_start") {
        return None;
    }
    let section = btf.type_by_name::<DataSec<'_>>(PER_CPU)?;
    let offset = |name: &str| {
        let of_name = |info: &VarSecInfo| {
            let variable = btf.type_by_id::<Var<'_>>(info.ty);
            variable.is_some_and(|variable| variable.name().is_some_and(|it| it == name))
        };
        section.iter().find(of_name).map(|info| i64::from(info.offset))
    };
    Some(offset("system_group_pcpu")? - offset("runqueues")?)
}

/// Number of arguments of `typedef void (*btf_trace_sched_switch)(void *, bool,
/// struct task_struct *, ...)`, without the first.
fn switch_args(btf: &Btf<'_>) -> Option<u32> {
    prerequisites::arguments(*btf.type_by_name::<Typedef<'_>>("btf_trace_sched_switch")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_has_a_sched_switch_with_three_or_four_arguments() {
        let facts = facts();
        if facts.ground.btf_error.is_none() {
            assert!(matches!(facts.switch_args, Some(3 | 4)), "{facts:?}");
            let accounts_pressure = Path::new("/proc/pressure").exists();
            assert_eq!(facts.pressure_minus_rq.is_some(), accounts_pressure, "{facts:?}");
        }
    }
}
