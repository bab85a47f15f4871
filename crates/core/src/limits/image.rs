// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random access to bytes: a program's file by offset, a process's memory by address. The readers are outside this
//! crate. The content is untrusted, so every position and length is checked.

use std::cell::Cell;

/// A source of bytes with random access.
pub trait Image {
    /// Fills `buf` with the bytes from `at` on. Returns `false` if not all of them exist; the content of `buf` is then
    /// unspecified.
    fn read(&self, at: u64, buf: &mut [u8]) -> bool;

    /// The `len` bytes from `at` on; `None` if not all of them exist.
    fn bytes(&self, at: u64, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.read(at, &mut bytes).then_some(bytes)
    }

    /// The little-endian 32-bit number at `at`.
    fn u32_at(&self, at: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read(at, &mut bytes).then(|| u32::from_le_bytes(bytes))
    }

    /// The little-endian 64-bit number at `at`.
    fn u64_at(&self, at: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(at, &mut bytes).then(|| u64::from_le_bytes(bytes))
    }

    /// Bytes from `at` up to the first NUL; `None` if there are more than `max` of them. Read in small pieces, because
    /// the bytes after the text may not exist.
    fn c_string(&self, at: u64, max: usize) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        while text.len() < max {
            let piece = self.bytes(at.checked_add(text.len() as u64)?, 8)?;
            if let Some(end) = piece.iter().position(|&byte| byte == 0) {
                text.extend(&piece[..end]);
                return (text.len() <= max).then_some(text);
            }
            text.extend(piece);
        }
        None
    }
}

impl Image for [u8] {
    fn read(&self, at: u64, buf: &mut [u8]) -> bool {
        let Ok(from) = usize::try_from(at) else { return false };
        let there = from.checked_add(buf.len()).and_then(|to| self.get(from..to));
        if let Some(there) = there {
            buf.copy_from_slice(there);
        }
        there.is_some()
    }
}

impl Image for Vec<u8> {
    fn read(&self, at: u64, buf: &mut [u8]) -> bool {
        self.as_slice().read(at, buf)
    }
}

/// An image with shifted positions: the memory of a program, accessed by the addresses in its file.
pub struct Biased<'i> {
    /// The image.
    pub image: &'i dyn Image,
    /// Number that is added to each position.
    pub bias: u64,
}

impl Biased<'_> {
    /// The pointer at `at`, converted to an address in the file.
    #[must_use]
    pub fn pointer_at(&self, at: u64) -> Option<u64> {
        self.u64_at(at).map(|address| address.wrapping_sub(self.bias))
    }
}

impl Image for Biased<'_> {
    fn read(&self, at: u64, buf: &mut [u8]) -> bool {
        // Wraps around if the program was loaded below the address that it was linked for.
        self.image.read(at.wrapping_add(self.bias), buf)
    }
}

/// An image of which a limited number of bytes can be read; then every read fails. A small file may describe itself as
/// thousands of large parts.
pub struct Metered<'i> {
    image: &'i dyn Image,
    bytes_left: Cell<u64>,
}

impl<'i> Metered<'i> {
    /// Lets `bytes` be read of `image`.
    #[must_use]
    pub fn new(image: &'i dyn Image, bytes: u64) -> Self {
        Self { image, bytes_left: Cell::new(bytes) }
    }
}

impl Image for Metered<'_> {
    fn read(&self, at: u64, buf: &mut [u8]) -> bool {
        let left = self.bytes_left.get().checked_sub((buf.len() as u64).max(LEAST_COUNTED));
        self.bytes_left.set(left.unwrap_or(0));
        left.is_some() && self.image.read(at, buf)
    }

    fn bytes(&self, at: u64, len: usize) -> Option<Vec<u8>> {
        // What is too long is not allocated either.
        if len as u64 > self.bytes_left.get() {
            self.bytes_left.set(0);
            return None;
        }
        let mut bytes = vec![0; len];
        self.read(at, &mut bytes).then_some(bytes)
    }
}

/// Bytes that a shorter read counts as, for the time that it takes.
const LEAST_COUNTED: u64 = 64;

/// Number of bytes that a [`PieceReader`] reads at once.
const WINDOW_BYTES: usize = 64 << 10;

/// Reads a part of an image from front to back, one piece at a time. Going back costs a read. The number of reads is
/// limited to twice what one pass takes, and a few more.
pub(super) struct PieceReader<'i> {
    image: &'i dyn Image,
    end: u64,
    start: u64,
    piece: Vec<u8>,
    reads_left: u64,
}

impl<'i> PieceReader<'i> {
    pub(super) fn new(image: &'i dyn Image, from: u64, end: u64) -> Self {
        let reads_left = 16 + 2 * (end.saturating_sub(from) / WINDOW_BYTES as u64);
        Self { image, end, start: from, piece: Vec::new(), reads_left }
    }

    /// The bytes from `at` on, at least `least` of them; `None` beyond the end, or if the number of reads is used up.
    pub(super) fn get(&mut self, at: u64, least: usize) -> Option<&[u8]> {
        let held = |window: &Self| {
            let skip = usize::try_from(at.checked_sub(window.start)?).ok()?;
            (window.piece.len().checked_sub(skip)? >= least).then_some(skip)
        };
        if held(self).is_none() {
            self.reads_left = self.reads_left.checked_sub(1)?;
            let there = usize::try_from(self.end.checked_sub(at)?).ok()?.min(WINDOW_BYTES);
            self.piece.clear();
            self.piece = self.image.bytes(at, there)?;
            self.start = at;
        }
        let skip = held(self)?;
        Some(&self.piece[skip..])
    }
}

#[cfg(test)]
mod tests {
    use super::{Biased, Image as _, Metered, PieceReader, WINDOW_BYTES};

    #[test]
    fn what_is_not_there_is_none() {
        let image = b"\x01\0\0\0\x02\0\0\0text\0___".to_vec();
        assert_eq!(image.u32_at(4), Some(2));
        assert_eq!(image.u64_at(0), Some(0x2_0000_0001));
        assert_eq!(image.u32_at(13), None);
        assert_eq!(image.u32_at(u64::MAX), None);
        assert_eq!(image.c_string(8, 8), Some(b"text".to_vec()));
        assert_eq!(image.c_string(8, 3), None);
        let biased = Biased { image: &image, bias: 4_u64.wrapping_sub(100) };
        assert_eq!(biased.u32_at(100), Some(2));
    }

    #[test]
    fn of_a_metered_image_no_more_is_read_than_that() {
        let image = vec![7_u8; 4096];
        let metered = Metered::new(&image, 1000);
        assert_eq!(metered.bytes(0, 900).map(|bytes| bytes.len()), Some(900));
        assert_eq!(metered.u32_at(0), Some(0x0707_0707));
        assert_eq!(metered.u32_at(0), None, "a short read counts as a longer one");
        assert_eq!(Metered::new(&image, 1000).bytes(0, 1001), None);
        assert_eq!(Metered::new(&image, u64::MAX).bytes(0, 4097), None, "not all of them exist");
    }

    #[test]
    fn a_window_moves_forward_and_tires_of_moving_to_and_fro() {
        let image: Vec<u8> = (0..3 * WINDOW_BYTES).map(|at| (at >> 8) as u8).collect();
        let end = image.len() as u64;
        let mut window = PieceReader::new(&image, 0, end);
        for at in (0..end).step_by(512) {
            assert_eq!(window.get(at, 8).map(|bytes| bytes[0]), Some((at >> 8) as u8));
        }
        assert_eq!(window.get(end - 4, 8), None);
        let swings =
            (0..1000).take_while(|i| window.get((i % 2) * 2 * WINDOW_BYTES as u64, 8).is_some());
        assert!((1..40).contains(&swings.count()));
    }
}
