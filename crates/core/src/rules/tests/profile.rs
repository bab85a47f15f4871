// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A profile names functions in findings, and decides nothing.

use super::{judged, scenes};
use crate::finding::{Evidence, Finding, Report};
use crate::recording::{ProcId, ProfileRecord, ProfileSpan, ProfileStack, Record};
use crate::testkit::Scene;

/// The service of [`scenes::neighbour`], and one of the processes beside it.
const VICTIM: ProcId = ProcId(1);
const CULPRIT: ProcId = ProcId(2);

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
        finding.evidence.retain(|line| line.name != "functions");
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
