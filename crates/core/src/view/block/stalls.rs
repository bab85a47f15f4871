// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sums over stalls.

use crate::recording::{Stall, StallKind};
use crate::stats::Span;

/// Thread time in stalls of one kind, in nanoseconds.
#[must_use]
pub fn time_of_ns(stalls: &[&Stall], kind: StallKind) -> u64 {
    stalls
        .iter()
        .filter(|stall| stall.kind == kind)
        .map(|stall| stall.of_all_ns())
        .fold(0, u64::saturating_add)
}

/// Thread time in stalls of all kinds, in nanoseconds. The requests that a sync waits for are stalls themselves, so of
/// syncs and requests only the larger sum counts.
#[must_use]
pub fn stall_ns(stalls: &[&Stall]) -> u64 {
    time_of_ns(stalls, StallKind::Sync).max(time_of_ns(stalls, StallKind::Request))
        + time_of_ns(stalls, StallKind::DirtyThrottle)
}

/// Number of stalls, including those that a record also stands for ([`Stall::within`]).
#[must_use]
pub fn number(stalls: &[&Stall]) -> u64 {
    stalls.iter().map(|stall| stall.number()).fold(0, u64::saturating_add)
}

/// Longest stall, in nanoseconds; 0 without any.
#[must_use]
pub fn longest_ns(stalls: &[&Stall]) -> u64 {
    stalls.iter().map(|stall| stall.length_ns()).max().unwrap_or(0)
}

/// Time range of each stall.
#[must_use]
pub fn spans(stalls: &[&Stall]) -> Vec<Span> {
    stalls.iter().map(|stall| stall.span()).collect()
}
