// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SYS rules: time lost in system calls.

mod caller;
mod slow_kernel_file;
mod syscall_storm;

use super::Rule;

/// The rules of this area, by code.
pub(super) const RULES: &[&Rule] = &[&slow_kernel_file::RULE, &syscall_storm::RULE];
