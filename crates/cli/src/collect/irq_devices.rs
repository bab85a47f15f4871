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

/// What a device is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// It is the timer of CPUs, where these have none that the kernel handles in a way of its own.
    Timer,
    Network,
    Disk,
    /// Something else, or it is not known.
    Other,
}

/// Handlers of timers, as on processors of ARM and RISC-V, and of a PC's old timers.
const TIMERS: &[&str] = &["arch_timer", "arch_mem_timer", "riscv-timer", "timer", "hpet0"];

/// What devices are for, by the numbers of their interrupts.
#[derive(Debug, Default)]
pub(super) struct Purposes {
    known: HashMap<u32, Purpose>,
    /// Those of devices on PCI; read when the first is asked for.
    pci: Option<HashMap<u32, Purpose>>,
}

impl Purposes {
    pub(super) fn of(&mut self, roots: &Roots, irq: u32) -> Purpose {
        if let Some(known) = self.known.get(&irq) {
            return *known;
        }
        let pci = self.pci.get_or_insert_with(|| on_pci(roots));
        let purpose = pci.get(&irq).copied().unwrap_or_else(|| {
            let names = handlers(&roots.proc.join("irq").join(irq.to_string()));
            by_name(roots, &names)
        });
        self.known.insert(irq, purpose);
        purpose
    }
}

/// By the class of each device: its first byte is 1 for storage, 2 for the network (PCI Code and ID Assignment).
fn on_pci(roots: &Roots) -> HashMap<u32, Purpose> {
    let mut all = HashMap::new();
    for device in fs::read_dir(roots.sys.join("bus/pci/devices")).into_iter().flatten().flatten() {
        let dir = device.path();
        let class = fs::read_to_string(dir.join("class")).unwrap_or_default();
        let purpose = match class.trim().strip_prefix("0x").and_then(|it| it.get(..2)) {
            Some("01") => Purpose::Disk,
            Some("02") => Purpose::Network,
            _ => continue,
        };
        let messages = fs::read_dir(dir.join("msi_irqs")).into_iter().flatten().flatten();
        let numbers = messages.filter_map(|it| it.file_name().to_str()?.parse().ok());
        let line = fs::read_to_string(dir.join("irq")).ok().and_then(|it| it.trim().parse().ok());
        all.extend(numbers.chain(line.filter(|&irq| irq != 0)).map(|irq: u32| (irq, purpose)));
    }
    all
}

/// By its handlers: those of virtio devices that are not on PCI have their device's name.
fn by_name(roots: &Roots, names: &str) -> Purpose {
    let mut names = names.split(", ");
    let Some(first) = names.next() else { return Purpose::Other };
    if TIMERS.contains(&first) {
        return Purpose::Timer;
    }
    let number = first.strip_prefix("virtio").unwrap_or_default();
    if number.is_empty() || !number.bytes().all(|it| it.is_ascii_digit()) || names.next().is_some()
    {
        return Purpose::Other;
    }
    let device = roots.sys.join("bus/virtio/devices").join(first);
    match () {
        () if device.join("block").exists() => Purpose::Disk,
        () if device.join("net").exists() => Purpose::Network,
        () => Purpose::Other,
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
        pci("0000:00:02.0", "0x010802\n", "11\n", &["35", "36"]);
        pci("0000:00:03.0", "0x020000\n", "0\n", &["38"]);
        pci("0000:00:04.0", "0x030000\n", "12\n", &["40"]);
        for (irq, handler) in
            [(3, "arch_timer"), (50, "virtio0"), (51, "virtio1"), (52, "virtio0-x")]
        {
            fs::create_dir_all(proc.join(format!("irq/{irq}")).join(handler)).unwrap();
        }
        fs::create_dir_all(sys.join("bus/virtio/devices/virtio0/block")).unwrap();
        fs::create_dir_all(sys.join("bus/virtio/devices/virtio1/net")).unwrap();
        let mut purposes = Purposes::default();
        for (irq, purpose) in [
            (11, Purpose::Disk),
            (36, Purpose::Disk),
            (38, Purpose::Network),
            (12, Purpose::Other),
            (40, Purpose::Other),
            (3, Purpose::Timer),
            (50, Purpose::Disk),
            (51, Purpose::Network),
            (52, Purpose::Other),
            (99, Purpose::Other),
            (0, Purpose::Other),
        ] {
            assert_eq!(purposes.of(&roots, irq), purpose, "{irq}");
            assert_eq!(purposes.of(&roots, irq), purpose, "{irq} again");
        }
    }
}
