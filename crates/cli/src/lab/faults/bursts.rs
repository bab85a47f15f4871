// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process that sends much at once over the network: datagrams, or requests for connections, as clients do after a restart
//! of what is before a service.

use super::Fault;
use crate::lab::network::NetworkArgs;
use crate::lab::scenario::{check_cgroup, check_comm, check_period_us};
use crate::lab::stage::{Job, Stage};
use anyhow::{Result, ensure};
use serde::Deserialize;

/// What comes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum What {
    Connections,
    Datagrams,
}

impl What {
    /// What the process is told to do, and what it does in words.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Connections => ("connects", "clients connect"),
            Self::Datagrams => ("floods", "datagrams are sent"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bursts {
    /// Comm of the process.
    comm: String,
    /// Its cgroup, below the lab's own.
    cgroup: String,
    what: What,
    /// How many of them come at once.
    count: u32,
    /// Time from one burst to the next, in microseconds.
    period_us: u64,
}

impl Fault for Bursts {
    fn validate(&self) -> Result<()> {
        check_comm("fault.comm", &self.comm)?;
        check_cgroup("fault.cgroup", &self.cgroup)?;
        check_period_us("fault.period_us", self.period_us)?;
        ensure!((1..=1000).contains(&self.count), "`fault.count` must be 1 to 1000");
        Ok(())
    }

    fn describe(&self, _cpus: usize) -> String {
        format!(
            "{} {} at once to the victim every {} ms, by `{}` in cgroup `{}`",
            self.count,
            self.what.words().1,
            self.period_us as f64 / 1000.0,
            self.comm,
            self.cgroup
        )
    }

    fn comm(&self) -> Option<&str> {
        Some(&self.comm)
    }

    fn inject(&self, stage: &mut Stage) -> Result<()> {
        let does = self.what.words().0;
        let what = NetworkArgs::words(does, self.count, self.period_us, stage.place.port()?);
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
