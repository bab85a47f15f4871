// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU rules: threads run, but do not get the whole CPU.

mod deep_idle_states;
mod frequency_capped;
mod hypervisor_steal;
mod kernel_share;
mod shared_core;
mod stolen_part;

use super::Rule;

/// The rules of this area, by code.
pub(super) const RULES: &[&Rule] = &[
    &hypervisor_steal::RULE,
    &shared_core::RULE,
    &frequency_capped::RULE,
    &deep_idle_states::RULE,
    &kernel_share::RULE,
];
