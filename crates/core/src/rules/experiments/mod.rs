// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The experiments that put a finding's cause to the test: what to change, what to measure, and what follows if the cause
//! is the cause. One file for each kind of cause; the change is one of the remedies where there is one that is safe.

mod clock;
mod contention;
mod device;
mod oversubscribed;
mod placement;
mod throttling;

use crate::finding::{Entity, EntityKind, Finding};
use crate::prove::experiment::{Experiment, SETTLE_SECONDS};
use crate::recording::Cgroup;
use crate::view::{Group, View};

/// Length of a block that measures a loss, in seconds: some thousand waits, and whole periods of quotas.
const BLOCK_SECONDS: f64 = 5.0;
/// Most processes that are changed one by one.
const MAX_PROCESSES: usize = 32;

/// The experiments for a finding, the one to begin with first; empty if there is none.
#[must_use]
pub fn experiments(view: &View, finding: &Finding) -> Vec<Experiment> {
    let of_code = BY_CODE.iter().find(|(code, _)| *code == finding.code);
    let mut all = of_code.map_or(vec![], |(_, all)| all(view, finding));
    for experiment in &mut all {
        experiment.code = Some(finding.code.clone());
    }
    all
}

/// The command that makes the experiment to begin with; `None` if there is none, or the victim is not one process.
pub(super) fn command(view: &View, finding: &Finding) -> Option<String> {
    let pid = finding.victim.pid.filter(|_| finding.victim.kind == EntityKind::Process)?;
    let first = experiments(view, finding).into_iter().next()?;
    if first.starts_command() {
        return Some(oversubscribed::command(&finding.victim));
    }
    Some(format!("sudo deburr prove {} -p {pid}", first.code?))
}

/// Makes the experiments for a finding.
type Suggest = fn(&View, &Finding) -> Vec<Experiment>;

/// The codes of findings that have experiments, and what makes them.
const BY_CODE: [(&str, Suggest); 8] = [
    ("SCH001", contention::all),
    ("SCH002", throttling::all),
    ("SCH003", placement::all),
    (oversubscribed::CODE, oversubscribed::all),
    ("BLK001", |view, _| clock::all(view, clock::WAKES)),
    ("BLK002", |view, _| clock::all(view, clock::EXPIRES)),
    ("BLK003", device::all),
    ("BLK004", device::all),
];

/// The codes of findings that have experiments.
pub fn with_experiments() -> impl Iterator<Item = &'static str> {
    BY_CODE.iter().map(|(code, _)| *code)
}

/// Whether the experiment for findings of that code starts the program of the victim.
#[must_use]
pub fn experiment_starts_command(code: &str) -> bool {
    code == oversubscribed::CODE
}

/// The processes that an entity of a finding stands for.
fn group_of<'g>(view: &View, groups: &'g [Group<'g>], entity: &Entity) -> Option<&'g Group<'g>> {
    let path = |group: &Group<'_>| group.cgroup.and_then(|id| view.path_of(id));
    groups.iter().find(|group| {
        entity.kind == EntityKind::Process
            && entity.comm.as_deref() == Some(group.comm)
            && entity.cgroup.as_deref() == path(group)
            && entity.pid.is_none_or(|pid| group.members.iter().any(|(_, it)| it.pid == pid))
    })
}

/// The largest cause of a finding that is a group of ordinary processes, its share, and the processes to act on: those
/// that carry most of the blame if they are few.
fn culprit<'g>(
    view: &View,
    groups: &'g [Group<'g>],
    finding: &Finding,
) -> Option<(&'g Group<'g>, f64, Vec<u32>)> {
    let victim = group_of(view, groups, &finding.victim);
    let (group, cause) = finding.causes.iter().find_map(|cause| {
        let group = group_of(view, groups, &cause.entity)?;
        let same = victim.is_some_and(|it| std::ptr::eq(it, group));
        (!group.is_kernel() && !group.is_observer() && !same).then_some((group, cause))
    })?;
    let pids: Vec<u32> =
        group.members.iter().filter(|(_, it)| !it.many).map(|(_, it)| it.pid).collect();
    (!pids.is_empty() && pids.len() <= MAX_PROCESSES).then(|| (group, cause.share.get(), pids))
}

/// The change of a file of a cgroup.
fn set_cgroup(cgroup: &Cgroup, file: &str, value: impl std::fmt::Display) -> String {
    format!("cgroup:{}:{file}={value}", cgroup.path)
}

/// An experiment about a loss that must fall.
fn lowers(
    lever: &'static str,
    hypothesis: String,
    measure: crate::prove::measure::Measure,
    (set, least_part): (Vec<String>, f64),
    risk: &str,
) -> Experiment {
    Experiment {
        code: None,
        lever: lever.into(),
        hypothesis,
        measure,
        test: crate::prove::experiment::Test::Lowers { set, least_part },
        risk: risk.into(),
        block_seconds: BLOCK_SECONDS,
        settle_seconds: SETTLE_SECONDS,
    }
}
