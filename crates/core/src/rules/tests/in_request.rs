// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waits for other threads while a client waits for an answer.

use super::judged;
use super::waiting::{behind, clients, condition, service, slept, timer};
use crate::finding::Severity;
use crate::recording::{Did, ProcId, Slept, SleptOn, WokenBy};
use crate::testkit::{MS, S, Scene};

/// Sessions of a database, one process each: one waits for a row that another one has changed, or for a signal.
fn sessions(call: &str, on: SleptOn, signal: &str, did: Did, in_request: bool) -> Scene {
    let mut scene = service(|_, _| vec![]);
    let (api, other) = (ProcId(1), ProcId(2));
    let woken = WokenBy::Thread { proc: other, call: signal.into() };
    let waits = (Slept { woken, ..slept(call, on) }, behind(other, "postgres", did));
    if in_request {
        scene.slept_in_request(api, "worker-1", waits, 20 * S);
    } else {
        scene.slept(api, "worker-1", waits, 20 * S);
    }
    scene
}

#[test]
fn who_waits_for_any_thread_while_a_client_waits_is_told_and_a_sleeper_is_a_remark() {
    let (poll, word) = (|| SleptOn::Anonymous { name: "eventpo".into() }, || condition().on);
    let of = |call, on, signal, did, in_request| {
        let report = judged(&sessions(call, on, signal, did, in_request));
        let told = report.findings.iter().find(|it| it.code.starts_with("OFF"));
        told.map(|it| (it.code.clone(), it.severity, it.title.clone()))
    };
    let (code, severity, title) =
        of("epoll_wait", poll(), "kill", Did::Slept(clients()), true).unwrap();
    assert_eq!((&*code, severity), ("OFF003", Severity::Info));
    assert!(title.contains("while clients wait") && title.contains("which sleeps"), "{title}");
    let (code, severity, title) = of("futex", word(), "futex", Did::OnCpu, true).unwrap();
    assert_eq!((&*code, severity), ("OFF003", Severity::High));
    assert!(title.contains("which computes") && !title.contains("its own"), "{title}");
    // No client waits; an event loop serves others meanwhile.
    assert_eq!(of("epoll_wait", poll(), "kill", Did::Slept(clients()), false), None);
    assert_eq!(of("futex", word(), "futex", Did::OnCpu, false), None);
    assert_eq!(of("epoll_wait", poll(), "write", Did::OnCpu, true), None);
}

/// Sessions that wait for each other in turn: who has its turn sleeps, but this is no waiting for news.
#[test]
fn who_takes_turns_while_clients_wait_is_more_than_a_remark() {
    let of_process = |other: ProcId, turns: &[bool]| {
        let mut scene = service(|_, _| vec![]);
        let api = ProcId(1);
        for &too in turns {
            let woken = WokenBy::Thread { proc: other, call: "futex".into() };
            let mut behind = behind(other, "session", Did::Slept(timer()));
            behind[0].too = too;
            let waits = (Slept { woken, ..condition() }, behind);
            scene.slept_in_request(api, "worker-1", waits, 10 * S);
        }
        let report = judged(&scene);
        let told = report.findings.iter().find(|it| it.code == "OFF003").unwrap();
        (told.severity, told.title.contains("take turns"))
    };
    let of = |turns: &[bool]| of_process(ProcId(1), turns);
    assert_eq!(of(&[true]), (Severity::Medium, true));
    assert_eq!(of(&[true, true, false]), (Severity::Medium, true));
    assert_eq!(of(&[true, false, false]), (Severity::Info, false));
    // Nobody waits for it: it is told of what others do in turn.
    assert_eq!(of_process(ProcId(2), &[true]), (Severity::Info, false));
}

/// A long poll, whose events a timer of another process makes: no timer is to blame.
#[test]
fn events_that_a_timer_makes_are_no_retries() {
    let naps = Slept { woken: WokenBy::HardInterrupt, ..timer() };
    let of = |in_request| {
        let did = Did::Slept(naps.clone());
        let mut scene = sessions("futex", condition().on, "futex", did, in_request);
        scene.timed(ProcId(2), ("postgres", None), &naps, (100 * MS, 100 * MS, 9));
        let report = judged(&scene);
        let told = report.findings.iter().filter(|it| it.code.starts_with("OFF"));
        told.map(|it| (it.code.clone(), it.severity)).collect::<Vec<_>>()
    };
    assert_eq!(of(true), [("OFF003".to_owned(), Severity::Info)]);
    assert_eq!(of(false), []);
}
