// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a file's data is on its device: `FS_IOC_FIEMAP`. No BPF, but an ioctl that has no safe wrapper.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// `FS_IOC_FIEMAP`: `_IOWR('f', 11, struct fiemap)`, the same on every architecture.
const FS_IOC_FIEMAP: u64 = 0xc020_660b;
/// Extents requested per call.
const BATCH: usize = 128;

/// `FIEMAP_EXTENT_LAST`: last extent of the file.
const LAST: u32 = 0x1;
/// `FIEMAP_EXTENT_UNKNOWN`: the location is not known (yet), as with delayed allocation.
const UNKNOWN: u32 = 0x2;
/// `FIEMAP_EXTENT_ENCODED`: compressed or encrypted; the bytes on the device are not those of the file.
const ENCODED: u32 = 0x8;
/// `FIEMAP_EXTENT_DATA_INLINE`: the data is stored inside the filesystem's metadata.
const INLINE: u32 = 0x200;
/// `FIEMAP_EXTENT_UNWRITTEN`: allocated but never written; reads as zeroes.
const UNWRITTEN: u32 = 0x800;

/// A range of a file that is contiguous on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset in the file, in bytes.
    pub logical_bytes: u64,
    /// Offset on the filesystem's device, in bytes; `None` = it has no location of its own (unknown or inline).
    pub physical_bytes: Option<u64>,
    /// Length, in bytes.
    pub length_bytes: u64,
    /// Allocated, but not written yet.
    pub unwritten: bool,
    /// Compressed or encrypted: its length on the device may differ.
    pub encoded: bool,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct RawExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

#[repr(C)]
struct Raw {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [RawExtent; BATCH],
}

const _: () = assert!(size_of::<RawExtent>() == 56 && size_of::<Raw>() == 32 + 56 * BATCH);

/// Calls `each` with the extents of a file in order, until it returns `false`. Dirty pages are not written back
/// first: nothing changes on the host.
///
/// # Errors
/// `EOPNOTSUPP` or `ENOTTY` where the filesystem does not support it.
pub fn extents(file: BorrowedFd<'_>, mut each: impl FnMut(Extent) -> bool) -> io::Result<()> {
    let empty = RawExtent {
        logical: 0,
        physical: 0,
        length: 0,
        reserved64: [0; 2],
        flags: 0,
        reserved: [0; 3],
    };
    let mut raw = Raw {
        start: 0,
        length: u64::MAX,
        flags: 0,
        mapped_extents: 0,
        extent_count: u32::try_from(BATCH).unwrap_or(1),
        reserved: 0,
        extents: [empty; BATCH],
    };
    loop {
        // SAFETY: `raw` is laid out like the kernel's structure, outlives the call, and has room for as many extents
        // as it declares.
        let done = unsafe {
            libc::ioctl(
                file.as_raw_fd(),
                FS_IOC_FIEMAP as libc::Ioctl,
                std::ptr::from_mut(&mut raw),
            )
        };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        let mapped = usize::try_from(raw.mapped_extents).unwrap_or(0).min(BATCH);
        let mut next = raw.start;
        for extent in &raw.extents[..mapped] {
            let placed = extent.flags & (UNKNOWN | INLINE) == 0;
            let goes_on = each(Extent {
                logical_bytes: extent.logical,
                physical_bytes: placed.then_some(extent.physical),
                length_bytes: extent.length,
                unwritten: extent.flags & UNWRITTEN != 0,
                encoded: extent.flags & ENCODED != 0,
            });
            if !goes_on || extent.flags & LAST != 0 {
                return Ok(());
            }
            next = extent.logical.saturating_add(extent.length);
        }
        // A file that changes meanwhile must not make this loop endless.
        if mapped < BATCH || next <= raw.start {
            return Ok(());
        }
        raw.start = next;
        raw.length = u64::MAX - next;
    }
}

#[cfg(test)]
mod tests {
    use super::extents;
    use std::io::Write as _;
    use std::os::fd::AsFd as _;

    #[test]
    fn extents_are_in_order_or_the_filesystem_does_not_tell() {
        let mut file = tempfile();
        file.write_all(&[1; 300_000]).unwrap();
        file.sync_all().unwrap();
        let (mut end, mut bytes) = (0, 0);
        let told = extents(file.as_fd(), |extent| {
            assert!(extent.logical_bytes >= end);
            end = extent.logical_bytes + extent.length_bytes;
            bytes += extent.length_bytes;
            true
        });
        // tmpfs and some other filesystems do not support FIEMAP.
        assert!(told.is_err() || bytes >= 300_000, "{told:?}, {bytes}");
        let mut seen = 0;
        let _ = extents(file.as_fd(), |_| {
            seen += 1;
            false
        });
        assert!(seen <= 1);
    }

    fn tempfile() -> std::fs::File {
        let path = std::env::temp_dir().join(format!("deburr-fiemap-{}", std::process::id()));
        let file = std::fs::File::create_new(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file
    }
}
