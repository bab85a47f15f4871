// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How scenarios and their outcomes look on a terminal.

use super::expect::{Observed, tenths};
use super::runner::{Outcome, Settings};
use super::scenario::{Scenario, on_cpus};
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
    let threads = match victim.threads {
        1 => "1 thread with".into(),
        threads => format!("{threads} threads, each with"),
    };
    let pinned = on_cpus(victim.cpus.as_deref());
    let _ = writeln!(text, "\n  victim  `victim` in cgroup `{}`{pinned}", victim.cgroup);
    let _ = writeln!(text, "          {threads} {load}");
    let what = if scenario.silent { "load" } else { "fault" };
    for fault in &scenario.faults {
        let _ = writeln!(text, "  {what:<7} {}", fault.as_fault().describe(cpus));
    }
    let seconds = settings.seconds;
    let (without, with) = scenario.run_names();
    let _ = writeln!(
        text,
        "  runs    {seconds} s {without}, then {seconds} s {with}\n  \
         undo    all of it is in one cgroup, which is removed afterwards, whatever happens\n"
    );
    text
}

/// What came of it.
pub(crate) fn outcome(scenario: &Scenario, outcome: &Outcome) -> String {
    let (control, fault) = (&outcome.control, &outcome.fault);
    let (without, with) = scenario.run_names();
    let mut text = clocks((without, control), (with, fault));
    for (name, run) in [(without, control), (with, fault)] {
        let _ = writeln!(text, "\n  findings {name}");
        if run.report.findings.is_empty() {
            text.push_str("    none\n");
        }
        for finding in &run.report.findings {
            let severity = format!("{:?}", finding.severity).to_lowercase();
            let _ =
                writeln!(text, "    {} {severity:<6} {}", finding.code, printable(&finding.title));
            if run.is_of_the_rest_of_the_host(finding) {
                text.push_str("                  (mostly due to the rest of this host)\n");
            }
        }
    }
    text.push('\n');
    for check in &outcome.checks {
        let mark = if check.pass { "pass" } else { "FAIL" };
        let _ = writeln!(text, "  {mark}  {}", printable(&check.what));
    }
    let verdict = if outcome.passed { "as expected" } else { "NOT as expected" };
    let _ = writeln!(text, "\n{}: {verdict}\n", scenario.name);
    text
}

/// Both channels side by side.
fn clocks(control: (&str, &Observed), fault: (&str, &Observed)) -> String {
    let mut text = format!("  {:<44}{:>15}{:>15}\n", "the victim's own clocks", control.0, fault.0);
    let mut row = |name: &str, value: &dyn Fn(&Observed) -> String| {
        let _ = writeln!(text, "  {name:<44}{:>15}{:>15}", value(control.1), value(fault.1));
    };
    row("  requests served", &|run| format!("{:.1} /s", run.victim.requests_per_s()));
    row("  latency, median", &|run| format!("{} ms", tenths(run.victim.p50_ns as f64)));
    row("  latency, 99th percentile", &|run| match run.victim.requests {
        ..100 => "-".into(),
        _ => format!("{} ms", tenths(run.victim.p99_ns as f64)),
    });
    row("  latency, longest", &|run| format!("{} ms", tenths(run.victim.max_ns as f64)));
    row("  ready to run and not running", &|run| {
        format!("{} ms/s", tenths(run.victim.waited_ns_per_s()))
    });
    row("the same in the report's ledger", &|run| {
        run.reported_ns_per_s().map_or("-".into(), |ns| format!("{} ms/s", tenths(ns)))
    });
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
