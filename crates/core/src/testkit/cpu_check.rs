// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Simulated CPU topologies for tests: a machine with known CPUs, and what a check of them would measure.

use super::{MS, S, Scene};
use crate::cpu_check::schedule;
use crate::recording::{
    CheckSetup, Coverage, CpuCheckRecord, Mix, PairRound, Record, Run, Source, State, SweepWorker,
};

/// Length of a simulated chunk of work, in nanoseconds.
pub const CHUNK_NS: u64 = 5_000;

/// The CPUs of a simulated machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// CPUs that the check may use.
    pub cpus: Vec<u32>,
    /// Groups of CPUs that share a core.
    pub cores: Vec<Vec<u32>>,
    /// Whether CPUs of a group run in turns (time-sliced); otherwise they are SMT siblings.
    pub sliced: bool,
    /// Groups of CPUs that share a core according to the kernel; `None` = the kernel does not know.
    pub told: Option<Vec<Vec<u32>>>,
    /// CPUs of a group share their core in one of this many rounds only; 1 = always.
    pub every: u64,
    /// A CPU that is slowed down from outside: the CPU, in one of how many rounds, and its relative speed then.
    pub foreign: Option<(u32, u64, f64)>,
    /// Relative speed of each CPU when it runs alone.
    pub clock: fn(u32) -> f64,
    /// Share of the CPU time that other tasks leave to the workers, 0..1.
    pub share: f64,
    /// Number of rounds of each pair.
    pub rounds: u64,
    /// Whether the workers of the pair test have real-time priority.
    pub realtime: bool,
}

impl Machine {
    /// A machine with this many independent CPUs of the same speed.
    #[must_use]
    pub fn even(cpus: u32) -> Self {
        Self {
            cpus: (0..cpus).collect(),
            cores: vec![],
            sliced: false,
            told: Some(vec![]),
            every: 1,
            foreign: None,
            clock: |_| 1.0,
            share: 1.0,
            rounds: u64::from(schedule::ROUNDS),
            realtime: true,
        }
    }

    /// A machine with this many CPUs, of which each of the first half shares a core with one of the second half.
    #[must_use]
    pub fn siblings(cpus: u32) -> Self {
        let half = cpus / 2;
        Self { cores: (0..half).map(|cpu| vec![cpu, cpu + half]).collect(), ..Self::even(cpus) }
    }

    fn sharers(&self, cpu: u32, busy: &[u32]) -> usize {
        let core = self.cores.iter().find(|core| core.contains(&cpu));
        core.map_or(1, |core| core.iter().filter(|other| busy.contains(other)).count().max(1))
    }

    /// What a worker measures in `wall_ns` on a CPU: `by_itself` = relative speed if it ran alone, `sharers` = number
    /// of busy CPUs of its core, `share` = share of the CPU time that it gets, `at` = seed of the noise.
    fn run(
        &self,
        wall_ns: u64,
        cpu: u32,
        by_itself: f64,
        sharers: usize,
        share: f64,
        at: u64,
    ) -> Run {
        // Noise of up to 0.5 % up and down: no measurement is exactly repeatable.
        let noise = 1.0 + ((at * 7 + u64::from(cpu) * 3) % 21) as f64 / 2000.0 - 0.005;
        let part = 1.0 / sharers as f64;
        let speed = by_itself * part * noise;
        let slower = by_itself * if self.sliced { 1.0 } else { part };
        let gap_ns = if self.sliced { wall_ns as f64 * (1.0 - part) } else { 0.0 };
        let cpu_ns = wall_ns as f64 * share;
        Run {
            wall_ns,
            cpu_ns: cpu_ns as u64,
            chunks: (cpu_ns * speed / CHUNK_NS as f64) as u64,
            chunk_ns: (CHUNK_NS as f64 / slower) as u64,
            gaps: (gap_ns / 4e6) as u64,
            gap_ns: gap_ns as u64,
        }
    }

    fn sweep(&self, scene: &mut Scene, t_ns: &mut u64) {
        let n = self.cpus.len();
        for workers in schedule::sweep(n, &schedule::QUICK).workers {
            let (t0_ns, t1_ns) = (*t_ns, *t_ns + 400 * MS);
            *t_ns += 800 * MS;
            let busy = &self.cpus[..n.min(workers as usize)];
            let each = (n as f64 / f64::from(workers)).min(1.0) * self.share;
            for worker in 0..workers {
                let cpu = busy[worker as usize % busy.len()];
                let sharers = if self.every == 1 { self.sharers(cpu, busy) } else { 1 };
                let clock = (self.clock)(cpu);
                let run = self.run(t1_ns - t0_ns, cpu, clock, sharers, each, u64::from(worker));
                let migrations = u32::from(workers as usize > n);
                scene.check(CpuCheckRecord::Worker(SweepWorker {
                    t0_ns,
                    t1_ns,
                    workers,
                    worker,
                    run,
                    migrations,
                    cpu,
                }));
            }
        }
    }

    fn pairs(&self, scene: &mut Scene, t_ns: &mut u64) {
        let told = self.told.clone().unwrap_or_default();
        let pairs = schedule::by_worth(schedule::all_pairs(&self.cpus), &told, &[].into());
        let slot_ns = schedule::SLOT_NS;
        for at in 0..self.rounds {
            for &(a, b) in &pairs {
                let (t0_ns, t1_ns) = (*t_ns, *t_ns + schedule::round_ns(slot_ns));
                *t_ns = t1_ns;
                let together = at % self.every == 0;
                let sharers = if together { self.sharers(a, &[a, b]) } else { 1 };
                let held_up = |cpu: u32| match self.foreign {
                    Some((whom, every, speed)) if cpu == whom && at % every == 0 => speed,
                    _ => 1.0,
                };
                let run = |cpu: u32, slots: u64, sharers: usize, by: f64| {
                    let share = if self.realtime { 1.0 } else { self.share };
                    self.run(slots * slot_ns, cpu, (self.clock)(cpu) * by, sharers, share, at)
                };
                scene.check(CpuCheckRecord::Round(PairRound {
                    t0_ns,
                    t1_ns,
                    mix: Mix::Adds,
                    slot_ns,
                    a,
                    b,
                    a_alone: run(a, 1, 1, 1.0),
                    b_alone: run(b, 1, 1, 1.0),
                    a_together: run(a, 2, sharers, held_up(a)),
                    b_together: run(b, 2, sharers, held_up(b)),
                }));
            }
        }
    }

    /// The records of a check of this machine.
    #[must_use]
    pub fn checked(&self) -> Scene {
        let mut parts = Scene::new(self.cpus.len() as u32, 0);
        // Versions of deburr that have checks report the coverage of every source.
        parts.without(Source::Runtime, "not looked at", "");
        let mut t_ns = 0;
        parts.check(CpuCheckRecord::Setup(CheckSetup {
            cpus: self.cpus.clone(),
            cores_told: self.told.clone(),
            hypervisor: Some(true),
            realtime: self.realtime,
            chunk_ns: CHUNK_NS,
            min_gap_ns: 100_000,
        }));
        self.sweep(&mut parts, &mut t_ns);
        self.pairs(&mut parts, &mut t_ns);
        parts.window_ns = t_ns.max(S);
        parts.busy(0.4);
        parts
    }
}

impl Scene {
    /// Adds a record of a check of CPUs; with its setup, the source becomes active.
    pub fn check(&mut self, record: CpuCheckRecord) -> &mut Self {
        if matches!(record, CpuCheckRecord::Setup(_)) {
            let (source, state) = (Source::CpuCheck, State::Active);
            self.push(Record::Coverage(Coverage { t_ns: 0, source, state }));
        }
        self.push(Record::CpuCheck(Box::new(record)))
    }
}
