// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who of several processes of one name it is.

use crate::recording::Scheduling;
use serde::{Deserialize, Serialize};

/// How the part of an entity that stands for processes is spread over them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Whom {
    /// How many processes there are of that name and cgroup.
    pub of: u32,
    /// The smallest number of them that carries most of the entity's part: four fifths of it.
    pub carriers: u32,
    /// What these carry of the entity's part, 0..1.
    pub carriers_share: f64,
    /// Whether they are but few.
    pub few: bool,
    /// Those with the largest parts, largest first.
    pub processes: Vec<Carrier>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Carrier {
    /// Its pid.
    pub pid: u32,
    /// Its share of the entity's part, 0..1.
    pub share: f64,
    /// What tells it from others of its name: script, module, jar or class, else arguments that only it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<String>,
    /// How its threads are scheduled, those that ran most first; empty where that is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scheduling: Vec<Scheduling>,
}

impl Carrier {
    /// The kind of its threads that did most of what it did; `None` where that is not known.
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
