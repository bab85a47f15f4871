// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whom the waits of a process are told to be behind: the largest culprits by name, the others together.

use super::super::super::{Context, Emit};
use super::super::identity::fold;
use super::{Tally, sighting};
use deburr_bpf::sched::ProbeCulprit;
use deburr_core::recording::{Culprit, ProcId};
use std::collections::BTreeMap;

/// Number of a victim's culprits that are named, the largest; the others are summed by comm and cgroup.
pub(super) const CULPRITS: usize = 32;

impl Tally {
    /// Nanoseconds by culprit: the largest by their own identity, the rest summed.
    pub(super) fn culprits(
        &self,
        cx: &mut Context,
        blame: &BTreeMap<ProbeCulprit, u64>,
        emit: Emit<'_>,
    ) -> BTreeMap<Culprit, u64> {
        let mut largest: Vec<(ProbeCulprit, u64)> = blame.iter().map(|(&b, &ns)| (b, ns)).collect();
        let key = |&(behind, ns): &(ProbeCulprit, u64)| (std::cmp::Reverse(ns), behind);
        // A process that starts thousands of others may wait behind each of them.
        if largest.len() > CULPRITS {
            largest.select_nth_unstable_by_key(CULPRITS, key);
        }
        let named = largest.len().min(CULPRITS);
        largest[..named].sort_unstable_by_key(key);
        let mut sums = BTreeMap::new();
        for (rank, (behind, ns)) in largest.into_iter().enumerate() {
            let culprit = match behind {
                ProbeCulprit::Idle => continue,
                ProbeCulprit::Migrated => Culprit::Migrated,
                ProbeCulprit::NotSampled => Culprit::NotSampled,
                ProbeCulprit::Process(pid) => Culprit::Process(match self.leaders.get(&pid) {
                    Some(&leader) if rank < CULPRITS => self.identity(cx, (pid, leader), emit),
                    Some(&leader) => {
                        let key = (pid, leader);
                        fold(cx, sighting(key, self.accounts.get(&key)), emit)
                    }
                    None => ProcId::OTHERS,
                }),
            };
            *sums.entry(culprit).or_insert(0) += ns;
        }
        sums
    }
}
