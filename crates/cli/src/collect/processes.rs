// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The processes of a session: gives each of them an identity and emits its facts.
//!
//! A known process costs a hash look-up. A new one costs three reads in `/proc`, some 20 us. Where thousands of
//! processes come and go per second, these reads have a budget, and processes beyond it are known only by their
//! sighting.

mod ended;
mod thread_scheduling;

use super::{Cgroups, Emit, Roots, affinity, cpus_online};
use crate::reader::Reader;
use deburr_core::procfs::{cpu_list, pid, stat};
use deburr_core::recording::{CgroupId, ProcId, Process, Record, TargetSpec};
use deburr_core::text::name;
use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::os::unix::fs::FileExt;
use std::time::Instant;

/// New processes whose facts are read at once: a host's processes at the start.
const FACTS_BURST: f64 = 2048.0;
/// New processes per second whose facts are read after that: at 20 us each, 0.4 % of a CPU.
const FACTS_PER_SECOND: f64 = 200.0;
/// Bytes of a command line that are kept.
const CMDLINE_BYTES: u64 = 256;
/// The same for processes that are looked at closely: the name of a Java program comes after all of its options.
const CMDLINE_BYTES_CLOSELY: u64 = 4096;
/// Kinds of short-lived processes that are distinguished in a session.
const KINDS: usize = 256;
/// Generations of parents that are followed from a process up to the target's command.
const MAX_GENERATIONS: usize = 64;

/// What a collector knows of a process when it sees it. Unknown facts are read from `/proc` if the process still
/// exists.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ObservedProcess<'a> {
    /// Thread-group id.
    pub(crate) pid: u32,
    /// Start time of the *process* (main thread) in nanoseconds of the boot clock, if known. It reveals a reused pid
    /// without a read of `/proc`.
    pub(crate) start_ns: Option<u64>,
    /// Comm of the main thread as the kernel has it now, if known.
    pub(crate) comm: Option<&'a [u8]>,
    /// Its cgroup in the tree of the cpu controller, if known.
    pub(crate) cgroup: Option<CgroupId>,
    /// Whether it did nothing, so that its facts in `/proc` are not worth reading.
    pub(crate) did_nothing: bool,
    /// Pid of the parent process, if known. It cannot be read any more once the process is gone.
    pub(crate) parent: Option<u32>,
}

/// The processes of the session.
#[derive(Debug)]
pub(crate) struct Processes {
    by_pid: HashMap<u32, Box<EmittedProcess>>,
    last_id: u32,
    /// The target's processes, including dead ones: their last amounts arrive after their end.
    target: HashSet<ProcId>,
    host_is_target: bool,
    /// The first process with the target's pid; a later one only reuses the pid.
    target_root: Option<ProcId>,
    target_cgroups: BTreeSet<CgroupId>,
    observer_pid: u32,
    user_hz: u64,
    facts: Budget,
    reader: Reader,
    /// The online CPUs, once they were asked for.
    online: OnceCell<Vec<u32>>,
    /// The identity that the short-lived processes of a kind share.
    kinds: HashMap<ShortLivedKind, ProcId>,
    /// Number of processes that were looked at closely.
    suspects: usize,
    ended: ended::Ended,
}

/// Short-lived processes that share an identity: comm, cgroup, and whether they belong to the target.
type ShortLivedKind = (Box<[u8]>, Option<CgroupId>, bool);

/// A process as it was emitted last.
#[derive(Debug)]
struct EmittedProcess {
    /// The comm's bytes, so that a sighting can be compared without decoding.
    comm: Box<[u8]>,
    process: Process,
    first_look: Option<thread_scheduling::FirstReading>,
    /// The last search for ended processes did not find it, and it was not seen since.
    is_missing: bool,
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
            reader: Reader::default(),
            online: OnceCell::new(),
            kinds: HashMap::new(),
            suspects: 0,
            ended: ended::Ended::default(),
        }
    }
}

impl Processes {
    /// The identity of that process. Emits `Record::Process` at first sight and when a fact in `sighting` differs from
    /// what was emitted last (exec, rename, move to another cgroup).
    pub(crate) fn intern(
        &mut self,
        roots: &Roots,
        cgroups: &mut Cgroups,
        target: &TargetSpec,
        sighting: ObservedProcess<'_>,
        emit: Emit<'_>,
    ) -> ProcId {
        if let Some(known) = self.known_as(&sighting) {
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
        if self.ended.is_due(self.by_pid.len()) {
            self.forget_dead(roots);
        }
        self.learn(roots, cgroups, target, sighting, id, emit);
        id
    }

    /// The identity of a process that did too little to get its own. If it has one already, it keeps that. Otherwise it
    /// shares one with all processes that have the same comm and cgroup and belong to the target if it does;
    /// [`ProcId::OTHERS`] if it has no comm or there are too many kinds. Does not read the facts of the process.
    pub(crate) fn fold(
        &mut self,
        roots: &Roots,
        cgroups: &mut Cgroups,
        target: &TargetSpec,
        sighting: ObservedProcess<'_>,
        emit: Emit<'_>,
    ) -> ProcId {
        if let Some(known) = self.known_as(&sighting) {
            return known.process.id;
        }
        let mut known =
            EmittedProcess::new(ProcId::OTHERS, sighting.pid, self.is_observer(sighting.pid));
        known.take_sighting(sighting);
        let EmittedProcess { comm, mut process, .. } = known;
        process.comm = name::decode(&comm);
        process.in_target = match target {
            // The ancestors of so many processes are not read.
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

    /// Whether that is this process, or one that reads for it.
    fn is_observer(&self, pid: u32) -> bool {
        pid == self.observer_pid || self.reader.is_own(pid)
    }

    /// The entry of that process, if it was seen before.
    fn known_as(&mut self, sighting: &ObservedProcess<'_>) -> Option<&EmittedProcess> {
        let known = self.by_pid.get_mut(&sighting.pid).filter(|known| known.is_same(sighting))?;
        known.is_missing = false;
        Some(known)
    }

    /// A new identity, never [`ProcId::OTHERS`].
    fn next_id(&mut self) -> ProcId {
        self.last_id = self.last_id.saturating_add(1).min(ProcId::OTHERS.0 - 1);
        ProcId(self.last_id)
    }

    /// The identity that was given last: later ones are greater.
    pub(crate) fn latest(&self) -> ProcId {
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

    /// Whether the process with that pid still runs whose main thread started at that time of the boot clock.
    pub(crate) fn still_runs(&self, roots: &Roots, pid: u32, start_ns: u64) -> bool {
        read_stat(roots, pid).is_some_and(|stat| {
            !has_ended(&stat)
                && is_same_start(start_ns, stat::ticks_ns(stat.start_ticks, self.user_hz))
        })
    }

    /// Whether the process that was seen with that pid is a kernel thread.
    pub(crate) fn is_kernel_thread(&self, pid: u32) -> bool {
        self.by_pid.get(&pid).is_some_and(|known| known.process.kernel_thread == Some(true))
    }

    /// The cgroups in which processes of the target were seen.
    pub(crate) fn target_cgroups(&self) -> BTreeSet<CgroupId> {
        self.target_cgroups.clone()
    }

    /// How often since the last call a process was emitted without its facts from `/proc`, because there were too many
    /// new ones.
    pub(crate) fn take_facts_skipped(&mut self) -> u64 {
        std::mem::take(&mut self.facts.refused)
    }

    /// The one that reads about processes what may never end.
    pub(crate) fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Takes over the sighting and, within the budget, the facts from `/proc`, and emits the process.
    fn learn(
        &mut self,
        roots: &Roots,
        cgroups: &mut Cgroups,
        target: &TargetSpec,
        sighting: ObservedProcess<'_>,
        id: ProcId,
        emit: Emit<'_>,
    ) {
        let before = self.by_pid.remove(&sighting.pid).filter(|known| known.process.id == id);
        let mut known = before.unwrap_or_else(|| {
            Box::new(EmittedProcess::new(id, sighting.pid, self.is_observer(sighting.pid)))
        });
        let mut stat = None;
        if !sighting.did_nothing && self.facts.take() {
            stat = read_stat(roots, sighting.pid).filter(|stat| {
                // By now the pid may belong to another process.
                let start_ns = stat::ticks_ns(stat.start_ticks, self.user_hz);
                sighting.start_ns.is_none_or(|seen| is_same_start(seen, start_ns))
            });
            if let Some(stat) = &stat {
                let online = self.online.get_or_init(|| cpus_online(roots));
                known.take_facts(roots, cgroups, stat, self.user_hz, online, &self.reader);
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

    /// Whether that process descends from the command with pid `root`. The chain of parents breaks where one of them
    /// ended; the process group outlives them and still links many such orphans to the command.
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
}

impl EmittedProcess {
    fn new(id: ProcId, pid: u32, observer: bool) -> Self {
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
            observer,
            scheduling: vec![],
            many: false,
        };
        Self { comm: Box::default(), process, first_look: None, is_missing: false }
    }

    fn take_facts(
        &mut self,
        roots: &Roots,
        cgroups: &mut Cgroups,
        stat: &pid::PidStat,
        hz: u64,
        online: &[u32],
        reader: &Reader,
    ) {
        let process = &mut self.process;
        let dir = roots.proc.join(process.pid.to_string());
        let status = pid::status(&fs::read(dir.join("status")).unwrap_or_default());
        let place = cgroups.place_of(process.pid);
        if process.start_ns == 0 {
            process.start_ns = stat::ticks_ns(stat.start_ticks, hz);
        }
        process.cmdline = cmdline(roots, stat, CMDLINE_BYTES, reader).unwrap_or_default();
        process.kernel_thread = Some(stat.kernel_thread);
        let set = place.cpuset_cpus.as_ref().and_then(|text| cpu_list::parse(text.as_bytes()).ok());
        let within = set.as_deref().unwrap_or(online);
        let allowed = affinity(roots, process.pid, status.cpus_allowed, within);
        process.cpus_allowed = allowed.map(|cpus| cpu_list::format(&cpus));
        process.cpuset_cpus = place.cpuset_cpus;
        process.memory_cgroup = place.memory;
        process.nice = Some(stat.nice);
        process.cgroup = place.cgroup.or(process.cgroup);
        self.comm = stat.comm.as_bytes().into();
    }

    /// Takes over the facts of a sighting. They override those of `/proc`, which is read later and rounds start times.
    fn take_sighting(&mut self, sighting: ObservedProcess<'_>) {
        if let Some(comm) = sighting.comm {
            self.comm = until_nul(comm).into();
        }
        self.process.cgroup = sighting.cgroup.or(self.process.cgroup);
        self.process.start_ns = sighting.start_ns.unwrap_or(self.process.start_ns);
    }

    /// Whether that sighting is of this process, not of another one that reuses its pid.
    fn is_same(&self, sighting: &ObservedProcess<'_>) -> bool {
        let own_ns = self.process.start_ns;
        sighting.start_ns.is_none_or(|seen| own_ns == 0 || is_same_start(seen, own_ns))
    }

    fn is_news(&self, sighting: &ObservedProcess<'_>) -> bool {
        sighting.comm.is_some_and(|comm| until_nul(comm) != &*self.comm)
            || sighting.cgroup.is_some_and(|cgroup| self.process.cgroup != Some(cgroup))
    }
}

/// Whether two start times are the same: `/proc` rounds down to ticks of at most 10 ms, BPF does not.
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

/// The first bytes of a command line, decoded, with spaces between the words; `None` if it cannot be read. It lies in the
/// memory of the process, which can let a reader wait for ever.
fn cmdline(roots: &Roots, stat: &pid::PidStat, bytes: u64, reader: &Reader) -> Option<String> {
    if stat.kernel_thread {
        return None;
    }
    reader.command_line(roots, stat.pid, bytes).ok().flatten()
}

/// Reads an open `/proc/PID/statm`; `None` if the process is gone.
pub(crate) fn read_statm(file: &fs::File) -> Option<pid::PidStatm> {
    let mut text = [0; 256];
    let length = file.read_at(&mut text, 0).ok()?;
    pid::statm(&text[..length])
}

/// `/proc/PID/stat`; `None` if the process is gone.
pub(crate) fn read_stat(roots: &Roots, pid: u32) -> Option<pid::PidStat> {
    pid::stat(&fs::read(roots.proc.join(pid.to_string()).join("stat")).ok()?).ok()
}

/// Whether all threads of a process have ended. The state alone does not tell: a first thread that ended before the
/// others is a zombie, too.
pub(crate) fn has_ended(stat: &pid::PidStat) -> bool {
    matches!(stat.state, 'Z' | 'X') && stat.threads < 2
}

/// Id of a thread whose entry in `/proc` describes a process that has not ended: the first thread or, if that has
/// ended, another one. Memory, program and cgroup cannot be read by way of a thread that has ended.
pub(crate) fn living_thread(roots: &Roots, stat: &pid::PidStat) -> u32 {
    if !matches!(stat.state, 'Z' | 'X') {
        return stat.pid;
    }
    let tasks = fs::read_dir(roots.proc.join(stat.pid.to_string()).join("task"));
    let tids = tasks.into_iter().flatten().flatten();
    let mut tids = tids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    tids.find(|&tid| tid != stat.pid).unwrap_or(stat.pid)
}

/// A token bucket: `burst` tokens at first and at most, refilled by `per_second`.
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
