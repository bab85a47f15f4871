// SPDX-License-Identifier: Apache-2.0 OR MIT
//! NET007: connections hold back the end of a question or an answer until what came before it is confirmed.

use super::holding::{LIMITS, fixes, is_corked, severity_of};
use super::victims::{Victim, by_victim, causes, of_target_only, socket_entity, verdict};
use crate::finding::{Area, Cost, Evidence, Finding, Question, Severity, Unit};
use crate::recording::Source;
use crate::rules::confidence::Confidence;
use crate::rules::words::{self, evidence, ticked};
use crate::rules::{Check, Rule, Status, Verdict};
use crate::text::units;
use crate::view::{HeldBack, NetKey, View};
use std::cmp::Reverse;

/// Connections of a victim that are told one by one.
const MAX_CONNECTIONS: usize = 3;

pub(in crate::rules) static RULE: Rule = Rule {
    code: "NET007",
    area: Area::Network,
    question: Question::Network,
    name: "held-back",
    summary: "connections hold back the end of what is sent until what came before is acknowledged",
    any_of: &[Source::Unread],
    helps: &[],
    limits: &[&LIMITS],
    status: Status::Preview("0.1"),
    doc: include_str!("held_back.md"),
    file: file!(),
    check: Check::Recording(check),
};

/// The connections of a victim.
struct Held<'v> {
    victim: Victim<'v>,
    /// That which held back longest first.
    connections: Vec<(&'v NetKey, &'v HeldBack)>,
    ns_per_s: u64,
    share: f64,
}

fn check(view: &View) -> Verdict {
    if let Some(verdict) = of_target_only(view, "what connections hold back") {
        return verdict;
    }
    let all = by_victim(view, view.net().held_back()).into_iter();
    let all: Vec<Held<'_>> = all.map(|(who, of)| Held::of(view, who, of)).collect();
    verdict(
        all,
        |it| it.ns_per_s,
        |it| Some(finding(view, severity_of(view, it.connections.first()?.1)?, it)),
        |first| match first {
            Some(it) => {
                let sum = &it.connections[0].1.sum;
                format!(
                    "a connection of {} came nearest: it held something back at {} of {}",
                    it.victim.name(),
                    units::count(sum.held_looks as f64),
                    units::counted(sum.looks, "look", "looks")
                )
            }
            None => {
                "no connection on which the other end had answered was seen to hold anything back"
                    .into()
            }
        },
    )
}

impl<'v> Held<'v> {
    fn of(
        view: &View,
        victim: Victim<'v>,
        mut connections: Vec<(&'v NetKey, &'v HeldBack)>,
    ) -> Self {
        connections.sort_by_key(|(_, it)| Reverse((severity_of(view, it), it.sum.held_ns)));
        // Who waits does so on one connection: their times are not added up.
        let ns = connections.first().map_or(0, |(_, it)| it.sum.held_ns);
        let share = (ns as f64 / view.window_ns().max(1) as f64).min(1.0);
        Self { victim, connections, ns_per_s: view.per_second(ns), share }
    }
}

/// A connection in words.
fn connection(key: &NetKey) -> String {
    match key.local.is_empty() {
        true => "many connections, one after the other".into(),
        false => format!("the connection to {} (from {})", ticked(&key.remote), ticked(&key.local)),
    }
}

fn finding(view: &View, severity: Severity, it: &Held<'_>) -> Finding {
    let (key, worst) = it.connections[0];
    let confidence = Confidence::of(view).with_samples(worst.sum.held_looks);
    let mut lines = lines(view, it);
    lines.push(confidence.evidence(view));
    let until = match is_corked(worst) {
        true => "because the program asked for that (`TCP_CORK`)",
        false => "until the other end acknowledges the part before it",
    };
    let title = format!(
        "for at least {} the kernel holds back the end of what {} {} in small pieces, {until}: most of all on {}",
        words::of_every_second(it.ns_per_s),
        it.victim.name(),
        it.victim.verb("sends", "send"),
        connection(key)
    );
    Finding {
        title,
        victim: it.victim.entity(view),
        cost: Cost { lost_ns_per_s: it.ns_per_s, share: it.share, ..Cost::default() },
        causes: causes(it.connections.iter().map(|(key, one)| {
            let note = "its own end of the connection holds back what was sent";
            let own = (!key.local.is_empty()).then(|| socket_entity(&key.local, note));
            (own, one.sum.held_ns)
        })),
        evidence: lines,
        fix: fixes(is_corked(worst)),
        confirm: Some(it.victim.confirm(
            "with that changed, answers come sooner by the time that was held back, often 40 or 200 ms",
        )),
        ..RULE.finding(severity, confidence.value())
    }
}

fn lines(view: &View, it: &Held<'_>) -> Vec<Evidence> {
    let label = Source::Unread.label();
    let mut lines = Vec::new();
    for (key, one) in it.connections.iter().take(MAX_CONNECTIONS) {
        let sum = &one.sum;
        let time =
            |name, ns: u64, note: String| evidence(view, name, ns as f64, Unit::Ns, label, note);
        let corked = match sum.corked_looks {
            0 => String::new(),
            looks => format!(", at {} of them as the program asked", units::count(looks as f64)),
        };
        lines.push(time(
            "held back",
            sum.held_ns,
            format!(
                "{}: at {} of {} (only seconds in which it held anything back){corked}; {} at most",
                connection(key),
                units::count(sum.held_looks as f64),
                units::counted(sum.looks, "look", "looks"),
                units::bytes(sum.most_bytes as f64)
            ),
        ));
        if sum.longest_ns > 0 {
            lines.push(time(
                "the longest",
                sum.longest_ns,
                "since the part before it was sent, when it was seen".into(),
            ));
        }
    }
    lines
}
