// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The network probe: which connections of TCP had to send again, and why; by what connections are held up that have
//! something to send; what they have received that nobody fetches; and who has their other ends open.

mod other_ends;
mod plan;
mod sending;
mod unread;

pub use other_ends::MOST_ASKED;
pub use plan::NetPlan;
pub use sending::Sending;
pub use unread::{HeldBack, Listener, Reader, Unread, Waiting};

pub(crate) use plan::{FILE_ITERATOR, NEEDED, OF_SENDING, OF_UNREAD};

use crate::log::{self, Log};
use crate::mapped::{Mapped, MappedOnUse, Plain};
use crate::object::LoadedObject;
use crate::skel::net::types::{net_cpu, net_ends, net_resent};
use crate::skel::net::{NetSkel, NetSkelBuilder};
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

// SAFETY: generated from C structs of integers and arrays of them; every bit pattern is a value.
unsafe impl Plain for net_cpu {}
// SAFETY: as above.
unsafe impl Plain for net_resent {}

/// Most entries of a CPU's log, which is read ten times a second.
const ENTRIES: u32 = 256;

/// `ICSK_TIME_LOSS_PROBE` in `include/net/inet_connection_sock.h`.
const LOSS_PROBE: u8 = 5;

/// Why a segment was sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// The timer for it expired: nothing had come back.
    Timeout {
        /// What the timer waited.
        waited_ns: u64,
    },
    /// The timer that asks for a sign of life before the timeout expired.
    Probe,
    /// What came back showed that it was lost.
    Answer,
}

/// A connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Identifies the socket while it exists.
    pub sock: u64,
    /// Inode number of the socket's file; `None` = no process has it open any more, or not yet.
    pub inode: Option<u64>,
    /// Inode number of its network namespace; `None` = not known.
    pub netns: Option<u32>,
    /// Own address and port.
    pub local: SocketAddr,
    /// Address and port of the other end.
    pub remote: SocketAddr,
}

/// A segment, or several that are sent as one, that were sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resent {
    /// When, nanoseconds of `CLOCK_MONOTONIC`.
    pub t_ns: u64,
    /// Of which connection.
    pub ends: Ends,
    /// Why.
    pub trigger: Trigger,
    /// Smoothed round-trip time; 0 = none was measured yet.
    pub srtt_ns: u64,
    /// The setting of the timer for what is not confirmed, when this was sent.
    pub rto_ns: u64,
    /// Segments that were sent again since the connection began, these included. It wraps around.
    pub total_retrans: u32,
    /// Segments with data that were sent since then, those sent again included. It wraps around.
    pub data_segs_out: u32,
    /// Segments that it consists of, at least 1.
    pub segs: u32,
    /// Number of its first byte.
    pub seq: u32,
    /// Number of the first byte that was not sent yet.
    pub snd_nxt: u32,
    /// The connection is not established yet: it is the request for it.
    pub connecting: bool,
    /// The kernel says that it was dropped on this host.
    pub failed: bool,
}

/// The probe, loaded and attached. Dropping it detaches it.
pub struct NetProbe {
    object: LoadedObject<NetSkel<'static>>,
    cpus: Mapped<net_cpu>,
    log: Log<net_resent>,
    ns_per_jiffy: u64,
}

impl NetProbe {
    /// Loads the programs and attaches that at the hook. `cpus` = number of possible CPUs of the host. Without a target
    /// those that [`NetProbe::sending`] and [`NetProbe::unread`] run are not loaded.
    ///
    /// # Errors
    /// The error of libbpf or the kernel, with the operation that failed.
    pub fn open(plan: &NetPlan, cpus: u32, has_target: bool) -> Result<Self, String> {
        let entries = log::entries_of_each(cpus).min(ENTRIES);
        let mut object =
            LoadedObject::load(NetSkelBuilder::default(), &plan.programs(has_target), |open| {
                let rodata =
                    open.maps.rodata_data.as_deref_mut().expect("the object has constants");
                rodata.log_entries = entries;
                open.maps.cpus.set_max_entries(cpus)?;
                open.maps.entries.set_max_entries(cpus * entries)
            })?;
        let maps = &object.skel.maps;
        let areas = Mapped::new(&maps.cpus, cpus as usize)?;
        let log = MappedOnUse::new(&maps.entries, (cpus * entries) as usize)?;
        object.attach(plan.program())?;
        let ns_per_jiffy = crate::writeback::ns_per_jiffy();
        Ok(Self { object, cpus: areas, log: Log::new(log, cpus), ns_per_jiffy })
    }

    /// Reports everything that was sent again since the last call: CPU by CPU, in order of time on each.
    pub fn read(&mut self, each: &mut dyn FnMut(Resent)) {
        let (cpus, ns_per_jiffy) = (&self.cpus, self.ns_per_jiffy);
        self.log.read(
            |cpu| cpus.u64(cpu, offset_of!(net_cpu, head)),
            |entry| each(decode(entry, ns_per_jiffy)),
        );
    }

    /// The connections that a process has open and that ever had something to send, unless the kernel cannot tell
    /// ([`NetPlan::no_sending`]). It takes no lock, so that no process can hold it up.
    ///
    /// # Errors
    /// That of the kernel, also if the process does not exist.
    pub fn sending(&self, pid: u32) -> Result<Vec<Sending>, String> {
        let written = self.object.iterate_process(plan::ON_FILE, pid)?;
        Ok(sending::decode(&written))
    }

    /// What connections of a process have received that its event polls have ready and nobody has fetched, and its listening sockets, unless the
    /// kernel cannot tell ([`NetPlan::no_unread`]). It takes no lock either.
    ///
    /// # Errors
    /// As of [`NetProbe::sending`].
    pub fn unread(&self, pid: u32) -> Result<Unread, String> {
        let written = self.object.iterate_process(plan::ON_UNREAD, pid)?;
        Ok(unread::decode(&written, self.ns_per_jiffy))
    }

    /// The pids of the processes of this host that have the other ends of these connections open, in their order; `None` =
    /// none is known, or several have it open. Not more than [`MOST_ASKED`] are looked for. It looks at the open files of
    /// all processes, each of which takes some 0.1 us.
    ///
    /// # Errors
    /// That of the kernel.
    pub fn other_ends(&self, of: &[Ends]) -> Result<Vec<Option<u32>>, String> {
        other_ends::find(&self.object, of)
    }

    /// The length of the kernel's jiffy, in which the states of connections are counted.
    #[must_use]
    pub fn ns_per_jiffy(&self) -> u64 {
        self.ns_per_jiffy
    }

    /// What was lost so far, by kind; only counts that are not 0.
    #[must_use]
    pub fn lost(&self) -> BTreeMap<&'static str, u64> {
        let all = [("log_overrun", self.log.overrun), ("nested", self.object.missed())];
        all.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    /// Runs of the program so far.
    #[must_use]
    pub fn runs(&self) -> u64 {
        (0..self.cpus.len()).map(|cpu| self.cpus.u64(cpu, offset_of!(net_cpu, runs))).sum()
    }

    /// Kernel memory of the maps, in bytes.
    #[must_use]
    pub fn map_bytes(&self) -> u64 {
        self.object.map_bytes()
    }

    /// Run time in nanoseconds and number of runs of the program, counted while [`crate::RunStats`] existed.
    #[must_use]
    pub fn timed_runs(&self) -> Option<crate::TimedRuns> {
        self.object.timed_runs()
    }

    /// Instructions that the kernel's verifier processed to accept the program.
    #[must_use]
    pub fn verified_instructions(&self) -> BTreeMap<&'static str, u64> {
        self.object.verified_instructions()
    }
}

fn decode(it: &net_resent, ns_per_jiffy: u64) -> Resent {
    /// `TCP_SYN_SENT` in `include/net/tcp_states.h`.
    const SYN_SENT: u8 = 2;
    let rto_ns = u64::from(it.rto_jiffies) * ns_per_jiffy;
    Resent {
        t_ns: it.t_ns,
        ends: ends(&it.ends),
        // The kernel clears what is pending before the timer's handler sends again, and sets the next timer after it.
        trigger: match (it.pending, it.retransmits) {
            (0, 1..) => Trigger::Timeout { waited_ns: rto_ns },
            (LOSS_PROBE, _) => Trigger::Probe,
            _ => Trigger::Answer,
        },
        srtt_ns: u64::from(it.srtt_us8) * 125,
        rto_ns,
        total_retrans: it.total_retrans,
        data_segs_out: it.data_segs_out,
        segs: u32::from(it.segs).max(1),
        seq: it.seq,
        snd_nxt: it.snd_nxt,
        connecting: it.state == SYN_SENT,
        failed: it.failed != 0,
    }
}

fn ends(it: &net_ends) -> Ends {
    let address = |words: [u32; 4], port| SocketAddr::new(address_of(it.family, words), port);
    Ends {
        sock: it.sock,
        inode: Some(it.inode).filter(|&inode| inode != 0),
        netns: Some(it.netns).filter(|&netns| netns != 0),
        local: address(it.local, it.local_port),
        remote: address(it.remote, it.remote_port),
    }
}

/// An address of IPv4, also if a socket of IPv6 has it.
fn address_of(family: u16, words: [u32; 4]) -> IpAddr {
    if i32::from(family) == libc::AF_INET {
        return Ipv4Addr::from(words[0].to_ne_bytes()).into();
    }
    let mut bytes = [0; 16];
    for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    IpAddr::from(Ipv6Addr::from(bytes)).to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_triggered_it_is_told_apart() {
        let of = |pending, retransmits| {
            let it = net_resent { pending, retransmits, rto_jiffies: 50, ..net_resent::default() };
            decode(&it, 4_000_000).trigger
        };
        assert_eq!(of(0, 1), Trigger::Timeout { waited_ns: 200_000_000 });
        // The timer is set already, and a timeout was before.
        assert_eq!(of(1, 1), Trigger::Answer);
        assert_eq!(of(0, 0), Trigger::Answer);
        assert_eq!(of(5, 0), Trigger::Probe);
    }

    #[test]
    fn addresses_and_times_are_decoded() {
        let word = |bytes| u32::from_ne_bytes(bytes);
        let of = net_ends {
            family: 2,
            local: [word([10, 0, 0, 1]), 7, 7, 7],
            remote: [word([10, 0, 0, 2]), 7, 7, 7],
            local_port: 80,
            remote_port: 5000,
            ..net_ends::default()
        };
        let it = net_resent { ends: of, srtt_us8: 8000, ..net_resent::default() };
        let resent = decode(&it, 1);
        assert_eq!(resent.ends.local.to_string(), "10.0.0.1:80");
        assert_eq!(resent.ends.remote.to_string(), "10.0.0.2:5000");
        assert_eq!((resent.srtt_ns, resent.segs, resent.ends.inode), (1_000_000, 1, None));
        let mapped = [0, 0, 0xffff_u32.to_be(), word([10, 0, 0, 2])];
        let of = net_ends { family: 10, remote: mapped, remote_port: 5000, ..of };
        assert_eq!(ends(&of).remote.to_string(), "10.0.0.2:5000");
    }
}
