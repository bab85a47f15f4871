// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What connections of the target have received that nobody fetches. Looked at at each beat, less often where that takes long.

use super::super::{Context, Emit};
use crate::clock::thread_cpu_time_ns;
use deburr_bpf::net::{self, NetProbe, Reader, Waiting};
use deburr_core::recording::{ProcId, Record, UnreadTick};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Processes of the target whose connections are looked at, at some 50 us each.
const PROCESSES: usize = 256;
/// Part of a CPU that looking may take.
const ONE_IN: u64 = 500;
/// What came last must have waited for so long: of a stream something has always just come.
const LEAST_AGE_NS: u64 = 4_000_000;

#[derive(Debug, Default)]
pub(super) struct Unread {
    late: BTreeMap<ProcId, Late>,
    /// Looks since the last records.
    looks: u64,
    /// Processes none of whose connections an event poll watched: they are looked at once a second only.
    without: HashSet<ProcId>,
    /// The look before.
    looked_ns: u64,
    /// End of the last records.
    t0_ns: u64,
    /// Not before this time.
    next_ns: u64,
    /// Why not all was seen, as parts of a sentence.
    pub(super) gaps: BTreeSet<&'static str>,
}

/// What waited for a process since the last record.
#[derive(Debug, Default)]
struct Late {
    tick: UnreadTick,
    /// The time in which at least one connection waited, by the thread that should have read.
    by_thread: BTreeMap<Option<u32>, u64>,
}

impl Unread {
    /// Looks at all connections of the target, unless the last look is too recent for what it took. `all`: at those of
    /// processes, too, that had none in an event poll.
    pub(super) fn look(&mut self, probe: &NetProbe, cx: &Context, t_ns: u64, all: bool) {
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
        if all {
            self.without.clear();
        }
        let mut found = Vec::new();
        for (pid, proc) in pids {
            if self.without.contains(&proc) {
                continue;
            }
            // It may have ended.
            let Ok(unread) = probe.unread(pid) else { continue };
            if unread.watched == 0 {
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
        self.looks += 1;
        // Processes may share a socket, and its event poll.
        let mut seen = HashSet::new();
        for (proc, mut unread) in all {
            unread.waiting.retain(|it| {
                // The age is up to a jiffy too large.
                it.age_ns >= LEAST_AGE_NS + ns_per_jiffy
                    // A sender that has no more room has paused for that: it is a stream.
                    && it.unread_bytes <= it.room_bytes
                    && seen.insert(it.ends.sock)
            });
            let Some(oldest) = unread.waiting.iter().max_by_key(|it| it.age_ns) else { continue };
            let late = self.late.entry(proc).or_default();
            late.add(oldest, unread.waiting.len() as u64, span_ns);
            let tick = &mut late.tick;
            tick.proc = Some(proc);
            let watched = u64::from(unread.watched).max(unread.waiting.len() as u64);
            tick.connections = tick.connections.max(watched);
        }
    }

    /// Emits what was found since the last records.
    pub(super) fn second(&mut self, emit: Emit<'_>) {
        let (t0_ns, t1_ns) = (std::mem::replace(&mut self.t0_ns, self.looked_ns), self.looked_ns);
        let looks = std::mem::take(&mut self.looks);
        for (_, Late { mut tick, by_thread }) in std::mem::take(&mut self.late) {
            (tick.t0_ns, tick.t1_ns, tick.looks) = (t0_ns, t1_ns, looks);
            let most = by_thread.iter().max_by_key(|(_, ns)| **ns);
            tick.tid = most.and_then(|(tid, _)| *tid);
            emit(Record::Unread(Box::new(tick)));
        }
    }
}

impl Late {
    fn add(&mut self, oldest: &Waiting, number: u64, span_ns: u64) {
        let tick = &mut self.tick;
        tick.samples += number;
        tick.unread_ns += span_ns * number;
        tick.late_ns += span_ns;
        match oldest.reader {
            Reader::OnCpu => tick.on_cpu_ns += span_ns,
            Reader::Queued => tick.queued_ns += span_ns,
            Reader::Asleep => tick.asleep_ns += span_ns,
            Reader::Unknown => {}
        }
        *self.by_thread.entry(oldest.tid).or_default() += span_ns;
        if oldest.age_ns > tick.longest_ns {
            tick.longest_ns = oldest.age_ns;
            tick.local = oldest.ends.local.to_string();
            tick.remote = oldest.ends.remote.to_string();
            tick.waiting_bytes = oldest.unread_bytes.into();
        }
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
        of.found(vec![(ProcId(proc), net::Unread { watched: 9, waiting })], t_ms * MS, MS);
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
        let unread = || net::Unread { watched: 1, waiting: vec![waiting(1, 50, Reader::OnCpu)] };
        of.found(vec![(ProcId(1), unread()), (ProcId(2), unread())], 100 * MS, MS);
        assert_eq!(ticks(&mut of).len(), 1);
    }
}
