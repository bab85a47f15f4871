// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU001: the hypervisor runs somebody else while this machine's CPUs have work.

use crate::finding::{Cause, Confirm, Cost, Entity, EntityKind, Evidence, Finding, Fix, Unit};
use crate::recording::Source;
use crate::render::units;
use crate::rules::confidence::Confidence;
use crate::rules::words::{self, evidence};
use crate::rules::{Limit, Rule, Status, Verdict, severity};
use crate::view::{CpuTotals, CpuView, View};

/// CPUs with a line of their own.
const MAX_CPUS: usize = 4;

pub(in crate::rules) static RULE: Rule = Rule {
    code: "CPU001",
    name: "hypervisor-steal",
    summary: "the hypervisor runs others while CPUs of this machine have work",
    needs: &[Source::ProcStat],
    helps: &[Source::CpuCheck],
    limits: &severity::LOSS_LIMITS as &[Limit],
    status: Status::Preview("0.1"),
    doc: include_str!("hypervisor_steal.md"),
    file: file!(),
    check,
};

fn check(view: &View) -> Verdict {
    let Some(totals) = view.cpu_totals() else {
        return Verdict::NoData { missing: vec!["/proc/stat: fewer than two readings".into()] };
    };
    let Some(share) = totals.stolen_share() else {
        return Verdict::Quiet { closest: "no CPU had anything to run".into() };
    };
    let lost_ns_per_s = view.per_second(totals.steal_ns);
    let Some(severity) = severity::of_loss(lost_ns_per_s, share) else {
        return Verdict::Quiet {
            closest: match totals.steal_ns {
                0 => "no time was stolen, by the hypervisor's account".into(),
                _ => format!(
                    "{} was stolen, {} of the time in which CPUs had work",
                    words::of_every_second(lost_ns_per_s),
                    units::share(share)
                ),
            },
        };
    };
    let confidence = Confidence::of(view);
    let mut lines = lines(view, &totals, share);
    lines.push(confidence.evidence(view));
    let mut hypervisor = Entity::new(EntityKind::Unknown);
    hypervisor.note =
        Some("the hypervisor: other machines on the same host, or a limit on this one".into());
    Verdict::Fired(vec![Finding {
        code: RULE.code.into(),
        name: RULE.name.into(),
        severity,
        confidence: confidence.value(),
        title: format!(
            "the hypervisor takes {} of CPU time from this machine while it has work, {} of what it wants",
            words::of_every_second(lost_ns_per_s),
            units::share(share)
        ),
        victim: Entity::new(EntityKind::Host),
        cost: Cost { lost_ns_per_s, share, ..Cost::default() },
        causes: vec![Cause { entity: hypervisor, share: 1.0 }],
        evidence: lines,
        sizes: vec![],
        files: None,
        chart: None,
        fix: fixes(),
        confirm: Some(Confirm {
            command: "deburr cpu-check".into(),
            expect: Some(
                "which CPUs are held up, in which part of the time, and how many cores are left"
                    .into(),
            ),
        }),
    }])
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
