// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a probe costs the host, and what it lost, second by second.

use deburr_bpf::{RunStats, TimedRuns};
use deburr_core::recording::ObserverTick;
use std::collections::BTreeMap;

/// The kernel times BPF runs for one bin of 100 ms in this many seconds: timing itself costs some 50 ns a run, and
/// turning it on patches the kernel's code.
const SAMPLE_EVERY_S: u32 = 10;

/// Cost counters of a probe. They only grow.
pub(super) trait CostCounters {
    /// Runs of its programs.
    fn runs(&self) -> u64;
    /// Runs that the kernel timed; `None` = the kernel does not report them.
    fn timed_runs(&self) -> Option<TimedRuns>;
    /// Kernel memory of its maps, in bytes.
    fn map_bytes(&self) -> u64;
    /// What was lost, by name.
    fn lost(&self) -> BTreeMap<String, u64>;
}

/// The cost of a probe since the last record.
#[derive(Debug, Default)]
pub(super) struct Cost {
    t0_ns: u64,
    seconds: u32,
    runs: u64,
    lost: BTreeMap<String, u64>,
    sampling: Option<(RunStats, TimedRuns)>,
    /// The timed runs of all samples.
    sampled: TimedRuns,
}

impl Cost {
    /// Starts at the beginning of the window: earlier cost does not count. `extra` are cumulative losses of the reader.
    pub(super) fn begin(&mut self, probe: &impl CostCounters, extra: &[(&str, u64)]) {
        self.runs = probe.runs();
        self.lost = all_lost(probe, extra);
        self.sample(probe);
    }

    fn sample(&mut self, probe: &impl CostCounters) {
        // Where timing is not permitted, the cost of a run stays unknown and is reported as such.
        if let (Ok(stats), Some(before)) = (RunStats::start(), probe.timed_runs()) {
            self.sampling = Some((stats, before));
        }
    }

    /// Ends a sample that is in progress.
    pub(super) fn bin(&mut self, probe: &impl CostCounters) {
        let Some((stats, before)) = self.sampling.take() else { return };
        drop(stats);
        if let Some(after) = probe.timed_runs() {
            self.sampled.ns += after.ns - before.ns;
            self.sampled.runs += after.runs - before.runs;
        }
    }

    /// The record of the second that ends at `t_ns`. `extra` are cumulative losses of the reader.
    pub(super) fn second(
        &mut self,
        probe: &impl CostCounters,
        t_ns: u64,
        extra: &[(&str, u64)],
    ) -> ObserverTick {
        let runs = probe.runs();
        let lost = all_lost(probe, extra);
        let tick = ObserverTick {
            t0_ns: self.t0_ns,
            t1_ns: t_ns,
            bpf_runs: runs - self.runs,
            bpf_run_ns: (self.sampled.runs > 0).then(|| {
                let per_run = self.sampled.ns as f64 / self.sampled.runs as f64;
                ((runs - self.runs) as f64 * per_run) as u64
            }),
            bpf_map_bytes: probe.map_bytes(),
            lost: since(&lost, &self.lost),
            ..ObserverTick::default()
        };
        (self.t0_ns, self.runs, self.lost) = (t_ns, runs, lost);
        self.seconds += 1;
        if self.seconds.is_multiple_of(SAMPLE_EVERY_S) {
            self.sample(probe);
        }
        tick
    }
}

fn all_lost(probe: &impl CostCounters, extra: &[(&str, u64)]) -> BTreeMap<String, u64> {
    let mut lost = probe.lost();
    for &(name, count) in extra.iter().filter(|(_, count)| *count > 0) {
        lost.insert(name.into(), count);
    }
    lost
}

fn since(now: &BTreeMap<String, u64>, before: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    now.iter()
        .map(|(name, count)| (name.clone(), count - before.get(name).unwrap_or(&0)))
        .filter(|(_, count)| *count > 0)
        .collect()
}
