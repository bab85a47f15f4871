// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clock sources and clock events: how time is read, and what interrupts for it.

use super::{ChangeMethod, Knowledge, SlowerSide, known};
use crate::host_diff::document::Effect::{System, User, Wakeup};

pub(super) const KNOWN: &[Knowledge] = &[
    known(
        88,
        "clock source",
        &["/sys/devices/system/clocksource/*/current_clocksource", "/proc/cmdline#clocksource", "/proc/cmdline#tsc"],
        "with `tsc` (and `kvm-clock`) asking for the time takes some 20 ns in user mode; with `hpet` or `acpi_pm` it is a \
         system call that waits for a slow device, a microsecond and more",
    )
    .slows(&[System, User], SlowerSide::Text(&["hpet", "acpi_pm", "jiffies", "xen", "refined-jiffies"]))
    .risk("the kernel leaves `tsc` when it found it unstable: see its log before forcing it")
    .look("cat /sys/devices/system/clocksource/clocksource0/current_clocksource; dmesg | grep -i clocksource")
    .change(ChangeMethod::Command("echo {} | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource")),
    known(
        50,
        "clock sources that there are",
        &["/sys/devices/system/clocksource/*/available_clocksource"],
        "a `tsc` that is missing was found unstable, or is not offered by the hypervisor",
    )
    .slows(&[System, User], SlowerSide::Unknown)
    .look("dmesg | grep -i -e tsc -e clocksource")
    .group("clock source")
    .change(ChangeMethod::Machine),
    known(
        45,
        "timers of the CPUs",
        &["/sys/devices/system/clockevents/*"],
        "a broadcast timer wakes CPUs whose own timer stops in deep sleep: later, and through another CPU",
    )
    .slows(&[Wakeup], SlowerSide::Unknown)
    .change(ChangeMethod::Machine),
    known(
        48,
        "tick when idle",
        &["/proc/cmdline#nohz", "/proc/cmdline#highres", "/proc/cmdline#skew_tick"],
        "how often idle CPUs are woken, and how exact timers are",
    )
    .slows(&[Wakeup, System], SlowerSide::Unknown),
];
