// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the compared processes did, second by second: a second pass over a recording, after it is known which processes
//! those are. Its memory depends on their number, not on the length of the recording.

use super::document::Loss;
use super::measured::MeasuredSeries;
use crate::recording::{
    BlockRecord, DevId, IoWaitTick, ProcId, ProcessTick, Record, SchedstatTick, StallKind,
};
use crate::view::Series;
use std::collections::{BTreeMap, BTreeSet};

/// Most blocks of a series: at first one per second, then merged in pairs.
pub(super) const MOST_BLOCKS: u32 = 512;
pub(super) const SECOND_NS: u64 = 1_000_000_000;
/// The kinds of loss, in the order of the series.
pub(super) const LOSSES: [Loss; 9] = [
    Loss::Queued,
    Loss::WakeUp,
    Loss::Throttled,
    Loss::QueuedOrThrottled,
    Loss::BlockIo,
    Loss::MemStall,
    Loss::Sync,
    Loss::DirtyThrottle,
    Loss::Requests,
];

/// Amounts over time of the compared groups of one recording.
#[derive(Clone, Debug)]
pub struct SeriesFold {
    /// The series of each process.
    of: BTreeMap<ProcId, u32>,
    window_ns: u64,
    pub(super) groups: Vec<GroupSeries>,
    pub(super) measured: MeasuredSeries,
}

/// Amounts over time of one group.
#[derive(Clone, Debug)]
pub(super) struct GroupSeries {
    losses: [Series; LOSSES.len()],
    on_cpu: Series,
    wall: Series,
    /// Time on and off CPUs by the length of the ticks that told it: ticks of processes that do little cover several
    /// seconds, whose amounts are then spread evenly.
    told_ns: u64,
    told_by_length: f64,
}

impl Default for GroupSeries {
    fn default() -> Self {
        let series = || Series::new(SECOND_NS, MOST_BLOCKS);
        Self {
            losses: std::array::from_fn(|_| series()),
            on_cpu: series(),
            wall: series(),
            told_ns: 0,
            told_by_length: 0.0,
        }
    }
}

/// Amounts of one group in equal blocks, from the first block in which it existed to the last.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Blocks {
    pub(super) width_ns: u64,
    /// Of each block, in nanoseconds of each second.
    pub(super) losses: Vec<Vec<f64>>,
    pub(super) on_cpu: Vec<f64>,
}

impl SeriesFold {
    pub(super) fn new(
        of: BTreeMap<ProcId, u32>,
        groups: usize,
        devices: BTreeSet<DevId>,
        window_ns: u64,
    ) -> Self {
        Self {
            of,
            window_ns,
            groups: vec![GroupSeries::default(); groups],
            measured: MeasuredSeries::new(devices),
        }
    }

    /// Adds a record. Only those about the compared processes count.
    pub fn push(&mut self, record: &Record) {
        match record {
            Record::ProcessTick(tick) => {
                if let Some(group) = self.group(tick.proc) {
                    group.tick(tick);
                }
            }
            Record::Schedstat(tick) => {
                if let Some(group) = self.group(tick.proc) {
                    group.schedstat(tick);
                }
            }
            Record::Block(block) => {
                if let BlockRecord::Wait(tick) = &**block
                    && let Some(group) = self.group(tick.proc)
                {
                    group.held_up(tick);
                }
                self.measured.push(record);
            }
            other => self.measured.push(other),
        }
    }

    /// Length of the window.
    pub(super) fn window_ns(&self) -> u64 {
        self.window_ns
    }

    fn group(&mut self, id: ProcId) -> Option<&mut GroupSeries> {
        self.groups.get_mut(*self.of.get(&id)? as usize)
    }

    /// The narrowest blocks in which a group can be told.
    pub(super) fn width_ns(&self, group: usize) -> u64 {
        self.groups[group].width_ns()
    }

    /// The blocks of a group, of a width that is a multiple of [`Self::width_ns`].
    pub(super) fn blocks(&self, group: usize, width_ns: u64) -> Blocks {
        self.groups[group].blocks(width_ns, self.window_ns)
    }
}

impl GroupSeries {
    fn told(&mut self, t0_ns: u64, t1_ns: u64, awake_ns: u64) {
        self.told_ns = self.told_ns.saturating_add(awake_ns);
        self.told_by_length += awake_ns as f64 * t1_ns.saturating_sub(t0_ns) as f64;
    }

    fn tick(&mut self, tick: &ProcessTick) {
        let ProcessTick { t0_ns, t1_ns, states, .. } = *tick;
        let wake_up_ns = tick.wakeup_latency_ns.min(states.queued_ns);
        let amounts = [
            states.queued_ns - wake_up_ns,
            wake_up_ns,
            states.throttled_ns,
            0,
            states.block_io_ns,
            states.mem_stall_ns,
        ];
        for (series, ns) in self.losses.iter_mut().zip(amounts) {
            series.add(t0_ns, t1_ns, ns);
        }
        self.on_cpu.add(t0_ns, t1_ns, states.on_cpu_ns);
        self.wall.add(t0_ns, t1_ns, tick.wall_ns.max(1));
        let lost = amounts.iter().fold(0, |sum: u64, ns| sum.saturating_add(*ns));
        self.told(t0_ns, t1_ns, lost.saturating_add(states.on_cpu_ns));
    }

    fn held_up(&mut self, tick: &IoWaitTick) {
        let loss = match tick.kind {
            StallKind::Sync => Loss::Sync,
            StallKind::DirtyThrottle => Loss::DirtyThrottle,
            StallKind::Request => Loss::Requests,
        };
        let at = LOSSES.iter().position(|it| *it == loss);
        if let Some(series) = at.and_then(|at| self.losses.get_mut(at)) {
            series.add(tick.t0_ns, tick.t1_ns, tick.waits.total_ns());
        }
    }

    fn schedstat(&mut self, tick: &SchedstatTick) {
        let SchedstatTick { t0_ns, t1_ns, .. } = *tick;
        let either = LOSSES.iter().position(|loss| *loss == Loss::QueuedOrThrottled);
        if let Some(series) = either.and_then(|at| self.losses.get_mut(at)) {
            series.add(t0_ns, t1_ns, tick.delay_ns);
        }
        self.on_cpu.add(t0_ns, t1_ns, tick.on_cpu_ns);
        self.wall.add(t0_ns, t1_ns, tick.wall_ns.max(1));
        self.told(t0_ns, t1_ns, tick.delay_ns.saturating_add(tick.on_cpu_ns));
    }

    fn all(&self) -> impl Iterator<Item = &Series> {
        self.losses.iter().chain([&self.on_cpu, &self.wall])
    }

    fn width_ns(&self) -> u64 {
        let mut width_ns = self.all().map(Series::width_ns).max().unwrap_or(SECOND_NS);
        let tick_ns = self.told_by_length / self.told_ns.max(1) as f64;
        // Ticks of 1.0 s are a little longer or shorter.
        while (width_ns as f64) * 1.5 < tick_ns {
            width_ns = width_ns.saturating_mul(2);
        }
        width_ns
    }

    fn blocks(&self, width_ns: u64, window_ns: u64) -> Blocks {
        let wall = self.wall.in_bins_of(width_ns);
        // What is left of the window after the last whole block is none. A tick may end a little early.
        let whole = usize::try_from(window_ns.saturating_add(width_ns / 50) / width_ns)
            .unwrap_or(usize::MAX);
        let first = wall.iter().position(|ns| *ns > 0).unwrap_or(0);
        let last = wall.iter().rposition(|ns| *ns > 0).map_or(0, |at| at + 1).min(whole);
        let rates = |series: &Series| -> Vec<f64> {
            let bins = series.in_bins_of(width_ns);
            let rate = |at| bins.get(at).copied().unwrap_or(0) as f64 * 1e9 / width_ns as f64;
            (first..last).map(rate).collect()
        };
        let losses = self.losses.iter().map(rates).collect();
        Blocks { width_ns, losses, on_cpu: rates(&self.on_cpu) }
    }
}

/// Number of whole blocks in a window: what is left after the last one is none. A tick may end a little early.
pub(super) fn whole_blocks(width_ns: u64, window_ns: u64) -> usize {
    let blocks = window_ns.saturating_add(width_ns / 50) / width_ns.max(1);
    usize::try_from(blocks).unwrap_or(usize::MAX)
}

/// A series as amounts per block, in nanoseconds (or pieces) of each second, for the whole blocks of the window.
pub(super) fn rates(series: &Series, width_ns: u64, blocks: usize) -> Vec<f64> {
    let bins = series.in_bins_of(width_ns);
    let rate = |at: usize| bins.get(at).copied().unwrap_or(0) as f64 * 1e9 / width_ns as f64;
    (0..blocks).map(rate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::ThreadStates;
    use crate::recording::WaitHist;

    fn tick(t0_ns: u64, t1_ns: u64, queued_ns: u64) -> ProcessTick {
        ProcessTick {
            t0_ns,
            t1_ns,
            proc: ProcId(1),
            threads: 1,
            wall_ns: t1_ns - t0_ns,
            states: ThreadStates { queued_ns, ..ThreadStates::default() },
            waits: WaitHist::default(),
            wait_max_ns: 0,
            switches: 0,
            wakeup_latency_ns: 0,
        }
    }

    fn fold(ticks: impl IntoIterator<Item = ProcessTick>, window_ns: u64) -> SeriesFold {
        let mut fold =
            SeriesFold::new(BTreeMap::from([(ProcId(1), 0)]), 1, BTreeSet::new(), window_ns);
        ticks.into_iter().for_each(|tick| fold.push(&Record::ProcessTick(Box::new(tick))));
        fold
    }

    #[test]
    fn only_whole_seconds_in_which_it_existed_are_blocks() {
        let seconds = (3..10).map(|s| tick(s * SECOND_NS, (s + 1) * SECOND_NS, s * 1000));
        let fold = fold(
            seconds.chain([tick(10 * SECOND_NS, 10 * SECOND_NS + 500, 7)]),
            10 * SECOND_NS + 500,
        );
        assert_eq!(fold.width_ns(0), SECOND_NS);
        let blocks = fold.blocks(0, SECOND_NS);
        assert_eq!(blocks.losses[0], [3e3, 4e3, 5e3, 6e3, 7e3, 8e3, 9e3]);
    }

    #[test]
    fn what_is_told_every_four_seconds_makes_blocks_of_four() {
        let fold = fold(
            (0..8).map(|i| tick(4 * i * SECOND_NS, 4 * (i + 1) * SECOND_NS, 100)),
            32 * SECOND_NS,
        );
        assert_eq!(fold.width_ns(0), 4 * SECOND_NS);
        assert_eq!(fold.blocks(0, 4 * SECOND_NS).losses[0], [25.0; 8]);
    }

    #[test]
    fn a_day_takes_as_many_blocks_as_an_hour() {
        let fold = fold(
            (0..86_400).map(|s| tick(s * SECOND_NS, (s + 1) * SECOND_NS, 1)),
            86_400 * SECOND_NS,
        );
        assert!(fold.groups[0].all().all(|series| series.bins().len() <= MOST_BLOCKS as usize));
        let blocks = fold.blocks(0, fold.width_ns(0));
        assert!(blocks.on_cpu.len() > MOST_BLOCKS as usize / 4, "{}", blocks.on_cpu.len());
    }
}
