// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which processes of this host have the other ends of the target's connections open.

use super::super::{Context, Emit, ObservedProcess};
use crate::clock::thread_cpu_time_ns;
use deburr_bpf::net::{Ends, MOST_ASKED, NetProbe};
use deburr_core::recording::ProcId;
use std::collections::HashMap;
use std::net::SocketAddr;

/// Part of a CPU that looking may take: one look at a million open files takes a tenth of a second.
const ONE_IN: u64 = 200;
/// After so long it is looked again for an end that nobody was found to have open.
const NOBODYS_FOR_NS: u64 = 10_000_000_000;
/// Connections that are remembered.
const KEPT: usize = 4096;

/// A connection, by its two addresses and the namespace of its own.
type Key = (Option<u32>, SocketAddr, SocketAddr);

#[derive(Debug, Default)]
pub(super) struct OtherEnds {
    /// Who has the other end open; `None` = nobody was found, and when.
    known: HashMap<Key, (Option<ProcId>, u64)>,
    /// Not before this time.
    next_ns: u64,
}

impl OtherEnds {
    /// Looks for the other ends of these connections, those first that come first, unless the last look is too recent for
    /// what it took.
    pub(super) fn find(
        &mut self,
        probe: &NetProbe,
        cx: &mut Context,
        t_ns: u64,
        connections: impl Iterator<Item = Ends>,
        emit: Emit<'_>,
    ) {
        let mut asked: Vec<Ends> = connections.filter(|it| self.is_due(it, t_ns)).collect();
        asked.truncate(MOST_ASKED);
        if asked.is_empty() || t_ns < self.next_ns || !cx.has_target {
            return;
        }
        if self.known.len() + asked.len() > KEPT {
            self.known.clear();
        }
        let begin_ns = thread_cpu_time_ns();
        // A kernel that lacks the iteration has no other way, either.
        let found = probe.other_ends(&asked).unwrap_or_default();
        for (it, pid) in asked.iter().zip(found) {
            let proc = pid.map(|pid| {
                let sighting = ObservedProcess { pid, ..ObservedProcess::default() };
                let Context { processes, roots, cgroups, target, .. } = &mut *cx;
                processes.intern(roots, cgroups, target, sighting, &mut *emit)
            });
            self.known.insert(key(it), (proc, t_ns));
        }
        let took_ns = thread_cpu_time_ns().saturating_sub(begin_ns);
        self.next_ns = t_ns.saturating_add(took_ns.saturating_mul(ONE_IN));
    }

    fn is_due(&self, it: &Ends, t_ns: u64) -> bool {
        match self.known.get(&key(it)) {
            None => true,
            Some((Some(_), _)) => false,
            Some((None, since_ns)) => t_ns.saturating_sub(*since_ns) >= NOBODYS_FOR_NS,
        }
    }

    /// The process that has the other end open, as far as it is known.
    pub(super) fn of(&self, it: &Ends) -> Option<ProcId> {
        self.known.get(&key(it))?.0
    }
}

fn key(it: &Ends) -> Key {
    (it.netns, it.local, it.remote)
}
