// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Block IO: who transferred what, how busy the devices were, what the kernel wrote back and when, and who waited.
//!
//! Its size depends on the number of devices, files and processes: lists are bounded and count what they drop,
//! series merge their bins.

mod activity;
mod beside;
mod held;
mod held_back;
mod kept;
mod pace;
mod passes;
mod pattern;
pub mod stalls;
mod tally;
#[cfg(test)]
mod tests;

pub use activity::{Activity, DiskView, Latency, MIN_SPELL_NS, Spell};
pub use beside::{Beside, Shares, main_device, others_share, own_share};
pub use held::{AllHeld, HeldBack, HeldKey};
pub use held_back::{HeldOfCgroup, held_by_cgroup, held_transfers};
pub use kept::Kept;
pub use pace::{Paces, pace_series};
pub use passes::dirtied_inodes;
pub use tally::{By, IoKey, IoSum, Row, RowName};

use crate::recording::{
    BlockRecord, DevId, Device, File, FileId, IoCulprit, IoOp, IoWaitTick, JournalCommit, Mount,
    ProcId, Stall, StallKind, WaitHist, WritebackPass,
};
use crate::view::Series;
use passes::Passes;
use std::collections::BTreeMap;

/// Facts of one kind beyond this many are not kept.
const MAX_FACTS: usize = 100_000;

/// Hold-ups of one kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IoWaits {
    /// Sizes.
    pub waits: WaitHist,
    /// Longest.
    pub max_ns: u64,
    /// How many more there were, the length of which is not known: too short to be seen when it was looked.
    pub unmeasured: u64,
}

/// Whose hold-ups, by what, on which device.
pub type WaitKey = (ProcId, StallKind, Option<DevId>);

/// All that is known of block IO.
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
    commits: Kept<JournalCommit>,
    waits: BTreeMap<WaitKey, IoWaits>,
    stalls: Kept<Stall>,
    blame: BTreeMap<(ProcId, DevId, IoCulprit), u64>,
    paces: Paces,
    held: AllHeld,
    held_up: BTreeMap<ProcId, Series>,
}

/// Keeps a fact if there is room, or if it is known already.
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
            BlockRecord::Io(tick) => tally::add(&mut self.sums, tick),
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
        }
    }

    fn wait(&mut self, tick: &IoWaitTick) {
        let waits = self.waits.entry((tick.proc, tick.kind, tick.device)).or_default();
        waits.waits.merge(&tick.waits);
        waits.max_ns = waits.max_ns.max(tick.max_ns);
        waits.unmeasured = waits.unmeasured.saturating_add(tick.unmeasured);
        // A sync waits for requests that count themselves.
        if tick.kind != StallKind::Sync {
            let series = || Series::new(1_000_000_000, held::SECONDS);
            let held_up = self.held_up.entry(tick.proc).or_insert_with(series);
            held_up.add(tick.t0_ns, tick.t1_ns, tick.waits.total_ns());
        }
    }

    /// What limits of IO held back.
    #[must_use]
    pub fn held(&self) -> &AllHeld {
        &self.held
    }

    /// How long a process waited for its requests, and in pauses, over time.
    #[must_use]
    pub fn held_up(&self, id: ProcId) -> Option<&Series> {
        self.held_up.get(&id)
    }

    /// The devices, as they were last.
    #[must_use]
    pub fn devices(&self) -> &BTreeMap<DevId, Device> {
        &self.devices
    }

    /// The mounts, by the filesystem's number.
    #[must_use]
    pub fn mounts(&self) -> &BTreeMap<DevId, Mount> {
        &self.mounts
    }

    /// The latest content of the kernel's setting files, by path; `None` = not there, or not readable.
    #[must_use]
    pub fn settings(&self) -> &BTreeMap<String, Option<String>> {
        &self.settings
    }

    /// One setting's latest content.
    #[must_use]
    pub fn setting(&self, path: &str) -> Option<&str> {
        self.settings.get(path)?.as_deref()
    }

    /// The files.
    #[must_use]
    pub fn files(&self) -> &BTreeMap<FileId, File> {
        &self.files
    }

    /// How long requests took, by device and direction.
    #[must_use]
    pub fn latency(&self) -> &BTreeMap<(DevId, IoOp), Latency> {
        &self.latency
    }

    /// How busy the devices were, from the probe.
    #[must_use]
    pub fn activity(&self) -> &BTreeMap<DevId, Activity> {
        &self.activity
    }

    /// The same from `/proc/diskstats`; partitions too.
    #[must_use]
    pub fn disks(&self) -> &BTreeMap<DevId, DiskView> {
        &self.disks
    }

    /// The flusher's passes, those of a device and reason with less than a second between them as one; in the order
    /// in which they ended first.
    #[must_use]
    pub fn passes(&self) -> &[WritebackPass] {
        self.passes.kept.list()
    }

    /// The journals' commits.
    #[must_use]
    pub fn commits(&self) -> &[JournalCommit] {
        self.commits.list()
    }

    /// Hold-ups of any length.
    #[must_use]
    pub fn waits(&self) -> &BTreeMap<WaitKey, IoWaits> {
        &self.waits
    }

    /// The long hold-ups.
    #[must_use]
    pub fn stalls(&self) -> &[Stall] {
        self.stalls.list()
    }

    /// Passes, commits, stalls and busy spells: how many came beyond those that are kept, and how many came in all.
    #[must_use]
    pub fn dropped_of(&self) -> (u64, u64) {
        let spells = self.activity.values().map(Activity::dropped_of);
        [self.passes.kept.dropped_of(), self.commits.dropped_of(), self.stalls.dropped_of()]
            .into_iter()
            .chain(spells)
            .fold((0, 0), |(dropped, all), one| (dropped + one.0, all + one.1))
    }

    /// Beside whose requests requests waited: by victim, device and culprit.
    #[must_use]
    pub fn blame(&self) -> &BTreeMap<(ProcId, DevId, IoCulprit), u64> {
        &self.blame
    }

    /// What was transferred, by everything that is told apart.
    #[must_use]
    pub fn sums(&self) -> &BTreeMap<IoKey, IoSum> {
        &self.sums
    }

    /// When devices were asked, and by whom.
    #[must_use]
    pub fn paces(&self) -> &Paces {
        &self.paces
    }

    /// The whole disk of a partition; a disk, and what is not known, is its own.
    #[must_use]
    pub fn disk_of(&self, dev: DevId) -> DevId {
        self.devices.get(&dev).and_then(|device| device.disk).unwrap_or(dev)
    }

    /// Name of a device; its number where none is known.
    #[must_use]
    pub fn device_name(&self, dev: DevId) -> String {
        self.devices.get(&dev).map_or_else(|| dev.to_string(), |device| device.name.clone())
    }
}
