// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU002: CPUs that deliver less than a whole core: siblings of a core, CPUs that the hypervisor runs in turns, or a
//! neighbour on the same core.

use crate::cpu_check::document::{Class, CpuCheck, Group};
use crate::cpu_check::pairs::Pair;
use crate::cpu_check::{HELD_UP, judge, pairs, sweep};
use crate::finding::{
    Area, Cause, Confirm, Cost, Entity, EntityKind, Evidence, Finding, Fix, Question, Severity,
    Share, Unit,
};
use crate::procfs::cpu_list;
use crate::recording::Source;
use crate::rules::words::evidence;
use crate::rules::{Check, Limit, Rule, Status, Verdict, severity};
use crate::text::units;
use crate::view::View;

/// Maximum number of pairs with an evidence line of their own.
const MAX_PAIRS: usize = 4;

const SHARED: Limit = Limit {
    name: "shared_below",
    value: pairs::SHARED_BELOW,
    unit: "of their speed alone is what two CPUs keep together, on average, in a round in which they share",
    why: "siblings of a core keep 0.50 to 0.56, independent CPUs 0.97 and more",
};
const STABLE: Limit = Limit {
    name: "stable_share",
    value: pairs::STABLE_SHARE,
    unit: "of the rounds that count, from which on two CPUs share for good",
    why: "CPUs that a hypervisor moves about share now and then; siblings always do",
};
const ROUNDS: Limit = Limit {
    name: "min_rounds",
    value: pairs::MIN_ROUNDS as f64,
    unit: "rounds that count, without which a pair is not judged",
    why: "one round may be chance",
};
const SLOW: Limit = Limit {
    name: "held_up_below",
    value: HELD_UP,
    unit: "of the speed of others, or of its own alone, below which a worker is held up",
    why: "far from chance: speeds of undisturbed workers differ by less than a hundredth",
};

pub(in crate::rules) static RULE: Rule = Rule {
    code: "CPU002",
    area: Area::Cpu,
    question: Question::CpuSpeed,
    name: "shared-core",
    summary: "two CPUs share a core or are run in turns, or one is held up from outside, and the kernel does not know",
    any_of: &[Source::CpuCheck],
    helps: &[Source::ProcStat],
    limits: &[&[SHARED, STABLE, ROUNDS, SLOW]],
    status: Status::Preview("0.1"),
    doc: include_str!("shared_core.md"),
    file: file!(),
    check: Check::Recording(check),
};

fn check(view: &View) -> Verdict {
    let Some(check) = judge(view) else {
        return Verdict::NoData { missing: vec!["deburr cpu-check: nothing was measured".into()] };
    };
    match check.verdict.class {
        Class::SharedCore | Class::TimeSliced => Verdict::Fired(vec![shared(view, &check)]),
        Class::Foreign => Verdict::Fired(vec![foreign(view, &check)]),
        Class::Inconclusive => Verdict::NoData { missing: vec![check.verdict.summary] },
        Class::Even | Class::SharedAsTold | Class::Clock => {
            Verdict::Quiet { closest: check.verdict.summary }
        }
    }
}

fn shared(view: &View, check: &CpuCheck) -> Finding {
    let kept = check.verdict.held_up_speed.unwrap_or(1.0);
    let cost = cost(1.0 - kept);
    let severity = severity::of_loss(cost.lost_ns_per_s, cost.share).unwrap_or(Severity::Info);
    let hidden: Vec<&Group> = check.groups.iter().filter(|group| !group.told).collect();
    let part = Share::of(1, hidden.len() as u64);
    let causes = hidden.iter().map(|group| {
        let mut cpus = Entity::new(EntityKind::Cpu);
        cpus.note = Some(match group.time_sliced {
            true => format!("{} run in turns on one CPU of the host", list(&group.cpus)),
            false => format!("{} are siblings of one core", list(&group.cpus)),
        });
        Cause { entity: cpus, share: part }
    });
    finding(view, check, severity, cost, causes.collect(), shared_fixes(check))
}

fn foreign(view: &View, check: &CpuCheck) -> Finding {
    let kept = check.verdict.held_up_speed.unwrap_or_else(|| {
        // Then all CPUs are held up together.
        let work = sweep::capacity(check.cpus.used.len(), &check.sweep).unwrap_or_default();
        (work / check.cpus.used.len().max(1) as f64).min(1.0)
    });
    let part = if check.verdict.held_up_share > 0.0 { check.verdict.held_up_share } else { 1.0 };
    let cost = cost((1.0 - kept) * part);
    let severity = severity::of_loss(cost.lost_ns_per_s, cost.share).unwrap_or(Severity::Info);
    let mut outside = Entity::new(EntityKind::Unknown);
    outside.note =
        Some("not seen from here: who else runs on the same cores or CPUs of the host".into());
    let causes = vec![Cause { entity: outside, share: Share::WHOLE }];
    let fixes = check.verdict.advice.iter().map(|action| Fix {
        action: action.clone(),
        command: None,
        risk: None,
        expect: None,
    });
    finding(view, check, severity, cost, causes, fixes.collect())
}

/// The cost for one busy thread that loses that share of its time.
fn cost(share: f64) -> Cost {
    let share = share.clamp(0.0, 1.0);
    Cost { lost_ns_per_s: (share * 1e9) as u64, share, ..Cost::default() }
}

fn finding(
    view: &View,
    check: &CpuCheck,
    severity: Severity,
    cost: Cost,
    causes: Vec<Cause>,
    fix: Vec<Fix>,
) -> Finding {
    Finding {
        title: check.verdict.summary.clone(),
        victim: Entity::new(EntityKind::Host),
        cost,
        causes,
        evidence: lines(view, check),
        fix,
        confirm: Some(Confirm {
            command: "deburr cpu-check".into(),
            expect: Some("the same pairs again, at another time of day too".into()),
        }),
        ..RULE.finding(severity, check.verdict.confidence)
    }
}

fn lines(view: &View, check: &CpuCheck) -> Vec<Evidence> {
    let label = Source::CpuCheck.label();
    let mut lines = Vec::new();
    let used = check.cpus.used.len();
    if let Some(cores) = check.verdict.usable_cores {
        let note = format!("of {}", units::counted(used as u64, "CPU", "CPUs"));
        lines.push(evidence(view, "usable cores", cores.into(), Unit::Count, label, note));
    }
    let mut slowest: Vec<(f64, &Pair)> =
        check.pairs.iter().filter_map(|pair| Some((pair.ratio?[1], pair))).collect();
    slowest.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (ratio, pair) in slowest.into_iter().take(MAX_PAIRS) {
        let name = format!("CPUs {} and {} together", pair.a, pair.b);
        lines.push(evidence(view, &name, ratio, Unit::Ratio, label, of_rounds(pair)));
    }
    if let Some(work) = sweep::capacity(used, &check.sweep) {
        let note = "with a worker on each, in units of what one does alone".to_owned();
        lines.push(evidence(view, "work of all CPUs", work, Unit::Cpus, label, note));
    }
    let within = check.sweep.iter().filter(|step| step.workers as usize <= used);
    if let Some(step) = within.min_by(|a, b| a.evenness.total_cmp(&b.evenness)) {
        let note = format!(
            "of the fastest of {}; CPU share {}, {}",
            units::counted(step.workers.into(), "worker", "workers"),
            units::share(step.share),
            units::counted(step.migrations, "move between CPUs", "moves between CPUs")
        );
        lines.push(evidence(view, "slowest worker", step.evenness, Unit::Ratio, label, note));
    }
    if let Some(steal) = check.cpus.steal {
        let note =
            "of the time in which CPUs wanted to run: what the hypervisor reports".to_owned();
        lines.push(evidence(view, "steal", steal, Unit::Ratio, Source::ProcStat.label(), note));
    }
    lines
}

fn of_rounds(pair: &Pair) -> String {
    let mut note =
        format!("of their speed alone; both held up in {} of {} rounds", pair.shared, pair.valid);
    if let Some(chunk) = pair.chunk_ratio {
        note += &format!(", then each piece of work at {} of its speed", units::share(chunk));
    }
    if let Some(confirmed) = pair.confirmed {
        note += &format!("; divisions keep {}", units::share(confirmed));
    }
    if pair.one_sided + pair.disturbed > 0 {
        note += &format!("; one by itself in {}", pair.one_sided + pair.disturbed);
    }
    note
}

fn list(cpus: &[u32]) -> String {
    format!("CPUs {}", cpu_list::format(cpus))
}

fn shared_fixes(check: &CpuCheck) -> Vec<Fix> {
    let grouped = |cpu: &u32| check.groups.iter().find(|group| group.cpus.contains(cpu));
    let first = |cpu: &&u32| grouped(cpu).is_none_or(|group| group.cpus.first() == Some(cpu));
    let one_each: Vec<u32> = check.cpus.used.iter().filter(first).copied().collect();
    let mut fixes = Vec::new();
    if let Some(cores) = check.verdict.usable_cores {
        fixes.push(Fix {
            action: format!(
                "size for {}: choose a machine on which the busy processes need no more than the real cores",
                units::counted(cores.into(), "busy process", "busy processes")
            ),
            command: None,
            risk: Some("more CPUs cost more; half of them are for latency, not for throughput".into()), expect: None,
        });
    }
    // Only if the list has one CPU for each usable core, so all sharing is known.
    if check.verdict.usable_cores == Some(one_each.len() as u32) {
        fixes.push(Fix {
            action: format!(
                "keep what needs a steady speed on one CPU of each core: `taskset -c {} CMD`",
                cpu_list::format(&one_each)
            ),
            command: None,
            risk: Some("the other CPUs must stay idle, or the core is shared again".into()),
            expect: None,
        });
    }
    fixes.push(Fix {
        action: "ask for whole cores: an instance type with one thread for each core, or with pinned CPUs, or a \
                 topology that tells the kernel who shares"
            .into(),
        command: None,
        risk: None, expect: None,
    });
    fixes
}
