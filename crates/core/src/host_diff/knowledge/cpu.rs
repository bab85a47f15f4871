// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPUs and their mitigations of processor flaws.

use super::{ChangeMethod, Knowledge, SlowerSide, known};
use crate::host_diff::document::Effect::{Queue, System, User};

const MODEL: &str = "/proc/cpuinfo#model name";

pub(super) const KNOWN: &[Knowledge] = &[
    known(
        88,
        "processor model",
        &[MODEL, "/proc/cpuinfo#vendor_id"],
        "these are different machines: every time that the CPU takes is another one",
    )
    .slows(&[User, System], SlowerSide::Unknown)
    .look("lscpu")
    .group("machine")
    .change(ChangeMethod::Machine),
    known(
        80,
        "CPUs that are in use",
        &["/sys/devices/system/cpu/online", "/sys/devices/system/cpu/offline", "/sys/devices/system/cpu/cpu*/online"],
        "fewer CPUs, longer queues",
    )
    .slows(&[Queue], SlowerSide::Unknown)
    .risk("interrupts and bound threads move"),
    known(
        78,
        "simultaneous multithreading",
        &["/sys/devices/system/cpu/smt/*", "/proc/cmdline#nosmt"],
        "two threads of a core share its units: with SMT a core does up to a third more work, and each thread takes longer",
    )
    .slows(&[User, Queue], SlowerSide::Unknown)
    .risk("without it there are half as many CPUs")
    .look("cat /sys/devices/system/cpu/smt/control; lscpu -e"),
    known(
        76,
        "mitigations of processor flaws",
        &["/proc/cmdline#mitigations"],
        "they make system calls, interrupts and context switches up to several times as expensive",
    )
    .slows(&[System], SlowerSide::Unknown)
    .risk("off, one process can read another's or the kernel's memory")
    .look("grep . /sys/devices/system/cpu/vulnerabilities/*"),
    known(
        60,
        "mitigation of a processor flaw",
        &[
            "/sys/devices/system/cpu/vulnerabilities/*",
            "/proc/cmdline#spectre_v2*",
            "/proc/cmdline#pti",
            "/proc/cmdline#nopti",
            "/proc/cmdline#retbleed",
            "/proc/cmdline#mds",
            "/proc/cmdline#l1tf",
            "/proc/cmdline#spec_store_bypass_disable",
            "/proc/cmdline#srso",
            "/proc/cmdline#gather_data_sampling",
            "/proc/cmdline#tsx*",
        ],
        "each makes entering the kernel, or indirect branches in it, more expensive",
    )
    .slows(&[System], SlowerSide::Text(&["Mitigation*"]))
    .risk("without it, one process can read another's or the kernel's memory")
    .look("grep . /sys/devices/system/cpu/vulnerabilities/*")
    .change(ChangeMethod::Boot("`mitigations=` or the flaw's own parameter on the kernel's command line; new microcode changes it too"))
    .group("mitigations")
    .follows(&["/proc/cmdline#mitigations", MODEL]),
    known(
        66,
        "microcode",
        &["/proc/cpuinfo#microcode", "/sys/devices/system/cpu/cpu*/microcode/version"],
        "updates bring mitigations that cost time, and switch features off",
    )
    .slows(&[User, System], SlowerSide::Unknown)
    .risk("older microcode has known flaws")
    .look("grep -m1 microcode /proc/cpuinfo; journalctl -k | grep -i microcode")
    .change(ChangeMethod::Boot("the package of microcode (`intel-microcode`, `amd64-microcode`, `microcode_ctl`), or the firmware"))
    .group("mitigations")
    .follows(&[MODEL]),
    known(
        72,
        "CPUs kept from the scheduler",
        &["/sys/devices/system/cpu/isolated", "/proc/cmdline#isolcpus"],
        "isolated CPUs get only threads that are bound to them, and there they are not balanced: all others share the rest",
    )
    .slows(&[Queue], SlowerSide::Unknown)
    .risk("what is bound to isolated CPUs loses its peace"),
    known(
        62,
        "CPUs without a tick",
        &["/sys/devices/system/cpu/nohz_full", "/proc/cmdline#nohz_full", "/proc/cmdline#rcu_nocbs"],
        "a CPU without tick runs one thread undisturbed, and pays more for each system call",
    )
    .slows(&[System, Queue], SlowerSide::Unknown)
    .risk("the tick's work goes to the other CPUs"),
    known(
        70,
        "topology: cores, packages, shared caches",
        &[
            "/sys/devices/system/cpu/cpu*/topology/*",
            "/proc/cpuinfo#cpu cores",
            "/proc/cpuinfo#siblings",
            "/sys/devices/system/cpu/possible",
            "/sys/devices/system/cpu/present",
        ],
        "the scheduler places threads by it; another one means other neighbours in caches and cores",
    )
    .slows(&[User, Queue], SlowerSide::Unknown)
    .look("lscpu -e")
    .group("machine")
    .change(ChangeMethod::Machine)
    .follows(&[MODEL]),
    known(
        55,
        "caches",
        &["/sys/devices/system/cpu/cpu*/cache/*", "/proc/cpuinfo#cache size"],
        "what does not fit waits for memory",
    )
    .slows(&[User], SlowerSide::Unknown)
    .group("machine")
    .change(ChangeMethod::Machine)
    .follows(&[MODEL]),
    known(
        54,
        "features of the processor",
        &["/proc/cpuinfo#flags", "/proc/cpuinfo#Features", "/proc/cpuinfo#power management", "/proc/cpuinfo#bugs"],
        "libraries choose their code by them (AVX, AES, ERMS), and the kernel its timers (constant_tsc, nonstop_tsc)",
    )
    .slows(&[User, System], SlowerSide::Unknown)
    .look("lscpu")
    .group("machine")
    .change(ChangeMethod::Firmware("the firmware's set-up, the CPU model of the hypervisor, or microcode"))
    .follows(&[MODEL, "/proc/cpuinfo#microcode", "/proc/sys/kernel/osrelease"]),
    known(
        50,
        "stepping and family",
        &["/proc/cpuinfo#stepping", "/proc/cpuinfo#model", "/proc/cpuinfo#cpu family"],
        "another revision of the processor: other microcode, other flaws",
    )
    .slows(&[User, System], SlowerSide::Unknown)
    .group("machine")
    .change(ChangeMethod::Machine)
    .follows(&[MODEL]),
    known(
        40,
        "checks for machine errors",
        &["/sys/devices/system/machinecheck/*"],
        "polling for corrected errors interrupts every CPU at that interval",
    )
    .slows(&[System], SlowerSide::Unknown),
    known(
        75,
        "a virtual machine or not",
        &["/proc/cpuinfo#hypervisor", "/sys/hypervisor/*"],
        "in a virtual machine CPUs are shared, and leaving the guest takes microseconds",
    )
    .slows(&[User, System, Queue], SlowerSide::Present)
    .group("machine")
    .change(ChangeMethod::Machine),
];
