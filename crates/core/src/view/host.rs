// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Totals of the host: CPU time, pressure, and load in bins of 100 ms; and the overhead of the observer.

use super::{Counter, Series};
use crate::recording::{CpuReading, LoadBin, ObserverTick, PsiReading};
use std::collections::BTreeMap;

/// Maximum number of bins of a load series: at first 100 ms each (two minutes), then merged in pairs.
const LOAD_SERIES_BINS: u32 = 1200;

/// Minimum time between two readings for a share of steal: the counter advances in steps of 10 ms.
const MIN_SPAN_NS: u64 = 500_000_000;

/// Maximum number of bins of a CPU's series: at first one per second, then merged in pairs.
const CPU_SERIES_BINS: u32 = 128;

/// Time counters of one CPU, from its line of `/proc/stat`.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuView {
    /// user + nice + system + irq + softirq.
    pub busy_ns: Counter,
    /// idle + iowait.
    pub idle_ns: Counter,
    /// steal.
    pub steal_ns: Counter,
    /// steal over time.
    pub stolen: Series,
    /// Time in which the CPU had something to run (busy + steal), over time.
    pub wanted: Series,
    /// Timestamp, steal and busy time of the last reading.
    last: Option<(u64, u64, u64)>,
    /// Idle time without iowait, and the sum of both, of the last reading.
    last_idle: (u64, u64),
    /// Largest share of steal in the wall time between two readings.
    most_stolen: Option<f64>,
}

impl Default for CpuView {
    fn default() -> Self {
        let series = || Series::new(1_000_000_000, CPU_SERIES_BINS);
        Self {
            busy_ns: Counter::default(),
            idle_ns: Counter::default(),
            steal_ns: Counter::default(),
            stolen: series(),
            wanted: series(),
            last: None,
            last_idle: (0, 0),
            most_stolen: None,
        }
    }
}

impl CpuView {
    pub(super) fn push(&mut self, reading: &CpuReading) {
        let busy_ns = reading.user_ns + reading.system_ns + reading.irq_ns;
        self.busy_ns.push(Some(busy_ns));
        // iowait of one CPU may go backwards, by more than its idle time went on: a task that waited for IO there is woken
        // on another CPU. That is no reset of the counter, as long as the idle time itself goes on.
        let (last_ns, last_sum_ns) = self.last_idle;
        let sum_ns = reading.idle_ns + reading.iowait_ns;
        let sum_ns = if reading.idle_ns >= last_ns { sum_ns.max(last_sum_ns) } else { sum_ns };
        self.last_idle = (reading.idle_ns, sum_ns);
        self.idle_ns.push(Some(sum_ns));
        self.steal_ns.push(Some(reading.steal_ns));
        if let Some((t_ns, steal_ns, last_busy_ns)) = self.last {
            let stolen_ns = reading.steal_ns.saturating_sub(steal_ns);
            let ran_ns = busy_ns.saturating_sub(last_busy_ns);
            self.stolen.add(t_ns, reading.t_ns, stolen_ns);
            self.wanted.add(t_ns, reading.t_ns, ran_ns.saturating_add(stolen_ns));
            if reading.t_ns >= t_ns + MIN_SPAN_NS && reading.steal_ns >= steal_ns {
                let share = stolen_ns as f64 / (reading.t_ns - t_ns) as f64;
                self.most_stolen = Some(self.most_stolen.unwrap_or_default().max(share));
            }
        }
        self.last = Some((reading.t_ns, reading.steal_ns, busy_ns));
    }

    /// Largest share of steal in the wall time between two successive readings at least 0.5 s apart; `None` without any
    /// such pair.
    #[must_use]
    pub fn most_stolen(&self) -> Option<f64> {
        self.most_stolen
    }
}

/// CPU time, summed over all CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTotals {
    /// Time in which CPUs ran something.
    pub busy_ns: u64,
    /// Idle time, iowait included.
    pub idle_ns: u64,
    /// Steal: time in which the hypervisor ran something else.
    pub steal_ns: u64,
}

impl CpuTotals {
    /// Share of steal in the time in which CPUs had something to run (busy + steal); `None` if that is 0.
    #[must_use]
    pub fn stolen_share(&self) -> Option<f64> {
        let wanted_ns = self.busy_ns + self.steal_ns;
        (wanted_ns > 0).then(|| self.steal_ns as f64 / wanted_ns as f64)
    }

    /// Busy share of the time that the hypervisor left (busy + idle); `None` if that is 0.
    #[must_use]
    pub fn busy_share(&self) -> Option<f64> {
        let all_ns = self.busy_ns + self.idle_ns;
        (all_ns > 0).then(|| self.busy_ns as f64 / all_ns as f64)
    }
}

/// Load of the host or the target over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// Time on CPUs.
    pub on_cpu: Series,
    /// Time on run queues, throttling excluded.
    pub queued: Series,
    /// Throttled time.
    pub throttled: Series,
    /// Wait for block IO.
    pub block_io: Series,
    /// Number of run-queue waits.
    pub waits: u64,
    /// Number of context switches.
    pub switches: u64,
}

impl Default for Load {
    fn default() -> Self {
        let series = || Series::new(100_000_000, LOAD_SERIES_BINS);
        Self {
            on_cpu: series(),
            queued: series(),
            throttled: series(),
            block_io: series(),
            waits: 0,
            switches: 0,
        }
    }
}

impl Load {
    pub(super) fn push(&mut self, bin: &LoadBin) {
        self.on_cpu.add(bin.t0_ns, bin.t1_ns, bin.on_cpu_ns);
        self.queued.add(bin.t0_ns, bin.t1_ns, bin.queued_ns);
        self.throttled.add(bin.t0_ns, bin.t1_ns, bin.throttled_ns);
        self.block_io.add(bin.t0_ns, bin.t1_ns, bin.block_io_ns);
        self.waits += bin.waits;
        self.switches += bin.switches;
    }
}

/// Totals of a pressure-stall file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PsiView {
    /// Timestamp of the first reading.
    pub from_ns: Option<u64>,
    /// Timestamp of the last reading.
    pub to_ns: u64,
    /// Wall time in which some task was stalled.
    pub some_ns: Counter,
    /// Wall time in which all tasks were stalled.
    pub full_ns: Counter,
}

impl PsiView {
    pub(super) fn push(&mut self, reading: &PsiReading) {
        self.from_ns.get_or_insert(reading.t_ns);
        self.to_ns = reading.t_ns;
        self.some_ns.push(Some(reading.some_ns));
        self.full_ns.push(reading.full_ns);
    }

    /// Share of the wall time between the first and the last reading in which some task was stalled; 1 at most: a file may be
    /// read some milliseconds after the time that its reading is for, and on a host that is always short comes to more.
    #[must_use]
    pub fn some_share(&self) -> Option<f64> {
        match self.to_ns.saturating_sub(self.from_ns?) {
            0 => None,
            wall_ns => Some((self.some_ns.delta()? as f64 / wall_ns as f64).min(1.0)),
        }
    }
}

/// Overhead of the observer, and data that it lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObserverView {
    /// Wall time that its ticks cover; overlapping ticks count once.
    pub covered_ns: u64,
    /// End of the latest tick.
    covered_to_ns: u64,
    /// CPU time of the observer's process.
    pub cpu_ns: u64,
    /// The first tick, which holds the start.
    first: Option<CpuUse>,
    /// The latest tick; the last one holds the end, in which functions are named.
    last: Option<CpuUse>,
    ticks: u64,
    /// Number of runs of its BPF programs.
    pub bpf_runs: u64,
    /// Time in its BPF programs, summed over the ticks that have it; `None` if none has.
    pub bpf_run_ns: Option<u64>,
    /// Largest resident set size.
    pub rss_max_bytes: u64,
    /// Largest kernel memory of its BPF maps.
    pub bpf_map_max_bytes: u64,
    /// Losses by name; nanoseconds if the name ends in `_ns`, else counts.
    pub lost: BTreeMap<String, u64>,
}

/// CPU time of the observer's process within a length of wall time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuUse {
    /// The wall time.
    pub wall_ns: u64,
    /// The CPU time.
    pub cpu_ns: u64,
}

impl CpuUse {
    /// CPU time per wall time: 1 is one CPU.
    #[must_use]
    pub fn share(self) -> f64 {
        self.cpu_ns as f64 / self.wall_ns.max(1) as f64
    }
}

impl ObserverView {
    /// CPU time of the observer's process between the first tick and the last, which hold the work of the start and of
    /// the end; over all ticks where nothing lies between.
    #[must_use]
    pub fn steady(&self) -> CpuUse {
        let all = CpuUse { wall_ns: self.covered_ns, cpu_ns: self.cpu_ns };
        match (self.first, self.last) {
            (Some(first), Some(last)) if self.ticks >= 3 => {
                let between = CpuUse {
                    wall_ns: all.wall_ns.saturating_sub(first.wall_ns + last.wall_ns),
                    cpu_ns: all.cpu_ns.saturating_sub(first.cpu_ns + last.cpu_ns),
                };
                if between.wall_ns > 0 { between } else { all }
            }
            _ => all,
        }
    }

    pub(super) fn push(&mut self, tick: &ObserverTick) {
        let wall_ns = tick.t1_ns.saturating_sub(tick.t0_ns.max(self.covered_to_ns));
        self.covered_ns += wall_ns;
        let used = CpuUse { wall_ns, cpu_ns: tick.cpu_ns };
        self.first.get_or_insert(used);
        self.last = Some(used);
        self.ticks += 1;
        self.covered_to_ns = self.covered_to_ns.max(tick.t1_ns);
        self.cpu_ns += tick.cpu_ns;
        self.bpf_runs += tick.bpf_runs;
        if let Some(ns) = tick.bpf_run_ns {
            *self.bpf_run_ns.get_or_insert(0) += ns;
        }
        self.rss_max_bytes = self.rss_max_bytes.max(tick.rss_bytes);
        self.bpf_map_max_bytes = self.bpf_map_max_bytes.max(tick.bpf_map_bytes);
        for (name, amount) in &tick.lost {
            *self.lost.entry(name.clone()).or_default() += amount;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::PsiResource;

    #[test]
    fn pressure_that_never_ends_is_all_of_the_time() {
        let share = |some_ns: [u64; 2]| {
            let mut view = PsiView::default();
            for (t_ns, some_ns) in [0, 1_000].into_iter().zip(some_ns) {
                let (cgroup, resource, full_ns) = (None, PsiResource::Cpu, None);
                view.push(&PsiReading { t_ns, cgroup, resource, some_ns, full_ns });
            }
            view.some_share()
        };
        assert_eq!(share([7, 257]), Some(0.25));
        assert_eq!(share([7, 1_012]), Some(1.0), "read a little later than it is for");
    }

    #[test]
    fn the_steady_use_leaves_out_start_and_end() {
        let view = |cpu_ms: &[u64]| {
            let mut view = ObserverView::default();
            for (second, cpu_ms) in (0..).zip(cpu_ms) {
                view.push(&ObserverTick {
                    t0_ns: second * 1_000_000_000,
                    t1_ns: (second + 1) * 1_000_000_000,
                    cpu_ns: cpu_ms * 1_000_000,
                    ..ObserverTick::default()
                });
            }
            view.steady()
        };
        let ns = |ms: u64| ms * 1_000_000;
        assert_eq!(view(&[60, 8, 10, 200]), CpuUse { wall_ns: ns(2000), cpu_ns: ns(18) });
        assert_eq!(view(&[60, 8]), CpuUse { wall_ns: ns(2000), cpu_ns: ns(68) }, "nothing between");
        assert_eq!(view(&[]).share(), 0.0);
    }

    fn reading() -> CpuReading {
        CpuReading {
            t_ns: 0,
            cpu: 0,
            user_ns: 0,
            system_ns: 0,
            idle_ns: 0,
            iowait_ns: 0,
            irq_ns: 0,
            steal_ns: 0,
        }
    }

    #[test]
    fn iowait_that_falls_is_no_reset() {
        let mut cpu = CpuView::default();
        for (t_ns, idle_ns, iowait_ns) in [(0, 100, 500), (1, 150, 300), (2, 700, 300)] {
            cpu.push(&CpuReading { t_ns, idle_ns, iowait_ns, ..reading() });
        }
        assert_eq!(cpu.idle_ns.delta(), Some(400), "what fell is not counted twice");
        let mut reset = CpuView::default();
        for (t_ns, idle_ns) in [(0, 900), (1, 10)] {
            reset.push(&CpuReading { t_ns, idle_ns, ..reading() });
        }
        assert_eq!(reset.idle_ns.delta(), None);
    }

    #[test]
    fn two_ticks_of_one_second_cover_it_once() {
        let mut view = ObserverView::default();
        for second in 0..3 {
            let (t0_ns, t1_ns) = (second * 1_000_000_000, (second + 1) * 1_000_000_000);
            view.push(&ObserverTick { t0_ns, t1_ns, cpu_ns: 7, ..ObserverTick::default() });
            view.push(&ObserverTick { t0_ns, t1_ns, bpf_runs: 5, ..ObserverTick::default() });
        }
        assert_eq!((view.covered_ns, view.cpu_ns, view.bpf_runs), (3_000_000_000, 21, 15));
    }
}
