// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which processes of a group carry its share of the blame, and whether they are few or many.

use super::program;
use crate::finding::{BlameDistribution, BlamedProcess};
use crate::recording::{ProcId, Process, Scheduling};
use crate::rules::words::{group_name, ticked};
use crate::view::Group;
use std::collections::BTreeMap;

/// The largest processes that together carry this share of the group's blame are its carriers.
const MOST: f64 = 0.8;
/// The carriers are few if they are at most this share of the group's processes.
const FEW: f64 = 1.0 / 3.0;
/// Maximum number of processes that are listed.
const MAX_CARRIERS: usize = 5;

/// Which processes of a group are to blame. `blamed`: the nanoseconds of waiting behind each of them, longest first.
/// `None` for kernel threads, without blame, and if the processes that can be identified do not carry [`MOST`] of it.
pub(super) fn distribution(
    group: &Group<'_>,
    blamed: &[(ProcId, u64)],
) -> Option<BlameDistribution> {
    let all_ns: u64 = blamed.iter().map(|&(_, ns)| ns).sum();
    if all_ns == 0 || group.is_kernel() {
        return None;
    }
    let share = |ns: u64| ns as f64 / all_ns as f64;
    let of = group.members.len();
    let siblings: Vec<&Process> = group.members.iter().map(|&(_, process)| process).collect();
    let members: BTreeMap<ProcId, &Process> = group.members.iter().copied().collect();
    let facts = |id: ProcId| members.get(&id).copied();
    let single = |&(id, _): &(ProcId, u64)| facts(id).is_some_and(|process| !process.many);
    let blamed: Vec<(ProcId, u64)> = blamed.iter().copied().filter(single).collect();
    let carriers = carriers(&blamed, all_ns)?;
    let processes = blamed.iter().take(MAX_CARRIERS).filter_map(|&(id, ns)| {
        let process = facts(id)?;
        Some(BlamedProcess {
            pid: process.pid,
            share: share(ns),
            runs: program::what_it_runs(process, &siblings),
            scheduling: process.scheduling.clone(),
        })
    });
    Some(BlameDistribution {
        of: of as u32,
        carriers: carriers as u32,
        carriers_share: share(blamed.iter().take(carriers).map(|&(_, ns)| ns).sum()),
        few: is_few(carriers, of),
        processes: processes.collect(),
    })
}

/// How many of the largest processes carry [`MOST`] of the blame; `None` if all of these together do not.
fn carriers(blamed: &[(ProcId, u64)], all_ns: u64) -> Option<usize> {
    let mut sums_ns = blamed.iter().scan(0, |sum_ns, &(_, ns)| {
        *sum_ns += ns;
        Some(*sum_ns)
    });
    sums_ns.position(|sum_ns| sum_ns as f64 >= MOST * all_ns as f64).map(|at| at + 1)
}

/// Whether `carriers` of `of` processes are few: one of several, or at most [`FEW`] of them.
fn is_few(carriers: usize, of: usize) -> bool {
    of > 1 && (carriers == 1 || carriers as f64 <= FEW * of as f64)
}

/// Name of a group as the culprit: `` `java` (pid 4711, one of 40) ``.
pub(super) fn name(group: &Group<'_>, whom: Option<&BlameDistribution>) -> String {
    let Some(whom) = whom else { return group_name(group) };
    let first = whom.processes.first();
    // A real-time policy explains the waiting, so the name includes it.
    let before_all = first
        .and_then(BlamedProcess::doer)
        .filter(|kind| kind.policy.is_real_time())
        .and_then(Scheduling::shown)
        .map_or(String::new(), |how| format!(", {how}"));
    let comm = ticked(group.comm);
    match (first, whom.of, whom.carriers) {
        (Some(one), 1, _) => format!("{comm} (pid {}{before_all})", one.pid),
        (Some(one), of, 1) => format!("{comm} (pid {}, one of {of}{before_all})", one.pid),
        (_, of, carriers) if whom.few => format!("{comm} ({carriers} of {of} processes)"),
        _ => group_name(group),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{S, Scene};

    /// The result for a group of `of` processes, the first ones of which carry these parts.
    fn whom_of(of: usize, parts: &[u64]) -> BlameDistribution {
        let mut scene = Scene::new(2, S);
        let ids: Vec<ProcId> = (0..of).map(|_| scene.process("java", None)).collect();
        let view = scene.view();
        let groups = view.groups();
        let blamed: Vec<(ProcId, u64)> = ids.into_iter().zip(parts.iter().copied()).collect();
        distribution(&groups.list()[0], &blamed).unwrap()
    }

    #[test]
    fn the_few_are_told_from_the_many() {
        let one = whom_of(40, &[96, 2, 1, 1]);
        assert_eq!((one.of, one.carriers, one.few), (40, 1, true));
        assert!((one.processes[0].share - 0.96).abs() < 1e-9);
        let many = whom_of(40, &[5; 40]);
        assert_eq!((many.carriers, many.few), (32, false));
        assert_eq!(many.processes.len(), MAX_CARRIERS);
        let two = whom_of(2, &[50, 50]);
        assert_eq!((two.carriers, two.few), (2, false));
        let alone = whom_of(1, &[7]);
        assert_eq!((alone.carriers, alone.few), (1, false));
    }

    #[test]
    fn of_those_who_are_gone_as_soon_as_they_are_named_nobody_is() {
        let mut scene = Scene::new(2, S);
        let ids: Vec<ProcId> = (0..3).map(|_| scene.process("cc1", None)).collect();
        scene.facts(ids[1], |process| process.many = true);
        let view = scene.view();
        let groups = view.groups();
        let group = &groups.list()[0];
        let whom = |parts: [u64; 3]| {
            let mut blamed: Vec<(ProcId, u64)> = ids.iter().copied().zip(parts).collect();
            blamed.sort_by_key(|&(_, ns)| std::cmp::Reverse(ns));
            distribution(group, &blamed)
        };
        assert_eq!(whom([10, 80, 10]), None);
        assert_eq!(name(group, None), "`cc1` (more than 2 processes)");
        let one = whom([90, 8, 2]).unwrap();
        assert_eq!((one.carriers, one.processes.len()), (1, 2));
    }

    #[test]
    fn nobody_blamed_is_nobody_told() {
        let mut scene = Scene::new(2, S);
        scene.process("java", None);
        let view = scene.view();
        assert_eq!(distribution(&view.groups().list()[0], &[]), None);
    }
}
