// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What does a run cost? Reads the cgroup's counters at both ends of the window, and samples memory and threads
//! within it.

use super::cgroups::RunGroup;
use crate::clock::{monotonic_ns, sleep_until};
use anyhow::Result;
use deburr_core::procfs::pid;
use deburr_core::sweep::{Switches, Throttling};
use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

/// Interval between two samples of memory and threads.
const LOOK_NS: u64 = 100_000_000;

/// Cost of a window.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cost {
    /// CPU time of the cgroup, in nanoseconds.
    pub(crate) cpu_ns: u64,
    /// Greatest sampled sum of the processes' resident set sizes, in bytes.
    pub(crate) memory_bytes: Option<u64>,
    /// Greatest sampled number of threads.
    pub(crate) threads: Option<u64>,
    /// Counters of the CPU limit; `None` without a limit.
    pub(crate) throttling: Option<Throttling>,
    /// Context switches of all threads that were sampled.
    pub(crate) switches: Option<Switches>,
}

/// Measures the cost of what runs in a cgroup.
#[derive(Debug)]
pub(crate) struct Meter<'a> {
    group: &'a RunGroup,
    cpu_ns: u64,
    throttling: Option<Throttling>,
    memory_bytes: Option<u64>,
    threads: Option<u64>,
    /// By thread id: its counters at the start (0 for a thread that began later) and at its last sample.
    switches: BTreeMap<u32, (Switches, Switches)>,
}

impl<'a> Meter<'a> {
    /// Begins to measure. What ran in the cgroup before does not count.
    pub(crate) fn start(group: &'a RunGroup) -> Result<Self> {
        let mut meter = Self {
            group,
            cpu_ns: group.cpu_ns()?,
            throttling: group.throttling(),
            memory_bytes: None,
            threads: None,
            switches: BTreeMap::new(),
        };
        meter.look(true);
        Ok(meter)
    }

    /// Measures from one timestamp of `CLOCK_MONOTONIC` to another, or until `stopped` is set.
    pub(crate) fn over(
        group: &'a RunGroup,
        (from_ns, to_ns): (u64, u64),
        stopped: &AtomicBool,
    ) -> Result<Cost> {
        let mut meter: Option<Self> = None;
        while !stopped.load(Ordering::Relaxed) {
            let now_ns = monotonic_ns();
            if now_ns >= to_ns {
                break;
            }
            let next_ns = match &mut meter {
                Some(meter) => {
                    meter.look(false);
                    to_ns
                }
                None if now_ns < from_ns => from_ns,
                None => {
                    meter = Some(Self::start(group)?);
                    to_ns
                }
            };
            sleep_until(next_ns.min(now_ns + LOOK_NS));
        }
        meter.map_or_else(|| Ok(Cost::default()), Self::end)
    }

    /// Samples what the cgroup's counters do not cover. Except in the `first` sample, a thread seen for the first
    /// time has started since the previous sample, so that all its context switches count.
    pub(crate) fn look(&mut self, first: bool) {
        let (mut memory_bytes, mut threads) = (0, 0);
        for pid in self.group.pids() {
            let Ok(text) = fs::read(format!("/proc/{pid}/status")) else { continue };
            let status = pid::status(&text);
            memory_bytes += status.rss_bytes.unwrap_or(0);
            threads += status.threads.unwrap_or(0);
            for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
                let name = task.file_name();
                let Some(tid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
                let Ok(text) = fs::read(task.path().join("status")) else { continue };
                let status = pid::status(&text);
                let counted = status.voluntary_switches.zip(status.involuntary_switches);
                let Some((voluntary, involuntary)) = counted else { continue };
                let now = Switches { voluntary, involuntary };
                let new = if first { now } else { Switches { voluntary: 0, involuntary: 0 } };
                self.switches.entry(tid).or_insert((new, now)).1 = now;
            }
        }
        if threads > 0 {
            self.memory_bytes = self.memory_bytes.max(Some(memory_bytes));
            self.threads = self.threads.max(Some(threads));
        }
    }

    /// Ends the measurement.
    pub(crate) fn end(mut self) -> Result<Cost> {
        let cpu_ns = self.group.cpu_ns()?.saturating_sub(self.cpu_ns);
        let throttling =
            self.throttling.zip(self.group.throttling()).map(|(before, after)| Throttling {
                periods: after.periods.saturating_sub(before.periods),
                throttled: after.throttled.saturating_sub(before.throttled),
                throttled_ns: after.throttled_ns.saturating_sub(before.throttled_ns),
            });
        self.look(false);
        let sum = |of: fn(&Switches) -> u64| {
            self.switches.values().map(|(from, to)| of(to).saturating_sub(of(from))).sum()
        };
        let switches =
            Switches { voluntary: sum(|it| it.voluntary), involuntary: sum(|it| it.involuntary) };
        Ok(Cost {
            cpu_ns,
            memory_bytes: self.memory_bytes,
            threads: self.threads,
            throttling,
            switches: (!self.switches.is_empty()).then_some(switches),
        })
    }
}
