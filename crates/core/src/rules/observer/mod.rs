// SPDX-License-Identifier: Apache-2.0 OR MIT
//! OBS: reasons to distrust what was observed.

pub(super) mod events_lost;
pub(super) mod losses;
pub(super) mod observer_overhead;
pub(super) mod window_too_short;
