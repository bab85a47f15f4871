// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What threads did, summed by process until there is enough for a record.
//!
//! A host has many processes that do next to nothing. Their amounts are held back and emitted together, so that a
//! recording grows with activity and not with the number of processes. Nothing is left out, and each record holds
//! the time range that it covers.

mod culprits;
mod late;

use super::super::{Context, Emit, ObservedProcess};
use super::by_thread::{ByThread, ThreadLedgers, states};
use super::identity::{fold, meet};
use super::idle::{IdleSum, MIN_WAIT_NS};
use super::longest::WholeWait;
use super::sleepers::Activity;
use crate::collect::kept::shrink;
use deburr_bpf::sched::{ProbeCulprit, State, Sums, ThreadDelta};
use deburr_core::recording::{
    BlameTick, CgroupId, Culprit, IdleTick, LongWait, ProcId, ProcessTick, Record, TargetSpec,
    WaitHist,
};
use deburr_core::text::name::decode;
use late::since;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A process is emitted once it spent this much time outside of sleep since its last record ...
const WORTH_NS: u64 = 1_000_000;
/// ... or after this long.
const PATIENCE_NS: u64 = 10_000_000_000;
/// Number of processes per second that died with less than [`WORTH_NS`] and still get a record of their own; the
/// others are summed by comm and cgroup ([`Processes::fold`]). If the target is a command, the number is higher: its
/// children are often of this kind, and the user asked about them.
///
/// [`Processes::fold`]: super::super::processes::Processes::fold
const SMALL_DEATHS: usize = 50;
const SMALL_DEATHS_OF_COMMAND: usize = 1000;
/// A process of the target that waited behind one other process for this long since its last record is looked at
/// closely, and so is that other process.
const SUSPECT_NS: u64 = 10_000_000;

/// The end of a process may not be reported. If none of its threads is seen for this long and it is not in `/proc`, it has
/// ended; all that it did was emitted by then.
const UNSEEN_S: u32 = 30;

/// Pid of the parent of the kernel's threads.
const KTHREADD: u32 = 2;

/// A process: its pid and the start time of its first thread, which distinguishes a reused pid.
pub(super) type ProcessKey = (u32, u64);

/// What a process did since its last record.
#[derive(Debug, Default)]
struct Account {
    t0_ns: u64,
    comm: Option<[u8; 16]>,
    cgroup_id: u64,
    parent: u32,
    /// Waits in progress at the last full look, if it is the last of the window.
    in_progress: WaitHist,
    longest_in_progress_ns: u64,
    /// Threads alive at the last full look, and those that died since the account was last emitted.
    alive: u32,
    died: u32,
    /// In this second: lost time in ns, and turns.
    second: (u64, u64),
    /// Largest number of threads alive at a full look since then.
    most_alive: u32,
    /// At the last full look something was known of a thread that is told later: until then a record could not cover it.
    behind: bool,
    /// Number of such looks in a row.
    behind_s: u32,
    /// What its records so far hold.
    emitted: WaitSums,
    /// Seconds in which none of its threads was seen.
    unseen_s: u32,
    wall_ns: u64,
    states_ns: [u64; 8],
    waits: WaitHist,
    wait_max_ns: u64,
    switches: u64,
    blame: BTreeMap<ProbeCulprit, u64>,
    /// The longest wait, and when it ended in the window.
    longest: Option<Box<(WholeWait, u64)>>,
    idle: IdleSum,
    slots: Vec<usize>,
    /// Its threads since it was met, if it may belong to the target.
    by_thread: Option<Box<ByThread>>,
}

/// Sums of what is known of waits in three ways.
#[derive(Clone, Copy, Debug, Default)]
struct WaitSums {
    queued_ns: u64,
    waits_ns: u64,
    explained_ns: u64,
}

impl Account {
    /// Whether a record would lack a thread that is told later, with time from before the end of that record. A thread of
    /// which nothing was told for long has most likely ended.
    fn lacks_threads(&self) -> bool {
        self.behind && self.behind_s < UNSEEN_S
    }

    /// Takes the blame that exceeds the waiting out of the account, each culprit's share of it. It is of threads whose
    /// waiting is told later, or never: the slot of a thread that ended was taken by another before it was read.
    fn take_excess_blame(&mut self) -> BTreeMap<ProbeCulprit, u64> {
        let WaitSums { queued_ns, waits_ns, explained_ns } = &mut self.emitted;
        *queued_ns += self.states_ns[State::Queued as usize];
        *waits_ns += self.waits.total_ns() + self.in_progress.total_ns();
        let most_ns = (*queued_ns).max(*waits_ns).saturating_sub(*explained_ns);
        let sum_ns: u64 = self.blame.values().sum();
        *explained_ns += sum_ns.min(most_ns);
        let mut excess = BTreeMap::new();
        if sum_ns > most_ns {
            for (&behind, ns) in &mut self.blame {
                let part = u128::from(*ns) * u128::from(most_ns) / u128::from(sum_ns);
                let kept_ns = u64::try_from(part).unwrap_or(*ns);
                excess.insert(behind, *ns - kept_ns);
                *ns = kept_ns;
            }
        }
        excess
    }

    /// Whether a record of it would say anything. The wait of a thread that has ended may be told after its time.
    fn has_something(&self) -> bool {
        self.wall_ns > 0 || self.waits.total_count() > 0
    }

    fn busy_ns(&self) -> u64 {
        self.states_ns.iter().sum::<u64>() - self.states_ns[State::Sleep as usize]
    }

    /// Whether it neither had a CPU nor waited for one.
    fn slept(&self) -> bool {
        let of = |state: State| self.states_ns[state as usize];
        self.switches == 0 && of(State::OnCpu) + of(State::Queued) + of(State::Throttled) == 0
    }

    fn add(&mut self, thread: &ThreadDelta) {
        self.cgroup_id = thread.cgroup_id;
        self.parent = thread.parent;
        if thread.tid == thread.tgid {
            self.comm = Some(thread.comm);
        }
        self.died += u32::from(thread.dead);
        self.wall_ns += thread.wall_ns;
        for (sum, ns) in self.states_ns.iter_mut().zip(thread.states_ns) {
            *sum += ns;
        }
        self.waits.merge(&thread.waits);
        self.wait_max_ns = self.wait_max_ns.max(thread.wait_max_ns);
        self.switches += thread.switches;
        let of = |state: State| thread.states_ns[state as usize];
        let stalled_ns = of(State::BlockIo) + of(State::MemStall) + of(State::Uninterruptible);
        self.second.0 += of(State::Queued) + of(State::Throttled) + stalled_ns;
        self.second.1 += thread.switches;
        if let Some(threads) = &mut self.by_thread {
            threads.add(thread);
        }
    }

    fn merge(&mut self, other: Self) {
        self.alive += other.alive;
        self.most_alive += other.most_alive;
        self.died += other.died;
        self.wall_ns += other.wall_ns;
        for (sum, ns) in self.states_ns.iter_mut().zip(other.states_ns) {
            *sum += ns;
        }
        self.waits.merge(&other.waits);
        self.wait_max_ns = self.wait_max_ns.max(other.wait_max_ns);
        self.in_progress.merge(&other.in_progress);
        self.longest_in_progress_ns = self.longest_in_progress_ns.max(other.longest_in_progress_ns);
        self.switches += other.switches;
        for (behind, ns) in other.blame {
            *self.blame.entry(behind).or_insert(0) += ns;
        }
        self.idle.merge(&other.idle);
        self.longest = None;
    }

    fn tick(&self, proc: ProcId, t1_ns: u64) -> ProcessTick {
        let of = |state: State| self.states_ns[state as usize];
        let mut waits = self.waits.clone();
        waits.merge(&self.in_progress);
        ProcessTick {
            t0_ns: self.t0_ns,
            t1_ns,
            proc,
            threads: self.most_alive.max(self.alive + self.died),
            wall_ns: self.wall_ns,
            states: states(&self.states_ns),
            waits,
            wait_max_ns: self.wait_max_ns.max(self.longest_in_progress_ns),
            switches: self.switches,
            wakeup_latency_ns: self
                .blame
                .get(&ProbeCulprit::Idle)
                .copied()
                .unwrap_or(0)
                .min(of(State::Queued)),
        }
    }
}

/// The processes of the target.
#[derive(Debug, Default)]
pub(super) struct Target {
    pub(super) pids: BTreeSet<u32>,
    pub(super) ids: BTreeMap<ProcessKey, ProcId>,
    /// The probe's slots of their threads.
    pub(super) slots: Vec<usize>,
}

/// The accounts of all processes.
#[derive(Debug, Default)]
pub(super) struct Tally {
    accounts: HashMap<ProcessKey, Account>,
    /// Pid -> start time of the process that has it now: blame and idle sums know pids only.
    leaders: HashMap<u32, u64>,
    /// Identities of the last second's records: of one that has ended since, what others waited for is told now.
    told: HashMap<u32, ProcId>,
    /// Pids of processes that waited long behind another one, and of those that they waited behind.
    suspects: BTreeSet<u32>,
    /// Whether the target is not the host: then its threads are recorded.
    has_target: bool,
    thread_ledgers: ThreadLedgers,
    /// When the first look was; times of threads count from there.
    first_look_ns: u64,
    t1_ns: u64,
}

impl Tally {
    /// Begins with the first look, at that time in the window.
    pub(super) fn begin(first_look_ns: u64, target: &TargetSpec) -> Self {
        Self { first_look_ns, has_target: *target != TargetSpec::Host, ..Self::default() }
    }

    /// Adds a thread that exists at the start of the window.
    pub(super) fn meet(&mut self, thread: &ThreadDelta) {
        let account = self.account(thread);
        account.cgroup_id = thread.cgroup_id;
        account.slots.extend(thread.slot);
        if thread.tid == thread.tgid {
            account.comm = Some(thread.comm);
        }
    }

    /// Discards what only the latest look at all threads says, because there is going to be another one.
    pub(super) fn look_again(&mut self) {
        self.accounts.values_mut().for_each(|account| {
            (account.alive, account.behind) = (0, false);
            account.slots.clear();
            account.in_progress = WaitHist::default();
            account.longest_in_progress_ns = 0;
        });
    }

    /// Adds what a thread did, as read by a look at all threads. At the last look a wait in progress counts with its
    /// length so far.
    pub(super) fn add(&mut self, thread: &ThreadDelta, last: bool) {
        let has_target = self.has_target;
        let first_look_ns = self.first_look_ns;
        let account = self.account(thread);
        account.add(&since(account.t0_ns, thread, first_look_ns));
        if last && thread.waiting_ns > 0 {
            account.in_progress.add(thread.waiting_ns);
            account.longest_in_progress_ns = account.longest_in_progress_ns.max(thread.waiting_ns);
        }
        account.behind |= thread.behind;
        if !thread.dead && (thread.wall_ns > 0 || !thread.behind) {
            account.alive += 1;
            if has_target {
                account.slots.extend(thread.slot);
            }
        }
    }

    /// The waits in progress at the end of the window, as of the last look at all threads.
    pub(super) fn in_progress(&self) -> impl Iterator<Item = (ProcessKey, &WaitHist)> {
        self.accounts.iter().map(|(key, account)| (*key, &account.in_progress))
    }

    /// What the processes that exist did in the second that ends, as of the look at all threads that ends it; apart from
    /// the kernel's, and from this one.
    pub(super) fn take_activities(&mut self) -> Vec<Activity> {
        let of_user = |(key, account): (&ProcessKey, &mut Account)| {
            let (lost_ns, turns) = std::mem::take(&mut account.second);
            let threads = account.alive as usize;
            let is_kernels = account.parent == KTHREADD || key.0 == KTHREADD;
            let is_one = threads > 0 && !is_kernels && key.0 != std::process::id();
            is_one.then_some(Activity { pid: key.0, threads, lost_ns, turns })
        };
        self.accounts.iter_mut().filter_map(of_user).collect()
    }

    /// Adds what a thread did, as read by a look at some threads in between.
    pub(super) fn add_between(&mut self, thread: &ThreadDelta) {
        let first_look_ns = self.first_look_ns;
        let account = self.account(thread);
        account.add(&since(account.t0_ns, thread, first_look_ns));
    }

    fn account(&mut self, thread: &ThreadDelta) -> &mut Account {
        // A thread that is met late may have existed for longer.
        let t0_ns = self.t1_ns.min(self.first_look_ns + thread.from_ns);
        self.leaders.insert(thread.tgid, thread.leader_boot_ns);
        let by_thread = || self.has_target.then(|| Box::new(ByThread::begin(t0_ns)));
        self.accounts.entry((thread.tgid, thread.leader_boot_ns)).or_insert_with(|| Account {
            t0_ns,
            by_thread: by_thread(),
            ..Account::default()
        })
    }

    fn account_of(&mut self, pid: u32) -> Option<&mut Account> {
        let leader = *self.leaders.get(&pid)?;
        self.accounts.get_mut(&(pid, leader))
    }

    /// Adds the blame of an epoch.
    pub(super) fn blame(&mut self, sums: Sums) {
        let mut sums = sums.into_iter().peekable();
        while let Some(((victim, behind), ns)) = sums.next() {
            let mut account = self.account_of(victim);
            let mut add = |behind, ns| {
                if let Some(account) = &mut account {
                    *account.blame.entry(behind).or_insert(0) += ns;
                }
            };
            add(behind, ns);
            while let Some(((_, behind), ns)) = sums.next_if(|((next, _), _)| *next == victim) {
                add(behind, ns);
            }
        }
    }

    /// Adds the longest wait of a process in a second, which ended at that time of the window.
    pub(super) fn longest(&mut self, victim: u32, wait: WholeWait, t_ns: u64) {
        if let Some(account) = self.account_of(victim)
            && account.longest.as_ref().is_none_or(|longest| longest.0.wait_ns < wait.wait_ns)
        {
            account.longest = Some(Box::new((wait, t_ns)));
        }
    }

    /// Adds the sums about idle CPUs.
    pub(super) fn idle(&mut self, sums: BTreeMap<u32, IdleSum>) {
        for (victim, sum) in sums {
            if let Some(account) = self.account_of(victim) {
                account.idle.merge(&sum);
            }
        }
    }

    /// Gives every process that may belong to the target its identity now. The others get theirs with their first
    /// record: to read the facts of every process of a host takes some thousand files.
    pub(super) fn meet_all(&mut self, cx: &mut Context, emit: Emit<'_>) {
        for key in self.keys() {
            if self.may_belong(&cx.target, key) {
                self.identity(cx, key, emit);
            }
        }
    }

    /// Takes the target's processes and the slots of their threads, as of the last look at all threads.
    pub(super) fn take_target(&mut self, cx: &mut Context, emit: Emit<'_>) -> Target {
        let mut target = Target::default();
        for key in self.keys() {
            let own = self.accounts.get_mut(&key).map(|account| std::mem::take(&mut account.slots));
            let may = self.may_belong(&cx.target, key);
            let id = may.then(|| self.identity(cx, key, &mut *emit));
            let id = id.filter(|id| cx.processes.in_target(*id));
            if id.is_none()
                && let Some(account) = self.accounts.get_mut(&key)
            {
                account.by_thread = None;
            }
            if let Some(id) = id {
                target.pids.insert(key.0);
                target.ids.insert(key, id);
                target.slots.extend(own.into_iter().flatten());
            }
        }
        target
    }

    /// Whether the process may belong to the target, as far as the probe's own data can tell.
    fn may_belong(&self, target: &TargetSpec, key: ProcessKey) -> bool {
        match target {
            TargetSpec::Process { pid, .. } => key.0 == *pid,
            TargetSpec::Comm { comm } => {
                let own = self.accounts.get(&key).and_then(|account| account.comm.as_ref());
                own.is_none_or(|own| decode(own) == *comm)
            }
            _ => true,
        }
    }

    /// In a fixed order, so that identities are assigned in a fixed order.
    fn keys(&self) -> Vec<ProcessKey> {
        let mut keys: Vec<ProcessKey> = self.accounts.keys().copied().collect();
        keys.sort_unstable();
        keys
    }

    fn identity(&self, cx: &mut Context, key: ProcessKey, emit: Emit<'_>) -> ProcId {
        meet(cx, sighting(key, self.accounts.get(&key)), emit)
    }

    /// The identity of the process that has that pid; `None` if none of its threads was seen.
    pub(super) fn identity_of(&self, cx: &mut Context, pid: u32, emit: Emit<'_>) -> Option<ProcId> {
        match self.leaders.get(&pid) {
            Some(&leader) => Some(self.identity(cx, (pid, leader), emit)),
            None => self.told.get(&pid).copied(),
        }
    }

    /// Emits the accounts that are due, or all of them at the end of the window.
    pub(super) fn emit(&mut self, cx: &mut Context, t1_ns: u64, last: bool, emit: Emit<'_>) {
        // The clock of the run queues is compared with the session's now and then only.
        let t_ns = t1_ns.max(self.t1_ns);
        self.t1_ns = t_ns;
        self.told.clear();
        let mut small_deaths = 0;
        let most_small_deaths = match cx.target {
            TargetSpec::Command { .. } => SMALL_DEATHS_OF_COMMAND,
            _ => SMALL_DEATHS,
        };
        let (mut gone, mut small) = (Vec::new(), Vec::new());
        for key in self.keys() {
            let Some(account) = self.accounts.get(&key) else { continue };
            let lacking = !last && account.lacks_threads();
            let dead = account.alive == 0 && account.died > 0 && !lacking;
            let busy_ns = account.busy_ns();
            let (t0_ns, has_something) = (account.t0_ns, account.has_something());
            if dead {
                gone.push(key);
                small_deaths += usize::from(busy_ns < WORTH_NS);
                if busy_ns < WORTH_NS && small_deaths > most_small_deaths {
                    small.push(key);
                    continue;
                }
            }
            let due = dead || last || busy_ns >= WORTH_NS || t_ns - t0_ns >= PATIENCE_NS;
            if due && has_something && !lacking {
                self.emit_one(cx, key, t_ns, emit);
            }
            if dead || last {
                self.end_threads(cx, key, t_ns, emit);
            }
            if let Some(account) = self.accounts.get_mut(&key) {
                account.unseen_s = if account.alive == 0 { account.unseen_s + 1 } else { 0 };
                account.behind_s = if account.behind { account.behind_s + 1 } else { 0 };
                account.most_alive = account.most_alive.max(account.alive);
                (account.alive, account.behind) = (0, false);
                let is_time = account.unseen_s > 0 && account.unseen_s.is_multiple_of(UNSEEN_S);
                if is_time && !dead && has_no_entry(cx, key.0) {
                    gone.push(key);
                    self.end_threads(cx, key, t_ns, emit);
                }
            }
        }
        if last {
            self.thread_ledgers.emit(&mut *emit);
        }
        // Removed only now: blame that was emitted above needs their comm and cgroup.
        let mut folded: BTreeMap<ProcId, Account> = BTreeMap::new();
        for key in small {
            let Some(account) = self.accounts.remove(&key) else { continue };
            let id = fold(cx, sighting(key, Some(&account)), emit);
            self.told.insert(key.0, id);
            let sum =
                folded.entry(id).or_insert_with(|| Account { t0_ns: t_ns, ..Account::default() });
            sum.t0_ns = sum.t0_ns.min(account.t0_ns);
            sum.merge(account);
        }
        for (id, sum) in folded.iter().filter(|(_, sum)| sum.has_something()) {
            emit(Record::ProcessTick(Box::new(sum.tick(*id, t_ns))));
        }
        let Context { roots, processes, .. } = cx;
        processes.look_closely(roots, self.suspects.iter().copied(), last, emit);
        for key in gone {
            self.suspects.remove(&key.0);
            self.accounts.remove(&key);
            if self.leaders.get(&key.0) == Some(&key.1) {
                self.leaders.remove(&key.0);
            }
        }
        shrink(&mut self.accounts);
        shrink(&mut self.leaders);
    }

    /// Its threads do nothing more that is recorded.
    fn end_threads(&mut self, cx: &mut Context, key: ProcessKey, t_ns: u64, emit: Emit<'_>) {
        let account = self.accounts.get_mut(&key);
        let Some(threads) = account.and_then(|account| account.by_thread.take()) else { return };
        let id = self.identity(cx, key, emit);
        if cx.processes.in_target(id) {
            self.thread_ledgers.add(id, *threads, t_ns);
        }
    }

    fn emit_one(&mut self, cx: &mut Context, key: ProcessKey, t1_ns: u64, emit: Emit<'_>) {
        let victim = match self.accounts.get(&key) {
            // Most processes of a host. They often get their identity only here, at the end of the window.
            Some(account) if account.slept() && cx.target == TargetSpec::Host => {
                let sighting =
                    ObservedProcess { did_nothing: true, ..sighting(key, Some(account)) };
                meet(cx, sighting, emit)
            }
            _ => self.identity(cx, key, emit),
        };
        self.told.insert(key.0, victim);
        let Some(account) = self.accounts.get_mut(&key) else { return };
        let fresh = Account {
            blame: account.take_excess_blame(),
            emitted: account.emitted,
            behind: account.behind,
            behind_s: account.behind_s,
            t0_ns: t1_ns,
            comm: account.comm,
            cgroup_id: account.cgroup_id,
            parent: account.parent,
            unseen_s: account.unseen_s,
            slots: std::mem::take(&mut account.slots),
            by_thread: account.by_thread.take(),
            ..Account::default()
        };
        let done = std::mem::replace(account, fresh);
        let t0_ns = done.t0_ns;
        let tick = done.tick(victim, t1_ns);
        let throttled = tick.states.throttled_ns > 0;
        emit(Record::ProcessTick(Box::new(tick)));
        if cx.processes.in_target(victim) {
            let long = done.blame.iter().filter(|&(_, &ns)| ns >= SUSPECT_NS);
            for (behind, _) in long {
                if let ProbeCulprit::Process(pid) = *behind {
                    self.suspects.extend([key.0, pid]);
                }
            }
        }
        for (culprit, ns) in self.culprits(cx, &done.blame, emit) {
            emit(Record::Blame(BlameTick { t0_ns, t1_ns, victim, culprit, ns }));
        }
        if let Some((whole, t_ns)) = done.longest.as_deref() {
            let &WholeWait { tid, wait_ns, throttled_ns, ref parts, .. } = whole;
            let mut parts = self.culprits(cx, parts, emit);
            // Also of 0 ns: it tells from recordings of older versions, which leave throttled time out.
            if throttled {
                parts.insert(Culprit::Throttled, throttled_ns);
            }
            for (culprit, ns) in parts {
                let t_ns = *t_ns;
                emit(Record::LongWait(LongWait { t_ns, victim, tid, wait_ns, culprit, ns }));
            }
        }
        if done.idle.waits > 0 || done.idle.skipped_ns > 0 {
            emit(Record::Idle(Box::new(IdleTick {
                t0_ns,
                t1_ns,
                victim,
                min_wait_ns: MIN_WAIT_NS,
                waits: done.idle.waits,
                waits_ns: done.idle.waits_ns,
                skipped_ns: done.idle.skipped_ns,
                idle_allowed_ns: done.idle.allowed_ns,
                idle_forbidden_ns: done.idle.forbidden_ns,
                cpus: done.idle.idle_cpus(),
            })));
        }
    }
}

fn has_no_entry(cx: &Context, pid: u32) -> bool {
    !cx.roots.proc.join(pid.to_string()).exists()
}

/// What an account knows of its process.
fn sighting(key: ProcessKey, account: Option<&Account>) -> ObservedProcess<'_> {
    ObservedProcess {
        did_nothing: false,
        pid: key.0,
        start_ns: Some(key.1),
        comm: account.and_then(|account| account.comm.as_ref()).map(<[u8; 16]>::as_slice),
        cgroup: account.map(|account| CgroupId(account.cgroup_id)),
        parent: account.map(|account| account.parent),
    }
}

#[cfg(test)]
mod tests;
