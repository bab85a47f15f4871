// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the totals of a process are kept. A host that starts processes all the time makes hundreds of thousands of them
//! in an hour, most of which are seen in one tick: they take a few hundred bytes each. Nothing is rounded or left out.

use super::Usage;
use crate::recording::{Culprit, ProcessTick, ThreadStates, packed};

/// Longest packed totals. What a process did in a second or two takes about a hundred bytes; those of processes that go
/// on for long are not packed and unpacked at every tick.
const MOST_PACKED_BYTES: usize = 256;

/// Thread states and run-queue waits of a process.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum KeptUsage {
    /// Packed: numbers in the order of [`numbers_of`].
    Brief(Box<[u8]>),
    /// As they are.
    Long(Box<Usage>),
}

impl Default for KeptUsage {
    fn default() -> Self {
        Self::of(Usage::default())
    }
}

impl KeptUsage {
    fn of(usage: Usage) -> Self {
        let bytes = packed::bytes(numbers_of(&usage));
        if bytes.len() <= MOST_PACKED_BYTES {
            Self::Brief(bytes.into())
        } else {
            Self::Long(Box::new(usage))
        }
    }

    /// The totals.
    pub(super) fn usage(&self) -> Usage {
        match self {
            Self::Brief(bytes) => usage_of(&packed::numbers(bytes).unwrap_or_default()),
            Self::Long(usage) => (**usage).clone(),
        }
    }

    pub(super) fn push(&mut self, tick: &ProcessTick) {
        match self {
            Self::Brief(_) => {
                let mut usage = self.usage();
                usage.push(tick);
                *self = Self::of(usage);
            }
            Self::Long(usage) => usage.push(tick),
        }
    }
}

/// The totals as numbers. Most of those of short-lived processes are 0, which takes one byte.
fn numbers_of(usage: &Usage) -> Vec<u64> {
    let Usage { threads_max, wall_ns, states, waits, wait_max_ns, switches, .. } = usage;
    let mut numbers = vec![
        u64::from(*threads_max),
        *wall_ns,
        *wait_max_ns,
        *switches,
        usage.wakeup_latency_ns,
        states.on_cpu_ns,
        states.queued_ns,
        states.throttled_ns,
        states.block_io_ns,
        states.mem_stall_ns,
        states.uninterruptible_ns,
        states.sleep_ns,
        states.stopped_ns,
    ];
    let rows = waits.count.iter().zip(&waits.ns).enumerate();
    let rows: Vec<_> = rows.filter(|(_, (count, ns))| **count > 0 || **ns > 0).collect();
    numbers.push(rows.len() as u64);
    numbers.extend(rows.into_iter().flat_map(|(bucket, (count, ns))| [bucket as u64, *count, *ns]));
    for series in [&usage.contended, &usage.block_io] {
        series.put_into(&mut numbers);
    }
    numbers
}

/// The totals of which these are the numbers.
fn usage_of(numbers: &[u64]) -> Usage {
    let mut numbers = numbers.iter().copied();
    let mut next = || numbers.next().unwrap_or_default();
    let mut usage = Usage {
        // It was a u32.
        threads_max: next() as u32,
        wall_ns: next(),
        wait_max_ns: next(),
        switches: next(),
        wakeup_latency_ns: next(),
        states: ThreadStates {
            on_cpu_ns: next(),
            queued_ns: next(),
            throttled_ns: next(),
            block_io_ns: next(),
            mem_stall_ns: next(),
            uninterruptible_ns: next(),
            sleep_ns: next(),
            stopped_ns: next(),
        },
        ..Usage::default()
    };
    for _ in 0..next() {
        let bucket = next() as usize;
        (usage.waits.count[bucket], usage.waits.ns[bucket]) = (next(), next());
    }
    for series in [&mut usage.contended, &mut usage.block_io] {
        series.take_from(&mut next);
    }
    usage
}

/// Run-queue wait of a process by culprit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KeptBlame {
    /// Culprits with their nanoseconds. A culprit may be there more than once.
    rows: Vec<(Culprit, u64)>,
    /// Number of rows at the start that are in order, each culprit once.
    ordered: usize,
}

/// Rows beyond which those out of order are put in order, and the part of the rows that are in order that they may be.
const LEAST_ROWS: usize = 16;
const PART_OUT_OF_ORDER: usize = 4;

impl KeptBlame {
    pub(super) fn add(&mut self, culprit: Culprit, ns: u64) {
        let (ordered, others) = self.rows.split_at_mut(self.ordered);
        let found = match ordered.binary_search_by_key(&culprit, |row| row.0) {
            Ok(at) => Some(&mut ordered[at]),
            // Few, as most processes have few culprits.
            Err(_) if others.len() <= LEAST_ROWS => others.iter_mut().find(|row| row.0 == culprit),
            Err(_) => None,
        };
        if let Some(row) = found {
            row.1 = row.1.saturating_add(ns);
            return;
        }
        if self.rows.len() == self.rows.capacity() {
            self.put_in_order();
            // Doubling would leave half of the memory of hundreds of thousands of lists empty.
            self.rows.reserve_exact((self.rows.len() / PART_OUT_OF_ORDER).max(4));
        }
        self.rows.push((culprit, ns));
    }

    fn put_in_order(&mut self) {
        // This sort is fast with what is in order already.
        self.rows.sort_by_key(|row| row.0);
        self.rows.dedup_by(|more, row| {
            let same = more.0 == row.0;
            if same {
                row.1 = row.1.saturating_add(more.1);
            }
            same
        });
        self.ordered = self.rows.len();
    }

    /// Culprits with the nanoseconds of waiting behind them, in no order; the amounts of one culprit add up.
    pub(super) fn rows(&self) -> impl Iterator<Item = (Culprit, u64)> {
        self.rows.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{ProcId, WaitHist};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn tick(second: u64, waits: &[u64], busy_ns: u64) -> ProcessTick {
        let mut hist = WaitHist::default();
        waits.iter().for_each(|ns| hist.add(*ns));
        let queued_ns = hist.total_ns();
        ProcessTick {
            t0_ns: second * 1_000_000_000,
            t1_ns: (second + 1) * 1_000_000_000,
            proc: ProcId(1),
            threads: 1 + (second % 3) as u32,
            wall_ns: 1_000_000_000,
            states: ThreadStates {
                on_cpu_ns: busy_ns,
                queued_ns,
                throttled_ns: busy_ns / 5,
                block_io_ns: busy_ns / 3,
                mem_stall_ns: busy_ns / 7,
                uninterruptible_ns: busy_ns / 11,
                sleep_ns: busy_ns / 2,
                stopped_ns: busy_ns / 13,
            },
            wait_max_ns: waits.iter().copied().max().unwrap_or(0),
            switches: hist.total_count() + 1,
            waits: hist,
            wakeup_latency_ns: queued_ns / 10,
        }
    }

    proptest! {
        #[test]
        fn what_is_kept_is_what_was_seen(
            ticks in prop::collection::vec(
                (0..10_000u64, prop::collection::vec(0..10_000_000_000u64, 0..20), 0..u64::from(u32::MAX)),
                0..30,
            ),
        ) {
            let (mut kept, mut usage) = (KeptUsage::default(), Usage::default());
            for (second, waits, busy_ns) in &ticks {
                let tick = tick(*second, waits, *busy_ns);
                kept.push(&tick);
                usage.push(&tick);
                prop_assert_eq!(&kept.usage(), &usage);
            }
        }

        #[test]
        fn blame_adds_up(ticks in prop::collection::vec((0..60u32, 0..1_000_000u64), 0..400)) {
            let (mut kept, mut sums) = (KeptBlame::default(), BTreeMap::new());
            for (id, ns) in ticks {
                let culprit = if id == 0 { Culprit::Migrated } else { Culprit::Process(ProcId(id)) };
                kept.add(culprit, ns);
                *sums.entry(culprit).or_insert(0) += ns;
            }
            let mut all = BTreeMap::new();
            kept.rows().for_each(|(culprit, ns)| *all.entry(culprit).or_insert(0) += ns);
            prop_assert!(kept.rows.len() <= sums.len() + sums.len() / PART_OUT_OF_ORDER + LEAST_ROWS);
            prop_assert_eq!(all, sums);
        }
    }

    #[test]
    fn a_second_of_a_process_takes_little() {
        let mut kept = KeptUsage::default();
        kept.push(&tick(3_000, &[70_000, 900_000, 4_000_000], 12_345_678));
        let KeptUsage::Brief(bytes) = &kept else { panic!("{kept:?}") };
        assert!(bytes.len() * 4 < size_of::<Usage>(), "{}", bytes.len());
    }
}
