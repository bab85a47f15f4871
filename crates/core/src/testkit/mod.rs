// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small record streams for tests: a host in a few lines of code, and streams as lines of JSON.
//!
//! A [`Scene`] covers its whole window with one tick per process and a reading at each end. Amounts are for the whole
//! window. Whatever is not specified is healthy: sources see everything, threads sleep.

mod block;
#[cfg(test)]
pub(crate) mod commands;
mod cpu_check;
mod interrupts;
mod reclaim;
pub mod snapshot;
pub mod sweep;
mod syscalls;

pub use block::{pass, transfers};
pub use cpu_check::{CHUNK_NS, Machine};
pub use interrupts::interrupts;
pub use reclaim::reclaim;

use crate::recording::{
    Awaited, BlameTick, Cgroup, CgroupId, CgroupReading, CgroupVersion, Container, Coverage,
    CpuReading, Culprit, Event, EventKind, IdleTick, Meta, NamedThreads, ObserverTick, ProcId,
    Process, ProcessTick, PsiReading, PsiResource, Record, RuntimeReading, SchedstatTick,
    SleepTick, Slept, Source, State, TargetSpec, ThreadStates, WaitHist, WokenBy, bucket_of,
};
use crate::view::{Fold, View};

/// One second.
pub const S: u64 = 1_000_000_000;
/// One millisecond.
pub const MS: u64 = 1_000_000;
/// One microsecond.
pub const US: u64 = 1_000;

/// The records of a host during one window, built process by process.
#[derive(Clone, Debug)]
pub struct Scene {
    window_ns: u64,
    cpus: u32,
    records: Vec<Record>,
}

/// What a process did in the window of a scene.
#[derive(Clone, Debug, Default)]
pub struct ProcessActivity {
    /// Number of its threads; 0 means 1.
    pub threads: u32,
    /// Time on CPUs.
    pub on_cpu_ns: u64,
    /// Time throttled.
    pub throttled_ns: u64,
    /// Time waiting for block IO.
    pub block_io_ns: u64,
    /// Time waiting for memory.
    pub mem_stall_ns: u64,
    /// Time stopped, traced or frozen.
    pub stopped_ns: u64,
    /// Run-queue waits as (number, length in nanoseconds); their sum is the queued time.
    pub waits: Vec<(u64, u64)>,
    /// Part of the queued time that is wake-up latency.
    pub wakeup_latency_ns: u64,
}

impl Scene {
    /// A host with this many CPUs, observed for the window by all sources, without any processes yet.
    #[must_use]
    pub fn new(cpus: u32, window_ns: u64) -> Self {
        let meta = Meta {
            tool_version: "0.1.0".into(),
            host_name: "web-17".into(),
            kernel: "6.1.0-18-amd64".into(),
            cpus_online: (0..cpus).collect(),
            cgroup_layout: "v2".into(),
            cpu_controller: Some(CgroupVersion::V2),
            // 2026-01-02 03:04:05 UTC
            start_unix_ns: 1_767_323_045_000_000_000,
            start_mono_ns: 0,
            asked_ns: Some(window_ns),
            target: TargetSpec::Host,
            entries: vec![],
            root: true,
            boot_id: None,
        };
        let mut scene = Self { window_ns, cpus, records: vec![Record::Meta(Box::new(meta))] };
        // Sources that later format versions added are covered by the tests that need them,
        // so that kept streams do not change.
        for source in Source::ALL.into_iter().filter(|source| source.since_version() <= 2) {
            scene.push(Record::Coverage(Coverage { t_ns: 0, source, state: State::Active }));
        }
        scene
    }

    /// Adds any record.
    pub fn push(&mut self, record: Record) -> &mut Self {
        self.records.push(record);
        self
    }

    /// Changes the metadata of the stream.
    pub fn meta(&mut self, change: impl FnOnce(&mut Meta)) -> &mut Self {
        if let Some(Record::Meta(meta)) = self.records.first_mut() {
            change(meta);
        }
        self
    }

    /// Makes a process the target: it and no other is in the target.
    pub fn target(&mut self, target: ProcId) -> &mut Self {
        let mut spec = TargetSpec::Host;
        for record in &mut self.records {
            if let Record::Process(process) = record {
                process.in_target = process.id == target;
                if process.in_target {
                    spec = TargetSpec::Process { pid: process.pid, comm: process.comm.clone() };
                }
            }
        }
        self.meta(|meta| meta.target = spec)
    }

    /// Makes the whole host the target.
    pub fn whole_host(&mut self) -> &mut Self {
        for record in &mut self.records {
            if let Record::Process(process) = record {
                process.in_target = true;
            }
        }
        self.meta(|meta| meta.target = TargetSpec::Host)
    }

    /// Adds what was found about a language runtime.
    pub fn runtime(&mut self, reading: RuntimeReading) -> &mut Self {
        let state = State::Active;
        self.push(Record::Coverage(Coverage { t_ns: 0, source: Source::Runtime, state }));
        self.push(Record::Runtime(Box::new(reading)))
    }

    /// Adds what the threads of a process with one name did.
    pub fn named(
        &mut self,
        proc: ProcId,
        comm: &str,
        threads: u32,
        on_cpu_ns: u64,
        delay_ns: u64,
    ) -> &mut Self {
        let (t0_ns, t1_ns, comm) = (0, self.window_ns, comm.to_owned());
        let tick = NamedThreads { t0_ns, t1_ns, proc, comm, threads, on_cpu_ns, delay_ns };
        self.push(Record::NamedThreads(Box::new(tick)))
    }

    /// Marks a source as missing.
    pub fn without(&mut self, source: Source, reason: &str, gain: &str) -> &mut Self {
        let state = State::Missing { reason: reason.into(), gain: gain.into() };
        self.push(Record::Coverage(Coverage { t_ns: 0, source, state }))
    }

    /// Marks the sources that need BPF as missing.
    pub fn without_bpf(&mut self) -> &mut Self {
        let reason = "BPF programs need root or CAP_BPF and CAP_PERFMON";
        self.without(Source::Sched, reason, "run as root to see behind whom processes wait");
        self.without(Source::Timeline, reason, "run as root to see which CPUs idle meanwhile")
    }

    /// Adds a cgroup; its ancestors must have been added before. The root has the path `/`.
    pub fn cgroup(
        &mut self,
        path: &str,
        quota_us: Option<u64>,
        container: Option<Container>,
    ) -> CgroupId {
        let known = |path: &str| {
            self.records.iter().find_map(|record| match record {
                Record::Cgroup(cgroup) if cgroup.path == path => Some(cgroup.id),
                _ => None,
            })
        };
        let above = match path.rsplit_once('/') {
            Some(("", "")) | None => None,
            Some(("", _)) => known("/"),
            Some((above, _)) => known(above),
        };
        let id = CgroupId(1 + self.count(|record| matches!(record, Record::Cgroup(_))));
        self.push(Record::Cgroup(Box::new(Cgroup {
            id,
            parent: above,
            path: path.into(),
            version: CgroupVersion::V2,
            quota_us,
            period_us: Some(100_000),
            burst_us: Some(0),
            weight: Some(100),
            container,
        })));
        id
    }

    /// Adds a process that may run on all CPUs; its pid is 1000 plus its number.
    pub fn process(&mut self, comm: &str, cgroup: Option<CgroupId>) -> ProcId {
        let id = ProcId(1 + self.count(|record| matches!(record, Record::Process(_))) as u32);
        let all = match self.cpus {
            1 => "0".to_owned(),
            cpus => format!("0-{}", cpus.saturating_sub(1)),
        };
        self.push(Record::Process(Box::new(Process {
            id,
            pid: 1000 + id.0,
            start_ns: S,
            comm: comm.into(),
            cmdline: comm.into(),
            kernel_thread: Some(false),
            cgroup,
            cpus_allowed: Some(all.clone()),
            cpuset_cpus: Some(all),
            memory_cgroup: None,
            nice: Some(0),
            in_target: true,
            observer: false,
            scheduling: vec![],
            many: false,
        })));
        id
    }

    /// Changes the facts of a process.
    pub fn facts(&mut self, id: ProcId, change: impl FnOnce(&mut Process)) -> &mut Self {
        let process = self.records.iter_mut().find_map(|record| match record {
            Record::Process(process) if process.id == id => Some(process),
            _ => None,
        });
        if let Some(process) = process {
            change(process);
        }
        self
    }

    /// Adds what a process did, as seen by the scheduler probe; for the rest of the window its threads slept.
    pub fn did(&mut self, proc: ProcId, did: &ProcessActivity) -> &mut Self {
        let threads = did.threads.max(1);
        let waits = hist(&did.waits);
        let states = ThreadStates {
            on_cpu_ns: did.on_cpu_ns,
            queued_ns: waits.total_ns(),
            throttled_ns: did.throttled_ns,
            block_io_ns: did.block_io_ns,
            mem_stall_ns: did.mem_stall_ns,
            stopped_ns: did.stopped_ns,
            ..ThreadStates::default()
        };
        let awake_ns = states.on_cpu_ns
            + states.queued_ns
            + states.throttled_ns
            + states.block_io_ns
            + states.mem_stall_ns
            + states.stopped_ns;
        let wall_ns = (u64::from(threads) * self.window_ns).max(awake_ns);
        let tick = ProcessTick {
            t0_ns: 0,
            t1_ns: self.window_ns,
            proc,
            threads,
            wall_ns,
            states: ThreadStates { sleep_ns: wall_ns - awake_ns, ..states },
            wait_max_ns: did.waits.iter().map(|&(_, ns)| ns).max().unwrap_or(0),
            switches: waits.total_count(),
            waits,
            wakeup_latency_ns: did.wakeup_latency_ns,
        };
        self.push(Record::ProcessTick(Box::new(tick)))
    }

    /// Adds what a process did, as reported by `/proc/PID/schedstat`.
    pub fn schedstat(
        &mut self,
        proc: ProcId,
        on_cpu_ns: u64,
        delay_ns: u64,
        slices: u64,
    ) -> &mut Self {
        let (t0_ns, t1_ns) = (0, self.window_ns);
        let wall_ns = t1_ns.max(on_cpu_ns + delay_ns);
        self.push(Record::Schedstat(SchedstatTick {
            t0_ns,
            t1_ns,
            proc,
            threads: 1,
            wall_ns,
            on_cpu_ns,
            delay_ns,
            slices,
        }))
    }

    /// Adds sleep of a process, and what it was behind.
    pub fn slept(
        &mut self,
        proc: ProcId,
        thread: &str,
        slept: (Slept, Vec<Awaited>),
        ns: u64,
    ) -> &mut Self {
        self.slept_as(proc, (thread, None, None), slept, ns)
    }

    /// The same, of a thread that belongs to an entry, and may have asked the one that ended it.
    pub fn slept_as(
        &mut self,
        proc: ProcId,
        (thread, entry, asked): (&str, Option<u32>, Option<bool>),
        (slept, behind): (Slept, Vec<Awaited>),
        ns: u64,
    ) -> &mut Self {
        let Slept { state, call, on, woken } = slept;
        self.push(Record::Sleep(Box::new(SleepTick {
            t0_ns: 0,
            t1_ns: self.window_ns,
            proc,
            state,
            call,
            on,
            woken,
            thread: Some(thread.into()),
            entry,
            asked,
            in_request: None,
            behind,
            ns,
            looked_at: ns.div_ceil(1_000_000),
            longest_ns: ns.min(20_000_000),
        })))
    }

    /// The same, of a thread for whose answer a client waits.
    pub fn slept_in_request(
        &mut self,
        proc: ProcId,
        thread: &str,
        slept: (Slept, Vec<Awaited>),
        ns: u64,
    ) -> &mut Self {
        self.slept(proc, thread, slept, ns);
        self.last(|record| {
            if let Record::Sleep(tick) = record {
                tick.in_request = Some(true);
            }
        })
    }

    /// Changes the record that was added last.
    pub fn last(&mut self, change: impl FnOnce(&mut Record)) -> &mut Self {
        if let Some(record) = self.records.last_mut() {
            change(record);
        }
        self
    }

    /// Adds sleeps of a length that a timer ended, of a thread that may belong to an entry, in each second.
    pub fn timed(
        &mut self,
        proc: ProcId,
        (thread, entry): (&str, Option<u32>),
        slept: &Slept,
        (each_ns, longest_ns, per_second): (u64, u64, u64),
    ) -> &mut Self {
        for second in 0..self.window_ns / S {
            let Slept { state, call, on, .. } = slept.clone();
            self.push(Record::Sleep(Box::new(SleepTick {
                t0_ns: second * S,
                t1_ns: (second + 1) * S,
                proc,
                state,
                call,
                on,
                woken: WokenBy::HardInterrupt,
                thread: Some(thread.into()),
                entry,
                asked: None,
                in_request: None,
                behind: vec![],
                ns: each_ns * per_second,
                looked_at: per_second,
                longest_ns,
            })));
        }
        self
    }

    /// Adds time that a process waited behind a culprit.
    pub fn blame(&mut self, victim: ProcId, culprit: Culprit, ns: u64) -> &mut Self {
        let (t0_ns, t1_ns) = (0, self.window_ns);
        self.push(Record::Blame(BlameTick { t0_ns, t1_ns, victim, culprit, ns }))
    }

    /// Adds idle CPUs during a process's waits. Timestamps are filled in.
    pub fn idle(&mut self, tick: IdleTick) -> &mut Self {
        self.push(Record::Idle(Box::new(IdleTick { t0_ns: 0, t1_ns: self.window_ns, ..tick })))
    }

    /// Adds the share of time that all CPUs were busy.
    pub fn busy(&mut self, share: f64) -> &mut Self {
        self.stolen(share, 0.0)
    }

    /// The same, with the share of time that the hypervisor steals from all CPUs.
    pub fn stolen(&mut self, share: f64, steal: f64) -> &mut Self {
        for t_ns in [0, self.window_ns] {
            for cpu in 0..self.cpus {
                let user_ns = (share * t_ns as f64) as u64;
                let steal_ns = (steal * t_ns as f64) as u64;
                self.push(Record::Cpu(CpuReading {
                    t_ns,
                    cpu,
                    user_ns,
                    system_ns: 0,
                    idle_ns: t_ns.saturating_sub(user_ns + steal_ns),
                    iowait_ns: 0,
                    irq_ns: 0,
                    steal_ns,
                }));
            }
        }
        self
    }

    /// Adds CPU pressure of the host: the share of time in which some task waited.
    pub fn cpu_pressure(&mut self, share: f64) -> &mut Self {
        for t_ns in [0, self.window_ns] {
            let some_ns = (share * t_ns as f64) as u64;
            let resource = PsiResource::Cpu;
            self.push(Record::Psi(PsiReading {
                t_ns,
                cgroup: None,
                resource,
                some_ns,
                full_ns: None,
            }));
        }
        self
    }

    /// Adds increments of a cgroup's counters: CPU time (if it is counted), periods, throttled periods, and the
    /// throttled time summed over run queues.
    pub fn cpu_stat(
        &mut self,
        cgroup: CgroupId,
        used_ns: impl Into<Option<u64>>,
        periods: u64,
        throttled: u64,
        queues_ns: u64,
    ) -> &mut Self {
        let used_ns = used_ns.into();
        for (t_ns, n) in [(0, 0), (self.window_ns, 1)] {
            self.push(Record::CgroupCpu(CgroupReading {
                t_ns,
                cgroup,
                usage_ns: used_ns.map(|ns| n * ns),
                nr_periods: Some(n * periods),
                nr_throttled: Some(n * throttled),
                throttled_ns: Some(n * queues_ns),
                nr_bursts: Some(0),
                burst_ns: Some(0),
            }));
        }
        self
    }

    /// Adds what the observer cost and lost. Timestamps are filled in.
    pub fn observer(&mut self, tick: ObserverTick) -> &mut Self {
        self.push(Record::Observer(ObserverTick { t0_ns: 0, t1_ns: self.window_ns, ..tick }))
    }

    /// Adds an event in the middle of the window.
    pub fn event(&mut self, kind: EventKind) -> &mut Self {
        self.push(Record::Event(Event { t_ns: self.window_ns / 2, kind }))
    }

    /// The complete stream, with its end record.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        let mut records = self.records.clone();
        records.push(Record::End { window_ns: self.window_ns });
        records
    }

    /// The view of the stream.
    #[must_use]
    pub fn view(&self) -> View {
        view(&self.records())
    }

    fn count(&self, kind: impl Fn(&Record) -> bool) -> u64 {
        self.records.iter().filter(|record| kind(record)).count() as u64
    }
}

/// Waits as (number, length in nanoseconds), from lines `from -> to : count` as printed by `runqlat` of bcc. Each wait
/// counts with the middle of its bucket, because the tool keeps no times.
#[must_use]
pub fn runqlat(text: &str) -> Vec<(u64, u64)> {
    let bucket = |line: &str| {
        let (range, rest) = line.split_once(':')?;
        let (from, to) = range.split_once("->")?;
        let (from, to): (u64, u64) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
        let count = rest.split('|').next()?.trim().parse().ok()?;
        Some((count, (from + to + 1) * US / 2))
    };
    text.lines().filter_map(bucket).collect()
}

/// A histogram of waits, given as (number, length in nanoseconds).
#[must_use]
pub fn hist(waits: &[(u64, u64)]) -> WaitHist {
    let mut hist = WaitHist::default();
    for &(number, ns) in waits {
        let bucket = bucket_of(ns);
        hist.count[bucket] += number;
        hist.ns[bucket] += ns * number;
    }
    hist
}

/// The view of some records.
#[must_use]
pub fn view(records: &[Record]) -> View {
    let mut fold = Fold::default();
    records.iter().for_each(|record| fold.push(record));
    fold.view().clone()
}

/// Records as JSON, one per line.
///
/// # Panics
/// If a record cannot be represented in JSON, which does not happen.
#[must_use]
pub fn to_jsonl(records: &[Record]) -> String {
    let line =
        |record| serde_json::to_string(record).expect("records have string keys only") + "\n";
    records.iter().map(line).collect()
}

/// Reads what [`to_jsonl`] wrote.
///
/// # Errors
/// The number of the first line that is not a record, from 1, and why.
pub fn from_jsonl(text: &str) -> Result<Vec<Record>, (usize, serde_json::Error)> {
    let record = |(at, line)| serde_json::from_str(line).map_err(|error| (at + 1, error));
    text.lines().enumerate().map(record).collect()
}
