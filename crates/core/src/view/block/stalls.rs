// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sums over hold-ups.

use crate::recording::{Stall, StallKind};

/// Thread time in stalls of one kind.
#[must_use]
pub fn time_of_ns(stalls: &[&Stall], kind: StallKind) -> u64 {
    stalls
        .iter()
        .filter(|stall| stall.kind == kind)
        .map(|stall| stall.of_all_ns())
        .fold(0, u64::saturating_add)
}

/// Thread time lost in stalls: a sync waits for requests that are stalls themselves, so the larger of the two.
#[must_use]
pub fn stall_ns(stalls: &[&Stall]) -> u64 {
    time_of_ns(stalls, StallKind::Sync).max(time_of_ns(stalls, StallKind::Request))
        + time_of_ns(stalls, StallKind::DirtyThrottle)
}

/// How many they are.
#[must_use]
pub fn number(stalls: &[&Stall]) -> u64 {
    stalls.iter().map(|stall| stall.number()).fold(0, u64::saturating_add)
}

/// The longest one.
#[must_use]
pub fn longest_ns(stalls: &[&Stall]) -> u64 {
    stalls.iter().map(|stall| stall.length_ns()).max().unwrap_or(0)
}

/// As spans of time.
#[must_use]
pub fn spans(stalls: &[&Stall]) -> Vec<(u64, u64)> {
    stalls.iter().map(|stall| (stall.t0_ns, stall.t1_ns.max(stall.t0_ns))).collect()
}
