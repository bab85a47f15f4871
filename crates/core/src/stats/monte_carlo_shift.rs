// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How often two recordings of the same load are told to differ, by simulated pairs with a fixed seed; and what is
//! missed. The table is in `docs/compare.md`.

use super::Random as Rng;
use super::{SIGNIFICANT, holm, shift};

/// Loads of a host: how the seconds of a process vary.
const LOADS: [(&str, Load); 5] = [
    ("normal", Load::Normal),
    ("log-normal", Load::LogNormal(1.0)),
    ("log-normal, wide", Load::LogNormal(1.5)),
    ("on a fifth of the time", Load::OnOff(0.2)),
    ("on a tenth of the time", Load::OnOff(0.1)),
];

/// Of successive seconds.
const CORRELATION: f64 = 0.7;

#[derive(Clone, Copy)]
enum Load {
    /// A level with noise.
    Normal,
    /// Few large seconds among many small ones.
    LogNormal(f64),
    /// On in that part of the time, in stretches.
    OnOff(f64),
}

impl Load {
    /// Successive seconds with that correlation.
    fn seconds(self, chance: &mut Rng, n: usize, correlation: f64) -> Vec<f64> {
        let mut state = chance.normal();
        let mut on = if let Self::OnOff(part) = self { chance.next() < part } else { false };
        let rest = (1.0 - correlation * correlation).sqrt();
        let second = |_| {
            let value = match self {
                Self::Normal => 10.0 + state,
                Self::LogNormal(width) => (width * state).exp(),
                Self::OnOff(_) if on => 1.0 + 0.3 * state,
                Self::OnOff(_) => 0.02 * chance.next(),
            };
            state = correlation * state + rest * chance.normal();
            if let Self::OnOff(part) = self {
                let stays =
                    if on { part + correlation * (1.0 - part) } else { part * (1.0 - correlation) };
                on = chance.next() < stays;
            }
            value
        };
        (0..n).map(second).collect()
    }
}

/// Percentage of pairs of recordings of `processes` processes in which at least one is told to differ.
fn false_claims(
    load: Load,
    runs: u32,
    processes: usize,
    seconds: [usize; 2],
    correlation: f64,
) -> f64 {
    let mut chance = Rng::new(7);
    let claims = (0..runs).filter(|_| {
        let ps: Vec<f64> = (0..processes)
            .map(|_| {
                let [a, b] = seconds.map(|n| load.seconds(&mut chance, n, correlation));
                shift(&a, &b).unwrap().p
            })
            .collect();
        holm(&ps).iter().any(|p| *p < SIGNIFICANT)
    });
    100.0 * claims.count() as f64 / f64::from(runs)
}

/// Pairs for each load. The table of `docs/compare.md` is from ten times as many.
const RUNS: [(usize, u32); 3] = [(1, 300), (20, 30), (100, 10)];

/// With `--nocapture` it prints the rows of the table. The test itself sums over the loads.
#[test]
fn at_most_five_of_a_hundred_pairs_of_the_same_load_differ() {
    for (processes, runs) in RUNS {
        for seconds in [[10, 10], [20, 20], [30, 30], [60, 60], [10, 60]] {
            let rates = LOADS.map(|(name, load)| {
                (name, false_claims(load, runs, processes, seconds, CORRELATION))
            });
            println!("| {processes} | {seconds:?} | {rates:?}");
            let mean = rates.iter().map(|(_, rate)| rate).sum::<f64>() / rates.len() as f64;
            assert!(mean <= 5.0, "{processes}, {seconds:?}: {rates:?}");
        }
    }
}

/// Percentage of pairs in which a difference is found that [`super::Shift::detectable`] gives.
#[test]
fn what_could_have_been_seen_is_seen_as_a_rule() {
    for (seconds, correlation) in [(20, 0.0), (20, 0.5), (60, 0.5)] {
        let mut chance = Rng::new(11);
        let runs = 400;
        let seen = (0..runs).filter(|_| {
            let [a, b] = [0, 1].map(|_| Load::Normal.seconds(&mut chance, seconds, correlation));
            let could = shift(&a, &b).unwrap().detectable(SIGNIFICANT);
            let [a, b] = [0, 1].map(|_| Load::Normal.seconds(&mut chance, seconds, correlation));
            let b: Vec<f64> = b.iter().map(|it| it + could).collect();
            shift(&a, &b).unwrap().p < SIGNIFICANT
        });
        let share = seen.count() as f64 / f64::from(runs);
        println!("{seconds} s, correlation {correlation}: {share}");
        assert!(share > 0.6, "{seconds} {correlation}: {share}");
    }
}
