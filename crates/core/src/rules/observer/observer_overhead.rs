// SPDX-License-Identifier: Apache-2.0 OR MIT
//! OBS003: the observer costs more than its budget.

use crate::finding::{Area, Cost, Entity, EntityKind, Evidence, Finding, Question, Severity, Unit};
use crate::recording::Source;
use crate::rules::words::evidence;
use crate::rules::{Check, Limit, Rule, Status, Verdict};
use crate::text::units;
use crate::view::View;

const REST_CPU: Limit = Limit {
    name: "rest_cpu",
    value: 0.005,
    unit: "of one CPU while the host's CPUs are less than a tenth busy",
    why: "the promise for a host at rest",
};
const LOAD_CPU: Limit = Limit {
    name: "load_cpu",
    value: 0.01,
    unit: "of one CPU otherwise",
    why: "the promise under load",
};
const MAX_RSS: Limit = Limit {
    name: "max_rss",
    value: 40.0,
    unit: "MB of resident memory",
    why: "the promise with a thousand threads",
};
const DANGER_CPU: Limit = Limit {
    name: "danger_cpu",
    value: 0.05,
    unit: "of one CPU",
    why: "the observer itself makes others wait",
};
const AT_REST_BUSY: f64 = 0.1;

pub(in crate::rules) static RULE: Rule = Rule {
    code: "OBS003",
    area: Area::Observer,
    question: Question::Observer,
    name: "observer-overhead",
    summary: "the observer costs more than it promises",
    any_of: &[Source::Observer],
    helps: &[Source::ProcStat],
    limits: &[&[REST_CPU, LOAD_CPU, MAX_RSS, DANGER_CPU]],
    status: Status::Preview("0.1"),
    doc: include_str!("observer_overhead.md"),
    file: file!(),
    check: Check::Recording(check),
};

fn check(view: &View) -> Verdict {
    let seen = view.observer();
    if seen.covered_ns == 0 {
        return Verdict::NoData { missing: vec!["observer: no reading of its own cost".into()] };
    }
    let cpu_ns = seen.cpu_ns + seen.bpf_run_ns.unwrap_or(0);
    let cpu = cpu_ns as f64 / seen.covered_ns as f64;
    let busy = view.cpu_totals().and_then(|totals| totals.busy_share());
    let at_rest = busy.is_some_and(|busy| busy < AT_REST_BUSY);
    let budget = if at_rest { REST_CPU.value } else { LOAD_CPU.value };
    let most_bytes = MAX_RSS.value * 1e6;
    // Every process has resident memory: 0 means that it was not measured.
    let memory = match seen.rss_max_bytes {
        0 => "an unknown amount of memory (not measured)".to_owned(),
        bytes => format!("{} of memory", units::bytes(bytes as f64)),
    };
    let cpu_text = format!("{} of one CPU", units::percent(cpu));
    let budget_text = units::percent(budget);
    // What reads the same is not told as more.
    let too_much = cpu > budget && units::percent(cpu) != budget_text;
    let most_text = units::bytes(most_bytes);
    let rss_bytes = seen.rss_max_bytes as f64;
    let too_large = rss_bytes > most_bytes && units::bytes(rss_bytes) != most_text;
    let over: Vec<String> = [
        too_much.then(|| format!("{cpu_text}, more than its budget of {budget_text}")),
        too_large.then(|| format!("{memory}, more than its budget of {most_text}")),
    ]
    .into_iter()
    .flatten()
    .collect();
    if over.is_empty() {
        return Verdict::Quiet { closest: format!("the observer took {cpu_text} and {memory}") };
    }
    Verdict::Fired(vec![Finding {
        title: format!("the observer took {}", over.join(", and ")),
        victim: Entity::new(EntityKind::Host),
        cost: Cost::default(),
        evidence: lines(view, budget, at_rest),
        fix: super::narrower(view),
        ..RULE.finding(
            if cpu >= DANGER_CPU.value { Severity::Low } else { Severity::Info },
            if seen.bpf_run_ns.is_some() { 0.95 } else { 0.8 },
        )
    }])
}

/// The evidence: each part of the cost, and the budgets.
fn lines(view: &View, cpu_budget: f64, at_rest: bool) -> Vec<Evidence> {
    let label = Source::Observer.label();
    let seen = view.observer();
    let mut lines = vec![
        evidence(view, "own CPU time", seen.cpu_ns as f64, Unit::Ns, label, None),
        evidence(view, "BPF program runs", seen.bpf_runs as f64, Unit::Count, label, None),
    ];
    lines.push(match seen.bpf_run_ns {
        Some(ns) => evidence(
            view,
            "BPF run time",
            ns as f64,
            Unit::Ns,
            label,
            "estimated: runs times the sampled cost of a run".to_owned(),
        ),
        None => evidence(
            view,
            "BPF run time",
            0.0,
            Unit::Text,
            label,
            "not measured: not part of the sum".to_owned(),
        ),
    });
    lines.push(evidence(
        view,
        "CPU budget",
        cpu_budget,
        Unit::Ratio,
        "deburr",
        format!(
            "of one CPU, {}",
            if at_rest { "for a host at rest" } else { "for a host under load" }
        ),
    ));
    lines.push(evidence(
        view,
        "resident memory",
        seen.rss_max_bytes as f64,
        Unit::Bytes,
        label,
        None,
    ));
    lines.push(evidence(view, "memory budget", MAX_RSS.value * 1e6, Unit::Bytes, "deburr", None));
    lines.push(evidence(view, "BPF maps", seen.bpf_map_max_bytes as f64, Unit::Bytes, label, None));
    lines
}
