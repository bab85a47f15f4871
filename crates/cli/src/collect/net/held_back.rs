// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which connections of the target hold back the end of what their program sent.

use super::super::Emit;
use super::connections::Key;
use deburr_bpf::net::{HeldBack, Unread};
use deburr_core::recording::{HeldBackTick, ProcId, Record};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Records in a second: of the connections that held back longest.
const CONNECTIONS: usize = 64;
/// Connections of which it is kept what they had sent and received when they held something back.
const KEPT: usize = 16_384;
/// Connections are forgotten that have held nothing back for as long.
const FORGOTTEN_NS: u64 = 60_000_000_000;
/// What came before must have been sent so long ago: where the other end confirms at once, something is always held back for a moment.
const LEAST_AGE_NS: u64 = 4_000_000;

/// A connection when it was last seen to hold something back.
#[derive(Clone, Copy, Debug)]
struct Before {
    answers: Option<u32>,
    sent: u32,
    /// It has gone on without an answer: nobody waits for one.
    is_stream: bool,
    seen_ns: u64,
}

#[derive(Debug, Default)]
pub(super) struct HeldBacks {
    before: HashMap<Key, Before>,
    /// Of some connections it was not kept.
    is_full: bool,
    /// What was held back since the last records.
    held: BTreeMap<(ProcId, String, String), HeldBackTick>,
}

impl HeldBacks {
    /// Adds what was found at a look at that time, which stands for the time since the one before. Processes may share a socket.
    pub(super) fn found(
        &mut self,
        all: &[(ProcId, Unread)],
        (t_ns, span_ns): (u64, u64),
        ns_per_jiffy: u64,
    ) {
        let mut seen = HashSet::new();
        for (proc, unread) in all {
            for it in &unread.held_back {
                // The age is up to a jiffy too large.
                let is_old = it.age_ns >= LEAST_AGE_NS + ns_per_jiffy;
                if seen.insert(it.ends.sock) && self.is_question(it, t_ns) && is_old {
                    self.add(*proc, it, span_ns);
                }
            }
        }
    }

    /// Whether the end of a question, or of an answer, is held back. Whoever sends on before anything came back does not wait for
    /// it.
    fn is_question(&mut self, it: &HeldBack, seen_ns: u64) -> bool {
        let key = (it.ends.sock, it.ends.local, it.ends.remote);
        let before = self.before.get(&key).copied();
        // What was held back of a stream before is not asked anew by an answer to it.
        let was_stream = before.is_some_and(|before| before.is_stream);
        let is_new = before.is_none_or(|before| before.answers != it.answers);
        let went_on = before.is_some_and(|before| before.is_stream || before.sent != it.sent);
        let is_stream = !is_new && went_on;
        if before.is_none() && self.before.len() >= KEPT {
            self.is_full = true;
            return false;
        }
        self.before.insert(key, Before { answers: it.answers, sent: it.sent, is_stream, seen_ns });
        it.answers.is_some() && !is_stream && !was_stream
    }

    fn add(&mut self, proc: ProcId, it: &HeldBack, span_ns: u64) {
        let (local, remote) = (it.ends.local.to_string(), it.ends.remote.to_string());
        let key = (proc, local, remote);
        let tick = self.held.entry(key).or_default();
        tick.held_looks += 1;
        tick.corked_looks += u64::from(it.corked);
        tick.held_ns += span_ns;
        // With a cork nothing need have been sent before.
        if !it.corked {
            tick.longest_ns = tick.longest_ns.max(it.age_ns);
        }
        tick.most_bytes = tick.most_bytes.max(it.unsent_bytes.into());
    }

    /// Emits what was found since the last records, in so many looks. Returns whether more connections held something back than
    /// are recorded.
    pub(super) fn second(
        &mut self,
        (t0_ns, t1_ns): (u64, u64),
        looks: u64,
        emit: Emit<'_>,
    ) -> bool {
        let mut all: Vec<_> = std::mem::take(&mut self.held).into_iter().collect();
        let too_many = all.len() > CONNECTIONS || std::mem::take(&mut self.is_full);
        self.before.retain(|_, before| before.seen_ns.saturating_add(FORGOTTEN_NS) > t1_ns);
        all.sort_by_key(|(_, it)| Reverse(it.held_ns));
        all.truncate(CONNECTIONS);
        for ((proc, local, remote), tick) in all {
            let proc = Some(proc);
            emit(Record::HeldBack(Box::new(HeldBackTick {
                t0_ns,
                t1_ns,
                proc,
                local,
                remote,
                looks,
                ..tick
            })));
        }
        too_many
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use deburr_bpf::net::Ends;
    use std::net::SocketAddr;

    const MS: u64 = 1_000_000;

    /// A connection that holds something back, after so many answers, with so many bytes sent.
    fn held(sock: u64, answers: u32, sent: u32) -> HeldBack {
        let local = SocketAddr::from(([127, 0, 0, 1], 40_000 + (sock % 1000) as u16));
        let remote = SocketAddr::from(([127, 0, 0, 1], 80));
        let ends = Ends { sock, inode: Some(17), netns: Some(7), local, remote };
        let answers = Some(answers).filter(|&answers| answers > 0);
        HeldBack { ends, corked: sock == 9, unsent_bytes: 200, age_ns: 30 * MS, answers, sent }
    }

    /// Number of looks at which the first connection held back what somebody waits for.
    fn counted(looks: &[HeldBack]) -> u64 {
        let mut of = HeldBacks::default();
        for it in looks {
            let unread = Unread { held_back: vec![*it], ..Unread::default() };
            // Of two processes that share it, as after a fork.
            of.found(&[(ProcId(1), unread.clone()), (ProcId(2), unread)], (0, 100 * MS), MS);
        }
        let mut all = Vec::new();
        of.second((0, 1000 * MS), 10, &mut |record| match record {
            Record::HeldBack(tick) => all.push(*tick),
            other => panic!("{other:?}"),
        });
        assert!(all.len() <= 1, "{all:?}");
        all.first().map_or(0, |it| {
            assert_eq!((it.proc, it.remote.as_str()), (Some(ProcId(1)), "127.0.0.1:80"));
            assert_eq!((it.held_ns, it.looks), (it.held_looks * 100 * MS, 10));
            assert_eq!((it.longest_ns, it.most_bytes), (30 * MS, 200));
            it.held_looks
        })
    }

    #[test]
    fn who_asks_again_after_each_answer_waits_for_what_is_held_back() {
        assert_eq!(counted(&[held(1, 1, 300), held(1, 101, 600), held(1, 201, 900)]), 3);
        // Seen twice while the same end is held back.
        assert_eq!(counted(&[held(1, 1, 300), held(1, 1, 300), held(1, 201, 900)]), 3);
    }

    #[test]
    fn who_sends_on_without_an_answer_waits_for_nothing() {
        assert_eq!(counted(&[held(1, 0, 300), held(1, 0, 300)]), 0);
        // The first look cannot tell.
        let stream: Vec<HeldBack> = (0..20).map(|n| held(1, 1, 300 * n)).collect();
        assert_eq!(counted(&stream), 1);
        // Until something comes back.
        let answered = [stream, vec![held(1, 2, 6000), held(1, 2, 6000)]].concat();
        assert_eq!(counted(&answered), 2);
        // Seven looks for each answer.
        let seldom: Vec<HeldBack> = (0..70).map(|n| held(1, 1 + n / 7, 300 * n)).collect();
        assert_eq!(counted(&seldom), 1);
    }

    /// As of a stream whose other end confirms at once.
    #[test]
    fn what_was_just_sent_is_not_held_back() {
        let of = |age_ms| counted(&[HeldBack { age_ns: age_ms * MS, ..held(1, 1, 300) }; 3]);
        assert_eq!(of(4), 0);
    }

    #[test]
    fn of_more_connections_than_are_kept_none_counts_by_mistake() {
        let mut of = HeldBacks::default();
        let mut look = |sock: u64, t_ns| of.is_question(&held(sock, 1, 2), t_ns);
        assert!((0..KEPT as u64).all(|sock| look(sock, 5)));
        assert!(!look(KEPT as u64, 6) && look(7, 6));
        let second = |of: &mut HeldBacks, t1_ns| of.second((0, t1_ns), 10, &mut |_| {});
        assert!(second(&mut of, 7));
        assert!(!second(&mut of, FORGOTTEN_NS + 5));
        assert_eq!(of.before.len(), 1, "the others have held nothing back for long");
    }

    #[test]
    fn what_a_program_asked_for_is_told_apart() {
        let mut of = HeldBacks::default();
        let unread = Unread { held_back: vec![held(9, 1, 2), held(8, 1, 2)], ..Unread::default() };
        of.found(&[(ProcId(1), unread)], (0, 100 * MS), MS);
        let mut all = Vec::new();
        of.second((0, 1000 * MS), 10, &mut |record| match record {
            Record::HeldBack(tick) => all.push((tick.local, tick.corked_looks)),
            other => panic!("{other:?}"),
        });
        let of = |port: &str, corked| (format!("127.0.0.1:{port}"), corked);
        assert_eq!(all, [of("40008", 0), of("40009", 1)]);
    }
}
