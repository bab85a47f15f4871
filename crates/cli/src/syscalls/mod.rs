// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures system calls: of a command that is started for it, or of processes that run already.

mod command;
mod counted;
mod threads;

pub(crate) use command::{FinishedRun, RunError, run_command};
pub(crate) use counted::{GroupCounts, since};

use crate::collect::{Roots, possible_cpus};
use deburr_bpf::facts::facts;
use deburr_bpf::syscalls::{Reading, SyscallPlan, SyscallProbe};

/// The highest number of pids that a kernel can have, `PID_MAX_LIMIT` in `include/linux/threads.h`.
const MAX_PIDS: u32 = 1 << 22;

/// The probe, attached.
pub(crate) struct Meter {
    probe: SyscallProbe,
    roots: Roots,
    /// Whether waiting for a CPU is distinguished from being blocked.
    pub(crate) waits_known: bool,
}

impl Meter {
    /// Attaches the probe; no process is watched yet. `groups` of processes are kept apart. `Err` = why it cannot be
    /// used, as part of a sentence.
    pub(crate) fn open(roots: &Roots, groups: u32) -> Result<Self, String> {
        let plan = SyscallPlan::new(&facts())?;
        let pids = std::fs::read_to_string(roots.proc.join("sys/kernel/pid_max"));
        let pids = pids.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(MAX_PIDS);
        let probe = SyscallProbe::open(&plan, possible_cpus(roots), pids, groups)?;
        Ok(Self { probe, roots: roots.clone(), waits_known: plan.run_delay })
    }

    /// Watches all threads of these processes from now on, and all that they start. Returns how many threads there
    /// were.
    pub(crate) fn watch(&self, pids: &[u32], group: u32) -> usize {
        threads::watch(&self.probe, &self.roots, pids, group)
    }

    /// Whether any thread is still watched.
    pub(crate) fn watches_any(&self) -> bool {
        self.probe.watches_any()
    }

    /// Stops watching all threads.
    pub(crate) fn forget_all(&self) {
        self.probe.forget_all();
    }

    /// Whether processes that the calling thread starts are watched, from their `exec` on.
    fn starts(&mut self, on: bool) {
        let own = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        self.probe.starts_by(on.then_some(own));
    }

    /// Reads the counts so far.
    pub(crate) fn read(&self) -> Result<Reading, String> {
        self.probe.read()
    }
}
