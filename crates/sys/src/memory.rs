// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that cannot be had: a message and an exit status, where the standard library would abort without either.

use std::alloc::{GlobalAlloc, Layout, System};

/// Blocks of this size and more are given back to the system as soon as they are not used.
#[cfg(target_env = "gnu")]
const LARGE: libc::c_int = 256 << 10;

/// Lets the allocator of glibc keep large blocks apart for good. Left to itself, it puts the more of them among the small
/// ones the larger they are, where they leave holes: a process that runs for hours grows with each burst.
pub fn keep_large_blocks_apart() {
    // SAFETY: it changes numbers of the allocator, under its lock.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        libc::mallopt(libc::M_TRIM_THRESHOLD, LARGE);
    }
}

/// Gives memory back to the system that lies unused between blocks in use, after work that took much for a moment. Takes
/// less than a millisecond for some ten megabytes.
pub fn give_back_unused() {
    // SAFETY: it works under the allocator's lock, and moves no block.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The system's allocator. If it has no memory, the process ends.
#[derive(Debug)]
pub struct OrExit {
    /// What the process writes to its standard error then.
    pub message: &'static str,
    /// Its exit status then.
    pub status: i32,
}

impl OrExit {
    fn checked(&self, memory: *mut u8) -> *mut u8 {
        if memory.is_null() {
            self.exit();
        }
        memory
    }

    #[cold]
    fn exit(&self) -> ! {
        let text = self.message.as_bytes();
        // SAFETY: the pointer and the length are those of a string. Neither call allocates memory or takes a lock.
        unsafe {
            libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
            libc::_exit(self.status);
        }
    }
}

// SAFETY: everything is done by the system's allocator, which is one.
unsafe impl GlobalAlloc for OrExit {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises what the system's allocator requires.
        self.checked(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises what the system's allocator requires.
        self.checked(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller promises what the system's allocator requires.
        self.checked(unsafe { System.realloc(memory, layout, new_size) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller promises what the system's allocator requires.
        unsafe { System.dealloc(memory, layout) }
    }
}
