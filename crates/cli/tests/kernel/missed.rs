// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Context switches that do not reach the probe: those that this kernel never reports are no loss, those that it fails
//! to report now and then are counted as lost.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::common;
use crate::lab::until;
use crate::probe::{Spinner, schedstat};
use deburr_bpf::sched::plan::{Needs, plan};
use deburr_bpf::sched::{Blame, ProbeCulprit, SchedProbe, ThreadScan};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// Number of times that the probe is detached. Once is not enough: the CPU may happen to run the same thread before and
/// after.
const ROUNDS: usize = 20;

#[test]
fn what_this_kernel_never_tells_is_no_loss() {
    let name = "what_this_kernel_never_tells_is_no_loss";
    if !common::root_or_skip("kernel", name) {
        return;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_deburr"));
    let output = command.args(["-q", "--json", "-d", "6"]).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let observer = &report["observer"];
    assert!(observer["bpf_runs"].as_u64().unwrap() > 0, "the probe saw nothing: {observer}");
    assert_eq!(observer["lost_detail"]["switches_missed"], serde_json::Value::Null, "{observer}");
}

fn run_on(cpu: usize) {
    let mut one = rustix::thread::CpuSet::new();
    one.set(cpu);
    rustix::thread::sched_setaffinity(None, &one).unwrap();
}

#[test]
fn switches_that_are_lost_are_counted() {
    if !common::root_or_skip("kernel", "switches_that_are_lost_are_counted") {
        return;
    }
    let needs = Needs { threads: 1000, cgroup_v2: false, quota_in_use: false, sleeps: false };
    let plan = plan(&deburr_bpf::facts::facts(), needs).unwrap();
    let cpus = thread::available_parallelism().unwrap().get();
    let mut probe = SchedProbe::open(&plan, u32::try_from(cpus).unwrap(), None).unwrap();
    let clock = probe.clock().unwrap();
    let waiting = probe.begin_window(clock).unwrap();
    let mut scan = ThreadScan::begin(&probe, &waiting, |_| {});
    // The probe sees threads of this process leave their CPU.
    for _ in 0..10 {
        thread::sleep(Duration::from_millis(5));
    }
    let before = scan.switches_missed(false);
    if cpus < 2 {
        return common::skip("kernel", "switches_that_are_lost_are_counted", "one CPU");
    }
    let everywhere = rustix::thread::sched_getaffinity(None).unwrap();
    for round in 0..ROUNDS {
        // The probe knows this thread on one CPU, which it leaves for the other while the probe is detached.
        let (from, to) = (round % 2, (round + 1) % 2);
        run_on(from);
        thread::sleep(Duration::from_millis(5));
        probe.blindly(|| run_on(to)).unwrap();
        thread::sleep(Duration::from_millis(5));
    }
    rustix::thread::sched_setaffinity(None, &everywhere).unwrap();
    // Twice: whether switches of a thread are reported otherwise is known only after all threads of its process were
    // looked at.
    for _ in 0..2 {
        let waiting = probe.who_waits(clock).unwrap();
        scan.look(&probe, &waiting, false, |_| {});
    }
    let missed = scan.switches_missed(true);
    assert!(missed > before, "{missed} after, {before} before");
    let me = std::process::id();
    assert!(scan.unseen().iter().all(|process| process.tgid != me), "{:?}", scan.unseen());
}

const BLAMED_ON_HIM: &str = "a_wait_behind_somebody_whose_end_is_not_told_is_blamed_on_him";

#[test]
fn a_wait_behind_somebody_whose_end_is_not_told_is_blamed_on_him() {
    // Whoever else begins to run on that CPU while the probe is detached is nobody that it knows: the wait behind him is
    // rightly blamed on nobody, so other load hides what is tested.
    common::tried("kernel", BLAMED_ON_HIM, try_a_wait_behind_somebody);
}

fn try_a_wait_behind_somebody() {
    let name = BLAMED_ON_HIM;
    if !common::root_or_skip("kernel", name) {
        return;
    }
    let needs = Needs { threads: 1000, cgroup_v2: false, quota_in_use: false, sleeps: false };
    let plan = plan(&deburr_bpf::facts::facts(), needs).unwrap();
    let cpus = thread::available_parallelism().unwrap().get();
    if cpus < 2 {
        return common::skip("kernel", name, "one CPU");
    }
    // A real-time thread for the last CPU: one order makes it spin, the next makes it sleep.
    let (order, orders) = channel();
    let (send, receive) = channel();
    let culprit = thread::spawn(move || {
        send.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        while orders.recv().is_ok() {
            while orders.try_recv().is_err() {
                std::hint::spin_loop();
            }
        }
    });
    let tid = receive.recv().unwrap().to_string();
    let first = Command::new("chrt").args(["-f", "-p", "50", &tid]).output().unwrap();
    if !first.status.success() {
        drop(order);
        culprit.join().unwrap();
        return common::skip("kernel", name, "no thread may be a real-time one here");
    }
    let last = (cpus - 1).to_string();
    let pinned = Command::new("taskset").args(["-pc", &last, &tid]).output().unwrap();
    assert!(pinned.status.success(), "{pinned:?}");
    let mut probe = SchedProbe::open(&plan, u32::try_from(cpus).unwrap(), None).unwrap();
    let _waiting = probe.begin_window(probe.clock().unwrap()).unwrap();
    run_on(0);
    let victim = Spinner::start();
    victim.pin(cpus - 1);
    thread::sleep(Duration::from_millis(20));
    probe.end_epoch();
    for _ in 0..5 {
        order.send(()).unwrap();
        thread::sleep(Duration::from_millis(8));
        probe
            .blindly(|| {
                order.send(()).unwrap();
                thread::sleep(Duration::from_millis(2));
            })
            .unwrap();
        // It leaves the CPU while the probe is attached: only then its arrival is known.
        for _ in 0..2 {
            order.send(()).unwrap();
            thread::sleep(Duration::from_millis(1));
        }
    }
    // A wait is blamed when it ends; beside other load that may be later.
    let on_cpu_ns = || schedstat(victim.tid).0;
    let before_ns = on_cpu_ns();
    until("the victim runs", || on_cpu_ns() > before_ns);
    let epoch = probe.end_epoch();
    let sums = Blame::default().of_epoch(&probe, epoch);
    drop((victim, order));
    culprit.join().unwrap();
    let me = std::process::id();
    let of = |behind| sums.get(&(me, behind)).copied().unwrap_or(0);
    let (known_ns, unknown_ns) = (of(ProbeCulprit::Process(me)), of(ProbeCulprit::NotSampled));
    // Five waits of 8 ms, which are longer where a hypervisor preempts the CPU meanwhile.
    assert!(known_ns > 20_000_000 && known_ns > 10 * unknown_ns, "{known_ns} and {unknown_ns}");
}
