// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of the settings that an experiment may change.
//!
//! A setting is in it if what it may cost is known and it goes back when its old value is written. Settings that are
//! not in it are refused: nobody has said what they may break. One row adds one.

use super::Kind::{
    self, Affinity, Arg, Bdi, Block, Cgroup, Cpu, Env, Irq, Module, Nice, Pause, Policy, Sysctl,
    Thp,
};
use super::Values::{self, Cpus, DiskLimit, IoMax, Number, Offered, Percent, Quota, Text, Word};
use super::values::{UNLOADED, is_device_number};

/// What a setting belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The whole host: there is no subject in the text.
    Host,
    /// The name of a disk in `/sys/block`.
    Disk,
    /// `MAJOR:MINOR` of a disk.
    DeviceNumber,
    /// The number of an interrupt.
    Irq,
    /// The name of a module.
    Module,
    /// The path of a cgroup below the root of its tree, from `/`.
    Cgroup,
    /// The number of a process.
    Pid,
    /// The name of an environment variable.
    Variable,
    /// The number of an argument of a command, from 1.
    Position,
}

/// Longest name of a module, in bytes: longer than the kernel's.
const MAX_MODULE_BYTES: usize = 64;
/// Most arguments of a command that a setting can be about.
const MAX_POSITION: u32 = 1000;

impl Subject {
    /// Whether a text can be one. No text of the user becomes more than one name, or a path with `..`.
    pub(super) fn is_one(self, text: &str) -> bool {
        let is_number = |text: &str, most: u32| {
            text.bytes().all(|b| b.is_ascii_digit()) && text.parse().is_ok_and(|it: u32| it <= most)
        };
        match self {
            Self::Host => text.is_empty(),
            Self::Disk => {
                let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-.!:".contains(&b);
                text.bytes().all(plain) && text.bytes().any(|b| b.is_ascii_alphanumeric())
            }
            Self::DeviceNumber => is_device_number(text),
            Self::Irq => is_number(text, u32::MAX),
            Self::Module => {
                let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-".contains(&b);
                let is_name = text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
                is_name && text.len() <= MAX_MODULE_BYTES && text.bytes().all(plain)
            }
            Self::Cgroup => {
                let names = text.strip_prefix('/').map(|names| names.split('/'));
                names.is_some_and(|mut all| {
                    all.all(|name| !name.is_empty() && name != "." && name != "..")
                })
            }
            Self::Pid => is_number(text, i32::MAX.cast_unsigned()) && !text.starts_with('0'),
            Self::Variable => {
                let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
                text.bytes().all(plain) && text.bytes().next().is_some_and(|b| !b.is_ascii_digit())
            }
            Self::Position => is_number(text, MAX_POSITION) && !text.starts_with('0'),
        }
    }

    /// What it is, in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Host => "subject of the host",
            Self::Disk => "name of a disk such as `vda`",
            Self::DeviceNumber => "number of a disk such as `8:0`",
            Self::Irq => "number of an interrupt",
            Self::Module => "name of a module such as `acpi_cpufreq`",
            Self::Cgroup => "path of a cgroup such as `/web/batch`",
            Self::Pid => "number of a process",
            Self::Variable => "name of an environment variable such as `GOMAXPROCS`",
            Self::Position => "number of an argument, 1 to 1000",
        }
    }

    fn pattern(self) -> Option<&'static str> {
        match self {
            Self::Host => None,
            Self::Disk => Some("DISK"),
            Self::DeviceNumber => Some("MAJOR:MINOR"),
            Self::Irq => Some("NUMBER"),
            Self::Module => Some("NAME"),
            Self::Cgroup => Some("/PATH"),
            Self::Pid => Some("PID"),
            Self::Variable => Some("NAME"),
            Self::Position => Some("NUMBER"),
        }
    }
}

/// A setting that an experiment may change.
#[derive(Debug, PartialEq, Eq)]
pub struct Lever {
    /// What it belongs to.
    pub kind: Kind,
    /// Its name: the last part of the text, and of its file if it has one; empty for processes, of which the kind says
    /// all.
    pub name: &'static str,
    /// The values that it may get.
    pub values: Values,
    /// The unit of its values, unless they are words or state it themselves.
    pub unit: Option<&'static str>,
    /// What it does, and what changing it for some seconds may cost.
    pub risk: &'static str,
}

impl Lever {
    /// The text form without the value: `block:DISK:scheduler`.
    #[must_use]
    pub fn pattern(&self) -> String {
        let parts = [self.kind.word(), self.kind.subject().pattern(), Some(self.name)];
        let parts = parts.into_iter().flatten().filter(|part| !part.is_empty());
        parts.collect::<Vec<_>>().join(":")
    }
}

const fn lever(
    kind: Kind,
    name: &'static str,
    values: Values,
    unit: Option<&'static str>,
    risk: &'static str,
) -> Lever {
    Lever { kind, name, values, unit, risk }
}

const CENTISECONDS: Option<&str> = Some("centiseconds");
const MICROSECONDS: Option<&str> = Some("microseconds");
const PERCENT: Option<&str> = Some("percent of memory");
const BYTES: Option<&str> = Some("bytes");
const MAX: i64 = i64::MAX;

/// The settings that an experiment may change, in the order of the documentation.
pub static LEVERS: &[Lever] = &[
    lever(
        Sysctl,
        "vm.dirty_writeback_centisecs",
        Number(1, 360_000),
        CENTISECONDS,
        "how often the flusher wakes up; seldom means that more data is lost in a crash",
    ),
    lever(
        Sysctl,
        "vm.dirty_expire_centisecs",
        Number(1, 360_000),
        CENTISECONDS,
        "how old dirty data may become; more means that more data is lost in a crash",
    ),
    lever(
        Sysctl,
        "vm.dirty_background_ratio",
        Number(1, 100),
        PERCENT,
        "from where on the flusher writes all the time; more means longer bursts",
    ),
    lever(
        Sysctl,
        "vm.dirty_ratio",
        Number(1, 100),
        PERCENT,
        "from where on writers are paused; little pauses all writers of the host",
    ),
    lever(
        Sysctl,
        "vm.dirty_background_bytes",
        Number(1 << 20, MAX),
        BYTES,
        "from where on the flusher writes all the time; replaces the ratio while it is set",
    ),
    lever(
        Sysctl,
        "vm.dirty_bytes",
        Number(8 << 20, MAX),
        BYTES,
        "from where on writers are paused; little pauses all writers of the host",
    ),
    lever(
        Sysctl,
        "vm.dirtytime_expire_seconds",
        Number(1, 604_800),
        Some("seconds"),
        "how old a time stamp of an inode may become before it is written",
    ),
    lever(
        Sysctl,
        "vm.swappiness",
        Number(0, 200),
        Some("of 200"),
        "whether memory of programs or of files is reclaimed first",
    ),
    lever(
        Sysctl,
        "vm.vfs_cache_pressure",
        Number(1, 10_000),
        Some("percent"),
        "how readily names and inodes are dropped; much makes every look-up read the disk",
    ),
    lever(
        Sysctl,
        "vm.watermark_scale_factor",
        Number(1, 3_000),
        Some("of 10000"),
        "how early memory is reclaimed in the background; much keeps that memory free",
    ),
    lever(
        Sysctl,
        "vm.stat_interval",
        Number(1, 3_600),
        Some("seconds"),
        "how often each CPU sums up its counters of memory",
    ),
    lever(
        Sysctl,
        "vm.compaction_proactiveness",
        Number(0, 100),
        Some("of 100"),
        "how much memory is compacted in the background",
    ),
    lever(
        Sysctl,
        "kernel.sched_autogroup_enabled",
        Number(0, 1),
        Some("(0 = off)"),
        "whether sessions get equal shares of the CPUs",
    ),
    lever(
        Sysctl,
        "kernel.sched_cfs_bandwidth_slice_us",
        Number(1_000, 1_000_000),
        MICROSECONDS,
        "how much of a quota a CPU takes at a time",
    ),
    lever(
        Sysctl,
        "kernel.numa_balancing",
        Number(0, 1),
        Some("(0 = off)"),
        "whether pages follow the CPUs that use them; the change makes pages move",
    ),
    lever(
        Sysctl,
        "kernel.timer_migration",
        Number(0, 1),
        Some("(0 = off)"),
        "whether idle CPUs leave their timers to others",
    ),
    lever(
        Sysctl,
        "net.core.busy_poll",
        Number(0, 1_000),
        MICROSECONDS,
        "how long `poll` spins for packets; costs CPU time",
    ),
    lever(
        Sysctl,
        "net.core.busy_read",
        Number(0, 1_000),
        MICROSECONDS,
        "how long reads of sockets spin for packets; costs CPU time",
    ),
    lever(
        Sysctl,
        "net.core.netdev_budget",
        Number(1, 100_000),
        Some("packets"),
        "how many packets a CPU handles at a time before others run",
    ),
    lever(
        Sysctl,
        "net.core.netdev_budget_usecs",
        Number(1, 1_000_000),
        MICROSECONDS,
        "how long a CPU handles packets at a time before others run",
    ),
    lever(
        Thp,
        "enabled",
        Offered,
        None,
        "who gets huge pages; processes may use more memory, and stall while it is compacted",
    ),
    lever(Thp, "defrag", Offered, None, "whether a page fault waits for memory to be compacted"),
    lever(
        Cpu,
        "scaling_governor",
        Offered,
        None,
        "how the frequency of all CPUs is chosen; may cost power, or speed",
    ),
    lever(
        Cpu,
        "scaling_min_freq",
        Number(1, MAX),
        Some("kHz"),
        "the least frequency of all CPUs; may cost power",
    ),
    lever(
        Cpu,
        "scaling_max_freq",
        Number(1, MAX),
        Some("kHz"),
        "the highest frequency of all CPUs; little slows the whole host",
    ),
    lever(
        Cpu,
        "dma_latency_us",
        Number(0, 1_000_000),
        MICROSECONDS,
        "how long an idle CPU may take to wake up; 0 keeps all CPUs awake and costs power",
    ),
    lever(
        Block,
        "scheduler",
        Offered,
        None,
        "the order of requests; the queue is drained for the change, and its tunables are reset",
    ),
    lever(
        Block,
        "nr_requests",
        Number(4, 65_536),
        Some("requests"),
        "how many requests may be queued; the queue is drained for the change",
    ),
    lever(
        Block,
        "wbt_lat_usec",
        Number(0, 10_000_000),
        MICROSECONDS,
        "the latency of reads for which background writes are held back; 0 = off",
    ),
    lever(
        Block,
        "read_ahead_kb",
        Number(0, 1 << 20),
        Some("KiB"),
        "how much is read ahead; little slows sequential readers",
    ),
    lever(Block, "max_sectors_kb", Number(4, 1 << 20), Some("KiB"), "the largest request"),
    lever(
        Block,
        "rq_affinity",
        Number(0, 2),
        Some("(0 = any CPU)"),
        "which CPU completes a request",
    ),
    lever(
        Bdi,
        "min_ratio",
        Number(0, 100),
        PERCENT,
        "the share of dirty memory that is kept for this disk",
    ),
    lever(
        Bdi,
        "max_ratio",
        Number(1, 100),
        PERCENT,
        "the share of dirty memory that this disk may have; little pauses its writers",
    ),
    lever(
        Bdi,
        "strict_limit",
        Number(0, 1),
        Some("(0 = off)"),
        "whether its limit holds when the host has little dirty memory",
    ),
    lever(
        Irq,
        "smp_affinity_list",
        Cpus,
        None,
        "the CPUs that may handle this interrupt; those CPUs lose the time",
    ),
    lever(
        Cgroup,
        "cpu.max",
        Quota,
        None,
        "the quota of the cgroup (v2); too little makes its processes stand still in each period",
    ),
    lever(
        Cgroup,
        "cpu.max.burst",
        Number(0, MAX),
        MICROSECONDS,
        "unused quota that may be used later (v2)",
    ),
    lever(
        Cgroup,
        "cpu.weight",
        Number(1, 10_000),
        Some("(100 = usual)"),
        "the share of the CPUs when they are short (v2)",
    ),
    lever(
        Cgroup,
        "cpu.idle",
        Number(0, 1),
        Some("(0 = off)"),
        "whether its processes run only when nothing else wants to; resets the weight",
    ),
    lever(
        Cgroup,
        "cpu.cfs_quota_us",
        Number(-1, MAX),
        MICROSECONDS,
        "the quota of the cgroup (v1), -1 = none; too little makes its processes stand still in each period",
    ),
    lever(
        Cgroup,
        "cpu.cfs_period_us",
        Number(1_000, 1_000_000),
        MICROSECONDS,
        "the period of the quota (v1)",
    ),
    lever(
        Cgroup,
        "cpu.shares",
        Number(2, 262_144),
        Some("(1024 = usual)"),
        "the share of the CPUs when they are short (v1)",
    ),
    lever(
        Cgroup,
        "cpuset.cpus",
        Cpus,
        None,
        "the CPUs that its processes may use; few make them wait for each other",
    ),
    lever(
        Cgroup,
        "io.max",
        IoMax,
        None,
        "the limits of a disk for the cgroup (v2); little makes its processes wait, and others for locks that they hold",
    ),
    lever(
        Cgroup,
        "io.weight",
        Number(1, 10_000),
        Some("(100 = usual)"),
        "the share of the disks when they are short (v2)",
    ),
    lever(
        Cgroup,
        "blkio.throttle.read_bps_device",
        DiskLimit,
        Some("bytes/s"),
        "a limit of a disk for the cgroup's reads (v1)",
    ),
    lever(
        Cgroup,
        "blkio.throttle.write_bps_device",
        DiskLimit,
        Some("bytes/s"),
        "a limit of a disk for the cgroup's direct writes (v1); others wait for locks that they hold",
    ),
    lever(
        Cgroup,
        "blkio.throttle.read_iops_device",
        DiskLimit,
        Some("requests/s"),
        "a limit of a disk for the cgroup's reads (v1)",
    ),
    lever(
        Cgroup,
        "blkio.throttle.write_iops_device",
        DiskLimit,
        Some("requests/s"),
        "a limit of a disk for the cgroup's direct writes (v1); others wait for locks that they hold",
    ),
    lever(
        Module,
        "",
        Word(UNLOADED),
        None,
        "its driver, filter or protection is gone meanwhile; it comes back with the parameters that can be read, but without \
         what was set up in it since it was loaded, and if it fails to load, it stays away; only with `--allow-module`",
    ),
    lever(
        Nice,
        "",
        Number(-20, 19),
        Some("(0 = usual)"),
        "its weight beside others; with autogroup, beside those of its session only",
    ),
    lever(
        Policy,
        "",
        Values::Policy,
        None,
        "its scheduling policy; with `fifo` or `rr` it can keep all others from its CPUs",
    ),
    lever(
        Affinity,
        "",
        Cpus,
        None,
        "the CPUs that it may use; few make its threads wait for each other",
    ),
    lever(
        Pause,
        "",
        Percent(10, 90),
        None,
        "it is stopped for that part of every second; its clients wait, locks that it holds stay held, and its parent is told",
    ),
    lever(
        Env,
        "",
        Text,
        None,
        "a variable in the environment of the command that the experiment starts",
    ),
    lever(
        Arg,
        "",
        Text,
        None,
        "an argument of the command that the experiment starts, counted from 1; the number after the last one adds one",
    ),
];
