// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who waits for the answer of a thread that sleeps.

use crate::skel::sched::types::sched_sleep;

/// A client that waits for an answer of the thread, which has read what it asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// On a connection of TCP, from which the thread was the last to read: nothing was sent on it since.
    Port {
        /// The own port. Its process may have opened the connection itself, from a port that it chose.
        port: u16,
        /// The thread has read from several connections that were open.
        one_of_several: bool,
    },
    /// The process that has opened a connection of a unix socket, and sleeps in a call on that one alone.
    Process(u32),
}

impl Client {
    /// Of a sleep on no socket.
    pub(super) fn of(it: &sched_sleep) -> Option<Self> {
        match (it.family, it.local_port, it.peer) {
            (0, 0, 0) => None,
            (0, 0, process) => Some(Self::Process(process)),
            (0, port, _) => Some(Self::Port { port, one_of_several: it.socket_state != 0 }),
            _ => None,
        }
    }
}
