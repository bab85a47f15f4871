// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether a process has sent anything on a connection since the last sleep on it, or at all if it has not read anything yet.
//! Who only listens to what comes has not. Of datagrams it is known that something was sent, but not that nothing was.

use super::object::{Inet, Object};
use super::sleep::Sleep;
use std::collections::HashMap;
use std::net::IpAddr;

/// Connections that are kept.
const CONNECTIONS: usize = 4096;

/// A connection of a process.
type Connection = (u32, u16, IpAddr, u16);

/// The last sleep on a connection.
#[derive(Clone, Copy, Debug)]
struct Last {
    since_ns: u64,
    write_seq: u32,
    asked: Option<bool>,
}

/// The connections on which threads slept.
#[derive(Debug, Default)]
pub(super) struct Asked {
    last: HashMap<Connection, Last>,
}

impl Asked {
    /// Notes a sleep, with what is another number after something was sent, and whether its process has sent something and
    /// read nothing yet. Adds to it whether its process has asked.
    pub(super) fn note(&mut self, sleep: &mut Sleep, write_seq: u32, asks_first: bool) {
        let (tgid, since_ns) = (sleep.tgid, sleep.since_ns);
        let Object::Inet(Inet { kind, local_port, remote, remote_port, asked, .. }) =
            &mut sleep.object
        else {
            return;
        };
        let connection = (tgid, *local_port, *remote, *remote_port);
        if self.last.len() >= CONNECTIONS && !self.last.contains_key(&connection) {
            self.last.clear();
        }
        *asked = match self.last.get(&connection) {
            // It sleeps on.
            Some(last) if last.since_ns == since_ns => last.asked,
            Some(last) if asks_first || last.write_seq != write_seq => Some(true),
            Some(_) if i32::from(*kind) != libc::SOCK_DGRAM => Some(false),
            // A connection for each question is slept on once.
            _ => asks_first.then_some(true),
        };
        self.last.insert(connection, Last { since_ns, write_seq, asked: *asked });
    }
}

#[cfg(test)]
mod tests {
    use super::super::sleep::{Call, Caller, Context, Waker};
    use super::*;
    use std::net::Ipv4Addr;

    fn sleep(since_ns: u64, local_port: u16) -> Sleep {
        let remote = Ipv4Addr::new(10, 0, 0, 7).into();
        let (kind, state, remote_port) = (1, 1, 5432);
        let (asked, bound, ready) = (None, false, false);
        let inet = Inet { kind, state, local_port, remote, remote_port, asked, bound, ready };
        Sleep {
            tid: 7,
            tgid: 7,
            since_ns,
            slept_ns: 10,
            stands_for_ns: 10,
            state: 3,
            call: Call::System(0),
            arguments: [0; 3],
            object: Object::Inet(inet),
            client: None,
            lock: None,
            caller: Caller::At(0),
            is_timed: false,
            waker: Waker {
                context: Context::SoftIrq,
                tid: 0,
                tgid: 0,
                call: Call::Unknown,
                sends_to: None,
            },
        }
    }

    #[test]
    fn who_has_sent_and_read_nothing_has_asked() {
        let mut all = Asked::default();
        let mut asked = |since_ns, write_seq, asks_first| {
            let mut it = sleep(since_ns, 1);
            all.note(&mut it, write_seq, asks_first);
            let Object::Inet(inet) = it.object else { panic!() };
            inet.asked
        };
        assert_eq!(asked(1, 100, true), Some(true), "in the first sleep that is told");
        assert_eq!(asked(1, 100, true), Some(true), "it sleeps on");
        assert_eq!(asked(2, 100, true), Some(true), "it was woken, and there was nothing to read");
        assert_eq!(asked(3, 100, false), Some(false), "it has read the answer, and waits for more");
    }

    #[test]
    fn of_datagrams_it_is_not_known_that_nothing_was_sent() {
        let mut all = Asked::default();
        let mut asked = |since_ns, write_seq, asks_first| {
            let mut it = sleep(since_ns, 1);
            if let Object::Inet(inet) = &mut it.object {
                inet.kind = libc::SOCK_DGRAM as u16;
            }
            all.note(&mut it, write_seq, asks_first);
            let Object::Inet(inet) = it.object else { unreachable!() };
            inet.asked
        };
        assert_eq!(asked(1, 7, true), Some(true), "the kernel has chosen its port");
        assert_eq!(asked(2, 7, false), None, "it waits for more, or it has sent over IPv6");
        assert_eq!(asked(3, 8, false), Some(true));
    }

    #[test]
    fn who_sends_before_it_waits_has_asked() {
        let mut all = Asked::default();
        let mut asked = |since_ns, write_seq, port| {
            let mut it = sleep(since_ns, port);
            all.note(&mut it, write_seq, false);
            let Object::Inet(inet) = it.object else { panic!() };
            inet.asked
        };
        assert_eq!(asked(1, 100, 1), None, "it may have asked before");
        assert_eq!(asked(1, 100, 1), None, "it sleeps on");
        assert_eq!(asked(2, 150, 1), Some(true));
        assert_eq!(asked(2, 150, 1), Some(true), "it sleeps on");
        assert_eq!(asked(3, 150, 1), Some(false));
        for port in 1..=2 * CONNECTIONS as u16 {
            asked(4, 1, port);
        }
        assert!(all.last.len() <= CONNECTIONS);
    }
}
