// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether `deburr` said of a scenario what it has to say. Pure: two observations in, checks out.

use super::disk::Marks;
use super::measured;
use super::scenario::{CauseBound, Scenario};
use super::victim::{Stall, Summary};
use deburr_core::finding::{Cause, EntityKind, Finding, LedgerState, Report, Severity};
use serde::Serialize;
use std::path::Path;

/// One run as both channels saw it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Observed {
    /// Pid of the victim.
    pub(crate) victim_pid: u32,
    /// The lab's cgroup in that run.
    pub(crate) lab_cgroup: String,
    /// What the victim measured of itself.
    pub(crate) victim: Summary,
    /// What the disk, if the run had one of its own, saw written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) written: Option<Marks>,
    /// The stalls of the victim's syncs that `deburr` recorded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) recorded: Vec<Stall>,
    /// What `deburr` reported about it.
    pub(crate) report: Report,
}

impl Observed {
    /// Time in which the victim wanted a CPU and had none, per second of wall time, by the report's ledger;
    /// `None` without one.
    pub(crate) fn reported_ns_per_s(&self) -> Option<f64> {
        let ledger =
            self.report.ledger.iter().find(|ledger| ledger.victim.pid == Some(self.victim_pid))?;
        let waited_ns: u64 = ledger
            .parts
            .iter()
            .filter(|part| {
                matches!(
                    part.state,
                    LedgerState::Queued | LedgerState::Throttled | LedgerState::QueuedOrThrottled
                )
            })
            .map(|part| part.ns)
            .sum();
        Some(waited_ns as f64 / self.report.window.seconds)
    }

    /// Findings above `info` about what the lab did: not about the observation, and not about what the rest of
    /// the host did to the victim meanwhile, which is true as well but says nothing of the scenario.
    fn complaints(&self) -> impl Iterator<Item = &Finding> {
        self.report
            .findings
            .iter()
            .filter(|finding| finding.severity > Severity::Info && !finding.code.starts_with("OBS"))
            .filter(|finding| !self.is_of_the_rest_of_the_host(finding))
    }

    /// Whether more of a finding is due to processes outside of the lab than to those in it.
    pub(crate) fn is_of_the_rest_of_the_host(&self, finding: &Finding) -> bool {
        let inside: f64 =
            finding.causes.iter().filter(|cause| !self.is_outside(cause)).map(|c| c.share).sum();
        self.outside_share(finding) > inside
    }

    /// Share of a finding's loss that is due to processes outside of the lab.
    fn outside_share(&self, finding: &Finding) -> f64 {
        finding.causes.iter().filter(|cause| self.is_outside(cause)).map(|cause| cause.share).sum()
    }

    fn is_outside(&self, cause: &Cause) -> bool {
        // Reports leave out the root of the tree; none of the lab's processes is there.
        let path = cause.entity.cgroup.as_deref().unwrap_or("/");
        let process = matches!(cause.entity.kind, EntityKind::Process | EntityKind::Thread);
        process && !Path::new(path).starts_with(&self.lab_cgroup)
    }
}

/// One expectation and whether it was met.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Check {
    /// What was expected and what was seen, in one line.
    pub(crate) what: String,
    /// Whether they agree.
    pub(crate) pass: bool,
}

impl Check {
    pub(super) fn new(pass: bool, what: impl Into<String>) -> Self {
        Self { what: what.into(), pass }
    }
}

/// The report's and the victim's own account of the waiting may differ by this part of the greater one, ...
const TOLERANCE: f64 = 0.1;
/// ... and by so much for every thread: the victim also feels interrupts, timers that fire late, and, on a
/// virtual machine, a host that gives its CPU to others, none of which is waiting behind anybody.
const TOLERANCE_NS_PER_S: f64 = 20e6;

/// All expectations of a scenario.
pub(crate) fn check(scenario: &Scenario, control: &Observed, fault: &Observed) -> Vec<Check> {
    let (without, with) = scenario.run_names();
    let area = scenario.area.as_deref().unwrap_or_default();
    let mut checks = vec![silence(area, scenario.control_forbid.as_deref(), without, control)];
    if scenario.silent {
        checks.push(silence(area, None, with, fault));
    }
    if let Some(code) = &scenario.expect_first {
        // The finding that must come first may well be due to more than the lab.
        let first = fault
            .report
            .findings
            .iter()
            .filter(|found| found.code.starts_with(area))
            .find(|found| found.code == *code || !fault.is_of_the_rest_of_the_host(found));
        let first = first.map_or("nothing", |found| &found.code);
        checks.push(Check::new(first == code, format!("`{code}` comes first: {first}")));
    }
    for code in &scenario.expect {
        let found = fault.report.findings.iter().any(|finding| finding.code == *code);
        checks.push(Check::new(found, format!("`{code}` is found")));
    }
    for code in &scenario.forbid {
        let found = fault.complaints().find(|finding| finding.code == *code);
        let seen = found.map_or("quiet".to_owned(), |finding| format!("\"{}\"", finding.title));
        checks.push(Check::new(found.is_none(), format!("`{code}` is quiet: {seen}")));
    }
    checks.extend(scenario.causes.iter().map(|bound| blame(bound, fault)));
    if let Some(bound_ms) = scenario.stall_ms {
        checks.extend(stalls((without, control), (with, fault), bound_ms));
    }
    if let Some(period_ms) = scenario.rhythm_ms {
        let code = scenario.expect_first.as_deref().unwrap_or_default();
        checks.push(rhythm(code, period_ms, fault));
    }
    if let Some(code) = &scenario.measured {
        checks.extend(measured::checks(code, fault));
    }
    if let Some(factor) = scenario.p99_factor {
        checks.push(slower(factor, control, fault));
    }
    if let Some(word) = &scenario.fix {
        checks.push(remedy(scenario.expect_first.as_deref().unwrap_or_default(), word, fault));
    }
    // A victim that waits for a disk, or is measured from outside, does not know how long it waits for a CPU.
    if scenario.victim.broker.is_none() && scenario.victim.service.is_none() {
        for (name, run) in [(without, control), (with, fault)] {
            checks.push(agreement(name, run, scenario.victim.threads));
        }
    }
    checks.push(conservation(fault));
    checks
}

fn silence(area: &str, codes: Option<&[String]>, name: &str, run: &Observed) -> Check {
    let counts = |found: &&Finding| {
        found.code.starts_with(area) && codes.is_none_or(|codes| codes.contains(&found.code))
    };
    let complaints = run.complaints().filter(counts);
    let said: Vec<_> = complaints.map(|found| format!("\"{}\"", found.title)).collect();
    let of = match codes {
        Some(codes) => format!(" of {}", codes.join(", ")),
        None if area.is_empty() => String::new(),
        None => format!(" of {area}"),
    };
    let seen = if said.is_empty() { "nothing".into() } else { said.join(", ") };
    Check::new(said.is_empty(), format!("nothing{of} above `info` is found {name}: {seen}"))
}

fn blame(bound: &CauseBound, run: &Observed) -> Check {
    let cgroup = bound.cgroup.as_ref().map(|path| format!("{}/{path}", run.lab_cgroup));
    let matches = |cause: &&Cause| {
        (bound.comm.is_none() || cause.entity.comm == bound.comm)
            && (cgroup.is_none() || cause.entity.cgroup == cgroup)
    };
    let finding = run.report.findings.iter().find(|finding| finding.code == bound.code);
    let share: f64 =
        finding.iter().flat_map(|f| &f.causes).filter(matches).map(|cause| cause.share).sum();
    // Of what is left when the rest of the host and the victim's own threads are set aside.
    let own: f64 = finding
        .iter()
        .flat_map(|finding| &finding.causes)
        .filter(|cause| cause.entity.pid == Some(run.victim_pid))
        .map(|cause| cause.share)
        .sum();
    let left = 1.0 - own - finding.map_or(0.0, |finding| run.outside_share(finding));
    let share = if left > 0.0 { share / left } else { 0.0 };
    let who = [bound.comm.as_ref(), bound.cgroup.as_ref()];
    let who: Vec<_> = who.into_iter().flatten().map(|name| format!("`{name}`")).collect();
    let seen = match finding {
        Some(_) => format!("{:.1} %", share * 100.0),
        None => format!("no {}", bound.code),
    };
    Check::new(
        share >= bound.min_share,
        format!(
            "{} is to blame for at least {:.0} % of `{}`: {seen}",
            who.join(" in "),
            bound.min_share * 100.0,
            bound.code
        ),
    )
}

/// Timers are late, and the probe looks in bins of 100 ms.
const RHYTHM_TOLERANCE: f64 = 0.05;

/// A finding names the interval at which the fault comes.
fn rhythm(code: &str, period_ms: u64, run: &Observed) -> Check {
    let findings = run.report.findings.iter().filter(|finding| finding.code == code);
    let line =
        findings.flat_map(|f| &f.evidence).find(|line| line.name == "rhythm" && line.value > 0.0);
    let period_ns = period_ms as f64 * 1e6;
    let seen = line.map_or("none".into(), |line| format!("{} ms", tenths(line.value)));
    let near =
        line.is_some_and(|line| (line.value - period_ns).abs() <= period_ns * RHYTHM_TOLERANCE);
    Check::new(near, format!("`{code}` has a rhythm of {period_ms} ms: {seen}"))
}

/// Of the time in such stalls with the fault, so much may be there without it: nobody can make a host so quiet
/// that none ever happens.
const STALLED_ANYWAY: f64 = 1.0 / 3.0;

/// The incident happened, by the victim's own account, and was the fault's.
fn stalls(control: (&str, &Observed), fault: (&str, &Observed), bound_ms: u64) -> [Check; 2] {
    let longest_ns = fault.1.victim.max_ns;
    let bound_ns = bound_ms * 1_000_000;
    let stalled_ns = |run: &Observed| -> u64 {
        let stalls = run.victim.io.iter().flat_map(|io| &io.stalls);
        stalls.map(|stall| stall.length_ns).filter(|&ns| ns >= bound_ns).sum()
    };
    let (without_ns, with_ns) = (stalled_ns(control.1) as f64, stalled_ns(fault.1) as f64);
    [
        Check::new(
            longest_ns >= bound_ns,
            format!(
                "a commit takes {bound_ms} ms {}: the longest takes {} ms",
                fault.0,
                tenths(longest_ns as f64)
            ),
        ),
        Check::new(
            without_ns <= with_ns * STALLED_ANYWAY,
            format!(
                "such commits are due to that: {} ms in all, {} ms {}",
                tenths(with_ns),
                tenths(without_ns),
                control.0
            ),
        ),
    ]
}

/// The incident happened, by the latency that was measured from outside.
fn slower(factor: f64, control: &Observed, fault: &Observed) -> Check {
    let (without_ns, with_ns) = (control.victim.p99_ns as f64, fault.victim.p99_ns as f64);
    let enough = control.victim.requests >= 100 && fault.victim.requests >= 100;
    Check::new(
        enough && with_ns >= factor * without_ns,
        format!(
            "the 99th percentile is at least {factor} times as long: {} ms, without {} ms",
            tenths(with_ns),
            tenths(without_ns)
        ),
    )
}

/// What is advised says what must be changed.
fn remedy(code: &str, word: &str, run: &Observed) -> Check {
    let finding = run.report.findings.iter().find(|finding| finding.code == code);
    let fixes = finding.iter().flat_map(|finding| &finding.fix);
    let named = fixes
        .filter(|fix| {
            fix.action.contains(word) || fix.command.as_ref().is_some_and(|it| it.contains(word))
        })
        .count();
    Check::new(named > 0, format!("`{code}` advises a change of `{word}`: {named} times"))
}

fn agreement(name: &str, run: &Observed, threads: u32) -> Check {
    let both = run.victim.waited_ns_per_s().zip(run.reported_ns_per_s());
    let Some((own, reported)) = both else {
        return Check::new(false, format!("victim and report {name} have a ledger of the victim"));
    };
    let tolerance = own.max(reported) * TOLERANCE + TOLERANCE_NS_PER_S * f64::from(threads);
    Check::new(
        (own - reported).abs() <= tolerance,
        format!(
            "report and victim agree on its waiting {name}: {} and {} ms/s (+- {})",
            tenths(reported),
            tenths(own),
            tenths(tolerance)
        ),
    )
}

fn conservation(run: &Observed) -> Check {
    let worst = run
        .report
        .ledger
        .iter()
        .map(|ledger| {
            let sum: u64 = ledger.parts.iter().map(|part| part.ns).sum();
            (sum as f64 / ledger.wall_ns.max(1) as f64 - 1.0).abs()
        })
        .fold(0.0, f64::max);
    Check::new(
        worst <= 0.001,
        format!("the ledgers sum to 100 +- 0.1 % of the wall time: off by {:.3} %", worst * 100.0),
    )
}

/// Milliseconds with one decimal.
pub(crate) fn tenths(ns: f64) -> String {
    format!("{:.1}", ns / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::victim::IoSummary;
    use deburr_core::finding::{
        Cost, Entity, Fix, Host, Ledger, LedgerPart, Observer, Target, Tool, Window,
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
            victim: Summary {
                wall_ns: 10_000_000_000,
                woke_late_ns: Some(0),
                preempted_ns: Some(waited_ns),
                ..Summary::default()
            },
            written: None,
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
                target: Target { kind: "process".into(), name: None, pid: Some(7), processes: 1 },
                findings,
                ruled_out: vec![],
                not_checked: vec![],
                ledger: vec![Ledger {
                    victim,
                    wall_ns: 10_000_000_000,
                    threads: 1,
                    parts: vec![
                        LedgerPart { state: LedgerState::Queued, ns: waited_ns },
                        LedgerPart { state: LedgerState::Sleep, ns: 10_000_000_000 - waited_ns },
                    ],
                }],
                block_io: None,
                observer: Observer::default(),
            },
        }
    }

    fn finding(code: &str, severity: Severity, causes: &[(&str, &str, f64)]) -> Finding {
        Finding {
            code: code.into(),
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
                    share,
                })
                .collect(),
            evidence: vec![],
            chart: None,
            files: None,
            sizes: vec![],
            fix: vec![],
            confirm: None,
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
    fn latency_from_outside_and_advice_are_checked() {
        let text = SCENARIO.replace(
            "seconds = 5",
            "seconds = 5\np99_factor = 5.0\nfix = \"THREADS\"\ncontrol_forbid = [\"SCH002\"]",
        );
        let scenario = Scenario::parse(&text).unwrap();
        let passed = |with_ms: u64, action: &str| -> Vec<bool> {
            // What the control run suffers from besides is set aside.
            let mut control = observed(1, vec![finding("SCH003", Severity::High, &[])]);
            let mut fault = right();
            for (run, p99_ms) in [(&mut control, 10), (&mut fault, with_ms)] {
                (run.victim.requests, run.victim.p99_ns) = (1000, p99_ms * 1_000_000);
            }
            let fix = Fix { action: action.into(), command: None, risk: None };
            fault.report.findings[0].fix = vec![fix];
            let checks = check(&scenario, &control, &fault);
            let of =
                |word: &str| checks.iter().find(|check| check.what.contains(word)).unwrap().pass;
            vec![of("SCH002 above"), of("percentile"), of("advises")]
        };
        assert_eq!(passed(50, "set THREADS to 1"), [true, true, true]);
        assert_eq!(passed(49, "sleep"), [true, false, false]);
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
    }

    #[test]
    fn what_the_rest_of_the_host_did_is_set_aside() {
        let rest =
            finding("SCH001", Severity::High, &[("rustc", "/", 0.5), ("deburr", "/lab/o", 0.1)]);
        let busy = observed(200, vec![rest.clone()]);
        let mut both = right();
        let shares = [("rustc", "/labs", 0.4), ("spinner", "/lab/neighbour", 0.5)];
        both.report.findings = vec![finding("SCH001", Severity::High, &shares)];
        // Of the 60 % that are left, the spinners have 50.
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

        // Nothing found: no first code, nobody to blame.
        assert_eq!(failures(&quiet, &observed(300, vec![])).len(), 2);
    }
}
