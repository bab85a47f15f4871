// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which connections wait to be accepted at listening sockets of the target.

use super::super::Emit;
use deburr_bpf::net::{Listener, Unread};
use deburr_core::recording::{AcceptQueueTick, ProcId, Record};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The one that has waited longest must have done so for as long: of a busy service one has always just come.
const LEAST_AGE_NS: u64 = 4_000_000;
/// Records in a second: of the sockets at which connections waited longest.
const SOCKETS: usize = 64;

#[derive(Debug, Default)]
pub(super) struct AcceptQueues {
    /// What waited since the last records, by socket.
    late: BTreeMap<u64, AcceptQueueTick>,
}

impl AcceptQueues {
    /// Adds what was found at a look, which stands for the time since the one before. Processes may share a socket.
    pub(super) fn found(&mut self, all: &[(ProcId, Unread)], span_ns: u64, ns_per_jiffy: u64) {
        let mut sockets: BTreeMap<u64, (ProcId, &Listener)> = BTreeMap::new();
        for (proc, unread) in all {
            for it in unread.listeners.iter().filter(|it| waits(it, ns_per_jiffy)) {
                sockets.entry(it.ends.sock).or_insert((*proc, it));
            }
        }
        for (sock, (proc, it)) in sockets {
            let tick = self.late.entry(sock).or_default();
            if tick.proc.is_none() {
                (tick.proc, tick.inode) = (Some(proc), it.ends.inode);
                tick.local = it.ends.local.to_string();
            }
            tick.late_looks += 1;
            tick.late_ns += span_ns;
            tick.waiting_ns += span_ns * u64::from(it.waiting);
            tick.most_waiting = tick.most_waiting.max(it.waiting.into());
            tick.longest_ns = tick.longest_ns.max(it.age_ns);
        }
    }

    /// Emits what was found since the last records, in so many looks. Returns whether more sockets were late than are recorded.
    pub(super) fn second(
        &mut self,
        (t0_ns, t1_ns): (u64, u64),
        looks: u64,
        emit: Emit<'_>,
    ) -> bool {
        let mut all: Vec<AcceptQueueTick> = std::mem::take(&mut self.late).into_values().collect();
        let too_many = all.len() > SOCKETS;
        all.sort_by_key(|it| Reverse(it.waiting_ns));
        all.truncate(SOCKETS);
        for tick in all {
            emit(Record::AcceptQueue(Box::new(AcceptQueueTick { t0_ns, t1_ns, looks, ..tick })));
        }
        too_many
    }
}

/// Whether clients wait that have asked for something. The age is up to a jiffy too large. Who has connected and asks nothing yet
/// waits for nothing, unless the server speaks first.
fn waits(it: &Listener, ns_per_jiffy: u64) -> bool {
    it.asked_bytes > 0 && it.waiting > 0 && it.age_ns >= LEAST_AGE_NS + ns_per_jiffy
}

#[cfg(test)]
mod tests {
    use super::*;
    use deburr_bpf::net::Ends;
    use std::net::SocketAddr;

    const MS: u64 = 1_000_000;

    fn listener(sock: u64, waiting: u32, age_ms: u64) -> Listener {
        let local = SocketAddr::from(([127, 0, 0, 1], 80));
        let remote = SocketAddr::from(([0, 0, 0, 0], 0));
        let ends = Ends { sock, inode: Some(17), netns: Some(7), local, remote };
        Listener { ends, waiting, asked_bytes: 30, age_ns: age_ms * MS }
    }

    fn look(of: &mut AcceptQueues, all: &[(u32, Vec<Listener>)]) {
        let unread = |listeners| Unread { listeners, ..Unread::default() };
        let all: Vec<_> =
            all.iter().map(|(proc, it)| (ProcId(*proc), unread(it.clone()))).collect();
        of.found(&all, 100 * MS, MS);
    }

    fn ticks(of: &mut AcceptQueues) -> Vec<AcceptQueueTick> {
        let mut all = Vec::new();
        of.second((0, 1000 * MS), 10, &mut |record| match record {
            Record::AcceptQueue(tick) => all.push(*tick),
            other => panic!("{other:?}"),
        });
        all
    }

    #[test]
    fn a_socket_of_several_processes_waits_once() {
        let mut of = AcceptQueues::default();
        for waiting in [8, 4] {
            let it = listener(1, waiting, u64::from(waiting) * 50);
            look(&mut of, &[(1, vec![it]), (2, vec![it])]);
        }
        let all = ticks(&mut of);
        let [it] = all.as_slice() else { panic!("{all:?}") };
        assert_eq!((it.proc, it.local.as_str()), (Some(ProcId(1)), "127.0.0.1:80"));
        assert_eq!((it.looks, it.late_looks, it.late_ns), (10, 2, 200 * MS));
        assert_eq!((it.waiting_ns, it.most_waiting), (1200 * MS, 8));
        assert_eq!(it.longest_ns, 400 * MS);
        assert!(ticks(&mut of).is_empty(), "nothing is told twice");
    }

    /// As those of workers that each listen themselves (SO_REUSEPORT): a client meets one of them.
    #[test]
    fn sockets_that_share_an_address_are_late_for_their_own_clients() {
        let mut of = AcceptQueues::default();
        look(&mut of, &[(1, vec![listener(1, 2, 50)])]);
        look(&mut of, &[(1, vec![listener(2, 3, 70)])]);
        let all = ticks(&mut of);
        let found: Vec<_> = all.iter().map(|it| (it.late_ns, it.waiting_ns)).collect();
        assert_eq!(found, [(100 * MS, 300 * MS), (100 * MS, 200 * MS)]);
    }

    #[test]
    fn who_has_just_come_or_asked_nothing_does_not_wait() {
        let mut of = AcceptQueues::default();
        let silent = Listener { asked_bytes: 0, ..listener(2, 9, 500) };
        look(&mut of, &[(1, vec![listener(1, 9, 4), silent, listener(3, 0, 50)])]);
        assert!(ticks(&mut of).is_empty());
    }
}
