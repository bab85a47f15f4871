// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether a process has sent anything on a connection since the last sleep on it, or at all if it has not read anything yet.
//! Who only listens to what comes has not. Of datagrams it is not known what was sent: who asks there is told from who listens by
//! the port of names, and by whether it takes another port for each question.

use super::object::Object;
use super::sleep::{Context, Sleep};
use std::collections::HashMap;
use std::net::IpAddr;

/// The port of name servers.
const NAMES: u16 = 53;
/// Connections that are kept, and as many of datagrams.
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
    /// The same of datagrams: a process may have a socket for each question.
    last_of_datagrams: HashMap<Connection, Last>,
    /// The first port from which a process sends datagrams to an address. From another one it asks anew: who listens to what comes
    /// has one.
    asks_from: HashMap<(u32, IpAddr, u16), u16>,
}

impl Asked {
    /// Notes a sleep, with the number of the next byte that its process sends, and whether it has sent something and read
    /// nothing yet. Adds to it whether its process has asked.
    pub(super) fn note(&mut self, sleep: &mut Sleep, write_seq: u32, asks_first: bool) {
        let (tgid, since_ns) = (sleep.tgid, sleep.since_ns);
        let is_over = sleep.waker.context != Context::NotYet;
        let Object::Inet(inet) = &mut sleep.object else { return };
        let connection = (tgid, inet.local_port, inet.remote, inet.remote_port);
        let is_of_datagrams = i32::from(inet.kind) == libc::SOCK_DGRAM;
        let last = if is_of_datagrams { &mut self.last_of_datagrams } else { &mut self.last };
        if last.len() >= CONNECTIONS && !last.contains_key(&connection) {
            last.clear();
            if is_of_datagrams {
                self.asks_from.clear();
            }
        }
        let before = last.get(&connection).copied();
        inet.asked = match before {
            // It sleeps on.
            Some(before) if before.since_ns == since_ns => before.asked,
            before if is_of_datagrams => {
                let peer = (tgid, inet.remote, inet.remote_port);
                let from = *self.asks_from.entry(peer).or_insert(inet.local_port);
                // Its answer is there, and whether there was one before is not known of a socket.
                let anew = before.is_none() && is_over && from != inet.local_port;
                let is_own = !inet.bound && inet.remote_port != 0;
                (asks_first || is_own && (anew || inet.remote_port == NAMES)).then_some(true)
            }
            Some(before) => Some(asks_first || before.write_seq != write_seq),
            // A connection for each question is slept on once.
            None => asks_first.then_some(true),
        };
        last.insert(connection, Last { since_ns, write_seq, asked: inet.asked });
    }
}

#[cfg(test)]
mod tests {
    use super::super::object::Inet;
    use super::super::sleep::{Call, Caller, Waker};
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
        let mut it = sleep(0, 1);
        for (port, remote_port, asks_first, context, is) in [
            // The kernel has chosen its port, and nothing has come; and it waits for more, whatever it has sent meanwhile.
            (2, 5000, true, Context::Timer, Some(true)),
            (2, 5000, false, Context::Network, None),
            // A question from another port, whose answer has come meanwhile.
            (3, 5000, false, Context::Network, Some(true)),
            (3, 5000, false, Context::Network, None),
            (4, 5000, false, Context::NotYet, None),
            (4, 5000, false, Context::Network, None),
            // Somebody else, from whom something comes now and then.
            (5, 5001, false, Context::Network, None),
            // Names, of which a socket asks two.
            (6, 53, false, Context::Network, Some(true)),
            (6, 53, false, Context::Timer, Some(true)),
        ] {
            it.since_ns += u64::from(context != Context::NotYet);
            it.waker.context = context;
            if let Object::Inet(inet) = &mut it.object {
                inet.kind = libc::SOCK_DGRAM as u16;
                (inet.local_port, inet.remote_port) = (port, remote_port);
            }
            all.note(&mut it, 0, asks_first);
            let Object::Inet(inet) = it.object else { unreachable!() };
            assert_eq!(inet.asked, is, "{port} {remote_port} {context:?}");
        }
        // A server's port.
        if let Object::Inet(inet) = &mut it.object {
            (inet.local_port, inet.bound) = (7, true);
        }
        all.note(&mut it, 0, false);
        assert!(matches!(it.object, Object::Inet(inet) if inet.asked.is_none()));
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
