// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records of the network.

use super::host;
use crate::store::table::{Presence, tables};
use deburr_core::recording::{
    AcceptQueueTick, DatagramTick, HeldBackTick, ListenerTick, NetnsTick, Record, ResentTick,
    SendingTick, UnreadTick,
};
use std::convert::identity;

tables! {
    Record in identity, since 2, Presence::Added;

    /// What a connection of TCP had to send again (BPF network probe). Of the connections that were held up little in that
    /// second one row has the sums. A recording of version 2 may lack the table, which was added later.
    "resent" over tick => Resent(ResentTick) {
        /// a process that has the socket open; NULL = not known, or none of the target
        proc,
        /// inode number of the network namespace; NULL = not known
        netns,
        /// own address and port; NULL = several connections
        local,
        /// address and port of the other end
        remote,
        /// number of connections
        connections,
        /// times at which something was sent again
        times,
        /// of these: the segment was dropped on this host; 0 where the kernel does not tell
        dropped_here,
        /// of these: requests for a connection, which was not established yet
        requests,
        /// of these: the timer had expired
        timeouts,
        /// what these timers had waited (`icsk_rto`), one after the other
        timeout_ns,
        /// of these: probes before the timer expires
        probes,
        /// number of times that answers showed losses: each needed another round trip
        recoveries,
        /// a smoothed round-trip time for each of these
        recovery_ns,
        /// smoothed round-trip time (`srtt_us`) when it last sent again; NULL = none was measured yet
        srtt_ns,
        /// largest timeout that was set
        rto_ns,
        /// segments that were sent again
        segments,
        /// segments with data that it has sent in all by then, those sent again included (`data_segs_out`)
        data_segments,
        /// of these: sent again (`total_retrans`)
        total_segments,
    }
    /// By what a connection of TCP of the target was held up that had something to send, since it was last looked at (BPF
    /// network probe; the kernel counts in jiffies). No row if it was not. Of those that were held up little one row has the
    /// sums. No rows if the target is the host. A recording of version 2 may lack the table, which was added later.
    "sending" over tick => Sending(SendingTick) {
        /// a process that has the socket open
        proc,
        /// inode number of the network namespace; NULL = not known
        netns,
        /// own address and port; NULL = several connections
        local,
        /// address and port of the other end
        remote,
        /// the process of this host that has the other end open; NULL = none is known, as of another host, or several have it
        peer,
        /// number of connections
        connections,
        /// 1 = the other end had asked for it: somebody listens at the own port; NULL = not known
        accepted,
        /// time in which something was to be sent, or not confirmed yet
        busy_ns,
        /// of this: the other end's receive window was full
        window_ns,
        /// of this: everything was on its way, and the own send buffer took no more
        buffer_ns,
        /// smoothed round-trip time (`srtt_us`) at the end; NULL = none was measured yet
        srtt_ns,
        /// bytes that the other end had room for at the end, as it last said (`snd_wnd`)
        window_bytes,
        /// size of the own send buffer at the end, for data and their overhead (`sk_sndbuf`)
        buffer_bytes,
        /// bytes that were not sent yet at the end
        waiting_bytes,
    }
    /// What connections of a process of the target had received that one of its threads should have read, at looks some ten
    /// times a second (BPF network probe): their event poll had them ready for some milliseconds, and the other end is open
    /// and may send as much again. Each look stands for the time since the one before. No row if there was nothing of that, and none if the target
    /// is the host. A recording of version 2 may lack the table, which was added later.
    "unread" over tick => Unread(UnreadTick) {
        /// the process
        proc,
        /// its thread that should have read it; NULL = not known
        tid,
        /// most connections that its event polls watched at a look
        connections,
        /// number of looks
        looks,
        /// number of those at which something waited while the thread was on a CPU, or slept on something else
        occupied_looks,
        /// number of times that a connection was found so
        samples,
        /// the time in which connections were so, of all added up
        unread_ns,
        /// the time in which at least one was so
        late_ns,
        /// of this: the thread was on a CPU
        on_cpu_ns,
        /// of this: it waited for a CPU, or for its CPU limit
        queued_ns,
        /// of this: it slept on something else
        asleep_ns,
        /// the longest time for which something was found to have waited
        longest_ns,
        /// own address and port of the connection on which that was
        local,
        /// address and port of its other end
        remote,
        /// bytes that waited there
        waiting_bytes,
    }
    /// Connections that waited to be accepted at a listening socket of the target, at looks some ten times a second (BPF network
    /// probe): the first that had sent something had waited for some milliseconds since. Each look stands for the time
    /// since the one before. No row if there were none, and none if the target is the host. A recording of version 2 may lack the table,
    /// which was added later.
    "accept_queue" over tick => AcceptQueue(AcceptQueueTick) {
        /// a process that has the socket open
        proc,
        /// inode number of the socket; NULL = not known
        inode,
        /// own address and port of the socket
        local,
        /// number of looks
        looks,
        /// number of those at which connections waited
        late_looks,
        /// the time in which connections waited, of all added up
        waiting_ns,
        /// the time in which at least one waited
        late_ns,
        /// most connections that waited at a look
        most_waiting,
        /// the longest time for which one was found to have waited
        longest_ns,
    }
    /// What connections of the target held back, at looks some ten times a second (BPF network probe): the end of what the program sent, which
    /// does not fill a segment, on connections on which the other end answers. Each look stands for the time since the one before. No row if there was nothing,
    /// and none if the target is the host. A recording of version 2 may lack the table, which was added later.
    "held_back" over tick => HeldBack(HeldBackTick) {
        /// a process that has the socket open
        proc,
        /// own address and port
        local,
        /// address and port of the other end
        remote,
        /// number of looks
        looks,
        /// number of those at which something was held back
        held_looks,
        /// of these, because the program asked for that (`TCP_CORK`)
        corked_looks,
        /// the time in which something was held back
        held_ns,
        /// the longest time since the segment before was sent, when something was found to be held back
        longest_ns,
        /// most bytes that were held back at a look
        most_bytes,
    }
    /// Datagrams that a socket of UDP dropped (`drops` of `/proc/PID/net/udp` and `udp6`). No row if it dropped none. A
    /// recording of version 2 may lack the table, which was added later.
    "datagrams" over tick => Datagrams(DatagramTick) {
        /// a process that has the socket open; NULL = not known, or none of the target
        proc,
        /// inode number of the network namespace
        netns,
        /// own address and port
        local,
        /// address and port of the other end; NULL = not connected
        remote,
        /// datagrams that were dropped
        drops,
        /// bytes that waited to be read at the end, with their overhead
        waiting_bytes,
        /// size of the receive buffer, for them and their overhead; NULL = it could not be read
        buffer_bytes,
        /// largest size that a program may ask for (`net.core.rmem_max`); NULL = it could not be read
        most_buffer_bytes,
    }
    /// Requests for connections in a network namespace. No row if there were none. A recording of version 2 may lack the
    /// table, which was added later.
    "netns" over tick => Netns(NetnsTick) {
        /// inode number of the network namespace
        netns,
        /// connections that others established to it (`PassiveOpens`)
        opened,
        /// requests for which there was no place in the queue of a listening socket (`ListenOverflows`)
        overflows,
        /// requests that listening sockets dropped, for that reason or another one (`ListenDrops`)
        drops,
    }
    /// A listening socket that dropped requests for connections, or whose queue was full. A recording of version 2 may lack
    /// the table, which was added later.
    "listener" over tick => Listener(ListenerTick) {
        /// a process that has the socket open; NULL = not known, or none of the target
        proc,
        /// inode number of the network namespace
        netns,
        /// own address and port
        local,
        /// requests that it dropped (`SO_MEMINFO`); NULL = it could not be read
        drops,
        /// connections that waited to be accepted at the end
        waiting,
        /// how many may wait before more are dropped; NULL = it could not be read
        limit = "most_waiting",
        /// the largest such number that a program may ask for (`net.core.somaxconn`); NULL = it could not be read
        most_limit = "somaxconn",
    }
    and {
        others => host::row(others),
    }
}
