// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SYS rules: time lost in system calls.

mod caller;
pub(super) mod slow_kernel_file;
pub(super) mod syscall_storm;
