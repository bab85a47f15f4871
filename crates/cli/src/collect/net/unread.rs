// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What connections of the target have received that nobody reads, which wait to be accepted, and which hold back what they have to send.
//! Looked at at each beat, less often where that takes long.

use super::super::{Context, Emit};
use super::accept_queue::AcceptQueues;
use super::held_back::HeldBacks;
use crate::clock::thread_cpu_time_ns;
use deburr_bpf::net::{self, NetProbe, Reader, Waiting};
use deburr_core::recording::{ProcId, Record, UnreadTick};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Processes of the target whose connections are looked at, at some 50 us each.
const PROCESSES: usize = 256;
/// Part of a CPU that looking may take.
const ONE_IN: u64 = 500;
/// What came last must have waited for so long: of a stream something has always just come.
const LEAST_AGE_NS: u64 = 4_000_000;
/// What lies there for longer is no request whose sender waits, but something that nobody ever reads.
const MOST_AGE_NS: u64 = 10_000_000_000;
/// Records in a second: of the threads for which something waited longest.
const READERS: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Unread {
    /// What waited since the last records, by process and by the thread that should have read it.
    late: BTreeMap<(ProcId, Option<u32>), UnreadTick>,
    accept_queues: AcceptQueues,
    held_backs: HeldBacks,
    /// Looks since the last records.
    looks: u64,
    /// Processes none of whose connections an event poll watched or may hold something back, and whose listening sockets, if any, others have, too: they are looked
    /// at once a second only.
    without: HashSet<ProcId>,
    /// These are due as well.
    all_due: bool,
    /// The look before.
    looked_ns: u64,
    /// End of the last records.
    t0_ns: u64,
    /// Not before this time.
    next_ns: u64,
    /// Why not all was seen, as parts of a sentence.
    pub(super) gaps: BTreeSet<&'static str>,
}

impl Unread {
    /// Looks at all connections of the target, unless the last look is too recent for what it took. `all`: at those of
    /// processes, too, that had none in an event poll.
    pub(super) fn look(&mut self, probe: &NetProbe, cx: &Context, t_ns: u64, all: bool) {
        self.all_due |= all;
        if !cx.has_target || t_ns < self.next_ns {
            return;
        }
        let begin_ns = thread_cpu_time_ns();
        let of_target = cx.processes.of_target();
        let mut pids: Vec<(u32, ProcId)> = of_target
            .filter(|it| it.kernel_thread != Some(true) && !it.many)
            .map(|it| (it.pid, it.id))
            .collect();
        pids.sort_unstable();
        if pids.len() > PROCESSES {
            self.gaps.insert("the target has more processes than are looked at");
            pids.truncate(PROCESSES);
        }
        if std::mem::take(&mut self.all_due) {
            self.without.clear();
        }
        let (mut found, mut listeners) = (Vec::new(), HashSet::new());
        for (pid, proc) in pids {
            if self.without.contains(&proc) {
                continue;
            }
            let Ok(unread) = probe.unread(pid) else {
                // It may have ended.
                if cx.roots.proc.join(pid.to_string()).exists() {
                    self.gaps.insert("the open files of a process could not be looked at");
                }
                continue;
            };
            // Not all: a look must see each socket.
            let known = unread.listeners.iter().all(|it| !listeners.insert(it.ends.sock));
            if unread.watched + unread.may_hold == 0 && known {
                self.without.insert(proc);
            }
            found.push((proc, unread));
        }
        self.found(found, t_ns, probe.ns_per_jiffy());
        let took_ns = thread_cpu_time_ns().saturating_sub(begin_ns);
        self.next_ns = t_ns.saturating_add(took_ns.saturating_mul(ONE_IN));
    }

    /// A look stands for the time since the one before.
    fn found(&mut self, all: Vec<(ProcId, net::Unread)>, t_ns: u64, ns_per_jiffy: u64) {
        let span_ns = t_ns.saturating_sub(std::mem::replace(&mut self.looked_ns, t_ns));
        if span_ns == 0 {
            return;
        }
        self.looks += 1;
        self.accept_queues.found(&all, span_ns, ns_per_jiffy);
        self.held_backs.found(&all, (t_ns, span_ns), ns_per_jiffy);
        // Processes may share a socket: it is told of the one whose thread reads it, if that is known.
        let rows = all.iter().flat_map(|(_, unread)| &unread.waiting);
        let known: HashSet<u64> =
            rows.filter(|it| it.tid.is_some()).map(|it| it.ends.sock).collect();
        let mut seen = HashSet::new();
        for (proc, unread) in &all {
            let mut by_reader: BTreeMap<Option<u32>, Vec<&Waiting>> = BTreeMap::new();
            for it in &unread.waiting {
                let is_told = it.tid.is_some() || !known.contains(&it.ends.sock);
                if waits(it, ns_per_jiffy) && is_told && seen.insert(it.ends.sock) {
                    by_reader.entry(it.tid).or_default().push(it);
                }
            }
            let watched = u64::from(unread.watched).max(unread.waiting.len() as u64);
            for (tid, waiting) in by_reader {
                let tick = self.late.entry((*proc, tid)).or_default();
                (tick.proc, tick.tid) = (Some(*proc), tid);
                tick.connections = tick.connections.max(watched);
                add(tick, &waiting, span_ns);
            }
        }
    }

    /// Emits what was found since the last records.
    pub(super) fn second(&mut self, emit: Emit<'_>) {
        let (t0_ns, t1_ns) = (std::mem::replace(&mut self.t0_ns, self.looked_ns), self.looked_ns);
        let looks = std::mem::take(&mut self.looks);
        let mut all: Vec<UnreadTick> = std::mem::take(&mut self.late).into_values().collect();
        if all.len() > READERS {
            self.gaps.insert("more threads of the target are late than are recorded");
            all.sort_by_key(|it| Reverse(it.late_ns));
            all.truncate(READERS);
        }
        for tick in all {
            emit(Record::Unread(Box::new(UnreadTick { t0_ns, t1_ns, looks, ..tick })));
        }
        if self.accept_queues.second((t0_ns, t1_ns), looks, &mut *emit) {
            self.gaps.insert("connections wait at more sockets of the target than are recorded");
        }
        if self.held_backs.second((t0_ns, t1_ns), looks, emit) {
            self.gaps
                .insert("more connections of the target hold something back than are recorded");
        }
    }
}

/// Whether it is a request whose sender waits. The age is up to a jiffy too large.
fn waits(it: &Waiting, ns_per_jiffy: u64) -> bool {
    (LEAST_AGE_NS + ns_per_jiffy..MOST_AGE_NS).contains(&it.age_ns)
        // A sender that has no more room has paused for that: it is a stream.
        && it.unread_bytes <= it.room_bytes
}

/// Adds what waited at a look for one thread.
fn add(tick: &mut UnreadTick, waiting: &[&Waiting], span_ns: u64) {
    let Some(oldest) = waiting.iter().max_by_key(|it| it.age_ns) else { return };
    let number = waiting.len() as u64;
    tick.samples += number;
    tick.unread_ns += span_ns * number;
    tick.late_ns += span_ns;
    tick.occupied_looks += u64::from(matches!(oldest.reader, Reader::OnCpu | Reader::Asleep));
    match oldest.reader {
        Reader::OnCpu => tick.on_cpu_ns += span_ns,
        Reader::Queued => tick.queued_ns += span_ns,
        Reader::Asleep => tick.asleep_ns += span_ns,
        Reader::Unknown => {}
    }
    if oldest.age_ns > tick.longest_ns {
        tick.longest_ns = oldest.age_ns;
        tick.local = oldest.ends.local.to_string();
        tick.remote = oldest.ends.remote.to_string();
        tick.waiting_bytes = oldest.unread_bytes.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use deburr_bpf::net::Ends;
    use std::net::SocketAddr;

    const MS: u64 = 1_000_000;

    fn waiting(port: u16, age_ms: u64, reader: Reader) -> Waiting {
        Waiting {
            ends: Ends {
                sock: u64::from(port),
                inode: Some(17),
                netns: Some(7),
                local: SocketAddr::from(([10, 0, 0, 1], 80)),
                remote: SocketAddr::from(([10, 0, 0, 2], port)),
            },
            unread_bytes: 64,
            room_bytes: 65_536,
            age_ns: age_ms * MS,
            reader,
            tid: (reader != Reader::Unknown).then_some(42),
        }
    }

    fn ticks(of: &mut Unread) -> Vec<UnreadTick> {
        let mut all = Vec::new();
        of.second(&mut |record| match record {
            Record::Unread(tick) => all.push(*tick),
            other => panic!("{other:?}"),
        });
        all
    }

    fn look(of: &mut Unread, t_ms: u64, proc: u32, waiting: Vec<Waiting>) {
        let unread = net::Unread { watched: 9, waiting, ..net::Unread::default() };
        of.found(vec![(ProcId(proc), unread)], t_ms * MS, MS);
    }

    #[test]
    fn a_look_stands_for_the_time_since_the_one_before() {
        let mut of = Unread::default();
        look(&mut of, 100, 1, vec![]);
        look(&mut of, 200, 1, vec![waiting(1, 50, Reader::OnCpu), waiting(2, 20, Reader::OnCpu)]);
        look(&mut of, 500, 1, vec![waiting(1, 350, Reader::Asleep)]);
        let all = ticks(&mut of);
        let [it] = all.as_slice() else { panic!("{all:?}") };
        assert_eq!((it.t0_ns, it.t1_ns, it.looks, it.samples), (0, 500 * MS, 3, 3));
        assert_eq!(it.occupied_looks, 2);
        assert_eq!((it.unread_ns, it.late_ns), (500 * MS, 400 * MS));
        assert_eq!((it.on_cpu_ns, it.queued_ns, it.asleep_ns), (100 * MS, 0, 300 * MS));
        assert_eq!((it.longest_ns, it.remote.as_str()), (350 * MS, "10.0.0.2:1"));
        assert_eq!((it.tid, it.connections), (Some(42), 9));
        // Nothing is told twice, and nothing of a second without any.
        look(&mut of, 600, 1, vec![]);
        assert!(ticks(&mut of).is_empty());
    }

    #[test]
    fn what_has_just_come_does_not_wait() {
        let mut of = Unread::default();
        look(&mut of, 100, 1, vec![waiting(1, 4, Reader::OnCpu)]);
        assert!(ticks(&mut of).is_empty());
        look(&mut of, 200, 1, vec![waiting(1, 5, Reader::Unknown)]);
        let all = ticks(&mut of);
        assert_eq!((all[0].late_ns, all[0].on_cpu_ns, all[0].tid), (100 * MS, 0, None));
        assert_eq!((all[0].samples, all[0].occupied_looks), (1, 0));
    }

    #[test]
    fn what_nobody_ever_reads_is_no_request() {
        let mut of = Unread::default();
        look(&mut of, 100, 1, vec![waiting(1, 10_000, Reader::Asleep)]);
        assert!(ticks(&mut of).is_empty());
    }

    /// Each of two loops of a process is late at another half of the looks.
    #[test]
    fn each_loop_is_late_for_its_own_connections() {
        let mut of = Unread::default();
        for n in 1..=10 {
            let other = Waiting { tid: Some(43), ..waiting(2, 40, Reader::OnCpu) };
            let it = if n % 2 == 0 { other } else { waiting(1, 50, Reader::OnCpu) };
            look(&mut of, n * 100, 1, vec![it]);
        }
        let all = ticks(&mut of);
        let found: Vec<_> = all.iter().map(|it| (it.tid, it.late_ns, it.occupied_looks)).collect();
        assert_eq!(found, [(Some(42), 500 * MS, 5), (Some(43), 500 * MS, 5)]);
    }

    #[test]
    fn a_stream_whose_sender_waits_for_room_is_no_request() {
        let mut of = Unread::default();
        let stream = Waiting { room_bytes: 63, ..waiting(1, 50, Reader::OnCpu) };
        look(&mut of, 100, 1, vec![stream]);
        assert!(ticks(&mut of).is_empty());
    }

    #[test]
    fn a_connection_of_several_processes_waits_once() {
        let mut of = Unread::default();
        let of_one = |reader| net::Unread {
            watched: 1,
            waiting: vec![waiting(1, 50, reader)],
            ..net::Unread::default()
        };
        let unread = || of_one(Reader::OnCpu);
        of.found(vec![(ProcId(1), unread()), (ProcId(2), unread())], 100 * MS, MS);
        assert_eq!(ticks(&mut of).len(), 1);
        // Of the one that is known to read it.
        let unknown = of_one(Reader::Unknown);
        of.found(vec![(ProcId(1), unknown), (ProcId(2), unread())], 200 * MS, MS);
        let all = ticks(&mut of);
        assert_eq!(all.iter().map(|it| it.proc).collect::<Vec<_>>(), [Some(ProcId(2))]);
    }
}
