// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Notices that the target's last process is gone.

use crate::collect::Roots;
use deburr_core::recording::{Record, TargetSpec};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Looks in this many seconds in a row find no living process before the target counts as gone: a new one
/// (a restarted service) may not have been met yet.
const LOOKS: u32 = 2;

/// Follows the processes of the target, as the collectors meet them.
#[derive(Debug)]
pub(crate) struct TargetWatch {
    /// `None` = the target cannot go away.
    alive: Option<BTreeSet<u32>>,
    proc: PathBuf,
    empty_looks: u32,
}

impl TargetWatch {
    /// Watches that target.
    pub(crate) fn new(target: &TargetSpec, roots: &Roots) -> Self {
        let alive = match target {
            TargetSpec::Host => None,
            TargetSpec::Process { pid, .. } | TargetSpec::Command { pid, .. } => {
                Some(BTreeSet::from([*pid]))
            }
            _ => Some(BTreeSet::new()),
        };
        Self { alive, proc: roots.proc.clone(), empty_looks: 0 }
    }

    /// Learns of processes.
    pub(crate) fn see(&mut self, record: &Record) {
        if let (Some(alive), Record::Process(process)) = (&mut self.alive, record)
            && process.in_target
        {
            alive.insert(process.pid);
        }
    }

    /// Looks for one that lives. Once a second; mostly one look into `/proc`.
    pub(crate) fn look(&mut self) {
        let Some(alive) = &mut self.alive else { return };
        while let Some(&pid) = alive.first() {
            if self.proc.join(pid.to_string()).exists() {
                self.empty_looks = 0;
                return;
            }
            alive.pop_first();
        }
        self.empty_looks += 1;
    }

    /// Whether there is none any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.empty_looks >= LOOKS
    }
}
