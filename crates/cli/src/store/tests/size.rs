// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much disk space a recording takes.

use deburr_core::recording::{
    BlameTick, CgroupId, CgroupReading, CpuReading, Culprit, IdleCpu, IdleTick, LoadBin,
    ObserverTick, ProcId, ProcessTick, PsiReading, PsiResource, Record, ThreadStates, WaitHist,
};

pub(super) const SECOND_NS: u64 = 1_000_000_000;
const CPUS: u32 = 32;
/// Processes that have a row in every second.
pub(super) const PROCESSES: u32 = 300;
/// Of those, the processes that wait for a CPU, and the number of culprits of each.
const WAITING: u32 = 60;
const CULPRITS: u32 = 10;
/// Cgroups with a quota.
const CGROUPS: u64 = 100;

/// A sequence of numbers that look like measured amounts: no two are the same, and they have all sizes up to `below`.
pub(super) struct Amounts(u64);

impl Amounts {
    pub(super) fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 11) % below
    }
}

fn ledger(n: &mut Amounts, t0_ns: u64, id: u32) -> Record {
    let mut waits = WaitHist::default();
    for size_us in [1, 10, 60, 300, 2_000, 5_000, 9_000, 30_000] {
        for _ in 0..1 + n.below(40) {
            waits.add(size_us * (500 + n.below(500)));
        }
    }
    Record::ProcessTick(Box::new(ProcessTick {
        t0_ns,
        t1_ns: t0_ns + SECOND_NS,
        proc: ProcId(id),
        threads: 20,
        wall_ns: 20 * SECOND_NS,
        states: ThreadStates {
            on_cpu_ns: n.below(SECOND_NS),
            queued_ns: n.below(SECOND_NS),
            throttled_ns: n.below(SECOND_NS),
            block_io_ns: n.below(SECOND_NS),
            mem_stall_ns: 0,
            uninterruptible_ns: n.below(SECOND_NS),
            sleep_ns: n.below(15 * SECOND_NS),
            stopped_ns: 0,
        },
        waits,
        wait_max_ns: n.below(30_000_000),
        switches: n.below(100_000),
        wakeup_latency_ns: n.below(10_000_000),
    }))
}

fn waiting(n: &mut Amounts, t0_ns: u64, id: u32, take: &mut impl FnMut(Record)) {
    let (victim, t1_ns) = (ProcId(id), t0_ns + SECOND_NS);
    for _ in 0..CULPRITS {
        let culprit = Culprit::Process(ProcId(n.below(PROCESSES.into()) as u32));
        let ns = n.below(SECOND_NS);
        take(Record::Blame(BlameTick { t0_ns, t1_ns, victim, culprit, ns }));
    }
    let cpus =
        (0..8).map(|cpu| IdleCpu { cpu, allowed: true, idle_ns: n.below(SECOND_NS) }).collect();
    take(Record::Idle(Box::new(IdleTick {
        t0_ns,
        t1_ns,
        victim,
        min_wait_ns: 100_000,
        waits: n.below(1000),
        waits_ns: n.below(SECOND_NS),
        skipped_ns: n.below(SECOND_NS),
        idle_allowed_ns: n.below(SECOND_NS),
        idle_forbidden_ns: n.below(SECOND_NS),
        cpus,
    })));
}

fn readings(n: &mut Amounts, t_ns: u64, take: &mut impl FnMut(Record)) {
    let mut counter = || t_ns + n.below(100 * SECOND_NS);
    for cpu in 0..CPUS {
        take(Record::Cpu(CpuReading {
            t_ns,
            cpu,
            user_ns: counter(),
            system_ns: counter(),
            idle_ns: counter(),
            iowait_ns: counter(),
            irq_ns: counter(),
            steal_ns: counter(),
        }));
    }
    for id in 0..CGROUPS {
        take(Record::CgroupCpu(CgroupReading {
            t_ns,
            cgroup: CgroupId(100_000 + id),
            usage_ns: Some(counter()),
            nr_periods: Some(counter() / 1000),
            nr_throttled: Some(counter() / 1000),
            throttled_ns: Some(counter()),
            nr_bursts: Some(0),
            burst_ns: Some(0),
        }));
    }
    for resource in [PsiResource::Cpu, PsiResource::Io, PsiResource::Memory] {
        let (some_ns, full_ns) = (counter(), Some(counter()));
        take(Record::Psi(PsiReading { t_ns, cgroup: None, resource, some_ns, full_ns }));
    }
}

fn busy_second(n: &mut Amounts, t0_ns: u64, mut take: impl FnMut(Record)) {
    for bin in 0..10 {
        let load = LoadBin {
            t0_ns: t0_ns + bin * SECOND_NS / 10,
            t1_ns: t0_ns + (bin + 1) * SECOND_NS / 10,
            on_cpu_ns: n.below(SECOND_NS),
            queued_ns: n.below(SECOND_NS),
            throttled_ns: n.below(SECOND_NS),
            block_io_ns: n.below(SECOND_NS),
            waits: n.below(10_000),
            switches: n.below(100_000),
        };
        take(Record::HostBin(load));
        take(Record::TargetBin(load));
    }
    for id in 1..=PROCESSES {
        take(ledger(n, t0_ns, id));
    }
    for id in 1..=WAITING {
        waiting(n, t0_ns, id, &mut take);
    }
    readings(n, t0_ns + SECOND_NS, &mut take);
    super::size_block::busy_second(n, t0_ns, &mut take);
    take(Record::Observer(ObserverTick {
        t0_ns,
        t1_ns: t0_ns + SECOND_NS,
        cpu_ns: n.below(SECOND_NS),
        ..ObserverTick::default()
    }));
}

#[test]
fn a_busy_host_takes_less_than_10_mb_a_minute() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("busy.deburr");
    let mut writer = super::create(&path, false).unwrap();
    let mut amounts = Amounts(1);
    for second in 0..60 {
        busy_second(&mut amounts, second * SECOND_NS, |record| writer.push(&record).unwrap());
        writer.commit().unwrap();
    }
    writer.finish().unwrap();
    let bytes = path.metadata().unwrap().len();
    assert!(bytes < 10_000_000, "{bytes} B");
    // The amounts are not so small that the limit above proves nothing.
    assert!(bytes > 2_000_000, "{bytes} B");
}
