// SPDX-License-Identifier: Apache-2.0 OR MIT
//! NET005: what others have sent waits unread, because the thread that reads is occupied.

use super::victims::{Victim, by_victim, of_target_only, verdict};
use crate::finding::{
    Area, Cause, Cost, Entity, EntityKind, Evidence, Finding, Fix, Question, Severity, Share, Unit,
};
use crate::recording::Source;
use crate::rules::confidence::Confidence;
use crate::rules::words::{self, evidence, ticked};
use crate::rules::{Check, Limit, Rule, Status, Verdict};
use crate::text::units;
use crate::view::{NetKey, Unread, View};
use std::cmp::Reverse;

/// Threads of a victim that are told one by one.
const MAX_READERS: usize = 3;

const LEAST_LOOKS: Limit = Limit {
    name: "least_looks",
    value: 5.0,
    unit: "looks at which the reader was occupied",
    why: "a look stands for a tenth of a second and more: fewer may be one request at a bad time",
};
const LOW_HELD: Limit = Limit {
    name: "low_held",
    value: 20.0,
    unit: "ms of each second",
    why: "as for connections that are held up",
};
const LOW_PART: Limit = Limit {
    name: "low_part",
    value: 0.02,
    unit: "of the time",
    why: "one request in fifty comes while the reader is occupied for long",
};
const MEDIUM_HELD: Limit = Limit {
    name: "medium_held",
    value: 50.0,
    unit: "ms of each second",
    why: "one request in twenty comes while the reader is occupied for long",
};
const MEDIUM_PART: Limit = Limit {
    name: "medium_part",
    value: 0.05,
    unit: "of the time",
    why: "the 95th percentile is what the reader is occupied for",
};
const HIGH_HELD: Limit = Limit {
    name: "high_held",
    value: 100.0,
    unit: "ms of each second",
    why: "as for any other loss of time",
};
const HIGH_PART: Limit = Limit {
    name: "high_part",
    value: 0.10,
    unit: "of the time",
    why: "one request in ten comes while the reader is occupied for long",
};

pub(in crate::rules) static RULE: Rule = Rule {
    code: "NET005",
    area: Area::Network,
    question: Question::Network,
    name: "late-reader",
    summary: "what others have sent waits unread, because the thread that reads it is occupied",
    any_of: &[Source::Unread],
    helps: &[],
    limits: &[&[LEAST_LOOKS, LOW_HELD, LOW_PART, MEDIUM_HELD, MEDIUM_PART, HIGH_HELD, HIGH_PART]],
    status: Status::Preview("0.1"),
    doc: include_str!("late_reader.md"),
    file: file!(),
    check: Check::Recording(check),
};

/// What waited for a victim to read it.
struct Late<'v> {
    victim: Victim<'v>,
    /// The threads that should have read, the one that was occupied longest first.
    readers: Vec<&'v Unread>,
    /// The time in which that one was occupied.
    ns: u64,
    ns_per_s: u64,
    share: f64,
}

fn check(view: &View) -> Verdict {
    if let Some(verdict) = of_target_only(view, "what waits to be read") {
        return verdict;
    }
    let all = by_victim(view, view.net().late()).into_iter();
    let all: Vec<Late<'_>> = all.map(|(who, of)| Late::of(view, who, of)).collect();
    verdict(
        all,
        |it| it.ns,
        |it| Some(finding(view, severity(it)?, it)),
        |first| match first {
            Some(it) if it.ns > 0 => format!(
                "{} came nearest: something waited for its occupied reader for {}",
                it.victim.name(),
                words::of_every_second(it.ns_per_s)
            ),
            Some(it) => format!(
                "what waited for {} did so while its reader waited for a CPU, or is not known",
                it.victim.name()
            ),
            None => {
                "at no look had an event poll of it anything ready for more than some milliseconds"
                    .into()
            }
        },
    )
}

impl<'v> Late<'v> {
    fn of(view: &View, victim: Victim<'v>, of: Vec<(&'v NetKey, &'v Vec<Unread>)>) -> Self {
        let mut readers: Vec<&Unread> = of.into_iter().flat_map(|(_, it)| it).collect();
        readers.sort_by_key(|it| Reverse(it.occupied_ns()));
        // Threads are late at the same time, and each for its own clients: their times are not added up.
        let ns = readers.first().map_or(0, |it| it.occupied_ns());
        let share = (ns as f64 / view.window_ns().max(1) as f64).min(1.0);
        Self { victim, readers, ns, ns_per_s: view.per_second(ns), share }
    }

    /// The thread that was occupied longest.
    fn worst(&self) -> &'v Unread {
        self.readers[0]
    }
}

fn severity(it: &Late<'_>) -> Option<Severity> {
    if (it.worst().sum.occupied_looks as f64) < LEAST_LOOKS.value {
        return None;
    }
    let ms = it.ns_per_s as f64 / 1e6;
    let reaches = |held: &Limit, part: &Limit| ms >= held.value && it.share >= part.value;
    let levels = [
        (HIGH_HELD, HIGH_PART, Severity::High),
        (MEDIUM_HELD, MEDIUM_PART, Severity::Medium),
        (LOW_HELD, LOW_PART, Severity::Low),
    ];
    levels.iter().find(|(held, part, _)| reaches(held, part)).map(|(.., severity)| *severity)
}

/// The thread that reads, in words.
fn reader(it: &Unread) -> String {
    match it.sum.tid {
        Some(tid) => format!("the thread that reads it ({tid})"),
        None => "the thread that reads it".into(),
    }
}

fn computes(it: &Unread) -> bool {
    it.sum.on_cpu_ns >= it.sum.asleep_ns
}

fn finding(view: &View, severity: Severity, it: &Late<'_>) -> Finding {
    let worst = it.worst();
    let confidence = Confidence::of(view).with_samples(worst.sum.occupied_looks);
    let mut lines = lines(view, it);
    lines.push(confidence.evidence(view));
    let title = format!(
        "what is sent to {} waits unread for {}, while {} {}",
        it.victim.name(),
        words::of_every_second(it.ns_per_s),
        reader(worst),
        if computes(worst) { "is on a CPU" } else { "sleeps on something else" },
    );
    Finding {
        title,
        victim: it.victim.entity(view),
        cost: Cost { lost_ns_per_s: it.ns_per_s, share: it.share, ..Cost::default() },
        causes: reading_thread(view, worst).into_iter().collect(),
        evidence: lines,
        fix: fixes(worst),
        confirm: Some(it.victim.confirm(
            "with what occupies the reader moved elsewhere, whatever comes is fetched within milliseconds",
        )),
        ..RULE.finding(severity, confidence.value())
    }
}

/// The thread that should have read. The loss is that of its clients: others are late for their own.
fn reading_thread(view: &View, it: &Unread) -> Option<Cause> {
    let entity = Entity {
        kind: EntityKind::Thread,
        tid: it.sum.tid,
        ..words::process_entity(view, it.sum.proc?)
    };
    Some(Cause { entity, share: Share::saturating(1.0) })
}

fn lines(view: &View, it: &Late<'_>) -> Vec<Evidence> {
    let label = Source::Unread.label();
    let mut lines = Vec::new();
    for of in it.readers.iter().take(MAX_READERS) {
        let sum = &of.sum;
        let time =
            |name, ns: u64, note: String| evidence(view, name, ns as f64, Unit::Ns, label, note);
        let process =
            sum.proc.and_then(|id| view.processes().get(&id)).and_then(|it| it.facts.as_deref());
        let process = match process {
            Some(it) => format!("{} (pid {})", ticked(&it.comm), it.pid),
            None => "a process".into(),
        };
        let whose = match sum.tid {
            Some(tid) => format!("for thread {tid} of {process}"),
            None => format!("for a thread of {process} that is not known"),
        };
        let part = |ns: u64| units::share(ns as f64 / sum.late_ns.max(1) as f64);
        let unknown_ns = sum.late_ns.saturating_sub(of.occupied_ns() + sum.queued_ns);
        lines.push(time(
            "something waited to be read",
            sum.late_ns,
            format!(
                "{whose}: {} on a CPU, {} queued for one or throttled, {} asleep on something else, {} not known",
                part(sum.on_cpu_ns),
                part(sum.queued_ns),
                part(sum.asleep_ns),
                part(unknown_ns)
            ),
        ));
        lines.push(time(
            "connections waited",
            sum.unread_ns,
            format!(
                "{} at a time, of {} that are watched; found {}; the reader was occupied at {} of {}, in seconds in which anything waited",
                units::count(sum.unread_ns as f64 / sum.late_ns.max(1) as f64),
                units::counted(sum.connections, "connection", "connections"),
                units::counted(sum.samples, "time", "times"),
                units::count(sum.occupied_looks as f64),
                units::counted(sum.looks, "look", "looks")
            ),
        ));
        lines.push(time(
            "the longest",
            sum.longest_ns,
            format!(
                "at least, when it was seen: {} from {} (at {})",
                units::bytes(sum.waiting_bytes as f64),
                ticked(&sum.remote),
                ticked(&sum.local)
            ),
        ));
    }
    lines
}

fn fixes(it: &Unread) -> Vec<Fix> {
    let fix = |action: &str, risk: &str| Fix {
        action: action.into(),
        command: None,
        risk: Some(risk.into()),
        expect: None,
    };
    let moved = fix(
        "let another thread or process do what takes long, or do it in parts, between which the loop reads what has come",
        "what was done in order may then happen in another one",
    );
    let more = fix(
        "share the connections among more processes or loops (`SO_REUSEPORT`, workers), so that one that is occupied delays only its own",
        "memory, and state that they would have to share",
    );
    if computes(it) {
        vec![
            fix(
                "see what it computes: `deburr -p PID --profile` names the functions; most event loops can log what takes long (`slowlog` of Redis, `asyncio` in debug mode, `--cpu-prof` of Node.js)",
                "none, but for the cost of the profile",
            ),
            moved,
            more,
        ]
    } else {
        vec![
            fix(
                "see on what it sleeps: the ledger of this report, and the findings about locks, disks and peers (OFF, BLK)",
                "none",
            ),
            moved,
            more,
        ]
    }
}
