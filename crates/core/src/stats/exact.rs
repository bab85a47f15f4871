// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Are two yes-or-no properties associated, in a handful of cases? An exact test, and the correction for many such
//! tests.

/// Tables whose probabilities differ only by rounding count as equal.
const ROUNDING: f64 = 1e-7;

/// Fisher's exact test, two-sided: p-value of a two-by-two table, as the sum of the probabilities of all tables that
/// are no more likely than this one if rows and columns are independent. The first argument is the number of members of
/// the first and of the second group that have the property, the second argument is the size of each group.
///
/// 1 for groups without members, and for counts that exceed the size of their group.
#[must_use]
pub fn fisher([first, second]: [u64; 2], [first_of, second_of]: [u64; 2]) -> f64 {
    if first > first_of || second > second_of {
        return 1.0;
    }
    let (with, all) = (first + second, first_of + second_of);
    let log = log_factorials(all);
    let choose = |n: u64, k: u64| log[n as usize] - log[k as usize] - log[(n - k) as usize];
    let chance =
        |k: u64| (choose(first_of, k) + choose(second_of, with - k) - choose(all, with)).exp();
    let observed = chance(first);
    let possible = with.saturating_sub(second_of)..=with.min(first_of);
    let sum: f64 = possible.map(chance).filter(|it| *it <= observed * (1.0 + ROUNDING)).sum();
    sum.min(1.0)
}

/// `ln(i!)` for each `i` from 0 to `n`.
fn log_factorials(n: u64) -> Vec<f64> {
    let mut log = vec![0.0];
    let mut sum = 0.0;
    for i in 1..=n {
        sum += (i as f64).ln();
        log.push(sum);
    }
    log
}

/// Holm's step-down correction: adjusted p-values, in the order of the input. Whatever the dependence between the
/// tests, the probability of one or more false claims with adjusted p-values below a limit is at most that limit.
#[must_use]
pub fn holm(chances: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..chances.len()).collect();
    order.sort_by(|&a, &b| chances[a].total_cmp(&chances[b]));
    let mut adjusted = vec![1.0; chances.len()];
    let mut floor = 0.0f64;
    for (rank, at) in order.into_iter().enumerate() {
        let left = (chances.len() - rank) as f64;
        floor = floor.max((chances[at] * left).min(1.0));
        adjusted[at] = floor;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Expected values by the definition, as fractions: C(3,3) C(5,0) / C(8,3), and so on.
    #[test]
    fn small_tables() {
        for (with, of, chance) in [
            ([3, 0], [3, 5], 1.0 / 56.0),
            ([0, 5], [3, 5], 1.0 / 56.0),
            ([1, 0], [1, 1], 1.0),
            ([2, 0], [2, 2], 2.0 / 6.0),
            // The lady tasting tea, with three of four right: 1 minus the table of 2 and 2.
            ([3, 1], [4, 4], 34.0 / 70.0),
            ([4, 0], [4, 4], 2.0 / 70.0),
            ([8, 0], [8, 8], 2.0 / 12_870.0),
            ([0, 0], [0, 0], 1.0),
            ([2, 0], [1, 1], 1.0),
        ] {
            let found = fisher(with, of);
            assert!((found - chance).abs() < 1e-12, "{with:?} of {of:?}: {found}");
        }
    }

    #[test]
    fn corrected_chances() {
        let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (found, wanted) in adjusted.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((found - wanted).abs() < 1e-12, "{adjusted:?}");
        }
        assert!(holm(&[]).is_empty());
    }

    proptest! {
        #[test]
        fn it_does_not_matter_what_is_called_first_or_yes(a in 0u64..12, b in 0u64..12, n in 0u64..12, m in 0u64..12) {
            let (n, m) = (a + n, b + m);
            let chance = fisher([a, b], [n, m]);
            prop_assert!((0.0..=1.0).contains(&chance) && chance > 0.0);
            for other in [fisher([b, a], [m, n]), fisher([n - a, m - b], [n, m])] {
                prop_assert!((chance - other).abs() < 1e-9, "{chance} {other}");
            }
        }

        /// Under the null hypothesis, a p-value of 5 % or less appears in at most 5 % of the cases: exactly, over
        /// all ways to choose the members of the first group.
        #[test]
        fn it_is_exact(n in 1u64..7, m in 1u64..7, with in 0u64..14, limit in 0.001..0.5f64) {
            let with = with.min(n + m);
            let choose = |n: u64, k: u64| (0..k).fold(1.0, |c, i| c * (n - i) as f64 / (i + 1) as f64);
            let mut below = 0.0;
            for k in with.saturating_sub(m)..=with.min(n) {
                if fisher([k, with - k], [n, m]) <= limit {
                    below += choose(n, k) * choose(m, with - k) / choose(n + m, with);
                }
            }
            prop_assert!(below <= limit + 1e-9, "{below}");
        }

        #[test]
        fn correction_never_makes_surer_and_keeps_the_order(chances in prop::collection::vec(0.0..=1.0f64, 0..12)) {
            let adjusted = holm(&chances);
            for (i, a) in chances.iter().enumerate() {
                prop_assert!(adjusted[i] >= *a && adjusted[i] <= 1.0);
                for (j, b) in chances.iter().enumerate() {
                    prop_assert!(a > b || adjusted[i] <= adjusted[j]);
                }
            }
        }
    }
}
