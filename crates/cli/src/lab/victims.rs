// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What suffers in a scenario: the kinds of victims, one per file, and how a scenario file chooses one.

use super::computes::ComputesSpec;
use super::crew::CrewSpec;
use super::event_loop::LoopSpec;
use super::exchange::ExchangeSpec;
use super::heap::HeapSpec;
use super::io::BrokerSpec;
use super::network::NetworkSpec;
use super::reader::ReaderSpec;
use super::scenario::{check_cgroup, check_cpus};
use super::service::{Periods, ServiceSpec};
use super::stage::{Job, Stage, Worker};
use super::victim::{Demand, Summary, Window};
use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use std::path::PathBuf;

/// The process that is observed, as scenario files write it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VictimSpec {
    /// Its cgroup, below the lab's own.
    pub(crate) cgroup: String,
    /// CPUs that it may use, as indices from 0 into the CPUs that the lab may use. Absent = all.
    pub(crate) cpus: Option<Vec<usize>>,
    /// Number of threads that serve requests to themselves.
    #[serde(default)]
    pub(crate) threads: u32,
    /// CPU time of a request, in microseconds.
    #[serde(default)]
    pub(crate) work_us: u64,
    /// Time from one request to the next of the same thread, in microseconds. 0 = back to back.
    #[serde(default)]
    period_us: u64,
    /// Instead of the three fields above: a broker, which writes to the disk.
    broker: Option<BrokerSpec>,
    /// Or a service in a runtime of its own. Its fault is the number of threads that run at a time.
    service: Option<ServiceSpec>,
    /// Or a process that reads a file of the lab.
    reader: Option<ReaderSpec>,
    /// Or one whose threads wait for each other. Its fault is how long.
    crew: Option<CrewSpec>,
    /// Or one that needs a backend. Its fault is how long that takes.
    exchange: Option<ExchangeSpec>,
    /// Or an event loop with clients. Its fault is a request that occupies it for long.
    #[serde(rename = "loop")]
    event_loop: Option<LoopSpec>,
    /// Or a process that sends or receives over the network.
    network: Option<NetworkSpec>,
    /// Or a process that computes all the time, and notices when it stands still.
    computes: Option<ComputesSpec>,
    /// Or one whose memory grows.
    heap: Option<HeapSpec>,
}

impl VictimSpec {
    /// Rejects parameters that cannot work.
    pub(super) fn validate(&self) -> Result<()> {
        check_cgroup("victim.cgroup", &self.cgroup)?;
        check_cpus("victim.cpus", self.cpus.as_deref())?;
        let others = [
            ("broker", self.broker.is_some()),
            ("service", self.service.is_some()),
            ("reader", self.reader.is_some()),
            ("crew", self.crew.is_some()),
            ("exchange", self.exchange.is_some()),
            ("loop", self.event_loop.is_some()),
            ("network", self.network.is_some()),
            ("computes", self.computes.is_some()),
            ("heap", self.heap.is_some()),
        ];
        let chosen: Vec<&str> = others.iter().filter(|it| it.1).map(|it| it.0).collect();
        if let [key] = *chosen {
            let own_work = (self.threads, self.work_us, self.period_us) != (0, 0, 0);
            ensure!(!own_work, "`victim.{key}` has no `threads`, `work_us` and `period_us`");
        } else if !chosen.is_empty() {
            bail!(
                "`victim` is a `broker`, a `service`, a `reader`, a `crew`, an `exchange`, a `loop`, of the `network`, a `heap` or `computes`"
            );
        }
        self.as_victim().validate(&self.cgroup)
    }

    /// Whether the lab builds a program for it.
    pub(super) fn has_program(&self) -> bool {
        self.service.as_ref().is_some_and(ServiceSpec::builds_program)
    }

    pub(crate) fn as_victim(&self) -> Box<dyn Victim> {
        if let Some(broker) = &self.broker {
            Box::new(broker.clone())
        } else if let Some(service) = &self.service {
            Box::new(service.clone())
        } else if let Some(reader) = &self.reader {
            Box::new(reader.clone())
        } else if let Some(crew) = &self.crew {
            Box::new(crew.clone())
        } else if let Some(exchange) = &self.exchange {
            Box::new(exchange.clone())
        } else if let Some(event_loop) = &self.event_loop {
            Box::new(event_loop.clone())
        } else if let Some(network) = &self.network {
            Box::new(network.clone())
        } else if let Some(computes) = &self.computes {
            Box::new(computes.clone())
        } else if let Some(heap) = &self.heap {
            Box::new(heap.clone())
        } else {
            let Self { threads, work_us, period_us, .. } = *self;
            Box::new(Demand { threads, work_us, period_us })
        }
    }

    /// Starts a victim that measures itself, as a worker with this task.
    pub(super) fn start_worker(&self, stage: &Stage, what: &[String]) -> Result<Running> {
        let measures = stage.start_one(&Job {
            comm: "victim",
            cgroup: &self.cgroup,
            cpus: self.cpus.as_deref(),
            nice: None,
            realtime: false,
            what,
        })?;
        Ok(Running { pid: measures.pid(), measures, beside: None, limit: None })
    }
}

/// A kind of victim.
pub(crate) trait Victim {
    /// Rejects parameters that cannot work. `cgroup` is the victim's.
    fn validate(&self, cgroup: &str) -> Result<()>;

    /// A description in words, one line each.
    fn describe(&self) -> Vec<String>;

    /// Number of its threads that may run at a time; 0 = not known.
    fn threads(&self, _with_faults: bool) -> u32 {
        0
    }

    /// Whether it needs a directory for files: a disk of the lab or of the host.
    fn needs_files(&self) -> bool {
        false
    }

    /// Whether it measures how long it waits for a CPU.
    fn measures_waiting(&self) -> bool {
        false
    }

    /// Whether it measures how long its syncs take.
    fn measures_syncs(&self) -> bool {
        false
    }

    /// Makes what it needs before it starts.
    fn prepare(&self, _stage: &mut Stage) -> Result<()> {
        Ok(())
    }

    /// Starts it, in the place that `spec` gives.
    fn start(&self, spec: &VictimSpec, stage: &Stage, run: WhichRun<'_>) -> Result<Running>;
}

/// Which of a scenario's two runs a victim is started for.
pub(crate) struct WhichRun<'a> {
    /// Whether it is the run with faults.
    pub(crate) with_faults: bool,
    /// The calibrated CPU limit, in microseconds per period, which both runs share; `None` until it is measured.
    pub(crate) quota_us: &'a mut Option<u64>,
}

/// A victim that runs. Dropping it ends its processes.
pub(crate) struct Running {
    /// Process id of the observed process.
    pub(super) pid: u32,
    /// The process that measures its latency: the victim itself, or its driver.
    pub(super) measures: Worker,
    /// The victim, if it does not measure itself, or what it needs.
    #[expect(dead_code, reason = "runs as long as it is kept")]
    pub(super) beside: Option<Worker>,
    /// Directory of the cgroup with its CPU limit, if the lab calibrates one.
    pub(super) limit: Option<PathBuf>,
}

impl Running {
    /// Lets it begin to work and to measure.
    pub(super) fn begin(&mut self) -> Result<()> {
        self.measures.tell("start")
    }

    /// Ends its work and returns what it measured in that window.
    pub(super) fn summary(&mut self, window: Window) -> Result<Summary> {
        let answer = self.measures.ask(&window.to_string())?;
        serde_json::from_str(&answer).context("the victim wrote no summary")
    }

    /// The periods of its CPU limit so far; `None` if the lab calibrates none.
    pub(super) fn periods(&self) -> Result<Option<Periods>> {
        self.limit.as_deref().map(Periods::of).transpose()
    }
}
