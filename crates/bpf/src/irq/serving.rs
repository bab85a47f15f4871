// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of which interrupts each CPU serves, which the probe of interrupts and that of the scheduler share.

use crate::skel::irq::types::irq_serving;
use libbpf_rs::{MapHandle, MapType, libbpf_sys};
use std::os::fd::{AsFd, BorrowedFd};

/// The table. It is made before the probes, which are loaded at the same time.
#[derive(Debug)]
pub struct Serving(MapHandle);

impl Serving {
    /// `cpus` = number of possible CPUs of the host.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn new(cpus: u32) -> Result<Self, String> {
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as u64,
            map_flags: libbpf_sys::BPF_F_MMAPABLE,
            ..Default::default()
        };
        let (key, value) = (size_of::<u32>() as u32, size_of::<irq_serving>() as u32);
        let map = MapHandle::create(MapType::Array, Some("serving"), key, value, cpus, &options);
        Ok(Self(map.map_err(|error| format!("create a BPF table: {error}"))?))
    }
}

impl AsFd for Serving {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
