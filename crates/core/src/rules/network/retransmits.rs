// SPDX-License-Identifier: Apache-2.0 OR MIT
//! NET001: connections wait for what they have to send again.

use super::victims::{Victim, by_victim, causes, connection, socket_entity, verdict};
use crate::finding::{Area, Cost, Evidence, Finding, Fix, Question, Severity, Unit};
use crate::recording::Source;
use crate::rules::confidence::Confidence;
use crate::rules::words::{self, evidence};
use crate::rules::{Check, Limit, Rule, Status, Verdict};
use crate::text::units;
use crate::view::{Connection, NetKey, View};
use std::cmp::Reverse;

/// Connections of a victim that are told one by one.
const MAX_CONNECTIONS: usize = 3;

const LOW_HELD: Limit = Limit {
    name: "low_held",
    value: 20.0,
    unit: "ms of each second",
    why: "three timeouts of the least length, 200 ms, in half a minute",
};
const LOW_PART: Limit = Limit {
    name: "low_part",
    value: 0.02,
    unit: "of the time that these connections had in the window",
    why: "of many connections, each of which is hardly ever held up, none is slow",
};
const MEDIUM_HELD: Limit = Limit {
    name: "medium_held",
    value: 30.0,
    unit: "ms of each second",
    why: "as for any other loss of time",
};
const MEDIUM_PART: Limit = Limit {
    name: "medium_part",
    value: 0.05,
    unit: "of the time that these connections had in the window",
    why: "one request in twenty meets a connection that is held up",
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
    unit: "of the time that these connections had in the window",
    why: "one request in ten meets a connection that is held up",
};
pub(in crate::rules) static RULE: Rule = Rule {
    code: "NET001",
    area: Area::Network,
    question: Question::Network,
    name: "retransmits",
    summary: "connections wait for segments that have to be sent again",
    any_of: &[Source::Tcp],
    helps: &[],
    limits: &[&[LOW_HELD, LOW_PART, MEDIUM_HELD, MEDIUM_PART, HIGH_HELD, HIGH_PART]],
    status: Status::Preview("0.1"),
    doc: include_str!("retransmits.md"),
    file: file!(),
    check: Check::Recording(check),
};

/// What the connections of a victim lost.
struct Held<'v> {
    victim: Victim<'v>,
    /// Those that were held up longest first.
    connections: Vec<(&'v NetKey, &'v Connection)>,
    ns: u64,
    ns_per_s: u64,
    /// Of the time that these connections had.
    share: f64,
}

fn check(view: &View) -> Verdict {
    let all = by_victim(view, view.net().connections()).into_iter();
    let all: Vec<Held<'_>> = all.map(|(who, of)| Held::of(view, who, of)).collect();
    verdict(
        all,
        |it| it.ns,
        |it| Some(finding(view, severity(it)?, it)),
        |first| match first {
            Some(it) if it.ns > 0 => format!(
                "connections of {} came nearest: held up for {}, {} of their time",
                it.victim.name(),
                words::of_every_second_of_connections(it.ns_per_s),
                units::share(it.share)
            ),
            Some(it) => format!(
                "no timer expired; {} sent {} again, as answers showed losses",
                it.victim.name(),
                units::counted(it.sum(|sum| sum.sum.segments), "segment", "segments")
            ),
            None => "no segment was sent again".into(),
        },
    )
}

impl<'v> Held<'v> {
    fn of(
        view: &View,
        victim: Victim<'v>,
        mut connections: Vec<(&'v NetKey, &'v Connection)>,
    ) -> Self {
        connections.sort_by_key(|(_, it)| Reverse(it.held_ns()));
        let held = connections.iter().map(|(_, it)| it.held_ns()).filter(|ns| *ns > 0);
        let ns = held.fold(0, u64::saturating_add);
        let number = connections
            .iter()
            .filter(|(_, it)| it.held_ns() > 0)
            .map(|(_, it)| it.sum.connections.max(1))
            .fold(0, u64::saturating_add);
        let had_ns = view.window_ns() as f64 * number as f64;
        let share = (ns as f64 / had_ns.max(1.0)).min(1.0);
        Self { victim, connections, ns, ns_per_s: view.per_second(ns), share }
    }

    fn sum(&self, of: impl Fn(&Connection) -> u64) -> u64 {
        self.connections.iter().map(|(_, it)| of(it)).fold(0, u64::saturating_add)
    }
}

fn severity(it: &Held<'_>) -> Option<Severity> {
    let ms = it.ns_per_s as f64 / 1e6;
    let reaches = |held: &Limit, part: &Limit| ms >= held.value && it.share >= part.value;
    let levels = [
        (HIGH_HELD, HIGH_PART, Severity::High),
        (MEDIUM_HELD, MEDIUM_PART, Severity::Medium),
        (LOW_HELD, LOW_PART, Severity::Low),
    ];
    levels.iter().find(|(held, part, _)| reaches(held, part)).map(|(.., severity)| *severity)
}

fn finding(view: &View, severity: Severity, it: &Held<'_>) -> Finding {
    let samples = it.sum(|it| it.sum.timeouts);
    let confidence = Confidence::of(view).with_samples(samples);
    let mut lines = lines(view, it);
    lines.push(confidence.evidence(view));
    let (key, worst) = it.connections[0];
    let title = format!(
        "connections of {} are held up for {} by segments that have to be sent again, most of all {}",
        it.victim.name(),
        words::of_every_second_of_connections(it.ns_per_s),
        connection(key, worst.sum.connections)
    );
    Finding {
        title,
        victim: it.victim.entity(view),
        cost: Cost { lost_ns_per_s: it.ns_per_s, share: it.share, ..Cost::default() },
        causes: causes(it.connections.iter().map(|(key, one)| {
            let path = socket_entity(&key.remote, "the path to it");
            ((!key.remote.is_empty()).then_some(path), one.held_ns())
        })),
        evidence: lines,
        fix: fixes(it),
        confirm: Some(it.victim.confirm(
            "with the path repaired, `RetransSegs` of `/proc/net/snmp` grows no more, and neither does what is held up",
        )),
        ..RULE.finding(severity, confidence.value())
    }
}

fn lines(view: &View, it: &Held<'_>) -> Vec<Evidence> {
    let label = Source::Tcp.label();
    let ns = |ns: u64| units::duration(ns as f64);
    let count = |name, amount: u64, note: String| {
        evidence(view, name, amount as f64, Unit::Count, label, note)
    };
    let timeouts = it.sum(|it| it.sum.timeouts);
    let recoveries = it.sum(|it| it.sum.recoveries);
    let mut lines = vec![
        count(
            "timeouts",
            timeouts,
            format!(
                "nothing came back until the timer expired: {} of waiting",
                ns(it.sum(|it| it.sum.timeout_ns))
            ),
        ),
        count(
            "losses that answers showed",
            recoveries,
            format!(
                "each repaired within about a round trip, {} in all, while the connection went on: not part of the loss",
                ns(it.sum(|it| it.sum.recovery_ns))
            ),
        ),
    ];
    let segments = it.sum(|it| it.sum.segments);
    let here = it.sum(|it| it.sum.dropped_here);
    let note = match here {
        0 => "by the kernel's counts of these connections".to_owned(),
        _ => format!(
            "{} of them were dropped by this host itself: a queue of its own is full",
            units::count(here as f64)
        ),
    };
    lines.push(count("segments sent again", segments, note));
    let requests = it.sum(|it| it.sum.requests);
    if requests > 0 {
        let note = "the other end did not answer in time: it is gone, something drops the requests on the way, or its queue is full (NET002 there)";
        lines.push(count("requests for connections sent again", requests, note.into()));
    }
    for (key, one) in it.connections.iter().take(MAX_CONNECTIONS) {
        let held_ns = one.held_ns();
        if held_ns == 0 || key.local.is_empty() {
            continue;
        }
        let part = one.share_resent().map_or_else(String::new, |share| {
            format!("{} of its segments sent again since it began, ", units::share(share))
        });
        let srtt = one.sum.srtt_ns.map_or_else(|| "not known".into(), ns);
        let note = format!(
            "{}: {part}smoothed round trip {srtt}, longest timeout that was set {}",
            connection(key, one.sum.connections),
            ns(one.sum.rto_ns)
        );
        lines.push(evidence(view, "held up at least", held_ns as f64, Unit::Ns, label, note));
    }
    lines
}

fn fixes(it: &Held<'_>) -> Vec<Fix> {
    let fix = |action: &str, risk: &str| Fix {
        action: action.into(),
        command: None,
        risk: Some(risk.into()),
        expect: None,
    };
    let mut fixes = Vec::new();
    if it.sum(|it| it.sum.dropped_here) > 0 {
        fixes.push(fix(
            "see which queue of this host drops (`tc -s qdisc`, `dropped`), and give it a higher rate or a longer queue, or send less at a time",
            "a longer queue loses less and delays more",
        ));
    }
    if it.sum(|it| it.sum.requests) > 0 {
        fixes.push(fix(
            "see whether the other end listens, and whether something between drops the requests (a firewall, a table of connections that is full)",
            "a rule that drops may be there on purpose",
        ));
    }
    fixes.push(fix(
        "find where on the path segments are lost: errors and drops of the interfaces (`ip -s link`, `ethtool -S`), of switches, of a limit on the rate of the virtual machine",
        "loss that comes and goes with the load is a full queue; loss at any load is a fault",
    ));
    fixes.push(fix(
        "have the application bear it: keep connections open, send less in one burst, repeat a request on another connection when the first is late",
        "repeating adds load to a path that is full",
    ));
    fixes
}
