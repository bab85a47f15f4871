// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What interrupts took from the threads of a ledger.

use super::ledger::is_zero;
use crate::recording::InterruptKind;
use serde::{Deserialize, Serialize};

/// What a source of interrupts took, or several of one kind that took little.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterruptPart {
    /// A soft interrupt; or a hard one of a device, of the CPU's timer, or by another CPU.
    pub kind: InterruptKind,
    /// Number of a device's interrupt, as in `/proc/interrupts`; absent if it is not known, or several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub irq: Option<u32>,
    /// The vector of a soft interrupt as in `/proc/softirqs`, the names of a device's handlers, the row of another CPU's in
    /// `/proc/interrupts`; absent if it is not known, or several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Of how many sources of the kind it is the sum, none of which took more than one that is told alone; absent = one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sources: Option<u32>,
    /// Time that it took, in nanoseconds.
    pub ns: u64,
    /// The part of it of which it is not known whether calls of the threads themselves asked for it, in nanoseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub not_known_ns: u64,
}
