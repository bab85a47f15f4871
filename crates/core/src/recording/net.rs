// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the network lost: segments of TCP that were sent again, datagrams and requests for connections that were dropped.

use super::observed::observed;
use super::{ProcId, Source};
use serde::{Deserialize, Serialize};

/// What a connection of TCP had to send again in a second (BPF network probe).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResentTick {
    /// Start.
    pub t0_ns: u64,
    /// End.
    pub t1_ns: u64,
    /// A process that has the socket open; `None` = not known, or none of the target.
    pub proc: Option<ProcId>,
    /// Inode number of the network namespace; `None` = not known.
    pub netns: Option<u32>,
    /// Own address and port; `None` = these are several connections, each of which was held up little.
    pub local: Option<String>,
    /// Address and port of the other end.
    pub remote: Option<String>,
    /// Number of connections.
    pub connections: u64,
    /// Times at which something was sent again.
    pub times: u64,
    /// Of these: the segment was dropped on this host; always 0 where the kernel does not tell.
    pub dropped_here: u64,
    /// Of these: requests for a connection, which was not established yet.
    pub requests: u64,
    /// Of these: the timer had expired.
    pub timeouts: u64,
    /// What these timers had waited, one after the other.
    pub timeout_ns: u64,
    /// Of these: probes, which ask for a sign of life before the timer expires.
    pub probes: u64,
    /// Number of times that answers showed losses, each of which needed another round trip.
    pub recoveries: u64,
    /// A smoothed round-trip time for each of these.
    pub recovery_ns: u64,
    /// Smoothed round-trip time when it last sent again; `None` = none was measured yet.
    pub srtt_ns: Option<u64>,
    /// Largest timeout that was set.
    pub rto_ns: u64,
    /// Segments that were sent again, by the kernel's count of the connection.
    pub segments: u64,
    /// Segments with data that the connection has sent in all when it last sent again, those sent again included. It
    /// wraps around at 2^32.
    pub data_segments: u64,
    /// Of these: sent again. It wraps around at 2^32.
    pub total_segments: u64,
}

observed! { it: ResentTick over t0_ns..t1_ns, from Source::Tcp; to it.proc }

/// By what a connection of TCP was held up that had something to send, since it was last looked at (BPF network probe, over
/// the files of the target's processes).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendingTick {
    /// Start.
    pub t0_ns: u64,
    /// End.
    pub t1_ns: u64,
    /// A process that has the socket open; `None` = these are several connections.
    pub proc: Option<ProcId>,
    /// Inode number of the network namespace; `None` = not known.
    pub netns: Option<u32>,
    /// Own address and port; `None` = these are several connections, each of which was held up little.
    pub local: Option<String>,
    /// Address and port of the other end.
    pub remote: Option<String>,
    /// The process of this host that has the other end open; `None` = none is known: it may be another host's, or several
    /// have it open.
    pub peer: Option<ProcId>,
    /// Number of connections.
    pub connections: u64,
    /// Whether the other end had asked for the connection: somebody listens at the own port; `None` = not known.
    pub accepted: Option<bool>,
    /// Time in which something was to be sent, or not confirmed yet.
    pub busy_ns: u64,
    /// Of this: the other end's receive window was full.
    pub window_ns: u64,
    /// Of this: everything was on its way, and the own send buffer took no more.
    pub buffer_ns: u64,
    /// Smoothed round-trip time at the end; `None` = none was measured yet.
    pub srtt_ns: Option<u64>,
    /// Bytes that the other end had room for at the end, as it last said.
    pub window_bytes: u64,
    /// Size of the own send buffer at the end, for data and their overhead.
    pub buffer_bytes: u64,
    /// Bytes that were not sent yet at the end.
    pub waiting_bytes: u64,
}

observed! { it: SendingTick over t0_ns..t1_ns, from Source::Connections; to it.proc, it.peer }

/// What connections of a process of the target had received that one of its threads should have read, at looks some ten
/// times a second (BPF network probe, over the files of the target's processes). A connection counts if its event poll has
/// had it ready for some milliseconds, and if its other end is open and may send as much again. Each look stands for the time
/// since the one before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadTick {
    /// Start.
    pub t0_ns: u64,
    /// End.
    pub t1_ns: u64,
    /// The process; a record always has it.
    pub proc: Option<ProcId>,
    /// Its thread that should have read it; `None` = not known.
    pub tid: Option<u32>,
    /// Most connections that its event polls watched at a look.
    pub connections: u64,
    /// Number of looks.
    pub looks: u64,
    /// Number of those at which something waited while the thread was on a CPU, or slept on something else.
    pub occupied_looks: u64,
    /// Number of times that a connection was found so.
    pub samples: u64,
    /// The time of all connections in which they were so, added up.
    pub unread_ns: u64,
    /// The time in which at least one was so.
    pub late_ns: u64,
    /// Of this: the thread was on a CPU.
    pub on_cpu_ns: u64,
    /// Of this: it waited for a CPU, or for its CPU limit.
    pub queued_ns: u64,
    /// Of this: it slept on something else.
    pub asleep_ns: u64,
    /// The longest time for which something was found to have waited.
    pub longest_ns: u64,
    /// Own address and port of the connection on which that was.
    pub local: String,
    /// Address and port of its other end.
    pub remote: String,
    /// Bytes that waited there.
    pub waiting_bytes: u64,
}

observed! { it: UnreadTick over t0_ns..t1_ns, from Source::Unread; to it.proc }

/// Connections that waited to be accepted at a listening socket of the target, at looks some ten times a second (BPF network
/// probe, over the files of the target's processes). They count if the first that has sent something has waited
/// for some milliseconds since. Each look stands for the time since the one before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptQueueTick {
    /// Start.
    pub t0_ns: u64,
    /// End.
    pub t1_ns: u64,
    /// A process that has the socket open; a record always has it.
    pub proc: Option<ProcId>,
    /// Inode number of the socket, which no other one has meanwhile; `None` = not known.
    pub inode: Option<u64>,
    /// Own address and port of the socket.
    pub local: String,
    /// Number of looks.
    pub looks: u64,
    /// Number of those at which connections waited.
    pub late_looks: u64,
    /// The time of all connections in which they waited, added up.
    pub waiting_ns: u64,
    /// The time in which at least one waited.
    pub late_ns: u64,
    /// Most connections that waited at a look.
    pub most_waiting: u64,
    /// The longest time for which one was found to have waited.
    pub longest_ns: u64,
}

observed! { it: AcceptQueueTick over t0_ns..t1_ns, from Source::Unread; to it.proc }

/// What a connection of the target held back, at looks some ten times a second (BPF network probe, over the files of the target's
/// processes): the end of what its program sent, which does not fill a segment, waited until the segment before was confirmed,
/// or because the program asked for that. Connections on which it goes on to send without an answer do not count. Each look
/// stands for the time since the one before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldBackTick {
    /// Start.
    pub t0_ns: u64,
    /// End.
    pub t1_ns: u64,
    /// A process that has the socket open; a record always has it.
    pub proc: Option<ProcId>,
    /// Own address and port.
    pub local: String,
    /// Address and port of the other end.
    pub remote: String,
    /// Number of looks.
    pub looks: u64,
    /// Number of those at which something was held back.
    pub held_looks: u64,
    /// Of these: because the program asked for that (`TCP_CORK`).
    pub corked_looks: u64,
    /// The time in which something was held back.
    pub held_ns: u64,
    /// The longest time since the segment before was sent, when something was found to be held back.
    pub longest_ns: u64,
    /// Most bytes that were held back at a look.
    pub most_bytes: u64,
}

observed! { it: HeldBackTick over t0_ns..t1_ns, from Source::Unread; to it.proc }

/// Datagrams that a socket of UDP dropped in a second, because its receive buffer was full or for lack of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatagramTick {
    /// Start.
    pub t0_ns: u64,
    /// End.
    pub t1_ns: u64,
    /// A process that has the socket open; `None` = not known, or none of the target.
    pub proc: Option<ProcId>,
    /// Inode number of the network namespace.
    pub netns: u32,
    /// Own address and port.
    pub local: String,
    /// Address and port of the other end; `None` = not connected.
    pub remote: Option<String>,
    /// Datagrams that were dropped.
    pub drops: u64,
    /// Bytes that waited to be read at the end, with their overhead.
    pub waiting_bytes: u64,
    /// Size of the receive buffer, for them and their overhead; `None` = it could not be read.
    pub buffer_bytes: Option<u64>,
    /// Largest size of a receive buffer that a program may ask for (`net.core.rmem_max`); `None` = it could not be read.
    pub most_buffer_bytes: Option<u64>,
}

observed! { it: DatagramTick over t0_ns..t1_ns, from Source::Sockets; to it.proc }

/// Requests for connections in a network namespace in a second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetnsTick {
    /// Start.
    pub t0_ns: u64,
    /// End.
    pub t1_ns: u64,
    /// Inode number of the network namespace.
    pub netns: u32,
    /// Connections that others established to it (`PassiveOpens`).
    pub opened: u64,
    /// Requests for which there was no place in the queue of a listening socket (`ListenOverflows`).
    pub overflows: u64,
    /// Requests that listening sockets dropped, for that reason or another one (`ListenDrops`).
    pub drops: u64,
}

observed! { it: NetnsTick over t0_ns..t1_ns, from Source::Sockets }

/// A listening socket in a second in which it dropped requests, or in which its queue was full.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerTick {
    /// Start.
    pub t0_ns: u64,
    /// End.
    pub t1_ns: u64,
    /// A process that has the socket open; `None` = not known, or none of the target.
    pub proc: Option<ProcId>,
    /// Inode number of the network namespace.
    pub netns: u32,
    /// Own address and port.
    pub local: String,
    /// Requests that it dropped, by the kernel's count of the socket; `None` = it could not be read.
    pub drops: Option<u64>,
    /// Connections that waited to be accepted at the end.
    pub waiting: u64,
    /// How many may wait before more are dropped (`listen`, `net.core.somaxconn`); `None` = it could not be read.
    pub limit: Option<u64>,
    /// Largest such number that a program may ask for (`net.core.somaxconn`); `None` = it could
    /// not be read.
    pub most_limit: Option<u64>,
}

observed! { it: ListenerTick over t0_ns..t1_ns, from Source::Sockets; to it.proc }
