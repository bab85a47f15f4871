// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How scenarios and their outcomes look on a terminal.

use super::expect::{Observed, tenths};
use super::runner::{Outcome, Settings};
use super::scenario::Scenario;
use std::fmt::Write as _;

/// What will be done, before it is done.
pub(crate) fn plan(scenario: &Scenario, settings: &Settings<'_>, cpus: usize) -> String {
    let mut text = format!("{}: {}\n\n", scenario.name, scenario.summary);
    for line in scenario.explains.trim().lines() {
        let _ = writeln!(text, "  {line}");
    }
    let victim = &scenario.victim;
    let load = if victim.period_us == 0 {
        format!("requests of {} ms of CPU time back to back", victim.work_us as f64 / 1000.0)
    } else {
        format!(
            "a request of {} ms of CPU time every {} ms",
            victim.work_us as f64 / 1000.0,
            victim.period_us as f64 / 1000.0
        )
    };
    let threads =
        if victim.threads == 1 { "1 thread".into() } else { format!("{} threads", victim.threads) };
    let pinned = victim.cpus.as_ref().map_or(String::new(), |cpus| format!(" on CPU {cpus:?}"));
    let _ = writeln!(
        text,
        "\nvictim  `victim` in cgroup `{}`{pinned}, {threads}, each with {load}",
        victim.cgroup
    );
    for fault in &scenario.faults {
        let _ = writeln!(text, "fault   {}", fault.as_fault().describe(cpus));
    }
    let seconds = settings.seconds;
    let _ = writeln!(
        text,
        "runs    {seconds} s without the fault, then {seconds} s with it; all of it in a cgroup of its own,\n        \
         which is removed afterwards, whatever happens"
    );
    text
}

/// What came of it.
pub(crate) fn outcome(scenario: &Scenario, outcome: &Outcome) -> String {
    let (control, fault) = (&outcome.control, &outcome.fault);
    let second_name = if scenario.silent { "with load" } else { "with fault" };
    let mut text = format!("\n{:<44}{:>14}{second_name:>14}\n", "", "control");
    let mut row = |name: &str, value: &dyn Fn(&Observed) -> String| {
        let _ = writeln!(text, "{name:<44}{:>14}{:>14}", value(control), value(fault));
    };
    row("the victim's own clocks: requests", &|run| {
        format!("{:.1} /s", run.victim.requests_per_s())
    });
    row("  latency, median", &|run| format!("{} ms", tenths(run.victim.p50_ns as f64)));
    row("  latency, 99th percentile", &|run| match run.victim.requests {
        ..100 => "-".into(),
        _ => format!("{} ms", tenths(run.victim.p99_ns as f64)),
    });
    row("  latency, longest", &|run| format!("{} ms", tenths(run.victim.max_ns as f64)));
    row("  wanted a CPU and had none", &|run| {
        format!("{} ms/s", tenths(run.victim.waited_ns_per_s()))
    });
    row("the report: wanted a CPU and had none", &|run| {
        run.reported_ns_per_s().map_or("-".into(), |ns| format!("{} ms/s", tenths(ns)))
    });
    text.push('\n');
    for (name, run) in [("control", control), (second_name, fault)] {
        let _ = writeln!(text, "findings, {name}:");
        if run.report.findings.is_empty() {
            text.push_str("  none\n");
        }
        for finding in &run.report.findings {
            let severity = format!("{:?}", finding.severity).to_lowercase();
            let _ =
                writeln!(text, "  {} {severity:<6} {}", finding.code, printable(&finding.title));
        }
    }
    text.push('\n');
    for check in &outcome.checks {
        let mark = if check.pass { "pass" } else { "FAIL" };
        let _ = writeln!(text, "{mark}  {}", printable(&check.what));
    }
    let verdict = if outcome.passed { "as expected" } else { "not as expected" };
    let _ = writeln!(text, "\n{}: {verdict}", scenario.name);
    text
}

/// Names of processes may hold anything; on a terminal, control characters are shown and not obeyed.
fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
        .collect()
}

/// The table of `deburr lab list`.
pub(crate) fn list(scenarios: &[Scenario]) -> String {
    let mut text =
        format!("{:<16} {:<8} {:<8} {}\n", "SCENARIO", "EXPECTS", "HERE", "WHAT IT DOES");
    let mut reasons = String::new();
    for scenario in scenarios {
        let unmet: Vec<_> = scenario.needs.iter().filter_map(|need| need.unmet()).collect();
        let here = if unmet.is_empty() { "yes" } else { "no" };
        let expects = scenario.expect_first.as_deref().unwrap_or("silence");
        let _ = writeln!(text, "{:<16} {expects:<8} {here:<8} {}", scenario.name, scenario.summary);
        if !unmet.is_empty() {
            let _ = writeln!(reasons, "{} does not run here: {}", scenario.name, unmet.join("; "));
        }
    }
    if !reasons.is_empty() {
        let _ = write!(text, "\n{reasons}");
    }
    text
}
