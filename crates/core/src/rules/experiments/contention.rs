// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Does the victim wait because others run on its CPUs? It gets precedence over them; or they are stopped for most of each
//! second.

use super::{culprit, group_of, lowers, set_cgroup};
use crate::finding::Finding;
use crate::prove::experiment::Experiment;
use crate::prove::measure::Measure;
use crate::recording::CgroupVersion;
use crate::rules::remedy;
use crate::rules::words::{group_name, ticked};
use crate::view::View;

/// Part of the waiting that precedence takes away at least: weights shorten waits, and do not end them.
const BY_PRECEDENCE: f64 = 0.25;
/// Part of what a culprit causes that must go while it is stopped for most of the time.
const BY_PAUSE: f64 = 0.5;
/// A nice value that gives about ten times the weight of 0.
const NICE: i32 = -10;

pub(super) fn all(view: &View, finding: &Finding) -> Vec<Experiment> {
    let groups = view.groups();
    let Some(victim) = group_of(view, groups.list(), &finding.victim) else { return vec![] };
    let Some((worst, share, pids)) = culprit(view, groups.list(), finding) else { return vec![] };
    let name = group_name(victim);
    let hypothesis = format!("{name} waits for a CPU because {} has it", group_name(worst));
    let pause = lowers(
        "pause",
        hypothesis.clone(),
        Measure::Queued,
        (pids.iter().map(|pid| format!("pause:{pid}=90%")).collect(), BY_PAUSE * share),
        "what is paused does nothing for most of each second of a changed block",
    );
    let own: Vec<u32> = victim.members.iter().map(|(_, it)| it.pid).collect();
    let precedence = match remedy::between(view, victim.cgroup, worst.cgroup) {
        (Some(own), other) => {
            let (file, default, most) = weight_file(own.version);
            let beside = other.and_then(|it| it.weight).unwrap_or(default).max(default);
            let wanted = (beside * 10).min(most);
            (own.weight.unwrap_or(default) < wanted).then(|| {
                let set = vec![set_cgroup(own, file, wanted)];
                let it =
                    format!("{hypothesis}: with more weight, {} waits less", ticked(&own.path));
                (set, it)
            })
        }
        (None, Some(other)) => {
            let (file, default, _) = weight_file(other.version);
            let wanted = default / 10;
            (other.weight.unwrap_or(default) > wanted)
                .then(|| (vec![set_cgroup(other, file, wanted)], hypothesis.clone()))
        }
        (None, None) => {
            let set = own.iter().map(|pid| format!("nice:{pid}={NICE}")).collect();
            Some((set, hypothesis.clone()))
        }
    };
    let precedence = precedence.map(|(set, hypothesis)| {
        lowers(
            "precedence",
            hypothesis,
            Measure::Queued,
            (set, BY_PRECEDENCE * share),
            "what runs beside it gets less CPU time in a changed block",
        )
    });
    precedence.into_iter().chain([pause]).collect()
}

/// The file of a weight, its default, and the largest that the kernel accepts.
fn weight_file(version: CgroupVersion) -> (&'static str, u64, u64) {
    match version {
        CgroupVersion::V1 => ("cpu.shares", 1024, 262_144),
        CgroupVersion::V2 => ("cpu.weight", 100, 10_000),
    }
}
