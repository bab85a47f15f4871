// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes whose switches away from a CPU this kernel never reports.
//!
//! On some kernels no tracing program runs in the context of a protected process. When such a process gets a CPU, the
//! switch is seen in the context of the thread before it; when it leaves, no program runs. Those switches are not
//! counted as lost: they are missed every time, no better measurement would see them, and what other threads do is
//! known nevertheless.

use super::SchedProbe;
use crate::skel::sched::types::sched_thread;
use std::collections::BTreeMap;
use std::mem::offset_of;

/// Minimum number of times that a process must have left a CPU unseen, and never seen: once or twice may be chance.
pub(super) const MIN_TIMES: u64 = 3;
/// Maximum number of processes that are remembered; unseen switches of others count as lost.
const SUSPECTS: usize = 1024;

/// A process whose threads are never seen to leave a CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnseenProcess {
    /// Thread-group id.
    pub tgid: u32,
    /// Comm of its leader, or of another of its threads.
    pub comm: [u8; 16],
}

/// A process that has left a CPU unseen.
#[derive(Debug, Default)]
struct ProcessDepartures {
    comm: [u8; 16],
    /// Times its threads left a CPU unseen, as summed up in the current look; and the maximum over all looks, because
    /// the counts of threads that end disappear.
    times: u64,
    most: u64,
    /// It was also seen to leave a CPU: its unseen switches were lost.
    seen: bool,
}

/// What is known about processes that left a CPU unseen.
#[derive(Debug, Default)]
pub(super) struct UnseenDepartures {
    /// By tgid and start time of the process.
    suspects: BTreeMap<(u32, u64), ProcessDepartures>,
    /// Times that any thread left a CPU unseen, as read before the look at all threads.
    left_unseen: u64,
    missed: u64,
}

impl UnseenDepartures {
    /// A look at all threads begins. `left_unseen` = times that threads had left a CPU unseen before it.
    pub(super) fn begin_look(&mut self, left_unseen: u64) {
        self.left_unseen = left_unseen;
        for suspect in self.suspects.values_mut() {
            suspect.times = 0;
        }
    }

    /// Takes note of the thread in a slot, if it left a CPU unseen or its process may have.
    pub(super) fn see_slot(&mut self, probe: &SchedProbe, slot: usize) {
        let left_unseen = probe.threads.u32(slot, offset_of!(sched_thread, left_unseen));
        if left_unseen > 0 || !self.suspects.is_empty() {
            self.see(&probe.threads.peek(slot, 0));
        }
    }

    /// Takes note of a thread as it was read.
    fn see(&mut self, thread: &sched_thread) {
        let key = (thread.tgid, thread.leader_boot_ns);
        if thread.left_unseen > 0
            && (self.suspects.len() < SUSPECTS || self.suspects.contains_key(&key))
        {
            self.suspects.entry(key).or_default().times += u64::from(thread.left_unseen);
        }
        let Some(suspect) = self.suspects.get_mut(&key) else { return };
        if suspect.most == 0 || thread.tid == thread.tgid {
            suspect.comm = thread.comm;
        }
        suspect.most = suspect.most.max(suspect.times);
        // One more: it may have a CPU now, or have got another one before the CPU that it left detected that.
        suspect.seen |= thread.switches > thread.left_unseen.saturating_add(1);
    }

    /// The processes that this kernel never reports as leaving a CPU.
    pub(super) fn processes(&self) -> Vec<UnseenProcess> {
        let untold = self.suspects.iter().filter(|(_, it)| !it.seen && it.most >= MIN_TIMES);
        untold.map(|(&(tgid, _), it)| UnseenProcess { tgid, comm: it.comm }).collect()
    }

    /// Lost switches so far: all unseen ones, except those of processes that are never reported, and, before the
    /// `last` look, of those for which that is not certain yet. Switches missed during a look may be counted one look
    /// later; the result only grows.
    pub(super) fn missed(&mut self, last: bool) -> u64 {
        let no_loss = |it: &&ProcessDepartures| !it.seen && (!last || it.most >= MIN_TIMES);
        let excused: u64 = self.suspects.values().filter(no_loss).map(|it| it.most).sum();
        self.missed = self.missed.max(self.left_unseen.saturating_sub(excused));
        self.missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(tid: u32, tgid: u32, switches: u32, left_unseen: u32) -> sched_thread {
        sched_thread { tid, tgid, switches, left_unseen, ..sched_thread::default() }
    }

    fn after(looks: &[&[sched_thread]]) -> UnseenDepartures {
        let (mut untold, mut left_unseen) = (UnseenDepartures::default(), 0);
        for look in looks {
            untold
                .begin_look(left_unseen.max(look.iter().map(|it| u64::from(it.left_unseen)).sum()));
            left_unseen = untold.left_unseen;
            look.iter().for_each(|thread| untold.see(thread));
        }
        untold
    }

    fn tgids(untold: &UnseenDepartures) -> Vec<u32> {
        untold.processes().iter().map(|process| process.tgid).collect()
    }

    #[test]
    fn a_process_that_is_never_seen_to_leave_is_no_loss() {
        // One of its threads has a CPU at present.
        let mut untold = after(&[&[thread(1, 1, 2, 2), thread(7, 1, 6, 5), thread(9, 9, 40, 0)]]);
        assert_eq!((tgids(&untold), untold.missed(true)), (vec![1], 0));
        assert_eq!(untold.suspects[&(1, 0)].most, 7);
    }

    #[test]
    fn a_process_that_is_seen_at_other_times_has_lost_something() {
        let mut untold = after(&[&[thread(9, 9, 40, 3)]]);
        assert_eq!((tgids(&untold), untold.missed(false)), (vec![], 3));
        // Also if another of its threads, which was read before, was seen.
        let look: &[sched_thread] = &[thread(8, 9, 30, 0), thread(9, 9, 4, 4)];
        let mut untold = after(&[look, look]);
        assert_eq!((tgids(&untold), untold.missed(true)), (vec![], 4));
    }

    #[test]
    fn what_is_not_certain_is_a_loss_in_the_end() {
        let mut untold = after(&[&[thread(5, 5, 2, 2)]]);
        assert!(untold.processes().is_empty());
        assert_eq!((untold.missed(false), untold.missed(true)), (0, 2));
    }

    #[test]
    fn threads_that_ended_take_nothing_back() {
        let mut untold = after(&[&[thread(1, 1, 4, 4), thread(7, 1, 3, 3)], &[thread(1, 1, 5, 5)]]);
        assert_eq!((tgids(&untold), untold.missed(true)), (vec![1], 0));
    }

    #[test]
    fn only_so_many_processes_are_kept_in_mind() {
        let many: Vec<sched_thread> = (1..3000).map(|tid| thread(tid, tid, 3, 3)).collect();
        assert_eq!(after(&[&many]).processes().len(), SUSPECTS);
    }
}
