// SPDX-License-Identifier: Apache-2.0 OR MIT
//! OFF004: inside of what requests need, threads sleep by a timer of always the same length.

use super::waits::{self, For, Sleep, Waits};
use crate::finding::{Area, Finding, Fix, Question, Severity, SleepKind, Unit};
use crate::recording::{Did, ProcId, Source};
use crate::rules::asleep::kind;
use crate::rules::confidence::Confidence;
use crate::rules::words::{self, evidence, group_name, ticked};
use crate::rules::{Check, Limit, Rule, Status, Verdict, severity};
use crate::text::units;
use crate::view::{Lengths, Role, SleepKey, View};
use std::cmp::Reverse;
use std::collections::BTreeMap;

const EQUAL: Limit = Limit {
    name: "equal",
    value: 0.8,
    unit: "of the longest of a second, on average",
    why: "a timer ends a little late, by as much as its slack and the interrupt take; what depends on work or on others \
          differs by more",
};
const LEAST_SLEEPS: Limit = Limit {
    name: "least_sleeps",
    value: 20.0,
    unit: "sleeps in the window",
    why: "a few of the same length may be chance",
};
/// How sure it is that such a sleep is one too many: only the program knows what it sleeps for.
const SUSPICION: f64 = 0.5;
/// Timers that are told one by one.
const MAX_TIMERS: usize = 5;

pub(in crate::rules) static RULE: Rule = Rule {
    code: "OFF004",
    area: Area::Waiting,
    question: Question::Others,
    name: "own-timer",
    summary: "threads sleep by a timer of always the same length, inside of what requests need",
    any_of: &[Source::Sched],
    helps: &[],
    limits: &[&[EQUAL, LEAST_SLEEPS], &severity::LOSS_LIMITS],
    status: Status::Preview("0.1"),
    doc: include_str!("own_timer.md"),
    file: file!(),
    check: Check::Recording(check),
};

fn check(view: &View) -> Verdict {
    let is = |sleep: &Sleep<'_>| timer(sleep).is_some_and(|it| are_equal(&lengths(view, it)));
    waits::verdict(view, is, (For::Others, "for timers of always the same length"), finding)
}

/// A timer: the process and the name of the thread that set it, and its call.
type Timer<'k> = (ProcId, &'k str, &'k str);

/// The timer that a sleep waits for, if that is inside of what a request needs: a thread that serves requests set it, or one
/// for which others wait.
fn timer<'k>((id, key, _): &Sleep<'k>) -> Option<Timer<'k>> {
    let key: &'k SleepKey = key;
    let serves = matches!(key.role, Role::Entry { .. });
    if serves && kind::naps(&key.slept) {
        return Some((*id, key.thread.as_deref().unwrap_or_default(), &key.slept.call));
    }
    let last = key.behind.last()?;
    let Did::Slept(slept) = &last.did else { return None };
    let asked = matches!(key.role, Role::Entry { asked: Some(true), .. });
    // A client that asks to be told of events waits for whoever makes them, and that may be by a timer.
    let is_event = kind::keeps_client_waiting(*id, key);
    let is_awaited = asked || (!is_event && kind::of(*id, key) == SleepKind::WaitsForOthers);
    let is_it = is_awaited && kind::is_own_timer(slept);
    is_it.then_some((last.proc, &last.thread, &slept.call))
}

/// The lengths of the sleeps that a thread of that name set that timer for.
fn lengths(view: &View, (proc, thread, call): Timer<'_>) -> Lengths {
    let sleeps = view.processes().get(&proc).and_then(|process| process.sleeps.as_ref());
    let mut all = Lengths::default();
    for (key, lengths) in sleeps.into_iter().flat_map(|sleeps| sleeps.lengths()) {
        let is_its = key.thread.as_deref().unwrap_or_default() == thread && key.slept.call == call;
        let ended = key.slept.woken.is_timer() && kind::is_own_timer(&key.slept);
        if is_its && ended {
            all.add(lengths);
        }
    }
    all
}

fn are_equal(it: &Lengths) -> bool {
    let (mean_ns, longest_ns) = (it.mean_ns(), it.longest_ns());
    // Of shorter ones than a millisecond not each was looked at: their mean would be longer than the longest.
    it.looked_at as f64 >= LEAST_SLEEPS.value
        && mean_ns >= EQUAL.value * longest_ns
        && EQUAL.value * mean_ns <= longest_ns
}

fn finding(view: &View, severity: Severity, waits: &Waits<'_>) -> Finding {
    let mut sums: BTreeMap<Timer<'_>, u64> = BTreeMap::new();
    for sleep in &waits.sleeps {
        if let Some(timer) = timer(sleep) {
            let sum = sums.entry(timer).or_default();
            *sum = sum.saturating_add(sleep.2);
        }
    }
    let mut timers: Vec<(Timer<'_>, u64)> = sums.into_iter().collect();
    timers.sort_by_key(|(_, ns)| Reverse(*ns));
    let of = |timer| lengths(view, timer);
    let label = Source::Sched.label();
    let mut lines = waits.lines(view, "asleep by timers");
    for (timer, ns) in timers.iter().take(MAX_TIMERS) {
        let (lengths, (_, thread, call)) = (of(*timer), timer);
        let note = format!(
            "{}: {} in {call}, {} sleeps, of which the longest of a second took {} on average",
            units::share(*ns as f64 / waits.ns.max(1) as f64),
            named(thread),
            lengths.looked_at,
            units::duration(lengths.longest_ns()),
        );
        lines.push(evidence(view, "equal sleeps", lengths.mean_ns(), Unit::Ns, label, note));
    }
    let first = timers.first().map(|(timer, _)| *timer);
    let samples = first.map_or(0, |timer| of(timer).looked_at);
    let confidence = Confidence::of(view).with("suspicion", SUSPICION).with_samples(samples);
    lines.push(confidence.evidence(view));
    let set_by = first.map_or_else(String::new, |timer| {
        let length = units::duration(of(timer).mean_ns());
        format!(" of {length} each, for which {} sets a timer", named(timer.1))
    });
    let by = timers
        .iter()
        .map(|((proc, thread, _), ns)| ((*proc, (*thread).to_owned(), named(thread)), *ns));
    Finding {
        title: format!(
            "{} {} {} inside of requests in sleeps{set_by}: perhaps a retry, a backoff, or a loop that looks again",
            group_name(waits.group),
            words::verb(waits.group, "loses", "lose"),
            words::of_every_second(waits.ns_per_s),
        ),
        victim: words::group_entity(view, waits.group),
        cost: waits.cost(),
        causes: waits::causes(view, &by.collect::<Vec<_>>(), waits.ns),
        evidence: lines,
        fix: vec![Fix {
            action: "look in the program for what sets a timer of that length: a retry after an error, a backoff, a loop \
                     that sleeps and looks again, a limit of a rate, a linger; wait for the event itself instead"
                .into(),
            command: None,
            risk: Some(
                "what sleeps between its attempts on purpose loads whom it asks, if it does not sleep any more".into(),
            ),
            expect: None,
        }],
        confirm: Some(waits.look_again(view,
            "with a shorter timer, the sleeps are as much shorter, and so are the requests".into(),
        )),
        // Not more: that these sleeps are in the way is a suspicion.
        ..RULE.finding(severity::lowered(severity), confidence.value())
    }
}

fn named(thread: &str) -> String {
    if thread.is_empty() { "a thread".into() } else { ticked(thread) }
}
