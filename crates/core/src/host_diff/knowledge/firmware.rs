// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Firmware, and thermal zones.

use super::{ChangeMethod, Knowledge, SlowerSide, known};
use crate::host_diff::document::Effect::{System, User, Wakeup};

const SETUP: ChangeMethod =
    ChangeMethod::Firmware("install the same firmware with the same settings");

pub(super) const KNOWN: &[Knowledge] = &[
    known(
        91,
        "thermal zones",
        &["/sys/class/thermal/thermal_zone*/type"],
        "firmware offers temperatures there: reading one runs its code inside the kernel, from microseconds to seconds, \
         and whoever walks sysfs (monitoring, `lscpu`, `sensors`) pays for it",
    )
    .slows(&[System], SlowerSide::Present)
    .risk("cooling that depends on them stops working: watch temperatures")
    .look("grep . /sys/class/thermal/thermal_zone*/type; time cat /sys/class/thermal/thermal_zone0/temp")
    .change(ChangeMethod::Firmware("the firmware's set-up; `thermal.off=1` on the command line switches the zones off"))
    .group("thermal"),
    known(
        60,
        "how thermal zones are run",
        &["/sys/class/thermal/thermal_zone*/*"],
        "a zone that is polled runs firmware's code at that interval, and its policy slows CPUs down",
    )
    .slows(&[System, User], SlowerSide::Unknown)
    .group("thermal")
    .follows(&["/sys/class/thermal/thermal_zone*/type"]),
    known(
        52,
        "cooling devices",
        &["/sys/class/thermal/cooling_device*"],
        "processors among them are slowed down when a zone is hot",
    )
    .slows(&[User], SlowerSide::Unknown)
    .group("thermal")
    .change(ChangeMethod::Machine)
    .follows(&["/sys/devices/system/cpu/*scaling_driver", "/sys/class/thermal/thermal_zone*/type"]),
    known(
        76,
        "power profile of the platform",
        &["/sys/firmware/acpi/platform_profile"],
        "it tells firmware to save power or not",
    )
    .slows(&[User, Wakeup], SlowerSide::Text(&["low-power", "quiet", "cool"])),
    known(
        74,
        "version of the firmware",
        &["/sys/class/dmi/id/bios_*", "/sys/class/dmi/id/ec_firmware_release"],
        "it sets power limits, idle states, interrupts of its own and what ACPI offers",
    )
    .slows(&[User, System, Wakeup], SlowerSide::Unknown)
    .risk("an update needs a boot, and resets settings")
    .look("sudo dmidecode -t bios")
    .change(SETUP)
    .group("firmware"),
    known(
        68,
        "ACPI table",
        &["/sys/firmware/acpi/tables/*SSDT*", "/sys/firmware/acpi/tables/DSDT", "/sys/firmware/acpi/tables/PCCT", "/sys/firmware/acpi/tables/CPEP"],
        "firmware offers other frequencies, idle states or sensors: the kernel's drivers take what is offered",
    )
    .slows(&[System, User, Wakeup], SlowerSide::Unknown)
    .look("sudo acpidump -b; iasl -d *.dat")
    .change(SETUP)
    .group("firmware"),
    known(
        50,
        "table of the firmware",
        &["/sys/firmware/acpi/tables/*", "/sys/firmware/acpi/*", "/sys/firmware/efi/*"],
        "it describes CPUs, memory and devices",
    )
    .slows(&[System], SlowerSide::Unknown)
    .change(SETUP)
    .group("firmware"),
    known(
        65,
        "model of the machine",
        &["/sys/class/dmi/id/product_name", "/sys/class/dmi/id/board_*", "/sys/class/dmi/id/sys_vendor", "/sys/firmware/devicetree/base/model"],
        "these are different machines",
    )
    .slows(&[User, System], SlowerSide::Unknown)
    .group("machine")
    .change(ChangeMethod::Machine),
    known(
        20,
        "what the maker calls it",
        &["/sys/class/dmi/id/*"],
        "a name says little of how the machine is built",
    )
    .group("machine")
    .change(ChangeMethod::Machine),
];
