// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decides from the facts which programs of the scheduler probe are loaded and how, or why it cannot be used. Pure.

use crate::facts::{Facts, Fields, Hook};

/// Fields of which the scheduler probe needs every one.
pub const NEEDED: &[Fields] = &[
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
/// Fields that the sleeps of threads need, besides.
pub const OF_SLEEPS: &[Fields] = &[
    ("task_struct", &["flags", "stack", "files"]),
    ("files_struct", &["fdt"]),
    ("fdtable", &["max_fds", "fd"]),
    ("file", &["private_data", "f_inode"]),
    ("inode", &["i_sb", "i_mode", "i_ino", "i_rdev"]),
    ("super_block", &["s_dev", "s_magic"]),
    ("socket", &["sk"]),
    (
        "sock",
        &[
            "__sk_common",
            "sk_lock",
            "sk_type",
            "sk_protocol",
            "sk_userlocks",
            "sk_forward_alloc",
            "sk_peer_pid",
            "sk_receive_queue",
            "sk_ack_backlog",
        ],
    ),
    (
        "tcp_sock",
        &["write_seq", "copied_seq", "lsndtime", "rcv_nxt", "bytes_received", "data_segs_out"],
    ),
    ("inet_connection_sock", &["icsk_bind_hash"]),
    ("inet_bind_bucket", &["fastreuse"]),
    ("unix_sock", &["addr"]),
    ("pid", &["numbers"]),
    ("eventpoll", &["rdllist"]),
    ("epitem", &["rdllink", "ffd"]),
    ("poll_wqueues", &["polling_task", "inline_index", "inline_entries"]),
    ("poll_table_entry", &["filp", "wait"]),
    ("wait_queue_entry", &["private", "entry"]),
];
const HOOKS_OF_SLEEPS: [Hook; 2] = [("sched_waking", &[1]), ("sys_enter", &[2])];

const NEEDED_HOOKS: [Hook; 1] = [("sched_switch", &[3, 4])];

/// Fields by which kernels differ.
pub(crate) const DIFFERING: &[Fields] = &[
    (
        "cfs_rq",
        &[
            "throttle_count",
            "throttled_clock_self_time",
            "throttled_clock_pelt_time",
            "throttled_clock_task_time",
        ],
    ),
    ("task_struct", &["throttled", "blocker"]),
    ("psi_group_cpu", &["state_start"]),
];

/// The function that exists where `iter/task` programs can be attached.
pub(crate) const TASK_ITERATOR: &str = "bpf_iter_task";

/// Per-CPU variables: the run queue, the pressure-stall account of the whole host, and what holds the preempt count.
pub(crate) const VARIABLES: [&str; 4] =
    ["runqueues", "system_group_pcpu", "__preempt_count", "pcpu_hot"];
/// Where the preempt count is in `struct pcpu_hot` (6.2 to 6.14): behind the pointer to the current task.
const IN_PCPU_HOT: i64 = 8;

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
    /// How this kernel accounts throttled time.
    #[must_use]
    pub fn of(facts: &Facts) -> Self {
        let has = |field| facts.has_field("cfs_rq", field);
        match () {
            () if !has("throttle_count") => Self::None,
            () if has("throttled_clock_self_time") => Self::Own,
            () if has("throttled_clock_pelt_time") => Self::Pelt,
            () if has("throttled_clock_task_time") => Self::Task,
            () => Self::None,
        }
    }

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

/// Whether threads are throttled one by one (from 6.18 on), and not their whole group at once.
#[must_use]
pub fn throttles_threads(facts: &Facts) -> bool {
    facts.has_field("task_struct", "throttled")
}

/// Whether the kernel says for which of its locks a thread sleeps (from 6.16 on; `CONFIG_DETECT_HUNG_TASK_BLOCKER`).
#[must_use]
pub fn names_locks(facts: &Facts) -> bool {
    facts.has_field("task_struct", "blocker")
}

/// Whether `iter/task` programs exist.
#[must_use]
pub fn has_task_iterator(facts: &Facts) -> bool {
    facts.has_function(TASK_ITERATOR)
}

/// Distance in bytes from a CPU's run queue to its pressure-stall account of the whole host, in which the kernel writes
/// the time of most switches; `None` = not in the type information, or without `CONFIG_PSI`.
pub(crate) fn pressure_minus_rq(facts: &Facts) -> Option<i64> {
    let [queue, account] = ["runqueues", "system_group_pcpu"].map(|name| facts.per_cpu.get(name));
    facts.has_field("psi_group_cpu", "state_start").then_some(account? - queue?)
}

/// Distance in bytes from a CPU's run queue to its preempt count; `None` = not in the type information.
pub(crate) fn preempt_minus_rq(facts: &Facts) -> Option<i64> {
    let at = |name| facts.per_cpu.get(name).copied();
    let count = at("__preempt_count").or_else(|| Some(at("pcpu_hot")? + IN_PCPU_HOT));
    Some(count? - at("runqueues")?)
}

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
    /// The sleeps of some threads are to be recorded.
    pub sleeps: bool,
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
    /// Record the sleeps of watched threads.
    pub sleeps: bool,
    /// Note what they read from connections of TCP, too.
    pub reads: bool,
    /// Distance in bytes from a CPU's run queue to its preempt count; 0 = not known.
    pub preempt_minus_rq: i64,
}

/// Minimum and maximum number of slots. At 976 bytes each they take 16 MB to 256 MB of kernel memory.
const SLOTS: (usize, usize) = (1 << 14, 1 << 18);

/// Decides what to load.
///
/// # Errors
/// Why the scheduler probe cannot be used, as a clause: the kernel or the privileges do not suffice.
pub fn plan(facts: &Facts, needs: Needs) -> Result<Plan, String> {
    if let Some(obstacle) = facts.obstacle(NEEDED, &NEEDED_HOOKS) {
        return Err(obstacle);
    }
    Ok(Plan {
        switch_hook: match facts.arguments("sched_switch") {
            Some(4) => SwitchHook::Four,
            _ => SwitchHook::Three,
        },
        wakeup_hook: needs.quota_in_use
            && !throttles_threads(facts)
            && ThrottleClock::of(facts) != ThrottleClock::None,
        task_iterator: has_task_iterator(facts),
        initial_pid_namespace: facts.initial_pid_namespace,
        cgroup_v2: needs.cgroup_v2,
        pressure_minus_rq: pressure_minus_rq(facts).unwrap_or(0),
        // With twice as many slots as threads, 1 % of the threads find all four candidate slots taken.
        slots: (needs.threads * 2).next_power_of_two().clamp(SLOTS.0, SLOTS.1) as u32,
        sleeps: needs.sleeps && lacks_for_sleeps(facts).is_none(),
        reads: facts.arguments("tcp_rcv_space_adjust") == Some(1),
        preempt_minus_rq: preempt_minus_rq(facts).unwrap_or(0),
    })
}

/// Why the sleeps of threads cannot be recorded, as a clause; `None` = they can.
#[must_use]
pub fn lacks_for_sleeps(facts: &Facts) -> Option<String> {
    facts.obstacle(OF_SLEEPS, &HOOKS_OF_SLEEPS)
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
    /// Attached for good while threads are watched.
    pub(crate) waking: Vec<&'static str>,
    /// Attached for a moment, to learn where the kernel keeps the registers of a system call.
    pub(crate) own_call: Option<&'static str>,
    /// Looks at the watched threads that sleep.
    pub(crate) asleep: Option<&'static str>,
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
            waking: match (plan.sleeps, plan.reads) {
                (false, _) => vec![],
                (true, false) => vec!["on_waking"],
                (true, true) => vec!["on_waking", "on_read"],
            },
            own_call: plan.sleeps.then_some("on_own_call"),
            asleep: (plan.sleeps && plan.task_iterator).then_some("on_asleep"),
        }
    }

    /// The one at the switches.
    pub(crate) fn switch(&self) -> &'static str {
        self.hooks.last().copied().unwrap_or_default()
    }

    /// Those that are loaded.
    pub(crate) fn all(&self) -> Vec<&'static str> {
        let iterators = self.task_iterator.into_iter().chain(self.waiting_iterator);
        let of_sleeps = self.waking.iter().copied().chain(self.own_call).chain(self.asleep);
        iterators
            .chain(self.hooks.iter().copied())
            .chain([self.hidden_wakeup])
            .chain(of_sleeps)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::tests::kernel_with;

    fn facts() -> Facts {
        Facts {
            functions: [TASK_ITERATOR].into(),
            per_cpu: [("runqueues", 90_000), ("system_group_pcpu", 9_808)].into(),
            ..kernel_with(&[("sched_switch", 4)])
        }
    }

    /// A kernel that throttles whole groups, without these fields of `cfs_rq`.
    fn old(lacking: &[&'static str]) -> Facts {
        let mut facts = Facts { hooks: kernel_with(&[("sched_switch", 3)]).hooks, ..facts() };
        facts.fields.remove(&("task_struct", "throttled"));
        facts.fields.retain(|(_, field)| !lacking.contains(field));
        facts
    }

    const NEEDS: Needs =
        Needs { threads: 300, cgroup_v2: false, quota_in_use: true, sleeps: false };

    #[test]
    fn a_current_kernel_needs_one_hook() {
        let plan = plan(&facts(), NEEDS).unwrap();
        assert_eq!(plan.switch_hook, SwitchHook::Four);
        assert!(!plan.wakeup_hook);
        assert_eq!((plan.slots, plan.pressure_minus_rq), (16384, -80192));
        let names = ProgramNames::of(&plan);
        assert_eq!(names.hooks, ["on_move", "on_switch_4"]);
        assert_eq!((names.switch(), names.waiting_iterator), ("on_switch_4", Some("on_waiting_4")));
    }

    #[test]
    fn group_throttling_needs_the_wakeup_hook_only_where_there_is_a_quota() {
        let facts = old(&["throttled_clock_self_time", "throttled_clock_pelt_time"]);
        assert_eq!(ThrottleClock::of(&facts), ThrottleClock::Task);
        let with = plan(&facts, NEEDS).unwrap();
        assert_eq!((with.switch_hook, with.wakeup_hook), (SwitchHook::Three, true));
        let hooks = ["on_wakeup", "on_first_wakeup_3", "on_move", "on_switch_3"];
        assert_eq!(ProgramNames::of(&with).hooks, hooks);
        assert!(!plan(&facts, Needs { quota_in_use: false, ..NEEDS }).unwrap().wakeup_hook);
        assert!(!plan(&old(&["throttle_count"]), NEEDS).unwrap().wakeup_hook);
    }

    #[test]
    fn the_table_follows_the_number_of_threads() {
        let slots = |threads| plan(&facts(), Needs { threads, ..NEEDS }).unwrap().slots;
        assert_eq!(slots(10_000), 32768);
        assert_eq!(slots(1_000_000), 1 << 18);
    }

    #[test]
    fn the_pressure_account_takes_its_field_and_both_variables() {
        assert_eq!(pressure_minus_rq(&old(&["state_start"])), None);
        assert_eq!(pressure_minus_rq(&Facts { per_cpu: [].into(), ..facts() }), None);
    }

    #[test]
    fn an_unknown_form_of_the_switch_is_refused() {
        let why = plan(&kernel_with(&[("sched_switch", 7)]), NEEDS).unwrap_err();
        assert_eq!(why, "`sched_switch` has 7 arguments: not a known kernel");
    }
}
