// SPDX-License-Identifier: Apache-2.0 OR MIT
//! HST rules: a host is not set up like others of its kind.

mod host_drift;

use super::Rule;

/// The rules of this area, by code.
pub(super) const RULES: &[&Rule] = &[&host_drift::RULE];
