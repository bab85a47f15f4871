// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls by number: their names, and which of their arguments name a file.

use crate::skel::syscalls::types::{sys_op, sys_where};
use std::str::FromStr as _;
use syscalls::Sysno;

/// Number of entries of the probe's statistics (`SYS_CALLS`), and the entries for calls without one of their own.
pub(super) const CALLS: usize = 512;
const OTHER: u32 = 510;
const COMPAT: u32 = 511;

/// Calls that refer to files: which arguments name the file, the kind of operation, and the names of the calls. Names
/// that this architecture lacks are skipped.
const ABOUT_FILES: &[(sys_where, sys_op, &[&str])] = &[
    (sys_where::SYS_OPENS_0, sys_op::SYS_OPEN, &["open", "creat"]),
    (sys_where::SYS_OPENS, sys_op::SYS_OPEN, &["openat", "openat2"]),
    (
        sys_where::SYS_FD_0,
        sys_op::SYS_READ,
        &["read", "pread64", "readv", "preadv", "preadv2", "copy_file_range", "splice"],
    ),
    (sys_where::SYS_FD_1, sys_op::SYS_READ, &["sendfile"]),
    (
        sys_where::SYS_FD_0,
        sys_op::SYS_WRITE,
        &["write", "pwrite64", "writev", "pwritev", "pwritev2"],
    ),
    (sys_where::SYS_FD_0, sys_op::SYS_LIST, &["getdents", "getdents64"]),
    (sys_where::SYS_FD_0, sys_op::SYS_IOCTL, &["ioctl"]),
    (sys_where::SYS_FD_0, sys_op::SYS_STAT, &["fstat", "fstatfs"]),
    (sys_where::SYS_PATH_0, sys_op::SYS_STAT, &["stat", "lstat", "access", "statfs"]),
    (sys_where::SYS_AT, sys_op::SYS_STAT, &["newfstatat", "statx", "faccessat", "faccessat2"]),
    (sys_where::SYS_PATH_0, sys_op::SYS_LINK, &["readlink"]),
    (sys_where::SYS_AT, sys_op::SYS_LINK, &["readlinkat"]),
    (
        sys_where::SYS_FD_0,
        sys_op::SYS_MORE,
        &[
            "fsync",
            "fdatasync",
            "ftruncate",
            "fallocate",
            "flock",
            "fchdir",
            "syncfs",
            "fadvise64",
            "lseek",
        ],
    ),
    (
        sys_where::SYS_PATH_0,
        sys_op::SYS_MORE,
        &[
            "chdir",
            "truncate",
            "unlink",
            "rmdir",
            "mkdir",
            "getxattr",
            "lgetxattr",
            "listxattr",
            "llistxattr",
        ],
    ),
    (sys_where::SYS_AT, sys_op::SYS_MORE, &["unlinkat", "mkdirat", "name_to_handle_at"]),
];

/// For each number, the `sys_where` and `sys_op` in the probe's encoding; 0 = the call does not refer to a file.
pub(super) fn where_of() -> [u8; CALLS] {
    let mut all = [0; CALLS];
    for (at, op, names) in ABOUT_FILES {
        for number in names.iter().filter_map(|name| Sysno::from_str(name).ok()) {
            if let Some(place) = usize::try_from(number.id()).ok().and_then(|it| all.get_mut(it)) {
                *place = at.0 as u8 | (op.0 as u8) << 4;
            }
        }
    }
    all
}

/// The name of a call, as in `strace` and the manual pages.
pub(super) fn name_of(number: u32) -> String {
    match number {
        COMPAT => "(32-bit calls)".into(),
        OTHER => "(unknown calls)".into(),
        _ => Sysno::new(number as usize)
            .map_or_else(|| format!("syscall_{number}"), |call| call.name().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_one_that_some_architecture_has() {
        let read = Sysno::read as usize;
        assert_eq!(where_of()[read], sys_where::SYS_FD_0.0 as u8 | 1 << 4);
        assert_eq!(name_of(read as u32), "read");
        assert_eq!(name_of(COMPAT), "(32-bit calls)");
        // A misspelled name would be unknown.
        let unknown: Vec<_> = ABOUT_FILES
            .iter()
            .flat_map(|(_, _, names)| *names)
            .filter(|name| Sysno::from_str(name).is_err())
            .collect();
        if cfg!(target_arch = "x86_64") {
            assert!(unknown.is_empty(), "{unknown:?}");
        }
    }
}
