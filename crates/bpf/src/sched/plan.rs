// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decides from the facts which programs of the scheduler probe are loaded and how, or why it cannot be used. Pure.

use crate::facts::{Facts, ThrottleClock};

/// Which form of the `sched_switch` tracepoint this kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchHook {
    /// Four arguments, with `prev_state`.
    Four,
    /// Three arguments, without `prev_state`: the state is read from the task.
    Three,
}

/// Properties of the host that decide the plan, besides the kernel's facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Threads on the host now.
    pub threads: usize,
    /// The cpu controller is in the cgroup v2 hierarchy (or in none): take cgroup ids from v2.
    pub cgroup_v2: bool,
    /// Some cgroup has a CPU quota.
    pub quota_in_use: bool,
}

/// What to load and attach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Form of `sched_switch` to attach to.
    pub switch_hook: SwitchHook,
    /// Attach to `sched_wakeup` and `sched_wakeup_new` as well: threads can wake up in a
    /// throttled group, and some group has a quota.
    pub wakeup_hook: bool,
    /// Iterate over all threads once before attaching.
    pub task_iterator: bool,
    /// This process is in the initial pid namespace: its system calls take the kernel's thread ids.
    pub initial_pid_namespace: bool,
    /// Take cgroup ids from the v2 hierarchy.
    pub cgroup_v2: bool,
    /// Distance in bytes from a CPU's run queue to its pressure-stall account; 0 = not known.
    pub pressure_minus_rq: i64,
    /// Slots of the thread table, a power of two.
    pub slots: u32,
}

/// Minimum and maximum number of slots. At 976 bytes each they take 16 MB to 256 MB of kernel memory.
const SLOTS: (usize, usize) = (1 << 14, 1 << 18);

/// Decides what to load.
///
/// # Errors
/// Why the scheduler probe cannot be used, as a clause: the kernel or the privileges do not suffice.
pub fn plan(facts: &Facts, needs: Needs) -> Result<Plan, String> {
    if let Some(obstacle) = facts.ground.obstacle() {
        return Err(obstacle);
    }
    let switch_hook = match facts.switch_args {
        Some(4) => SwitchHook::Four,
        Some(3) => SwitchHook::Three,
        Some(n) => return Err(format!("`sched_switch` has {n} arguments: not a known kernel")),
        None => return Err("this kernel's type information lacks `sched_switch`".into()),
    };
    Ok(Plan {
        switch_hook,
        wakeup_hook: needs.quota_in_use
            && !facts.task_throttle
            && facts.throttle_clock != ThrottleClock::None,
        task_iterator: facts.task_iterator,
        initial_pid_namespace: facts.initial_pid_namespace,
        cgroup_v2: needs.cgroup_v2,
        pressure_minus_rq: facts.pressure_minus_rq.unwrap_or(0),
        // With twice as many slots as threads, 1 % of the threads find all four candidate slots taken.
        slots: (needs.threads * 2).next_power_of_two().clamp(SLOTS.0, SLOTS.1) as u32,
    })
}

/// The programs of the scheduler probe that are used, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProgramNames {
    /// Looks at all threads once.
    pub(crate) task_iterator: Option<&'static str>,
    /// Looks at the threads that wait, whenever it is read.
    pub(crate) waiting_iterator: Option<&'static str>,
    /// Attached for good, in this order: the one at the switches comes last, and what it must know is there before.
    pub(crate) hooks: Vec<&'static str>,
    /// Attached while it is needed: it looks for wake-ups of which nobody tells.
    pub(crate) hidden_wakeup: &'static str,
}

impl ProgramNames {
    pub(crate) fn of(plan: &Plan) -> Self {
        let (waiting, first_wakeup, switch) = match plan.switch_hook {
            SwitchHook::Four => ("on_waiting_4", "on_first_wakeup_4", "on_switch_4"),
            SwitchHook::Three => ("on_waiting_3", "on_first_wakeup_3", "on_switch_3"),
        };
        let wakeups: &[&str] = if plan.wakeup_hook { &["on_wakeup", first_wakeup] } else { &[] };
        Self {
            task_iterator: plan.task_iterator.then_some("on_task"),
            waiting_iterator: plan.task_iterator.then_some(waiting),
            hooks: [wakeups, &["on_move", switch]].concat(),
            hidden_wakeup: "on_hidden_wakeup",
        }
    }

    /// The one at the switches.
    pub(crate) fn switch(&self) -> &'static str {
        self.hooks.last().copied().unwrap_or_default()
    }

    /// Those that are loaded.
    pub(crate) fn all(&self) -> Vec<&'static str> {
        let iterators = self.task_iterator.into_iter().chain(self.waiting_iterator);
        iterators.chain(self.hooks.iter().copied()).chain([self.hidden_wakeup]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prerequisites;

    fn facts() -> Facts {
        Facts {
            ground: Prerequisites { privileged: true, ..Prerequisites::default() },
            switch_args: Some(4),
            throttle_clock: ThrottleClock::Own,
            task_throttle: true,
            pressure_minus_rq: Some(-80192),
            task_iterator: true,
            initial_pid_namespace: true,
        }
    }

    const NEEDS: Needs = Needs { threads: 300, cgroup_v2: false, quota_in_use: true };

    #[test]
    fn a_current_kernel_needs_one_hook() {
        let plan = plan(&facts(), NEEDS).unwrap();
        assert_eq!(plan.switch_hook, SwitchHook::Four);
        assert!(!plan.wakeup_hook);
        assert_eq!(plan.slots, 16384);
        let names = ProgramNames::of(&plan);
        assert_eq!(names.hooks, ["on_move", "on_switch_4"]);
        assert_eq!((names.switch(), names.waiting_iterator), ("on_switch_4", Some("on_waiting_4")));
    }

    #[test]
    fn group_throttling_needs_the_wakeup_hook_only_where_there_is_a_quota() {
        let old = Facts {
            switch_args: Some(3),
            task_throttle: false,
            throttle_clock: ThrottleClock::Task,
            ..facts()
        };
        let with = plan(&old, NEEDS).unwrap();
        assert_eq!((with.switch_hook, with.wakeup_hook), (SwitchHook::Three, true));
        let hooks = ["on_wakeup", "on_first_wakeup_3", "on_move", "on_switch_3"];
        assert_eq!(ProgramNames::of(&with).hooks, hooks);
        assert!(!plan(&old, Needs { quota_in_use: false, ..NEEDS }).unwrap().wakeup_hook);
        let without = Facts { throttle_clock: ThrottleClock::None, ..old };
        assert!(!plan(&without, NEEDS).unwrap().wakeup_hook);
    }

    #[test]
    fn the_table_follows_the_number_of_threads() {
        let slots = |threads| plan(&facts(), Needs { threads, ..NEEDS }).unwrap().slots;
        assert_eq!(slots(10_000), 32768);
        assert_eq!(slots(1_000_000), 1 << 18);
    }

    #[test]
    fn every_obstacle_is_named() {
        let why = |facts: Facts| plan(&facts, NEEDS).unwrap_err();
        assert!(why(Facts { ground: Prerequisites::default(), ..facts() }).contains("CAP_BPF"));
        assert!(why(Facts { switch_args: Some(7), ..facts() }).contains('7'));
        assert!(why(Facts { switch_args: None, ..facts() }).contains("sched_switch"));
    }
}
