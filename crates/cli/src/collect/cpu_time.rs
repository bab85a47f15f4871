// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU time of the target's processes, in the program and in the kernel, once a second (`/proc/PID/stat`).

use super::{Beat, BeatTime, Collector, Context, Emit, read_stat};
use deburr_core::recording::{CpuTimeReading, ProcId, Record};

/// Processes that are read; at some 10 us each, 0.3 % of a CPU.
const PROCESSES: usize = 256;

#[derive(Debug)]
pub(crate) struct CpuTimeCollector {
    ns_per_tick: u64,
}

impl CpuTimeCollector {
    pub(crate) fn open() -> Self {
        let hz = rustix::param::clock_ticks_per_second().max(1);
        Self { ns_per_tick: 1_000_000_000 / hz }
    }
}

impl Collector for CpuTimeCollector {
    fn beat(&mut self, cx: &mut Context, now: BeatTime, emit: Emit<'_>) -> anyhow::Result<()> {
        let due = now.beat == Beat::Start || now.beat.is_second();
        if !due || !cx.has_target {
            return Ok(());
        }
        // In the order in which they were met: the target's main process is among them.
        let mut all: Vec<(ProcId, u32, u64)> =
            cx.processes.of_target().map(|it| (it.id, it.pid, it.start_ns)).collect();
        all.sort_unstable();
        for (proc, pid, start_ns) in all.into_iter().take(PROCESSES) {
            let Some(stat) = read_stat(&cx.roots, pid) else { continue };
            // Another one may have got its number. The start is told in whole ticks.
            let started = stat.start_ticks.saturating_mul(self.ns_per_tick);
            if start_ns != 0 && start_ns.abs_diff(started) > self.ns_per_tick {
                continue;
            }
            let user_ticks = stat.cpu_ticks.saturating_sub(stat.system_ticks);
            emit(Record::CpuTime(CpuTimeReading {
                t_ns: now.t_ns,
                proc,
                user_ns: user_ticks.saturating_mul(self.ns_per_tick),
                system_ns: stat.system_ticks.saturating_mul(self.ns_per_tick),
            }));
        }
        Ok(())
    }
}
