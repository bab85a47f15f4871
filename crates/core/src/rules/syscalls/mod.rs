// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SYS rules: time lost in system calls.

pub(super) mod slow_kernel_file;
pub(super) mod syscall_storm;
mod whose;
