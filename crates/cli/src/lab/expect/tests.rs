// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Correct reports, and each way in which a report can be wrong.

use super::*;
use crate::lab::check::verdict;
use crate::lab::fitness::{Machine, Verdict};
use crate::lab::service::Periods;
use crate::lab::victim::{IoSummary, Stall, Summary};
use deburr_core::finding::{
    Cost, Entity, EntityKind, Finding, Fix, Host, Ledger, LedgerPart, LedgerState, Observer,
    Report, Severity, SleepPart, Target, Tool, Window,
};

const SCENARIO: &str = r#"
name = "example"
summary = "s"
explains = "e"
needs = []
seconds = 5
expect_first = "SCH001"
forbid = ["SCH002"]
[victim]
cgroup = "victim"
threads = 1
work_us = 1000
period_us = 10000
[[cause]]
code = "SCH001"
comm = "spinner"
cgroup = "neighbour"
min_share = 0.8
"#;

fn observed(waited_ms_per_s: u64, findings: Vec<Finding>) -> Observed {
    let victim = Entity { pid: Some(7), ..Entity::new(EntityKind::Process) };
    let waited_ns = waited_ms_per_s * 10_000_000;
    Observed {
        victim_pid: 7,
        lab_cgroup: "/lab".into(),
        victim_cpus: vec![0, 1],
        machine: Machine::default(),
        victim: Summary {
            wall_ns: 10_000_000_000,
            woke_late_ns: Some(0),
            preempted_ns: Some(waited_ns),
            ..Summary::default()
        },
        written: None,
        periods: None,
        recorded: vec![],
        report: Report {
            schema: String::new(),
            tool: Tool { version: String::new() },
            host: Host {
                name: String::new(),
                kernel: String::new(),
                cpus: 2,
                cgroup: String::new(),
            },
            window: Window {
                start: String::new(),
                seconds: 10.0,
                source: String::new(),
                events: vec![],
            },
            target: Target {
                kind: "process".into(),
                name: None,
                pid: Some(7),
                processes: 1,
                entries: vec![],
            },
            findings,
            ruled_out: vec![],
            not_checked: vec![],
            questions: vec![],
            ledger: vec![Ledger {
                victim,
                awaited: false,
                wall_ns: 10_000_000_000,
                threads: 1,
                parts: vec![
                    LedgerPart { state: LedgerState::Queued, ns: waited_ns },
                    LedgerPart { state: LedgerState::Sleep, ns: 10_000_000_000 - waited_ns },
                ],
                in_kernel: None,
                interrupted: None,
                interrupted_by: vec![],
                mem_stall_by: vec![],
                asleep: vec![],
                tasks_of: vec![],
                excess_ns: 0,
                unseen_ns: 0,
                tails: vec![],
            }],
            block_io: None,
            profile: None,
            observer: Observer::default(),
        },
    }
}

fn finding(code: &str, severity: Severity, causes: &[(&str, &str, f64)]) -> Finding {
    Finding {
        code: code.into(),
        area: deburr_core::rules::find(code).expect("a rule").area,
        device: None,
        name: String::new(),
        severity,
        confidence: 1.0,
        title: format!("title of {code}"),
        victim: Entity::new(EntityKind::Process),
        cost: Cost::default(),
        causes: causes
            .iter()
            .map(|&(comm, cgroup, share)| Cause {
                entity: Entity {
                    comm: Some(comm.into()),
                    cgroup: Some(cgroup.into()),
                    ..Entity::new(EntityKind::Process)
                },
                share: deburr_core::finding::Share::new(share).unwrap(),
            })
            .collect(),
        evidence: vec![],
        longest: None,
        rhythm_ns: None,
        chart: None,
        files: None,
        sizes: vec![],
        fix: vec![],
        confirm: None,
        prove: None,
    }
}

fn failures(control: &Observed, fault: &Observed) -> Vec<String> {
    let scenario = Scenario::parse(SCENARIO).unwrap();
    let checks = check(&scenario, control, fault);
    checks.into_iter().filter(|check| !check.pass).map(|check| check.what).collect()
}

fn right() -> Observed {
    let causes = [
        ("spinner", "/lab/neighbour", 0.5),
        ("spinner", "/lab/neighbour", 0.4),
        ("other", "/", 0.1),
    ];
    observed(300, vec![finding("SCH001", Severity::High, &causes)])
}

#[test]
fn a_right_report_passes_and_shares_of_one_comm_add_up() {
    let info = finding("SCH001", Severity::Info, &[]);
    let obs = finding("OBS002", Severity::Medium, &[]);
    assert_eq!(failures(&observed(1, vec![info, obs]), &right()), Vec::<String>::new());
}

#[test]
fn a_limit_that_is_too_tight_without_the_fault_says_nothing() {
    let scenario = Scenario::parse(SCENARIO).unwrap();
    let mut control = observed(300, vec![finding("SCH002", Severity::High, &[])]);
    control.periods = Some(Periods { with_work: 30, ran_out: 3 });
    assert_eq!(verdict(&check(&scenario, &control, &right()), &[]), Verdict::Failed);
    control.periods = Some(Periods { with_work: 30, ran_out: 12 });
    assert_eq!(verdict(&check(&scenario, &control, &right()), &[]), Verdict::Inconclusive);
}

#[test]
fn latency_from_outside_and_advice_are_checked() {
    let text = SCENARIO.replace(
        "seconds = 5",
        "seconds = 5\np99_factor = 5.0\nfix = \"THREADS\"\ncontrol_forbid = [\"SCH002\"]",
    );
    let scenario = Scenario::parse(&text).unwrap();
    let passed = |with_ms: u64, action: &str| -> Vec<bool> {
        // Other findings in the control run are ignored.
        let mut control = observed(1, vec![finding("SCH003", Severity::High, &[])]);
        let mut fault = right();
        for (run, p99_ms) in [(&mut control, 10), (&mut fault, with_ms)] {
            (run.victim.requests, run.victim.p99_ns) = (1000, p99_ms * 1_000_000);
        }
        let fix = Fix { action: action.into(), command: None, risk: None, expect: None };
        fault.report.findings[0].fix = vec![fix];
        let checks = check(&scenario, &control, &fault);
        let of = |word: &str| checks.iter().find(|check| check.what.contains(word)).unwrap().pass;
        vec![of("SCH002 above"), of("percentile"), of("advises")]
    };
    assert_eq!(passed(50, "set THREADS to 1"), [true, true, true]);
    assert_eq!(passed(49, "sleep"), [true, false, false]);
}

#[test]
fn the_interval_of_the_fault_is_read_from_its_field() {
    let text = SCENARIO.replace("seconds = 5", "seconds = 5\nrhythm_ms = 3000");
    let scenario = Scenario::parse(&text).unwrap();
    let passes = |rhythm_ns: Option<u64>| {
        let mut fault = right();
        fault.report.findings[0].rhythm_ns = rhythm_ns;
        let checks = check(&scenario, &observed(1, vec![]), &fault);
        checks.iter().find(|check| check.what.contains("rhythm")).unwrap().pass
    };
    assert!(passes(Some(3_100_000_000)));
    assert!(!passes(Some(3_200_000_000)) && !passes(None));
}

#[test]
fn only_findings_of_the_area_count() {
    let foreign = || finding("BLK003", Severity::High, &[]);
    let fails = |area: &str| {
        let text = SCENARIO.replace("seconds = 5", &format!("seconds = 5{area}"));
        let scenario = Scenario::parse(&text).unwrap();
        let mut fault = right();
        fault.report.findings.insert(0, foreign());
        let checks = check(&scenario, &observed(1, vec![foreign()]), &fault);
        checks.into_iter().filter(|check| !check.pass).count()
    };
    assert_eq!(fails("\narea = \"sched\""), 0);
    assert_eq!(fails("\narea = [\"sched\", \"network\"]"), 0);
    assert_eq!(fails("\narea = [\"sched\", \"block\"]"), 2);
    assert_eq!(fails(""), 2, "not silent without the fault, and not first with it");
}

#[test]
fn a_stall_must_be_there_with_the_fault_and_not_without() {
    let stalled = |stalled_ms: u64| {
        let mut run = observed(1, vec![]);
        let length_ns = stalled_ms * 1_000_000;
        let stalls = vec![Stall { at_ns: 0, length_ns }];
        run.victim.io = Some(IoSummary { stalls, ..IoSummary::default() });
        run.victim.max_ns = length_ns;
        run
    };
    let passed = |control_ms, fault_ms| {
        let (control, fault) = (stalled(control_ms), stalled(fault_ms));
        stalls(("without", &control), ("with", &fault), 20).map(|check| check.pass)
    };
    assert_eq!(passed(0, 19), [false, true]);
    assert_eq!(passed(19, 20), [true, true]);
    assert_eq!(passed(20, 60), [true, true]);
    assert_eq!(passed(21, 60), [true, false]);
    let without_list = |control_ms, fault_ms| {
        let (mut control, mut fault) = (stalled(control_ms), stalled(fault_ms));
        (control.victim.io, fault.victim.io) = (None, None);
        stalls(("without", &control), ("with", &fault), 20).map(|check| check.pass)
    };
    assert_eq!(without_list(0, 19), [false, true]);
    assert_eq!(without_list(7, 21), [true, true]);
    assert_eq!(without_list(8, 21), [true, false]);
}

#[test]
fn what_the_rest_of_the_host_did_is_set_aside() {
    let rest = finding("SCH001", Severity::High, &[("rustc", "/", 0.5), ("deburr", "/lab/o", 0.1)]);
    let busy = observed(200, vec![rest.clone()]);
    let mut both = right();
    let shares = [("rustc", "/labs", 0.4), ("spinner", "/lab/neighbour", 0.5)];
    both.report.findings = vec![finding("SCH001", Severity::High, &shares)];
    // Of the remaining 60 %, the spinners have 50.
    assert_eq!(failures(&busy, &both), Vec::<String>::new());
    assert!(busy.is_of_the_rest_of_the_host(&rest));
    assert!(!both.is_of_the_rest_of_the_host(&both.report.findings[0]));
}

#[test]
fn each_wrong_statement_fails_its_own_check() {
    let quiet = observed(1, vec![]);
    let noisy = observed(1, vec![finding("SCH003", Severity::Low, &[])]);
    assert_eq!(failures(&noisy, &right()).len(), 1);

    let both = [("SCH001", Severity::High), ("SCH002", Severity::Low)];
    let mut forbidden = right();
    forbidden.report.findings.push(finding(both[1].0, both[1].1, &[]));
    assert!(failures(&quiet, &forbidden)[0].contains("`SCH002` is quiet"));

    let mut second = right();
    second.report.findings.insert(0, finding("SCH003", Severity::High, &[]));
    assert!(failures(&quiet, &second)[0].contains("first: SCH003"));

    let mut elsewhere = right();
    elsewhere.report.findings[0].causes[0].entity.cgroup = Some("/lab/victim".into());
    assert!(failures(&quiet, &elsewhere)[0].contains("44.4 %"));

    let mut deaf = right();
    deaf.victim.preempted_ns = deaf.victim.preempted_ns.map(|ns| ns + ns / 3);
    assert!(failures(&quiet, &deaf)[0].contains("agree"));

    let mut busy_host = right();
    let rest =
        finding("SCH003", Severity::High, &[("rustc", "/", 0.6), ("spinner", "/lab/n", 0.3)]);
    busy_host.report.findings.insert(0, rest);
    assert_eq!(failures(&quiet, &busy_host), Vec::<String>::new());

    let mut leaky = right();
    leaky.report.ledger[0].parts.pop();
    assert!(failures(&quiet, &leaky)[0].contains("100 +- 0.1 %"));

    // Nothing is found: no first code, and no culprit.
    assert_eq!(failures(&quiet, &observed(300, vec![])).len(), 2);
}

#[test]
fn what_was_stolen_from_the_victims_cpus_is_not_missing_from_the_report() {
    // The victim's clock says 54.8 ms/s, the report 2.9: measured on a machine with stolen CPU time.
    let with_stolen = |stolen_ms_per_s: [u64; 2], cpus: &[usize]| {
        let mut run = observed(3, vec![]);
        run.victim.preempted_ns = Some(10 * 54_800_000);
        run.victim_cpus = cpus.to_vec();
        let stolen = (0..).zip(stolen_ms_per_s.map(|ms| ms * 10_000_000));
        run.machine.stolen_ns = stolen.collect();
        agreement("in a test", &run, 1).pass
    };
    assert!(!with_stolen([0, 0], &[0, 1]));
    assert!(with_stolen([200, 300], &[0, 1]));
    assert!(!with_stolen([0, 300], &[0]), "stolen from a CPU on which it never was");
    assert!(!with_stolen([10, 10], &[0, 1]), "too little to explain it");
    // Stolen time does not excuse a report of more waiting than the victim measured.
    let mut more = observed(300, vec![]);
    more.victim.preempted_ns = Some(10 * 200_000_000);
    more.machine.stolen_ns = [(0, 9_000_000_000)].into();
    assert!(!agreement("in a test", &more, 1).pass);
}

#[test]
fn what_a_hypervisor_takes_is_the_machines_in_both_runs() {
    let stolen = || finding("CPU001", Severity::High, &[]);
    let mut fault = right();
    fault.report.findings.insert(0, stolen());
    assert_eq!(failures(&observed(1, vec![stolen()]), &fault), Vec::<String>::new());
    // A finding about CPUs other than CPU001 counts.
    let slow = finding("CPU002", Severity::High, &[]);
    assert_eq!(failures(&observed(1, vec![slow]), &right()).len(), 1);
}

#[test]
fn nobody_waits_for_the_observer_longer_than_it_ran() {
    let quiet = observed(1, vec![]);
    let blamed = |of_observer: f64, cpu_seconds: f64| {
        let mut run = right();
        let observer = format!("/lab/{OBSERVER}");
        let causes = [
            ("spinner", "/lab/neighbour", 1.0 - of_observer),
            ("deburr", observer.as_str(), of_observer),
        ];
        let mut found = finding("SCH001", Severity::High, &causes);
        found.cost.lost_ns_per_s = 300_000_000;
        run.report.findings = vec![found];
        run.report.observer.cpu_seconds = cpu_seconds;
        failures(&quiet, &run)
    };
    // Of 3 s of waiting, 2.1 s are blamed on the observer, which ran for 0.1 s. The spinners have all of the rest,
    // and the check fails nevertheless.
    assert!(blamed(0.7, 0.1)[0].contains("longer for the observer"), "{:?}", blamed(0.7, 0.1));
    assert_eq!(blamed(0.04, 0.1), Vec::<String>::new());
}

#[test]
fn what_is_not_known_or_counted_twice_does_not_pass_for_all_of_the_time() {
    let quiet = observed(1, vec![]);
    let mut unknown = right();
    let parts = &mut unknown.report.ledger[0].parts;
    parts[1].ns -= 5_000_000_000;
    parts.push(LedgerPart { state: LedgerState::Unattributed, ns: 5_000_000_000 });
    assert!(failures(&quiet, &unknown)[0].contains("50.00 % unattributed"));
    let mut twice = right();
    twice.report.ledger[0].excess_ns = 50_000_000;
    assert!(failures(&quiet, &twice)[0].contains("50.0 ms counted twice"));
}

#[test]
fn a_fault_that_did_not_come_about_excuses_what_is_about_it_and_nothing_else() {
    let fails =
        |what: &str, topic, rests_on| Check::new(false, what).about(topic).resting_on(rests_on);
    let first = fails("first", Topic::First, Precondition::Fault);
    let silent = fails("silent", Topic::Silence, Precondition::Control);
    let conserved = fails("conserved", Topic::Other, Precondition::Nothing);
    let no_fault = fails("stalls", Topic::Fault, Precondition::Fault);
    let no_control = fails("stalled before", Topic::Control, Precondition::Fault);
    let of = |checks: &[&Check], unfit: &[String]| {
        let checks: Vec<Check> = checks.iter().map(|check| (*check).clone()).collect();
        verdict(&checks, unfit)
    };
    let stolen = ["stolen".to_owned()];
    assert_eq!(of(&[&Check::new(true, "all")], &stolen), Verdict::Passed);
    assert_eq!(of(&[&first], &[]), Verdict::Failed);
    assert_eq!(of(&[&first], &stolen), Verdict::Inconclusive);
    assert_eq!(of(&[&first, &no_fault], &[]), Verdict::Inconclusive);
    assert_eq!(of(&[&no_fault], &[]), Verdict::Inconclusive);
    assert_eq!(of(&[&silent, &no_fault], &[]), Verdict::Failed);
    assert_eq!(of(&[&silent, &no_control], &[]), Verdict::Inconclusive);
    assert_eq!(of(&[&conserved, &no_fault], &[]), Verdict::Failed);
}

#[test]
fn the_report_splits_the_victims_sleep_as_its_threads_do() {
    let quiet = observed(1, vec![]);
    let with = |own: Slept, told: &[(SleepKind, u64)]| {
        let mut run = right();
        let part = |&(kind, ns): &(SleepKind, u64)| SleepPart {
            kind,
            state: LedgerState::Sleep,
            call: "read".into(),
            on: None,
            woken_by: None,
            behind: vec![],
            ns,
        };
        run.report.ledger[0].asleep = told.iter().map(part).collect();
        run.victim.slept = Some(own);
        let fails = failures(&quiet, &run);
        fails.iter().any(|it| it.contains("agree on its sleep"))
    };
    let (s, zero) = (1_000_000_000, Slept::default());
    let own = Slept { others_ns: 4 * s, timer_ns: 2 * s, ..zero };
    let told = [(SleepKind::WaitsForOthers, 4 * s), (SleepKind::OwnTimer, 2 * s)];
    assert!(!with(own, &told));
    assert!(with(own, &[(SleepKind::WaitsForOthers, 4 * s), (SleepKind::WaitsForWork, 2 * s)]));
    assert!(with(Slept { others_ns: 37 * s / 10, ..own }, &told), "3 points of 10 s");
    // Who waits for a thread that sleeps on its timer has no work, or waits for that timer: never for others.
    let idle = Slept { idle_ns: 6 * s, ..zero };
    assert!(!with(idle, &[(SleepKind::WaitsForWork, 6 * s)]));
    assert!(!with(idle, &[(SleepKind::OwnTimer, 6 * s)]));
    assert!(with(idle, &[(SleepKind::WaitsForOthers, 6 * s)]));
    // The disk is in a state of its own, or somebody else waits for it.
    let disk = Slept { disk_ns: 3 * s, ..zero };
    assert!(!with(disk, &[]) && !with(disk, &told[..0]));
    assert!(!with(disk, &[(SleepKind::WaitsForOthers, 2 * s)]));
    assert!(with(disk, &[(SleepKind::WaitsForOthers, 4 * s)]));
}
