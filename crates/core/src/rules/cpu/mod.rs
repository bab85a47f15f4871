// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU: threads run, but the CPU is not all theirs.

pub(super) mod deep_idle_states;
pub(super) mod frequency_capped;
pub(super) mod hypervisor_steal;
pub(super) mod shared_core;
mod stolen_part;
