// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Per-CPU time counters from `/proc/stat`, once a second.

use super::{Beat, BeatTime, Collector, Context, Emit, reread};
use deburr_core::procfs::stat;
use deburr_core::recording::{Coverage, CpuReading, Record, Source, State};
use std::fs::File;

#[derive(Debug)]
pub(crate) struct ProcStatCollector {
    file: File,
    user_hz: u64,
}

impl ProcStatCollector {
    pub(crate) fn open(cx: &Context) -> Result<Self, State> {
        let file = File::open(cx.roots.proc.join("stat")).map_err(|error| State::Missing {
            reason: format!("`/proc/stat`: {error}"),
            gain: "with a whole `/proc` (not mounted with `subset=pid`) one sees how busy each CPU is, \
                   and what the hypervisor takes"
                .into(),
        })?;
        Ok(Self { file, user_hz: rustix::param::clock_ticks_per_second() })
    }
}

impl Collector for ProcStatCollector {
    fn beat(&mut self, _: &mut Context, now: BeatTime, emit: Emit<'_>) -> anyhow::Result<()> {
        if now.beat == Beat::Start {
            let state = State::Active;
            emit(Record::Coverage(Coverage { t_ns: 0, source: Source::ProcStat, state }));
        } else if !now.beat.is_second() {
            return Ok(());
        }
        for cpu in stat::parse(&reread::text(&self.file)?, self.user_hz)? {
            emit(Record::Cpu(CpuReading {
                t_ns: now.t_ns,
                cpu: cpu.cpu,
                user_ns: cpu.user_ns,
                system_ns: cpu.system_ns,
                idle_ns: cpu.idle_ns,
                iowait_ns: cpu.iowait_ns,
                irq_ns: cpu.irq_ns,
                steal_ns: cpu.steal_ns,
            }));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::ProcStatCollector;
    use crate::collect::Beat;
    use crate::collect::fixture::{Host, beat};
    use deburr_core::recording::{Record, State};

    #[test]
    fn every_cpu_is_read_each_second_however_long_the_file_is() {
        let host = Host::empty();
        let line = |cpu: usize, user: u64| format!("cpu{cpu} {user} 0 0 50 0 0 0 3 0 0\n");
        let text = |user| {
            let cpus: String = (0..512).map(|cpu| line(cpu, user)).collect();
            format!("cpu  1 1 1 1 1 1 1 1 0 0\n{cpus}intr {}\n", "0 ".repeat(4096))
        };
        host.write("proc/stat", text(10));
        let mut cx = host.context();
        let mut collector = ProcStatCollector::open(&cx).unwrap();
        assert_eq!(beat(&mut collector, &mut cx, Beat::Start).len(), 513);
        assert_eq!(beat(&mut collector, &mut cx, Beat::Bin), []);
        host.write("proc/stat", text(20));
        let second = beat(&mut collector, &mut cx, Beat::Second);
        let Record::Cpu(last) = second[511] else { panic!("{:?}", second[511]) };
        let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second();
        assert_eq!((last.cpu, last.user_ns, last.steal_ns), (511, 20 * tick_ns, 3 * tick_ns));
    }

    #[test]
    fn a_damaged_file_ends_the_collector_and_a_missing_one_is_said() {
        let host = Host::empty();
        assert!(matches!(
            ProcStatCollector::open(&host.context()),
            Err(State::Missing { reason, .. }) if reason.contains("`/proc/stat`")
        ));
        host.write("proc/stat", "cpu0 1 2\n");
        let mut cx = host.context();
        let mut collector = ProcStatCollector::open(&cx).unwrap();
        let now = crate::collect::BeatTime { t_ns: 0, beat: Beat::Second };
        let error = crate::collect::Collector::beat(&mut collector, &mut cx, now, &mut |_| {});
        assert!(error.unwrap_err().to_string().contains("`system`"));
    }
}
