// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A path that loses segments: a token bucket with a short queue, which datagrams of somebody else keep full.

use super::Fault;
use crate::lab::network::{NetworkArgs, PATH_DEVICE, PATH_THREAD};
use crate::lab::scenario::{check_cgroup, check_comm};
use crate::lab::stage::{Job, Stage};
use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// Datagrams of 500 bytes, and the time between two bursts of them, in microseconds: 30 Mbit/s. A short queue is full
/// again before there is room in it for more than one large segment.
const DATAGRAMS: u32 = 50;
const PERIOD_US: u64 = 7_000;
/// Port to which they are sent, where nobody listens.
const PORT: u16 = 9;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LossyPath {
    /// Rate of the path, in kbit/s.
    rate_kbit: u32,
    /// Bytes that may wait; what comes when they do is dropped.
    queue_bytes: u32,
    /// Comm of the process that sends the datagrams.
    comm: String,
    /// Its cgroup, below the lab's own.
    cgroup: String,
}

impl Fault for LossyPath {
    fn validate(&self) -> Result<()> {
        check_comm("fault.comm", &self.comm)?;
        check_cgroup("fault.cgroup", &self.cgroup)?;
        ensure!(
            (100..=10_000_000).contains(&self.rate_kbit),
            "`fault.rate_kbit` must be 100 to 10000000"
        );
        ensure!(
            (3000..=10_000_000).contains(&self.queue_bytes),
            "`fault.queue_bytes` must be 3000 to 10000000"
        );
        Ok(())
    }

    fn describe(&self, _cpus: usize) -> String {
        format!(
            "a path of {} kbit/s with a queue of {} bytes, which `{}` in cgroup `{}` fills",
            self.rate_kbit, self.queue_bytes, self.comm, self.cgroup
        )
    }

    fn comm(&self) -> Option<&str> {
        Some(&self.comm)
    }

    fn inject(&self, stage: &mut Stage) -> Result<()> {
        // The network namespaces, and with them the queue, end with the victim.
        let victim = stage.place.victim()?;
        let namespace = format!("--net={}", path(victim)?.join("ns/net").display());
        let (rate, queue) = (format!("{}kbit", self.rate_kbit), self.queue_bytes.to_string());
        let words = [
            &*namespace,
            "tc",
            "qdisc",
            "add",
            "dev",
            PATH_DEVICE,
            "root",
            "tbf",
            "rate",
            &rate,
            "burst",
            "3000",
            "limit",
            &queue,
        ];
        stage.tool("nsenter", &words.map(Path::new)).context("cannot make the path lossy")?;
        let mut what = NetworkArgs::words("floods", DATAGRAMS, PERIOD_US, PORT);
        what.push(format!("--beside={victim}"));
        stage.start(&[Job {
            comm: &self.comm,
            cgroup: &self.cgroup,
            cpus: None,
            nice: None,
            realtime: false,
            what: &what,
        }])
    }
}

/// The directory in `/proc` of the victim's thread in whose network namespace the bridge is.
fn path(victim: u32) -> Result<PathBuf> {
    let tasks = std::fs::read_dir(format!("/proc/{victim}/task"))?.flatten();
    let is_it = |task: &PathBuf| {
        let name = std::fs::read_to_string(task.join("comm"));
        name.is_ok_and(|name| name.trim_end() == PATH_THREAD)
    };
    tasks.map(|task| task.path()).find(is_it).context("the victim has no path")
}
