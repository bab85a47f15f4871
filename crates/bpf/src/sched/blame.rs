// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which processes the threads of each process waited behind, epoch by epoch.

use super::SchedProbe;
use crate::mapped::Plain;
use crate::skel::sched::types::{sched_area, sched_blame, sched_thread, sched_waits};
use libbpf_rs::{MapCore as _, MapFlags};
use std::collections::{BTreeMap, HashMap};
use std::mem::offset_of;

// SAFETY: generated from a C struct of integers.
unsafe impl Plain for sched_blame {}
// SAFETY: an array of such.
unsafe impl Plain for [sched_blame; 2] {}

/// What a thread waited behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProbeCulprit {
    /// The process with this thread-group id, which ran meanwhile.
    Process(u32),
    /// No process: the CPU was idle, or waking up.
    Idle,
    /// Not known: the thread waited on another CPU's run queue.
    Migrated,
    /// Not looked up: carried over to a later look-up that is within budget, or out of memory.
    NotSampled,
}

/// Sums over the threads of each process: (victim's thread-group id, culprit) -> nanoseconds.
pub type Sums = BTreeMap<(u32, ProbeCulprit), u64>;

/// Reader of blame: remembers what it has read from the spill map.
#[derive(Debug, Default)]
pub struct Blame {
    spilled: HashMap<(u32, u32), u64>,
    spills: u64,
}

/// The spill map is emptied one epoch after it held more than this many pairs; its capacity is 16
/// 384. All pairs are read each epoch: where a process waits behind thousands of short-lived ones,
/// this limits how long ended ones are read.
const SPILL_LIMIT: usize = 500;

impl Blame {
    /// Blame in the epoch that [`SchedProbe::end_epoch`] just ended.
    pub fn of_epoch(&mut self, probe: &SchedProbe, epoch: u32) -> Sums {
        let mut sums = Sums::new();
        let index = (epoch & 1) as usize;
        let at = offset_of!(sched_waits, blame) + index * size_of::<sched_blame>();
        for slot in 0..probe.threads.len() {
            let victim = probe.threads.u32(slot, offset_of!(sched_thread, tgid));
            let written_in = || probe.waits.u32(slot, at + offset_of!(sched_blame, epoch));
            if victim == 0 || written_in() != Some(epoch) {
                continue;
            }
            if let Some(blame) = probe.waits.peek(slot, at) {
                add(&mut sums, victim, &blame);
            }
        }
        for entry in probe.overflow_entries() {
            let blame = &entry.waits.blame[index];
            if blame.epoch == epoch {
                add(&mut sums, entry.thread.tgid, blame);
            }
        }
        self.add_spilled(probe, &mut sums);
        sums
    }

    fn add_spilled(&mut self, probe: &SchedProbe, sums: &mut Sums) {
        let spills = probe.sum_of(offset_of!(sched_area, cpu.spills));
        if spills == self.spills && self.spilled.is_empty() {
            return;
        }
        self.spills = spills;
        let map = &probe.object.skel.maps.spill;
        // With room for all pairs a single call reads them; one by one, each would take two calls.
        let room = map.max_entries();
        let full = self.spilled.len() > SPILL_LIMIT;
        let read = if full {
            map.lookup_and_delete_batch(room, MapFlags::ANY, MapFlags::ANY)
        } else {
            map.lookup_batch(room, MapFlags::ANY, MapFlags::ANY)
        };
        for (key, value) in read.into_iter().flatten() {
            let word = |at: usize| {
                key.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_ne_bytes)
            };
            let total = value.try_into().map(u64::from_ne_bytes);
            let (Ok(total), Some(victim), Some(culprit)) = (total, word(0), word(4)) else {
                continue;
            };
            let pair = (victim, culprit);
            let before = self.spilled.insert(pair, total).unwrap_or(0);
            if let Some(new) = total.checked_sub(before).filter(|&ns| ns > 0) {
                *sums.entry((pair.0, ProbeCulprit::Process(pair.1))).or_insert(0) += new;
            }
        }
        if full {
            self.spilled.clear();
        }
    }
}

fn add(sums: &mut Sums, victim: u32, blame: &sched_blame) {
    let mut put = |behind, ns| {
        if ns > 0 {
            *sums.entry((victim, behind)).or_insert(0) += ns;
        }
    };
    for culprit in blame.culprit {
        put(ProbeCulprit::Process(culprit.tgid), culprit.ns);
    }
    put(ProbeCulprit::Idle, blame.wakeup_ns);
    put(ProbeCulprit::Migrated, blame.migrated_ns);
    put(ProbeCulprit::NotSampled, blame.unsampled_ns);
}
