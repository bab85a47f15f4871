// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory-mapped BPF arrays, read while BPF programs on other CPUs write them.

use std::cell::OnceCell;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

/// A type that may be read from mapped memory.
///
/// # Safety
/// Any bit pattern must be a valid value: integers, and arrays and structs of them.
pub(crate) unsafe trait Plain: Copy {}

/// A value from a copy of its bytes; `None` = too few bytes.
pub(crate) fn from_bytes<T: Plain>(bytes: &[u8]) -> Option<T> {
    // SAFETY: there are enough bytes, alignment is not assumed, and any bit pattern is a value.
    (bytes.len() >= size_of::<T>()).then(|| unsafe { ptr::read_unaligned(bytes.as_ptr().cast()) })
}

/// Sets a variable in the mapped data section of an object: programs read it at any time.
pub(crate) fn set<T: Copy>(variable: &mut T, value: T) {
    // SAFETY: a reference is valid and aligned.
    unsafe { ptr::write_volatile(variable, value) };
}

/// The elements of a BPF array map with `BPF_F_MMAPABLE`.
pub(crate) struct Mapped<T: Plain> {
    base: NonNull<u8>,
    bytes: usize,
    stride: usize,
    len: usize,
    element: PhantomData<T>,
}

// SAFETY: the mapping is shared memory that no thread owns; all access goes through volatile reads and atomics.
unsafe impl<T: Plain> Send for Mapped<T> {}

/// An element could not be read consistently: it changed during every attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TornRead;

/// Attempts to read an element that changes meanwhile. A write takes some 100 ns; only a writer whose virtual CPU was
/// preempted makes all attempts fail.
const TRIES: usize = 64;

impl<T: Plain> Mapped<T> {
    /// Maps `len` elements of a BPF map.
    pub(crate) fn new(map: &impl AsFd, len: usize) -> Result<Self, String> {
        Self::map(map, 0, len).map_err(cannot_map)
    }

    /// Maps `len` elements from `first` on, which begins a page.
    fn map(map: &impl AsFd, first: usize, len: usize) -> io::Result<Self> {
        let stride = stride::<T>();
        let bytes = (stride * len).next_multiple_of(page_size());
        let offset = (stride * first).try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: a new shared mapping at an address that the kernel chooses.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_fd().as_raw_fd(),
                offset,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { base, bytes, stride, len, element: PhantomData })
    }

    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn at<F>(&self, index: usize, offset: usize) -> *mut F {
        assert!(index < self.len && offset + size_of::<F>() <= size_of::<T>());
        // SAFETY: within the mapping, by the assertion.
        unsafe { self.base.as_ptr().add(index * self.stride + offset).cast() }
    }

    /// Reads a 32-bit field atomically.
    pub(crate) fn u32(&self, index: usize, offset: usize) -> u32 {
        // SAFETY: in bounds and aligned (fields are laid out by the C compiler); never written in parts: BPF programs
        // store it with one instruction.
        unsafe { AtomicU32::from_ptr(self.at(index, offset)) }.load(Ordering::Acquire)
    }

    /// Reads a 64-bit field atomically.
    pub(crate) fn u64(&self, index: usize, offset: usize) -> u64 {
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.at(index, offset)) }.load(Ordering::Acquire)
    }

    /// Sets a 64-bit field that BPF programs only read.
    pub(crate) fn set_u64(&self, index: usize, offset: usize, value: u64) {
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.at(index, offset)) }.store(value, Ordering::Release);
    }

    /// Sets an 8-bit field that BPF programs may write too.
    pub(crate) fn set_u8(&self, index: usize, offset: usize, value: u8) {
        // SAFETY: as above.
        unsafe { AtomicU8::from_ptr(self.at(index, offset)) }.store(value, Ordering::Release);
    }

    /// Sets a 32-bit field that BPF programs may write too.
    pub(crate) fn set_u32(&self, index: usize, offset: usize, value: u32) {
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(self.at(index, offset)) }.store(value, Ordering::Release);
    }

    /// Exchanges a 64-bit field with 0.
    pub(crate) fn take_u64(&self, index: usize, offset: usize) -> u64 {
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.at(index, offset)) }.swap(0, Ordering::AcqRel)
    }

    /// Copies part of an element without synchronisation: it may be half-written.
    pub(crate) fn peek<F: Plain>(&self, index: usize, offset: usize) -> F {
        // SAFETY: in bounds; any bit pattern is a valid F; volatile, since others write it.
        unsafe { ptr::read_volatile(self.at(index, offset)) }
    }

    /// Runs `read` until element `index` was not written meanwhile, as its sequence number at `seq_offset` shows: odd
    /// while the element is written, and different afterwards.
    pub(crate) fn consistent<R>(
        &self,
        index: usize,
        seq_offset: usize,
        read: impl FnMut() -> R,
    ) -> Result<R, TornRead> {
        let seq = || self.u32(index, seq_offset);
        undisturbed(|| Some(seq()).filter(|seq| seq & 1 == 0), seq, read)
    }

    /// The same for an element with two counters of changes: `begun_offset` is incremented before a change,
    /// `done_offset` after it.
    pub(crate) fn settled<R>(
        &self,
        index: usize,
        (begun_offset, done_offset): (usize, usize),
        read: impl FnMut() -> R,
    ) -> Result<R, TornRead> {
        undisturbed(|| Some(self.u64(index, done_offset)), || self.u64(index, begun_offset), read)
    }
}

/// The result of `read`, once the version before (`None` = being written) and after it are the same.
fn undisturbed<V: PartialEq, R>(
    before: impl Fn() -> Option<V>,
    after: impl Fn() -> V,
    mut read: impl FnMut() -> R,
) -> Result<R, TornRead> {
    for attempt in 0..TRIES {
        if let Some(version) = before() {
            let value = read();
            fence(Ordering::Acquire);
            if after() == version {
                return Ok(value);
            }
        }
        if attempt > TRIES / 2 {
            std::thread::yield_now();
        }
        std::hint::spin_loop();
    }
    Err(TornRead)
}

impl<T: Plain> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and nothing refers to it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// The elements of such an array, mapped part by part when they are first read. All pages of a mapping count as resident
/// memory of this process from the beginning, and of a large array only few may ever be read.
pub(crate) struct MappedOnUse<T: Plain> {
    map: OwnedFd,
    parts: Vec<OnceCell<Mapped<T>>>,
    len: usize,
    /// Elements of each part but the last.
    of_part: usize,
}

/// Maximum number of parts of an array.
const PARTS: usize = 128;

impl<T: Plain> MappedOnUse<T> {
    /// For `len` elements of a BPF map.
    pub(crate) fn new(map: &impl AsFd, len: usize) -> Result<Self, String> {
        let map = map.as_fd().try_clone_to_owned().map_err(cannot_map)?;
        let of_part = len.div_ceil(PARTS).next_multiple_of(elements_of_whole_pages(stride::<T>()));
        let parts = std::iter::repeat_with(OnceCell::new).take(len.div_ceil(of_part)).collect();
        Ok(Self { map, parts, len, of_part })
    }

    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Reads a 32-bit field atomically; `None` = it cannot be mapped.
    pub(crate) fn u32(&self, index: usize, offset: usize) -> Option<u32> {
        let (part, index) = self.part_of(index)?;
        Some(part.u32(index, offset))
    }

    /// Copies part of an element without synchronisation: it may be half-written. `None` = it cannot be mapped.
    pub(crate) fn peek<F: Plain>(&self, index: usize, offset: usize) -> Option<F> {
        let (part, index) = self.part_of(index)?;
        Some(part.peek(index, offset))
    }

    /// The part that has this element, and the element's place in it.
    fn part_of(&self, index: usize) -> Option<(&Mapped<T>, usize)> {
        let cell = &self.parts[index / self.of_part];
        let first = index - index % self.of_part;
        if cell.get().is_none() {
            let mapped = Mapped::map(&self.map, first, self.of_part.min(self.len - first)).ok()?;
            // It was empty a moment ago, and is used by one thread only.
            let _ = cell.set(mapped);
        }
        Some((cell.get()?, index - first))
    }
}

fn cannot_map(error: io::Error) -> String {
    format!("map BPF arrays: {error}")
}

/// Distance of elements: the kernel lays them out at multiples of 8 bytes.
fn stride<T>() -> usize {
    size_of::<T>().next_multiple_of(8)
}

fn page_size() -> usize {
    // SAFETY: sysconf has no preconditions.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// The least number of elements at this distance that fills whole pages.
fn elements_of_whole_pages(stride: usize) -> usize {
    let page = page_size();
    page >> stride.trailing_zeros().min(page.trailing_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_begin_at_pages() {
        for stride in [8, 16, 112, 128, 704, 4096, 12_288] {
            let elements = elements_of_whole_pages(stride);
            let fill_pages = |elements: usize| (stride * elements).is_multiple_of(page_size());
            assert!(fill_pages(elements), "{stride}");
            assert!(elements == 1 || !fill_pages(elements / 2), "{stride}");
        }
    }
}
