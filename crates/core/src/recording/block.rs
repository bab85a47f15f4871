// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Block IO: devices, filesystems and files, what was asked of the devices, for whom and why, and what waited
//! for it.

use super::{CgroupId, HeldTick, ProcId, WaitHist};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// A device number: of a disk, a partition, or a filesystem that has none (`0:39`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DevId {
    /// Major number, 12 bits.
    pub major: u32,
    /// Minor number, 20 bits.
    pub minor: u32,
}

impl DevId {
    /// From the kernel's `dev_t`: 12 bits of major above 20 of minor.
    #[must_use]
    pub fn from_kernel(dev: u32) -> Self {
        Self { major: dev >> 20, minor: dev & 0xf_ffff }
    }
}

impl fmt::Display for DevId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// Text that is not `major:minor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotADevice;

impl FromStr for DevId {
    type Err = NotADevice;

    fn from_str(text: &str) -> Result<Self, NotADevice> {
        let (major, minor) = text.trim().split_once(':').ok_or(NotADevice)?;
        let number = |text: &str| text.parse().map_err(|_| NotADevice);
        Ok(Self { major: number(major)?, minor: number(minor)? })
    }
}

/// A block device, at first sight and again when it goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its number.
    pub dev: DevId,
    /// Its name below `/sys/class/block`, decoded.
    pub name: String,
    /// The disk that it is a partition of; `None` = it is a whole disk.
    pub disk: Option<DevId>,
    /// First sector of a partition, in units of 512 bytes.
    pub start_sector: Option<u64>,
    /// Length in units of 512 bytes; `None` where unknown.
    pub sectors: Option<u64>,
    /// What is below a stacked device: the backing file of a loop device, or the disks of an array, decoded.
    pub backing: Option<String>,
    /// Whether it vanished during the window.
    pub gone: bool,
}

/// A mounted filesystem that IO was seen on, at first sight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// The filesystem's device number as `/proc/PID/mountinfo` has it (`s_dev`).
    pub fs: DevId,
    /// `ext4`, `xfs`, `btrfs`, ...
    pub fstype: String,
    /// What is mounted, decoded.
    pub source: String,
    /// Where the filesystem's root is mounted (the mount with the shortest `root`), decoded.
    pub point: String,
    /// Options of the mount and of the filesystem, joined by commas.
    pub options: String,
}

/// A file of the kernel that holds a setting, as it was at the start and again when it changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// When it was read.
    pub t_ns: u64,
    /// Its path: `/proc/sys/vm/dirty_expire_centisecs`, `/sys/block/sda/queue/scheduler`, ...
    pub path: String,
    /// Its content without the line's end, cut to 256 bytes; `None` = it does not exist or may not be read.
    pub value: Option<String>,
}

/// Identity of a file within one recording: a number that the recorder gives, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FileId(pub u32);

impl FileId {
    /// Stands for the many files beyond the number that a recording tells apart.
    pub const OTHERS: Self = Self(u32::MAX);
}

/// What is known of a file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileState {
    /// `path` was its name when it was last looked at: after an unmount, that of before.
    Linked,
    /// It was deleted; `path` is the name it had.
    Deleted,
    /// `path` is what the kernel's dentries told, relative to the filesystem's root: the mount is not known. With
    /// `.../` before it, only the end of a long path is known.
    InFilesystem,
    /// No name was found.
    Nameless,
}

/// A file, at first sight and again when its name is known better, or who dirtied it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Its identity in this recording.
    pub id: FileId,
    /// The filesystem that holds it (`s_dev`); an overlay's files are those of the layer below.
    pub fs: DevId,
    /// Inode number. On btrfs it is unique within a subvolume only.
    pub ino: u64,
    /// Inode generation: inode numbers are used again.
    pub generation: u32,
    /// Absolute path with its mount where `state` is [`FileState::Linked`] or `Deleted`, decoded; may be empty.
    pub path: String,
    /// What is known of it.
    pub state: FileState,
    /// Who was the first that was seen to dirty it while it was clean; `None` = nobody was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dirtied_by: Option<ProcId>,
}

/// What a transfer was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoWhat {
    /// Data of a file.
    File(FileId),
    /// A filesystem's own structures: inode tables, bitmaps, trees.
    Metadata,
    /// A filesystem's journal or log.
    Journal,
    /// A cache flush without data.
    Flush,
    /// A discard, or zeroes without data.
    Discard,
    /// Swapping.
    Swap,
    /// The device itself, without a filesystem.
    RawDevice,
    /// None of these could be told.
    Unknown,
}

/// Direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoOp {
    /// From the device.
    Read,
    /// To the device.
    Write,
    /// Neither: flush, discard, zone and driver commands.
    Other,
}

/// Transfers of one kind in one second. A request of several files counts as one transfer for each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoTick {
    /// Start of the tick.
    pub t0_ns: u64,
    /// End of the tick.
    pub t1_ns: u64,
    /// The whole disk.
    pub device: DevId,
    /// For what.
    pub what: IoWhat,
    /// Direction.
    pub op: IoOp,
    /// The process that submitted it; a kernel thread for writeback.
    pub submitter: Option<ProcId>,
    /// The cgroup that owns the pages, or the submitter's where pages are not accounted.
    pub owner: Option<CgroupId>,
    /// Why the kernel wrote back, by its own word (`periodic`, `background`, `sync`, ...); `None` = no writeback.
    pub reason: Option<String>,
    /// Transfers that ended in the tick. Where the probe sampled, scaled up to all.
    pub ios: u64,
    /// Their bytes, likewise, so that they sum to what the disk counted.
    pub bytes: u64,
    /// Sum of the time from creation to completion of their requests, likewise.
    pub total_ns: u64,
    /// Longest seen.
    pub max_ns: u64,
}

/// How long the requests of a device took, in one second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceTick {
    /// Start of the tick.
    pub t0_ns: u64,
    /// End of the tick.
    pub t1_ns: u64,
    /// The whole disk.
    pub device: DevId,
    /// Direction.
    pub op: IoOp,
    /// Requests that ended, from creation to completion.
    pub total: WaitHist,
    /// The part from creation to issue: in the scheduler, or in the queue of a driver.
    pub queue: WaitHist,
    /// The part from issue to completion: in the driver and the device.
    pub device_time: WaitHist,
    /// Longest from creation to completion.
    pub max_ns: u64,
    /// The time before creation, for a tag or because of writeback throttling, of those of the requests above that
    /// waited [`DeviceTick::BEFORE_NS`] and more. `None` = it was not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<WaitHist>,
    /// One in so many requests was looked at; 1 = all. The histograms hold those that were looked at.
    pub sampled_one_in: u32,
}

impl DeviceTick {
    /// A transfer that has its request sooner than that did not wait for it: the way there takes as long.
    pub const BEFORE_NS: u64 = 4096;
}

/// A short piece of a device's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceBin {
    /// Time with at least one request in the queue or the device.
    pub busy_ns: u64,
    /// Integral over time of the number of requests in the queue or the device.
    pub depth_ns: u64,
    /// Requests that ended.
    pub ios: u32,
    /// Their bytes.
    pub bytes: u64,
}

/// A device's activity in bins of 10 ms, for bursts that an average over a second hides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceBins {
    /// Start of the first bin.
    pub t0_ns: u64,
    /// End of the last one.
    pub t1_ns: u64,
    /// The whole disk.
    pub device: DevId,
    /// Bins of equal length from `t0_ns` to `t1_ns`. All of them, also those without activity.
    pub bins: Vec<DeviceBin>,
}

/// A line of `/proc/diskstats`, cumulative, ten times a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskCounters {
    /// Reads completed.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Time of reads, summed over requests.
    pub read_ns: u64,
    /// Writes completed.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Time of writes, summed over requests.
    pub write_ns: u64,
    /// Bytes discarded.
    pub discard_bytes: u64,
    /// Cache flushes completed; 0 before 5.5.
    pub flushes: u64,
    /// Time with a request in flight; jiffies, and too long on fast devices.
    pub busy_ns: u64,
    /// Integral over time of the requests in flight.
    pub depth_ns: u64,
    /// Requests in flight at that moment.
    pub in_flight: u64,
}

/// The counters of a device at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskReading {
    /// When.
    pub t_ns: u64,
    /// Disk or partition.
    pub device: DevId,
    /// Its counters.
    pub counters: DiskCounters,
}

/// A pass of the kernel's flusher: pieces of its work on one device with pauses below a second between them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WritebackPass {
    /// Its first piece began.
    pub t0_ns: u64,
    /// Its last piece ended.
    pub t1_ns: u64,
    /// The device, or the filesystem's number where no device is behind it.
    pub device: DevId,
    /// Why, by the kernel's own word.
    pub reason: String,
    /// Inodes that were written.
    pub inodes: u64,
    /// Bytes that reached the device for it (of requests; the kernel's own page counts overstate).
    pub bytes: u64,
    /// Transfers for it.
    pub ios: u64,
    /// For how many whole seconds inodes had been dirty: `[seconds, inodes]`, ascending.
    pub ages: Vec<(u32, u32)>,
    /// Whole seconds since the same inode was last written back, for those seen before: `[seconds, inodes]`.
    pub since_last: Vec<(u32, u32)>,
    /// Who first dirtied them, those known, most first, at most 16: `[process, inodes]`.
    pub dirtied_by: Vec<(ProcId, u32)>,
}

/// A commit of a filesystem's journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalCommit {
    /// It began.
    pub t0_ns: u64,
    /// It was on the device.
    pub t1_ns: u64,
    /// The device that holds the filesystem.
    pub device: DevId,
    /// `jbd2`, `xfs` or `btrfs`.
    pub kind: String,
    /// Blocks logged, where the kernel tells.
    pub blocks: Option<u64>,
}

/// What a thread was held up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StallKind {
    /// `fsync`, `fdatasync` and the like.
    Sync,
    /// A pause that the kernel made a writer take, because too much was dirty.
    DirtyThrottle,
    /// A request that somebody waits for: a read, a synchronous write, a flush of the device's cache, or those of a
    /// commit of the journal. From when it was asked for on, where that is known ([`DeviceTick::before`]).
    Request,
}

/// Hold-ups of one kind of a process's threads that ended in one second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoWaitTick {
    /// Start of the tick.
    pub t0_ns: u64,
    /// End of the tick.
    pub t1_ns: u64,
    /// Whose.
    pub proc: ProcId,
    /// By what.
    pub kind: StallKind,
    /// The device; `None` where it is not told.
    pub device: Option<DevId>,
    /// Sizes. Of those whose end is not known, the time that they lasted at least ([`Stall::latest_ns`]).
    pub waits: WaitHist,
    /// Longest.
    pub max_ns: u64,
    /// How many more there were, of which only is known that they began, and were over when it was looked next.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unmeasured: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(amount: &u64) -> bool {
    *amount == 0
}

/// One long hold-up (10 ms and more): for coincidences.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stall {
    /// It began.
    pub t0_ns: u64,
    /// It ended; where `latest_ns` is known, it was under way still.
    pub t1_ns: u64,
    /// Whose.
    pub proc: ProcId,
    /// By what.
    pub kind: StallKind,
    /// The device; `None` where it is not told.
    pub device: Option<DevId>,
    /// Where the kernel does not tell of ends, and it was looked now and then: it was over then at the latest.
    /// `None` = `t1_ns` is the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest_ns: Option<u64>,
    /// The file that was synced, read or written, if one is known.
    pub file: Option<FileId>,
    /// How many more of the same process, kind and device ended in the same second, lay within the time of this one
    /// and of others that are told (to 10 ms), were no longer, and are not told each, because there were too many.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub within: u64,
    /// Sum of their lengths: as time of threads, it may be longer than this one is.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub within_ns: u64,
}

impl Stall {
    /// How long it was.
    #[must_use]
    pub fn length_ns(&self) -> u64 {
        self.t1_ns.saturating_sub(self.t0_ns)
    }

    /// The time of it and of those that are told with it.
    #[must_use]
    pub fn of_all_ns(&self) -> u64 {
        self.length_ns().saturating_add(self.within_ns)
    }

    /// It and those that are told with it.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.within.saturating_add(1)
    }
}

/// Whose requests a process's own requests waited beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoCulprit {
    /// Requests that a process submitted. The victim itself: its own other requests, and its own service.
    Process(ProcId),
    /// Writeback of pages that this cgroup owns.
    Writeback(Option<CgroupId>),
    /// A journal's or the metadata's requests.
    Filesystem,
    /// Nobody else's: the device served this request alone.
    Device,
}

/// Nanoseconds of a process's waiting for its requests, by whose requests were in the queue or the device
/// meanwhile. Summed over culprits it is the [`StallKind::Request`] time of the same ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoBlameTick {
    /// Start of the tick.
    pub t0_ns: u64,
    /// End of the tick.
    pub t1_ns: u64,
    /// Who waited.
    pub victim: ProcId,
    /// For which device.
    pub device: DevId,
    /// Beside whom.
    pub culprit: IoCulprit,
    /// For how long.
    pub ns: u64,
}

/// When a device was asked for something, and by whom: requests by the moment at which they were created.
///
/// Of the busiest ones of each second; the others are told together, as [`ProcId::OTHERS`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoPace {
    /// Start of the first bin.
    pub t0_ns: u64,
    /// End of the last one.
    pub t1_ns: u64,
    /// The whole disk.
    pub device: DevId,
    /// On whose account the requests are, and their length in units of 512 bytes, each rounded up, in each bin of
    /// [`IoPace::BIN_NS`] from `t0_ns` on. Where the window ends, the last one is shorter.
    pub sectors: BTreeMap<IoCulprit, Vec<u64>>,
}

impl IoPace {
    /// Length of a bin.
    pub const BIN_NS: u64 = 100_000_000;
}

/// A record of block IO.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "always in the box of `Record::Block`")]
pub enum BlockRecord {
    /// A device, at first sight and when it goes.
    Device(Device),
    /// A filesystem, at first sight.
    Mount(Mount),
    /// A setting, at the start and when it changed.
    Setting(Setting),
    /// A file, at first sight and when its name is known better.
    File(File),
    /// Transfers of one kind (BPF block probe), each second.
    Io(IoTick),
    /// How long requests took (BPF block probe), each second.
    DeviceTick(DeviceTick),
    /// Activity in bins of 10 ms (BPF block probe), each second, for devices that did anything.
    Bins(DeviceBins),
    /// `/proc/diskstats`, cumulative, ten times a second.
    Disk(DiskReading),
    /// A pass of the flusher (BPF writeback probe), when it is over.
    Pass(WritebackPass),
    /// A journal's commit (BPF writeback probe).
    Commit(JournalCommit),
    /// Hold-ups (BPF), each second.
    Wait(IoWaitTick),
    /// A long hold-up (BPF).
    Stall(Stall),
    /// Beside whom requests waited (BPF block probe), each second.
    Blame(IoBlameTick),
    /// When the busiest ones asked a device for something (BPF block probe), each second.
    Pace(IoPace),
    /// What a limit held back (BPF block probe), each second.
    Held(HeldTick),
}

impl BlockRecord {
    /// The time that it belongs to; `None` for facts, which belong to none.
    #[must_use]
    pub fn span(&self) -> Option<(u64, u64)> {
        match self {
            Self::Device(_) | Self::Mount(_) | Self::File(_) => None,
            Self::Setting(setting) => Some((setting.t_ns, setting.t_ns)),
            Self::Io(tick) => Some((tick.t0_ns, tick.t1_ns)),
            Self::DeviceTick(tick) => Some((tick.t0_ns, tick.t1_ns)),
            Self::Bins(bins) => Some((bins.t0_ns, bins.t1_ns)),
            Self::Disk(reading) => Some((reading.t_ns, reading.t_ns)),
            Self::Pass(pass) => Some((pass.t0_ns, pass.t1_ns)),
            Self::Commit(commit) => Some((commit.t0_ns, commit.t1_ns)),
            Self::Wait(tick) => Some((tick.t0_ns, tick.t1_ns)),
            Self::Stall(stall) => Some((stall.t0_ns, stall.t1_ns)),
            Self::Blame(tick) => Some((tick.t0_ns, tick.t1_ns)),
            Self::Pace(pace) => Some((pace.t0_ns, pace.t1_ns)),
            Self::Held(tick) => Some((tick.t0_ns, tick.t1_ns)),
        }
    }
}
