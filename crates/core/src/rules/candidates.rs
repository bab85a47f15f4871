// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which groups of processes may be victims.

use crate::recording::TargetSpec;
use crate::view::{Group, View};

/// Whether the target is the whole host, so that victims have to be distinguished from processes that merely share its
/// CPUs.
pub(super) fn target_is_host(view: &View) -> bool {
    view.meta().is_none_or(|meta| meta.target == TargetSpec::Host)
}

/// Whether a group may be a victim: the observer never is, and kernel threads only if they are the target.
pub(super) fn may_suffer(view: &View, group: &Group<'_>) -> bool {
    group.in_target && !group.is_observer() && !(group.is_kernel() && target_is_host(view))
}
