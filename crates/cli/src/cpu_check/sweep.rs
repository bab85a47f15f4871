// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sweep: steps with more and more workers at once, placed on CPUs by the scheduler.

use super::Check;
use super::worker::{Account, Slot};
use crate::clock;
use crate::collect::Beat;
use crate::failure::{Exit, Failure};
use deburr_core::cpu_check::schedule;
use deburr_core::recording::{CpuCheckRecord, SweepWorker};
use std::thread;

/// Time to start each worker, and additional time for the first one.
const START_NS: u64 = 100_000;
const FIRST_NS: u64 = 3_000_000;

impl Check<'_> {
    pub(super) fn sweep(&mut self) -> anyhow::Result<()> {
        let plan = schedule::sweep(self.cpus.len(), &self.budget);
        let steps = plan.workers.len() as u64;
        self.progress.stage("sweep", 2 * steps * plan.step_ns);
        for (at, &workers) in plan.workers.iter().enumerate() {
            self.progress.at(2 * at as u64 * plan.step_ns, &format!("{workers} at once"));
            let slot = self.step(workers, plan.step_ns)?;
            self.read_stat(Beat::Second);
            self.rest_until(slot.to_ns + plan.step_ns);
            if self.halt.is_on() {
                break;
            }
        }
        Ok(())
    }

    /// One step. A step that a signal ended is not recorded.
    fn step(&mut self, workers: u32, step_ns: u64) -> anyhow::Result<Slot> {
        let from_ns = clock::monotonic_ns() + FIRST_NS + u64::from(workers) * START_NS;
        let slot = Slot { from_ns, to_ns: from_ns + step_ns };
        let (chunk, halt) = (self.adds, self.halt);
        let work = move || {
            let mut account = Account::default();
            account.work(slot, chunk, halt);
            account
        };
        let accounts = thread::scope(|scope| {
            let start =
                |_| thread::Builder::new().name("cpu-check".into()).spawn_scoped(scope, work);
            let started: Vec<_> = (0..workers).map(start).collect();
            let join = |handle: thread::ScopedJoinHandle<'_, Account>| handle.join();
            started.into_iter().map(|handle| handle.map(join)).collect::<Vec<_>>()
        });
        if self.halt.is_on() {
            return Ok(slot);
        }
        let (t0_ns, t1_ns) = (self.since_start(slot.from_ns), self.since_start(slot.to_ns));
        for (worker, account) in (0..workers).zip(accounts) {
            let Ok(account) = account.map_err(no_thread)? else { continue };
            let record = SweepWorker {
                t0_ns,
                t1_ns,
                workers,
                worker,
                run: account.run(),
                migrations: account.migrations,
                cpu: account.cpu.unwrap_or_default(),
            };
            self.push(CpuCheckRecord::Worker(record));
        }
        Ok(slot)
    }
}

/// The error when a thread cannot be started: their number is limited.
pub(super) fn no_thread(error: std::io::Error) -> anyhow::Error {
    Failure::error(
        Exit::Missing,
        format!("cannot start a thread: {error}; look at `ulimit -u` and `pids.max` of its cgroup"),
    )
}
