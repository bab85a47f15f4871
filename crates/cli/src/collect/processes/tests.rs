// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::{FACTS_BURST, KINDS, ObservedProcess, Processes};
use crate::collect::{Cgroups, Roots};
use deburr_core::recording::{CgroupId, ProcId, Process, Record, TargetSpec};
use std::fs;
use std::path::Path;

/// A fake host with its own `/proc`.
struct Host {
    dir: tempfile::TempDir,
    roots: Roots,
    cgroups: Cgroups,
    target: TargetSpec,
    processes: Processes,
    emitted: Vec<Process>,
}

impl Host {
    fn new(target: TargetSpec) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            proc: dir.path().join("proc"),
            sys: dir.path().join("sys"),
            root: dir.path().into(),
        };
        let cgroups = Cgroups::open(&roots);
        let processes = Processes::default();
        Self { dir, roots, cgroups, target, processes, emitted: vec![] }
    }

    fn spawn(&self, pid: u32, ppid: u32, pgrp: u32, comm: &str, start_ticks: u64) {
        let dir = self.dir.path().join(format!("proc/{pid}"));
        fs::create_dir_all(&dir).unwrap();
        let stat = format!(
            "{pid} ({comm}) S {ppid} {pgrp} 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 5 1 0 {start_ticks} 0\n"
        );
        fs::write(dir.join("stat"), stat).unwrap();
        fs::write(dir.join("status"), "Tgid:\t1\nCpus_allowed_list:\t0-1\n").unwrap();
        fs::write(dir.join("cmdline"), format!("/bin/{comm}\0--flag\0")).unwrap();
    }

    fn see(&mut self, sighting: ObservedProcess<'_>) -> ProcId {
        let emitted = &mut self.emitted;
        let mut emit = |record| {
            if let Record::Process(process) = record {
                emitted.push(*process);
            }
        };
        let Self { roots, cgroups, target, processes, .. } = self;
        processes.intern(roots, cgroups, target, sighting, &mut emit)
    }

    fn fold(&mut self, sighting: ObservedProcess<'_>) -> ProcId {
        let emitted = &mut self.emitted;
        let mut emit = |record| {
            if let Record::Process(process) = record {
                emitted.push(*process);
            }
        };
        let Self { roots, cgroups, target, processes, .. } = self;
        processes.fold(roots, cgroups, target, sighting, &mut emit)
    }

    fn see_pid(&mut self, pid: u32) -> ProcId {
        self.see(ObservedProcess { pid, ..ObservedProcess::default() })
    }
}

#[test]
fn facts_come_from_proc_and_once() {
    let mut host = Host::new(TargetSpec::Host);
    host.spawn(7, 1, 7, "a) b", 500);
    let id = host.see_pid(7);
    assert_eq!(host.see_pid(7), id);
    let [process] = &host.emitted[..] else { panic!("{:?}", host.emitted) };
    assert_eq!((process.comm.as_str(), process.cmdline.as_str()), ("a) b", "/bin/a) b --flag"));
    assert_eq!((process.start_ns, process.nice), (5_000_000_000, Some(5)));
    assert_eq!(process.cpus_allowed.as_deref(), Some("0-1"));
    assert_eq!((process.kernel_thread, process.in_target), (Some(false), true));
    assert!(host.processes.in_target(id));
}

#[test]
fn a_reused_pid_is_another_process() {
    let mut host = Host::new(TargetSpec::Process { pid: 7, comm: "old".into() });
    host.spawn(7, 1, 7, "old", 500);
    let old = host.see_pid(7);
    // BPF's start time is exact, `/proc` counts in ticks of 10 ms.
    let at = |start_ns| ObservedProcess {
        pid: 7,
        start_ns: Some(start_ns),
        ..ObservedProcess::default()
    };
    assert_eq!(host.see(at(5_003_000_000)), old);
    let new = host.see(at(9_001_000_001));
    assert_ne!(old, new);
    assert!(host.processes.in_target(old) && !host.processes.in_target(new));
    // `/proc` still shows the old process: its facts are not those of the new one.
    assert_eq!(host.emitted.last().unwrap().cmdline, "");
}

#[test]
fn a_new_comm_is_news_and_keeps_what_is_known() {
    let mut host = Host::new(TargetSpec::Comm { comm: "java".into() });
    host.spawn(7, 1, 7, "sh", 500);
    let id = host.see_pid(7);
    assert!(!host.processes.in_target(id));
    fs::remove_dir_all(host.dir.path().join("proc/7")).unwrap();
    let comm = b"java\0\0\0\0".as_slice();
    assert_eq!(
        host.see(ObservedProcess { pid: 7, comm: Some(comm), ..ObservedProcess::default() }),
        id
    );
    assert_eq!(
        host.see(ObservedProcess { pid: 7, comm: Some(comm), ..ObservedProcess::default() }),
        id
    );
    assert!(host.processes.in_target(id));
    assert_eq!(host.emitted.len(), 2);
    assert_eq!((host.emitted[1].comm.as_str(), host.emitted[1].nice), ("java", Some(5)));
}

#[test]
fn a_command_has_its_descendants() {
    let mut host = Host::new(TargetSpec::Command { command: "make".into(), pid: 10 });
    host.spawn(1, 0, 1, "init", 1);
    host.spawn(10, 5, 10, "make", 500);
    host.spawn(11, 10, 10, "sh", 501);
    host.spawn(12, 11, 12, "cc", 502);
    host.spawn(13, 1, 10, "orphan", 503);
    host.spawn(20, 1, 20, "other", 504);
    // 12 is seen before its parents.
    let by_pid = [12, 10, 13, 20].map(|pid| host.see_pid(pid));
    let in_target = by_pid.map(|id| host.processes.in_target(id));
    assert_eq!(in_target, [true, true, true, false]);
}

#[test]
fn too_many_new_processes_go_without_facts() {
    let mut host = Host::new(TargetSpec::Host);
    let burst = FACTS_BURST as u32;
    for pid in 1..=burst + 500 {
        host.see(ObservedProcess { pid, comm: Some(b"fork"), ..ObservedProcess::default() });
    }
    assert_eq!(host.emitted.len() as u32, burst + 500);
    let skipped = host.processes.take_facts_skipped();
    assert!(skipped > 0 && skipped <= 500, "{skipped}");
    assert_eq!(host.processes.take_facts_skipped(), 0);
    assert_eq!(host.emitted.last().unwrap().comm, "fork");
}

#[test]
fn memory_does_not_grow_with_the_dead() {
    let mut host = Host::new(TargetSpec::Host);
    host.spawn(1, 0, 1, "init", 1);
    let init = host.see_pid(1);
    for pid in 2..60_000 {
        host.see(ObservedProcess { pid, ..ObservedProcess::default() });
    }
    assert!(host.processes.by_pid.len() <= 24_576);
    assert_eq!(host.see_pid(1), init);
}

/// The seconds after which a search was made twice.
fn half_a_minute(host: &mut Host) {
    for _ in 0..30 {
        host.processes.second(&host.roots);
    }
}

#[test]
fn the_dead_are_forgotten_within_half_a_minute_and_the_living_never() {
    let mut host = Host::new(TargetSpec::Command { command: "make".into(), pid: 10 });
    host.spawn(10, 5, 10, "make", 500);
    let root = host.see_pid(10);
    let (mut ids, mut capacity) = (vec![], 0);
    for round in 0..10 {
        for pid in 100..3100 {
            // Each round has the pids of the one before: another process has each.
            let (parent, start_ns) = (Some(10), Some(1_000_001 + round));
            let sighting = ObservedProcess { pid, start_ns, parent, ..ObservedProcess::default() };
            ids.push(host.see(sighting));
        }
        let last = *ids.last().unwrap();
        assert!(host.processes.in_target(last));
        host.processes.second(&host.roots);
        assert!(host.processes.in_target(last), "its last amounts are to come");
        half_a_minute(&mut host);
        assert_eq!(host.processes.by_pid.len(), 1);
        capacity = capacity.max(host.processes.by_pid.capacity());
    }
    half_a_minute(&mut host);
    assert!(capacity < 3000 && host.processes.target.capacity() < 3000, "{capacity}");
    assert!(!ids.iter().any(|id| host.processes.in_target(*id)));
    assert_eq!(host.see_pid(10), root);
    assert!(host.processes.in_target(root));
}

#[test]
fn a_process_that_proc_does_not_show_is_kept_while_it_is_seen() {
    let mut host = Host::new(TargetSpec::Host);
    host.spawn(1, 0, 1, "init", 1);
    let hidden = host.see_pid(77);
    for _ in 0..10 {
        for _ in 0..10 {
            host.processes.second(&host.roots);
        }
        assert_eq!(host.see_pid(77), hidden);
    }
    half_a_minute(&mut host);
    assert_ne!(host.see_pid(77), hidden);
}

#[test]
fn this_process_is_the_observer() {
    let mut host = Host::new(TargetSpec::Host);
    host.roots.proc = Path::new("/proc").into();
    host.see_pid(std::process::id());
    host.see_pid(1);
    assert_eq!(
        host.emitted.iter().map(|process| process.observer).collect::<Vec<_>>(),
        [true, false]
    );
}

#[test]
fn short_lived_processes_of_one_comm_and_cgroup_are_one() {
    let mut host = Host::new(TargetSpec::Comm { comm: "cc1".into() });
    let fold = |host: &mut Host, pid, comm: &str, cgroup| {
        let mut comm_bytes = [0; 16];
        comm_bytes[..comm.len()].copy_from_slice(comm.as_bytes());
        let cgroup = Some(CgroupId(cgroup));
        let comm = Some(comm_bytes.as_slice());
        let start_ns = Some(u64::from(pid));
        let sighting =
            ObservedProcess { pid, start_ns, comm, cgroup, ..ObservedProcess::default() };
        host.fold(sighting)
    };
    host.spawn(9, 1, 9, "cc1", 0);
    let met = host.see(ObservedProcess { pid: 9, start_ns: Some(9), ..ObservedProcess::default() });
    host.emitted.clear();
    assert_eq!(fold(&mut host, 9, "cc1", 7), met, "it has an identity");
    let cc1 = fold(&mut host, 10, "cc1", 7);
    assert_eq!(fold(&mut host, 11, "cc1", 7), cc1);
    let elsewhere = fold(&mut host, 12, "cc1", 8);
    let other = fold(&mut host, 13, "as", 7);
    assert_eq!(fold(&mut host, 14, "", 7), ProcId::OTHERS);
    assert!(cc1 != elsewhere && cc1 != other);
    assert!(host.emitted.iter().all(|process| process.many && process.cmdline.is_empty()));
    let seen: Vec<_> = host.emitted.iter().map(|it| (it.id, it.pid, it.in_target)).collect();
    assert_eq!(seen, [(cc1, 10, true), (elsewhere, 12, true), (other, 13, false)]);
    assert!(host.processes.in_target(cc1) && !host.processes.in_target(other));
    for n in 0..300 {
        fold(&mut host, 100 + n, &format!("cc{n}"), 9);
    }
    assert_eq!(fold(&mut host, 1000, "one more", 9), ProcId::OTHERS);
    assert_eq!(host.emitted.len(), KINDS);
}

#[test]
fn of_who_did_nothing_nothing_is_read() {
    let mut host = Host::new(TargetSpec::Host);
    host.spawn(10, 1, 10, "kthread", 0);
    let idle = ObservedProcess {
        pid: 10,
        comm: Some(b"kthread"),
        did_nothing: true,
        ..ObservedProcess::default()
    };
    host.see(idle);
    assert_eq!((host.emitted[0].comm.as_str(), host.emitted[0].cmdline.as_str()), ("kthread", ""));
}

#[test]
fn a_process_whose_command_line_cannot_be_read_holds_nobody_up() {
    let mut host = Host::new(TargetSpec::Host);
    host.spawn(7, 1, 7, "stuck", 100);
    host.spawn(8, 1, 8, "free", 100);
    let dir = host.dir.path().join("proc/7");
    let threads = "7 (stuck) D 1 7 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 5 2 0 100 0\n";
    fs::write(dir.join("stat"), threads).unwrap();
    // Opening a FIFO waits for its other end, which never comes, as the kernel waits for a locked memory map.
    fs::remove_file(dir.join("cmdline")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, dir.join("cmdline"), 0o600.into()).unwrap();
    for (pid, comm, cmdline) in [(7, "stuck", ""), (8, "free", "/bin/free --flag")] {
        host.see_pid(pid);
        let process = host.emitted.pop().unwrap();
        assert_eq!((&*process.comm, &*process.cmdline, process.nice), (comm, cmdline, Some(5)));
    }
    let given_up = host.processes.reader().given_up().unwrap();
    assert!(given_up.contains("memory of `` (pid 7) did not end"), "{given_up}");
}
