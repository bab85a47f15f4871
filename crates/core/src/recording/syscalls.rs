// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What system calls cost, as `deburr syscalls` and `--syscalls` count them: by call and by file, of one process and
//! all that it starts, or of a target.

use super::ProcId;
use serde::{Deserialize, Serialize};

/// Kinds of operations on a file.
pub const FILE_OPS: usize = 8;

/// Their names, in the order of [`SyscallFile::calls`].
pub const FILE_OP_NAMES: [&str; FILE_OPS] =
    ["open", "read", "write", "getdents", "ioctl", "stat", "readlink", "other"];

/// A record of system calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SyscallRecord {
    /// Who was looked at, and what did not fit. First of its process.
    Span(SyscallSpan),
    /// The calls of one name.
    Call(SyscallTotal),
    /// The calls about one file.
    File(SyscallFile),
}

/// A stretch of time in which the system calls of somebody were counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyscallSpan {
    /// Start.
    pub t0_ns: u64,
    /// End.
    pub t1_ns: u64,
    /// Whose: that process and those that it started meanwhile. `None` = the command, or all of the target.
    pub process: Option<ProcId>,
    /// Processes that began meanwhile.
    pub processes: u64,
    /// Threads that began meanwhile, first threads of processes too.
    pub threads: u64,
    /// Whether waiting for a CPU is told apart from being blocked; else it counts as blocked.
    pub waits_known: bool,
    /// Calls about files for which the table had no room.
    pub beyond_calls: u64,
    /// Their time.
    pub beyond_ns: u64,
    /// Calls whose file could not be found out.
    pub unread_calls: u64,
    /// Their time.
    pub unread_ns: u64,
    /// Threads that were not looked at, and events that the probe missed.
    pub lost: u64,
}

/// All calls of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyscallTotal {
    /// Start.
    pub t0_ns: u64,
    /// End.
    pub t1_ns: u64,
    /// Whose, as in [`SyscallSpan::process`].
    pub process: Option<ProcId>,
    /// As the manual has it; in parentheses what has no name.
    pub name: String,
    /// Calls that returned.
    pub calls: u64,
    /// Of these: with an error.
    pub errors: u64,
    /// Calls in which the thread ended.
    pub unfinished: u64,
    /// Calls that had not returned at the end.
    pub under_way: u64,
    /// Wall time of the calls that returned.
    pub ns: u64,
    /// Of it: without a CPU.
    pub off_ns: u64,
    /// Of that: ready to run, waiting for a CPU.
    pub wait_ns: u64,
    /// Longest.
    pub max_ns: u64,
    /// Calls by their length ([`call_bucket_from_ns`]); empty buckets at the end are left out.
    pub hist: Vec<u32>,
}

/// Where a bucket of [`SyscallTotal::hist`] begins, in nanoseconds; it ends where the next one begins. From 64 ns on
/// there are four for each power of two; the last one is open.
#[must_use]
pub fn call_bucket_from_ns(bucket: usize) -> u64 {
    match bucket.checked_sub(1) {
        None => 0,
        Some(above) => {
            (4 + (above as u64 & 3)).checked_shl(4 + above as u32 / 4).unwrap_or(u64::MAX)
        }
    }
}

/// What kind of thing a file is.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum FileClass {
    /// `/proc`: the kernel writes it when it is read.
    Proc,
    /// `/sys`: the same, often by a driver.
    Sys,
    /// debugfs and tracefs: the same.
    Debug,
    /// Files of cgroups: the same.
    Cgroup,
    /// A filesystem in user space: a process answers.
    Fuse,
    /// A pipe, a socket, or another thing without a path.
    Nameless,
    /// Any other filesystem.
    Ordinary,
    /// A name that was asked for; on which filesystem is not known.
    #[default]
    Unknown,
}

impl FileClass {
    /// By the magic number of the filesystem (`include/uapi/linux/magic.h`); 0 = not known: then by where it is
    /// usually mounted.
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

    /// Whether what is read comes into being when it is read: nothing but its reading costs time.
    #[must_use]
    pub fn is_computed(self) -> bool {
        matches!(self, Self::Proc | Self::Sys | Self::Debug | Self::Cgroup | Self::Fuse)
    }

    /// In tables and sentences.
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

/// All calls about one file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyscallFile {
    /// Start.
    pub t0_ns: u64,
    /// End.
    pub t1_ns: u64,
    /// Whose, as in [`SyscallSpan::process`].
    pub process: Option<ProcId>,
    /// Where it is, or was when it was first used; of a name that was asked for, that name from where it starts.
    pub path: String,
    /// That is all of the path; else its end.
    pub complete: bool,
    /// What it is.
    pub class: FileClass,
    /// Calls by kind ([`FILE_OP_NAMES`]).
    pub calls: [u64; FILE_OPS],
    /// Their wall time.
    pub ns: [u64; FILE_OPS],
    /// With an error.
    pub errors: u64,
    /// Longest.
    pub max_ns: u64,
    /// Of the time: without a CPU.
    pub off_ns: u64,
    /// Of that: ready to run.
    pub wait_ns: u64,
    /// Bytes read and written.
    pub bytes: u64,
}

impl SyscallFile {
    /// Calls of all kinds.
    #[must_use]
    pub fn all_calls(&self) -> u64 {
        self.calls.iter().fold(0, |sum, calls| sum.saturating_add(*calls))
    }

    /// Their wall time.
    #[must_use]
    pub fn all_ns(&self) -> u64 {
        self.ns.iter().fold(0, |sum, ns| sum.saturating_add(*ns))
    }

    /// Adds what was done with the same file under another number.
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
    /// The time that it belongs to.
    #[must_use]
    pub fn span(&self) -> (u64, u64) {
        match self {
            Self::Span(it) => (it.t0_ns, it.t1_ns),
            Self::Call(it) => (it.t0_ns, it.t1_ns),
            Self::File(it) => (it.t0_ns, it.t1_ns),
        }
    }

    /// Whose it is.
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
