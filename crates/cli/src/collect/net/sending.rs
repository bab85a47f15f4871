// SPDX-License-Identifier: Apache-2.0 OR MIT
//! By what connections of the target are held up that have something to send. Looked at once a second, less often where
//! that takes long: the kernel keeps the sums.

use super::super::listening::Listening;
use super::super::{Context, Emit};
use super::connections::Key;
use super::other_ends::OtherEnds;
use crate::clock::thread_cpu_time_ns;
use deburr_bpf::net::{Ends, NetProbe, Sending};
use deburr_core::recording::{ProcId, Record, SendingTick};
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Processes of the target whose connections are looked at, at some 40 us each.
const PROCESSES: usize = 256;
/// Connections that are kept apart.
const KEPT: usize = 16_384;
/// Connections that have a record of their own in a second.
const RECORDS: usize = 64;
/// Part of a CPU that looking may take.
const ONE_IN: u64 = 200;

/// Sums of a connection, in jiffies that wrap around.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    busy: u32,
    window: u32,
    buffer: u32,
}

#[derive(Debug, Default)]
pub(super) struct Senders {
    seen: HashMap<Key, Sums>,
    /// The processes that were looked at then: what is new of theirs was made since.
    known: HashSet<ProcId>,
    listening: Listening,
    t0_ns: u64,
    /// Not before this time.
    next_ns: u64,
    /// Why not all was seen, as parts of a sentence.
    pub(super) gaps: BTreeSet<&'static str>,
}

impl Senders {
    /// Looks at all connections of the target, unless the last look is too recent for what it took. What happened since
    /// then is told; at the first look at a process nothing is.
    pub(super) fn look(
        &mut self,
        probe: &NetProbe,
        cx: &mut Context,
        others: &mut OtherEnds,
        (t_ns, last): (u64, bool),
        emit: Emit<'_>,
    ) {
        if !cx.has_target || (t_ns < self.next_ns && !last) {
            return;
        }
        // Not wall time: on a host whose CPUs are taken a look lasts long and costs no more.
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
        let mut all = Vec::new();
        for (pid, proc) in pids {
            // It may have ended.
            let Ok(sending) = probe.sending(pid) else { continue };
            all.push((pid, proc, sending));
        }
        let mut held = self.take(all, t_ns, probe.ns_per_jiffy());
        self.note_who_asked(cx, &mut held);
        held.sort_by_key(|it| Reverse(it.tick.window_ns));
        // Clients that are late are nobody's cause.
        let servers = held.iter().filter(|it| it.tick.accepted != Some(true)).map(|it| it.ends);
        others.find(probe, cx, t_ns, servers, &mut *emit);
        for it in &mut held {
            it.tick.peer = others.of(&it.ends);
        }
        let ticks = summed_up(held.into_iter().map(|it| it.tick).collect());
        ticks.into_iter().for_each(|tick| emit(Record::Sending(Box::new(tick))));
        let took_ns = thread_cpu_time_ns().saturating_sub(begin_ns);
        self.next_ns = t_ns.saturating_add(took_ns.saturating_mul(ONE_IN));
    }

    /// What happened since the last look, by the process that has the connection open, and its port.
    fn take(
        &mut self,
        all: Vec<(u32, ProcId, Vec<Sending>)>,
        t1_ns: u64,
        ns_per_jiffy: u64,
    ) -> Vec<Held> {
        let t0_ns = std::mem::replace(&mut self.t0_ns, t1_ns);
        let (mut seen, mut known, mut ticks) = (HashMap::new(), HashSet::new(), Vec::new());
        for (pid, proc, sending) in all {
            known.insert(proc);
            for it in sending {
                let key = (it.ends.sock, it.ends.local, it.ends.remote);
                if seen.contains_key(&key) {
                    continue;
                }
                if seen.len() == KEPT {
                    self.gaps.insert("the target has more connections than are looked at");
                    break;
                }
                let sums = Sums {
                    busy: it.busy_jiffies,
                    window: it.window_jiffies,
                    buffer: it.buffer_jiffies,
                };
                seen.insert(key, sums);
                let is_known = self.known.contains(&proc);
                let before = self.seen.get(&key).copied().or(is_known.then(Sums::default));
                let Some(before) = before else { continue };
                let tick = tick(&it, proc, sums.since(before), ns_per_jiffy, (t0_ns, t1_ns));
                if tick.window_ns + tick.buffer_ns > 0 {
                    ticks.push(Held { pid, ends: it.ends, tick });
                }
            }
        }
        (self.seen, self.known) = (seen, known);
        ticks
    }

    /// Which of them the other end had asked for.
    fn note_who_asked(&mut self, cx: &Context, all: &mut [Held]) {
        let asked = all.iter().map(|it| (it.pid, it.port()));
        let asked = asked.filter(|(pid, port)| self.listening.has(*pid, *port).is_none()).collect();
        self.listening.look(&cx.roots, &asked);
        self.listening.second(&all.iter().map(|it| it.pid).collect());
        for it in all {
            it.tick.accepted = self.listening.has(it.pid, it.port());
        }
    }
}

/// A connection that was held up.
#[derive(Debug)]
struct Held {
    pid: u32,
    ends: Ends,
    tick: SendingTick,
}

impl Held {
    fn port(&self) -> u16 {
        self.ends.local.port()
    }
}

impl Sums {
    /// What was added since. No lock was held: a sum may have been read before a state's time was added to it, and then be
    /// smaller than it was.
    fn since(self, before: Self) -> Self {
        let more = |now: u32, before: u32| {
            u32::try_from(now.wrapping_sub(before).cast_signed()).unwrap_or(0)
        };
        Self {
            busy: more(self.busy, before.busy),
            window: more(self.window, before.window),
            buffer: more(self.buffer, before.buffer),
        }
    }
}

fn tick(
    it: &Sending,
    proc: ProcId,
    sums: Sums,
    ns_per_jiffy: u64,
    (t0_ns, t1_ns): (u64, u64),
) -> SendingTick {
    let ns = |jiffies: u32| u64::from(jiffies).saturating_mul(ns_per_jiffy);
    // A connection may be older than its process: what came before the last look does not count.
    let busy_ns = ns(sums.busy).min(t1_ns.saturating_sub(t0_ns));
    let window_ns = ns(sums.window).min(busy_ns);
    SendingTick {
        t0_ns,
        t1_ns,
        proc: Some(proc),
        netns: it.ends.netns,
        local: Some(it.ends.local.to_string()),
        remote: Some(it.ends.remote.to_string()),
        peer: None,
        connections: 1,
        accepted: None,
        busy_ns,
        window_ns,
        buffer_ns: ns(sums.buffer).min(busy_ns - window_ns),
        srtt_ns: (it.srtt_ns > 0).then_some(it.srtt_ns),
        window_bytes: it.window_bytes.into(),
        buffer_bytes: it.buffer_bytes.into(),
        waiting_bytes: it.waiting_bytes.into(),
    }
}

/// The ticks of those that were held up longest; of the others, sums of those of each process that were accepted, and of
/// those that were not.
fn summed_up(mut all: Vec<SendingTick>) -> Vec<SendingTick> {
    all.sort_by(|a, b| {
        let held = |it: &SendingTick| Reverse(it.window_ns + it.buffer_ns);
        held(a).cmp(&held(b)).then_with(|| (&a.local, &a.remote).cmp(&(&b.local, &b.remote)))
    });
    let rest = all.split_off(all.len().min(RECORDS));
    let mut sums: Vec<SendingTick> = Vec::new();
    for it in rest {
        let same = |sum: &&mut SendingTick| (sum.proc, sum.accepted) == (it.proc, it.accepted);
        match sums.iter_mut().find(same) {
            Some(sum) => {
                sum.connections += 1;
                sum.busy_ns += it.busy_ns;
                sum.window_ns += it.window_ns;
                sum.buffer_ns += it.buffer_ns;
                sum.waiting_bytes += it.waiting_bytes;
            }
            None => sums.push(SendingTick {
                netns: None,
                local: None,
                remote: None,
                peer: None,
                srtt_ns: None,
                window_bytes: 0,
                buffer_bytes: 0,
                ..it
            }),
        }
    }
    all.extend(sums);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use deburr_bpf::net::Ends;
    use std::net::SocketAddr;

    const MS: u64 = 1_000_000;
    const S: u64 = 1000 * MS;

    fn sending(port: u16, busy: u32, window: u32, buffer: u32) -> Sending {
        Sending {
            ends: Ends {
                sock: u64::from(port),
                inode: Some(17),
                netns: Some(7),
                local: SocketAddr::from(([10, 0, 0, 1], port)),
                remote: SocketAddr::from(([10, 0, 0, 2], 5432)),
            },
            busy_jiffies: busy,
            window_jiffies: window,
            buffer_jiffies: buffer,
            srtt_ns: 0,
            window_bytes: 65_536,
            buffer_bytes: 87_040,
            waiting_bytes: 9,
        }
    }

    fn told(of: &mut Senders, t_s: u64, proc: u32, all: Vec<Sending>) -> Vec<(u64, u64, u64)> {
        let ticks = of.take(vec![(7, ProcId(proc), all)], t_s * S, 4 * MS);
        let ms = |it: &SendingTick| (it.busy_ns / MS, it.window_ns / MS, it.buffer_ns / MS);
        ticks.iter().map(|it| ms(&it.tick)).collect()
    }

    #[test]
    fn what_came_before_the_first_look_at_a_process_is_not_told() {
        let mut of = Senders::default();
        assert!(told(&mut of, 0, 1, vec![sending(1, 900, 800, 0)]).is_empty());
        // One that went on, and one that was made since.
        let all = vec![sending(1, 1000, 850, 20), sending(2, 50, 40, 0)];
        assert_eq!(told(&mut of, 1, 1, all), [(400, 200, 80), (200, 160, 0)]);
        // Of another process, which had it before deburr saw it.
        assert!(told(&mut of, 2, 9, vec![sending(3, 900, 800, 0)]).is_empty());
    }

    #[test]
    fn no_more_is_told_than_the_time_that_passed() {
        let mut of = Senders::default();
        told(&mut of, 0, 1, vec![]);
        // It was handed over by another process.
        assert_eq!(told(&mut of, 1, 1, vec![sending(1, 9000, 200, 8000)]), [(1000, 800, 200)]);
        // Read between two states: a jiffy less than before.
        assert!(told(&mut of, 2, 1, vec![sending(1, 9001, 199, 8000)]).is_empty());
    }

    #[test]
    fn counters_wrap_around() {
        let mut of = Senders::default();
        told(&mut of, 0, 1, vec![sending(1, u32::MAX - 9, u32::MAX - 4, 0)]);
        assert_eq!(told(&mut of, 1, 1, vec![sending(1, 90, 20, 0)]), [(400, 100, 0)]);
    }

    #[test]
    fn a_connection_of_several_processes_is_told_once() {
        let mut of = Senders::default();
        let both = |it: Sending| vec![(7, ProcId(1), vec![it]), (8, ProcId(2), vec![it])];
        of.take(both(sending(1, 0, 0, 0)), 0, 4 * MS);
        let ticks = of.take(both(sending(1, 50, 50, 0)), S, 4 * MS);
        assert_eq!(ticks.len(), 1, "{ticks:?}");
    }

    #[test]
    fn of_many_connections_nothing_is_lost() {
        let ticks = |n: u64| {
            let of = |n| SendingTick {
                proc: Some(ProcId((n % 2) as u32)),
                local: Some(format!("10.0.0.1:{n}")),
                connections: 1,
                accepted: (n % 3 > 0).then_some(n % 3 > 1),
                busy_ns: 2 * n,
                window_ns: n,
                ..SendingTick::default()
            };
            summed_up((1..=n).map(of).collect())
        };
        let all = ticks(1000);
        assert_eq!(all.len(), RECORDS + 6);
        assert_eq!(all.iter().map(|it| it.connections).sum::<u64>(), 1000);
        assert_eq!(all.iter().map(|it| it.window_ns).sum::<u64>(), 500_500);
        assert_eq!(all[0].local.as_deref(), Some("10.0.0.1:1000"));
        assert!(all[RECORDS..].iter().all(|it| it.local.is_none()));
    }
}
