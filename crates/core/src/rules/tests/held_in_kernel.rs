// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Services that wait in the kernel until another process lets them go on, and decoys.

use super::judged;
use super::waiting::{behind, clients, finding, service, slept};
use crate::finding::{Finding, Report};
use crate::recording::{Awaited, Did, KernelLock, ProcId, SleepState, Slept, SleptOn, WokenBy};
use crate::testkit::{S, Scene};

const KERNEL_WORK: &str = "(kernel work)";

/// Uninterruptible sleep in a call, which a thread of that process ended in another one.
fn held(call: &str, proc: ProcId, by: &str) -> Slept {
    let woken = WokenBy::Thread { proc, call: by.into() };
    Slept { state: SleepState::Uninterruptible, woken, ..slept(call, SleptOn::NotKnown) }
}

fn naps(proc: ProcId, name: &str) -> Vec<Awaited> {
    behind(proc, name, Did::Slept(slept("clock_nanosleep", SleptOn::NotKnown)))
}

/// A service whose files another process must allow it to open.
pub(super) fn scanned() -> Scene {
    service(|_, other| {
        let scanned = held("openat", other, "write");
        vec![(scanned, naps(other, "postgres"), 8 * S), (clients(), vec![], 60 * S)]
    })
}

/// A service that sleeps so for eight seconds, until the other process ends it, or its own, and what that is called.
fn report(call: &str, by: &str, is_own: bool, is_kernels: Option<&str>) -> Report {
    let mut scene = service(|api, other| {
        let proc = if is_own { api } else { other };
        vec![(held(call, proc, by), vec![], 8 * S), (clients(), vec![], 60 * S)]
    });
    if let Some(name) = is_kernels {
        scene.facts(ProcId(2), |facts| {
            (facts.comm, facts.kernel_thread) = (name.into(), Some(true));
        });
    }
    judged(&scene)
}

fn told(report: &Report) -> Option<&Finding> {
    report.findings.iter().find(|it| it.code == "OFF009")
}

#[test]
fn who_lets_a_thread_go_on_is_named_with_what_it_does() {
    let report_of_scanner = judged(&scanned());
    let it = finding(&report_of_scanner, "OFF009");
    assert!(it.title.ends_with("in openat, until `postgres` lets it go on"), "{}", it.title);
    assert!(it.fix[1].command.as_deref().unwrap().contains("fanotify"), "{:?}", it.fix);
    assert_eq!(it.causes[0].entity.comm.as_deref(), Some("postgres"));
    for (call, by, kernel, says) in [
        ("write", "ioctl", None, "in write, until `postgres` lets it go on"),
        ("read", "futex", None, "in read, until `postgres` lets it go on"),
        ("membarrier", KERNEL_WORK, Some("rcu_preempt"), "(a grace period of RCU)"),
        ("unshare", KERNEL_WORK, Some("rcu_exp_gp_kthre"), "(a grace period of RCU)"),
    ] {
        let report = report(call, by, false, kernel);
        let it = told(&report).unwrap_or_else(|| panic!("{call}"));
        assert!(it.title.ends_with(says), "{}", it.title);
        assert!(!it.evidence.iter().any(|line| kernel.is_some() && line.name == "behind"));
    }
}

/// Whoever ends these waits, they are for a disk, for a child, or among the threads of one process.
#[test]
fn waits_for_disks_and_children_are_nobodys_hold() {
    for (call, by, is_own, kernel) in [
        ("fsync", "ioctl", false, None),
        ("write", "fsync", false, None),
        ("futex", "write", false, None),
        ("epoll_wait", "write", false, None),
        ("(32-bit call)", "execve", false, None),
        ("flock", "flock", false, None),
        ("unshare", KERNEL_WORK, false, Some("rcu_tasks_kthread")),
        ("write", KERNEL_WORK, false, Some("jbd2/vda1-8")),
        ("unlink", KERNEL_WORK, false, Some("kworker/1:2")),
        ("vfork", "execve", false, None),
        ("clone3", "exit_group", false, None),
        ("mmap", "munmap", true, None),
        ("recvfrom", "sendto", true, None),
    ] {
        assert!(told(&report(call, by, is_own, kernel)).is_none(), "{call}");
    }
    let within = Box::default();
    for (on, is_told) in [
        (SleptOn::NotKnown, true),
        (SleptOn::KernelLock { lock: KernelLock::Mutex, within }, false),
        (SleptOn::File { device: "0:57".into(), inode: 2, path: None, served: true }, false),
        (SleptOn::File { device: "8:1".into(), inode: 2, path: None, served: false }, true),
    ] {
        let scene = service(|_, other| {
            let slept = Slept { on: on.clone(), ..held("write", other, "ioctl") };
            vec![(slept, vec![], 8 * S)]
        });
        assert_eq!(told(&judged(&scene)).is_some(), is_told, "{on:?}");
    }
}

#[test]
fn processes_of_one_name_are_told_by_it() {
    let mut scene = service(|_, _| vec![(clients(), vec![], 60 * S)]);
    for _ in 0..5 {
        let fsfreeze = scene.process("fsfreeze", None);
        let sleep = (held("write", fsfreeze, "ioctl"), vec![]);
        scene.slept(ProcId(1), "worker", sleep, 2 * S);
    }
    let report = judged(&scene);
    let it = finding(&report, "OFF009");
    assert!(
        it.title.ends_with("until one `fsfreeze` after the other lets it go on"),
        "{}",
        it.title
    );
    assert_eq!(it.causes.len(), 5, "{:?}", it.causes);
}
