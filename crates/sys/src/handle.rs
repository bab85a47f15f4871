// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opens files by inode number: `open_by_handle_at`. No BPF, but a system call that has no safe wrapper.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

/// Longest handle that the kernel accepts, in bytes (`MAX_HANDLE_SZ`).
const MAX_BYTES: usize = 128;

/// `struct file_handle`, with room for the longest handle.
#[repr(C)]
struct Raw {
    bytes: u32,
    kind: i32,
    handle: [u8; MAX_BYTES],
}

/// Opens the file that a handle names, only for its name and attributes (`O_PATH`): none of its data is read, and
/// no device is woken. `mount` is any open file of a mount of that filesystem.
///
/// What a handle contains differs between filesystems; they reject an invalid one.
///
/// # Errors
/// `ESTALE` if there is no such file, `EPERM` without `CAP_DAC_READ_SEARCH`, `EOPNOTSUPP` where the filesystem
/// has no handles, `EINVAL` for a handle that is too long.
pub fn open_path(mount: BorrowedFd<'_>, kind: i32, handle: &[u8]) -> io::Result<OwnedFd> {
    let mut raw = Raw { bytes: 0, kind, handle: [0; MAX_BYTES] };
    let place = raw.handle.get_mut(..handle.len()).ok_or(io::ErrorKind::InvalidInput)?;
    place.copy_from_slice(handle);
    raw.bytes = u32::try_from(handle.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: `raw` is laid out like the kernel's structure, outlives the call, and holds as many bytes as it
    // declares.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            mount.as_raw_fd(),
            std::ptr::from_mut(&mut raw),
            flags,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = i32::try_from(fd).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: the descriptor is new, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::{MAX_BYTES, open_path};
    use std::os::fd::AsFd as _;

    #[test]
    fn a_handle_that_is_too_long_or_nonsense_is_an_error() {
        let root = std::fs::File::open("/").unwrap();
        for handle in [&[0xff; MAX_BYTES + 1][..], &[], &[0xff; 8]] {
            assert!(open_path(root.as_fd(), 0x7fff, handle).is_err());
        }
    }
}
