// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The identities of the processes that the probe saw.

use super::super::{Cgroups, Context, Emit, ObservedProcess};
use deburr_core::recording::ProcId;

/// The sighting with the cgroup that the probe's id means, which is emitted if it is new.
fn placed<'a>(
    cgroups: &mut Cgroups,
    sighting: ObservedProcess<'a>,
    emit: Emit<'_>,
) -> ObservedProcess<'a> {
    let cgroup = sighting.cgroup.and_then(|id| cgroups.of_task_group(id));
    if let Some(id) = cgroup {
        cgroups.sight(id, emit);
    }
    ObservedProcess { cgroup, ..sighting }
}

/// The identity of that process.
pub(super) fn meet(cx: &mut Context, sighting: ObservedProcess<'_>, emit: Emit<'_>) -> ProcId {
    let Context { roots, processes, cgroups, target, .. } = cx;
    let sighting = placed(cgroups, sighting, &mut *emit);
    processes.intern(roots, cgroups, target, sighting, emit)
}

/// The shared identity of processes like this one that are too small for one of their own.
pub(super) fn fold(cx: &mut Context, sighting: ObservedProcess<'_>, emit: Emit<'_>) -> ProcId {
    let Context { roots, processes, cgroups, target, .. } = cx;
    let sighting = placed(cgroups, sighting, &mut *emit);
    processes.fold(roots, cgroups, target, sighting, emit)
}
