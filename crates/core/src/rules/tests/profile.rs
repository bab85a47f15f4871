// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A profile names functions in findings, and decides nothing.

use super::{judged, scenes, waiting};
use crate::finding::{Evidence, Finding, Report};
use crate::recording::{
    ObserverTick, ProcId, ProfileRecord, ProfileSpan, ProfileStack, Record, SleepStack,
};
use crate::testkit::Scene;

/// The service of [`scenes::neighbour`], and one of the processes beside it.
const VICTIM: ProcId = ProcId(1);
const CULPRIT: ProcId = ProcId(2);

/// Evidence that exists only with a profile.
const NAMES: [&str; 3] = ["functions", "stack", "stack of the waker"];

/// Sleep of the service of [`waiting::convoy`], by the call, the word, who ended it, and the stack.
type Asleep<'a> = (&'a str, Option<u64>, Option<ProcId>, &'a str, u64);

fn slept(scene: &mut Scene, sleeps: &[Asleep<'_>], samples: u64) {
    for &(call, address, waker, stack, ns) in sleeps {
        let (call, stack) = (call.to_owned(), stack.to_owned());
        let sleep = SleepStack {
            t0_ns: 0,
            t1_ns: 1,
            process: VICTIM,
            call,
            address,
            waker,
            stack,
            samples,
            ns,
        };
        scene.push(Record::Profile(Box::new(ProfileRecord::Sleep(sleep))));
    }
}

/// Stacks with which sleeps for a lock begin and end, and those of an event loop.
const CONVOY: [Asleep<'_>; 5] = [
    ("futex", Some(waiting::LOCK), None, "main;serve;enter", 20_000),
    ("futex", Some(waiting::LOCK), None, "main;check;enter", 10_000),
    ("futex", Some(waiting::LOCK), Some(VICTIM), "writer;flush;leave", 25_000),
    ("futex", Some(waiting::LOCK + 4), None, "main;rest", 90_000),
    ("epoll_wait", None, None, "main;loop", 80_000),
];

fn sampled(scene: &mut Scene, stacks: &[(ProcId, &str, u64)]) {
    let samples = stacks.iter().map(|(.., samples)| samples).sum();
    let span = ProfileSpan { t1_ns: 1, period_ns: 10_101_010, samples, ..ProfileSpan::default() };
    scene.push(Record::Profile(Box::new(ProfileRecord::Span(span))));
    for &(process, stack, samples) in stacks {
        let stack = ProfileStack { t0_ns: 0, t1_ns: 1, process, stack: stack.into(), samples };
        scene.push(Record::Profile(Box::new(ProfileRecord::Stack(stack))));
    }
}

fn functions(finding: &Finding) -> Vec<&Evidence> {
    finding.evidence.iter().filter(|line| line.name == "functions").collect()
}

fn without_names(mut report: Report) -> Report {
    report.profile = None;
    for finding in &mut report.findings {
        finding.evidence.retain(|line| !NAMES.contains(&line.name.as_str()));
    }
    report
}

#[test]
fn findings_about_cpu_time_name_the_functions_of_the_victim_and_of_the_first_culprit() {
    let mut scene = scenes::neighbour();
    let plain = judged(&scene);
    let stacks = [
        (VICTIM, "main;serve;parse", 60),
        (VICTIM, "main;serve;copy_user_[k]", 36),
        (VICTIM, "main", 4),
        (CULPRIT, "main;burn", 500),
    ];
    sampled(&mut scene, &stacks);
    let report = judged(&scene);
    let found = report.findings.iter().find(|finding| finding.code == "SCH001").unwrap();
    let lines = functions(found);
    let [of_victim, of_culprit] = lines.as_slice() else { panic!("{lines:?}") };
    assert!((of_victim.value - 0.6).abs() < 1e-9);
    let note = of_victim.note.as_deref().unwrap();
    let expected = "in `parse`, 36 % in `copy_user`; 100 samples";
    assert!(note.starts_with("of the CPU time of `ruby`") && note.ends_with(expected), "{note}");
    let note = of_culprit.note.as_deref().unwrap();
    assert!(note.contains("`stress`") && note.contains("`burn`; 500 samples"), "{note}");
    // The target comes first, however little it ran.
    let profile = report.profile.as_ref().unwrap();
    let shares: Vec<_> = profile.processes[0].functions.iter().map(|it| it.name.as_str()).collect();
    assert_eq!((profile.processes[0].samples, shares), (100, vec!["parse", "copy_user", "main"]));
    assert_eq!(without_names(report), plain, "it decides nothing");
}

#[test]
fn of_a_handful_of_samples_no_share_is_told() {
    let mut scene = scenes::neighbour();
    sampled(&mut scene, &[(VICTIM, "main;parse", 29), (CULPRIT, "main;burn", 30)]);
    let report = judged(&scene);
    let found = report.findings.iter().find(|finding| finding.code == "SCH001").unwrap();
    let notes: Vec<_> = functions(found).iter().filter_map(|line| line.note.as_deref()).collect();
    assert!(matches!(notes.as_slice(), [note] if note.contains("`stress`")), "{notes:?}");
    let profile = report.profile.unwrap();
    assert_eq!((profile.samples, profile.processes.len()), (59, 1));
}

#[test]
fn without_samples_there_is_no_section() {
    let mut scene = scenes::neighbour();
    sampled(&mut scene, &[]);
    assert_eq!(judged(&scene).profile, None);
}

fn stacks(report: &Report) -> Vec<(String, f64, String)> {
    let found = report.findings.iter().find(|finding| finding.code == "OFF001").unwrap();
    let lines = found.evidence.iter().filter(|line| NAMES.contains(&line.name.as_str()));
    lines.map(|it| (it.name.clone(), it.value, it.note.clone().unwrap_or_default())).collect()
}

#[test]
fn a_finding_about_waiting_names_the_stacks_of_its_own_sleep() {
    let mut scene = waiting::convoy();
    let plain = judged(&scene);
    slept(&mut scene, &CONVOY, 40);
    let report = judged(&scene);
    let told = stacks(&report);
    let [begins, ends] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!((begins.0.as_str(), ends.0.as_str()), ("stack", "stack of the waker"));
    assert!((begins.1 - 2.0 / 3.0).abs() < 1e-9 && (ends.1 - 5.0 / 6.0).abs() < 1e-9, "{told:?}");
    let expected = "begins in `main > serve > enter`; 80 sleeps were looked at";
    assert!(begins.2.ends_with(expected), "{told:?}");
    assert!(ends.2.contains("ends in `writer > flush > leave` of `api`"), "{told:?}");
    let profile = report.profile.as_ref().unwrap();
    let [sleep] = profile.sleeps.as_slice() else { panic!("{profile:?}") };
    let first: Vec<_> = sleep.begins.iter().map(|it| it.frames.join(";")).take(2).collect();
    assert_eq!((first, sleep.samples), (vec!["main;rest".into(), "main;loop".into()], 160));
    assert_eq!(without_names(report), plain, "it decides nothing");
}

#[test]
fn the_part_of_a_stack_in_the_kernel_is_told_as_such() {
    let mut scene = waiting::convoy();
    let stack = "main;f1;f2;f3;f4;f5;f6;k1_[k];k2_[k];k3_[k];k4_[k];k5_[k]";
    slept(&mut scene, &[("futex", Some(waiting::LOCK), None, stack, 20_000)], 40);
    let told = stacks(&judged(&scene));
    let [(_, _, note)] = told.as_slice() else { panic!("{told:?}") };
    let expected = "begins in `f1 > f2 > f3 > f4 > f5 > f6`, the kernel's `k2 > k3 > k4 > k5`;";
    assert!(note.contains(expected), "{note}");
}

/// The decoy: sleep in the same call, most of which the finding is not about.
#[test]
fn stacks_of_other_sleep_in_the_same_call_are_not_the_findings() {
    let mut scene = waiting::convoy();
    // The same word: a lock, and a condition of which nobody knows what it is for.
    let on =
        crate::recording::SleptOn::Futex { address: waiting::LOCK, value: 0, op: 9, user: None };
    let (state, woken) =
        (crate::recording::SleepState::Asleep, crate::recording::WokenBy::NotKnown);
    let rest = crate::recording::Slept { state, call: "futex".into(), on, woken };
    scene.slept(VICTIM, "worker", (rest, vec![]), 15 * crate::testkit::S);
    slept(&mut scene, &CONVOY, 40);
    assert_eq!(stacks(&judged(&scene)), []);
}

#[test]
fn of_a_handful_of_sleeps_no_stack_is_told() {
    let mut scene = waiting::convoy();
    slept(&mut scene, &CONVOY, 2);
    assert_eq!(stacks(&judged(&scene)), []);
    let profile = judged(&scene).profile.unwrap();
    assert_eq!(profile.sleeps.len(), 1, "of all of its sleep there are enough");
}

#[test]
fn lost_samples_are_told_and_take_no_confidence_from_what_they_do_not_decide() {
    let mut scene = waiting::convoy();
    slept(&mut scene, &CONVOY, 40);
    let whole = judged(&scene);
    let lost = [("stacks_overrun".to_owned(), 80)].into();
    scene.observer(ObserverTick { lost, ..ObserverTick::default() });
    let report = judged(&scene);
    let title = |report: &Report| {
        let found = report.findings.iter().find(|finding| finding.code == "OBS001");
        found.map(|finding| finding.title.clone())
    };
    let confidence = |report: &Report| {
        report.findings.iter().find(|finding| finding.code == "OFF001").unwrap().confidence
    };
    assert_eq!(title(&whole), None);
    assert!(title(&report).unwrap().ends_with("50 % of the samples of the profile"), "{report:?}");
    assert_eq!(confidence(&report), confidence(&whole));
}
