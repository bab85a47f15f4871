// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sleeps of those that lose most on a whole host: waits for a turn are findings, waits for others are not. And where no sleep
//! was recorded.

use super::waiting::{convoy, service, slept};
use super::{codes, judged};
use crate::finding::{Answer, EntityKind, Question};
use crate::recording::SleptOn;
use crate::testkit::{ProcessActivity, S, Scene};

fn of_host(mut scene: Scene) -> Scene {
    scene.whole_host();
    scene
}

#[test]
fn who_waits_for_a_lock_on_a_host_is_told_and_who_waits_for_an_answer_is_not() {
    let report = judged(&of_host(convoy()));
    assert_eq!(codes(&report), ["OFF001"]);
    assert_eq!(report.findings[0].victim.kind, EntityKind::Process);
    assert!(report.findings[0].title.contains("db-writer"), "{}", report.findings[0].title);
    let asks = || {
        let (protocol, remote) = ("tcp".into(), Some("10.0.0.7:5432".into()));
        let (listens, port, asked, ready) = (Some(false), Some(40_000), Some(true), false);
        let on = SleptOn::Inet { protocol, listens, port, remote, asked, ready };
        service(|_, _| vec![(slept("recvfrom", on.clone()), vec![], 60 * S)])
    };
    assert_eq!(codes(&judged(&asks())), ["OFF002"]);
    let report = judged(&of_host(asks()));
    assert_eq!(codes(&report), [""; 0]);
    let others = report.questions.iter().find(|it| it.question == Question::Others).unwrap();
    assert_eq!((others.answer, others.in_part), (Answer::Ok, true));
    assert_eq!(others.reason.as_deref(), Some("for a target only"));
}

#[test]
fn a_host_of_which_no_sleep_was_recorded_is_not_quiet() {
    let mut scene = service(|_, _| vec![]);
    scene.whole_host();
    let report = judged(&scene);
    let lock = report.not_checked.iter().find(|it| it.code == "OFF001").unwrap();
    assert!(lock.missing[0].contains("those that lose most"), "{:?}", lock.missing);
}

/// A target that computes all the time waits for nobody; of one that slept, the sleep is missing.
#[test]
fn a_target_that_never_slept_waits_for_nobody() {
    let of = |sleep_ns: u64| {
        let mut scene = Scene::new(4, 10 * S);
        let batch = scene.process("batch", None);
        let on_cpu_ns = 10 * S - sleep_ns;
        scene.did(batch, &ProcessActivity { on_cpu_ns, ..ProcessActivity::default() });
        scene.target(batch);
        let report = judged(&scene);
        let out = report.ruled_out.iter().any(|it| it.code == "OFF001");
        (out, report.not_checked.iter().any(|it| it.code == "OFF001"))
    };
    assert_eq!(of(0), (true, false));
    assert_eq!(of(5 * S), (false, true));
}
