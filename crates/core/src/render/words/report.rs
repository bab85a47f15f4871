// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a report says besides its findings: the verdict, where the time went, what was ruled out, what could not be
//! checked, and the cost of observing.

use super::super::names;
use super::finding::severity;
use super::{asleep, interrupts, portion};
use crate::finding::{
    Area, EntityKind, Finding, Ledger, LedgerState, NotChecked, Observer, Report, Severity,
    SourceCoverage,
};
use crate::recording::{ObserverTick, Source};
use crate::text::escape::{label, sentence};
use crate::text::units::{self, bytes, counted, duration, share};
use std::collections::BTreeMap;

/// What was watched, for how long, and the verdict.
pub(in super::super) fn headline(report: &Report) -> String {
    let target = names::target(&report.target, &report.host.name);
    let watched = duration(report.window.seconds * 1e9);
    format!("watched {target} for {watched}: {}", verdict(report))
}

/// When and where that was.
pub(in super::super) fn about(report: &Report) -> String {
    let host = &report.host;
    let start = match report.window.start.strip_suffix('Z') {
        Some(utc) => format!("{} UTC", utc.replacen('T', " ", 1)),
        None => report.window.start.clone(),
    };
    sentence(&format!(
        "{start}, {}, kernel {}, {}, cgroup {}, deburr {}",
        report.window.source,
        host.kernel,
        counted(u64::from(host.cpus), "CPU", "CPUs"),
        host.cgroup,
        report.tool.version
    ))
}

/// Whether a finding says that the observation itself was bad: then the reader must know before anything else.
pub(in super::super) fn is_bad_observation(finding: &Finding) -> bool {
    finding.area == Area::Observer && finding.severity > Severity::Info
}

/// The verdict in a few words, including checks that were not possible: omitting them would imply that they passed.
fn verdict(report: &Report) -> String {
    let of = |level| report.findings.iter().filter(|finding| finding.severity == level).count();
    let levels = [Severity::High, Severity::Medium, Severity::Low];
    let counts: Vec<String> = levels
        .into_iter()
        .filter(|&level| of(level) > 0)
        .map(|level| format!("{} {}", of(level), severity(level)))
        .collect();
    let mut found = match (counts.as_slice(), levels.into_iter().map(of).sum::<usize>()) {
        ([], _) => "nothing found".into(),
        (_, 1) => format!("{} finding", counts[0]),
        (_, n) => format!("{n} findings, {}", counts.join(", ")),
    };
    // What is for information only costs nobody anything: it is a remark, as in the line of answers.
    let remarks = of(Severity::Info) as u64;
    if remarks > 0 {
        found += &format!("; {}", counted(remarks, "remark", "remarks"));
    }
    match report.not_checked.len() as u64 {
        0 => found,
        blind => format!("{found}; {} not possible", counted(blind, "check was", "checks were")),
    }
}

/// Explanation of the state "waiting for memory", shown where a ledger has any.
pub(in super::super) const MEMORY: &str = "waiting for memory: taking pages away, and reading pages back that were dropped in use because memory was \
                      short; the disk reads of that are here and not in block IO";

/// Whether a ledger needs that explanation.
pub(in super::super) fn waits_for_memory(ledger: &Ledger) -> bool {
    ledger.parts.iter().any(|part| part.state == LedgerState::MemStall && part.ns > 0)
}

/// Whose time a ledger is about.
pub(in super::super) fn ledger(ledger: &Ledger) -> String {
    let all = duration(ledger.wall_ns as f64);
    let threads = counted(u64::from(ledger.threads), "thread", "threads");
    match ledger.victim.kind {
        EntityKind::Host => {
            format!(
                "where the time went in which the host's threads wanted to run ({all} of {threads})"
            )
        }
        _ => {
            let whose = names::entity(&ledger.victim);
            let role = if ledger.awaited { ", for which others wait," } else { "" };
            format!("where the time of {whose}{role} went ({all} of {threads})")
        }
    }
}

/// How the time on CPUs divides, as shares of all the time; `None` if that was not read.
pub(in super::super) fn on_cpu(ledger: &Ledger) -> Option<String> {
    let in_kernel = ledger.in_kernel?.get();
    let of_state = ledger.parts.iter().filter(|part| part.state == LedgerState::OnCpu);
    let on_cpu = portion(of_state.map(|part| part.ns).sum(), ledger.wall_ns);
    let (program, kernel) = (share(on_cpu * (1.0 - in_kernel)), share(on_cpu * in_kernel));
    let taken = ledger.interrupted.map_or_else(String::new, |part| {
        let all = share(on_cpu * part.get());
        format!("; taken by interrupts {all}{}", interrupts::parts(ledger))
    });
    Some(format!("on CPU: in the program {program}, in the kernel {kernel}{taken}"))
}

/// What a ledger lacks or holds too much, if anything.
pub(in super::super) fn remarks(ledger: &Ledger) -> Vec<String> {
    let unseen = (ledger.unseen_ns > 0).then(|| {
        format!(
            "not in it: {} of threads of which it is not known what they did; a part of that may be time on a CPU",
            duration(ledger.unseen_ns as f64)
        )
    });
    let excess = (ledger.excess_ns > 0).then(|| {
        format!(
            "{} of this was counted twice by the observer: its threads did not exist for so long",
            duration(ledger.excess_ns as f64)
        )
    });
    unseen.into_iter().chain(asleep::unseen(ledger)).chain(excess).collect()
}

pub(in super::super) fn state(state: LedgerState) -> &'static str {
    match state {
        LedgerState::OnCpu => "on CPU",
        LedgerState::Queued => "queued for a CPU",
        LedgerState::Throttled => "throttled by quota",
        LedgerState::QueuedOrThrottled => "queued or throttled",
        LedgerState::BlockIo => "block IO",
        LedgerState::MemStall => "waiting for memory",
        LedgerState::Uninterruptible => "other uninterruptible",
        LedgerState::Sleep => "asleep",
        LedgerState::Stopped => "stopped",
        LedgerState::Unattributed => "unattributed",
    }
}

/// A rule that did not fire.
pub(in super::super) struct Check<'r> {
    pub(in super::super) code: &'r str,
    pub(in super::super) name: &'r str,
    /// How close it came, or what was missing.
    pub(in super::super) about: String,
}

impl Check<'_> {
    /// Code and name, about `columns` wide at most.
    pub(in super::super) fn label(&self, columns: usize) -> String {
        label(&format!("{} {}", self.code, self.name), columns)
    }
}

/// What was ruled out, and what could not be checked, each with its title.
pub(in super::super) fn checks(report: &Report) -> [(&'static str, Vec<Check<'_>>); 2] {
    let ruled_out = report.ruled_out.iter().map(|it| Check {
        code: &it.code,
        name: &it.name,
        about: sentence(&it.closest),
    });
    let not_checked = report.not_checked.iter().map(|it| {
        let missing: Vec<String> = it.missing.iter().map(|reason| sentence(reason)).collect();
        Check { code: &it.code, name: &it.name, about: missing.join("; ") }
    });
    [("ruled out", ruled_out.collect()), (UNCHECKED, not_checked.collect())]
}

/// Title of the rules that could not be checked.
pub(in super::super) const UNCHECKED: &str = "could not check";

/// Rules that could not be checked, with the reason of each, once for all that have the same: those by their codes.
pub(in super::super) fn folded(not_checked: &[NotChecked]) -> Vec<(String, String)> {
    let mut groups: Vec<(String, Vec<&NotChecked>)> = Vec::new();
    for item in not_checked {
        let why = reason(item);
        match groups.iter_mut().find(|(other, _)| *other == why) {
            Some((_, items)) => items.push(item),
            None => groups.push((why, vec![item])),
        }
    }
    let whole = |item: &NotChecked| {
        item.missing.iter().map(|it| sentence(it)).collect::<Vec<_>>().join("; ")
    };
    let row = |(why, items): (String, Vec<&NotChecked>)| match items.as_slice() {
        [only] => (label(&format!("{} {}", only.code, only.name), 60), whole(only)),
        [first, rest @ ..] => {
            let codes: Vec<String> = items.iter().map(|it| label(&it.code, 12)).collect();
            let same = rest.iter().all(|it| it.missing == first.missing);
            (codes.join(", "), if same { whole(first) } else { sentence(&why) })
        }
        [] => (String::new(), String::new()),
    };
    groups.into_iter().map(row).collect()
}

/// Why a rule could not be checked, without the names of its sources if the reason is the same for all of them.
fn reason(item: &NotChecked) -> String {
    let of_source = |text: &String| {
        let (source, why) = text.split_once(": ")?;
        Source::ALL.iter().any(|it| it.label() == source).then(|| why.to_owned())
    };
    let mut reasons: Vec<Option<String>> = item.missing.iter().map(of_source).collect();
    reasons.dedup();
    match reasons.as_slice() {
        [Some(why)] => why.clone(),
        _ => item.missing.join("; "),
    }
}

/// The cost of observing for `seconds`.
pub(in super::super) fn cost(observer: &Observer, seconds: f64) -> String {
    let of_a_cpu = |ns: f64| {
        if seconds > 0.0 {
            format!(" ({} of a CPU)", units::percent(ns / (seconds * 1e9)))
        } else {
            String::new()
        }
    };
    let cpu_ns = observer.cpu_seconds * 1e9;
    let mut cost = format!("{}{}", duration(cpu_ns), of_a_cpu(cpu_ns));
    if let Some(ns) = observer.bpf_run_ns {
        cost += &format!(", BPF programs {}{}", duration(ns as f64), of_a_cpu(ns as f64));
    }
    if observer.bpf_runs > 0 {
        let timed = if observer.bpf_run_ns.is_none() { ", not timed" } else { "" };
        cost += &format!(" in {}{timed}", counted(observer.bpf_runs, "run", "runs"));
    }
    // Every process has resident memory: 0 means that the observer could not read its own cost.
    if observer.rss_bytes == 0 {
        cost = "not measured".into();
    } else {
        cost += &format!(", {} resident", bytes(observer.rss_bytes as f64));
    }
    if observer.bpf_map_bytes > 0 {
        cost += &format!(", {} of BPF maps", bytes(observer.bpf_map_bytes as f64));
    }
    cost
}

/// What the observer saw of its sources: all of them, or only those with gaps.
pub(in super::super) fn sources(observer: &Observer, all: bool) -> Vec<String> {
    let active = |source: Source| {
        observer.coverage.get(source.label()).is_some_and(|sight| *sight == SourceCoverage::Whole)
    };
    let mut shown = Vec::new();
    for (source, sight) in &observer.coverage {
        // A fallback source that was not needed is no gap.
        let unneeded = source == Source::Schedstat.label() && active(Source::Sched);
        if all || (*sight != SourceCoverage::Whole && !unneeded) {
            shown.push(format!("{}: {}", label(source, 40), sentence(sight.text())));
        }
    }
    shown
}

/// What the observer lost.
pub(in super::super) fn lost(observer: &Observer) -> String {
    let amount = |name: &str, n: u64| {
        format!("{} {}", label(name, 40), units::value(n as f64, ObserverTick::unit_of(name)))
    };
    let list = |map: &BTreeMap<String, u64>| {
        let some = map.iter().filter(|(_, n)| **n > 0);
        some.map(|(name, &n)| amount(name, n)).collect::<Vec<_>>().join(", ")
    };
    let (sources, detail) = (list(&observer.lost), list(&observer.lost_detail));
    match (sources.is_empty(), detail.is_empty()) {
        (true, true) => "nothing".into(),
        (false, false) => format!("{sources} ({detail})"),
        _ => sources + &detail,
    }
}
