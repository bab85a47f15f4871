// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MEM: time lost because memory is short.

mod memory_stall;

use super::Rule;

/// The rules of this area, by code.
pub(super) const RULES: &[&Rule] = &[&memory_stall::RULE];
