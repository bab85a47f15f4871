// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Formats scenarios and their outcomes for a terminal.

use super::check::Check;
use super::fitness::{Machine, Verdict};
use super::io::GROUPS;
use super::observed::Observed;
use super::prove::Proved;
use super::runner::{Outcome, Settings};
use super::scenario::{Scenario, on_cpus};
use deburr_core::render::{self, Section, TextStyle, sheet};
use deburr_core::text::units::tenths_of_ms;
use std::fmt::Write as _;

/// Width of the text, in characters.
const COLUMNS: usize = 100;
const STYLE: TextStyle = TextStyle { columns: COLUMNS, color: false, verbosity: 1 };

/// What will be done, shown before it is done.
pub(crate) fn plan(scenario: &Scenario, settings: &Settings<'_>, cpus: usize) -> String {
    let mut text = format!("{}: {}\n\n", scenario.name, scenario.summary);
    for line in scenario.explains.trim().lines() {
        let _ = writeln!(text, "  {line}");
    }
    if let Some(disk) = &scenario.disk {
        let _ = writeln!(text, "\n  disk    {}", disk.describe());
    } else {
        text.push('\n');
    }
    let victim = &scenario.victim;
    let pinned = on_cpus(victim.cpus.as_deref());
    let _ = writeln!(text, "  victim  `victim` in cgroup `{}`{pinned}", victim.cgroup);
    for line in victim.as_victim().describe() {
        let _ = writeln!(text, "          {line}");
    }
    let what = if scenario.silent { "load" } else { "fault" };
    for fault in &scenario.faults {
        let _ = writeln!(text, "  {what:<7} {}", fault.as_fault().describe(cpus));
    }
    let (seconds, control_seconds) = (settings.seconds, settings.control_seconds());
    let (without, with) = scenario.run_names();
    let _ = writeln!(
        text,
        "  runs    {control_seconds} s {without}, then {seconds} s {with}\n  \
         undo    {}\n",
        if scenario.disk.is_some() {
            "all processes, the disk and the settings are undone afterwards, whatever happens"
        } else {
            "all of it is in one cgroup, which is removed afterwards, whatever happens"
        }
    );
    text
}

/// The outcome of a scenario.
pub(crate) fn outcome(scenario: &Scenario, outcome: &Outcome) -> String {
    let headline = format!("{}: {}", scenario.name, words(outcome.verdict));
    let (without, with) = scenario.run_names();
    let mut sections = vec![clocks((without, &outcome.control), (with, &outcome.fault))];
    for (name, run) in [(without, &outcome.control), (with, &outcome.fault)] {
        sections.push(findings(name, run));
    }
    sections.push(machine(&[(without, &outcome.control.machine), (with, &outcome.fault.machine)]));
    sections.push(expectations(&outcome.checks));
    sheet(&headline, &sections, STYLE)
}

fn words(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Passed => "as expected",
        Verdict::Failed => "not as expected",
        Verdict::Inconclusive => "inconclusive: not as expected, and the machine may be the reason",
    }
}

/// An experiment on a scenario.
pub(crate) fn proved(it: &Proved) -> String {
    let experiment = it.experiment.as_ref().map(|it| render::experiment(it, STYLE) + "\n");
    let headline =
        format!("{}, `deburr prove {}`: {}", it.scenario, it.arguments, words(it.verdict));
    let length = format!("{:.0} s", it.seconds);
    let sections = [machine(&[(&length, &it.machine)]), expectations(&it.checks)];
    experiment.unwrap_or_default() + &sheet(&headline, &sections, STYLE)
}

fn expectations(checks: &[Check]) -> Section {
    let mark = |pass| if pass { "pass" } else { "FAIL" };
    let row = |check: &Check| vec![mark(check.pass).into(), check.what.clone()];
    Section { heading: "expectations".into(), rows: checks.iter().map(row).collect() }
}

/// What the machine was like in runs with these names, and whether it was fit for them.
fn machine(runs: &[(&str, &Machine)]) -> Section {
    let row = |(name, machine): &(&str, &Machine)| {
        let unfit = machine.unfit();
        let fit =
            if unfit.is_empty() { "fit".into() } else { format!("unfit: {}", unfit.join("; ")) };
        vec![(*name).into(), format!("{}: {fit}", machine.describe())]
    };
    Section { heading: "the machine meanwhile".into(), rows: runs.iter().map(row).collect() }
}

/// The measurements of both runs, by the victim and by the report.
fn clocks(control: (&str, &Observed), fault: (&str, &Observed)) -> Section {
    let mut rows = vec![vec![String::new(), control.0.into(), fault.0.into()]];
    let mut row = |name: &str, value: &dyn Fn(&Observed) -> String| {
        rows.push(vec![name.into(), value(control.1), value(fault.1)]);
    };
    row("requests served", &|run| format!("{:.1} /s", run.victim.requests_per_s()));
    row("latency, median", &|run| format!("{} ms", tenths_of_ms(run.victim.p50_ns as f64)));
    row("latency, 99th percentile", &|run| match run.victim.requests {
        ..100 => "-".into(),
        _ => format!("{} ms", tenths_of_ms(run.victim.p99_ns as f64)),
    });
    row("latency, longest", &|run| format!("{} ms", tenths_of_ms(run.victim.max_ns as f64)));
    if fault.1.victim.io.is_some() {
        row("stalls of 10 ms and more", &|run| {
            run.victim.io.as_ref().map_or("-".into(), |io| {
                format!("{}, {} ms", io.stall_count, tenths_of_ms(io.stalled_ns as f64))
            })
        });
        for (mark, path) in GROUPS.into_iter().chain([('w', "others"), ('-', "metadata")]) {
            row(&format!("written to `{path}`"), &|run| written(run, mark));
        }
    } else {
        row("ready and not running", &|run| {
            run.victim
                .waited_ns_per_s()
                .map_or("-".into(), |ns| format!("{} ms/s", tenths_of_ms(ns)))
        });
        row("the same by the report", &|run| {
            run.reported_ns_per_s().map_or("-".into(), |ns| format!("{} ms/s", tenths_of_ms(ns)))
        });
    }
    Section { heading: "what the victim measured of itself".into(), rows }
}

/// What the disk saw written to the files with a mark.
fn written(run: &Observed, mark: char) -> String {
    let Some(marks) = &run.written else { return "-".into() };
    let sum: u64 = marks.values().map(|written| written.bytes).sum();
    let bytes = marks.get(&mark).map_or(0, |written| written.bytes);
    let share = bytes as f64 / sum.max(1) as f64 * 100.0;
    format!("{:.1} MB, {share:.1} %", bytes as f64 / 1e6)
}

fn findings(name: &str, run: &Observed) -> Section {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for finding in &run.report.findings {
        let severity = format!("{:?}", finding.severity).to_lowercase();
        let mut title = finding.title.clone();
        if run.is_of_the_rest_of_the_host(finding) {
            title.push_str(" (mostly due to the rest of this host)");
        }
        rows.push(vec![finding.code.clone(), severity, title]);
    }
    if rows.is_empty() {
        rows.push(vec!["none".into()]);
    }
    Section { heading: format!("findings {name}"), rows }
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

#[cfg(test)]
mod tests {
    use super::super::scenarios;
    use super::*;

    #[test]
    fn plans_fit_the_width_and_name_victim_and_faults() {
        let settings = Settings { seconds: 600, weight: 1, keep: None, keep_control: None };
        for scenario in scenarios().unwrap() {
            let text = plan(&scenario, &settings, 1024);
            assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
            assert!(text.contains(&format!("cgroup `{}`", scenario.victim.cgroup)), "{text}");
            for fault in &scenario.faults {
                assert!(text.contains(&fault.as_fault().describe(1024)), "{text}");
            }
        }
    }
}
