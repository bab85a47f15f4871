// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What connections of TCP had to send again, and by what they were held up at least.

use super::owners::Owners;
use deburr_bpf::net::{Resent, Trigger};
use deburr_core::recording::{ProcId, ResentTick};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Connections that are kept apart. Of further ones only the sums are known.
const KEPT: usize = 4096;
/// Connections that have a record of their own in a second.
const RECORDS: usize = 64;
/// Seconds after which a connection that sends nothing again is forgotten.
const FORGOTTEN_AFTER_S: u32 = 60;

/// A connection: the socket's address in the kernel may be that of another socket later.
pub(super) type Key = (u64, SocketAddr, SocketAddr);

#[derive(Debug, Default)]
struct Kept {
    tick: ResentTick,
    inode: Option<u64>,
    proc: Option<ProcId>,
    /// The kernel's count of segments that were sent again, when it was last seen.
    total: Option<u32>,
    /// What is sent again from here on was not sent yet when the last loss was noticed.
    new_from: Option<u32>,
    last_timeout_ns: Option<u64>,
    quiet_s: u32,
}

#[derive(Debug, Default)]
pub(super) struct Connections {
    kept: BTreeMap<Key, Kept>,
    /// Sums of those that are not kept.
    others: ResentTick,
}

impl Connections {
    /// Takes something that was sent again.
    pub(super) fn push(&mut self, it: &Resent) {
        let key = (it.ends.sock, it.ends.local, it.ends.remote);
        if self.kept.len() >= KEPT && !self.kept.contains_key(&key) {
            // What came before is not known: nothing but this is counted.
            let mut one = Kept::default();
            one.push(it);
            add(&mut self.others, &one.tick);
            self.others.connections += 1;
            return;
        }
        self.kept.entry(key).or_default().push(it);
    }

    /// Sockets of the connections that sent again since the last record and whose owner is not known.
    pub(super) fn unowned(&self) -> impl Iterator<Item = u64> {
        let asked = self.kept.values().filter(|it| it.tick.times > 0 && it.proc.is_none());
        asked.filter_map(|it| it.inode)
    }

    /// Notes who has them open, as far as it is known.
    pub(super) fn owned_by(&mut self, owners: &Owners) {
        for it in self.kept.values_mut().filter(|it| it.proc.is_none()) {
            it.proc = it.inode.and_then(|inode| owners.of(inode));
        }
    }

    /// The ticks of the second that ends: those of the connections that were held up longest, and the sums of the others.
    pub(super) fn take(&mut self, t0_ns: u64, t1_ns: u64) -> Vec<ResentTick> {
        let mut all = Vec::new();
        for ((_, local, remote), it) in &mut self.kept {
            if it.tick.times == 0 {
                it.quiet_s += 1;
                continue;
            }
            it.quiet_s = 0;
            let tick = std::mem::take(&mut it.tick);
            let (local, remote) = (Some(local.to_string()), Some(remote.to_string()));
            all.push(ResentTick { proc: it.proc, local, remote, connections: 1, ..tick });
        }
        self.kept.retain(|_, it| it.quiet_s < FORGOTTEN_AFTER_S);
        let held_ns = |it: &ResentTick| it.timeout_ns.saturating_add(it.recovery_ns);
        all.sort_by(|a, b| {
            let key = |it: &ResentTick| (Reverse(held_ns(it)), Reverse(it.times));
            key(a).cmp(&key(b)).then_with(|| (&a.local, &a.remote).cmp(&(&b.local, &b.remote)))
        });
        let mut others: BTreeMap<Option<ProcId>, ResentTick> = BTreeMap::new();
        let unkept = std::mem::take(&mut self.others);
        for tick in all.drain(all.len().min(RECORDS)..).chain((unkept.times > 0).then_some(unkept))
        {
            let sum = others.entry(tick.proc).or_default();
            add(sum, &tick);
            sum.connections += tick.connections;
        }
        let several = |(proc, sum): (Option<ProcId>, ResentTick)| ResentTick {
            proc,
            netns: None,
            srtt_ns: None,
            data_segments: 0,
            total_segments: 0,
            ..sum
        };
        all.extend(others.into_iter().map(several));
        all.into_iter().map(|tick| ResentTick { t0_ns, t1_ns, ..tick }).collect()
    }
}

impl Kept {
    fn push(&mut self, it: &Resent) {
        let before = self.total.unwrap_or_else(|| it.total_retrans.wrapping_sub(it.segs));
        // CPUs are read one after the other: what is older may come later.
        let more = u32::try_from(it.total_retrans.wrapping_sub(before).cast_signed()).ok();
        self.inode = it.ends.inode.or(self.inode);
        let tick = &mut self.tick;
        tick.netns = it.ends.netns.or(tick.netns);
        tick.times += 1;
        tick.segments += u64::from(more.unwrap_or(0));
        tick.dropped_here += u64::from(it.failed);
        tick.requests += u64::from(it.connecting);
        tick.srtt_ns = (it.srtt_ns > 0).then_some(it.srtt_ns).or(tick.srtt_ns);
        tick.rto_ns = tick.rto_ns.max(it.rto_ns);
        if more.is_some() {
            self.total = Some(it.total_retrans);
            tick.data_segments = it.data_segs_out.into();
            tick.total_segments = it.total_retrans.into();
        }
        let is_new = |from: u32| it.seq.wrapping_sub(from).cast_signed() >= 0;
        match it.trigger {
            Trigger::Timeout { waited_ns } => {
                // After a segment that this host dropped the kernel waits for less than it has set.
                let since = self.last_timeout_ns.replace(it.t_ns);
                let most_ns = since.map_or(u64::MAX, |since| it.t_ns.saturating_sub(since));
                tick.timeouts += 1;
                tick.timeout_ns += waited_ns.min(most_ns);
                self.new_from = Some(it.snd_nxt);
            }
            Trigger::Probe => tick.probes += 1,
            Trigger::Answer if self.new_from.is_none_or(is_new) => {
                tick.recoveries += 1;
                tick.recovery_ns += it.srtt_ns;
                self.new_from = Some(it.snd_nxt);
            }
            Trigger::Answer => {}
        }
    }
}

/// Adds what can be summed, except the number of connections.
fn add(sum: &mut ResentTick, more: &ResentTick) {
    sum.times += more.times;
    sum.dropped_here += more.dropped_here;
    sum.requests += more.requests;
    sum.timeouts += more.timeouts;
    sum.timeout_ns += more.timeout_ns;
    sum.probes += more.probes;
    sum.recoveries += more.recoveries;
    sum.recovery_ns += more.recovery_ns;
    sum.segments += more.segments;
    sum.rto_ns = sum.rto_ns.max(more.rto_ns);
}

#[cfg(test)]
mod tests {
    use super::*;
    use deburr_bpf::net::Ends;

    const MS: u64 = 1_000_000;

    fn resent(sock: u64, t_ms: u64, seq: u32, trigger: Trigger) -> Resent {
        Resent {
            t_ns: t_ms * MS,
            ends: Ends {
                sock,
                inode: None,
                netns: None,
                local: SocketAddr::from(([10, 0, 0, 1], 80)),
                remote: SocketAddr::from(([10, 0, 0, 2], 5000)),
            },
            trigger,
            srtt_ns: 10 * MS,
            rto_ns: 200 * MS,
            total_retrans: 1,
            data_segs_out: 100,
            segs: 1,
            seq,
            snd_nxt: seq.wrapping_add(5000),
            connecting: false,
            failed: false,
        }
    }

    fn timeout(waited_ms: u64) -> Trigger {
        Trigger::Timeout { waited_ns: waited_ms * MS }
    }

    #[test]
    fn each_timeout_counts_with_what_its_timer_waited() {
        let mut connections = Connections::default();
        let mut total = 0;
        for (t_ms, waited_ms) in [(200, 200), (600, 400), (1400, 800)] {
            total += 2;
            let it = Resent { total_retrans: total, ..resent(1, t_ms, 0, timeout(waited_ms)) };
            connections.push(&Resent { segs: 2, ..it });
        }
        // The kernel tried again sooner, because this host had dropped the one before.
        connections.push(&Resent { total_retrans: 8, ..resent(1, 1900, 0, timeout(800)) });
        let [tick] = &connections.take(0, 2000 * MS)[..] else { panic!() };
        assert_eq!((tick.timeouts, tick.timeout_ns), (4, (200 + 400 + 800 + 500) * MS));
        assert_eq!((tick.times, tick.segments, tick.total_segments), (4, 8, 8));
        assert!(connections.take(2000 * MS, 3000 * MS).is_empty());
    }

    #[test]
    fn what_is_older_may_come_later() {
        let mut connections = Connections::default();
        for total in [5, 4, 6] {
            let it = resent(1, total, 0, Trigger::Probe);
            connections.push(&Resent { total_retrans: u32::MAX.wrapping_add(total as u32), ..it });
        }
        let [tick] = &connections.take(0, 100 * MS)[..] else { panic!() };
        assert_eq!((tick.times, tick.segments, tick.total_segments), (3, 2, 5));
    }

    #[test]
    fn losses_that_answers_show_cost_a_round_trip_each_time_and_not_each_segment() {
        let mut connections = Connections::default();
        // Numbers wrap around.
        for seq in [u32::MAX - 100, u32::MAX - 50, 0, 4000] {
            connections.push(&resent(1, 10, seq, Trigger::Answer));
        }
        // Sent after the first loss was noticed: another one.
        connections.push(&resent(1, 30, 4900, Trigger::Answer));
        connections.push(&resent(1, 30, 4950, Trigger::Answer));
        let [tick] = &connections.take(0, 100 * MS)[..] else { panic!() };
        assert_eq!((tick.times, tick.recoveries, tick.recovery_ns), (6, 2, 20 * MS));
    }

    #[test]
    fn what_follows_a_timeout_is_part_of_it() {
        let mut connections = Connections::default();
        connections.push(&resent(1, 200, 1000, timeout(200)));
        connections.push(&resent(1, 210, 2000, Trigger::Answer));
        let [tick] = &connections.take(0, 100 * MS)[..] else { panic!() };
        assert_eq!((tick.timeouts, tick.recoveries), (1, 0));
    }

    #[test]
    fn of_many_connections_nothing_is_lost() {
        let mut connections = Connections::default();
        for sock in 0..KEPT as u64 + 100 {
            connections.push(&resent(sock, 200, 0, timeout(1 + sock % 7)));
        }
        let ticks = connections.take(0, 1000 * MS);
        assert_eq!(ticks.len(), RECORDS + 1);
        assert_eq!(ticks.iter().map(|it| it.connections).sum::<u64>(), KEPT as u64 + 100);
        let waited: u64 = (0..KEPT as u64 + 100).map(|sock| (1 + sock % 7) * MS).sum();
        assert_eq!(ticks.iter().map(|it| it.timeout_ns).sum::<u64>(), waited);
        assert!(ticks[..RECORDS].iter().all(|it| it.timeout_ns == 7 * MS));
        assert_eq!(ticks[RECORDS].local, None);
    }
}
