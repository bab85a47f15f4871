// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which of several processes with the same name carry most of the blame.

use crate::recording::Scheduling;
use serde::{Deserialize, Serialize};

/// Distribution of a group's share of the blame over the processes of the group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BlameDistribution {
    /// Number of processes in the group, which have the same name and cgroup.
    pub of: u32,
    /// Smallest number of processes that together carry most of the group's blame: four fifths of it.
    pub carriers: u32,
    /// Part of the group's blame that these processes carry, 0..1.
    pub carriers_share: f64,
    /// Whether these processes are a small part of the group: a single one, or at most a third of it.
    pub few: bool,
    /// The processes with the largest shares, largest first.
    pub processes: Vec<BlamedProcess>,
}

/// A process of the group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BlamedProcess {
    /// Process id.
    pub pid: u32,
    /// Its share of the group's blame, 0..1.
    pub share: f64,
    /// What distinguishes it from other processes of the same name: for interpreters the script, module, jar or class
    /// that it runs, for other programs the arguments that only it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<String>,
    /// How its threads are scheduled, those that ran most first; empty where that is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scheduling: Vec<Scheduling>,
}

impl BlamedProcess {
    /// Scheduling of the threads that used at least half of the process's CPU time; `None` where that is not known.
    #[must_use]
    pub fn doer(&self) -> Option<&Scheduling> {
        let all_ns: u64 = self.scheduling.iter().map(|kind| kind.ran_ns).sum();
        match self.scheduling.as_slice() {
            [only] => Some(only),
            [first, ..] if all_ns > 0 && first.ran_ns >= all_ns / 2 => Some(first),
            _ => None,
        }
    }
}
