// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Notices that the target's last process is gone.

use crate::collect::{Roots, has_ended, read_stat};
use deburr_core::recording::{Record, TargetSpec};
use std::collections::BTreeSet;

/// Looks in this many seconds in a row find no living process before the target counts as gone: a new one
/// (a restarted service) may not have been met yet.
const LOOKS: u32 = 2;

/// Follows the processes of the target, as the collectors meet them.
#[derive(Debug)]
pub(crate) struct TargetWatch {
    /// Whether the target can go away at all.
    mortal: bool,
    roots: Roots,
    /// Processes that were alive when last looked at.
    alive: BTreeSet<u32>,
    /// Whether there ever was one: where nobody can see the target's processes, none is missed.
    met: bool,
    empty_looks: u32,
}

impl TargetWatch {
    /// Watches that target.
    pub(crate) fn new(target: &TargetSpec, roots: &Roots) -> Self {
        let alive = match target {
            TargetSpec::Process { pid, .. } | TargetSpec::Command { pid, .. } => {
                BTreeSet::from([*pid])
            }
            _ => BTreeSet::new(),
        };
        let met = !alive.is_empty();
        Self {
            mortal: *target != TargetSpec::Host,
            roots: roots.clone(),
            alive,
            met,
            empty_looks: 0,
        }
    }

    /// Learns of processes.
    pub(crate) fn see(&mut self, record: &Record) {
        if let Record::Process(process) = record
            && self.mortal
            && process.in_target
        {
            self.alive.insert(process.pid);
            self.met = true;
        }
    }

    /// Looks for one that lives. Once a second; mostly one look into `/proc`.
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

    /// Whether there is none any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.mortal && self.met && self.empty_looks >= LOOKS
    }
}

/// Whether the process still runs or may: a zombie does not, unless only its first thread has ended.
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
        assert!(!gone_after(&mut watch, 3), "nobody was met yet");
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
}
