// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The CPUs that the affinity masks of a process allow.

use super::Roots;
use deburr_core::procfs::pid;
use std::collections::BTreeSet;
use std::fs;

/// Threads whose masks [`affinity`] reads.
const MAX_THREADS: usize = 64;

/// CPUs that the threads of a process may use, ascending. A mask belongs to a thread: a process whose first thread is
/// bound to one CPU may still use all of them with its other threads. Those are read, 64 at most, only if the mask of
/// the thread that was read first forbids a CPU of `within`. `None` if that mask is not known.
pub(crate) fn affinity(
    roots: &Roots,
    pid: u32,
    first: Option<Vec<u32>>,
    within: &[u32],
) -> Option<Vec<u32>> {
    let mut allowed: BTreeSet<u32> = first?.into_iter().collect();
    let allows_all = |allowed: &BTreeSet<u32>| within.iter().all(|cpu| allowed.contains(cpu));
    if !allows_all(&allowed) {
        for mask in masks_of_threads(roots, pid).take(MAX_THREADS) {
            allowed.extend(mask);
            if allows_all(&allowed) {
                break;
            }
        }
    }
    Some(allowed.into_iter().collect())
}

/// The affinity masks of the threads of a process, each read when it is asked for.
pub(crate) fn masks_of_threads(roots: &Roots, pid: u32) -> impl Iterator<Item = Vec<u32>> {
    let tasks = fs::read_dir(roots.proc.join(pid.to_string()).join("task"));
    tasks.into_iter().flatten().flatten().filter_map(|task| {
        let status = fs::read(task.path().join("status")).ok()?;
        pid::status(&status).cpus_allowed
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a process with these masks may use on a host with four CPUs.
    fn of(masks: &[&str]) -> Option<Vec<u32>> {
        let dir = tempfile::tempdir().unwrap();
        let proc = dir.path().join("proc");
        for (at, mask) in masks.iter().enumerate() {
            let task = proc.join(format!("7/task/{}", 7 + at));
            fs::create_dir_all(&task).unwrap();
            fs::write(task.join("status"), format!("Cpus_allowed_list:\t{mask}\n")).unwrap();
        }
        let roots = Roots { proc, sys: dir.path().join("sys"), root: dir.path().into() };
        let first = fs::read(roots.proc.join("7/task/7/status")).unwrap_or_default();
        affinity(&roots, 7, pid::status(&first).cpus_allowed, &[0, 1, 2, 3])
    }

    #[test]
    fn a_process_may_use_what_any_of_its_threads_may() {
        assert_eq!(of(&["0-3", "2"]), Some(vec![0, 1, 2, 3]));
        assert_eq!(of(&["0", "0-3"]), Some(vec![0, 1, 2, 3]));
        assert_eq!(of(&["0", "2"]), Some(vec![0, 2]), "one thread on each of two CPUs");
        assert_eq!(of(&["1", "1"]), Some(vec![1]));
        assert_eq!(of(&[]), None);
    }
}
