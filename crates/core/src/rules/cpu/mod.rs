// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU rules: threads run, but do not get the whole CPU.

pub(super) mod deep_idle_states;
pub(super) mod frequency_capped;
pub(super) mod hypervisor_steal;
pub(super) mod shared_core;
mod stolen_part;
