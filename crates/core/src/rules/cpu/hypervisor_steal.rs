// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU001: the hypervisor runs others while this machine's CPUs have work.

use super::stolen_part::{self, StolenTime};
use crate::finding::{
    Area, Cause, Confirm, Cost, Entity, EntityKind, Evidence, Finding, Fix, Question, Severity,
    Share, Unit,
};
use crate::recording::Source;
use crate::rules::candidates::target_is_host;
use crate::rules::confidence::Confidence;
use crate::rules::words::{self, evidence};
use crate::rules::{Check, Rule, Status, Verdict, severity};
use crate::text::units;
use crate::view::{CpuTotals, CpuView, View};

/// Maximum number of CPUs with an evidence line of their own.
const MAX_CPUS: usize = 4;

pub(in crate::rules) static RULE: Rule = Rule {
    code: "CPU001",
    area: Area::Cpu,
    question: Question::CpuSpeed,
    name: "hypervisor-steal",
    summary: "the hypervisor runs others while CPUs of this machine have work",
    any_of: &[Source::ProcStat],
    helps: &[Source::Sched, Source::Schedstat, Source::CpuCheck],
    limits: &[&[stolen_part::BUSY_HOST], &severity::LOSS_LIMITS],
    status: Status::Preview("0.1"),
    doc: include_str!("hypervisor_steal.md"),
    file: file!(),
    check: Check::Recording(check),
};

fn check(view: &View) -> Verdict {
    let Some(totals) = view.cpu_totals() else {
        return Verdict::NoData { missing: vec!["/proc/stat: fewer than two readings".into()] };
    };
    let Some(share) = totals.stolen_share() else {
        return Verdict::Quiet { closest: "no CPU had anything to run".into() };
    };
    let lost_ns_per_s = view.per_second(totals.steal_ns);
    let part = stolen_part::of(view, &totals);
    let Some(severity) = severity_of(view, &totals, share, part.as_ref()) else {
        let felt = part.filter(|part| part.ns > 0).map_or(String::new(), |part| {
            let about = words::of_every_second(view.per_second(part.ns));
            format!("; of that, about {about} from {}", part.name)
        });
        return Verdict::Quiet {
            closest: match totals.steal_ns {
                0 => "no time was stolen, by the hypervisor's account".into(),
                _ => format!(
                    "{} was stolen, {} of the time in which CPUs had work{felt}",
                    words::of_every_second(lost_ns_per_s),
                    units::share(share)
                ),
            },
        };
    };
    // The claim is about the target's loss, or about all CPUs if the target is the whole host.
    let of_target = part.as_ref().filter(|_| !target_is_host(view));
    let confidence = Confidence::of(view);
    let mut lines = lines(view, &totals, share);
    lines.extend(part.as_ref().map(|part| part_line(view, part)));
    lines.push(confidence.evidence(view));
    let mut hypervisor = Entity::new(EntityKind::Unknown);
    hypervisor.note =
        Some("the hypervisor: other machines on the same host, or a limit on this one".into());
    Verdict::Fired(vec![Finding {
        title: title(view, lost_ns_per_s, share, of_target),
        victim: of_target.map_or_else(|| Entity::new(EntityKind::Host), |part| part.victim.clone()),
        cost: Cost {
            lost_ns_per_s: of_target.map_or(lost_ns_per_s, |part| view.per_second(part.ns)),
            share: of_target.map_or(share, StolenTime::share),
            ..Cost::default()
        },
        causes: vec![Cause { entity: hypervisor, share: Share::WHOLE }],
        evidence: lines,
        fix: fixes(),
        confirm: Some(Confirm {
            command: "deburr cpu-check".into(),
            expect: Some(
                "which CPUs are held up, in which part of the time, and how many cores are left"
                    .into(),
            ),
        }),
        ..RULE.finding(severity, confidence.value())
    }])
}

/// Severity for the target. What is stolen from a target may be little of what is stolen in all. A whole host is rated
/// by the group that loses most or, if it is busy, by the mean loss of its CPUs, whichever is worse. Never above the
/// severity of all steal time together.
fn severity_of(
    view: &View,
    totals: &CpuTotals,
    share: f64,
    part: Option<&StolenTime>,
) -> Option<Severity> {
    let of_all = severity::of_loss(view.per_second(totals.steal_ns), share)?;
    let of_part = part.and_then(|part| part.severity(view));
    let of_cpus = stolen_part::of_each_cpu(view, totals)
        .and_then(|(ns, share)| severity::of_loss(view.per_second(ns), share));
    if part.is_none() && of_cpus.is_none() && !target_is_host(view) {
        // No process of the target was observed: it cannot be said that it lost nothing.
        return Some(Severity::Info);
    }
    of_part.max(of_cpus).map(|severity| severity.min(of_all))
}

fn title(view: &View, lost_ns_per_s: u64, share: f64, of_target: Option<&StolenTime>) -> String {
    let Some(part) = of_target else {
        return format!(
            "the hypervisor takes {} of CPU time from this machine while it has work, {} of what it wants",
            words::of_every_second(lost_ns_per_s),
            units::share(share)
        );
    };
    format!(
        "the hypervisor takes about {} from {} while it wants to run, {} of what it wants",
        words::of_every_second(view.per_second(part.ns)),
        part.name,
        units::share(part.share())
    )
}

/// Evidence line: how much of the steal time fell on the victim, as an estimate with its bounds.
fn part_line(view: &View, part: &StolenTime) -> Evidence {
    let rate = |ns| units::duration(view.per_second(ns) as f64);
    let note = format!(
        "{} of every second, estimated by its share of what the CPUs ran at the time; {} at least and {} at most",
        rate(part.ns),
        rate(part.least_ns),
        rate(part.most_ns)
    );
    let name = format!("stolen from {}", part.name);
    evidence(view, &name, part.ns as f64, Unit::Ns, Source::ProcStat.label(), note)
}

fn lines(view: &View, totals: &CpuTotals, share: f64) -> Vec<Evidence> {
    let label = Source::ProcStat.label();
    let mut lines = vec![
        evidence(view, "stolen", totals.steal_ns as f64, Unit::Ns, label, None),
        evidence(
            view,
            "stolen share",
            share,
            Unit::Ratio,
            label,
            "of the time in which CPUs ran or were to run".to_owned(),
        ),
    ];
    let mut cpus: Vec<(u32, &CpuView, u64)> = view
        .cpus()
        .iter()
        .filter_map(|(&cpu, of)| Some((cpu, of, of.steal_ns.delta().filter(|ns| *ns > 0)?)))
        .collect();
    cpus.sort_by_key(|&(cpu, _, ns)| (std::cmp::Reverse(ns), cpu));
    for &(cpu, of, ns) in cpus.iter().take(MAX_CPUS) {
        let note = of
            .most_stolen()
            .map(|most| format!("at most {} of the time between two readings", units::share(most)));
        lines.push(evidence(
            view,
            &format!("stolen from CPU {cpu}"),
            ns as f64,
            Unit::Ns,
            label,
            note,
        ));
    }
    lines
}

fn fixes() -> Vec<Fix> {
    let fix = |action: &str, risk: &str| Fix {
        action: action.into(),
        command: None,
        risk: Some(risk.into()),
        expect: None,
    };
    vec![
        fix(
            "see whether the machine has a limit of its own: CPU credits that are used up, a cap on its CPUs",
            "lifting a limit costs money, and helps only if the limit is what takes the time",
        ),
        fix(
            "move the machine to a host with room, or to CPUs of its own (dedicated, pinned)",
            "the next host may be as full; measure there before relying on it",
        ),
    ]
}
