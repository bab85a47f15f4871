// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel: version, command line, `kernel.*`, cgroups, packages.

use super::{ChangeMethod, Knowledge, SlowerSide, known};
use crate::host_diff::document::Effect::{BlockIo, Queue, System, User, Wakeup};

const RELEASE: &str = "/proc/sys/kernel/osrelease";
const CONFIGURED: ChangeMethod = ChangeMethod::Boot("the boot loader's configuration; then boot");

pub(super) const KNOWN: &[Knowledge] = &[
    known(
        78,
        "kernel release",
        &[RELEASE],
        "scheduler, writeback and mitigations change between releases; drivers appear and take over hardware",
    )
    .slows(&[System, User, Queue, BlockIo, Wakeup], SlowerSide::Unknown)
    .risk("an older kernel has known flaws")
    .look("uname -a")
    .change(ChangeMethod::Boot("install and boot the other kernel")),
    known(
        20,
        "build of the kernel",
        &["/proc/version", "/proc/sys/kernel/version", "/sys/kernel/notes"],
        "it follows from the kernel that runs",
    )
    .change(ChangeMethod::Boot("install and boot the other kernel"))
    .group("kernel release")
    .follows(&[RELEASE]),
    known(
        66,
        "preemption and tick of the kernel",
        &["/proc/cmdline#preempt", "/boot/config-*#CONFIG_PREEMPT*", "/boot/config-*#CONFIG_HZ", "/sys/kernel/realtime", "/sys/kernel/debug/sched/preempt"],
        "it decides how long kernel code may keep a waking thread from its CPU, and how often the scheduler looks",
    )
    .slows(&[Wakeup, Queue], SlowerSide::Unknown)
    .change(ChangeMethod::Boot("`preempt=` on the command line, or another kernel")),
    known(
        70,
        "debugging inside the kernel",
        &[
            "/boot/config-*#CONFIG_KASAN",
            "/boot/config-*#CONFIG_PROVE_LOCKING",
            "/boot/config-*#CONFIG_DEBUG_LOCK_ALLOC",
            "/boot/config-*#CONFIG_SLUB_DEBUG_ON",
            "/proc/cmdline#slub_debug",
            "/proc/cmdline#debug*",
            "/proc/cmdline#kmemleak",
            "/proc/sys/kernel/latencytop",
            "/proc/sys/kernel/lock_stat",
            "/proc/sys/kernel/stack_tracer_enabled",
        ],
        "checks on every lock, allocation or switch make all kernel work slower",
    )
    .slows(&[System], SlowerSide::Present),
    known(
        52,
        "build option of the kernel",
        &["/boot/config-*"],
        "it decides which drivers and defaults the kernel has",
    )
    .slows(&[System], SlowerSide::Unknown)
    .change(ChangeMethod::Boot("install and boot another kernel"))
    .group("kernel release")
    .follows(&[RELEASE]),
    known(
        62,
        "auditing of system calls",
        &["/proc/cmdline#audit"],
        "with rules loaded, each system call is matched against them",
    )
    .slows(&[System], SlowerSide::Unknown)
    .risk("an audit trail may be required")
    .look("auditctl -s"),
    known(
        60,
        "power management of devices",
        &["/proc/cmdline#pcie_aspm*", "/proc/cmdline#pci*", "/proc/cmdline#acpi*", "/proc/cmdline#noapic", "/proc/cmdline#nolapic*"],
        "it decides what the firmware may do behind the kernel's back, and how links to devices sleep",
    )
    .slows(&[Wakeup, BlockIo, System], SlowerSide::Unknown)
    .risk("devices may not be found, or not be powered down"),
    known(
        50,
        "translation of device addresses",
        &["/proc/cmdline#iommu*", "/proc/cmdline#intel_iommu", "/proc/cmdline#amd_iommu"],
        "strict translation costs some microseconds for each mapping of a fast device",
    )
    .slows(&[BlockIo, System], SlowerSide::Unknown)
    .risk("without it, devices reach all memory"),
    known(
        54,
        "detectors of lock-ups",
        &["/proc/sys/kernel/nmi_watchdog", "/proc/sys/kernel/watchdog*", "/proc/cmdline#nmi_watchdog", "/proc/cmdline#nowatchdog"],
        "a watchdog interrupts each CPU every few seconds, and takes a performance counter",
    )
    .slows(&[System], SlowerSide::Higher)
    .risk("hung CPUs are not reported any more"),
    known(
        48,
        "statistics of BPF programs",
        &["/proc/sys/kernel/bpf_stats_enabled", "/proc/sys/kernel/ftrace_enabled", "/proc/sys/kernel/sched_schedstats", "/proc/sys/kernel/task_delayacct"],
        "counting costs tens of nanoseconds at each event",
    )
    .slows(&[System], SlowerSide::Higher),
    known(
        64,
        "real-time throttling",
        &["/proc/sys/kernel/sched_rt_*"],
        "how much of a CPU real-time threads may take; -1: all of it, others starve",
    )
    .slows(&[Queue], SlowerSide::Unknown)
    .risk("a real-time thread that spins can hang the host"),
    known(
        60,
        "scheduling",
        &["/proc/sys/kernel/sched_*", "/sys/kernel/debug/sched/*"],
        "it sets how long threads run in one go and when a waking one may preempt another",
    )
    .slows(&[Queue, Wakeup], SlowerSide::Unknown)
    .group("scheduling"),
    known(
        60,
        "migration of memory between nodes",
        &["/proc/sys/kernel/numa_balancing*"],
        "takes pages away for a moment to see who uses them: faults, and better places later",
    )
    .slows(&[System, User], SlowerSide::Unknown)
    .group("numa"),
    known(
        56,
        "misaligned atomic operations",
        &["/proc/sys/kernel/split_lock_mitigate", "/proc/cmdline#split_lock_detect"],
        "a process that locks across cache lines is slowed down on purpose, by milliseconds for each",
    )
    .slows(&[User, System], SlowerSide::Higher),
    known(
        58,
        "limits of cgroups",
        &["/sys/fs/cgroup/*cpu.max*", "/sys/fs/cgroup/*cpuset*", "/sys/fs/cgroup/*memory.high", "/sys/fs/cgroup/*io.max", "/sys/fs/cgroup/*cpu.weight", "/sys/fs/cgroup/*cfs_quota*"],
        "a limit of a slice holds for all services in it",
    )
    .slows(&[Queue, BlockIo], SlowerSide::Unknown)
    .risk("other services get more or less")
    .comes_and_goes(),
    known(
        15,
        "controllers that are handed down",
        &["/sys/fs/cgroup/*subtree_control"],
        "the service manager switches them on as units ask for them",
    ),
    known(
        50,
        "layout of cgroups",
        &["/proc/self/mountinfo#cgroup", "/proc/cgroups*", "/sys/fs/cgroup/cgroup.controllers", "/proc/cmdline#systemd.unified_cgroup_hierarchy"],
        "v1 and v2 differ in how they throttle and account: runtimes find other limits",
    )
    .slows(&[Queue], SlowerSide::Unknown),
    known(
        57,
        "security module",
        &["/sys/kernel/security/*", "/sys/fs/selinux/enforce", "/proc/cmdline#apparmor", "/proc/cmdline#selinux", "/proc/cmdline#lsm"],
        "its hooks run at each opening of a file and each connection",
    )
    .slows(&[System], SlowerSide::Unknown)
    .risk("protection is lost"),
    known(
        55,
        "profile of tuned",
        &["/etc/tuned/active_profile"],
        "a profile sets governors, idle states, dirty limits and more, and sets them again after they were changed",
    )
    .slows(&[User, Wakeup, BlockIo], SlowerSide::Unknown)
    .change(ChangeMethod::Command("tuned-adm profile {}")),
    known(
        42,
        "command line of the next boot",
        &["/etc/default/grub*", "/etc/sysconfig/bootloader*", "/boot/grub2/*", "/etc/kernel/cmdline", "/usr/lib/kernel/cmdline", "/boot/loader/*", "/boot/efi/loader/*"],
        "it is not what runs now: the host changes when it boots",
    )
    .slows(&[System, Wakeup], SlowerSide::Unknown)
    .change(CONFIGURED)
    .group("command line"),
    known(
        8,
        "which file of the disk was booted",
        &["/proc/cmdline#BOOT_IMAGE", "/proc/cmdline#initrd", "/proc/cmdline#root*", "/proc/cmdline#ro", "/proc/cmdline#rw", "/proc/cmdline#quiet", "/proc/cmdline#splash", "/proc/cmdline#console", "/proc/cmdline#panic"],
        "it says where the system is, not how it runs",
    ),
    known(
        44,
        "parameter of the kernel's command line",
        &["/proc/cmdline#*"],
        "whatever it changes was changed on purpose, on some hosts only",
    )
    .slows(&[System], SlowerSide::Unknown)
    .group("command line"),
    known(
        45,
        "taint of the kernel",
        &["/proc/sys/kernel/tainted"],
        "modules from outside, warnings or machine checks since the boot",
    )
    .look("cat /proc/sys/kernel/tainted; dmesg | grep -i taint")
    .change(ChangeMethod::Machine),
    known(
        34,
        "package of kernel, firmware or microcode",
        &["/var/lib/dpkg/status#*", "/var/lib/rpm/*", "/usr/lib/sysimage/*"],
        "it decides what the next boot runs",
    )
    .change(ChangeMethod::Boot("install the same version, and boot"))
    .group("packages"),
    known(
        30,
        "distribution",
        &["/etc/os-release*"],
        "other libraries, other defaults",
    )
    .change(ChangeMethod::Machine),
];
