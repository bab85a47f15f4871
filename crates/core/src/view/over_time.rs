// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What happened when, in more detail than the rules need: how long waits and requests were in each second or tenth of a
//! second, how busy devices were in bins of 10 ms, and what single threads did. Kept only for pages that show it, within
//! fixed bounds.

use super::{Series, View};
use crate::recording::{
    BlockRecord, DevId, DeviceBins, IoOp, ProcId, Record, ThreadLedger, WAIT_BUCKETS, WaitBin,
    WaitHist,
};
use std::collections::BTreeMap;

/// The columns of a heatmap at first, and the maximum number of them; if there are more, two are merged into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Columns {
    width_ns: u64,
    most: u64,
}

/// A column for each tick.
const BY_TICK: Columns = Columns { width_ns: 1_000_000_000, most: 120 };
/// A column for each bin: a minute.
const BY_BIN: Columns = Columns { width_ns: WaitBin::BIN_NS, most: 600 };
/// What a bin that is longer holds may be further from its column than the next one.
const LONGEST_BIN_NS: u64 = 2 * BY_BIN.width_ns;
/// Maximum number of cells that are kept, of 24 bytes each.
const MAX_CELLS: usize = 400_000;
/// Bins of a device's activity: at first 10 ms each (a minute), then merged in pairs.
const BUSY_NS: u64 = 10_000_000;
const MAX_BUSY: u32 = 6000;
/// Part of the waits or requests that must be there for a heatmap of them.
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
    columns: Columns,
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
    fn new(columns: Columns) -> Self {
        Self { columns, of: BTreeMap::new(), number: 0 }
    }

    fn push(&mut self, key: K, (t0_ns, t1_ns): (u64, u64), waits: &WaitHist) {
        let middle_ns = t0_ns / 2 + t1_ns / 2;
        while middle_ns / self.columns.width_ns >= self.columns.most {
            self.coarsen();
        }
        // Below the maximum.
        let column = (middle_ns / self.columns.width_ns) as u32;
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
        self.columns.width_ns = self.columns.width_ns.saturating_mul(2);
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
        let Columns { width_ns, most } = self.columns;
        let number = window_ns.div_ceil(width_ns).clamp(1, most);
        let mut columns = vec![WaitHist::default(); number as usize];
        for cell in keys.filter_map(|key| self.of.get(&key)).flatten() {
            let Some(column) = columns.get_mut(cell.column as usize) else { continue };
            let bucket = usize::from(cell.bucket);
            column.count[bucket] = column.count[bucket].saturating_add(cell.count.into());
            column.ns[bucket] = column.ns[bucket].saturating_add(cell.ns);
        }
        Heat { column_ns: width_ns, columns }
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
    /// Of the target's processes, by bin.
    waits_by_bin: Cells<ProcId>,
    all_waits: Cells<()>,
    requests: Cells<(DevId, IoOp)>,
    requests_by_bin: Cells<(DevId, IoOp)>,
    busy: BTreeMap<DevId, Series>,
    threads: BTreeMap<ProcId, Vec<ThreadLedger>>,
}

impl Default for OverTime {
    fn default() -> Self {
        Self {
            waits: Cells::new(BY_TICK),
            waits_by_bin: Cells::new(BY_BIN),
            all_waits: Cells::new(BY_TICK),
            requests: Cells::new(BY_TICK),
            requests_by_bin: Cells::new(BY_BIN),
            busy: BTreeMap::new(),
            threads: BTreeMap::new(),
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
            Record::WaitBin(bin) if is_short(bin.t0_ns, bin.t1_ns) => {
                self.waits_by_bin.push(bin.proc, (bin.t0_ns, bin.t1_ns), &bin.waits);
            }
            Record::ThreadLedger(it) => {
                self.threads.entry(it.proc).or_default().push((**it).clone());
            }
            Record::Block(record) => match &**record {
                BlockRecord::DeviceTick(tick) => {
                    let key = (tick.device, tick.op);
                    self.requests.push(key, (tick.t0_ns, tick.t1_ns), &tick.total);
                }
                BlockRecord::Requests(bin) if is_short(bin.t0_ns, bin.t1_ns) => {
                    let key = (bin.device, bin.op);
                    self.requests_by_bin.push(key, (bin.t0_ns, bin.t1_ns), &bin.total);
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

    /// Run-queue waits of several processes; `None` if there are none, or if not all of them were kept. By bin where the
    /// bins hold them, else by tick.
    #[must_use]
    pub fn waits(&self, view: &View, processes: &[ProcId]) -> Option<Heat> {
        self.waits_of(view, processes, &[])
    }

    /// Likewise of all processes of the target.
    #[must_use]
    pub fn waits_of_target(&self, view: &View, processes: &[ProcId]) -> Option<Heat> {
        self.waits_of(view, processes, &[ProcId::OTHERS])
    }

    /// `more`: bins that have waits of these processes and of no others.
    fn waits_of(&self, view: &View, processes: &[ProcId], more: &[ProcId]) -> Option<Heat> {
        let heat = self.waits.heat(processes.iter().copied(), view.window_ns());
        let usages = processes.iter().filter_map(|id| view.processes().get(id)?.usage());
        let all_ns: u64 = usages.map(|it| it.waits.total_ns()).fold(0, u64::saturating_add);
        if all_ns == 0 || !is_most(total_ns(&heat), all_ns) {
            return None;
        }
        let keys = processes.iter().chain(more).copied();
        Some(finer(self.waits_by_bin.heat(keys, view.window_ns()), heat))
    }

    /// Latency of a device's requests in one direction, of those that were measured; `None` without any. By bin where the
    /// bins hold them, else by tick.
    #[must_use]
    pub fn requests(&self, view: &View, device: DevId, op: IoOp) -> Option<Heat> {
        let (key, window_ns) = ([(device, op)], view.window_ns());
        let heat = self.requests.heat(key.into_iter(), window_ns);
        let by_bin = self.requests_by_bin.heat(key.into_iter(), window_ns);
        (total_ns(&heat) > 0).then(|| finer(by_bin, heat))
    }

    /// The ledgers of a process's threads, in the order in which they were recorded; empty if they were not.
    #[must_use]
    pub fn threads(&self, process: ProcId) -> &[ThreadLedger] {
        self.threads.get(&process).map_or(&[], Vec::as_slice)
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

fn total_count(heat: &Heat) -> u64 {
    heat.columns.iter().map(WaitHist::total_count).fold(0, u64::saturating_add)
}

fn is_most(part: u64, whole: u64) -> bool {
    part as f64 >= whole as f64 * WHOLE
}

fn is_short(t0_ns: u64, t1_ns: u64) -> bool {
    t1_ns.saturating_sub(t0_ns) <= LONGEST_BIN_NS
}

/// The heatmap by bin, unless it lacks some of what that by tick has.
fn finer(by_bin: Heat, by_tick: Heat) -> Heat {
    let has_most = is_most(total_ns(&by_bin), total_ns(&by_tick))
        && is_most(total_count(&by_bin), total_count(&by_tick));
    if has_most && by_bin.column_ns < by_tick.column_ns { by_bin } else { by_tick }
}

#[cfg(test)]
mod tests {
    use super::super::Fold;
    use super::*;
    use crate::recording::{DeviceTick, ProcessTick, RequestBin, ThreadStates};
    use proptest::prelude::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn waits(lengths_ns: &[u64]) -> WaitHist {
        let mut waits = WaitHist::default();
        lengths_ns.iter().for_each(|&ns| waits.add(ns));
        waits
    }

    #[test]
    fn columns_become_wider_when_there_are_too_many() {
        let mut cells = Cells::new(BY_TICK);
        for second in 0..300 {
            let from_ns = second * SECOND_NS;
            cells.push((), (from_ns, from_ns + SECOND_NS), &waits(&[500, 3_000_000]));
        }
        let heat = cells.heat([()].into_iter(), 300 * SECOND_NS);
        assert_eq!((heat.column_ns, heat.columns.len()), (4 * SECOND_NS, 75));
        assert!(heat.columns.iter().all(|column| column.total_count() == 8));
    }

    #[test]
    fn those_that_wait_most_are_kept() {
        let mut cells = Cells::new(BY_TICK);
        for key in 0..300_000u64 {
            cells.push(key, (0, SECOND_NS), &waits(&[key, 2_000_000]));
        }
        assert!(cells.number <= MAX_CELLS);
        assert!(cells.of.contains_key(&299_999) && !cells.of.contains_key(&0));
    }

    /// The width of the columns for a process that waited three times in a second, with these bins.
    fn column_ns(bins: &[(u64, u64, ProcId, WaitHist)]) -> u64 {
        let (mut fold, me) = (Fold::with_plots(), ProcId(1));
        let usage = ProcessTick {
            t0_ns: 0,
            t1_ns: SECOND_NS,
            proc: me,
            threads: 1,
            wall_ns: SECOND_NS,
            states: ThreadStates::default(),
            waits: waits(&[1_000, 2_000_000, 30_000_000]),
            wait_max_ns: 30_000_000,
            switches: 3,
            wakeup_latency_ns: 0,
        };
        fold.push(&Record::ProcessTick(Box::new(usage)));
        for (t0_ns, t1_ns, proc, waits) in bins.iter().cloned() {
            fold.push(&Record::WaitBin(Box::new(WaitBin { t0_ns, t1_ns, proc, waits })));
        }
        let over_time = fold.over_time.as_ref().unwrap();
        let heat = over_time.waits(fold.view(), &[me]).unwrap();
        let target = over_time.waits_of_target(fold.view(), &[me]).unwrap();
        for heat in [&heat, &target] {
            assert_eq!((total_ns(heat), total_count(heat)), (32_001_000, 3));
        }
        assert!(heat.column_ns >= target.column_ns);
        target.column_ns
    }

    #[test]
    fn requests_are_shown_by_bin_where_there_are_bins() {
        let (device, op) = (DevId { major: 8, minor: 0 }, IoOp::Read);
        let mut fold = Fold::with_plots();
        let mut push = |record| fold.push(&Record::Block(Box::new(record)));
        push(BlockRecord::DeviceTick(DeviceTick {
            t0_ns: 0,
            t1_ns: SECOND_NS,
            device,
            op,
            total: waits(&[5_000_000, 6_000_000]),
            queue: WaitHist::default(),
            device_time: WaitHist::default(),
            max_ns: 6_000_000,
            before: None,
            sampled_one_in: 1,
        }));
        let bin = |at: u64, ns| {
            let (t0_ns, t1_ns) = (at * RequestBin::BIN_NS, (at + 1) * RequestBin::BIN_NS);
            BlockRecord::Requests(RequestBin { t0_ns, t1_ns, device, op, total: waits(&[ns]) })
        };
        push(bin(2, 5_000_000));
        let heat = |fold: &Fold| fold.over_time.as_ref()?.requests(fold.view(), device, op);
        assert_eq!(heat(&fold).unwrap().column_ns, SECOND_NS, "one of them is in no bin");
        fold.push(&Record::Block(Box::new(bin(7, 6_000_000))));
        let shown = heat(&fold).unwrap();
        assert_eq!((shown.column_ns, shown.columns.len()), (RequestBin::BIN_NS, 10));
        let columns = shown.columns.iter().enumerate();
        let filled = columns.filter(|(_, it)| !it.is_empty()).map(|(at, _)| at);
        assert_eq!(filled.collect::<Vec<_>>(), [2, 7]);
    }

    #[test]
    fn columns_are_bins_where_the_bins_hold_all_that_the_ticks_do() {
        const MS: u64 = 1_000_000;
        let (me, others) = (ProcId(1), ProcId::OTHERS);
        let first = (0, 90 * MS, me, waits(&[1_000, 2_000_000]));
        let second = |proc, waits| (90 * MS, 215 * MS, proc, waits);
        assert_eq!(column_ns(&[]), SECOND_NS, "an old recording");
        assert_eq!(column_ns(&[first.clone(), second(me, waits(&[30_000_000]))]), 100 * MS);
        assert_eq!(column_ns(&[first.clone(), second(others, waits(&[30_000_000]))]), 100 * MS);
        assert_eq!(column_ns(&[first]), SECOND_NS, "the longest is missing");
        let few = second(me, waits(&[2_000_000, 30_000_000]));
        assert_eq!(column_ns(&[few]), SECOND_NS, "the shortest is missing");
        let late = (0, 300 * MS, me, waits(&[1_000, 2_000_000, 30_000_000]));
        assert_eq!(column_ns(&[late]), SECOND_NS, "it is not known in which column they were");
    }

    proptest! {
        #[test]
        fn nothing_is_lost_in_merging(
            ticks in prop::collection::vec((0..2_000u64, 0..3u8, prop::collection::vec(0..10_000_000u64, 0..6)), 0..60),
        ) {
            let (mut cells, mut sum) = (Cells::new(BY_TICK), WaitHist::default());
            let mut ticks = ticks;
            ticks.sort();
            for (second, key, lengths) in &ticks {
                let from_ns = second * SECOND_NS;
                cells.push(*key, (from_ns, from_ns + SECOND_NS), &waits(lengths));
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
