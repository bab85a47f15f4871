// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cost of system calls as counted by `deburr syscalls` and `--syscalls`: by call and by file, for a process and all
//! processes that it starts, or for a target.

use super::observed::{Observed, observed};
use super::{ProcId, Source};
use serde::{Deserialize, Serialize};

/// Number of kinds of file operations.
pub const FILE_OPS: usize = 8;

/// Names of the kinds of file operations, in the order of [`SyscallFile::calls`].
pub const FILE_OP_NAMES: [&str; FILE_OPS] =
    ["open", "read", "write", "getdents", "ioctl", "stat", "readlink", "other"];

/// A record of system calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SyscallRecord {
    /// Scope of a measurement, and what was lost. The first record of its process.
    Span(SyscallSpan),
    /// The calls of one name.
    Call(SyscallTotal),
    /// The calls on one file.
    File(SyscallFile),
}

/// A time range in which system calls of a process or of the target were counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyscallSpan {
    /// Start of the range.
    pub t0_ns: u64,
    /// End of the range.
    pub t1_ns: u64,
    /// The process, with all processes that it started during the range. `None` = the command, or the whole target.
    pub process: Option<ProcId>,
    /// Number of processes that started during the range.
    pub processes: u64,
    /// Number of threads that started during the range, including the first threads of processes.
    pub threads: u64,
    /// Whether waiting for a CPU is distinguished from being blocked; otherwise it counts as blocked.
    pub waits_known: bool,
    /// Calls on files for which the table had no room.
    pub beyond_calls: u64,
    /// Wall time of those calls.
    pub beyond_ns: u64,
    /// Calls whose file could not be determined.
    pub unread_calls: u64,
    /// Wall time of those calls.
    pub unread_ns: u64,
    /// Number of threads that were not traced, and of events that the probe missed.
    pub lost: u64,
}

observed! { it: SyscallSpan over t0_ns..t1_ns, from Source::Syscalls; to it.process }

/// All calls of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyscallTotal {
    /// Start of the range.
    pub t0_ns: u64,
    /// End of the range.
    pub t1_ns: u64,
    /// The process, as in [`SyscallSpan::process`].
    pub process: Option<ProcId>,
    /// Name of the call as in the manual pages; in parentheses if the call has no name.
    pub name: String,
    /// Number of calls that returned.
    pub calls: u64,
    /// Number of calls that returned with an error.
    pub errors: u64,
    /// Number of calls in which the thread exited.
    pub unfinished: u64,
    /// Number of calls that had not returned at the end of the range.
    pub under_way: u64,
    /// Wall time of the calls that returned.
    pub ns: u64,
    /// Part of `ns` in which the thread had no CPU.
    pub off_ns: u64,
    /// Part of `off_ns` in which the thread was runnable and waited for a CPU.
    pub wait_ns: u64,
    /// Longest call, in nanoseconds.
    pub max_ns: u64,
    /// Number of calls by duration ([`call_bucket_from_ns`]); empty buckets at the end are left out.
    pub hist: Vec<u32>,
}

observed! { it: SyscallTotal over t0_ns..t1_ns, from Source::Syscalls; to it.process }

/// Lower bound of a bucket of [`SyscallTotal::hist`], in nanoseconds; the upper bound is the lower bound of the next
/// bucket. From 64 ns on there are four buckets per power of two; the last one is open.
#[must_use]
pub fn call_bucket_from_ns(bucket: usize) -> u64 {
    match bucket.checked_sub(1) {
        None => 0,
        Some(above) => {
            (4 + (above as u64 & 3)).checked_shl(4 + above as u32 / 4).unwrap_or(u64::MAX)
        }
    }
}

/// Kind of filesystem that a file is on.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum FileClass {
    /// `/proc`: the kernel generates the content on each read.
    Proc,
    /// `/sys`: generated on each read, often by a driver.
    Sys,
    /// debugfs and tracefs: generated on each read.
    Debug,
    /// Files of cgroups: generated on each read.
    Cgroup,
    /// A filesystem in user space: a process answers.
    Fuse,
    /// A pipe, a socket, or another object without a path.
    Nameless,
    /// Any other filesystem.
    Ordinary,
    /// A path that a call named, on an unknown filesystem.
    #[default]
    Unknown,
}

impl FileClass {
    /// Class by the magic number of the filesystem (`include/uapi/linux/magic.h`). With magic 0, which means not known,
    /// the class is guessed from the usual mount points.
    #[must_use]
    pub fn of(magic: u64, path: &str) -> Self {
        match magic {
            0x9fa0 => Self::Proc,
            0x6265_6572 => Self::Sys,
            0x6462_6720 | 0x7472_6163 => Self::Debug,
            0x0027_e0eb | 0x6367_7270 => Self::Cgroup,
            0x6573_5546 => Self::Fuse,
            0x5049_5045 | 0x534f_434b | 0x0904_1934 => Self::Nameless,
            0 if path.starts_with("/proc/") => Self::Proc,
            0 if path.starts_with("/sys/kernel/debug/") => Self::Debug,
            0 if path.starts_with("/sys/kernel/tracing/") => Self::Debug,
            0 if path.starts_with("/sys/fs/cgroup/") => Self::Cgroup,
            0 if path.starts_with("/sys/") => Self::Sys,
            0 => Self::Unknown,
            _ => Self::Ordinary,
        }
    }

    /// Whether the content is generated when it is read, so that all of the cost is in the read.
    #[must_use]
    pub fn is_computed(self) -> bool {
        matches!(self, Self::Proc | Self::Sys | Self::Debug | Self::Cgroup | Self::Fuse)
    }

    /// Name in tables and sentences.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Proc => "procfs",
            Self::Sys => "sysfs",
            Self::Debug => "debugfs",
            Self::Cgroup => "cgroup",
            Self::Fuse => "FUSE",
            Self::Nameless => "no path",
            Self::Ordinary => "file",
            Self::Unknown => "?",
        }
    }
}

/// All calls on one file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyscallFile {
    /// Start of the range.
    pub t0_ns: u64,
    /// End of the range.
    pub t1_ns: u64,
    /// The process, as in [`SyscallSpan::process`].
    pub process: Option<ProcId>,
    /// Path of the file when it was first used. For a path that a call named without opening the file, that path, after
    /// the directory that it is relative to.
    pub path: String,
    /// Whether `path` is the whole path; otherwise it is only the end of it.
    pub complete: bool,
    /// Kind of filesystem.
    pub class: FileClass,
    /// Number of calls by kind of operation ([`FILE_OP_NAMES`]).
    pub calls: [u64; FILE_OPS],
    /// Wall time of the calls by kind of operation.
    pub ns: [u64; FILE_OPS],
    /// Number of calls that returned with an error.
    pub errors: u64,
    /// Longest call, in nanoseconds.
    pub max_ns: u64,
    /// Part of the wall time in which the thread had no CPU.
    pub off_ns: u64,
    /// Part of `off_ns` in which the thread was runnable and waited for a CPU.
    pub wait_ns: u64,
    /// Bytes read and written.
    pub bytes: u64,
}

observed! { it: SyscallFile over t0_ns..t1_ns, from Source::Syscalls; to it.process }

impl SyscallFile {
    /// Number of calls of all kinds.
    #[must_use]
    pub fn all_calls(&self) -> u64 {
        self.calls.iter().fold(0, |sum, calls| sum.saturating_add(*calls))
    }

    /// Wall time of the calls of all kinds, in nanoseconds.
    #[must_use]
    pub fn all_ns(&self) -> u64 {
        self.ns.iter().fold(0, |sum, ns| sum.saturating_add(*ns))
    }

    /// Adds the calls on the same file that were counted under another inode number.
    pub fn merge(&mut self, other: &Self) {
        for op in 0..FILE_OPS {
            self.calls[op] = self.calls[op].saturating_add(other.calls[op]);
            self.ns[op] = self.ns[op].saturating_add(other.ns[op]);
        }
        if self.class == FileClass::Unknown {
            self.class = other.class;
        }
        self.errors = self.errors.saturating_add(other.errors);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.off_ns = self.off_ns.saturating_add(other.off_ns);
        self.wait_ns = self.wait_ns.saturating_add(other.wait_ns);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

impl SyscallRecord {
    /// What the record tells of itself.
    pub(super) fn observed(&self) -> &dyn Observed {
        match self {
            Self::Span(it) => it,
            Self::Call(it) => it,
            Self::File(it) => it,
        }
    }

    /// The process that the record is about, as in [`SyscallSpan::process`].
    #[must_use]
    pub fn process(&self) -> Option<ProcId> {
        match self {
            Self::Span(it) => it.process,
            Self::Call(it) => it.process,
            Self::File(it) => it.process,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other() {
        let from = call_bucket_from_ns;
        assert_eq!((from(0), from(1), from(2), from(5), from(9)), (0, 64, 80, 128, 256));
        assert!((1..120).all(|bucket| from(bucket) > from(bucket - 1)));
    }

    #[test]
    fn classes() {
        assert_eq!(FileClass::of(0x6265_6572, "x"), FileClass::Sys);
        assert_eq!(FileClass::of(0, "/sys/fs/cgroup/a"), FileClass::Cgroup);
        assert_eq!(FileClass::of(0, "/etc/passwd"), FileClass::Unknown);
        assert_eq!(FileClass::of(0xef53, "/proc/x"), FileClass::Ordinary);
        assert!(FileClass::Fuse.is_computed() && !FileClass::Ordinary.is_computed());
    }
}
