// SPDX-License-Identifier: Apache-2.0 OR MIT
//! HST001: a host differs from others in facts that are known to matter for latency.

use crate::finding::{Area, Confirm, Cost, Evidence, Finding, Fix, Question, Severity, Unit};
use crate::host_diff::document::{Contrast, Difference, Host, ValueOnHosts};
use crate::host_diff::{SLOW_NS, knowledge};
use crate::prove::knob::{Knob, UNLOADED};
use crate::rules::hosts::{Hosts, read, victim};
use crate::rules::{Check, Limit, Rule, Status, Verdict};
use crate::text::units;

/// Maximum number of differences with an evidence line.
const MAX_LINES: usize = 8;
/// Maximum number of differences that a title names.
const MAX_NAMED: usize = 3;
/// Maximum number of differences with a remedy.
const MAX_FIXES: usize = 3;
/// Maximum number of hosts with a finding of their own.
const MAX_HOSTS: usize = 8;
/// Maximum number of slow files that are named.
const MAX_SLOW: usize = 3;

const MATTERS: Limit = Limit {
    name: "matters_from",
    value: knowledge::LOW as f64,
    unit: "of 100 is the weight from which on a difference counts",
    why: "below are differences of which nothing is known, and those that follow from others",
};
const MEDIUM: Limit = Limit {
    name: "medium_from",
    value: knowledge::MEDIUM as f64,
    unit: "of 100 is the weight from which on it is `medium`",
    why: "what changes a kind of waiting on its own",
};
const HIGH: Limit = Limit {
    name: "high_from",
    value: knowledge::HIGH as f64,
    unit: "of 100 is the weight from which on it is `high`",
    why: "what alone has made hosts slower by a third and more",
};

pub(in crate::rules) static RULE: Rule = Rule {
    code: "HST001",
    area: Area::Host,
    question: Question::Configuration,
    name: "host-drift",
    summary: "a host differs from others like it in what is known to matter for latency",
    any_of: &[],
    helps: &[],
    limits: &[&[MATTERS, MEDIUM, HIGH]],
    status: Status::Preview("0.1"),
    doc: include_str!("host_drift.md"),
    file: file!(),
    check: Check::Hosts(check),
};

fn check(hosts: &Hosts<'_>) -> Verdict {
    let diff = hosts.diff;
    if diff.facts.compared == 0 {
        let missing = match diff.hosts.len() {
            0 | 1 => "a snapshot of another host to compare with",
            _ => "a fact that is known of two of the hosts",
        };
        return Verdict::NoData { missing: vec![missing.into()] };
    }
    if let Some(finding) = of_all_slow(hosts) {
        return Verdict::Fired(vec![finding]);
    }
    let findings: Vec<Finding> = subjects(hosts)
        .into_iter()
        .filter_map(|host| finding(hosts, host))
        .take(MAX_HOSTS)
        .collect();
    if !findings.is_empty() {
        return Verdict::Fired(findings);
    }
    let most = diff.differences.iter().max_by_key(|it| it.weight).map_or(String::new(), |it| {
        format!("; of those that differ, `{}` matters most, and little", it.key.replace('`', "'"))
    });
    let facts = units::counted(diff.facts.compared, "fact", "facts");
    Verdict::Quiet {
        closest: format!("{facts} compared, none that is known to matter differs{most}"),
    }
}

/// One finding for all slow hosts: the facts that all of them have in common and no fast host has. `None` unless at
/// least three hosts are known to be slow or fast.
fn of_all_slow(hosts: &Hosts<'_>) -> Option<Finding> {
    let diff = hosts.diff;
    let separation = diff.separation.as_ref()?;
    let slow = diff.hosts.iter().find(|host| host.slow == Some(true))?;
    let drift = diff.separating();
    let known = drift.iter().map(|it| it.difference.severity).max()?;
    // What separates them significantly matters, even if nothing is known about it.
    let severity = if separation.significant { known.max(Severity::Medium) } else { known };
    let corrected =
        drift.iter().filter_map(|it| it.difference.test.as_ref()).map(|it| it.corrected);
    let names: Vec<String> = diff
        .hosts
        .iter()
        .filter(|host| host.slow == Some(true))
        .map(|host| diff.called(host))
        .collect();
    Some(Finding {
        title: separation.summary.clone(),
        victim: victim(&names.join(", ")),
        cost: cost(hosts, slow),
        evidence: lines(hosts, slow, &drift),
        fix: drift.iter().filter_map(|it| fix(it.difference, slow)).take(MAX_FIXES).collect(),
        confirm: drift.first().map(|it| Confirm {
            command: it.difference.look.clone(),
            expect: Some("another value on each slow host than on the fast ones".into()),
        }),
        prove: experiment(&drift, slow),
        ..RULE.finding(severity, (1.0 - corrected.fold(1.0, f64::min)).clamp(0.3, 0.95))
    })
}

/// The hosts to judge: the slow ones; else, of two hosts, the second; of more, those that differ from a majority, most
/// often first.
fn subjects<'a>(hosts: &'a Hosts<'_>) -> Vec<&'a Host> {
    let all = &hosts.diff.hosts;
    let slow: Vec<&Host> = all.iter().filter(|host| host.slow == Some(true)).collect();
    if !slow.is_empty() {
        return slow;
    }
    if all.len() == 2 {
        return all.iter().skip(1).collect();
    }
    let mut subjects: Vec<&Host> = all.iter().filter(|host| host.outlier_in > 0).collect();
    subjects.sort_by_key(|host| std::cmp::Reverse(host.outlier_in));
    subjects
}

/// The value of a host, and the most common other value; `None` if more hosts share its value than the other, or if its
/// value is not known.
fn against<'a>(it: &'a Difference, host: &Host) -> Option<(&'a ValueOnHosts, &'a ValueOnHosts)> {
    let own = it.held_by(host)?;
    let first = it.values.iter().find(|held| !held.hosts.contains(&host.id))?;
    (first.hosts.len() >= own.hosts.len()).then_some((own, first))
}

fn finding(hosts: &Hosts<'_>, host: &Host) -> Option<Finding> {
    let diff = hosts.diff;
    let matters = |it: &&Difference| {
        it.weight >= knowledge::LOW && it.follows.is_none() && !it.cannot_explain()
    };
    let contrast = |difference| {
        let (own, other) = against(difference, host)?;
        Some(Contrast { difference, own, other })
    };
    let drift: Vec<Contrast<'_>> =
        diff.differences.iter().filter(matters).filter_map(contrast).collect();
    let severity = drift.iter().map(|it| it.difference.severity).max()?;
    let mut names: Vec<&str> = Vec::new();
    for Contrast { difference, .. } in &drift {
        let name = difference.what.as_deref().unwrap_or(&difference.key);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let more = match names.len() {
        n if n > MAX_NAMED => format!(" and {} more", n - MAX_NAMED),
        _ => String::new(),
    };
    let title = format!(
        "`{}` differs from {} in {} for latency: {}{more}",
        diff.called(host),
        others(hosts, host),
        units::counted(drift.len() as u64, "fact that matters", "facts that matter"),
        names.iter().take(MAX_NAMED).map(|it| it.replace('`', "'")).collect::<Vec<_>>().join(", "),
    );
    let fix = drift.iter().filter_map(|it| fix(it.difference, host)).take(MAX_FIXES).collect();
    Some(Finding {
        title,
        victim: victim(&diff.called(host)),
        cost: cost(hosts, host),
        evidence: lines(hosts, host, &drift),
        fix,
        confirm: drift.first().map(|it| Confirm {
            command: it.difference.look.clone(),
            expect: Some("the same on both hosts again after the change".into()),
        }),
        prove: experiment(&drift, host).filter(|_| is_slow(hosts, host)),
        ..RULE.finding(severity, confidence(hosts, host, severity))
    })
}

fn others(hosts: &Hosts<'_>, host: &Host) -> String {
    let others: Vec<&Host> = hosts.diff.hosts.iter().filter(|it| it.id != host.id).collect();
    match others.as_slice() {
        [one] => format!("`{}`", hosts.diff.called(one)),
        many => format!("most of {} others", many.len()),
    }
}

/// That the host differs is certain; that this causes anything is known only as far as it was measured.
fn confidence(hosts: &Hosts<'_>, host: &Host, severity: Severity) -> f64 {
    let separated = hosts.diff.separation.as_ref().is_some_and(|it| it.significant);
    let measured = hosts.diff.measured.as_ref().is_some_and(|it| it.slow == host.id);
    match (separated, measured) {
        (true, _) => 0.95,
        (false, true) => 0.8,
        (false, false) if severity == Severity::High => 0.5,
        (false, false) => 0.4,
    }
}

fn cost(hosts: &Hosts<'_>, host: &Host) -> Cost {
    let Some(measured) = hosts.diff.measured.as_ref().filter(|it| it.slow == host.id) else {
        return Cost::default();
    };
    if measured.slow_s <= 0.0 {
        return Cost::default();
    }
    let share = (1.0 - measured.fast_s / measured.slow_s).clamp(0.0, 1.0);
    Cost { lost_ns_per_s: (share * 1e9) as u64, share, ..Cost::default() }
}

fn lines(hosts: &Hosts<'_>, host: &Host, drift: &[Contrast<'_>]) -> Vec<Evidence> {
    let mut lines: Vec<Evidence> = drift
        .iter()
        .take(MAX_LINES)
        .map(|Contrast { difference, own, other }| {
            let name = difference.what.as_deref().unwrap_or("not known what it does");
            let note = format!("{}; elsewhere {}", own.shown, other.shown);
            read(name, 0.0, Unit::Text, &difference.key, note)
        })
        .collect();
    let at = hosts.diff.hosts.iter().position(|it| it.id == host.id);
    let snapshot = at.and_then(|at| hosts.snapshots.get(at));
    let slow = snapshot.iter().flat_map(|it| &it.reading.slow);
    for slow in slow.filter(|it| it.wall_ns >= SLOW_NS).take(MAX_SLOW) {
        let note = match slow.cpu_ns {
            Some(cpu) if 2 * cpu >= slow.wall_ns => "the kernel was busy all the while: SYS001",
            Some(_) => "the kernel slept meanwhile: SYS001",
            None => "it was given up: SYS001",
        };
        lines.push(read("slow to read", slow.wall_ns as f64, Unit::Ns, &slow.path, note.into()));
    }
    lines
}

/// Whether the host is stated or measured to be slow.
fn is_slow(hosts: &Hosts<'_>, host: &Host) -> bool {
    let measured = hosts.diff.measured.as_ref();
    host.slow == Some(true) || measured.is_some_and(|it| it.slow == host.id)
}

/// The experiment on a slow host for the first module that it has and the others have not, of those whose removal is a
/// remedy. What it is measured by is the reader's to say.
fn experiment(drift: &[Contrast<'_>], host: &Host) -> Option<String> {
    let unloaded = |it: &Contrast<'_>| {
        let name = it.difference.key.strip_prefix("/proc/modules#")?;
        let command = fix(it.difference, host)?.command?;
        let knob = Knob::parse(&format!("module:{name}={UNLOADED}")).ok()?;
        command.contains(" modprobe -r ").then_some(knob)
    };
    let knob = drift.iter().find_map(unloaded)?;
    Some(format!("sudo deburr prove --allow-module --set {knob} --measure probe:p50 --probe CMD"))
}

fn fix(it: &Difference, host: &Host) -> Option<Fix> {
    let change = it.change.as_ref().filter(|change| change.hosts.contains(&host.id))?;
    let name = it.what.as_deref().unwrap_or(&it.key);
    Some(Fix {
        action: match change.is_command {
            true => format!("make it alike: {name}"),
            false => format!("make it alike: {name}: {}", change.text),
        },
        command: change.is_command.then(|| change.text.clone()),
        risk: change.risk.clone(),
        expect: None,
    })
}
