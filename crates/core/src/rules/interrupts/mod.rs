// SPDX-License-Identifier: Apache-2.0 OR MIT
//! IRQ: time that interrupts take from threads.

mod bursts;
mod interrupt_steal;
pub(super) mod taken;
mod words;

use super::Rule;

/// The rules of this area, by code.
pub(super) const RULES: &[&Rule] = &[&interrupt_steal::RULE];
