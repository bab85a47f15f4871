// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What happened when, in more detail than the rules need: how long waits and requests were in each second, and how busy
//! devices were in bins of 10 ms. Kept only for pages that show it, within fixed bounds.

use super::{Series, View};
use crate::recording::{
    BlockRecord, DevId, DeviceBins, IoOp, ProcId, Record, WAIT_BUCKETS, WaitHist,
};
use std::collections::BTreeMap;

/// Width of a column of a heatmap at first: that of a tick.
const COLUMN_NS: u64 = 1_000_000_000;
/// Maximum number of columns; if there are more, two are merged into one.
const MAX_COLUMNS: u64 = 120;
/// Maximum number of cells that are kept, of 24 bytes each.
const MAX_CELLS: usize = 400_000;
/// Bins of a device's activity: at first 10 ms each (a minute), then merged in pairs.
const BUSY_NS: u64 = 10_000_000;
const MAX_BUSY: u32 = 6000;
/// Part of a process's waits that must be there for a heatmap of them.
const WHOLE: f64 = 0.99;

/// Lengths of waits over time: a histogram for each column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heat {
    /// Width of a column in nanoseconds.
    pub column_ns: u64,
    /// The columns, from the start of the window.
    pub columns: Vec<WaitHist>,
}

/// Lengths of waits over time of several keys.
#[derive(Clone, Debug)]
struct Cells<K> {
    column_ns: u64,
    of: BTreeMap<K, Vec<Cell>>,
    number: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    column: u32,
    bucket: u8,
    count: u32,
    ns: u64,
}

impl<K: Ord + Copy> Cells<K> {
    fn new() -> Self {
        Self { column_ns: COLUMN_NS, of: BTreeMap::new(), number: 0 }
    }

    fn push(&mut self, key: K, (t0_ns, t1_ns): (u64, u64), waits: &WaitHist) {
        let middle_ns = t0_ns / 2 + t1_ns / 2;
        while middle_ns / self.column_ns >= MAX_COLUMNS {
            self.coarsen();
        }
        // Below MAX_COLUMNS.
        let column = (middle_ns / self.column_ns) as u32;
        for bucket in (0..WAIT_BUCKETS).filter(|&bucket| waits.count[bucket] > 0) {
            let count = u32::try_from(waits.count[bucket]).unwrap_or(u32::MAX);
            let cell = Cell { column, bucket: bucket as u8, count, ns: waits.ns[bucket] };
            self.number += usize::from(add(self.of.entry(key).or_default(), cell));
        }
        if self.number > MAX_CELLS {
            self.forget_the_least();
        }
    }

    fn coarsen(&mut self) {
        self.column_ns = self.column_ns.saturating_mul(2);
        self.number = 0;
        for cells in self.of.values_mut() {
            let mut merged = Vec::new();
            for cell in cells.iter() {
                add(&mut merged, Cell { column: cell.column / 2, ..*cell });
            }
            self.number += merged.len();
            *cells = merged;
        }
    }

    /// Drops the half of the keys that waited least.
    fn forget_the_least(&mut self) {
        let total =
            |cells: &[Cell]| cells.iter().fold(0u64, |sum, cell| sum.saturating_add(cell.ns));
        let mut by_time: Vec<(u64, K)> =
            self.of.iter().map(|(key, cells)| (total(cells), *key)).collect();
        by_time.sort_unstable();
        for (_, key) in &by_time[..by_time.len().div_ceil(2)] {
            self.of.remove(key);
        }
        self.number = self.of.values().map(Vec::len).sum();
    }

    /// The sum of several keys.
    fn heat(&self, keys: impl Iterator<Item = K>, window_ns: u64) -> Heat {
        let number = window_ns.div_ceil(self.column_ns).clamp(1, MAX_COLUMNS);
        let mut columns = vec![WaitHist::default(); number as usize];
        for cell in keys.filter_map(|key| self.of.get(&key)).flatten() {
            let Some(column) = columns.get_mut(cell.column as usize) else { continue };
            let bucket = usize::from(cell.bucket);
            column.count[bucket] = column.count[bucket].saturating_add(cell.count.into());
            column.ns[bucket] = column.ns[bucket].saturating_add(cell.ns);
        }
        Heat { column_ns: self.column_ns, columns }
    }
}

/// Adds an amount to the cell of the same column and bucket; whether a new one was needed.
fn add(cells: &mut Vec<Cell>, more: Cell) -> bool {
    // Ticks come in order: the cell is among the latest.
    let recent = cells.len().saturating_sub(2 * WAIT_BUCKETS);
    let same = |it: &&mut Cell| it.column == more.column && it.bucket == more.bucket;
    match cells[recent..].iter_mut().find(same) {
        Some(cell) => {
            cell.count = cell.count.saturating_add(more.count);
            cell.ns = cell.ns.saturating_add(more.ns);
            false
        }
        None => {
            cells.push(more);
            true
        }
    }
}

/// Folds the records that say what happened when.
#[derive(Clone, Debug)]
pub struct OverTime {
    waits: Cells<ProcId>,
    all_waits: Cells<()>,
    requests: Cells<(DevId, IoOp)>,
    busy: BTreeMap<DevId, Series>,
}

impl Default for OverTime {
    fn default() -> Self {
        Self {
            waits: Cells::new(),
            all_waits: Cells::new(),
            requests: Cells::new(),
            busy: BTreeMap::new(),
        }
    }
}

impl OverTime {
    pub(super) fn push(&mut self, record: &Record) {
        match record {
            Record::ProcessTick(tick) => {
                self.waits.push(tick.proc, (tick.t0_ns, tick.t1_ns), &tick.waits);
                self.all_waits.push((), (tick.t0_ns, tick.t1_ns), &tick.waits);
            }
            Record::Block(record) => match &**record {
                BlockRecord::DeviceTick(tick) => {
                    let key = (tick.device, tick.op);
                    self.requests.push(key, (tick.t0_ns, tick.t1_ns), &tick.total);
                }
                BlockRecord::Bins(bins) => self.bins(bins),
                _ => {}
            },
            _ => {}
        }
    }

    fn bins(&mut self, bins: &DeviceBins) {
        let length_ns = bins.t1_ns.saturating_sub(bins.t0_ns);
        let width_ns = length_ns / (bins.bins.len() as u64).max(1);
        let series = self.busy.entry(bins.device);
        let series = series.or_insert_with(|| Series::new(BUSY_NS, MAX_BUSY));
        for (at, bin) in bins.bins.iter().enumerate() {
            let t0_ns = bins.t0_ns.saturating_add(at as u64 * width_ns);
            series.add(t0_ns, t0_ns.saturating_add(width_ns), bin.busy_ns.min(width_ns));
        }
    }

    /// Run-queue waits of all processes; `None` if there are none.
    #[must_use]
    pub fn all_waits(&self, view: &View) -> Option<Heat> {
        let heat = self.all_waits.heat([()].into_iter(), view.window_ns());
        (total_ns(&heat) > 0).then_some(heat)
    }

    /// Run-queue waits of several processes; `None` if there are none, or if not all of them were kept.
    #[must_use]
    pub fn waits(&self, view: &View, processes: &[ProcId]) -> Option<Heat> {
        let heat = self.waits.heat(processes.iter().copied(), view.window_ns());
        let usages = processes.iter().filter_map(|id| view.processes().get(id)?.usage());
        let all_ns: u64 = usages.map(|it| it.waits.total_ns()).fold(0, u64::saturating_add);
        (all_ns > 0 && total_ns(&heat) as f64 >= all_ns as f64 * WHOLE).then_some(heat)
    }

    /// Latency of a device's requests in one direction, of those that were measured; `None` without any.
    #[must_use]
    pub fn requests(&self, view: &View, device: DevId, op: IoOp) -> Option<Heat> {
        let heat = self.requests.heat([(device, op)].into_iter(), view.window_ns());
        (total_ns(&heat) > 0).then_some(heat)
    }

    /// Time in which a device was busy.
    #[must_use]
    pub fn busy(&self, device: DevId) -> Option<&Series> {
        self.busy.get(&device)
    }
}

fn total_ns(heat: &Heat) -> u64 {
    heat.columns.iter().map(WaitHist::total_ns).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn waits(lengths_ns: &[u64]) -> WaitHist {
        let mut waits = WaitHist::default();
        lengths_ns.iter().for_each(|&ns| waits.add(ns));
        waits
    }

    #[test]
    fn columns_become_wider_when_there_are_too_many() {
        let mut cells = Cells::new();
        for second in 0..300 {
            let from_ns = second * COLUMN_NS;
            cells.push((), (from_ns, from_ns + COLUMN_NS), &waits(&[500, 3_000_000]));
        }
        let heat = cells.heat([()].into_iter(), 300 * COLUMN_NS);
        assert_eq!((heat.column_ns, heat.columns.len()), (4 * COLUMN_NS, 75));
        assert!(heat.columns.iter().all(|column| column.total_count() == 8));
    }

    #[test]
    fn those_that_wait_most_are_kept() {
        let mut cells = Cells::new();
        for key in 0..300_000u64 {
            cells.push(key, (0, COLUMN_NS), &waits(&[key, 2_000_000]));
        }
        assert!(cells.number <= MAX_CELLS);
        assert!(cells.of.contains_key(&299_999) && !cells.of.contains_key(&0));
    }

    proptest! {
        #[test]
        fn nothing_is_lost_in_merging(
            ticks in prop::collection::vec((0..2_000u64, 0..3u8, prop::collection::vec(0..10_000_000u64, 0..6)), 0..60),
        ) {
            let (mut cells, mut sum) = (Cells::new(), WaitHist::default());
            let mut ticks = ticks;
            ticks.sort();
            for (second, key, lengths) in &ticks {
                let from_ns = second * COLUMN_NS;
                cells.push(*key, (from_ns, from_ns + COLUMN_NS), &waits(lengths));
                sum.merge(&waits(lengths));
            }
            let heat = cells.heat(0..3, u64::MAX);
            let mut all = WaitHist::default();
            heat.columns.iter().for_each(|column| all.merge(column));
            prop_assert_eq!(all, sum);
            prop_assert_eq!(cells.number, cells.of.values().map(Vec::len).sum::<usize>());
        }
    }
}
