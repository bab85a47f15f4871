// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the network lost, by connection and socket.

use crate::recording::{
    AcceptQueueTick, DatagramTick, HeldBackTick, ListenerTick, NetnsTick, ProcId, ResentTick,
    SendingTick, UnreadTick,
};
use std::collections::BTreeMap;

/// Connections, and sockets of each kind, that are kept one by one.
const KEPT: usize = 4096;
/// Threads of a process that are kept one by one for which something waited, and sockets that share an address.
const KEPT_READERS: usize = 256;

/// Which connection or socket.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NetKey {
    /// Process that has it open; `None` = not known.
    pub proc: Option<ProcId>,
    /// Network namespace; `None` = not known.
    pub netns: Option<u32>,
    /// Own address and port; empty for several together.
    pub local: String,
    /// Address and port of the other end; empty = not connected.
    pub remote: String,
}

/// What a connection had to send again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    /// The sums of its ticks. Of times, counts and amounts that the kernel counts from the beginning of the connection, the
    /// last.
    pub sum: ResentTick,
    /// Number of ticks.
    pub seconds: u64,
}

impl Connection {
    fn push(&mut self, tick: &ResentTick) {
        let sum = &mut self.sum;
        if self.seconds == 0 {
            (sum.t0_ns, sum.connections) = (tick.t0_ns, tick.connections);
        }
        self.seconds += 1;
        sum.t1_ns = tick.t1_ns;
        sum.connections = sum.connections.max(tick.connections);
        for (to, more) in [
            (&mut sum.times, tick.times),
            (&mut sum.dropped_here, tick.dropped_here),
            (&mut sum.requests, tick.requests),
            (&mut sum.timeouts, tick.timeouts),
            (&mut sum.timeout_ns, tick.timeout_ns),
            (&mut sum.probes, tick.probes),
            (&mut sum.recoveries, tick.recoveries),
            (&mut sum.recovery_ns, tick.recovery_ns),
            (&mut sum.segments, tick.segments),
        ] {
            *to = to.saturating_add(more);
        }
        sum.srtt_ns = tick.srtt_ns.or(sum.srtt_ns);
        sum.rto_ns = sum.rto_ns.max(tick.rto_ns);
        (sum.data_segments, sum.total_segments) = (tick.data_segments, tick.total_segments);
    }

    /// The time by which it was held up at least: what timers waited, one after the other.
    #[must_use]
    pub fn held_ns(&self) -> u64 {
        self.sum.timeout_ns
    }

    /// Share of its segments with data that were sent again, 0..1, since the connection began; `None` = not known, as of a
    /// connection that was not established, or of several.
    #[must_use]
    pub fn share_resent(&self) -> Option<f64> {
        let ResentTick { data_segments, total_segments, connections, .. } = self.sum;
        (connections == 1 && data_segments >= total_segments && data_segments > 0)
            .then(|| total_segments as f64 / data_segments as f64)
    }
}

/// By what a connection was held up that had something to send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sender {
    /// The sums of its ticks. Of levels, the last.
    pub sum: SendingTick,
    /// Number of ticks.
    pub ticks: u64,
    /// Of `sum.window_ns`, the part of connections that this end had asked for: the other end serves it, and is not its
    /// client.
    pub window_of_servers_ns: u64,
    /// Likewise, of connections that the other end had asked for. Of the rest it is not known who had.
    pub window_of_clients_ns: u64,
    /// Least room that the other end had at the end of a tick.
    pub least_window_bytes: u64,
}

impl Sender {
    fn push(&mut self, tick: &SendingTick) {
        let sum = &mut self.sum;
        if self.ticks == 0 {
            (sum.t0_ns, self.least_window_bytes) = (tick.t0_ns, tick.window_bytes);
        }
        self.ticks += 1;
        sum.t1_ns = tick.t1_ns;
        sum.connections = sum.connections.max(tick.connections);
        sum.accepted = tick.accepted.or(sum.accepted);
        sum.peer = tick.peer.or(sum.peer);
        for (to, more) in [
            (&mut sum.busy_ns, tick.busy_ns),
            (&mut sum.window_ns, tick.window_ns),
            (&mut sum.buffer_ns, tick.buffer_ns),
        ] {
            *to = to.saturating_add(more);
        }
        let of_whom = match tick.accepted {
            Some(false) => Some(&mut self.window_of_servers_ns),
            Some(true) => Some(&mut self.window_of_clients_ns),
            None => None,
        };
        if let Some(ns) = of_whom {
            *ns = ns.saturating_add(tick.window_ns);
        }
        sum.srtt_ns = tick.srtt_ns.or(sum.srtt_ns);
        self.least_window_bytes = self.least_window_bytes.min(tick.window_bytes);
        (sum.window_bytes, sum.buffer_bytes) = (tick.window_bytes, tick.buffer_bytes);
        sum.waiting_bytes = sum.waiting_bytes.max(tick.waiting_bytes);
    }

    /// The time by which it was held up without being late for a client that reads slowly: the window of a server was full,
    /// or the own buffer was.
    #[must_use]
    pub fn held_ns(&self) -> u64 {
        self.window_of_servers_ns.saturating_add(self.sum.buffer_ns)
    }
}

/// What waited to be read by a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unread {
    /// The sums of its ticks; of levels the most, and all about the connection on which something waited longest.
    pub sum: UnreadTick,
}

impl Unread {
    fn push(&mut self, tick: &UnreadTick) {
        let sum = &mut self.sum;
        if sum.looks == 0 {
            (sum.t0_ns, sum.proc, sum.tid) = (tick.t0_ns, tick.proc, tick.tid);
        }
        sum.t1_ns = tick.t1_ns;
        sum.connections = sum.connections.max(tick.connections);
        for (to, more) in [
            (&mut sum.looks, tick.looks),
            (&mut sum.occupied_looks, tick.occupied_looks),
            (&mut sum.samples, tick.samples),
            (&mut sum.unread_ns, tick.unread_ns),
            (&mut sum.late_ns, tick.late_ns),
            (&mut sum.on_cpu_ns, tick.on_cpu_ns),
            (&mut sum.queued_ns, tick.queued_ns),
            (&mut sum.asleep_ns, tick.asleep_ns),
        ] {
            *to = to.saturating_add(more);
        }
        if tick.longest_ns > sum.longest_ns {
            (sum.longest_ns, sum.waiting_bytes) = (tick.longest_ns, tick.waiting_bytes);
            (sum.local, sum.remote) = (tick.local.clone(), tick.remote.clone());
        }
    }

    /// The time in which something waited because its reader was occupied: it was on a CPU, or slept on something else.
    #[must_use]
    pub fn occupied_ns(&self) -> u64 {
        self.sum.on_cpu_ns.saturating_add(self.sum.asleep_ns)
    }
}

/// Connections that waited to be accepted at a listening socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcceptQueue {
    /// The sums of its ticks; of levels the most.
    pub sum: AcceptQueueTick,
}

impl AcceptQueue {
    fn push(&mut self, tick: &AcceptQueueTick) {
        let sum = &mut self.sum;
        if sum.looks == 0 {
            (sum.t0_ns, sum.proc, sum.local) = (tick.t0_ns, tick.proc, tick.local.clone());
            sum.inode = tick.inode;
        }
        sum.t1_ns = tick.t1_ns;
        for (to, more) in [
            (&mut sum.looks, tick.looks),
            (&mut sum.late_looks, tick.late_looks),
            (&mut sum.waiting_ns, tick.waiting_ns),
            (&mut sum.late_ns, tick.late_ns),
        ] {
            *to = to.saturating_add(more);
        }
        sum.most_waiting = sum.most_waiting.max(tick.most_waiting);
        sum.longest_ns = sum.longest_ns.max(tick.longest_ns);
    }
}

/// What a connection held back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldBack {
    /// The sums of its ticks; of levels the most.
    pub sum: HeldBackTick,
}

impl HeldBack {
    fn push(&mut self, tick: &HeldBackTick) {
        let sum = &mut self.sum;
        if sum.looks == 0 {
            (sum.t0_ns, sum.proc) = (tick.t0_ns, tick.proc);
        }
        sum.t1_ns = tick.t1_ns;
        for (to, more) in [
            (&mut sum.looks, tick.looks),
            (&mut sum.held_looks, tick.held_looks),
            (&mut sum.corked_looks, tick.corked_looks),
            (&mut sum.held_ns, tick.held_ns),
        ] {
            *to = to.saturating_add(more);
        }
        sum.longest_ns = sum.longest_ns.max(tick.longest_ns);
        sum.most_bytes = sum.most_bytes.max(tick.most_bytes);
    }
}

/// What a socket of UDP dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Datagrams {
    /// Datagrams that were dropped.
    pub drops: u64,
    /// Number of seconds in which it dropped any.
    pub seconds: u64,
    /// Most bytes that waited to be read at the end of one.
    pub waiting_bytes: u64,
    /// Last known size of its receive buffer.
    pub buffer_bytes: Option<u64>,
    /// Largest size that a program may ask for.
    pub most_buffer_bytes: Option<u64>,
}

/// Requests for connections in a network namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetnsTotals {
    /// Connections that were established.
    pub opened: u64,
    /// Requests for which there was no place in a queue.
    pub overflows: u64,
    /// Requests that were dropped, for that reason or another one.
    pub drops: u64,
}

/// A listening socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listener {
    /// Requests that it dropped; `None` = it could not be read.
    pub drops: Option<u64>,
    /// Most connections that waited to be accepted.
    pub waiting: u64,
    /// How many may wait.
    pub limit: Option<u64>,
    /// The most that a program may ask for.
    pub most_limit: Option<u64>,
    /// Number of seconds in which it dropped requests, or its queue was full.
    pub seconds: u64,
}

/// Connections by their ends.
pub type Connections = BTreeMap<NetKey, Connection>;

/// What the network lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetView {
    connections: Connections,
    senders: BTreeMap<NetKey, Sender>,
    unread: BTreeMap<NetKey, Vec<Unread>>,
    accept_queues: BTreeMap<NetKey, Vec<AcceptQueue>>,
    held_back: BTreeMap<NetKey, HeldBack>,
    datagrams: BTreeMap<NetKey, Datagrams>,
    listeners: BTreeMap<NetKey, Listener>,
    namespaces: BTreeMap<u32, NetnsTotals>,
}

/// The entry of that key; of further ones, when there are too many, one for all of that process.
fn entry<V: Default>(map: &mut BTreeMap<NetKey, V>, key: NetKey) -> &mut V {
    let full = map.len() >= KEPT && !map.contains_key(&key);
    let key = if full { NetKey { proc: key.proc, ..NetKey::default() } } else { key };
    map.entry(key).or_default()
}

impl NetView {
    pub(super) fn resent(&mut self, tick: &ResentTick) {
        let text = |it: &Option<String>| it.clone().unwrap_or_default();
        let (local, remote) = (text(&tick.local), text(&tick.remote));
        let key = NetKey { proc: tick.proc, netns: tick.netns, local, remote };
        entry(&mut self.connections, key).push(tick);
    }

    pub(super) fn sending(&mut self, tick: &SendingTick) {
        let text = |it: &Option<String>| it.clone().unwrap_or_default();
        let (local, remote) = (text(&tick.local), text(&tick.remote));
        let key = NetKey { proc: tick.proc, netns: tick.netns, local, remote };
        entry(&mut self.senders, key).push(tick);
    }

    pub(super) fn unread(&mut self, tick: &UnreadTick) {
        let key = NetKey { proc: tick.proc, ..NetKey::default() };
        let readers = entry(&mut self.unread, key);
        let known = readers.iter().position(|it| it.sum.tid == tick.tid);
        if known.is_none() && readers.len() >= KEPT_READERS {
            return;
        }
        let at = known.unwrap_or_else(|| {
            readers.push(Unread::default());
            readers.len() - 1
        });
        readers[at].push(tick);
    }

    pub(super) fn accept_queue(&mut self, tick: &AcceptQueueTick) {
        let (proc, local) = (tick.proc, tick.local.clone());
        let queues = entry(&mut self.accept_queues, NetKey { proc, local, ..NetKey::default() });
        let known = queues.iter().position(|it| it.sum.inode == tick.inode);
        if known.is_none() && queues.len() >= KEPT_READERS {
            return;
        }
        let at = known.unwrap_or_else(|| {
            queues.push(AcceptQueue::default());
            queues.len() - 1
        });
        queues[at].push(tick);
    }

    pub(super) fn holds_back(&mut self, tick: &HeldBackTick) {
        let (local, remote) = (tick.local.clone(), tick.remote.clone());
        let key = NetKey { proc: tick.proc, netns: None, local, remote };
        entry(&mut self.held_back, key).push(tick);
    }

    pub(super) fn datagrams(&mut self, tick: &DatagramTick) {
        let remote = tick.remote.clone().unwrap_or_default();
        let (local, netns) = (tick.local.clone(), Some(tick.netns));
        let sum = entry(&mut self.datagrams, NetKey { proc: tick.proc, netns, local, remote });
        sum.drops = sum.drops.saturating_add(tick.drops);
        sum.seconds += u64::from(tick.drops > 0);
        sum.waiting_bytes = sum.waiting_bytes.max(tick.waiting_bytes);
        sum.buffer_bytes = tick.buffer_bytes.or(sum.buffer_bytes);
        sum.most_buffer_bytes = tick.most_buffer_bytes.or(sum.most_buffer_bytes);
    }

    pub(super) fn listener(&mut self, tick: &ListenerTick) {
        let key = NetKey {
            proc: tick.proc,
            netns: Some(tick.netns),
            local: tick.local.clone(),
            remote: String::new(),
        };
        let sum = entry(&mut self.listeners, key);
        if let Some(drops) = tick.drops {
            sum.drops = Some(sum.drops.unwrap_or(0).saturating_add(drops));
        }
        sum.waiting = sum.waiting.max(tick.waiting);
        sum.limit = tick.limit.or(sum.limit);
        sum.most_limit = tick.most_limit.or(sum.most_limit);
        sum.seconds += 1;
    }

    pub(super) fn netns(&mut self, tick: &NetnsTick) {
        if self.namespaces.len() >= KEPT && !self.namespaces.contains_key(&tick.netns) {
            return;
        }
        let sum = self.namespaces.entry(tick.netns).or_default();
        sum.opened = sum.opened.saturating_add(tick.opened);
        sum.overflows = sum.overflows.saturating_add(tick.overflows);
        sum.drops = sum.drops.saturating_add(tick.drops);
    }

    /// The connections that had to send again.
    #[must_use]
    pub fn connections(&self) -> &Connections {
        &self.connections
    }

    /// The connections that were held up with something to send.
    #[must_use]
    pub fn senders(&self) -> &BTreeMap<NetKey, Sender> {
        &self.senders
    }

    /// The process of this host that has the other end of a connection of a process open, by that end's address and port,
    /// as far as it was looked for; `None` also if its connections to that address are to several.
    #[must_use]
    pub fn at_other_end(&self, proc: ProcId, remote: &str) -> Option<ProcId> {
        // Another process may be in another network namespace, where that is another address.
        let own = |key: &NetKey| key.proc == Some(proc) && key.remote == remote;
        let all = self.senders.iter().filter(|(key, _)| own(key));
        let mut peers = all.filter_map(|(_, it)| it.sum.peer);
        let first = peers.next()?;
        peers.all(|peer| peer == first).then_some(first)
    }

    /// The listening sockets at which connections waited to be accepted, of each address of a process.
    #[must_use]
    pub fn accept_queues(&self) -> &BTreeMap<NetKey, Vec<AcceptQueue>> {
        &self.accept_queues
    }

    /// The connections that held something back.
    #[must_use]
    pub fn held_back(&self) -> &BTreeMap<NetKey, HeldBack> {
        &self.held_back
    }

    /// What waited to be read, by process, for each thread that should have read it.
    #[must_use]
    pub fn late(&self) -> &BTreeMap<NetKey, Vec<Unread>> {
        &self.unread
    }

    /// The sockets of UDP that dropped datagrams.
    #[must_use]
    pub fn dropped(&self) -> &BTreeMap<NetKey, Datagrams> {
        &self.datagrams
    }

    /// The listening sockets that dropped requests, or whose queue was full.
    #[must_use]
    pub fn listeners(&self) -> &BTreeMap<NetKey, Listener> {
        &self.listeners
    }

    /// Requests for connections, by network namespace.
    #[must_use]
    pub fn namespaces(&self) -> &BTreeMap<u32, NetnsTotals> {
        &self.namespaces
    }
}
