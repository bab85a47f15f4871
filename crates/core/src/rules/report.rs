// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs every rule over one view and assembles the report.

use super::{
    Verdict, block, experiments, ledger, of_recordings, profile, questions, words, worse_first,
};
use crate::finding::{
    EntityKind, Finding, Host, Ledger, NotChecked, Observer, REPORT_SCHEMA, Report, RuledOut,
    SourceCoverage, Target, TargetEntry, Tool, Unit, Window,
};
use crate::recording::{Event, EventKind, ObserverTick, Source, State};
use crate::rules::candidates::target_is_host;
use crate::rules::observer::losses;
use crate::text::units;
use crate::view::{Group, Role, View};
use jiff::Timestamp;
use std::collections::BTreeMap;

/// Maximum number of ledgers in a report; further ones add little.
const MAX_LEDGERS: usize = 10;
/// Maximum number of ledgers for groups without a finding, in the report on a whole host.
const MAX_LOSERS: usize = 3;
/// Maximum number of ledgers of those for whom victims wait.
const MAX_AWAITED: usize = 3;
/// Least part of a finding's loss for which its victim waits for somebody who has a ledger.
const LEAST_AWAITED: f64 = 0.1;

/// Runs every rule over a view and builds the report. `live` sets the report's `window.source`: `live`, else
/// `recording`.
#[must_use]
pub fn report(view: &View, tool_version: &str, live: bool) -> Report {
    let judged: Vec<_> = of_recordings().map(|rule| (rule, rule.judge(view))).collect();
    let questions = questions::answers(view, &judged);
    let (mut findings, mut ruled_out, mut not_checked) = (vec![], vec![], vec![]);
    for (rule, verdict) in judged {
        let (code, area, name) = (rule.code.to_owned(), rule.area, rule.name.to_owned());
        match verdict {
            Verdict::Fired(fired) => findings.extend(fired),
            Verdict::Quiet { closest } => ruled_out.push(RuledOut { code, area, name, closest }),
            Verdict::NoData { missing } => {
                not_checked.push(NotChecked { code, area, name, missing });
            }
        }
    }
    findings.sort_by(worse_first);
    quota_before_late_threads(&mut findings);
    for finding in &mut findings {
        finding.prove = experiments::command(view, finding);
    }
    profile::name_functions(view, &mut findings);
    Report {
        schema: REPORT_SCHEMA.into(),
        tool: Tool { version: tool_version.into() },
        host: host(view),
        window: window(view, live),
        target: target(view),
        questions,
        ledger: ledgers(view, &findings),
        block_io: block::support::tables::of(view, &findings),
        profile: profile::of(view),
        observer: observer(view),
        findings,
        ruled_out,
        not_checked,
    }
}

/// What a quota does to a process comes before the waiting of its threads for those that the quota stops, which may be more:
/// many wait for one. Findings of another severity, and those of others, keep their places.
fn quota_before_late_threads(findings: &mut [Finding]) {
    let mut at = 0;
    while let Some(late) = findings.get(at) {
        let is_why = |it: &Finding| {
            matches!(it.code.as_str(), "SCH002" | "SCH004")
                && it.severity == late.severity
                && it.victim == late.victim
        };
        let why = findings.iter().rposition(is_why).filter(|&why| why > at);
        match why.filter(|_| late.code == "OFF003") {
            // Another one may be in its place now.
            Some(why) => findings[at..=why].rotate_left(1),
            None => at += 1,
        }
    }
}

fn host(view: &View) -> Host {
    let meta = view.meta().cloned().unwrap_or_default();
    Host {
        name: meta.host_name,
        kernel: meta.kernel,
        cpus: view.cpu_count(),
        cgroup: meta.cgroup_layout,
    }
}

fn window(view: &View, live: bool) -> Window {
    let start_ns = view.meta().map_or(0, |meta| meta.start_unix_ns);
    let start = Timestamp::from_second(start_ns.div_euclid(1_000_000_000)).unwrap_or_default();
    let mut events: Vec<String> = view.events().iter().map(sentence).collect();
    if view.events_dropped() > 0 {
        events.push(format!("{} more events", view.events_dropped()));
    }
    if !view.ended() && !live {
        events.push("the recording was cut short: it has no end".into());
    }
    Window {
        start: start.to_string(),
        seconds: view.window_ns() as f64 / 1e9,
        source: if live { "live" } else { "recording" }.into(),
        events,
    }
}

fn sentence(event: &Event) -> String {
    let at = format!("{:.1} s", event.t_ns as f64 / 1e9);
    match &event.kind {
        EventKind::ClockJump { by_ns } => {
            let size = units::duration(by_ns.unsigned_abs() as f64);
            let way = if *by_ns < 0 { "back" } else { "forward" };
            format!("at {at} the wall clock was set {way} by {size}")
        }
        EventKind::Suspend { for_ns } => {
            format!("at {at} the machine had slept for {}", units::duration(*for_ns as f64))
        }
        EventKind::LateTick { by_ns } => {
            format!("at {at} the observer was late by {}", units::duration(*by_ns as f64))
        }
        EventKind::TargetGone => format!("at {at} the last process of the target was gone"),
        EventKind::Interrupted { signal } => format!("{signal} ended the window at {at}"),
        EventKind::StoreFailed { reason } => {
            format!("from {at} on nothing could be recorded: {reason}")
        }
    }
}

fn target(view: &View) -> Target {
    let spec = view.meta().map(|meta| &meta.target).cloned().unwrap_or_default();
    let (kind, name, pid) = spec.told();
    let facts = view.processes().values().filter_map(|process| process.facts.as_ref());
    Target {
        kind: kind.into(),
        name,
        pid,
        processes: facts.filter(|facts| facts.in_target).count() as u32,
        entries: entries(view),
    }
}

/// Which threads serve requests, as the user said, and how long those were asleep.
fn entries(view: &View) -> Vec<TargetEntry> {
    let said = view.meta().map(|meta| meta.entries.as_slice()).unwrap_or_default();
    let sleeps = || view.processes().values().filter_map(|process| process.sleeps.as_ref());
    let asleep_ns = sleeps().next().map(|_| 0);
    let mut entries: Vec<TargetEntry> =
        said.iter().map(|entry| TargetEntry { entry: entry.clone(), asleep_ns }).collect();
    for (key, ns) in sleeps().flat_map(|sleeps| sleeps.iter()) {
        if let Role::Entry { at, .. } = key.role
            && let Some(entry) = entries.get_mut(at as usize)
        {
            entry.asleep_ns = entry.asleep_ns.map(|sum| sum.saturating_add(ns));
        }
    }
    entries
}

/// Whether the causes of a finding are whom its victim waits for: what those did meanwhile is the next question.
fn is_about_waiting_for_others(finding: &Finding) -> bool {
    ["OFF", "NET"].iter().any(|area| finding.code.starts_with(area))
}

/// The groups of the processes for which the findings' victims wait and that are none of the target, in the order of the
/// findings.
fn awaited(list: &[Group<'_>], findings: &[Finding]) -> Vec<usize> {
    let causes = findings.iter().filter(|it| is_about_waiting_for_others(it));
    let causes = causes.flat_map(|it| &it.causes).filter(|it| it.share.get() >= LEAST_AWAITED);
    let mut all = Vec::new();
    for it in causes.map(|it| &it.entity).filter(|it| it.kind == EntityKind::Process) {
        let (Some(pid), Some(comm)) = (it.pid, it.comm.as_deref()) else { continue };
        let is_its = |group: &Group<'_>| {
            let is_member = || group.members.iter().any(|(_, it)| it.pid == pid && !it.many);
            !group.in_target && group.comm == comm && is_member()
        };
        if let Some(at) = list.iter().position(is_its)
            && !all.contains(&at)
        {
            all.push(at);
        }
    }
    all.truncate(MAX_AWAITED);
    all
}

/// Ledgers of the findings' victims, in the order of the findings, then those of whom they wait for, and of the other groups
/// of the target, largest first. If the target is the whole host: only the few other groups that lost most, and the host's own
/// ledger first if no finding has a victim with a ledger.
fn ledgers(view: &View, findings: &[Finding]) -> Vec<Ledger> {
    let groups = view.groups();
    let list = groups.list();
    let mut rest: Vec<usize> = (0..list.len()).filter(|&at| list[at].in_target).collect();
    rest.sort_by_key(|&at| std::cmp::Reverse(ledger::weight(&list[at])));
    let mut chosen = Vec::new();
    for finding in findings {
        let is_victim = |at: &usize| words::group_entity(view, &list[*at]) == finding.victim;
        if let Some(at) = rest.iter().position(is_victim) {
            chosen.push(rest.remove(at));
        }
    }
    let of = |at: usize| ledger::of(view, &groups, at);
    let mut ledgers: Vec<Ledger> = chosen.into_iter().filter_map(of).collect();
    let awaited = awaited(list, findings).into_iter().filter_map(of);
    if target_is_host(view) {
        if ledgers.is_empty() {
            ledgers.extend(ledger::of_host(view));
        }
        rest.retain(|&at| ledger::lost_something(view, &list[at]));
        rest.sort_by_key(|&at| std::cmp::Reverse(ledger::lost_ns(&list[at])));
        rest.truncate(MAX_LOSERS);
    }
    ledgers.extend(awaited.map(|ledger| Ledger { awaited: true, ..ledger }));
    ledgers.extend(rest.into_iter().filter_map(of));
    ledgers.truncate(MAX_LEDGERS);
    ledgers
}

fn observer(view: &View) -> Observer {
    let seen = view.observer();
    let mut lost = BTreeMap::from([("sched".to_owned(), 0)]);
    for (name, amount) in losses::all(view) {
        if ObserverTick::unit_of(name) == Unit::Count {
            *lost.entry(losses::area(name).to_owned()).or_default() += amount;
        }
    }
    let coverage = Source::ALL.into_iter().filter_map(|source| {
        let sight = match view.coverage(source)? {
            State::Active => SourceCoverage::Whole,
            State::Partial { reason } => SourceCoverage::Less(format!("partial: {reason}")),
            State::Missing { reason, gain } if gain.is_empty() => {
                SourceCoverage::Less(format!("missing: {reason}"))
            }
            State::Missing { reason, gain } => {
                SourceCoverage::Less(format!("missing: {reason}; {gain}"))
            }
        };
        Some((source.label().to_owned(), sight))
    });
    Observer {
        cpu_seconds: seen.cpu_ns as f64 / 1e9,
        bpf_run_ns: seen.bpf_run_ns,
        bpf_runs: seen.bpf_runs,
        rss_bytes: seen.rss_max_bytes,
        bpf_map_bytes: seen.bpf_map_max_bytes,
        lost,
        lost_detail: losses::all(view)
            .filter(|&(_, amount)| amount > 0)
            .map(|(name, amount)| (name.to_owned(), amount))
            .collect(),
        coverage: coverage.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::{Entity, EntityKind, Severity};

    #[test]
    fn late_threads_follow_the_quota_that_stops_them() {
        let of = |code: &str, pid, severity| {
            let rule = of_recordings().find(|rule| rule.code == code).unwrap();
            let victim = Entity { pid: Some(pid), ..Entity::new(EntityKind::Process) };
            Finding { victim, ..rule.finding(severity, 1.0) }
        };
        let (high, low) = (Severity::High, Severity::Low);
        let mut findings = vec![
            of("OFF003", 1, high),
            of("OFF003", 2, high),
            of("BLK001", 1, high),
            of("SCH004", 2, high),
            of("SCH002", 2, high),
            of("SCH001", 1, high),
            of("SCH002", 1, low),
        ];
        quota_before_late_threads(&mut findings);
        let order: Vec<_> = findings.iter().map(|it| (it.code.as_str(), it.victim.pid)).collect();
        let expected = [
            ("OFF003", 1),
            ("BLK001", 1),
            ("SCH004", 2),
            ("SCH002", 2),
            ("OFF003", 2),
            ("SCH001", 1),
            ("SCH002", 1),
        ];
        assert_eq!(order, expected.map(|(code, pid)| (code, Some(pid))));
    }
}
