// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What sockets of UDP and listening sockets dropped, in the network namespaces of the target and of `deburr`.

use super::super::{Context, Emit, Roots};
use super::owners::{Owners, inode_of};
use deburr_core::procfs::net_counters::counter;
use deburr_core::procfs::net_sockets::{Socket, sockets};
use deburr_core::recording::{DatagramTick, ListenerTick, NetnsTick, ProcId, Record};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Network namespaces that are looked at.
const NAMESPACES: usize = 16;
/// Processes whose namespace is looked up in a second, at some 3 us each.
const PROCESSES_PER_SECOND: usize = 200;
/// Length of a list of sockets of UDP that is read: some 8000.
const DATAGRAM_BYTES: u64 = 1 << 20;
/// The same of listening sockets, which come first in a list of those of TCP.
const LISTENING_BYTES: u64 = 64 << 10;
/// Length of the files of counters.
const COUNTER_BYTES: u64 = 64 << 10;
/// Looks at a namespace after which the programs of a target that has just started listen. Each takes 15 ms or so: the
/// kernel walks its whole table of connections, however few there are.
const FIRST_LOOKS: u32 = 3;
/// Sockets of a kind that have a record in a second.
const RECORDS: usize = 64;

/// The namespaces, and what was last counted in each.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    /// Namespace of each process of the target; `None` = it could not be read.
    of: HashMap<ProcId, Option<u32>>,
    /// The process whose namespace was looked up last.
    last: Option<ProcId>,
    namespaces: BTreeMap<u32, Namespace>,
    /// The namespace of `deburr`, whose settings can be read.
    own: Option<u32>,
    /// Why not all was seen, as parts of a sentence.
    pub(super) gaps: BTreeSet<&'static str>,
}

/// A namespace as it was last seen.
#[derive(Debug, Default)]
struct Namespace {
    counters: Option<Counters>,
    /// What each socket of UDP dropped, by inode number; `None` before the first look.
    drops: Option<HashMap<u64, u64>>,
    /// What each listening socket dropped, as far as it could be read.
    refused: HashMap<u64, u32>,
    /// Number of looks at the listening sockets so far.
    looks: u32,
    /// Whose the listening sockets are has been looked for, of all of them.
    searched: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    opened: u64,
    overflows: u64,
    drops: u64,
}

impl Sockets {
    /// Whether the files can be read at all.
    pub(super) fn can_see(roots: &Roots) -> bool {
        read(&roots.proc.join("self/net/netstat"), COUNTER_BYTES).is_some()
    }

    /// Looks at everything. What came since the last look is told with these times; at the first look nothing is.
    pub(super) fn look(
        &mut self,
        cx: &Context,
        owners: &mut Owners,
        (t0_ns, t1_ns): (u64, u64),
        emit: Emit<'_>,
    ) {
        let places = self.places(cx);
        self.namespaces.retain(|netns, _| places.contains_key(netns));
        for (netns, process) in places {
            let is_own = self.own == Some(netns);
            let namespace = self.namespaces.entry(netns).or_default();
            let of = Place { netns, net: process.join("net"), is_own, t0_ns, t1_ns };
            let refused = namespace.count(&of, &mut *emit);
            if namespace.listeners(&of, cx, owners, refused, &mut *emit) {
                self.gaps.insert("there are more listening sockets than are read");
            }
            if namespace.datagrams(&of, cx, owners, &mut *emit) {
                self.gaps.insert("there are more sockets of UDP than are read");
            }
        }
    }

    /// The namespaces, each with the directory of a process in it.
    fn places(&mut self, cx: &Context) -> BTreeMap<u32, PathBuf> {
        let proc = &cx.roots.proc;
        let mut places = BTreeMap::new();
        let own = proc.join("self");
        self.own = self.own.or_else(|| namespace_of(&own));
        if let Some(netns) = self.own {
            places.insert(netns, own);
        }
        let mut processes: Vec<_> = cx.processes.of_target().map(|it| (it.id, it.pid)).collect();
        processes.sort_unstable();
        let here: BTreeSet<ProcId> = processes.iter().map(|(id, _)| *id).collect();
        self.of.retain(|id, _| here.contains(id));
        // A process may move to another namespace, as it does when a container is made.
        let from = processes.partition_point(|(id, _)| Some(*id) <= self.last);
        for (id, pid) in
            processes.iter().cycle().skip(from).take(processes.len().min(PROCESSES_PER_SECOND))
        {
            self.of.insert(*id, namespace_of(&proc.join(pid.to_string())));
            self.last = Some(*id);
        }
        for (id, pid) in processes {
            let Some(netns) = self.of.get(&id).copied().flatten() else { continue };
            let process = proc.join(pid.to_string());
            if places.len() < NAMESPACES {
                // A process that ended meanwhile has no files: the next one may.
                places.entry(netns).or_insert(process);
            } else if !places.contains_key(&netns) {
                self.gaps.insert("there are more network namespaces than are looked at");
            }
        }
        places
    }
}

/// Where and when something is counted.
struct Place {
    netns: u32,
    net: PathBuf,
    is_own: bool,
    t0_ns: u64,
    t1_ns: u64,
}

impl Namespace {
    /// Counts the requests for connections. Returns whether listening sockets dropped any.
    fn count(&mut self, of: &Place, emit: Emit<'_>) -> bool {
        let Some(now) = counters(&of.net) else { return false };
        let Some(before) = self.counters.replace(now) else { return false };
        let since = |now: u64, before: u64| now.saturating_sub(before);
        let tick = NetnsTick {
            t0_ns: of.t0_ns,
            t1_ns: of.t1_ns,
            netns: of.netns,
            opened: since(now.opened, before.opened),
            overflows: since(now.overflows, before.overflows),
            drops: since(now.drops, before.drops),
        };
        let drops = tick.drops > 0;
        if drops || tick.opened > 0 || tick.overflows > 0 {
            emit(Record::Netns(Box::new(tick)));
        }
        drops
    }

    /// Looks at the listening sockets, if some dropped requests or it is not known yet what they dropped before. Returns whether the list was cut off.
    fn listeners(
        &mut self,
        of: &Place,
        cx: &Context,
        owners: &mut Owners,
        refused: bool,
        emit: Emit<'_>,
    ) -> bool {
        let enough = if cx.has_target { FIRST_LOOKS } else { 1 };
        if !refused && self.searched && self.looks >= enough {
            return false;
        }
        self.looks += 1;
        let (mut all, mut cut) = (Vec::new(), false);
        for name in ["tcp", "tcp6"] {
            let text = read(&of.net.join(name), LISTENING_BYTES).unwrap_or_default();
            let listening: Vec<Socket> =
                sockets(whole_lines(&text)).take_while(|it| it.listens).collect();
            let is_full = text.len() as u64 == LISTENING_BYTES;
            cut |= is_full && sockets(whole_lines(&text)).all(|it| it.listens);
            all.extend(listening);
        }
        owners.find(cx, all.iter().map(|it| it.inode));
        // A few looks are enough for what is always too much to be searched.
        self.searched = self.looks >= FIRST_LOOKS || all.iter().all(|it| owners.searched(it.inode));
        let most_limit = of.is_own.then(|| setting(&cx.roots, "somaxconn")).flatten();
        let mut told = 0;
        for socket in all {
            let seen = owners.listener(socket.inode);
            let now = seen.map(|(memory, ..)| memory.drops);
            let before = now.and_then(|now| self.refused.insert(socket.inode, now));
            let drops = now.zip(before).map(|(now, before)| u64::from(now.wrapping_sub(before)));
            let limit = seen.map(|(_, _, limit)| u64::from(limit));
            let waiting = seen.map_or(socket.waiting, |(_, waiting, _)| u64::from(waiting));
            let is_full = waiting > 0 && limit.is_none_or(|limit| waiting > limit);
            let dropped = drops.is_some_and(|it| it > 0);
            if told == RECORDS || !(dropped || refused && is_full) {
                continue;
            }
            told += 1;
            emit(Record::Listener(Box::new(ListenerTick {
                t0_ns: of.t0_ns,
                t1_ns: of.t1_ns,
                proc: owners.of(socket.inode),
                netns: of.netns,
                local: socket.local.to_string(),
                drops,
                waiting,
                limit,
                most_limit,
            })));
        }
        cut
    }

    /// Looks at the sockets of UDP. Returns whether the list was cut off.
    fn datagrams(&mut self, of: &Place, cx: &Context, owners: &mut Owners, emit: Emit<'_>) -> bool {
        let (mut now, mut dropped, mut cut) = (HashMap::new(), Vec::new(), false);
        for name in ["udp", "udp6"] {
            let Some(text) = read(&of.net.join(name), DATAGRAM_BYTES) else { continue };
            cut |= text.len() as u64 == DATAGRAM_BYTES;
            for socket in sockets(whole_lines(&text)).filter(|it| it.inode != 0) {
                let Some(drops) = socket.drops else { continue };
                now.insert(socket.inode, drops);
                let Some(known) = &self.drops else { continue };
                // One that is not known was made since the last look.
                let before = known.get(&socket.inode).copied().unwrap_or(0);
                // The kernel counts in 32 bits.
                let since = (drops as u32).wrapping_sub(before as u32);
                if since > 0 {
                    dropped.push((u64::from(since), socket));
                }
            }
        }
        self.drops = Some(now);
        dropped.sort_by_key(|(drops, it)| (std::cmp::Reverse(*drops), it.inode));
        dropped.truncate(RECORDS);
        owners.find(cx, dropped.iter().map(|(_, it)| it.inode));
        let most_buffer_bytes =
            if dropped.is_empty() { None } else { setting(&cx.roots, "rmem_max") };
        for (drops, socket) in dropped {
            let memory = owners.memory(socket.inode);
            emit(Record::Datagrams(Box::new(DatagramTick {
                t0_ns: of.t0_ns,
                t1_ns: of.t1_ns,
                proc: owners.of(socket.inode),
                netns: of.netns,
                local: socket.local.to_string(),
                remote: socket.remote.map(|remote| remote.to_string()),
                drops,
                waiting_bytes: socket.waiting,
                buffer_bytes: memory.map(|memory| memory.receive_buffer_bytes.into()),
                most_buffer_bytes,
            })));
        }
        cut
    }
}

fn counters(net: &Path) -> Option<Counters> {
    let text = read(&net.join("netstat"), COUNTER_BYTES)?;
    let more = read(&net.join("snmp"), COUNTER_BYTES)?;
    Some(Counters {
        opened: counter(&more, "Tcp:", "PassiveOpens")?,
        overflows: counter(&text, "TcpExt:", "ListenOverflows")?,
        drops: counter(&text, "TcpExt:", "ListenDrops")?,
    })
}

fn namespace_of(process: &Path) -> Option<u32> {
    inode_of(fs::read_link(process.join("ns/net")).ok()?.to_str()?, "net:[")
}

/// A setting of the network, in the namespace of `deburr`.
fn setting(roots: &Roots, name: &str) -> Option<u64> {
    let text = read(&roots.proc.join("sys/net/core").join(name), 64)?;
    std::str::from_utf8(&text).ok()?.trim().parse().ok()
}

/// The beginning of a file.
fn read(path: &Path, most_bytes: u64) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path).ok()?.take(most_bytes).read_to_end(&mut text).ok()?;
    Some(text)
}

/// A text without its last line if that was cut off.
fn whole_lines(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    &text[..end]
}
