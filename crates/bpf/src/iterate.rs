// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs of iterator programs over one process or all of them, for which libbpf-rs has no option.

use libbpf_rs::libbpf_sys as sys;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

/// Runs a loaded iterator program once over everything of a process, by its pid as this process sees it, or of all for
/// pid 0, and returns what it wrote. Kernels from 6.1 on know such runs.
///
/// # Errors
/// That of the kernel, also if the process does not exist.
pub(crate) fn over_process(program: BorrowedFd<'_>, pid: u32) -> io::Result<Vec<u8>> {
    let mut of = sys::bpf_iter_link_info::default();
    of.task = sys::bpf_iter_link_info__bindgen_ty_3 { pid, ..Default::default() };
    let options = sys::bpf_link_create_opts {
        sz: size_of::<sys::bpf_link_create_opts>() as sys::size_t,
        iter_info: &raw mut of,
        iter_info_len: size_of_val(&of) as u32,
        ..Default::default()
    };
    // SAFETY: the program is open, and the options live until the call returns.
    let link = unsafe {
        sys::bpf_link_create(program.as_raw_fd(), 0, sys::BPF_TRACE_ITER, &raw const options)
    };
    let link = owned(link)?;
    // SAFETY: the link is open.
    let iterator = owned(unsafe { sys::bpf_iter_create(link.as_raw_fd()) })?;
    let mut written = Vec::new();
    File::from(iterator).read_to_end(&mut written)?;
    Ok(written)
}

/// A new descriptor, or a negative errno.
fn owned(result: i32) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    // SAFETY: the descriptor is new, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}
