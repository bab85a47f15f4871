// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A histogram of chunk lengths: a worker does a hundred thousand chunks per second, and their median is wanted.

/// Buckets per octave: the median is exact to less than half a percent.
const STEPS: u64 = 128;
const STEP_BITS: u32 = STEPS.ilog2();
/// Number of octaves, with 0..128 ns as the first; all longer lengths are in the last bucket.
const OCTAVES: usize = 24;

/// Number of lengths in each bucket.
#[derive(Debug)]
pub(super) struct Lengths {
    counts: Box<[u32]>,
    all: u64,
}

impl Default for Lengths {
    fn default() -> Self {
        Self { counts: vec![0; OCTAVES * STEPS as usize].into(), all: 0 }
    }
}

impl Lengths {
    pub(super) fn add(&mut self, ns: u64) {
        let last = self.counts.len() - 1;
        self.counts[place(ns).min(last)] += 1;
        self.all += 1;
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.all += other.all;
    }

    /// The median, as the middle of its bucket; 0 if there are no lengths.
    pub(super) fn median_ns(&self) -> u64 {
        let mut below = 0;
        for (place, &count) in self.counts.iter().enumerate() {
            below += u64::from(count);
            if count > 0 && 2 * below >= self.all {
                return middle(place);
            }
        }
        0
    }
}

/// The bucket of a length: single nanoseconds below 256 ns, 128th parts of the octave above.
fn place(ns: u64) -> usize {
    let octave = ns.max(STEPS).ilog2() - STEP_BITS;
    let step = (ns >> octave).saturating_sub(if octave == 0 { 0 } else { STEPS });
    let place = match octave {
        // 0..256: the octave 128..256 has buckets of 1 ns, as the range below it.
        0 => step,
        octave => (u64::from(octave) + 1) * STEPS + step,
    };
    usize::try_from(place).unwrap_or(usize::MAX)
}

fn middle(place: usize) -> u64 {
    let (octave, step) = (place as u64 / STEPS, place as u64 % STEPS);
    match octave {
        0 | 1 => place as u64,
        _ => ((STEPS + step) << (octave - 1)) + (1 << (octave - 1)) / 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_few() {
        let mut lengths = Lengths::default();
        assert_eq!(lengths.median_ns(), 0);
        for ns in [5_000, 5_000, 5_010, 900, 4_000_000_000_000] {
            lengths.add(ns);
        }
        assert!(lengths.median_ns().abs_diff(5_000) < 25, "{}", lengths.median_ns());
        let mut other = Lengths::default();
        (0..9).for_each(|_| other.add(100));
        other.merge(&lengths);
        assert_eq!(other.median_ns(), 100);
    }

    proptest! {
        #[test]
        fn the_median_of_one_is_itself_to_half_a_percent(ns in 1u64..1_000_000_000) {
            let mut lengths = Lengths::default();
            lengths.add(ns);
            let shown = lengths.median_ns();
            prop_assert!(shown.abs_diff(ns) * 200 <= ns + 200 * u64::from(ns < 256), "{ns}: {shown}");
        }

        #[test]
        fn longer_is_never_counted_as_shorter(a in any::<u64>(), b in any::<u64>()) {
            prop_assert!(place(a.min(b)) <= place(a.max(b)));
        }
    }
}
