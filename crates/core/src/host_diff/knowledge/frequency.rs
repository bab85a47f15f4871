// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU frequencies: drivers, governors and limits.

use super::{ChangeMethod, Knowledge, RequiredDriver, SlowerSide, known};
use crate::host_diff::document::Effect::{System, User, Wakeup};
use crate::host_diff::drivers;

const DRIVER: &str = drivers::FREQUENCY_DRIVER;

pub(super) const KNOWN: &[Knowledge] = &[
    known(
        92,
        "driver that sets CPU frequencies",
        &[DRIVER],
        "the driver decides which limits and governors there are at all, and what asking for a frequency costs: with \
         firmware in between (pcc-cpufreq, old ACPI) each question can take microseconds to milliseconds in the kernel",
    )
    .slows(&[User, System], SlowerSide::Unknown)
    .risk("which driver loads follows from modules, kernel parameters and firmware; without any, firmware decides alone")
    .look("grep . /sys/devices/system/cpu/cpu0/cpufreq/scaling_driver; lsmod | grep -i cpufreq")
    .change(ChangeMethod::Boot("load or blacklist the driver's module, or choose it on the command line (`intel_pstate=`, `amd_pstate=`)")),
    known(
        90,
        "upper limit of CPU frequency",
        &["/sys/devices/system/cpu/*scaling_max_freq", "/sys/devices/system/cpu/*bios_limit"],
        "CPUs never run faster than that, however busy they are; what is bound by CPU slows down in proportion",
    )
    .slows(&[User, System], SlowerSide::Lower)
    .risk("power and heat; a limit that firmware sets (bios_limit) can only be raised there")
    .look("grep . /sys/devices/system/cpu/cpufreq/policy*/{cpuinfo_max_freq,scaling_max_freq,bios_limit}")
    .change(ChangeMethod::Command("cpupower frequency-set -u {}kHz"))
    .alone(),
    known(
        86,
        "highest frequency that the hardware offers",
        &["/sys/devices/system/cpu/*cpuinfo_max_freq", "/sys/devices/system/cpu/*amd_pstate_max_freq"],
        "another processor, or firmware that offers less of the same one (power profile, turbo off)",
    )
    .slows(&[User, System], SlowerSide::Lower)
    .change(ChangeMethod::Firmware("power profile of the firmware: maximum performance, turbo on")),
    known(
        84,
        "frequency governor",
        &["/sys/devices/system/cpu/*scaling_governor"],
        "`powersave` of acpi-cpufreq stays at the lowest frequency for ever, `ondemand` and `schedutil` raise it only \
         after load was seen: short bursts of work run slow. With intel_pstate and amd-pstate-epp, `powersave` is \
         dynamic and harmless",
    )
    .slows(&[User, System], SlowerSide::Text(&["powersave", "conservative", "ondemand", "schedutil"]))
    .risk("`performance` costs power, and may take turbo from neighbours on the same package")
    .look("cpupower frequency-info -p")
    .change(ChangeMethod::Command("cpupower frequency-set -g {}")),
    known(
        82,
        "boost above the nominal frequency",
        &[
            "/sys/devices/system/cpu/*/boost",
            "/sys/devices/system/cpu/*/cpb",
        ],
        "without boost (turbo) a few busy CPUs run at the nominal frequency, a third to a half slower than they could",
    )
    .slows(&[User, System], SlowerSide::Lower)
    .risk("boost adds heat and makes run times depend on the neighbours' load"),
    known(
        82,
        "turbo is off",
        &["/sys/devices/system/cpu/intel_pstate/no_turbo"],
        "without turbo a few busy CPUs run at the nominal frequency, a third to a half slower than they could",
    )
    .slows(&[User, System], SlowerSide::Higher)
    .risk("turbo adds heat and makes run times depend on the neighbours' load")
    .only_with(RequiredDriver::Frequency(&["intel_pstate", "intel_cpufreq"])),
    known(
        80,
        "upper limit of performance, in hundredths",
        &["/sys/devices/system/cpu/intel_pstate/max_perf_pct"],
        "CPUs never run faster than that share of their highest frequency",
    )
    .slows(&[User, System], SlowerSide::Lower)
    .risk("power and heat")
    .only_with(RequiredDriver::Frequency(&["intel_pstate", "intel_cpufreq"])),
    known(
        70,
        "mode of the pstate driver",
        &["/sys/devices/system/cpu/*_pstate/status"],
        "`active` leaves the choice to the hardware, `passive` to a governor of the kernel, `off` to another driver",
    )
    .slows(&[User, System], SlowerSide::Unknown)
    .risk("limits and governors are set anew by the other mode"),
    known(
        64,
        "preference between energy and performance",
        &["/sys/devices/system/cpu/*energy_performance_preference", "/sys/devices/system/cpu/*energy_perf_bias"],
        "hardware that chooses its own frequency raises it late if it is told to save energy",
    )
    .slows(&[User, System, Wakeup], SlowerSide::Text(&["power", "balance_power", "15", "8"]))
    .risk("performance costs power"),
    known(
        60,
        "lower limit of CPU frequency",
        &["/sys/devices/system/cpu/*scaling_min_freq", "/sys/devices/system/cpu/intel_pstate/min_perf_pct"],
        "a CPU that was idle begins at this frequency, and needs some milliseconds of load to leave it",
    )
    .slows(&[User, System], SlowerSide::Lower)
    .risk("a higher one costs power while idle"),
    known(
        58,
        "nominal or lowest frequency of the hardware",
        &[
            "/sys/devices/system/cpu/*base_frequency",
            "/sys/devices/system/cpu/*cpuinfo_min_freq",
            "/sys/devices/system/cpu/*acpi_cppc/*",
        ],
        "another processor, or other firmware",
    )
    .slows(&[User, System], SlowerSide::Lower)
    .change(ChangeMethod::Machine)
    .follows(&[DRIVER]),
    known(
        56,
        "power limit of the package",
        &["/sys/class/powercap/*power_limit_uw", "/sys/class/powercap/*/enabled"],
        "above its power limit a package lowers the frequency of all its CPUs, whatever the governor wants",
    )
    .slows(&[User, System], SlowerSide::Lower)
    .risk("above what cooling and supply are made for, hardware throttles by itself"),
    known(
        45,
        "how the governor decides",
        &["/sys/devices/system/cpu/cpufreq/ondemand/*", "/sys/devices/system/cpu/cpufreq/conservative/*", "*rate_limit_us"],
        "how long load must last before the frequency is raised",
    )
    .slows(&[User, System], SlowerSide::Unknown)
    .follows(&[DRIVER, "/sys/devices/system/cpu/*scaling_governor"]),
    known(
        22,
        "what the frequency driver offers",
        &["/sys/devices/system/cpu/*cpufreq/*"],
        "it follows from the driver and the hardware",
    )
    .follows(&[DRIVER]),
];
