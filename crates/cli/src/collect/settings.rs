// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kernel settings for block IO and writeback, autogrouping, large pages, and the mounts: at the start, and again when they
//! change.
//!
//! Files of devices are read for the devices that were seen. Each second some of all files are read again, few
//! enough to cost next to nothing.

mod limits;

use super::{Beat, BeatTime, Collector, Context, Emit, Roots};
use crate::files::{MountWatch, Mounts};
use deburr_core::recording::{BlockRecord, Coverage, DevId, Mount, Record, Setting, Source, State};
use deburr_core::text::name;
use limits::Limits;
pub(in crate::collect) use limits::io_trees;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The interval of the flusher: the setting that most judgements depend on.
const INTERVAL: &str = "dirty_writeback_centisecs";
const VM: [&str; 7] = [
    "dirty_background_bytes",
    "dirty_background_ratio",
    "dirty_bytes",
    "dirty_expire_centisecs",
    "dirty_ratio",
    INTERVAL,
    "dirtytime_expire_seconds",
];
/// Whether sessions are scheduled as groups: nice values then count only within a session.
const AUTOGROUP: &str = "sys/kernel/sched_autogroup_enabled";
/// Whether threads that want a large page move memory to get one.
const LARGE_PAGES: &str = "kernel/mm/transparent_hugepage/defrag";
const QUEUE: [&str; 10] = [
    "iostats",
    "max_sectors_kb",
    "nomerges",
    "nr_requests",
    "read_ahead_kb",
    "rotational",
    "rq_affinity",
    "scheduler",
    "wbt_lat_usec",
    "write_cache",
];
const BDI: [&str; 5] = ["max_bytes", "max_ratio", "max_ratio_fine", "min_ratio", "strict_limit"];
/// Computed by the kernel from the ratio and the memory that is free now: a new value is not a changed setting.
const COMPUTED: &str = "max_bytes";
/// The setting that `max_bytes` is computed from.
const COMPUTED_FROM: &str = "max_ratio_fine";
/// Files of devices and cgroups that are read again per second, in turn: at 10 us each, 0.2 ms.
const READ_PER_SECOND: usize = 16;
/// The same at the end of the window, for what changed since the last turn.
const READ_AT_END: usize = 128;
/// Maximum number of files that are read.
const MAX_FILES: usize = 4096;
/// Bytes of a value that are kept.
const MAX_VALUE: usize = 256;
/// Seconds between two reads of the mounts where no change is signalled.
const MOUNTS_EVERY: u32 = 5;

#[derive(Debug)]
pub(crate) struct SettingsCollector {
    /// What each file held when it was last read; `None` = it could not be read.
    values: BTreeMap<PathBuf, Option<String>>,
    mounts: BTreeMap<DevId, Mount>,
    watch: MountWatch,
    limits: Limits,
    last_read: Option<PathBuf>,
    seconds: u32,
    lack_said: bool,
}

impl SettingsCollector {
    /// A collector that has read nothing yet.
    pub(crate) fn open(cx: &Context) -> Self {
        Self {
            values: BTreeMap::new(),
            mounts: BTreeMap::new(),
            watch: MountWatch::new(&cx.roots.proc),
            limits: Limits::open(&cx.roots),
            last_read: None,
            seconds: 0,
            lack_said: false,
        }
    }

    /// Emits the mounts that are new or changed, and notes in `cx.devices` which devices are mounted.
    fn look_at_mounts(&mut self, cx: &mut Context, emit: Emit<'_>) {
        let mut mounts = Mounts::read(&cx.roots.proc);
        let mut mounted = BTreeSet::new();
        for (fs, source) in mounts.on_devices() {
            mounted.insert(if fs.major == 0 { device_of(&source).unwrap_or(fs) } else { fs });
            let Some(fact) = mounts.fact(fs) else { continue };
            if self.mounts.get(&fs) != Some(&fact) {
                emit(Record::Block(Box::new(BlockRecord::Mount(fact.clone()))));
                self.mounts.insert(fs, fact);
            }
        }
        mounted.retain(|dev| dev.major != 0);
        for dev in &mounted {
            // This adds the whole disk, too: limits and IO scheduler are those of the disk.
            cx.devices.sight(*dev, emit);
        }
        cx.devices.set_mounted(mounted);
    }

    /// Reads the files of devices, mounts and cgroups that were not read yet.
    fn find(&mut self, cx: &Context, t_ns: u64, emit: Emit<'_>) {
        let sys = &cx.roots.sys;
        let mut files = vec![cx.roots.proc.join(AUTOGROUP), sys.join(LARGE_PAGES)];
        let mut infos = BTreeSet::new();
        for disk in cx.devices.disks() {
            infos.insert(disk.dev);
            let dir = sys.join("block").join(&disk.name).join("queue");
            files.extend(QUEUE.map(|file| dir.join(file)));
        }
        // A filesystem without a device of its own (FUSE, btrfs) may have limits, too.
        infos.extend(self.mounts.keys().filter(|fs| fs.major == 0));
        for dev in infos {
            let dir = sys.join("class/bdi").join(dev.to_string());
            if dir.is_dir() {
                files.extend(BDI.map(|file| dir.join(file)));
            }
        }
        files.extend(self.limits.look(t_ns));
        for file in files {
            if !self.values.contains_key(&file) && self.values.len() < MAX_FILES {
                self.read(&cx.roots, file, t_ns, emit);
            }
        }
    }

    /// Reads files again: all of `/proc/sys/vm`, and some of the others in turn.
    fn read_again(&mut self, cx: &Context, now: &BeatTime, emit: Emit<'_>) {
        let t_ns = now.t_ns;
        let most = if now.beat == Beat::End { READ_AT_END } else { READ_PER_SECOND };
        let vm = cx.roots.proc.join("sys/vm");
        for file in VM {
            self.read(&cx.roots, vm.join(file), t_ns, emit);
        }
        let files: Vec<PathBuf> = self
            .values
            .keys()
            .filter(|f| !f.starts_with(&vm) && !f.ends_with(COMPUTED))
            .cloned()
            .collect();
        let from = self.last_read.as_ref().map_or(0, |last| files.partition_point(|f| f <= last));
        for file in files.iter().cycle().skip(from).take(most.min(files.len())) {
            self.read(&cx.roots, file.clone(), t_ns, emit);
            self.last_read = Some(file.clone());
        }
    }

    fn read(&mut self, roots: &Roots, file: PathBuf, t_ns: u64, emit: Emit<'_>) {
        let value = value(&file);
        if self.values.get(&file) != Some(&value) {
            let setting = Setting { t_ns, path: shown(roots, &file), value: value.clone() };
            emit(Record::Block(Box::new(BlockRecord::Setting(setting))));
            let computed = file.ends_with(COMPUTED_FROM).then(|| file.with_file_name(COMPUTED));
            let is_removed = value.is_none() && self.limits.are_in(&file);
            let is_new = self.values.insert(file.clone(), value).is_none();
            if is_removed {
                self.values.remove(&file);
            }
            if let Some(computed) = computed.filter(|_| !is_new) {
                self.read(roots, computed, t_ns, emit);
            }
        }
    }
}

/// The first bytes of a file, decoded, without the trailing newline.
fn value(file: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    fs::File::open(file).ok()?.take(MAX_VALUE as u64 + 1).read_to_end(&mut bytes).ok()?;
    let text = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let mut text = name::decode(text);
    while text.len() > MAX_VALUE {
        text.pop();
    }
    Some(text)
}

/// The path as it is on a real host, whatever the roots are.
fn shown(roots: &Roots, file: &Path) -> String {
    let below = |root: &Path, name: &str| {
        let rest = file.strip_prefix(root).ok()?;
        Some(format!("{name}/{}", name::decode(rest.as_os_str().as_bytes())))
    };
    below(&roots.proc, "/proc")
        .or_else(|| below(&roots.sys, "/sys"))
        .unwrap_or_else(|| name::decode(file.as_os_str().as_bytes()))
}

/// The device number of a device node.
fn device_of(node: &Path) -> Option<DevId> {
    let dev = fs::metadata(node).ok()?.rdev();
    Some(DevId { major: rustix::fs::major(dev), minor: rustix::fs::minor(dev) })
}

/// What can be read: without `/proc/sys/vm`, the settings of writeback are unknown.
fn coverage(cx: &Context) -> State {
    let vm = cx.roots.proc.join("sys/vm");
    let proc_sys = vm.is_dir();
    let sys_block = cx.roots.sys.join("block").is_dir();
    match (proc_sys, sys_block) {
        (true, true) => match fs::File::open(vm.join(INTERVAL)) {
            Ok(_) => State::Active,
            Err(error) => State::Partial { reason: format!("`/proc/sys/vm/{INTERVAL}`: {error}") },
        },
        (false, true) => State::Partial { reason: "there is no `/proc/sys/vm`".into() },
        (true, false) => State::Partial { reason: "there is no `/sys/block`".into() },
        (false, false) => State::Missing {
            reason: "there is neither `/proc/sys/vm` nor `/sys/block`".into(),
            gain: "mount `/proc` and `/sys` to see how the kernel is set up for block IO".into(),
        },
    }
}

impl Collector for SettingsCollector {
    fn beat(&mut self, cx: &mut Context, now: BeatTime, emit: Emit<'_>) -> anyhow::Result<()> {
        if now.beat == Beat::Start {
            let state = coverage(cx);
            emit(Record::Coverage(Coverage { t_ns: 0, source: Source::Settings, state }));
        } else if !now.beat.is_second() {
            return Ok(());
        }
        if matches!(coverage(cx), State::Missing { .. }) {
            return Ok(());
        }
        if self.watch.changed() || self.seconds.is_multiple_of(MOUNTS_EVERY) {
            self.look_at_mounts(cx, emit);
        }
        self.seconds += 1;
        self.read_again(cx, &now, emit);
        self.find(cx, now.t_ns, emit);
        if let Some(reason) = self.limits.lack().filter(|_| !self.lack_said) {
            self.lack_said = true;
            let state = State::Partial { reason };
            emit(Record::Coverage(Coverage { t_ns: now.t_ns, source: Source::Settings, state }));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
