// SPDX-License-Identifier: Apache-2.0 OR MIT
//! NET: time and data that the network, or a queue of a socket, loses.

mod accept_queue;
mod held_back;
pub(super) mod holding;
mod late_reader;
mod listen_queue;
mod receive_buffer;
mod retransmits;
mod send_limited;
mod victims;

use super::Rule;

/// The rules of this area, by code.
pub(super) const RULES: &[&Rule] = &[
    &retransmits::RULE,
    &listen_queue::RULE,
    &receive_buffer::RULE,
    &send_limited::RULE,
    &late_reader::RULE,
    &accept_queue::RULE,
    &held_back::RULE,
];
