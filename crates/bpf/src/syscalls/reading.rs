// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The counts of the system call probe, as safe types.

use super::table;
use crate::mapped::{self, Plain};
use crate::skel::syscalls::types::{sys_file, sys_key, sys_stat};

/// Calls with one number by the threads of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Number of the group.
    pub group: u32,
    /// Name of the call; in parentheses if it has none, as `(32-bit calls)`.
    pub name: String,
    /// Calls that returned.
    pub calls: u64,
    /// Those of them that returned an error.
    pub errors: u64,
    /// Calls that did not return because the thread ended.
    pub unfinished: u64,
    /// Wall time of the calls that returned, in nanoseconds.
    pub ns: u64,
    /// Part of `ns` off the CPU.
    pub off_ns: u64,
    /// Part of `off_ns` in a run queue, waiting for a CPU.
    pub wait_ns: u64,
    /// Longest call, in nanoseconds.
    pub max_ns: u64,
    /// Number of calls by duration ([`deburr_core::recording::call_bucket_from_ns`]).
    pub hist: Vec<u32>,
}

/// Calls that refer to one file, or to one path, by the threads of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileUse {
    /// Number of the group.
    pub group: u32,
    /// Path from the root of the mount namespace; with `asked`, the path passed to the call, resolved against the
    /// directory it is relative to. Empty = not known.
    pub path: Vec<u8>,
    /// `path` is complete; otherwise it is truncated.
    pub complete: bool,
    /// `path` was passed to calls that did not open it.
    pub asked: bool,
    /// Magic number of its filesystem; 0 = not known.
    pub magic: u64,
    /// Calls by kind ([`deburr_core::recording::FILE_OP_NAMES`]).
    pub calls: [u64; 8],
    /// Their wall time by kind, in nanoseconds.
    pub ns: [u64; 8],
    /// Calls that returned an error.
    pub errors: u64,
    /// Longest call, in nanoseconds.
    pub max_ns: u64,
    /// Part of the wall time off the CPU.
    pub off_ns: u64,
    /// Part of `off_ns` in a run queue.
    pub wait_ns: u64,
    /// Bytes read and written, together.
    pub bytes: u64,
}

/// Everything that a probe counted so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Calls by group and name.
    pub calls: Vec<Call>,
    /// Calls by file, in no order.
    pub files: Vec<FileUse>,
    /// Calls in progress: group, name and start time (`CLOCK_MONOTONIC`, nanoseconds).
    pub under_way: Vec<(u32, String, u64)>,
    /// Observed processes that were started, besides the initial ones.
    pub processes: u64,
    /// Observed threads that were started, besides the initial ones.
    pub threads: u64,
    /// Calls on files for which the table had no room.
    pub files_full: u64,
    /// Their wall time, in nanoseconds.
    pub files_full_ns: u64,
    /// Calls whose file or path could not be read.
    pub unread: u64,
    /// Their wall time, in nanoseconds.
    pub unread_ns: u64,
    /// Threads that were not observed because another one had their entry in the table.
    pub threads_collide: u64,
    /// Events for which a program did not run, because it was already running on that CPU.
    pub missed: u64,
}

pub(super) fn call(group: u32, number: u32, stat: &sys_stat) -> Call {
    Call {
        group,
        name: table::name_of(number),
        calls: stat.calls,
        errors: stat.errors,
        unfinished: stat.unfinished,
        ns: stat.ns,
        off_ns: stat.off_ns,
        wait_ns: stat.wait_ns,
        max_ns: stat.max_ns,
        hist: stat.hist.to_vec(),
    }
}

impl Call {
    /// Adds the counts of another CPU.
    pub(super) fn add(&mut self, stat: &sys_stat) {
        self.calls += stat.calls;
        self.errors += stat.errors;
        self.unfinished += stat.unfinished;
        self.ns += stat.ns;
        self.off_ns += stat.off_ns;
        self.wait_ns += stat.wait_ns;
        self.max_ns = self.max_ns.max(stat.max_ns);
        for (sum, more) in self.hist.iter_mut().zip(stat.hist) {
            *sum = sum.saturating_add(more);
        }
    }
}

/// Decodes a `sys_key` and a `sys_file`; `None` = malformed.
pub(super) fn file(key: &[u8], value: &[u8]) -> Option<FileUse> {
    let key: sys_key = plain(key)?;
    let file: sys_file = plain(value)?;
    // The kernel's `char` is signed on some architectures.
    #[allow(clippy::unnecessary_cast, reason = "not on all architectures")]
    let bytes: Vec<u8> = file.path.iter().map(|byte| *byte as u8).collect();
    let text = bytes.get(..usize::from(file.text))?;
    let parts = bytes.get(usize::from(file.text)..usize::from(file.length))?;
    let asked = key.of & 1 == 1;
    let magic = if asked { 0 } else { file.magic };
    Some(FileUse {
        group: key.of >> 1,
        path: path(parts, text, file.complete != 0, magic, key.id),
        complete: (file.complete != 0 || text.first() == Some(&b'/') || is_nameless(magic))
            && file.cut == 0,
        asked,
        magic,
        calls: file.calls,
        ns: file.ns,
        errors: file.errors,
        max_ns: file.max_ns,
        off_ns: file.off_ns,
        wait_ns: file.wait_ns,
        bytes: file.bytes,
    })
}

fn plain<T: Plain>(bytes: &[u8]) -> Option<T> {
    mapped::from_bytes(bytes)
}

// Filesystems without paths, include/uapi/linux/magic.h.
const PIPEFS: u64 = 0x5049_5045;
const SOCKFS: u64 = 0x534f_434b;
const ANON_INODE: u64 = 0x0904_1934;

fn is_nameless(magic: u64) -> bool {
    matches!(magic, PIPEFS | SOCKFS | ANON_INODE)
}

/// Builds a path from its components `parts`, given from the last to the first and each terminated by a 0, and the path
/// `text` relative to them.
fn path(parts: &[u8], text: &[u8], complete: bool, magic: u64, ino: u64) -> Vec<u8> {
    match magic {
        PIPEFS => return format!("pipe:[{ino}]").into_bytes(),
        SOCKFS => return format!("socket:[{ino}]").into_bytes(),
        _ => {}
    }
    if text.first() == Some(&b'/') {
        return text.to_vec();
    }
    let parts = parts.strip_suffix(&[0]).unwrap_or(parts);
    let mut all: Vec<&[u8]> = parts.split(|byte| *byte == 0).rev().collect();
    all.retain(|part| !part.is_empty());
    if magic == ANON_INODE {
        return [b"anon_inode:".as_slice(), &all.join(&b'/')].concat();
    }
    if !text.is_empty() {
        all.push(text);
    }
    let joined = all.join(&b'/');
    if complete { [b"/".as_slice(), &joined].concat() } else { joined }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_put_together() {
        let of = |parts: &[u8], text: &[u8], complete| path(parts, text, complete, 0x9fa0, 7);
        assert_eq!(of(b"stat\0\x31\0proc\0", b"", true), b"/proc/1/stat");
        assert_eq!(of(b"b\0a\0", b"x/y", true), b"/a/b/x/y");
        assert_eq!(of(b"b\0a\0", b"/x", true), b"/x");
        assert_eq!(of(b"b\0a\0", b"", false), b"a/b");
        assert_eq!(of(b"", b"", true), b"/");
        assert_eq!(path(b"", b"", true, PIPEFS, 7), b"pipe:[7]");
        assert_eq!(path(b"[eventfd]\0", b"", true, ANON_INODE, 7), b"anon_inode:[eventfd]");
    }

    #[test]
    fn what_is_too_short_is_no_file() {
        assert_eq!(file(&[0; 16], &[0; 8]), None);
        assert!(file(&[0; 16], &vec![0; size_of::<sys_file>()]).is_some());
    }
}
