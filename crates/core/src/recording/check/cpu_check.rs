// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Invariants of CPU checks: the times of workers fit into their slots, and pairs use CPUs that the check may use.

use super::amounts::fits;
use super::{Faults, Invariant};
use crate::recording::{CheckSetup, CpuCheckRecord, PairRound, Run};

const SETUP: Invariant = "a check of CPUs says first how it is done";
const RUNS: Invariant =
    "a worker has no more CPU time and gaps than wall time, nor more CPU time than its slot";
const KNOWN_CPUS: Invariant = "a pair is of two of the CPUs that the check may use";
const WORKERS: Invariant = "a step of the sweep has no more workers than it says";

/// State between records.
#[derive(Clone, Debug, Default)]
pub(super) struct CpuCheck {
    setup: Option<CheckSetup>,
}

impl CpuCheck {
    pub(super) fn push(&mut self, record: &CpuCheckRecord, faults: &mut Faults) {
        if let CpuCheckRecord::Setup(setup) = record {
            self.setup = Some(setup.clone());
            return;
        }
        faults.unless(self.setup.is_some(), SETUP, || "no setup before it".into());
        match record {
            CpuCheckRecord::Setup(_) => {}
            CpuCheckRecord::Worker(worker) => {
                let step_ns = worker.t1_ns.saturating_sub(worker.t0_ns);
                run(&worker.run, late(step_ns), faults);
                faults.unless(worker.worker < worker.workers, WORKERS, || {
                    format!("worker {} of {}", worker.worker, worker.workers)
                });
            }
            CpuCheckRecord::Round(round) => self.round(round, faults),
            CpuCheckRecord::Distance(distance) => self.pair(distance.a, distance.b, faults),
        }
    }

    fn round(&self, round: &PairRound, faults: &mut Faults) {
        self.pair(round.a, round.b, faults);
        for alone in [&round.a_alone, &round.b_alone] {
            run(alone, late(round.slot_ns), faults);
        }
        for together in [&round.a_together, &round.b_together] {
            run(together, late(round.slot_ns.saturating_mul(2)), faults);
        }
    }

    fn pair(&self, a: u32, b: u32, faults: &mut Faults) {
        let cpus = self.setup.as_ref().map_or(&[][..], |setup| &setup.cpus);
        let known = a != b && cpus.contains(&a) && cpus.contains(&b);
        faults.unless(known, KNOWN_CPUS, || format!("CPUs {a} and {b}"));
    }
}

/// Most CPU time that a worker can have in a slot. What a hypervisor takes counts as CPU time, and is seldom more than
/// this at once. Wall time has no bound: a worker notices the end of its slot only when it runs again.
fn late(slot_ns: u64) -> u64 {
    const STOLEN_NS: u64 = 1_000_000_000;
    slot_ns.saturating_add(STOLEN_NS)
}

fn run(run: &Run, most_ns: u64, faults: &mut Faults) {
    let Run { wall_ns, cpu_ns, gap_ns, .. } = *run;
    let holds = fits(cpu_ns, most_ns) && fits(cpu_ns, wall_ns) && fits(gap_ns, wall_ns);
    faults.unless(holds, RUNS, || {
        format!(
            "{cpu_ns} ns of CPU time and {gap_ns} ns of gaps in {wall_ns} ns, {most_ns} ns at most"
        )
    });
}
