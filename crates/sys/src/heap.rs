// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that a process fills piece by piece, in large pages or in small ones.

use std::io;
use std::ptr::NonNull;

/// Size of a piece: that of a large page on most machines.
pub const PIECE: usize = 2 << 20;
/// Size of the smallest page of any machine.
const PAGE: usize = 4096;

/// Addresses for many pieces, which have memory once they are filled.
#[derive(Debug)]
pub struct Heap {
    mapped: NonNull<u8>,
    bytes: usize,
    first: usize,
    pieces: usize,
}

impl Heap {
    /// Reserves addresses for so many pieces. `large` asks the kernel for a large page for each, else for small ones.
    ///
    /// # Errors
    ///
    /// If the kernel has no such addresses, or no large pages.
    pub fn reserve(pieces: usize, large: bool) -> io::Result<Self> {
        let bytes = pieces.checked_add(1).and_then(|it| it.checked_mul(PIECE));
        let bytes = bytes.ok_or(io::ErrorKind::InvalidInput)?;
        let (access, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: a new mapping at an address that the kernel chooses affects no other memory.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapped = NonNull::new(at.cast::<u8>()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let heap = Self { mapped, bytes, first: mapped.as_ptr().align_offset(PIECE), pieces };
        let advice = if large { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // SAFETY: the whole of that mapping; the advice changes no contents.
        match unsafe { libc::madvise(at, bytes, advice) } {
            0 => Ok(heap),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Writes to each small page of a piece, so that it has memory. Pieces follow each other; after the last one comes the
    /// first.
    pub fn fill(&mut self, piece: usize) {
        let start = self.first + piece % self.pieces.max(1) * PIECE;
        for offset in (start..start + PIECE.min(self.bytes - start)).step_by(PAGE) {
            // SAFETY: within the mapping, which only this value refers to, and which is borrowed for writing.
            unsafe { self.mapped.as_ptr().add(offset).write_volatile(1) };
        }
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: the whole of the mapping, to which nobody else refers.
        unsafe { libc::munmap(self.mapped.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_filled_and_what_cannot_be_reserved_is_an_error() {
        let mut heap = Heap::reserve(2, false).unwrap();
        (0..5).for_each(|piece| heap.fill(piece));
        assert!(heap.first + 2 * PIECE <= heap.bytes);
        assert!(Heap::reserve(usize::MAX, false).is_err());
        assert!(Heap::reserve(usize::MAX / PIECE - 1, false).is_err());
    }
}
