// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decodes what the program over files wrote about the connections of a process.

use super::{Ends, ends};
use crate::mapped::{Plain, from_bytes};
use crate::skel::net::types::net_sending;

// SAFETY: generated from a C struct of integers and arrays of them; every bit pattern is a value.
unsafe impl Plain for net_sending {}

/// What a connection had to do with what it was given to send, since it began. The kernel counts in jiffies: the sums are
/// some of them too large or too small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sending {
    /// Which connection.
    pub ends: Ends,
    /// Jiffies in which it had something that was not confirmed yet. It wraps around, as do the others.
    pub busy_jiffies: u32,
    /// Of these: the other end's window was full.
    pub window_jiffies: u32,
    /// Of these: everything was on its way, and the own buffer took no more.
    pub buffer_jiffies: u32,
    /// Smoothed round-trip time; 0 = none was measured yet.
    pub srtt_ns: u64,
    /// Bytes that the other end has room for, as it last said.
    pub window_bytes: u32,
    /// Size of the own buffer, for data and their overhead.
    pub buffer_bytes: u32,
    /// Bytes that are not sent yet.
    pub waiting_bytes: u32,
}

/// Everything that was written; an entry that was cut off is left out.
pub(super) fn decode(written: &[u8]) -> Vec<Sending> {
    let all = written.chunks_exact(size_of::<net_sending>());
    all.filter_map(from_bytes).map(|it: net_sending| sending(&it)).collect()
}

fn sending(it: &net_sending) -> Sending {
    Sending {
        ends: ends(&it.ends),
        busy_jiffies: it.busy_jiffies,
        window_jiffies: it.window_jiffies,
        buffer_jiffies: it.buffer_jiffies,
        srtt_ns: u64::from(it.srtt_us8) * 125,
        window_bytes: it.window_bytes,
        buffer_bytes: it.buffer_bytes,
        waiting_bytes: it.waiting_bytes,
    }
}
