// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Block IO: which processes transferred what, how busy the devices were, what the kernel wrote back and when, and
//! which processes waited.
//!
//! The size of the view depends on the number of devices, files and processes, not on the length of the recording:
//! lists are bounded and count what they drop, and series merge their bins.

mod activity;
mod bounded_list;
mod held;
mod held_back;
mod io_table;
mod neighbours;
mod pace;
mod passes;
mod pattern;
pub mod stalls;
#[cfg(test)]
mod tests;
mod writeback;

pub use activity::{Activity, BusyStretch, DiskView, Latency, MIN_BUSY_STRETCH_NS};
pub use bounded_list::BoundedList;
pub use held::{HeldBack, HeldKey, HeldTransfers};
pub use held_back::{HeldOfCgroup, held_by_cgroup, held_transfers};
pub use io_table::{IoKey, IoSum, Row, RowName, RowsBy};
pub use neighbours::{Neighbour, Shares, main_device, others_share, own_share};
pub use pace::{Paces, pace_series};
pub use passes::dirtied_inodes;
pub(in crate::view) use writeback::Writeback;

use crate::recording::{
    BlockRecord, DevId, Device, File, FileId, IoCulprit, IoOp, IoWaitTick, JournalCommit, Mount,
    ProcId, Stall, StallKind, WaitHist, WritebackPass,
};
use crate::view::Series;
use passes::Passes;
use std::collections::BTreeMap;

/// Maximum number of facts of one kind; further ones are dropped.
const MAX_FACTS: usize = 100_000;

/// Stalls of one process, kind and device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IoWaits {
    /// Histogram of durations.
    pub waits: WaitHist,
    /// Longest stall, in nanoseconds.
    pub max_ns: u64,
    /// Number of further stalls of unknown duration, which had ended by the next poll.
    pub unmeasured: u64,
}

/// Stalled process, kind of the stall, and device if known.
pub type WaitKey = (ProcId, StallKind, Option<DevId>);

/// Facts and totals of block IO.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BlockView {
    devices: BTreeMap<DevId, Device>,
    mounts: BTreeMap<DevId, Mount>,
    settings: BTreeMap<String, Option<String>>,
    files: BTreeMap<FileId, File>,
    sums: BTreeMap<IoKey, IoSum>,
    latency: BTreeMap<(DevId, IoOp), Latency>,
    activity: BTreeMap<DevId, Activity>,
    disks: BTreeMap<DevId, DiskView>,
    passes: Passes,
    commits: BoundedList<JournalCommit>,
    waits: BTreeMap<WaitKey, Box<IoWaits>>,
    stalls: BoundedList<Stall>,
    blame: BTreeMap<(ProcId, DevId, IoCulprit), u64>,
    paces: Paces,
    held: HeldTransfers,
    held_up: BTreeMap<ProcId, Series>,
}

/// Inserts a fact, or replaces an earlier one with the same key. A new key is dropped if there is no room.
fn keep<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: V) {
    if map.len() < MAX_FACTS || map.contains_key(&key) {
        map.insert(key, value);
    }
}

impl BlockView {
    pub(super) fn push(&mut self, record: &BlockRecord) {
        match record {
            BlockRecord::Device(device) => keep(&mut self.devices, device.dev, device.clone()),
            BlockRecord::Mount(mount) => keep(&mut self.mounts, mount.fs, mount.clone()),
            BlockRecord::Setting(setting) => {
                keep(&mut self.settings, setting.path.clone(), setting.value.clone());
            }
            BlockRecord::File(file) => keep(&mut self.files, file.id, file.clone()),
            BlockRecord::Io(tick) => io_table::add(&mut self.sums, tick),
            BlockRecord::DeviceTick(tick) => {
                self.latency.entry((tick.device, tick.op)).or_default().push(tick);
            }
            BlockRecord::Bins(bins) => self.activity.entry(bins.device).or_default().push(bins),
            BlockRecord::Disk(reading) => {
                self.disks.entry(reading.device).or_default().push(reading);
            }
            BlockRecord::Pass(pass) => self.passes.push(pass),
            BlockRecord::Commit(commit) => {
                self.commits.push(commit.clone());
            }
            BlockRecord::Wait(tick) => self.wait(tick),
            BlockRecord::Stall(stall) => {
                self.stalls.push(stall.clone());
            }
            BlockRecord::Blame(tick) => {
                let sum = self.blame.entry((tick.victim, tick.device, tick.culprit)).or_default();
                *sum = sum.saturating_add(tick.ns);
            }
            BlockRecord::Pace(pace) => self.paces.push(pace),
            BlockRecord::Held(tick) => self.held.push(tick),
            // Their sums are in the ticks of the devices.
            BlockRecord::Requests(_) => {}
        }
    }

    fn wait(&mut self, tick: &IoWaitTick) {
        let waits = self.waits.entry((tick.proc, tick.kind, tick.device)).or_default();
        waits.waits.merge(&tick.waits);
        waits.max_ns = waits.max_ns.max(tick.max_ns);
        waits.unmeasured = waits.unmeasured.saturating_add(tick.unmeasured);
        // The requests that a sync waits for are counted as stalls themselves.
        if tick.kind != StallKind::Sync {
            let series = || Series::new(1_000_000_000, held::SECONDS);
            let held_up = self.held_up.entry(tick.proc).or_insert_with(series);
            held_up.add(tick.t0_ns, tick.t1_ns, tick.waits.total_ns());
        }
    }

    /// Transfers that IO limits delayed.
    #[must_use]
    pub fn held(&self) -> &HeldTransfers {
        &self.held
    }

    /// Time that the threads of a process waited for requests or were paused by dirty throttling, over time.
    #[must_use]
    pub fn held_up(&self, id: ProcId) -> Option<&Series> {
        self.held_up.get(&id)
    }

    /// Latest facts of the devices.
    #[must_use]
    pub fn devices(&self) -> &BTreeMap<DevId, Device> {
        &self.devices
    }

    /// The mounts, by device number of the filesystem.
    #[must_use]
    pub fn mounts(&self) -> &BTreeMap<DevId, Mount> {
        &self.mounts
    }

    /// Latest content of the kernel's setting files, by path; `None` = the file does not exist or cannot be read.
    #[must_use]
    pub fn settings(&self) -> &BTreeMap<String, Option<String>> {
        &self.settings
    }

    /// Latest content of one setting file; `None` also if the recording does not have it.
    #[must_use]
    pub fn setting(&self, path: &str) -> Option<&str> {
        self.settings.get(path)?.as_deref()
    }

    /// The files.
    #[must_use]
    pub fn files(&self) -> &BTreeMap<FileId, File> {
        &self.files
    }

    /// Latency of requests, by device and direction.
    #[must_use]
    pub fn latency(&self) -> &BTreeMap<(DevId, IoOp), Latency> {
        &self.latency
    }

    /// Activity of the devices, from the probe.
    #[must_use]
    pub fn activity(&self) -> &BTreeMap<DevId, Activity> {
        &self.activity
    }

    /// Activity of disks and partitions, from `/proc/diskstats`.
    #[must_use]
    pub fn disks(&self) -> &BTreeMap<DevId, DiskView> {
        &self.disks
    }

    /// The flusher's passes. Those of one device and reason with less than a second between them are joined into one.
    /// Ordered by the end of the first joined part.
    #[must_use]
    pub fn passes(&self) -> &[WritebackPass] {
        self.passes.kept.list()
    }

    /// Commits of filesystem journals.
    #[must_use]
    pub fn commits(&self) -> &[JournalCommit] {
        self.commits.list()
    }

    /// Stalls of any length, by process, kind and device.
    #[must_use]
    pub fn waits(&self) -> &BTreeMap<WaitKey, Box<IoWaits>> {
        &self.waits
    }

    /// Those of one process, by kind and device.
    pub fn waits_of(&self, id: ProcId) -> impl Iterator<Item = (&WaitKey, &IoWaits)> {
        // The first kind in order, and no device, come first.
        let from = (id, StallKind::Sync, None);
        let of = self.waits.range(from..).take_while(move |(key, _)| key.0 == id);
        of.map(|(key, waits)| (key, &**waits))
    }

    /// Individual long stalls.
    #[must_use]
    pub fn stalls(&self) -> &[Stall] {
        self.stalls.list()
    }

    /// Passes, commits, stalls and busy spells: number of those that were not kept, and number of all.
    #[must_use]
    pub fn dropped_of(&self) -> (u64, u64) {
        let spells = self.activity.values().map(Activity::dropped_of);
        [self.passes.kept.dropped_of(), self.commits.dropped_of(), self.stalls.dropped_of()]
            .into_iter()
            .chain(spells)
            .fold((0, 0), |(dropped, all), one| (dropped + one.0, all + one.1))
    }

    /// Time that processes waited for their requests, in nanoseconds, by victim, device and culprit.
    #[must_use]
    pub fn blame(&self) -> &BTreeMap<(ProcId, DevId, IoCulprit), u64> {
        &self.blame
    }

    /// That of one victim, by device and culprit.
    pub fn blame_of(&self, victim: ProcId) -> impl Iterator<Item = (DevId, IoCulprit, u64)> {
        // The first device and the first culprit in order.
        let from = (victim, DevId { major: 0, minor: 0 }, IoCulprit::Process(ProcId(0)));
        let of = self.blame.range(from..).take_while(move |((id, ..), _)| *id == victim);
        of.map(|((_, device, culprit), ns)| (*device, *culprit, *ns))
    }

    /// Transfers by device, purpose, direction, submitter, owner of the pages and reason of writeback.
    #[must_use]
    pub fn sums(&self) -> &BTreeMap<IoKey, IoSum> {
        &self.sums
    }

    /// Requests to devices over time, by originator.
    #[must_use]
    pub fn paces(&self) -> &Paces {
        &self.paces
    }

    /// The whole disk of a partition. A whole disk or an unknown device is returned unchanged.
    #[must_use]
    pub fn disk_of(&self, dev: DevId) -> DevId {
        self.devices.get(&dev).and_then(|device| device.disk).unwrap_or(dev)
    }

    /// Name of a device, or its number (`major:minor`) if the name is not known.
    #[must_use]
    pub fn device_name(&self, dev: DevId) -> String {
        self.devices.get(&dev).map_or_else(|| dev.to_string(), |device| device.name.clone())
    }
}
