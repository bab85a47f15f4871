// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What remedies promise holds for all of whom it depends on, and where that is not known nothing is promised.

use super::{judged, scenes};
use crate::finding::{Finding, Fix};
use crate::recording::{ProcId, Record};
use crate::testkit::{Did, S, Scene, US};

fn finding(scene: &Scene, code: &str) -> Finding {
    let found = judged(scene).findings.into_iter().find(|finding| finding.code == code);
    found.expect("it fires")
}

/// The first remedy against that.
fn fix(scene: &Scene, code: &str) -> Fix {
    finding(scene, code).fix.into_iter().next().expect("a remedy")
}

fn left(fix: &Fix) -> Option<f64> {
    fix.expect.map(|promise| promise.left_at_most)
}

fn has_doubt(fix: &Fix, words: &str) -> bool {
    left(fix).is_none() && fix.risk.as_deref().is_some_and(|risk| risk.contains(words))
}

/// `envoy`, the second process of the scene, is asked for, and `java` uses the same quota.
fn sidecar() -> Scene {
    let mut scene = scenes::nested_quota();
    scene.target(ProcId(2));
    scene
}

/// A spinner under half a CPU, in a directory below another one; their quotas, and how often each ran out.
fn nested(quotas_us: [Option<u64>; 2], throttled: [u64; 2]) -> Scene {
    let mut scene = Scene::new(4, 10 * S);
    scene.cgroup("/", None, None);
    let above = scene.cgroup("/pod", quotas_us[0], None);
    let own = scene.cgroup("/pod/own", quotas_us[1], None);
    let spinner = scene.process("spinner", Some(own));
    let waits = vec![(100, 20 * US)];
    scene.did(spinner, &Did { on_cpu_ns: 5 * S, throttled_ns: 5 * S, waits, ..Did::default() });
    scene.cpu_stat(above, 5 * S, 100, throttled[0], 5 * S);
    scene.cpu_stat(own, 5 * S, 100, throttled[1], 5 * S);
    scene.target(spinner);
    scene
}

#[test]
fn a_quota_that_is_shared_is_raised_to_what_all_want_together() {
    let whole = fix(&scenes::nested_quota(), "SCH002");
    let fix = fix(&sidecar(), "SCH002");
    // 0.96 and 0.04 CPUs used, 1.4 and 0.06 stopped.
    assert!(fix.action.ends_with("to 2.5 CPUs"), "{}", fix.action);
    assert_eq!(left(&fix), Some(0.25));
    assert_eq!(fix, whole, "whoever asks, the quota is the same");
}

#[test]
fn where_others_under_the_quota_were_not_seen_nothing_is_promised() {
    let mut unseen = Scene::new(4, 10 * S);
    for record in sidecar().records() {
        let is_java = matches!(&record, Record::ProcessTick(tick) if tick.proc == ProcId(1));
        if !is_java && !matches!(record, Record::Meta(_) | Record::End { .. }) {
            unseen.push(record);
        }
    }
    let fix = fix(&unseen, "SCH002");
    assert!(has_doubt(&fix, "not all who use this quota were seen"), "{fix:?}");
    assert!(fix.action.ends_with("to 1.5 CPUs"), "more than what the counter says: {}", fix.action);
}

#[test]
fn a_second_quota_that_is_too_small_is_a_reason_to_promise_nothing() {
    let alone = fix(&nested([None, Some(50_000)], [0, 100]), "SCH002");
    assert_eq!(left(&alone), Some(0.25));
    let roomy = fix(&nested([Some(200_000), Some(50_000)], [0, 100]), "SCH002");
    assert_eq!(left(&roomy), Some(0.25));
    let above = fix(&nested([Some(60_000), Some(50_000)], [0, 100]), "SCH002");
    assert!(has_doubt(&above, "another quota"), "{above:?}");
    let below = fix(&nested([Some(50_000), Some(60_000)], [100, 0]), "SCH002");
    assert!(has_doubt(&below, "another quota"), "{below:?}");
    let guessed = fix(&nested([None, Some(50_000)], [0, 0]), "SCH002");
    assert!(has_doubt(&guessed, "no counter says"), "{guessed:?}");
}

#[test]
fn what_is_enough_in_the_mean_is_not_promised_to_be_enough_for_peaks() {
    let mut scene = Scene::new(8, 10 * S);
    scene.cgroup("/", None, None);
    let web = scene.cgroup("/web", Some(100_000), None);
    let server = scene.process("server", Some(web));
    // Once a second, four threads want 50 ms each at once: 100 ms are left to do when the quota has run out.
    let waits = vec![(100, 20 * US)];
    let did = Did { threads: 4, on_cpu_ns: 5 * S, throttled_ns: 3 * S, waits, ..Did::default() };
    scene.did(server, &did).cpu_stat(web, 5 * S, 100, 10, 3 * S).target(server);
    let peaks = fix(&scene, "SCH002");
    assert!(peaks.action.ends_with("to 1.5 CPUs"), "{}", peaks.action);
    assert!(has_doubt(&peaks, "perhaps not for peaks"), "{peaks:?}");
    let without_bpf = |throttled| {
        let mut scene = scenes::no_bpf();
        scene.cgroup("/", None, None);
        let web = scene.cgroup("/web", Some(100_000), None);
        let server = scene.process("server", Some(web));
        scene.schedstat(server, 5 * S, 3 * S, 100);
        scene.cpu_stat(web, 5 * S, 100, throttled, 3 * S).target(server);
        left(&fix(&scene, "SCH002"))
    };
    assert_eq!([without_bpf(10), without_bpf(95)], [None, Some(0.25)]);
}
