// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MEM: time lost because memory is short.

mod allocators;
mod cgroup_limit_reclaim;
mod direct_reclaim;
mod holders;
mod limits;
mod losses;
mod read_again;
mod reason;
mod refault;
pub(super) mod stalled;

use super::Rule;
pub(super) use read_again::reads_again_ns;

/// The rules of this area, by code.
pub(super) const RULES: &[&Rule] =
    &[&cgroup_limit_reclaim::RULE, &direct_reclaim::RULE, &refault::RULE];
