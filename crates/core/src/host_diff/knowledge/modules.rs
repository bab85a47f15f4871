// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Modules, their parameters, live patches.

use super::{ChangeMethod, Knowledge, SlowerSide, known};
use crate::host_diff::document::Effect::{BlockIo, Network, Queue, System, User, Wakeup};

pub(super) const KNOWN: &[Knowledge] = &[
    known(
        94,
        "module that sets CPU frequencies",
        &["/proc/modules#acpi_cpufreq", "/proc/modules#pcc_cpufreq", "/proc/modules#*pstate*", "/proc/modules#cppc_cpufreq"],
        "it decides who sets frequencies, and brings limits that the firmware offers; two that could take the same \
         hardware are a bad sign. Reading a frequency through firmware can take milliseconds in the kernel",
    )
    .slows(&[System, User], SlowerSide::Present)
    .risk("without it another driver, or the firmware, sets frequencies; unloading alone may not undo its limits")
    .group("frequency"),
    known(
        93,
        "module for temperatures and cooling",
        &[
            "/proc/modules#thermal",
            "/proc/modules#intel_powerclamp",
            "/proc/modules#acpi_pad",
            "/proc/modules#acpi_power_meter",
            "/proc/modules#processor_thermal*",
            "/proc/modules#acpi_thermal*",
        ],
        "reading a temperature may run the firmware's code inside the kernel for milliseconds to seconds; powerclamp and \
         acpi_pad put CPUs to sleep by force",
    )
    .slows(&[System, Queue], SlowerSide::Present)
    .risk("cooling that depends on it stops working: watch temperatures")
    .look("lsmod | grep -e thermal -e powerclamp -e acpi; grep . /sys/class/thermal/*/type")
    .group("thermal"),
    known(
        80,
        "module of idle states",
        &["/proc/modules#intel_idle", "/proc/modules#processor", "/proc/modules#cpuidle_haltpoll"],
        "it decides how deep CPUs sleep and how long waking them takes",
    )
    .slows(&[Wakeup], SlowerSide::Unknown)
    .group("idle"),
    known(
        60,
        "live patch of the kernel",
        &["/sys/kernel/livepatch*"],
        "patched functions go through a trampoline, and run other code than the kernel's version says",
    )
    .slows(&[System], SlowerSide::Present)
    .risk("without it a flaw is open again"),
    known(
        58,
        "module that looks at every packet, call or file",
        &[
            "/proc/modules#nf_conntrack",
            "/proc/modules#ip_tables",
            "/proc/modules#nf_tables",
            "/proc/modules#*falcon*",
            "/proc/modules#*_edr*",
            "/proc/modules#ebtables",
        ],
        "each packet or system call passes through its rules",
    )
    .slows(&[Network, System], SlowerSide::Present)
    .risk("rules or protection that depend on it are gone"),
    known(
        52,
        "who answers to firmware's controllers",
        &["/proc/modules#ipmi_si", "/proc/modules#*edac*", "/proc/modules#*_wdt", "/proc/modules#iTCO_wdt"],
        "polling a management controller can keep a kernel thread busy (`kipmi0`) and cause interrupts of the firmware",
    )
    .slows(&[System], SlowerSide::Present),
    known(
        64,
        "how many queues, credits or retries a storage driver has",
        &["/sys/module/nvme*/parameters/*", "/sys/module/scsi_mod/parameters/*", "/sys/module/dm_*/parameters/*", "/sys/module/zfs/parameters/*"],
        "it bounds how much IO is under way, and how long a lost request waits",
    )
    .slows(&[BlockIo], SlowerSide::Unknown)
    .risk("most are read only while the module loads"),
    known(
        56,
        "how virtual CPUs halt and exit",
        &["/sys/module/kvm*/parameters/*", "/sys/module/haltpoll/parameters/*", "/sys/module/cpuidle_haltpoll/parameters/*"],
        "polling before halting saves a guest some 10 us a wake-up and costs the host's CPU time",
    )
    .slows(&[Wakeup, System], SlowerSide::Unknown),
    known(
        46,
        "modules kept from loading, or loaded with options",
        &["/etc/modprobe.d*", "/etc/modules*"],
        "it decides what is loaded at the next boot, not now",
    )
    .slows(&[System], SlowerSide::Unknown)
    .change(ChangeMethod::Boot("the files of /etc/modprobe.d; then rebuild the initramfs")),
    known(
        20,
        "module that is loaded",
        &["/proc/modules#*", "/proc/modules"],
        "it brings a driver or a filter that only some of the hosts have; most come and go as they are needed",
    )
    .follows(&["/proc/sys/kernel/osrelease"]),
    known(28, "parameter of a module", &["/sys/module/*/parameters/*"], "it changes what a driver does"),
];
