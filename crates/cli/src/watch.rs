// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Detects that the target's last process has ended.

use crate::collect::{Roots, has_ended, read_stat};
use deburr_core::recording::{Record, TargetSpec};
use std::collections::BTreeSet;

/// Number of looks in a row, one per second, that find no living process before the target counts as gone. A collector
/// may not have seen a new process yet, like that of a restarted service.
const LOOKS: u32 = 2;
/// Processes that may be known before each is looked at, whether it has ended.
const MANY: usize = 1024;

/// Follows the processes of the target that the collectors discover.
#[derive(Debug)]
pub(crate) struct TargetWatch {
    /// Whether the target can end at all: the host cannot.
    mortal: bool,
    roots: Roots,
    /// Processes that were alive at the last look.
    alive: BTreeSet<u32>,
    /// Whether any process of the target was ever seen. If none can be seen, the target does not count as gone.
    found: bool,
    /// Number of processes at which those that ended are left out.
    look_at_all_above: usize,
    empty_looks: u32,
}

impl TargetWatch {
    pub(crate) fn new(target: &TargetSpec, roots: &Roots) -> Self {
        let alive = match target {
            TargetSpec::Process { pid, .. } | TargetSpec::Command { pid, .. } => {
                BTreeSet::from([*pid])
            }
            _ => BTreeSet::new(),
        };
        let found = !alive.is_empty();
        Self {
            mortal: *target != TargetSpec::Host,
            roots: roots.clone(),
            alive,
            found,
            look_at_all_above: MANY,
            empty_looks: 0,
        }
    }

    /// Adds the processes of the target that a collector discovers.
    pub(crate) fn see(&mut self, record: &Record) {
        if let Record::Process(process) = record
            && self.mortal
            && process.in_target
        {
            self.alive.insert(process.pid);
            self.found = true;
            if self.alive.len() >= self.look_at_all_above {
                self.alive.retain(|pid| is_alive(&self.roots, *pid));
                self.look_at_all_above = MANY + 2 * self.alive.len();
            }
        }
    }

    /// Looks for a living process. Called once per second; usually reads a single file of `/proc`.
    pub(crate) fn look(&mut self) {
        while let Some(&pid) = self.alive.first() {
            if is_alive(&self.roots, pid) {
                self.empty_looks = 0;
                return;
            }
            self.alive.pop_first();
        }
        self.empty_looks += 1;
    }

    /// Whether the last process of the target has ended.
    pub(crate) fn is_gone(&self) -> bool {
        self.mortal && self.found && self.empty_looks >= LOOKS
    }
}

/// Whether the process has not ended. A zombie has ended, unless only its main thread is a zombie.
fn is_alive(roots: &Roots, pid: u32) -> bool {
    read_stat(roots, pid).is_some_and(|stat| !has_ended(&stat))
}

#[cfg(test)]
mod tests {
    use super::*;
    use deburr_core::recording::{ProcId, Process};

    fn process(pid: u32, in_target: bool) -> Record {
        Record::Process(Box::new(Process {
            id: ProcId(pid),
            pid,
            start_ns: 0,
            comm: String::new(),
            cmdline: String::new(),
            kernel_thread: Some(false),
            cgroup: None,
            cpus_allowed: None,
            cpuset_cpus: None,
            memory_cgroup: None,
            nice: None,
            in_target,
            observer: false,
            scheduling: vec![],
            many: false,
        }))
    }

    struct Host(tempfile::TempDir);

    impl Host {
        fn roots(&self) -> Roots {
            Roots { proc: self.0.path().to_owned(), ..Roots::default() }
        }

        fn set(&self, pid: u32, state: char, threads: u32) {
            let dir = self.0.path().join(pid.to_string());
            std::fs::create_dir_all(&dir).unwrap();
            let numbers = format!("{} {threads} 0 7 0 0", ["0"; 16].join(" "));
            std::fs::write(dir.join("stat"), format!("{pid} (x) {state} {numbers}\n")).unwrap();
        }

        fn end(&self, pid: u32) {
            std::fs::remove_dir_all(self.0.path().join(pid.to_string())).unwrap();
        }
    }

    fn watch(target: &TargetSpec) -> (TargetWatch, Host) {
        let host = Host(tempfile::tempdir().unwrap());
        (TargetWatch::new(target, &host.roots()), host)
    }

    fn gone_after(watch: &mut TargetWatch, looks: u32) -> bool {
        (0..looks).for_each(|_| watch.look());
        watch.is_gone()
    }

    #[test]
    fn a_process_is_gone_when_it_ended_or_is_a_zombie() {
        let target = TargetSpec::Process { pid: 5, comm: "x".into() };
        let (mut watch, host) = watch(&target);
        host.set(5, 'S', 1);
        assert!(!gone_after(&mut watch, 3));
        host.set(5, 'Z', 2);
        assert!(!gone_after(&mut watch, 3), "its other thread runs");
        host.set(5, 'Z', 1);
        assert!(!gone_after(&mut watch, 1), "one look is not enough");
        assert!(gone_after(&mut watch, 1));
    }

    #[test]
    fn a_group_is_gone_with_its_last_process_and_back_with_a_new_one() {
        let (mut watch, host) = watch(&TargetSpec::Comm { comm: "x".into() });
        assert!(!gone_after(&mut watch, 3), "nobody was found yet");
        for pid in [5, 6] {
            host.set(pid, 'S', 1);
            watch.see(&process(pid, true));
        }
        host.end(5);
        assert!(!gone_after(&mut watch, 3));
        host.end(6);
        assert!(!gone_after(&mut watch, 1));
        host.set(7, 'R', 1);
        watch.see(&process(7, true));
        assert!(!gone_after(&mut watch, 1), "restarted");
        host.end(7);
        watch.see(&process(8, false));
        assert!(gone_after(&mut watch, 2), "strangers do not count");
    }

    #[test]
    fn the_host_never_goes() {
        let (mut watch, host) = watch(&TargetSpec::Host);
        host.set(5, 'S', 1);
        watch.see(&process(5, true));
        host.end(5);
        assert!(!gone_after(&mut watch, 5));
    }

    #[test]
    fn those_that_ended_are_not_kept_while_the_first_one_lives() {
        let (mut watch, host) = watch(&TargetSpec::Comm { comm: "x".into() });
        host.set(5, 'S', 1);
        watch.see(&process(5, true));
        for pid in 100..100 + 10 * MANY as u32 {
            watch.see(&process(pid, true));
            watch.look();
            assert!(watch.alive.len() <= MANY + 2, "{}", watch.alive.len());
        }
        assert!(!gone_after(&mut watch, 3));
    }
}
