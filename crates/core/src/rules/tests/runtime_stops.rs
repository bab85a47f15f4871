// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs whose threads a virtual machine stops, and decoys.

use super::judged;
use super::runtimes::go;
use super::waiting::{behind, clients, condition, lock, service};
use crate::finding::{Finding, Report, SleepKind};
use crate::recording::{Awaited, Did, ProcId, RuntimeKind, RuntimeReading};
use crate::testkit::{S, Scene};

const API: ProcId = ProcId(1);

fn jvm() -> RuntimeReading {
    RuntimeReading { kind: RuntimeKind::Jvm, ..go(API, "17.0.15", 4) }
}

fn by_machine(did: Did) -> Vec<Awaited> {
    behind(API, "VM Thread", did)
}

/// Eight threads that are stopped for a second of ten; some of them wait for a lock of one that is.
pub(super) fn collects() -> Scene {
    let mut scene = service(|api, _| {
        let holder = behind(api, "worker", Did::Slept(condition()));
        let of_holder = [holder, by_machine(Did::OnCpu)].concat();
        vec![
            (condition(), by_machine(Did::OnCpu), 6 * S),
            (lock(), of_holder, 2 * S),
            (clients(), vec![], 60 * S),
        ]
    });
    scene.runtime(jvm());
    scene
}

fn found<'r>(report: &'r Report, code: &str) -> Option<&'r Finding> {
    report.findings.iter().find(|it| it.code == code)
}

#[test]
fn who_is_stopped_by_its_virtual_machine_waits_for_no_lock() {
    let report = judged(&collects());
    let it = found(&report, "OFF010").expect("OFF010");
    assert!(it.title.contains("waits 800 ms of every second"), "{}", it.title);
    assert!(it.title.ends_with("stopped all threads, as to collect garbage"), "{}", it.title);
    assert_eq!(it.causes[0].entity.comm.as_deref(), Some("VM Thread"));
    assert!(it.confirm.as_ref().unwrap().command.starts_with("jstat -gcutil 1001 "));
    assert!(found(&report, "OFF001").is_none(), "{:?}", report.findings);
}

#[test]
fn what_keeps_the_machine_from_its_work_is_told() {
    for (did, says) in [
        (Did::Queued, "and waits for CPUs meanwhile"),
        (Did::Throttled, "and a CPU quota stops it meanwhile"),
    ] {
        let mut scene = service(|_, _| vec![(condition(), by_machine(did.clone()), 8 * S)]);
        scene.runtime(jvm());
        let report = judged(&scene);
        let it = found(&report, "OFF010").expect("OFF010");
        assert!(it.title.ends_with(says), "{}", it.title);
        assert!(it.fix[0].action.contains("-XX:ParallelGCThreads"), "{:?}", it.fix);
        assert!(found(&report, "OFF003").is_none(), "{:?}", report.findings);
    }
}

/// With a collector that works beside the program.
#[test]
fn who_waits_for_memory_waits_for_its_virtual_machine() {
    let waits = |thread: &str| vec![(condition(), behind(API, thread, Did::OnCpu), 8 * S)];
    let mut scene = service(|_, _| waits("ZDriverMinor"));
    scene.runtime(jvm());
    let report = judged(&scene);
    let it = found(&report, "OFF010").expect("OFF010");
    assert!(it.title.ends_with("which frees memory that is to be allocated"), "{}", it.title);
}

/// Decoys: another program with such a thread; a machine whose thread rests; a thread of the machine itself.
#[test]
fn who_waits_for_other_threads_is_not_stopped() {
    let of = |did: Did, thread: &str, is_jvm: bool| {
        let mut scene = service(|_, _| vec![(clients(), vec![], S)]);
        scene.slept(API, thread, (lock(), by_machine(did)), 8 * S);
        if is_jvm {
            scene.runtime(jvm());
        }
        let report = judged(&scene);
        [found(&report, "OFF010").is_some(), found(&report, "OFF001").is_some()]
    };
    assert_eq!(of(Did::OnCpu, "http-nio-8080-e", true), [true, false]);
    assert_eq!(of(Did::OnCpu, "http-nio-8080-e", false), [false, true]);
    assert_eq!(of(Did::Slept(condition()), "http-nio-8080-e", true), [false, true]);
    assert_eq!(of(Did::OnCpu, "Reference Handl", true), [false, false]);
    assert_eq!(of(Did::OnCpu, "G1 Conc#0", true), [false, false]);
}

/// Threads that collect rest until the program has no memory left: nobody keeps them waiting, be the machine known before or
/// after.
#[test]
fn threads_of_the_machine_rest_until_it_has_something_for_them() {
    let kind = |thread: &str, is_known_before: bool| {
        let mut scene = service(|_, _| vec![]);
        let idle =
            [by_machine(Did::Slept(condition())), behind(API, "worker", Did::OnCpu)].concat();
        if is_known_before {
            scene.runtime(jvm());
        }
        scene.slept(API, thread, (condition(), idle), 8 * S);
        if !is_known_before {
            scene.runtime(jvm());
        }
        let report = judged(&scene);
        assert!(found(&report, "OFF003").is_none(), "{:?}", report.findings);
        report.ledger[0].asleep.iter().find(|it| it.ns == 8 * S).map(|it| it.kind)
    };
    for is_known_before in [true, false] {
        let of_machine = kind("GC Thread#1", is_known_before);
        assert_eq!(of_machine, Some(SleepKind::WaitsForWork));
        assert_eq!(kind("worker-1", is_known_before), Some(SleepKind::WaitsForOthers));
    }
}
