// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that the threads of a scene free before they get some.

use super::Scene;
use crate::recording::{
    CgroupId, Coverage, MemoryBound, MemoryHeld, MemoryReading, ProcId, ReclaimKind, ReclaimTick,
    Record, Source, State,
};

/// So much time of a process, a quarter of it asleep for memory and half on a CPU, in a second of a scene that is counted
/// from 0. At a limit if there is a cgroup.
#[must_use]
pub fn reclaim(
    second: u64,
    proc: ProcId,
    cgroup: Option<CgroupId>,
    ns: u64,
    pages: u64,
) -> ReclaimTick {
    ReclaimTick {
        t0_ns: second * super::S,
        t1_ns: (second + 1) * super::S,
        proc,
        kernel: false,
        kind: if cgroup.is_some() { ReclaimKind::Limit } else { ReclaimKind::Direct },
        cgroup,
        bound: cgroup.map(|_| MemoryBound::Max),
        limit_bytes: cgroup.map(|_| 64 << 20),
        usage_bytes: cgroup.map(|_| (64 << 20) - 4096),
        ns,
        known_ns: ns,
        memory_ns: ns / 4,
        off_cpu_ns: ns / 2,
        count: 1 + pages / 32,
        longest_ns: ns.min(3 * super::MS),
        pages,
    }
}

impl Scene {
    /// The probe of reclaim sees everything.
    pub fn sees_reclaim(&mut self) -> &mut Self {
        let (source, state) = (Source::Reclaim, State::Active);
        self.push(Record::Coverage(Coverage { t_ns: 0, source, state }))
    }

    /// Adds what a process freed.
    pub fn reclaims(&mut self, tick: ReclaimTick) -> &mut Self {
        self.push(Record::Reclaim(Box::new(tick)))
    }

    /// Adds what a process holds of the host's memory at the end of the window, and what of that is more than at the start.
    pub fn holds(
        &mut self,
        proc: ProcId,
        anon_bytes: u64,
        grown_bytes: impl Into<Option<u64>>,
    ) -> &mut Self {
        let (t_ns, swapped_bytes, grown_bytes) = (self.window_ns, Some(0), grown_bytes.into());
        self.push(Record::Held(MemoryHeld { t_ns, proc, anon_bytes, swapped_bytes, grown_bytes }))
    }

    /// Adds the file pages that came back in the window, of a cgroup or of the host.
    pub fn refaults(&mut self, cgroup: Option<CgroupId>, pages: u64) -> &mut Self {
        for (t_ns, more) in [(0, 0), (self.window_ns, pages)] {
            self.push(Record::Memory(MemoryReading {
                t_ns,
                cgroup,
                refaults_file: Some(1000 + more),
                refaults_anon: Some(0),
                free_bytes: cgroup.is_none().then_some(2 << 30),
                low_bytes: cgroup.is_none().then_some(80 << 20),
                ..MemoryReading::default()
            }));
        }
        self
    }
}
