// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the threads of a process are scheduled, and more of its command line, for the few processes that are blamed or
//! lose much time.
//!
//! A scheduling policy belongs to a thread, and the thread that matters need not be the first. A process is looked at
//! when it becomes a suspect, and once more at the end: the threads that ran between the two looks are responsible.

use super::{CMDLINE_BYTES_CLOSELY, EmittedProcess, Processes, cmdline, read_stat};
use crate::collect::{Emit, Roots};
use crate::reader::Reader;
use deburr_core::procfs::{pid, stat};
use deburr_core::recording::{Record, SchedPolicy, Scheduling};
use std::collections::{BTreeMap, HashMap};
use std::fs;

/// Threads that are read per process, at some 10 us each.
const THREADS_READ: usize = 128;
/// Threads that are read per second; one process is read in any case.
const THREADS_A_SECOND: usize = 256;
/// Processes that are looked at closely in one session.
const SUSPECTS: usize = 256;

/// CPU time of each thread at the first look: thread id -> nanoseconds.
pub(super) type FirstReading = HashMap<u32, u64>;

impl Processes {
    /// Looks closely at the processes with these pids that were not looked at before; with `again` also at those that
    /// were. Emits the processes whose facts changed. Processes that do not fit into the budget of a second have to be
    /// passed again.
    pub(crate) fn look_closely(
        &mut self,
        roots: &Roots,
        pids: impl IntoIterator<Item = u32>,
        again: bool,
        emit: Emit<'_>,
    ) {
        let mut threads = 0;
        for pid in pids {
            let Some(known) = self.by_pid.get_mut(&pid) else { continue };
            let first = known.first_look.is_none();
            let room = !first || self.suspects < SUSPECTS;
            if !(first || again) || !room || threads >= THREADS_A_SECOND {
                continue;
            }
            let Some(stats) = known.threads(roots, self.user_hz) else { continue };
            threads += stats.len();
            self.suspects += usize::from(first);
            if known.take_threads(roots, &stats, self.user_hz, &self.reader) {
                emit(Record::Process(Box::new(known.process.clone())));
            }
        }
    }
}

impl EmittedProcess {
    /// `stat` of its threads; `None` if the process is gone or another one has its pid.
    fn threads(&self, roots: &Roots, user_hz: u64) -> Option<Vec<pid::PidStat>> {
        let leader = read_stat(roots, self.process.pid)?;
        let start_ns = stat::ticks_ns(leader.start_ticks, user_hz);
        let own_ns = self.process.start_ns;
        if own_ns != 0 && !super::is_same_start(own_ns, start_ns) {
            return None;
        }
        let dir = roots.proc.join(self.process.pid.to_string()).join("task");
        let tasks = fs::read_dir(dir).ok()?.flatten();
        let stat = |task: fs::DirEntry| pid::stat(&fs::read(task.path().join("stat")).ok()?).ok();
        Some(tasks.take(THREADS_READ).filter_map(stat).collect())
    }

    /// Takes over what was read of its threads, and reads the command line again. Returns whether anything changed.
    fn take_threads(
        &mut self,
        roots: &Roots,
        stats: &[pid::PidStat],
        user_hz: u64,
        reader: &Reader,
    ) -> bool {
        let before = (self.process.scheduling.clone(), self.process.cmdline.clone());
        let cpu_ns = |stat: &pid::PidStat| stat::ticks_ns(stat.cpu_ticks, user_hz);
        let first = self
            .first_look
            .get_or_insert_with(|| stats.iter().map(|stat| (stat.pid, cpu_ns(stat))).collect());
        // Of a thread that was not there at the first look, all CPU time counts.
        let ran_ns = |stat| cpu_ns(stat).saturating_sub(first.get(&stat.pid).copied().unwrap_or(0));
        self.process.scheduling = kinds(stats.iter().map(|stat| (stat, ran_ns(stat))));
        let leader = stats.iter().find(|stat| stat.pid == self.process.pid);
        let line = leader.and_then(|stat| cmdline(roots, stat, CMDLINE_BYTES_CLOSELY, reader));
        // A process that is about to end has no command line any more: the last one is kept.
        if let Some(line) = line.filter(|line| !line.is_empty()) {
            self.process.cmdline = line;
        }
        before != (self.process.scheduling.clone(), self.process.cmdline.clone())
    }
}

/// Threads grouped by policy, priority and nice value; the groups that ran most come first.
fn kinds<'a>(threads: impl Iterator<Item = (&'a pid::PidStat, u64)>) -> Vec<Scheduling> {
    // Policy, priority and nice value -> the group, and how long its thread `tid` ran, in nanoseconds.
    let mut kinds: BTreeMap<_, (Scheduling, u64)> = BTreeMap::new();
    for (stat, ran_ns) in threads {
        let Some(policy) = stat.policy.and_then(SchedPolicy::of_number) else { continue };
        let (priority, nice, tid) = (stat.rt_priority, stat.nice, stat.pid);
        let (kind, most_ns) = kinds.entry((policy, priority, nice)).or_insert_with(|| {
            (Scheduling { policy, priority, nice, threads: 0, tid, ran_ns: 0 }, ran_ns)
        });
        kind.threads += 1;
        kind.ran_ns += ran_ns;
        if ran_ns > *most_ns {
            (kind.tid, *most_ns) = (tid, ran_ns);
        }
    }
    let mut kinds: Vec<Scheduling> = kinds.into_values().map(|(kind, _)| kind).collect();
    // A stable sort: groups that ran equally long stay in the order of their policies.
    kinds.sort_by_key(|kind| std::cmp::Reverse(kind.ran_ns));
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::{Cgroups, ObservedProcess};
    use deburr_core::recording::{Process, TargetSpec};
    use std::path::Path;

    fn thread(proc: &Path, (pid, tid): (u32, u32), ticks: u64, how: (i32, u32, u32)) {
        let (nice, priority, policy) = how;
        let zeros = "0 ".repeat(17);
        let stat = format!(
            "{tid} (spin) R 1 1 1 0 -1 4194304 0 0 0 0 {ticks} 0 0 0 20 {nice} 2 0 500 {zeros}{priority} {policy} 0\n"
        );
        let dir = proc.join(format!("{pid}/task/{tid}"));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("stat"), &stat).unwrap();
        if pid == tid {
            fs::write(proc.join(format!("{pid}/stat")), &stat).unwrap();
        }
    }

    #[test]
    fn the_thread_that_did_it_need_not_be_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots { proc: dir.path().into(), ..Roots::default() };
        thread(dir.path(), (7, 7), 100, (0, 0, 0));
        thread(dir.path(), (7, 8), 100, (0, 50, 1));
        let arguments = format!("/usr/bin/python3\0{}\0spin.py\0", "-O\0".repeat(200));
        fs::write(dir.path().join("7/cmdline"), arguments).unwrap();
        let mut cgroups = Cgroups::open(&roots);
        let mut processes = Processes::default();
        let mut emitted: Vec<Process> = Vec::new();
        let mut emit = |record| {
            if let Record::Process(process) = record {
                emitted.push(*process);
            }
        };
        let sighting = ObservedProcess { pid: 7, ..ObservedProcess::default() };
        processes.intern(&roots, &mut cgroups, &TargetSpec::Host, sighting, &mut emit);
        processes.look_closely(&roots, [7, 9], false, &mut emit);
        processes.look_closely(&roots, [7], false, &mut emit);
        thread(dir.path(), (7, 8), 150, (0, 50, 1));
        processes.look_closely(&roots, [7], true, &mut emit);
        let [met, first, last] = &emitted[..] else { panic!("{emitted:?}") };
        assert!(met.scheduling.is_empty() && !met.cmdline.ends_with("spin.py"));
        assert!(first.cmdline.ends_with("spin.py"));
        assert_eq!(first.scheduling.iter().map(|kind| kind.ran_ns).sum::<u64>(), 0);
        let fifo = Scheduling {
            policy: SchedPolicy::Fifo,
            priority: 50,
            nice: 0,
            threads: 1,
            tid: 8,
            ran_ns: 500_000_000,
        };
        assert_eq!(last.scheduling[0], fifo);
        assert_eq!((last.scheduling[1].policy, last.scheduling[1].ran_ns), (SchedPolicy::Other, 0));
    }

    #[test]
    fn another_process_of_that_pid_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots { proc: dir.path().into(), ..Roots::default() };
        thread(dir.path(), (7, 7), 100, (0, 50, 1));
        let mut cgroups = Cgroups::open(&roots);
        let mut processes = Processes::default();
        let start_ns = Some(9_001_000_001);
        let sighting = ObservedProcess { pid: 7, start_ns, ..ObservedProcess::default() };
        let mut emitted = 0;
        let mut emit = |_| emitted += 1;
        processes.intern(&roots, &mut cgroups, &TargetSpec::Host, sighting, &mut emit);
        processes.look_closely(&roots, [7], true, &mut emit);
        assert_eq!(emitted, 1);
    }
}
