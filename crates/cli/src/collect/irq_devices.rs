// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which device an interrupt's number is of: the names of its handlers, and what the device is for.

use super::Roots;
use deburr_core::text::name;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The names of devices' interrupts: each handler has a directory below that of its interrupt.
#[derive(Debug)]
pub(super) struct DeviceNames {
    dir: PathBuf,
    known: BTreeMap<u32, String>,
}

impl DeviceNames {
    pub(super) fn new(roots: &Roots) -> Self {
        Self { dir: roots.proc.join("irq"), known: BTreeMap::new() }
    }

    pub(super) fn of(&mut self, irq: u32) -> String {
        self.known.entry(irq).or_insert_with(|| handlers(&self.dir.join(irq.to_string()))).clone()
    }

    #[cfg(test)]
    pub(super) fn of_test(irq: u32, name: &str) -> Self {
        Self { dir: PathBuf::from("/nonexistent"), known: BTreeMap::from([(irq, name.into())]) }
    }
}

fn handlers(dir: &Path) -> String {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let handlers = entries.filter(|it| it.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut names: Vec<String> =
        handlers.map(|it| name::decode(it.file_name().as_bytes())).collect();
    names.sort_unstable();
    names.join(", ")
}

/// What an interrupt is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// It is a timer of CPUs that the kernel handles like a device's.
    Timer,
    /// Another CPU has this one call a function, where the kernel handles that like a device's.
    OtherCpu,
    Network,
    Disk,
    /// Another device, or several.
    Device,
    NotKnown,
}

/// Handlers of timers, without a number at the end: of the processors of ARM and RISC-V, of Xen, and of old PCs.
const TIMERS: &[&str] = &["arch_timer", "arch_mem_timer", "riscv-timer", "timer", "hpet"];
/// The same of functions that other CPUs have called on Xen.
const CALLS: &[&str] = &["callfunc", "callfuncsingle"];

/// What interrupts are for, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Purposes {
    known: HashMap<u32, Purpose>,
}

impl Purposes {
    /// A number that was not met before may be of a device that is new: all are looked at.
    pub(super) fn of(&mut self, roots: &Roots, irq: u32) -> Purpose {
        if let Some(known) = self.known.get(&irq) {
            return *known;
        }
        self.known.extend(on_pci(roots));
        *self.known.entry(irq).or_insert_with(|| by_name(roots, &names_of(roots, irq)))
    }
}

/// By the class of each device: its first byte is 1 for storage, 2 for the network (PCI Code and ID Assignment). A device that
/// has messages does not use its line, which it may share with others.
fn on_pci(roots: &Roots) -> HashMap<u32, Purpose> {
    let mut all = HashMap::new();
    for device in fs::read_dir(roots.sys.join("bus/pci/devices")).into_iter().flatten().flatten() {
        let dir = device.path();
        let class = fs::read_to_string(dir.join("class")).unwrap_or_default();
        let purpose = match class.trim().strip_prefix("0x").and_then(|it| it.get(..2)) {
            Some("01") => Purpose::Disk,
            Some("02") => Purpose::Network,
            _ => Purpose::Device,
        };
        let messages = fs::read_dir(dir.join("msi_irqs")).into_iter().flatten().flatten();
        let mut numbers: Vec<u32> =
            messages.filter_map(|it| it.file_name().to_str()?.parse().ok()).collect();
        if numbers.is_empty() {
            let line = fs::read_to_string(dir.join("irq")).ok();
            numbers
                .extend(line.and_then(|it| it.trim().parse().ok()).filter(|&irq: &u32| irq != 0));
        }
        for irq in numbers {
            let of = all.entry(irq).or_insert(purpose);
            *of = if *of == purpose { purpose } else { Purpose::Device };
        }
    }
    all
}

/// The names of its handlers. Those that were there before `/proc/irq` have no directory.
fn names_of(roots: &Roots, irq: u32) -> String {
    let names = handlers(&roots.proc.join("irq").join(irq.to_string()));
    if !names.is_empty() {
        return names;
    }
    let actions = roots.sys.join("kernel/irq").join(irq.to_string()).join("actions");
    fs::read_to_string(actions).unwrap_or_default().trim().replace(',', ", ")
}

/// By its handlers: those of virtio devices that are not on PCI have their device's name.
fn by_name(roots: &Roots, names: &str) -> Purpose {
    let mut each = names.split(", ");
    let Some(first) = each.next().filter(|it| !it.is_empty()) else { return Purpose::NotKnown };
    if each.next().is_some() {
        return Purpose::Device;
    }
    let kind = first.trim_end_matches(|it: char| it.is_ascii_digit());
    if TIMERS.contains(&kind) {
        return Purpose::Timer;
    }
    if CALLS.contains(&kind) {
        return Purpose::OtherCpu;
    }
    if kind != "virtio" {
        return Purpose::Device;
    }
    let device = roots.sys.join("bus/virtio/devices").join(first);
    match () {
        () if device.join("block").exists() => Purpose::Disk,
        () if device.join("net").exists() => Purpose::Network,
        () => Purpose::Device,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_told_by_its_class_or_its_handler() {
        let root = tempfile::tempdir().unwrap();
        let (proc, sys) = (root.path().join("proc"), root.path().join("sys"));
        let roots = Roots { proc: proc.clone(), sys: sys.clone(), root: root.path().into() };
        let pci = |address: &str, class: &str, line: &str, messages: &[&str]| {
            let dir = sys.join("bus/pci/devices").join(address);
            fs::create_dir_all(dir.join("msi_irqs")).unwrap();
            fs::write(dir.join("class"), class).unwrap();
            fs::write(dir.join("irq"), line).unwrap();
            messages.iter().for_each(|it| fs::write(dir.join("msi_irqs").join(it), "").unwrap());
        };
        // A disk with messages, and one without; a card, another device, and two that share a line.
        pci("0000:00:02.0", "0x010802\n", "11\n", &["35", "36"]);
        pci("0000:00:03.0", "0x020000\n", "0\n", &["38"]);
        pci("0000:00:04.0", "0x030000\n", "12\n", &["40"]);
        pci("0000:00:05.0", "0x010601\n", "14\n", &[]);
        pci("0000:00:06.0", "0x010601\n", "16\n", &[]);
        pci("0000:00:07.0", "0x0c0320\n", "16\n", &[]);
        for (irq, handler) in [(50, "virtio0"), (51, "virtio1"), (52, "virtio0-x"), (53, "acpi")] {
            fs::create_dir_all(proc.join(format!("irq/{irq}")).join(handler)).unwrap();
        }
        for (irq, handlers) in [(3, "arch_timer"), (4, "timer7"), (5, "callfuncsingle12"), (6, "")]
        {
            let dir = sys.join(format!("kernel/irq/{irq}"));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("actions"), format!("{handlers}\n")).unwrap();
        }
        fs::create_dir_all(sys.join("bus/virtio/devices/virtio0/block")).unwrap();
        fs::create_dir_all(sys.join("bus/virtio/devices/virtio1/net")).unwrap();
        let mut purposes = Purposes::default();
        for (irq, purpose) in [
            (11, Purpose::NotKnown),
            (36, Purpose::Disk),
            (38, Purpose::Network),
            (12, Purpose::NotKnown),
            (40, Purpose::Device),
            (14, Purpose::Disk),
            (16, Purpose::Device),
            (3, Purpose::Timer),
            (4, Purpose::Timer),
            (5, Purpose::OtherCpu),
            (6, Purpose::NotKnown),
            (50, Purpose::Disk),
            (51, Purpose::Network),
            (52, Purpose::Device),
            (53, Purpose::Device),
            (99, Purpose::NotKnown),
            (0, Purpose::NotKnown),
        ] {
            assert_eq!(purposes.of(&roots, irq), purpose, "{irq}");
            assert_eq!(purposes.of(&roots, irq), purpose, "{irq} again");
        }
        // One that is plugged in later.
        pci("0000:00:08.0", "0x010802\n", "0\n", &["60"]);
        assert_eq!(purposes.of(&roots, 60), Purpose::Disk);
    }
}
