// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The pair test: two workers, each bound to its CPU, run alone and together in turn.

use super::sweep::no_thread;
use super::worker::{Account, Chunk, Slot, bind};
use super::{Check, Distances};
use crate::clock;
use crate::collect::Beat;
use deburr_core::cpu_check::pairs;
use deburr_core::cpu_check::schedule;
use deburr_core::recording::{CheckSetup, CpuCheckRecord, PairRound};
use std::thread;

/// Time from the start of the workers to their first slot.
const START_NS: u64 = 2_000_000;
/// Longest time between two readings of `/proc/stat`.
const READ_EVERY_NS: u64 = 1_000_000_000;

/// The rounds so far, and the time until which there may be more.
struct Rounds {
    all: Vec<PairRound>,
    start_ns: u64,
    end_ns: u64,
    read_ns: u64,
}

/// The chosen pairs that the rounds so far do not decide.
fn undecided(chosen: &[(u32, u32)], rounds: &Rounds) -> Vec<(u32, u32)> {
    let found = pairs::pairs(&CheckSetup::default(), &rounds.all, &Distances::new());
    let open = found.into_iter().filter(|pair| !pair.is_decided());
    open.map(|pair| (pair.a, pair.b)).filter(|pair| chosen.contains(pair)).collect()
}

impl Check<'_> {
    pub(super) fn pair_test(&mut self, distances: &Distances) -> anyhow::Result<()> {
        let all = schedule::by_worth(schedule::all_pairs(&self.cpus), &self.cores_told, distances);
        let start_ns = clock::monotonic_ns();
        let end_ns = start_ns + self.budget.pairs_ns;
        let mut rounds = Rounds { all: vec![], start_ns, end_ns, read_ns: start_ns };
        self.progress.stage("pairs", self.budget.pairs_ns);
        let (mut chosen, mut slot_ns) = (all.clone(), schedule::SLOT_NS);
        if schedule::needs_screening(all.len(), &self.budget) {
            // A third of the time is left for the pairs that are suspect after the screening.
            rounds.end_ns = start_ns + self.budget.pairs_ns / 3 * 2;
            for &pair in &all {
                let (number, short_ns) = (schedule::SCREEN_ROUNDS, schedule::SCREEN_SLOT_NS);
                self.rounds(&[pair], number, short_ns, self.adds, &mut rounds)?;
            }
            chosen = schedule::by_worth(pairs::suspects(&rounds.all), &self.cores_told, distances);
            rounds.end_ns = end_ns;
            slot_ns = schedule::slot_ns(chosen.len(), end_ns.saturating_sub(clock::monotonic_ns()));
        }
        self.rounds(&chosen, schedule::ROUNDS, slot_ns, self.adds, &mut rounds)?;
        if self.budget.fill {
            self.confirm(&mut rounds)?;
            while self.goes_on(&rounds) {
                self.rounds(&chosen, 1, schedule::SLOT_NS, self.adds, &mut rounds)?;
            }
            self.settle(&chosen, &mut rounds)
        } else {
            self.settle(&chosen, &mut rounds)?;
            self.confirm(&mut rounds)
        }
    }

    /// Continues with the pairs that are not decided. On a machine whose CPUs are busy with other work, many rounds do
    /// not count.
    fn settle(&mut self, chosen: &[(u32, u32)], rounds: &mut Rounds) -> anyhow::Result<()> {
        rounds.end_ns = rounds.start_ns + self.budget.longest_pairs_ns;
        loop {
            let open = undecided(chosen, rounds);
            if open.is_empty() || !self.goes_on(rounds) {
                return Ok(());
            }
            self.rounds(&open, 1, schedule::SLOT_NS, self.adds, rounds)?;
        }
    }

    fn goes_on(&self, rounds: &Rounds) -> bool {
        !self.halt.is_on() && clock::monotonic_ns() < rounds.end_ns
    }

    /// Runs `number` rounds of each pair, round by round, so that the rounds of a pair are spread over time.
    fn rounds(
        &mut self,
        pairs: &[(u32, u32)],
        number: u32,
        slot_ns: u64,
        chunk: Chunk,
        rounds: &mut Rounds,
    ) -> anyhow::Result<()> {
        for _ in 0..number {
            for &(a, b) in pairs {
                if !self.goes_on(rounds) {
                    return Ok(());
                }
                let now_ns = clock::monotonic_ns();
                self.progress.at(now_ns - rounds.start_ns, &format!("CPUs {a} and {b}"));
                if now_ns > rounds.read_ns + READ_EVERY_NS {
                    self.read_stat(Beat::Second);
                    rounds.read_ns = now_ns;
                }
                if let Some(round) = self.round(a, b, slot_ns, chunk)? {
                    rounds.all.push(round);
                    self.push(CpuCheckRecord::Round(round));
                }
            }
        }
        Ok(())
    }

    /// Runs rounds with the second mix, for pairs that always share (a core, or time slices of one CPU).
    fn confirm(&mut self, rounds: &mut Rounds) -> anyhow::Result<()> {
        let found = pairs::pairs(&CheckSetup::default(), &rounds.all, &Distances::new());
        let shared = found.iter().filter(|pair| pair.class.is_shared());
        let shared: Vec<_> =
            shared.take(schedule::CONFIRM_PAIRS).map(|pair| (pair.a, pair.b)).collect();
        self.rounds(&shared, schedule::CONFIRM_ROUNDS, schedule::SLOT_NS, self.divs, rounds)
    }

    /// One round. `None` if a signal ended it, or if a CPU is not available any more.
    fn round(
        &mut self,
        a: u32,
        b: u32,
        slot_ns: u64,
        chunk: Chunk,
    ) -> anyhow::Result<Option<PairRound>> {
        let start_ns = clock::monotonic_ns() + START_NS;
        let slot = |at: u64| {
            let from_ns = start_ns + 2 * at * slot_ns;
            Slot { from_ns, to_ns: from_ns + slot_ns }
        };
        let (halt, realtime) = (self.halt, self.realtime);
        let worker = |cpu: u32, alone: u64| {
            move || {
                bind(cpu, realtime).ok()?;
                let mut accounts = [Account::default(), Account::default(), Account::default()];
                // In order of time: the worker that is alone second has a slot together with the other one before.
                let mut slots = [alone, 1, 3];
                slots.sort_unstable();
                for (account, at) in accounts.iter_mut().zip(slots) {
                    account.work(slot(at), chunk, halt);
                }
                let place = slots.iter().position(|&at| at == alone)?;
                let mut together = Account::default();
                for (_, account) in accounts.iter().enumerate().filter(|(i, _)| *i != place) {
                    together = together.plus(account);
                }
                Some((accounts[place].run(), together.run()))
            }
        };
        let (of_a, of_b) = thread::scope(|scope| {
            let start = |work| thread::Builder::new().spawn_scoped(scope, work).map_err(no_thread);
            let (of_a, of_b) = (start(worker(a, 0))?, start(worker(b, 2))?);
            anyhow::Ok((of_a.join().unwrap_or(None), of_b.join().unwrap_or(None)))
        })?;
        let end_ns = start_ns + schedule::round_ns(slot_ns);
        self.rest_until(end_ns);
        let (Some((a_alone, a_together)), Some((b_alone, b_together)), false) =
            (of_a, of_b, self.halt.is_on())
        else {
            return Ok(None);
        };
        let (t0_ns, t1_ns) = (self.since_start(start_ns), self.since_start(end_ns));
        let mix = chunk.mix();
        Ok(Some(PairRound {
            t0_ns,
            t1_ns,
            mix,
            slot_ns,
            a,
            b,
            a_alone,
            b_alone,
            a_together,
            b_together,
        }))
    }
}
