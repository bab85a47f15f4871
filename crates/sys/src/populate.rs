// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that is mapped, populated and given back at once (`mmap` with `MAP_POPULATE`, `munmap`).

use std::io;

/// Maps so many bytes of memory, has the kernel populate them, and gives them back. The lock of the address space is held for a
/// time in proportion to that.
///
/// # Errors
///
/// If the kernel has no memory or no address for them.
pub fn populate(bytes: usize) -> io::Result<()> {
    let (access, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE,
    );
    // SAFETY: a new mapping at an address that the kernel chooses affects no other memory.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the whole of that mapping, to which nobody has a reference.
    match unsafe { libc::munmap(at, bytes) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_and_what_cannot_be_mapped_is_an_error() {
        for _ in 0..100 {
            populate(1 << 20).unwrap();
        }
        assert!(populate(0).is_err());
        assert!(populate(usize::MAX / 2).is_err());
    }
}
