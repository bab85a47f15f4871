// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Services whose tasks wait without a thread that sleeps for them.

use super::runtimes::go;
use super::waiting::{clients, service};
use super::{judged, shown};
use crate::finding::{Answer, Question, QuestionAnswer, Report};
use crate::recording::{ProcId, RuntimeKind};
use crate::testkit::S;
use std::cell::Cell;

/// A service that sleeps as one without work, in that runtime.
fn report(kind: RuntimeKind) -> Report {
    let service_id = Cell::new(ProcId(0));
    let mut scene = service(|api, _| {
        service_id.set(api);
        vec![(clients(), vec![], 60 * S)]
    });
    let mut reading = go(service_id.get(), "go1.22", 4);
    reading.kind = kind;
    scene.runtime(reading);
    judged(&scene)
}

#[test]
fn what_goroutines_wait_for_is_said_not_to_be_seen() {
    let told = report(RuntimeKind::Go);
    assert_eq!(told.ledger[0].tasks_of, [RuntimeKind::Go]);
    let others = |report: &Report| {
        let of = |it: &&QuestionAnswer| it.question == Question::Others;
        report.questions.iter().find(of).cloned().unwrap()
    };
    let answer = others(&told);
    assert_eq!((answer.answer, answer.in_part), (Answer::Ok, true));
    assert_eq!(answer.reason.as_deref(), Some("tasks not seen"));
    let page = shown(&told);
    assert!(page.contains("not in it: waits of goroutines"), "{page}");

    // The decoy: threads of nginx sleep for what they wait for.
    let told = report(RuntimeKind::Nginx);
    assert_eq!(told.ledger[0].tasks_of, []);
    assert!(!others(&told).in_part);
    let page = shown(&told);
    assert!(!page.contains("not in it"), "{page}");
}
