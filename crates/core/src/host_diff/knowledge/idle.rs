// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Idle states of CPUs.

use super::{ChangeMethod, Knowledge, RequiredDriver, SlowerSide, known};
use crate::host_diff::document::Effect::{Network, System, Wakeup};
use crate::host_diff::drivers;

const DRIVER: &str = drivers::IDLE_DRIVER;
const ACPI: RequiredDriver = RequiredDriver::Idle(&["acpi_idle"]);
const INTEL: RequiredDriver = RequiredDriver::Idle(&["intel_idle"]);

pub(super) const KNOWN: &[Knowledge] = &[
    known(
        80,
        "driver of idle states",
        &[DRIVER],
        "the driver decides which sleep states there are and which parameters mean anything: `intel_idle` has its own \
         table, `acpi_idle` takes the firmware's, `none` only halts. Whoever asks another CPU for \
         something, such as its frequency, waits in the kernel until it has woken up",
    )
    .slows(&[Wakeup, System], SlowerSide::Unknown)
    .risk("other states, other power use; some packages need deep states to reach their turbo")
    .look("cpupower idle-info")
    .change(ChangeMethod::Boot("`intel_idle.max_cstate=0` leaves the states to acpi_idle; `idle=` and `cpuidle.off=1` switch them off")),
    known(
        85,
        "deepest idle state that ACPI may use",
        &["/proc/cmdline#processor.max_cstate", "/sys/module/processor/parameters/max_cstate"],
        "limits the sleep states of acpi_idle: a higher limit allows states that take tens to hundreds of microseconds \
         to leave. Setting it makes the kernel's ACPI processor driver take part where firmware offers states",
    )
    .slows(&[Wakeup, System], SlowerSide::Higher)
    .risk("shallow idling costs power and may cost turbo")
    .look("cat /sys/module/processor/parameters/max_cstate; cpupower idle-info")
    .only_with(ACPI)
    .group("idle"),
    known(
        85,
        "deepest idle state that intel_idle may use",
        &["/proc/cmdline#intel_idle.max_cstate", "/sys/module/intel_idle/parameters/max_cstate"],
        "limits the sleep states of intel_idle: deep ones take tens to hundreds of microseconds to leave; 0 switches that driver off",
    )
    .slows(&[Wakeup, System], SlowerSide::Higher)
    .risk("shallow idling costs power and may cost turbo; 0 does not forbid states, it leaves them to acpi_idle")
    .look("cat /sys/module/intel_idle/parameters/max_cstate; cpupower idle-info")
    .only_with(INTEL)
    .group("idle"),
    known(
        78,
        "how idle CPUs wait",
        &["/proc/cmdline#idle", "/proc/cmdline#cpuidle.off"],
        "`idle=poll` never sleeps, `idle=halt` only halts: no time to wake up, at the price of power and heat",
    )
    .slows(&[Wakeup], SlowerSide::Unknown)
    .risk("idle=poll takes turbo and a sibling's execution units away"),
    known(
        76,
        "idle states that are switched off",
        &["/sys/devices/system/cpu/cpu*/cpuidle/state*/disable", "/sys/devices/system/cpu/cpu*/cpuidle/state*/default_status"],
        "leaving a deep state takes its exit latency each time a CPU is woken: work that comes in small pieces pays it for each, and \
         so does the kernel when it asks a sleeping CPU for something",
    )
    .slows(&[Wakeup, System], SlowerSide::Lower)
    .risk("without deep states a package uses more power while idle")
    .look("cpupower idle-info")
    .follows(&[DRIVER]),
    known(
        74,
        "exit latency of an idle state",
        &["/sys/devices/system/cpu/cpu*/cpuidle/state*/latency"],
        "so long it takes from an interrupt until a sleeping CPU runs again",
    )
    .slows(&[Wakeup, System], SlowerSide::Higher)
    .look("cpupower idle-info")
    .change(ChangeMethod::Firmware("C-states in the firmware's set-up, or the idle driver"))
    .follows(&[DRIVER]),
    known(
        72,
        "deepest latency that CPUs may sleep with",
        &["/sys/devices/system/cpu/cpu*/power/pm_qos_resume_latency_us"],
        "forbids idle states that take longer than this to leave; 0 is no limit",
    )
    .slows(&[Wakeup], SlowerSide::Unknown),
    known(
        62,
        "governor of idle states",
        &["/sys/devices/system/cpu/cpuidle/current_governor*"],
        "it guesses how long a CPU will idle, and thereby how deep it sleeps; `haltpoll` looks for work before it sleeps",
    )
    .slows(&[Wakeup, Network], SlowerSide::Unknown)
    .change(ChangeMethod::Command("echo {} | sudo tee /sys/devices/system/cpu/cpuidle/current_governor"))
    .risk("another guess, other power use"),
    known(
        55,
        "idle states that there are",
        &["/sys/devices/system/cpu/cpu*/cpuidle/state*"],
        "states come from the driver, the processor and the firmware's set-up; deeper ones take longer to leave",
    )
    .slows(&[Wakeup], SlowerSide::Present)
    .change(ChangeMethod::Firmware("C-states in the firmware's set-up, or the idle driver"))
    .follows(&[DRIVER]),
    known(
        40,
        "low-power waiting in user mode",
        &["/sys/devices/system/cpu/umwait_control/*"],
        "how deep and how long user space may wait with `umwait` and `tpause`",
    )
    .slows(&[Wakeup], SlowerSide::Unknown),
];
