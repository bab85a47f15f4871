// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who was seen: gives every process of the session its identity and emits its facts.
//!
//! Meeting a process again costs a hash look-up. Meeting one for the first time costs three reads in `/proc`,
//! some 20 us; where thousands of processes come and go a second, those reads have a budget, and what is over
//! it is known only by its sighting.

mod closely;

use super::{Cgroups, Emit, Roots};
use deburr_core::procfs::{cpu_list, pid, stat};
use deburr_core::recording::{CgroupId, ProcId, Process, Record, TargetSpec};
use deburr_core::text::name;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::time::Instant;

/// First sights whose facts are read at once: a host's processes at the start.
const FACTS_BURST: f64 = 2048.0;
/// Reads of facts in a second after that: at 20 us each, 0.4 % of a CPU.
const FACTS_PER_SECOND: f64 = 200.0;
/// As many processes may be remembered beyond those alive before the dead are forgotten.
const DEAD_KEPT: usize = 8192;
/// The part of a command line that is kept.
const CMDLINE_BYTES: usize = 256;
/// The same of those that are looked at closely: a Java program's name comes after all of its options.
const CMDLINE_BYTES_CLOSELY: usize = 4096;
/// Kinds of short-lived processes that are told apart in a session.
const KINDS: usize = 256;
/// Generations that are followed up from a process to the target's command.
const MAX_GENERATIONS: usize = 64;

/// What a collector knows of a process when it meets it. Facts that it does not know are read from `/proc`,
/// if the process is still there.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sighting<'a> {
    /// Thread-group id.
    pub(crate) pid: u32,
    /// Start time of the *process* (main thread) in nanoseconds of the boot clock, if known. With it, reuse of
    /// the pid is told apart without a look into `/proc`.
    pub(crate) start_ns: Option<u64>,
    /// Comm of the main thread as the kernel has it now, if known.
    pub(crate) comm: Option<&'a [u8]>,
    /// Its cgroup in the tree of the cpu controller, if known.
    pub(crate) cgroup: Option<CgroupId>,
    /// It did nothing: what `/proc` has of it is not worth reading.
    pub(crate) did_nothing: bool,
    /// Pid of the process that started it, if known. Of a process that is gone it cannot be read any more.
    pub(crate) parent: Option<u32>,
}

/// The processes of the session.
#[derive(Debug)]
pub(crate) struct Processes {
    by_pid: HashMap<u32, Known>,
    last_id: u32,
    /// The target's processes, dead ones too: their last amounts come after their end.
    target: HashSet<ProcId>,
    host_is_target: bool,
    /// The first process with the target's pid; a later one has only the pid in common.
    target_root: Option<ProcId>,
    target_cgroups: BTreeSet<CgroupId>,
    observer_pid: u32,
    user_hz: u64,
    facts: Budget,
    /// Who stands for the many of a kind.
    kinds: HashMap<Kind, ProcId>,
    /// How many were looked at closely.
    suspects: usize,
    /// Above so many entries the dead are looked for.
    sweep_above: usize,
}

/// Short-lived processes that count as one: of one comm and cgroup, all of the target or none.
type Kind = (Box<[u8]>, Option<CgroupId>, bool);

/// A process as it was emitted last.
#[derive(Debug)]
struct Known {
    /// The comm's bytes: decoding is not for every meeting.
    comm: Box<[u8]>,
    process: Process,
    first_look: Option<closely::FirstLook>,
}

impl Default for Processes {
    fn default() -> Self {
        Self {
            by_pid: HashMap::new(),
            last_id: 0,
            target: HashSet::new(),
            host_is_target: false,
            target_root: None,
            target_cgroups: BTreeSet::new(),
            observer_pid: std::process::id(),
            user_hz: rustix::param::clock_ticks_per_second(),
            facts: Budget::new(FACTS_BURST, FACTS_PER_SECOND),
            kinds: HashMap::new(),
            suspects: 0,
            sweep_above: DEAD_KEPT,
        }
    }
}

impl Processes {
    /// Identity of that process. Emits `Record::Process` at first sight and when a fact that is in `sighting`
    /// differs from what was emitted last (exec, rename, move).
    pub(crate) fn intern(
        &mut self,
        roots: &Roots,
        cgroups: &mut Cgroups,
        target: &TargetSpec,
        sighting: Sighting<'_>,
        emit: Emit<'_>,
    ) -> ProcId {
        if let Some(known) = self.met(&sighting) {
            let (id, is_news) = (known.process.id, known.is_news(&sighting));
            if is_news {
                self.learn(roots, cgroups, target, sighting, id, emit);
            }
            return id;
        }
        let id = self.next_id();
        if target_pid(target) == Some(sighting.pid) && self.target_root.is_none() {
            self.target_root = Some(id);
        }
        if self.by_pid.len() >= self.sweep_above {
            self.forget_dead(roots);
        }
        self.learn(roots, cgroups, target, sighting, id, emit);
        id
    }

    /// Identity of a process that did too little for one of its own: if it has none, that of all that are like it, who have
    /// its comm and its cgroup, and belong to the target if it does. Reads nothing of it.
    pub(crate) fn fold(
        &mut self,
        roots: &Roots,
        cgroups: &mut Cgroups,
        target: &TargetSpec,
        sighting: Sighting<'_>,
        emit: Emit<'_>,
    ) -> ProcId {
        if let Some(known) = self.met(&sighting) {
            return known.process.id;
        }
        let mut known = Known::new(ProcId::OTHERS, sighting.pid, self.observer_pid);
        known.take_sighting(sighting);
        let Known { comm, mut process, .. } = known;
        process.comm = name::decode(&comm);
        process.in_target = match target {
            // What it descends from is not read of each.
            TargetSpec::Command { .. } => self.is_child_of_command(target, sighting.parent),
            _ => self.belongs(roots, cgroups, target, &process, None),
        };
        let kind = (comm, process.cgroup, process.in_target);
        if let Some(&id) = self.kinds.get(&kind) {
            return id;
        }
        if process.comm.is_empty() || self.kinds.len() >= KINDS {
            return ProcId::OTHERS;
        }
        process.id = self.next_id();
        process.many = true;
        self.kinds.insert(kind, process.id);
        if process.in_target && !self.host_is_target {
            self.target.insert(process.id);
        }
        let id = process.id;
        emit(Record::Process(Box::new(process)));
        id
    }

    /// What is known of that process, if it was met before.
    fn met(&self, sighting: &Sighting<'_>) -> Option<&Known> {
        self.by_pid.get(&sighting.pid).filter(|known| known.is_same(sighting))
    }

    /// [`ProcId::OTHERS`] is not given to a process.
    fn next_id(&mut self) -> ProcId {
        self.last_id = self.last_id.saturating_add(1).min(ProcId::OTHERS.0 - 1);
        ProcId(self.last_id)
    }

    /// Whether that process belongs to the target.
    pub(crate) fn in_target(&self, id: ProcId) -> bool {
        self.host_is_target || self.target.contains(&id)
    }

    /// The processes of the target, as they were emitted last.
    pub(crate) fn of_target(&self) -> impl Iterator<Item = &Process> {
        self.by_pid.values().map(|known| &known.process).filter(|process| process.in_target)
    }

    /// Whether that pid was met as a kernel thread.
    pub(crate) fn is_kernel_thread(&self, pid: u32) -> bool {
        self.by_pid.get(&pid).is_some_and(|known| known.process.kernel_thread == Some(true))
    }

    /// The cgroups that processes of the target were met in.
    pub(crate) fn target_cgroups(&self) -> BTreeSet<CgroupId> {
        self.target_cgroups.clone()
    }

    /// How many processes went out without the facts of `/proc` since the last call: there were too many new
    /// ones.
    pub(crate) fn take_facts_skipped(&mut self) -> u64 {
        std::mem::take(&mut self.facts.refused)
    }

    /// Takes the sighting and, within the budget, the facts of `/proc`, and emits the process as it is now.
    fn learn(
        &mut self,
        roots: &Roots,
        cgroups: &mut Cgroups,
        target: &TargetSpec,
        sighting: Sighting<'_>,
        id: ProcId,
        emit: Emit<'_>,
    ) {
        let before = self.by_pid.remove(&sighting.pid).filter(|known| known.process.id == id);
        let mut known = before.unwrap_or_else(|| Known::new(id, sighting.pid, self.observer_pid));
        let mut stat = None;
        if !sighting.did_nothing && self.facts.take() {
            stat = read_stat(roots, sighting.pid).filter(|stat| {
                // By now the pid may be another process's.
                let start_ns = stat::ticks_ns(stat.start_ticks, self.user_hz);
                sighting.start_ns.is_none_or(|seen| is_same_start(seen, start_ns))
            });
            if let Some(stat) = &stat {
                known.take_facts(roots, cgroups, stat, self.user_hz);
            }
        }
        known.take_sighting(sighting);
        let (process, comm) = (&mut known.process, &known.comm);
        process.comm = name::decode(comm);
        if let Some(cgroup) = process.cgroup {
            cgroups.sight_of(cgroup, sighting.pid, &mut *emit);
        }
        self.host_is_target = *target == TargetSpec::Host;
        process.in_target = self.belongs(roots, cgroups, target, process, stat)
            || self.is_child_of_command(target, sighting.parent);
        if process.in_target {
            self.target_cgroups.extend(process.cgroup);
        }
        if process.in_target && !self.host_is_target {
            self.target.insert(id);
        } else {
            self.target.remove(&id);
        }
        emit(Record::Process(Box::new(process.clone())));
        self.by_pid.insert(sighting.pid, known);
    }

    /// Whether a process belongs to the target.
    fn belongs(
        &self,
        roots: &Roots,
        cgroups: &Cgroups,
        target: &TargetSpec,
        process: &Process,
        stat: Option<pid::PidStat>,
    ) -> bool {
        match target {
            TargetSpec::Host => true,
            TargetSpec::Process { .. } => self.target_root == Some(process.id),
            TargetSpec::Comm { comm } => process.comm == *comm,
            TargetSpec::Cgroup { path } | TargetSpec::Container { path, .. } => {
                process.cgroup.is_some_and(|cgroup| cgroups.is_within(cgroup, path))
            }
            TargetSpec::Command { pid: root, .. } => {
                // Once a descendant, always: its parents may be gone when it is looked at again.
                self.target_root == Some(process.id)
                    || self.target.contains(&process.id)
                    || self.descends(roots, *root, process.pid, stat)
            }
        }
    }

    /// Whether a process with that parent belongs to a command that is the target.
    fn is_child_of_command(&self, target: &TargetSpec, parent: Option<u32>) -> bool {
        let (TargetSpec::Command { pid, .. }, Some(parent)) = (target, parent) else {
            return false;
        };
        parent == *pid
            || self
                .by_pid
                .get(&parent)
                .is_some_and(|parent| self.target.contains(&parent.process.id))
    }

    /// Whether the command `root` started that process, directly or not. The chain of parents breaks where one
    /// of them ended; the process group, which outlives them, joins many such orphans to the command.
    fn descends(&self, roots: &Roots, root: u32, pid: u32, stat: Option<pid::PidStat>) -> bool {
        let mut stat = stat.or_else(|| read_stat(roots, pid));
        for _ in 0..MAX_GENERATIONS {
            let Some(now) = stat else { return false };
            let parent = self.by_pid.get(&now.ppid);
            if now.ppid == root
                || now.pgrp == root
                || parent.is_some_and(|parent| self.target.contains(&parent.process.id))
            {
                return true;
            }
            if now.ppid <= 1 {
                return false;
            }
            stat = read_stat(roots, now.ppid);
        }
        false
    }

    /// Forgets processes that are gone, except the youngest ones, whose last amounts may still come.
    fn forget_dead(&mut self, roots: &Roots) {
        let entries = fs::read_dir(&roots.proc).into_iter().flatten().flatten();
        let alive: HashSet<u32> =
            entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        let young = self.last_id.saturating_sub(DEAD_KEPT as u32 / 4);
        self.by_pid.retain(|pid, known| alive.contains(pid) || known.process.id.0 > young);
        self.sweep_above = self.by_pid.len() + DEAD_KEPT;
    }
}

impl Known {
    fn new(id: ProcId, pid: u32, observer_pid: u32) -> Self {
        let process = Process {
            id,
            pid,
            start_ns: 0,
            comm: String::new(),
            cmdline: String::new(),
            kernel_thread: None,
            cgroup: None,
            cpus_allowed: None,
            cpuset_cpus: None,
            memory_cgroup: None,
            nice: None,
            in_target: false,
            observer: pid == observer_pid,
            scheduling: vec![],
            many: false,
        };
        Self { comm: Box::default(), process, first_look: None }
    }

    fn take_facts(&mut self, roots: &Roots, cgroups: &mut Cgroups, stat: &pid::PidStat, hz: u64) {
        let process = &mut self.process;
        let dir = roots.proc.join(process.pid.to_string());
        let status = pid::status(&fs::read(dir.join("status")).unwrap_or_default());
        let place = cgroups.place_of(process.pid);
        if process.start_ns == 0 {
            process.start_ns = stat::ticks_ns(stat.start_ticks, hz);
        }
        process.cmdline = cmdline(roots, process.pid, CMDLINE_BYTES);
        process.kernel_thread = Some(stat.kernel_thread);
        process.cpus_allowed = status.cpus_allowed.map(|cpus| cpu_list::format(&cpus));
        process.cpuset_cpus = place.cpuset_cpus;
        process.memory_cgroup = place.memory;
        process.nice = Some(stat.nice);
        process.cgroup = place.cgroup.or(process.cgroup);
        self.comm = stat.comm.as_bytes().into();
    }

    /// A sighting is nearer to the truth than `/proc`, which is read later and rounds start times.
    fn take_sighting(&mut self, sighting: Sighting<'_>) {
        if let Some(comm) = sighting.comm {
            self.comm = until_nul(comm).into();
        }
        self.process.cgroup = sighting.cgroup.or(self.process.cgroup);
        self.process.start_ns = sighting.start_ns.unwrap_or(self.process.start_ns);
    }

    /// Whether that sighting is of this process and not of another one with its pid.
    fn is_same(&self, sighting: &Sighting<'_>) -> bool {
        let own_ns = self.process.start_ns;
        sighting.start_ns.is_none_or(|seen| own_ns == 0 || is_same_start(seen, own_ns))
    }

    fn is_news(&self, sighting: &Sighting<'_>) -> bool {
        sighting.comm.is_some_and(|comm| until_nul(comm) != &*self.comm)
            || sighting.cgroup.is_some_and(|cgroup| self.process.cgroup != Some(cgroup))
    }
}

/// Whether two start times are one: `/proc` rounds down to ticks, of at most 10 ms; BPF does not.
fn is_same_start(a_ns: u64, b_ns: u64) -> bool {
    const TICK_NS: u64 = 10_000_000;
    let rounded = a_ns.is_multiple_of(TICK_NS) || b_ns.is_multiple_of(TICK_NS);
    a_ns == b_ns || rounded && a_ns / TICK_NS == b_ns / TICK_NS
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|&b| b == 0).next().unwrap_or_default()
}

fn target_pid(target: &TargetSpec) -> Option<u32> {
    match target {
        TargetSpec::Process { pid, .. } | TargetSpec::Command { pid, .. } => Some(*pid),
        _ => None,
    }
}

/// The first bytes of a command line, decoded, with spaces between the words.
fn cmdline(roots: &Roots, pid: u32, bytes: usize) -> String {
    let path = roots.proc.join(pid.to_string()).join("cmdline");
    let mut cmdline = fs::read(path).unwrap_or_default();
    cmdline.truncate(bytes);
    while cmdline.last() == Some(&0) {
        cmdline.pop();
    }
    cmdline.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = b' ');
    name::decode(&cmdline)
}

/// `/proc/PID/stat`, if the process is there.
pub(crate) fn read_stat(roots: &Roots, pid: u32) -> Option<pid::PidStat> {
    pid::stat(&fs::read(roots.proc.join(pid.to_string()).join("stat")).ok()?).ok()
}

/// Whether nothing of a process runs any more. A first thread that has ended before the others is a zombie too.
pub(crate) fn has_ended(stat: &pid::PidStat) -> bool {
    matches!(stat.state, 'Z' | 'X') && stat.threads < 2
}

/// Whose entry in `/proc` tells of a process that has not ended: its own, or a thread's if its first one has ended:
/// memory, program and cgroup are no longer to be had by way of that one.
pub(crate) fn living_thread(roots: &Roots, stat: &pid::PidStat) -> u32 {
    if !matches!(stat.state, 'Z' | 'X') {
        return stat.pid;
    }
    let tasks = fs::read_dir(roots.proc.join(stat.pid.to_string()).join("task"));
    let tids = tasks.into_iter().flatten().flatten();
    let mut tids = tids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    tids.find(|&tid| tid != stat.pid).unwrap_or(stat.pid)
}

/// So much at once, then so much a second.
#[derive(Debug)]
struct Budget {
    left: f64,
    burst: f64,
    per_second: f64,
    filled: Instant,
    refused: u64,
}

impl Budget {
    fn new(burst: f64, per_second: f64) -> Self {
        Self { left: burst, burst, per_second, filled: Instant::now(), refused: 0 }
    }

    fn take(&mut self) -> bool {
        let now = Instant::now();
        let gained = now.duration_since(self.filled).as_secs_f64() * self.per_second;
        self.left = (self.left + gained).min(self.burst);
        self.filled = now;
        if self.left < 1.0 {
            self.refused += 1;
            return false;
        }
        self.left -= 1.0;
        true
    }
}

#[cfg(test)]
mod tests;
