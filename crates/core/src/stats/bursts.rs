// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When was an amount far above its usual level?

use super::Span;

/// Number of median absolute deviations (MAD) above the median from which a bin is part of a burst. For normal noise,
/// 8 MAD are 5.4 standard deviations. Load is not normal, but bursts move the median only if they fill half of the
/// time.
const MADS: u64 = 8;

/// A time range in which an amount is far above its usual level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// Start of its first bin.
    pub t0_ns: u64,
    /// End of its last bin.
    pub t1_ns: u64,
    /// Sum over its bins, including the quiet bins inside the burst.
    pub amount: u64,
}

/// Bursts in equal bins from time 0 on: bins above `median + 8 MAD` (MAD: the median of the absolute deviations from
/// the median; Leys et al. 2013, *Detecting outliers*) and above `floor`, up to which no bin is part of a burst however
/// quiet the rest is. Bursts with less than `gap_ns` between them are merged.
#[must_use]
pub fn bursts(bins: &[u64], width_ns: u64, floor: u64, gap_ns: u64) -> Vec<Burst> {
    let middle = median(bins.to_vec());
    let mad = median(bins.iter().map(|&bin| bin.abs_diff(middle)).collect());
    let limit = middle.saturating_add(mad.saturating_mul(MADS)).max(floor);
    let mut found: Vec<Burst> = Vec::new();
    // Amount since the end of the last burst: part of it, if it continues.
    let mut between = 0u64;
    for (at, &bin) in bins.iter().enumerate() {
        let t0_ns = at as u64 * width_ns;
        if bin <= limit {
            between = between.saturating_add(bin);
            continue;
        }
        match found.last_mut() {
            Some(last) if t0_ns - last.t1_ns < gap_ns.max(1) => {
                last.t1_ns = t0_ns + width_ns;
                last.amount = last.amount.saturating_add(between).saturating_add(bin);
            }
            _ => found.push(Burst { t0_ns, t1_ns: t0_ns + width_ns, amount: bin }),
        }
        between = 0;
    }
    found
}

/// Spans in ascending order, merged if they have less than `gap_ns` between them.
#[must_use]
pub fn merge(mut spans: Vec<Span>, gap_ns: u64) -> Vec<Span> {
    spans.sort_unstable();
    let mut merged: Vec<Span> = Vec::new();
    for Span { t0_ns, t1_ns } in spans {
        match merged.last_mut() {
            Some(last) if t0_ns <= last.t1_ns || t0_ns - last.t1_ns < gap_ns => {
                last.t1_ns = last.t1_ns.max(t1_ns);
            }
            _ => merged.push(Span::new(t0_ns, t1_ns.max(t0_ns))),
        }
    }
    merged
}

fn median(mut values: Vec<u64>) -> u64 {
    if values.is_empty() {
        return 0;
    }
    let middle = values.len() / 2;
    *values.select_nth_unstable(middle).1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_burst_is_above_the_noise_and_gaps_are_part_of_it() {
        let mut bins = vec![10, 12, 9, 11, 10, 13, 8, 10, 11, 10, 12, 9];
        bins[4] = 90;
        bins[6] = 80;
        bins[10] = 70;
        let found = bursts(&bins, 100, 0, 200);
        assert_eq!(
            found,
            [
                Burst { t0_ns: 400, t1_ns: 700, amount: 183 },
                Burst { t0_ns: 1000, t1_ns: 1100, amount: 70 },
            ]
        );
        assert_eq!(bursts(&bins, 100, 85, 200).len(), 1, "nothing below the floor");
    }

    #[test]
    fn a_quiet_series_has_none() {
        assert_eq!(bursts(&[], 100, 0, 100), []);
        assert_eq!(bursts(&[0; 50], 100, 0, 100), []);
        assert_eq!(bursts(&[7; 50], 100, 0, 100), []);
    }

    proptest! {
        #[test]
        fn bursts_are_ordered_apart_and_hold_no_more_than_there_is(
            bins in prop::collection::vec(0..1000u64, 0..200), gap in 1..10u64, floor in 0..100u64,
        ) {
            let found = bursts(&bins, 10, floor, gap * 10);
            prop_assert!(found.windows(2).all(|pair| pair[1].t0_ns - pair[0].t1_ns >= gap * 10));
            prop_assert!(found.iter().map(|b| b.amount).sum::<u64>() <= bins.iter().sum::<u64>());
        }

        #[test]
        fn merged_spans_cover_what_they_were_made_of(
            spans in prop::collection::vec((0..1000u64, 0..50u64), 0..40), gap in 0..20u64,
        ) {
            let spans: Vec<_> = spans.into_iter().map(|(t, len)| Span::new(t, t + len)).collect();
            let merged = merge(spans.clone(), gap);
            prop_assert!(merged.windows(2).all(|pair| pair[0].t1_ns < pair[1].t0_ns || gap == 0));
            for it in spans {
                prop_assert!(merged.iter().any(|of| of.t0_ns <= it.t0_ns && it.t1_ns <= of.t1_ns));
            }
        }
    }
}
