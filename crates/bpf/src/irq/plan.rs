// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decides from the facts which programs of the probe of interrupts are loaded, or why it cannot be used. Pure.

use crate::facts::{Facts, Fields};
use crate::sched::plan::preempt_minus_rq;

/// Fields without which the probe cannot work.
pub(crate) const NEEDED: &[Fields] = &[
    ("task_struct", &["flags", "group_leader", "start_boottime", "comm", "se"]),
    ("sched_entity", &["cfs_rq"]),
    ("cfs_rq", &["rq"]),
];

/// What to load: each pair of hooks is used where the kernel has both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IrqPlan {
    /// Soft interrupts are told.
    pub soft: bool,
    /// Interrupts of devices are told.
    pub devices: bool,
    /// Interrupts of the CPU's own timer are told apart. Where there are no hooks for them, the timer's are like a
    /// device's, or are not told.
    pub timer: bool,
    /// Calls of functions that other CPUs ask for are told.
    pub calls: bool,
    /// Distance in bytes from a CPU's run queue to its preempt count, which tells soft interrupts that a thread asked for
    /// from those that interrupt it; 0 = not known.
    pub preempt_minus_rq: i64,
}

impl IrqPlan {
    /// Decides what to load.
    ///
    /// # Errors
    /// Why the probe cannot be used, as a clause: the kernel or the privileges do not suffice.
    pub fn new(facts: &Facts) -> Result<Self, String> {
        if let Some(obstacle) = facts.obstacle(NEEDED, &[]) {
            return Err(obstacle);
        }
        let has = |name, count| facts.arguments(name) == Some(count);
        let plan = Self {
            soft: has("softirq_entry", 1) && has("softirq_exit", 1),
            devices: has("irq_handler_entry", 2) && has("irq_handler_exit", 3),
            timer: has("local_timer_entry", 1) && has("local_timer_exit", 1),
            calls: ["call_function_entry", "call_function_exit"].iter().all(|name| has(name, 1))
                && ["call_function_single_entry", "call_function_single_exit"]
                    .iter()
                    .all(|name| has(name, 1)),
            preempt_minus_rq: preempt_minus_rq(facts).unwrap_or(0),
        };
        if plan.programs().is_empty() {
            return Err("this kernel's type information lacks the tracepoints of interrupts".into());
        }
        Ok(plan)
    }

    /// What this kernel does not tell, as parts of a sentence.
    #[must_use]
    pub fn gaps(&self) -> Vec<&'static str> {
        let x86 = cfg!(target_arch = "x86_64");
        let all = [
            (!self.soft, "this kernel does not tell of soft interrupts"),
            (!self.devices, "this kernel does not tell of the interrupts of devices"),
            (!self.timer && x86, "this kernel does not tell of the interrupts of the CPUs' timers"),
            (!self.calls && x86, "this kernel does not tell of interrupts by other CPUs"),
            (
                self.soft && self.preempt_minus_rq == 0,
                "soft interrupts in a thread's own calls are not told from those that interrupt it: where this kernel \
                 counts preemption is not in its type information",
            ),
        ];
        all.into_iter().filter(|(lacks, _)| *lacks).map(|(_, words)| words).collect()
    }

    /// The programs that are loaded and attached: an end without a beginning counts for nothing.
    pub(super) fn programs(&self) -> Vec<&'static str> {
        let all = [
            (self.devices, "on_device_began"),
            (self.devices, "on_device_ended"),
            (self.timer, "on_timer_began"),
            (self.timer, "on_timer_ended"),
            (self.calls, "on_call_began"),
            (self.calls, "on_call_ended"),
            (self.calls, "on_single_began"),
            (self.calls, "on_single_ended"),
            (self.soft, "on_soft_began"),
            (self.soft, "on_soft_ended"),
        ];
        all.into_iter().filter(|(loaded, _)| *loaded).map(|(_, name)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::tests::kernel_with;

    const SOFT: [(&str, u32); 2] = [("softirq_entry", 1), ("softirq_exit", 1)];

    #[test]
    fn each_kind_is_told_where_both_ends_are() {
        let plan =
            IrqPlan::new(&kernel_with(&[SOFT[0], SOFT[1], ("irq_handler_entry", 2)])).unwrap();
        assert!(plan.soft && !plan.devices && !plan.timer, "one end is not enough");
        assert_eq!(plan.programs(), ["on_soft_began", "on_soft_ended"]);
        assert!(plan.gaps().iter().any(|gap| gap.contains("devices")));
        assert!(IrqPlan::new(&kernel_with(&[SOFT[0]])).unwrap_err().contains("tracepoints"));
        let strange = [SOFT[0], ("softirq_exit", 2)];
        assert!(IrqPlan::new(&kernel_with(&strange)).is_err());
    }

    #[test]
    fn without_the_preempt_count_it_is_said_what_is_not_known() {
        let mut facts = kernel_with(&SOFT);
        let own = |plan: &IrqPlan| plan.gaps().iter().any(|gap| gap.contains("own calls"));
        assert!(own(&IrqPlan::new(&facts).unwrap()));
        facts.per_cpu = [("runqueues", 8192), ("__preempt_count", 64)].into();
        let plan = IrqPlan::new(&facts).unwrap();
        assert_eq!(plan.preempt_minus_rq, 64 - 8192);
        assert!(!own(&plan));
    }
}
