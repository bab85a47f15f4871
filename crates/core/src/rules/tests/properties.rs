// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Properties of any input: time is conserved, the blame is no more than the loss, the order is total.

use super::judged;
use crate::finding::{Answer, EntityKind, Ledger, QuestionAnswer, Report, Severity};
use crate::recording::{Culprit, IdleCpu, IdleTick, ObserverTick, ProcId};
use crate::rules::{report, worse_first};
use crate::testkit::{MS, ProcessActivity, S, Scene, view};
use proptest::prelude::*;

/// One process of a scene: its cgroup, what it did, the blame for its waits, idle CPUs.
type GeneratedProcess = (u8, ProcessActivity, Vec<(u8, u64)>, Option<(u64, u64)>);

fn did() -> impl Strategy<Value = ProcessActivity> {
    let time = || 0..20 * S;
    (0..40u32, time(), time(), time(), prop::collection::vec((0..2_000u64, 0..50 * MS), 0..4), 0..S)
        .prop_map(|(threads, on_cpu_ns, throttled_ns, block_io_ns, waits, wakeup_latency_ns)| {
            ProcessActivity {
                mem_stall_ns: block_io_ns / 2,
                stopped_ns: throttled_ns / 3,
                threads,
                on_cpu_ns,
                throttled_ns,
                block_io_ns,
                waits,
                wakeup_latency_ns,
            }
        })
}

fn life() -> impl Strategy<Value = GeneratedProcess> {
    (
        0..4u8,
        did(),
        prop::collection::vec((0..9u8, 0..20 * S), 0..5),
        prop::option::of((0..10 * S, 0..10 * S)),
    )
}

fn scene(lives: &[GeneratedProcess], quota_us: Option<u64>, lost: u64, host: bool) -> Scene {
    let mut scene = Scene::new(2, 10 * S);
    scene.cgroup("/", None, None);
    let cgroups = [
        None,
        Some(scene.cgroup("/a", None, None)),
        Some(scene.cgroup("/b", quota_us, None)),
        None,
    ];
    for (cgroup, ..) in lives {
        scene.process(["x", "y"][usize::from(*cgroup) % 2], cgroups[usize::from(*cgroup)]);
    }
    if let (Some(limited), Some(quota_us)) = (cgroups[2], quota_us) {
        scene.cpu_stat(limited, S, 100, quota_us % 101, quota_us * MS);
    }
    for (at, (_, did, blame, idle)) in lives.iter().enumerate() {
        let victim = ProcId(at as u32 + 1);
        scene.did(victim, did);
        for &(culprit, ns) in blame {
            let culprit = match culprit {
                0 => Culprit::Migrated,
                1 => Culprit::NotSampled,
                id => Culprit::Process(ProcId(id.into())),
            };
            scene.blame(victim, culprit, ns);
        }
        if let Some((allowed_ns, forbidden_ns)) = *idle {
            scene.idle(IdleTick {
                t0_ns: 0,
                t1_ns: 0,
                victim,
                min_wait_ns: 100_000,
                waits: 50,
                waits_ns: allowed_ns + forbidden_ns + 1,
                skipped_ns: allowed_ns,
                idle_allowed_ns: allowed_ns,
                idle_forbidden_ns: forbidden_ns,
                cpus: vec![IdleCpu { cpu: 1, allowed: false, idle_ns: forbidden_ns }],
            });
        }
    }
    scene.observer(ObserverTick {
        lost: [("blame_table_full_ns".to_owned(), lost)].into(),
        ..ObserverTick::default()
    });
    if !host && !lives.is_empty() {
        scene.target(ProcId(1));
    }
    scene
}

fn any_scene() -> impl Strategy<Value = Scene> {
    (prop::collection::vec(life(), 0..8), prop::option::of(1..200_000u64), 0..S, any::<bool>())
        .prop_map(|(lives, quota_us, lost, host)| scene(&lives, quota_us, lost, host))
}

fn conserved(ledger: &Ledger) -> bool {
    ledger.parts.iter().map(|part| part.ns).sum::<u64>() == ledger.wall_ns
        && ledger.parts.is_sorted_by_key(|part| part.state)
}

pub(super) fn check(report: &Report) -> Result<(), TestCaseError> {
    for ledger in &report.ledger {
        prop_assert!(conserved(ledger), "{ledger:?}");
    }
    for finding in &report.findings {
        let sum: f64 = finding.causes.iter().map(|cause| cause.share.get()).sum();
        prop_assert!(sum <= 1.0 + 1e-9, "{sum} of {finding:?}");
        prop_assert!((0.0..=1.0).contains(&finding.confidence), "{}", finding.confidence);
        prop_assert!((0.0..=1.0).contains(&finding.cost.share), "{:?}", finding.cost);
        prop_assert!(
            finding.evidence.iter().all(|line| line.value.is_finite() && !line.source.is_empty())
        );
        prop_assert!(finding.evidence.iter().all(|line| line.from_s <= line.to_s));
        let named = finding.victim.kind != EntityKind::Unknown;
        prop_assert!(named);
    }
    prop_assert!(report.findings.is_sorted_by(|a, b| worse_first(a, b).is_le()));
    let answers = report.ruled_out.len() + report.not_checked.len();
    let mut codes: Vec<_> = report.findings.iter().map(|finding| &finding.code).collect();
    codes.sort();
    codes.dedup();
    prop_assert_eq!(
        answers + codes.len(),
        super::of_recordings().count(),
        "every rule answers once"
    );
    for answer in &report.questions {
        prop_assert_eq!(answer.answer, expected(answer, report), "{:?}", answer);
        prop_assert_eq!(answer.in_part, answer.reason.is_some());
        prop_assert!(answer.in_part || answer.answer != Answer::Unknown);
        let words = answer.reason.iter().map(|reason| reason.split(' ').count()).max();
        prop_assert!(words.unwrap_or(1) <= 4, "{:?}", answer);
    }
    prop_assert!(crate::render::json(report).is_ok());
    Ok(())
}

/// The answer to a question that follows from the rest of the report.
fn expected(asked: &QuestionAnswer, report: &Report) -> Answer {
    let has = |code: &String| asked.codes.contains(code);
    let worst = report.findings.iter().filter(|it| has(&it.code)).map(|it| it.severity).max();
    match worst {
        Some(Severity::Info) => Answer::Info,
        Some(_) => Answer::Found,
        None if report.ruled_out.iter().any(|it| has(&it.code)) => Answer::Ok,
        None => Answer::Unknown,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn time_is_conserved_and_blame_is_no_more_than_the_loss(scene in any_scene()) {
        check(&judged(&scene))?;
    }

    #[test]
    fn the_order_of_findings_does_not_depend_on_the_order_in_which_they_came(
        scene in any_scene(), seed in any::<prop::sample::Index>(),
    ) {
        let report = judged(&scene);
        let mut turned = report.findings.clone();
        if !turned.is_empty() {
            let by = seed.index(turned.len());
            turned.rotate_left(by);
            turned.reverse();
        }
        turned.sort_by(worse_first);
        prop_assert_eq!(turned, report.findings);
    }

    #[test]
    fn a_recording_that_is_cut_anywhere_is_judged(scene in any_scene(), at in any::<prop::sample::Index>()) {
        let records = scene.records();
        let cut = &records[..at.index(records.len() + 1)];
        check(&report(&view(cut), "0.1.0", false))?;
    }

    #[test]
    fn two_windows_sum_to_the_ledger_of_both(a in did(), b in did()) {
        let ledger = |lives: &[&ProcessActivity]| {
            let mut scene = Scene::new(2, 10 * S);
            let process = scene.process("x", None);
            for did in lives {
                scene.did(process, did);
            }
            // In the report on a whole host, a group without a loss has no ledger.
            scene.target(process);
            judged(&scene).ledger.into_iter().next()
        };
        let parts = |ledger: Option<Ledger>| ledger.map(|l| (l.wall_ns, l.parts)).unwrap_or_default();
        let (both, first, second) = (parts(ledger(&[&a, &b])), parts(ledger(&[&a])), parts(ledger(&[&b])));
        prop_assert_eq!(both.0, first.0 + second.0);
        for part in &both.1 {
            let of = |parts: &[crate::finding::LedgerPart]| {
                parts.iter().filter(|other| other.state == part.state).map(|other| other.ns).sum::<u64>()
            };
            prop_assert_eq!(part.ns, of(&first.1) + of(&second.1));
        }
    }
}
