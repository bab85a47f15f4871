// SPDX-License-Identifier: Apache-2.0 OR MIT
//! OBS003: the observer costs more than its budget.

use crate::finding::{
    Area, Cost, Entity, EntityKind, Evidence, Finding, Fix, Question, Severity, Unit,
};
use crate::recording::Source;
use crate::rules::words::evidence;
use crate::rules::{Check, Limit, Rule, Status, Verdict};
use crate::text::units;
use crate::view::View;

const OWN_CPU: Limit = Limit {
    name: "own_cpu",
    value: 0.02,
    unit: "of one CPU for its process, start and end left out",
    why: "whoever shares the CPU then loses less to it than `low_lost`, from which on other rules report a loss",
};
const BPF_CPU: Limit = Limit {
    name: "bpf_cpu",
    value: 0.02,
    unit: "of the CPU time that the host uses, or of one CPU if that is more, for its BPF programs",
    why: "they run within the work of others, on all CPUs: less makes nothing more than a fiftieth slower on average",
};
const MAX_RSS: Limit = Limit {
    name: "max_rss",
    value: 40.0,
    unit: "MB of resident memory",
    why: "the promise with a thousand threads",
};
const MAX_RSS_NAMES: Limit = Limit {
    name: "max_rss_names",
    value: 80.0,
    unit: "MB of resident memory with `--profile` or `--stacks`",
    why: "the names of functions are read from the programs, and the largest programs have the most",
};
const DANGER_TIMES: Limit = Limit {
    name: "danger_times",
    value: 2.5,
    unit: "times `own_cpu` or `bpf_cpu`",
    why: "a twentieth: the observer itself makes others wait",
};

pub(in crate::rules) static RULE: Rule = Rule {
    code: "OBS003",
    area: Area::Observer,
    question: Question::Observer,
    name: "observer-overhead",
    summary: "the observer takes so much that it may disturb what it observes",
    any_of: &[Source::Observer],
    helps: &[Source::ProcStat],
    limits: &[&[OWN_CPU, BPF_CPU, DANGER_TIMES, MAX_RSS, MAX_RSS_NAMES]],
    status: Status::Preview("0.1"),
    doc: include_str!("observer_overhead.md"),
    file: file!(),
    check: Check::Recording(check),
};

/// What the observer took of something, and how much of it is not reported.
struct Taken {
    /// `its process`, `its BPF programs`, ...
    words: String,
    /// As in a title: `2.4 % of one CPU`.
    amount: String,
    limit: String,
    /// Amount / limit.
    times: f64,
}

impl Taken {
    /// What reads the same is not told as more.
    fn is_over(&self) -> bool {
        self.times > 1.0 && !self.amount.starts_with(&self.limit)
    }
}

fn check(view: &View) -> Verdict {
    let seen = view.observer();
    if seen.covered_ns == 0 {
        return Verdict::NoData { missing: vec!["observer: no reading of its own cost".into()] };
    }
    let own = own_cpu(view);
    let bpf = bpf_cpu(view);
    let memory = memory(view);
    let parts: Vec<&Taken> =
        [Some(&own), bpf.as_ref(), memory.as_ref()].into_iter().flatten().collect();
    let over: Vec<&Taken> = parts.iter().copied().filter(|it| it.is_over()).collect();
    let told = |it: &Taken| format!("{} took {}", it.words, it.amount);
    if over.is_empty() {
        let mut told: Vec<String> = parts.into_iter().map(told).collect();
        if memory.is_none() {
            told.push("its memory was not measured".into());
        }
        return Verdict::Quiet { closest: format!("the observer: {}", told.join(", ")) };
    }
    let title: Vec<String> =
        over.iter().map(|it| format!("{}, more than {}", told(it), it.limit)).collect();
    let cpu_times = own.times.max(bpf.as_ref().map_or(0.0, |it| it.times));
    Verdict::Fired(vec![Finding {
        title: format!("the observer costs more than it should: {}", title.join("; ")),
        victim: Entity::new(EntityKind::Host),
        cost: Cost::default(),
        evidence: lines(view, &own, bpf.as_ref()),
        fix: fixes(view, own.is_over(), bpf.as_ref().is_some_and(Taken::is_over)),
        ..RULE.finding(
            if cpu_times >= DANGER_TIMES.value { Severity::Low } else { Severity::Info },
            if seen.bpf_run_ns.is_some() { 0.95 } else { 0.8 },
        )
    }])
}

/// The CPU time of the process and of the one that reads for it.
fn own_cpu(view: &View) -> Taken {
    let share = view.observer().steady().share();
    Taken {
        words: "its process".into(),
        amount: format!("{} of one CPU", units::percent(share)),
        limit: units::percent(OWN_CPU.value),
        times: share / OWN_CPU.value,
    }
}

/// The time of its BPF programs; `None` if that was not measured.
fn bpf_cpu(view: &View) -> Option<Taken> {
    let seen = view.observer();
    let ns = seen.bpf_run_ns? as f64;
    let one_cpu_ns = seen.covered_ns as f64;
    let used_ns = used_ns(view).filter(|ns| *ns > one_cpu_ns);
    let share = ns / used_ns.unwrap_or(one_cpu_ns);
    let of_what = if used_ns.is_some() { "the CPU time that the host used" } else { "one CPU" };
    Some(Taken {
        words: "its BPF programs".into(),
        amount: format!("{} of {of_what}", units::percent(share)),
        limit: units::percent(BPF_CPU.value),
        times: share / BPF_CPU.value,
    })
}

/// The CPU time that the host used within the time that the observer's own readings cover.
fn used_ns(view: &View) -> Option<f64> {
    let busy = view.cpu_totals()?.busy_share()?;
    Some(busy * f64::from(view.cpu_count()) * view.observer().covered_ns as f64)
}

/// Its memory; `None` if that was not measured: every process has some.
fn memory(view: &View) -> Option<Taken> {
    let bytes = Some(view.observer().rss_max_bytes).filter(|bytes| *bytes > 0)? as f64;
    let limit = most_memory(view);
    Some(Taken {
        words: "it".into(),
        amount: format!("{} of memory", units::bytes(bytes)),
        limit: units::bytes(limit),
        times: bytes / limit,
    })
}

fn most_memory(view: &View) -> f64 {
    1e6 * if view.covers(Source::Profile) { MAX_RSS_NAMES.value } else { MAX_RSS.value }
}

/// What makes observing cheaper, by what is too expensive.
fn fixes(view: &View, own: bool, bpf: bool) -> Vec<Fix> {
    let advice =
        |action: &str| Fix { action: action.into(), command: None, risk: None, expect: None };
    let mut fixes = Vec::new();
    if bpf && (view.covers(Source::Profile) || view.covers(Source::Syscalls)) {
        fixes.push(advice("leave out `--profile`, `--stacks` and `--syscalls`"));
    }
    if own || bpf {
        fixes.push(advice(
            "observe for a shorter time: a narrower target costs as much, because all threads are seen in any case",
        ));
    }
    fixes
}

/// The evidence: each part of the cost, and what is not reported of it.
fn lines(view: &View, own: &Taken, bpf: Option<&Taken>) -> Vec<Evidence> {
    let label = Source::Observer.label();
    let seen = view.observer();
    let note = format!(
        "{} while it observes, start and end left out; {} of one CPU is not reported",
        own.amount, own.limit
    );
    let mut lines = vec![
        evidence(view, "own CPU time", seen.cpu_ns as f64, Unit::Ns, label, note),
        evidence(view, "BPF program runs", seen.bpf_runs as f64, Unit::Count, label, None),
    ];
    lines.push(match seen.bpf_run_ns {
        Some(ns) => evidence(
            view,
            "BPF run time",
            ns as f64,
            Unit::Ns,
            label,
            format!(
                "{}; {} is not reported. Estimated, and rather too much: runs times the sampled cost of a run, in which \
                 the time of sampling is included",
                bpf.map_or("", |it| it.amount.as_str()),
                bpf.map_or("", |it| it.limit.as_str())
            ),
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
        "resident memory",
        seen.rss_max_bytes as f64,
        Unit::Bytes,
        label,
        None,
    ));
    lines.push(evidence(view, "memory budget", most_memory(view), Unit::Bytes, "deburr", None));
    lines.push(evidence(view, "BPF maps", seen.bpf_map_max_bytes as f64, Unit::Bytes, label, None));
    lines
}
