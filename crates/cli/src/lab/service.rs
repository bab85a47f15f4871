// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A victim that is a real service in a runtime of its own, driven from outside at a fixed rate. Its CPU limit is
//! calibrated to what it needs when few of its threads run at a time, so running too many threads costs latency. The
//! driver measures the latency.

use super::stage::{Job, Stage, Worker};
use super::victims::{Running, Victim, VictimSpec, WhichRun};
use crate::clock::{SECOND_NS, monotonic_ns};
use crate::sweep::load::{self, Load};
use anyhow::{Context as _, Result, bail, ensure};
use deburr_core::procfs::{cgroup_cpu, schedstat};
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Source of the Go service.
const GO_SOURCE: &str = include_str!("../../../../lab/services/fanout.go");
/// Longest time that building it may take. The first build includes Go's standard library.
const BUILD_TIMEOUT: Duration = Duration::from_secs(300);
/// Longest time until a service listens.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Period of the CPU limit, in microseconds.
const PERIOD_US: u64 = 100_000;
/// Smallest quota that the kernel accepts, in microseconds.
const MIN_QUOTA_US: u64 = 1000;
/// Length of the load before its CPU usage is measured, and of that measurement, in nanoseconds.
const WARMUP_NS: u64 = SECOND_NS;
const CALIBRATION_NS: u64 = PARTS * PART_NS;
/// The calibration has this many parts, of which the median counts. A disturbance makes each request cost more, and a
/// limit based on it would have no effect in a quieter period. A limit based on the smallest part would be used up
/// without the fault. On a quiet host, the parts of one run were measured to differ by a quarter, and one part in
/// thirty to be a sixth below all others.
const PARTS: u64 = 5;
const PART_NS: u64 = SECOND_NS / 2;
/// Length of the load before it is observed: queues must have reached their final length.
const SETTLE: Duration = Duration::from_secs(2);
/// Maximum number of requests in progress at a time.
pub(super) const CONNECTIONS: u32 = 512;

/// Parameters of the service.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServiceSpec {
    program: Program,
    /// Requests per second.
    rate_per_s: u32,
    /// Threads that its runtime runs at a time, with the fault.
    threads: u32,
    /// Threads that its runtime runs at a time, without the fault.
    control_threads: u32,
    /// Its CPU limit, in multiples of what it needs with `control_threads`.
    headroom: f64,
    /// The cgroup with the limit, below the lab's own: the victim's or an ancestor of it. Absent = the victim's.
    limit: Option<String>,
}

/// A service that spreads each request over many tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Program {
    /// `lab/services/fanout.go`, over HTTP.
    Go,
    /// Built into this program, over TCP.
    Tokio,
}

/// Counters of the periods of a CPU limit, from `cpu.stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Periods {
    /// Periods in which the cgroup had work (`nr_periods`).
    pub(crate) with_work: u64,
    /// Periods in which the cgroup was throttled (`nr_throttled`).
    pub(crate) ran_out: u64,
}

impl Periods {
    /// The counters so far of the cgroup in the directory `limit`.
    pub(super) fn of(limit: &Path) -> Result<Self> {
        let stat = limit.join("cpu.stat");
        let text = std::fs::read(&stat).with_context(|| format!("no `{}`", stat.display()))?;
        let stat = cgroup_cpu::cpu_stat(&text);
        let [with_work, ran_out] =
            [stat.nr_periods, stat.nr_throttled].map(Option::unwrap_or_default);
        Ok(Self { with_work, ran_out })
    }

    /// The difference to earlier counters.
    pub(super) fn since(self, then: Self) -> Self {
        Self { with_work: self.with_work - then.with_work, ran_out: self.ran_out - then.ran_out }
    }
}

impl Victim for ServiceSpec {
    fn validate(&self, cgroup: &str) -> Result<()> {
        for (key, value, most) in [
            ("rate_per_s", self.rate_per_s, 10_000),
            ("threads", self.threads, 1024),
            ("control_threads", self.control_threads, 1024),
        ] {
            ensure!((1..=most).contains(&value), "`victim.service.{key}` must be 1 to {most}");
        }
        ensure!((1.0..=10.0).contains(&self.headroom), "`victim.service.headroom` must be 1 to 10");
        let is_above = |limit: &String| {
            let rest = cgroup.strip_prefix(limit.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        ensure!(
            self.limit.as_ref().is_none_or(|limit| !limit.is_empty() && is_above(limit)),
            "`victim.service.limit` must be `victim.cgroup` or a part of it from the left"
        );
        Ok(())
    }

    fn threads(&self, with_faults: bool) -> u32 {
        if with_faults { self.threads } else { self.control_threads }
    }

    fn describe(&self) -> Vec<String> {
        let (what, variable) = match self.program {
            Program::Go => ("a Go service", self.variable()),
            Program::Tokio => ("a service on tokio", self.variable()),
        };
        vec![
            format!("{what}, many tasks a request, driven at {} requests/s", self.rate_per_s),
            format!(
                "{variable} is {} with the fault, {} without",
                self.threads, self.control_threads
            ),
            format!(
                "limit{}: {} times the need with {}",
                self.limit.as_ref().map_or(String::new(), |limit| format!(" of `{limit}`")),
                self.headroom,
                self.control_threads
            ),
        ]
    }

    /// Starts the service in the victim's cgroup, and drives it. The limit is calibrated in the first run and kept for
    /// the second.
    fn start(&self, spec: &VictimSpec, stage: &Stage, run: WhichRun<'_>) -> Result<Running> {
        if self.program == Program::Go {
            build(stage)?;
        }
        let quota_us = match *run.quota_us {
            Some(quota_us) => quota_us,
            None => *run.quota_us.insert(self.measure_quota_us(stage)?),
        };
        let cgroup = &spec.cgroup;
        let threads = self.threads(run.with_faults);
        let limit = stage.cgroup(self.limit.as_deref().unwrap_or(cgroup))?;
        stage.tree().set_quota(&limit, quota_us, PERIOD_US)?;
        let (service, address) = self.start_service(stage, cgroup, threads)?;
        let what = ["drive".into(), self.url(address), self.rate_per_s.to_string()];
        let measures = stage.start_one(&Job {
            comm: "driver",
            cgroup: "driver",
            cpus: None,
            nice: None,
            realtime: false,
            what: &what,
        })?;
        stage.settle(SETTLE)?;
        Ok(Running { pid: service.pid(), measures, beside: Some(service), limit: Some(limit) })
    }
}

/// The file of the program that is built for a service in Go.
pub(super) fn program(stage: &Stage) -> PathBuf {
    stage.scratch("victim")
}

impl ServiceSpec {
    /// Whether its program is built.
    pub(super) fn builds_program(&self) -> bool {
        self.program == Program::Go
    }

    /// The environment variable that sets how many threads run at a time.
    fn variable(&self) -> &'static str {
        match self.program {
            Program::Go => "GOMAXPROCS",
            Program::Tokio => "TOKIO_WORKER_THREADS",
        }
    }

    /// Calibrates the quota, in microseconds: CPU usage at this rate with `control_threads` and up to one CPU, times
    /// `headroom`.
    fn measure_quota_us(&self, stage: &Stage) -> Result<u64> {
        let cgroup = "calibration";
        stage.tree().set_quota(&stage.cgroup(cgroup)?, PERIOD_US, PERIOD_US)?;
        let (service, address) = self.start_service(stage, cgroup, self.control_threads)?;
        let start_ns = monotonic_ns();
        let from_ns = start_ns + WARMUP_NS;
        let to_ns = from_ns + CALIBRATION_NS;
        let target = crate::sweep::address::parse(&self.url(address), false);
        let load = Load {
            target: target.map_err(anyhow::Error::msg)?.target,
            rate_per_s: self.rate_per_s.into(),
            start_ns,
            from_ns,
            to_ns,
            drain_ns: load::drain_ns(CALIBRATION_NS),
            max_connections: CONNECTIONS,
        };
        let (outcome, used_ns) = std::thread::scope(|scope| {
            let used = scope.spawn(|| used_in_middle_ns(service.pid(), from_ns));
            (load::drive(&load, &|| stage.is_stopped()), used.join().unwrap_or_default())
        });
        let outcome = outcome?;
        stage.settle(Duration::ZERO)?;
        let requests = &outcome.requests;
        if requests.answered * 10 < requests.due * 9 {
            bail!(
                "the service answers {} of {} requests even with a whole CPU: this host is too slow or too busy",
                requests.answered,
                requests.due
            );
        }
        let cpus = used_ns as f64 / PART_NS as f64;
        Ok(((cpus * self.headroom * PERIOD_US as f64) as u64).max(MIN_QUOTA_US))
    }

    fn start_service(
        &self,
        stage: &Stage,
        cgroup: &str,
        threads: u32,
    ) -> Result<(Worker, SocketAddr)> {
        let dir = stage.cgroup(cgroup)?;
        // The port was free just now, and no other process is expected to take it.
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port is free")?;
        let address = free.local_addr()?;
        drop(free);
        let port = address.port().to_string();
        let words = match self.program {
            Program::Go => vec![program(stage).display().to_string(), port],
            Program::Tokio => {
                let program = std::env::current_exe()?.display().to_string();
                let words = ["lab-worker", "--comm=victim", "fanout", "--port", &port];
                std::iter::once(program).chain(words.map(str::to_owned)).collect()
            }
        };
        let environment = [(self.variable(), threads.to_string())];
        let mut service = stage.start_program(&dir, &words, &environment)?;
        let deadline = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(address).is_err() {
            ensure!(service.still_runs()?, "the service ended before it listened, see above");
            ensure!(Instant::now() < deadline, "the service does not listen at {address}");
            stage.settle(Duration::from_millis(20))?;
        }
        Ok((service, address))
    }

    fn url(&self, address: SocketAddr) -> String {
        match self.program {
            Program::Go => format!("http://{address}/work"),
            Program::Tokio => format!("tcp://{address}"),
        }
    }
}

fn build(stage: &Stage) -> Result<()> {
    let (source, program) = (stage.scratch("fanout.go"), program(stage));
    std::fs::write(&source, GO_SOURCE)
        .with_context(|| format!("cannot write `{}`", source.display()))?;
    let arguments = ["build".as_ref(), "-o".as_ref(), program.as_path(), source.as_path()];
    stage.tool_within("go", &arguments, BUILD_TIMEOUT)?;
    Ok(())
}

/// CPU time of a process in a part of the calibration, in nanoseconds: the median over the parts.
fn used_in_middle_ns(pid: u32, from_ns: u64) -> u64 {
    let used_by = |at_ns: u64| {
        std::thread::sleep(Duration::from_nanos(at_ns.saturating_sub(monotonic_ns())));
        (monotonic_ns(), cpu_ns(pid))
    };
    let marks: Vec<_> = (0..=PARTS).map(|part| used_by(from_ns + part * PART_NS)).collect();
    let mut parts_ns: Vec<u64> = std::iter::zip(&marks, &marks[1..])
        .map(|((begin_ns, before_ns), (end_ns, after_ns))| {
            let cpus =
                after_ns.saturating_sub(*before_ns) as f64 / (end_ns - begin_ns).max(1) as f64;
            (cpus * PART_NS as f64) as u64
        })
        .collect();
    parts_ns.sort_unstable();
    parts_ns[parts_ns.len() / 2]
}

/// CPU time of a process's threads, in nanoseconds. The threads of these services do not end.
fn cpu_ns(pid: u32) -> u64 {
    let of = |task: &Path| {
        let text = std::fs::read(task.join("schedstat")).ok()?;
        Some(schedstat::parse(&text).ok()?.on_cpu_ns)
    };
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| of(&task.path())).sum()
}
