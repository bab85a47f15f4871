// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who was seen: gives every process of the session its identity and emits its facts.

use super::{Cgroups, Emit, Roots};
use deburr_core::recording::{CgroupId, ProcId, TargetSpec};

/// What a collector knows of a process when it meets it. Facts that it does not know are read from `/proc`,
/// if the process is still there.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sighting<'a> {
    /// Thread-group id.
    pub(crate) pid: u32,
    /// Start time of the *process* (main thread) in nanoseconds of the boot clock, if known. With it, reuse of
    /// the pid is told apart without a look into `/proc`.
    pub(crate) start_ns: Option<u64>,
    /// Comm of the main thread as the kernel has it now, if known.
    pub(crate) comm: Option<&'a [u8]>,
    /// Its cgroup in the tree of the cpu controller, if known.
    pub(crate) cgroup: Option<CgroupId>,
}

/// The processes of the session.
#[derive(Debug, Default)]
pub(crate) struct Processes {}

impl Processes {
    /// Identity of that process. Emits `Record::Process` at first sight and when a fact that is in `sighting`
    /// differs from what was emitted last (exec, rename, move).
    pub(crate) fn intern(
        &mut self,
        roots: &Roots,
        cgroups: &mut Cgroups,
        target: &TargetSpec,
        sighting: Sighting<'_>,
        emit: Emit<'_>,
    ) -> ProcId {
        let _ = (roots, cgroups, target, emit);
        ProcId(sighting.pid)
    }

    /// Whether that process belongs to the target.
    pub(crate) fn in_target(&self, id: ProcId) -> bool {
        let _ = id;
        true
    }
}
