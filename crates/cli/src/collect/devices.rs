// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The block devices of the host: the facts of each from `/sys`, emitted once before a record refers to it.

use super::{Emit, Roots};
use deburr_core::recording::{BlockRecord, DevId, Device, DiskCounters, Record};
use deburr_core::text::name;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Stacked devices on top of each other that are followed: LVM on dm-crypt on a partition is three.
const MAX_STACKED: usize = 8;

/// The devices that were emitted, shared by all collectors that refer to them.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    sys: PathBuf,
    emitted: BTreeMap<DevId, Device>,
    /// Devices with a mounted filesystem.
    mounted: BTreeSet<DevId>,
    /// The kernel's counters of each device, as they were last read.
    counted: BTreeMap<DevId, DiskCounters>,
}

impl Devices {
    /// No devices yet; nothing is read.
    pub(crate) fn open(roots: &Roots) -> Self {
        Self { sys: roots.sys.clone(), ..Self::default() }
    }

    /// Makes sure that `Record::Block(Device)` was emitted for that device, and before it for the disk that it is a
    /// partition of, or lies on alone. Returns that disk; else the device itself.
    pub(crate) fn sight(&mut self, dev: DevId, emit: Emit<'_>) -> DevId {
        self.sight_as(dev, None, emit)
    }

    /// As [`Self::sight`], with the device's name from another kernel file, for use if `/sys` has none.
    pub(crate) fn sight_as(&mut self, dev: DevId, called: Option<&[u8]>, emit: Emit<'_>) -> DevId {
        if let Some(device) = self.emitted.get(&dev) {
            // Late events of a removed device do not mean that it is back.
            let back = device.gone && (called.is_some() || self.link(dev).exists());
            if !back {
                return device.disk.unwrap_or(dev);
            }
        }
        let device = self.read(dev).unwrap_or_else(|| unknown(dev, called));
        if let Some(disk) = device.disk {
            self.sight_as(disk, None, emit);
        }
        say(&device, emit);
        let disk = device.disk.unwrap_or(dev);
        self.emitted.insert(dev, device);
        disk
    }

    /// The whole disks that were emitted and are still there.
    pub(crate) fn disks(&self) -> impl Iterator<Item = &Device> {
        self.emitted.values().filter(|device| device.disk.is_none() && !device.gone)
    }

    /// Emits that a device vanished. If its number appears again, it is another device.
    pub(crate) fn gone(&mut self, dev: DevId, emit: Emit<'_>) {
        if let Some(device) = self.emitted.get_mut(&dev).filter(|device| !device.gone) {
            device.gone = true;
            say(device, emit);
        }
    }

    /// Reads again what may change while a device stays: the backing files of loop devices. Called once a second.
    pub(crate) fn refresh(&mut self, emit: Emit<'_>) {
        for (dev, device) in &mut self.emitted {
            if device.gone || !device.name.starts_with("loop") {
                continue;
            }
            let link = self.sys.join("dev/block").join(dev.to_string());
            let Some(now) = read(&link, *dev).filter(|now| now != device) else { continue };
            say(&now, emit);
            *device = now;
        }
    }

    /// Sets which devices have a mounted filesystem.
    pub(crate) fn set_mounted(&mut self, mounted: BTreeSet<DevId>) {
        self.mounted = mounted;
    }

    /// Whether a filesystem on it is mounted.
    pub(crate) fn is_mounted(&self, dev: DevId) -> bool {
        self.mounted.contains(&dev)
    }

    /// Sets the kernel's counters of a device; `None` = the device is gone.
    pub(crate) fn set_counters(&mut self, dev: DevId, counters: Option<DiskCounters>) {
        match counters {
            Some(counters) => self.counted.insert(dev, counters),
            None => self.counted.remove(&dev),
        };
    }

    /// The kernel's counters of a device, as of the last beat.
    pub(crate) fn counters(&self, dev: DevId) -> Option<&DiskCounters> {
        self.counted.get(&dev)
    }

    /// The kernel's counters of all devices.
    pub(crate) fn all_counters(&self) -> impl Iterator<Item = (DevId, &DiskCounters)> {
        self.counted.iter().map(|(dev, counters)| (*dev, counters))
    }

    fn read(&self, dev: DevId) -> Option<Device> {
        read(&self.link(dev), dev)
    }

    fn link(&self, dev: DevId) -> PathBuf {
        self.sys.join("dev/block").join(dev.to_string())
    }
}

fn say(device: &Device, emit: Emit<'_>) {
    emit(Record::Block(Box::new(BlockRecord::Device(device.clone()))));
}

fn unknown(dev: DevId, called: Option<&[u8]>) -> Device {
    let called = called.map(|called| name::decode(called).replace('/', "!"));
    let (disk, start_sector, sectors, backing) = (None, None, None, None);
    let name = called.unwrap_or_else(|| dev.to_string());
    Device { dev, name, disk, start_sector, sectors, backing, gone: false }
}

/// The facts in the directory that a link of `/sys/dev/block` leads to.
fn read(link: &Path, dev: DevId) -> Option<Device> {
    let dir = link.canonicalize().ok()?;
    let number = |file: &str| fs::read_to_string(dir.join(file)).ok()?.trim().parse().ok();
    let start_sector = number("start");
    let disk = match start_sector {
        Some(_) => disk_of_partition(&dir),
        None => only_disk_below(&dir, MAX_STACKED),
    };
    Some(Device {
        dev,
        name: name::decode(dir.file_name()?.as_bytes()),
        disk,
        start_sector,
        sectors: number("size"),
        backing: backing(&dir),
        gone: false,
    })
}

/// The disk of a partition: its directory lies in that of its disk.
fn disk_of_partition(dir: &Path) -> Option<DevId> {
    number_in(dir.parent()?)
}

fn number_in(dir: &Path) -> Option<DevId> {
    fs::read_to_string(dir.join("dev")).ok()?.trim().parse().ok()
}

/// The disk that a stacked device (LVM, dm-crypt) lies on, if it is only one: what is submitted to the upper one becomes
/// requests of the lower one. `None` if it lies on several, on none, or has requests of its own (multipath).
fn only_disk_below(dir: &Path, levels: usize) -> Option<DevId> {
    let own_requests = fs::read(dir.join("dm/uuid")).is_ok_and(|uuid| uuid.starts_with(b"mpath-"));
    let mut below = fs::read_dir(dir.join("slaves")).ok()?.flatten();
    let one = below.next().filter(|_| !own_requests && levels > 0)?;
    if below.next().is_some() {
        return None;
    }
    // Only a partition has a `start`.
    let lower = one.path().canonicalize().ok()?;
    if lower.join("start").exists() {
        return disk_of_partition(&lower);
    }
    let is_stacked = fs::read_dir(lower.join("slaves")).is_ok_and(|mut it| it.next().is_some());
    if is_stacked { only_disk_below(&lower, levels - 1) } else { number_in(&lower) }
}

/// The file behind a loop device, or the devices that a stacked one lies on.
fn backing(dir: &Path) -> Option<String> {
    if let Ok(file) = fs::read(dir.join("loop/backing_file")) {
        return Some(name::decode(file.strip_suffix(b"\n").unwrap_or(&file)));
    }
    let below = fs::read_dir(dir.join("slaves")).ok()?.flatten();
    let mut names: Vec<String> =
        below.map(|entry| name::decode(entry.file_name().as_bytes())).collect();
    names.sort_unstable();
    (!names.is_empty()).then(|| names.join(", "))
}

#[cfg(test)]
mod tests {
    use crate::collect::fixture::Host;
    use deburr_core::recording::{BlockRecord, DevId, Device, Record};

    fn dev(text: &str) -> DevId {
        text.parse().unwrap()
    }

    /// The devices that are emitted during `act`.
    fn emitted(act: impl FnOnce(&mut dyn FnMut(Record))) -> Vec<Device> {
        let mut devices = Vec::new();
        act(&mut |record| match record {
            Record::Block(block) => match *block {
                BlockRecord::Device(device) => devices.push(device),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        });
        devices
    }

    #[test]
    fn a_partition_is_said_once_and_after_its_disk() {
        let host = Host::empty();
        host.device("8:0", "pci0/block/sda", 1000);
        host.device("8:1", "pci0/block/sda/sda1", 900);
        host.write("sys/devices/pci0/block/sda/sda1/start", "100\n");
        let mut devices = host.context().devices;
        let first = emitted(|emit| assert_eq!(devices.sight(dev("8:1"), emit), dev("8:0")));
        let names: Vec<&str> = first.iter().map(|device| device.name.as_str()).collect();
        assert_eq!(names, ["sda", "sda1"]);
        assert_eq!((first[0].disk, first[0].sectors), (None, Some(1000)));
        assert_eq!((first[1].disk, first[1].start_sector), (Some(dev("8:0")), Some(100)));
        let again = emitted(|emit| assert_eq!(devices.sight(dev("8:1"), emit), dev("8:0")));
        assert_eq!(again, []);
        let gone = emitted(|emit| devices.gone(dev("8:1"), emit));
        assert!(gone[0].gone && gone[0].name == "sda1", "{gone:?}");
        assert_eq!(emitted(|emit| devices.gone(dev("8:1"), emit)), []);
        let back = emitted(|emit| assert_eq!(devices.sight(dev("8:1"), emit), dev("8:0")));
        assert_eq!(back.len(), 1);
        // Late events of a removed partition count for its former disk.
        emitted(|emit| devices.gone(dev("8:1"), emit));
        std::fs::remove_file(host.path("sys/dev/block/8:1")).unwrap();
        let late = emitted(|emit| assert_eq!(devices.sight(dev("8:1"), emit), dev("8:0")));
        assert_eq!(late, []);
    }

    #[test]
    fn what_lies_below_is_said_and_said_again_when_it_changes() {
        let host = Host::empty();
        host.device("7:0", "virtual/block/loop0", 8);
        host.write("sys/devices/virtual/block/loop0/loop/backing_file", b"/srv/a\xffb\n");
        host.device("9:0", "virtual/block/md0", 8);
        for disk in ["sdb", "sda"] {
            host.write(&format!("sys/devices/virtual/block/md0/slaves/{disk}/x"), "");
        }
        let mut devices = host.context().devices;
        let backing = |devices: Vec<Device>| -> Vec<Option<String>> {
            devices.into_iter().map(|device| device.backing).collect()
        };
        let first = emitted(|emit| {
            devices.sight(dev("7:0"), emit);
            devices.sight(dev("9:0"), emit);
        });
        assert_eq!(backing(first), [Some("/srv/a\\xffb".into()), Some("sda, sdb".into())]);
        assert_eq!(emitted(|emit| devices.refresh(emit)), []);
        host.write("sys/devices/virtual/block/loop0/loop/backing_file", "/srv/other\n");
        assert_eq!(backing(emitted(|emit| devices.refresh(emit))), [Some("/srv/other".into())]);
    }

    #[test]
    fn a_stacked_device_on_one_disk_belongs_to_it() {
        let host = Host::empty();
        host.device("8:0", "pci0/block/sda", 1000);
        host.device("8:2", "pci0/block/sda/sda2", 900);
        host.write("sys/devices/pci0/block/sda/sda2/start", "100\n");
        host.device("8:16", "pci0/block/sdb", 1000);
        let on = |upper: &str, lower: &str| {
            let slaves = host.path(&format!("sys/devices/virtual/block/{upper}/slaves"));
            std::fs::create_dir_all(&slaves).unwrap();
            let name = lower.rsplit('/').next().unwrap();
            let lower = host.path(&format!("sys/devices/{lower}"));
            std::os::unix::fs::symlink(lower, slaves.join(name)).unwrap();
        };
        for (number, name) in
            [("253:0", "dm-0"), ("253:1", "dm-1"), ("253:2", "dm-2"), ("253:3", "dm-3")]
        {
            host.device(number, &format!("virtual/block/{name}"), 8);
        }
        on("dm-0", "pci0/block/sda/sda2");
        on("dm-1", "virtual/block/dm-0");
        on("dm-2", "pci0/block/sda");
        on("dm-2", "pci0/block/sdb");
        on("dm-3", "pci0/block/sdb");
        host.write("sys/devices/virtual/block/dm-3/dm/uuid", "mpath-3600\n");
        let mut devices = host.context().devices;
        let mut disk_of = |number: &str| {
            let mut disk = None;
            emitted(|emit| disk = Some(devices.sight(dev(number), emit)));
            disk.unwrap().to_string()
        };
        assert_eq!(disk_of("253:0"), "8:0", "a volume on a partition");
        assert_eq!(disk_of("253:1"), "8:0", "encryption on that");
        assert_eq!(disk_of("253:2"), "253:2", "striped over two");
        assert_eq!(disk_of("253:3"), "253:3", "multipath has requests of its own");
    }

    #[test]
    fn a_device_that_sys_does_not_tell_of_has_the_name_that_it_is_called_by() {
        let mut devices = Host::empty().context().devices;
        let called = emitted(|emit| {
            devices.sight_as(dev("104:0"), Some(b"cciss/c0d0"), emit);
            devices.sight(dev("8:0"), emit);
        });
        assert_eq!((called[0].name.as_str(), called[1].name.as_str()), ("cciss!c0d0", "8:0"));
        assert_eq!(called[0].sectors, None);
    }
}
