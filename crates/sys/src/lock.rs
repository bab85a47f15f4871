// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Locks on a part of a file, which readers share (`F_OFD_SETLK`).

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

/// Locks bytes of a file that is open for reading against whoever wants them for itself. Does not wait. The lock ends
/// when the file is closed.
pub fn share(file: impl AsFd, start: i64, bytes: i64) -> io::Result<()> {
    let lock = libc::flock {
        l_type: libc::F_RDLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: bytes,
        // Locks of open files must say so.
        l_pid: 0,
    };
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: `fd` is open for the call, and `lock` is a `flock` that the kernel only reads.
    match unsafe { libc::fcntl(fd, libc::F_OFD_SETLK, &raw const lock) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn readers_share_a_lock_and_need_no_right_to_write() {
        let path = std::env::current_exe().unwrap();
        let (a, b) = (File::open(&path).unwrap(), File::open(&path).unwrap());
        share(&a, 5, 1).unwrap();
        share(&b, 0, 10).unwrap();
        assert!(share(&a, -1, 1).is_err());
    }
}
