// SPDX-License-Identifier: Apache-2.0 OR MIT
//! NET004: what connections have to send waits for the other end's window, or for room in their own buffer.

use super::victims::{
    Victim, by_victim, causes, connection, of_target_only, socket_entity, verdict,
};
use crate::finding::{
    Area, Cause, Cost, Entity, EntityKind, Evidence, Finding, Fix, Question, Severity, Unit,
};
use crate::recording::Source;
use crate::rules::confidence::Confidence;
use crate::rules::words::{self, evidence, process_entity, ticked};
use crate::rules::{Check, Limit, Rule, Status, Verdict};
use crate::text::units;
use crate::view::{NetKey, Sender, View};
use std::cmp::Reverse;

/// Connections of a victim that are told one by one.
const MAX_CONNECTIONS: usize = 3;

const LEAST_OF_BUSY: Limit = Limit {
    name: "least_of_busy",
    value: 0.25,
    unit: "of the time in which a connection had something to send",
    why: "the window of a reader that keeps up is full for moments, too: beside a sender that never stops, for a tenth of the time",
};
const LOW_HELD: Limit = Limit {
    name: "low_held",
    value: 20.0,
    unit: "ms of each second",
    why: "as for other connections that are held up",
};
const LOW_PART: Limit = Limit {
    name: "low_part",
    value: 0.02,
    unit: "of the time that these connections had in the window",
    why: "of many connections, each of which is hardly ever held up, none is slow",
};
const MEDIUM_HELD: Limit = Limit {
    name: "medium_held",
    value: 100.0,
    unit: "ms of each second",
    why: "as for any other loss of time that is high; it is never told as more than medium here, as nobody may wait for it",
};
const MEDIUM_PART: Limit = Limit {
    name: "medium_part",
    value: 0.10,
    unit: "of the time that these connections had in the window",
    why: "one message in ten meets a connection that is held up",
};

pub(in crate::rules) static RULE: Rule = Rule {
    code: "NET004",
    area: Area::Network,
    question: Question::Network,
    name: "send-limited",
    summary: "what connections have to send waits for the other end's window, or for the own send buffer",
    any_of: &[Source::Connections],
    helps: &[],
    limits: &[&[LEAST_OF_BUSY, LOW_HELD, LOW_PART, MEDIUM_HELD, MEDIUM_PART]],
    status: Status::Preview("0.1"),
    doc: include_str!("send_limited.md"),
    file: file!(),
    check: Check::Recording(check),
};

/// What the connections of a victim lost.
struct Held<'v> {
    victim: Victim<'v>,
    /// Those that count, the one that was held up longest first.
    connections: Vec<(&'v NetKey, &'v Sender)>,
    ns: u64,
    ns_per_s: u64,
    /// Of the time that these connections had.
    share: f64,
    /// What clients were late to take, which does not count.
    of_clients_ns: u64,
}

fn check(view: &View) -> Verdict {
    if let Some(verdict) = of_target_only(view, "what connections have to send") {
        return verdict;
    }
    let all = by_victim(view, view.net().senders()).into_iter();
    let all: Vec<Held<'_>> = all.map(|(who, of)| Held::of(view, who, of)).collect();
    verdict(
        all,
        |it| (it.ns, it.of_clients_ns),
        |it| Some(finding(view, severity(it)?, it)),
        |first| match first {
            Some(it) if it.ns > 0 => format!(
                "connections of {} came nearest: held up for {}, {} of their time",
                it.victim.name(),
                words::of_every_second_of_connections(it.ns_per_s),
                units::share(it.share)
            ),
            Some(it) if it.of_clients_ns > 0 => format!(
                "only clients of {} were late to take what it sent to them, by {}: that delays nobody but them",
                it.victim.name(),
                words::of_every_second_of_connections(view.per_second(it.of_clients_ns))
            ),
            _ => "no connection was held up for long with something to send".into(),
        },
    )
}

impl<'v> Held<'v> {
    fn of(view: &View, victim: Victim<'v>, mut connections: Vec<(&'v NetKey, &'v Sender)>) -> Self {
        let sum = |of: &dyn Fn(&Sender) -> u64, all: &[(&NetKey, &Sender)]| {
            all.iter().map(|(_, it)| of(it)).fold(0, u64::saturating_add)
        };
        let of_clients_ns = sum(&|it| it.window_of_clients_ns, &connections);
        connections.retain(|(_, it)| of_busy(it) >= LEAST_OF_BUSY.value);
        connections.sort_by_key(|(_, it)| Reverse(it.held_ns()));
        let ns = sum(&Sender::held_ns, &connections);
        let number = sum(&|it| it.sum.connections.max(1), &connections);
        let had_ns = view.window_ns() as f64 * number as f64;
        let share = (ns as f64 / had_ns.max(1.0)).min(1.0);
        Self { victim, connections, ns, ns_per_s: view.per_second(ns), share, of_clients_ns }
    }

    fn sum(&self, of: impl Fn(&Sender) -> u64) -> u64 {
        self.connections.iter().map(|(_, it)| of(it)).fold(0, u64::saturating_add)
    }

    fn window_ns(&self) -> u64 {
        self.sum(|it| it.window_of_servers_ns)
    }

    fn buffer_ns(&self) -> u64 {
        self.sum(|it| it.sum.buffer_ns)
    }
}

/// Share of the time in which it had something to send that it was held up, 0..1.
fn of_busy(it: &Sender) -> f64 {
    it.held_ns() as f64 / it.sum.busy_ns.max(1) as f64
}

fn severity(it: &Held<'_>) -> Option<Severity> {
    let ms = it.ns_per_s as f64 / 1e6;
    let reaches = |held: &Limit, part: &Limit| ms >= held.value && it.share >= part.value;
    let levels =
        [(MEDIUM_HELD, MEDIUM_PART, Severity::Medium), (LOW_HELD, LOW_PART, Severity::Low)];
    levels.iter().find(|(held, part, _)| reaches(held, part)).map(|(.., severity)| *severity)
}

fn finding(view: &View, severity: Severity, it: &Held<'_>) -> Finding {
    let confidence = Confidence::of(view);
    let mut lines = lines(view, it);
    lines.push(confidence.evidence(view));
    let causes = causes_of(view, it);
    let local = causes.first().filter(|cause| cause.entity.kind == EntityKind::Process);
    let why = match local.and_then(|cause| Some((cause.entity.comm.as_ref()?, cause.entity.pid?))) {
        _ if it.window_ns() < it.buffer_ns() => "their own send buffer is too small".to_owned(),
        Some((comm, pid)) => format!("{} (pid {pid}) does not take it in time", ticked(comm)),
        None => "the other end does not take it in time".to_owned(),
    };
    let fix = fixes(it, local.and_then(|cause| cause.entity.pid));
    let (key, worst) = it.connections[0];
    let title = format!(
        "what connections of {} have to send is held up for {} because {why}, most of all on {}",
        it.victim.name(),
        words::of_every_second_of_connections(it.ns_per_s),
        connection(key, worst.sum.connections)
    );
    Finding {
        title,
        victim: it.victim.entity(view),
        cost: Cost { lost_ns_per_s: it.ns_per_s, share: it.share, ..Cost::default() },
        causes,
        evidence: lines,
        fix,
        confirm: Some(it.victim.confirm(
            "with that changed, `rwnd_limited` and `sndbuf_limited` of the connection in `ss -ti` grow no more",
        )),
        ..RULE.finding(severity, confidence.value())
    }
}

fn causes_of(view: &View, it: &Held<'_>) -> Vec<Cause> {
    causes(it.connections.iter().flat_map(|(key, one)| {
        let own = socket_entity(&key.local, "its send buffer is too small");
        let of = |entity: Entity, ns| ((!key.remote.is_empty()).then_some(entity), ns);
        [of(other_end(view, key, one), one.window_of_servers_ns), of(own, one.sum.buffer_ns)]
    }))
}

/// The other end of a connection, which does not read: the process of this host that has it open, if that is known.
fn other_end(view: &View, key: &NetKey, it: &Sender) -> Entity {
    match it.sum.peer {
        Some(peer) => Entity { address: Some(key.remote.clone()), ..process_entity(view, peer) },
        None => socket_entity(&key.remote, "the other end, which does not read"),
    }
}

fn lines(view: &View, it: &Held<'_>) -> Vec<Evidence> {
    let label = Source::Connections.label();
    let mut lines = Vec::new();
    let mut line = |name, ns: u64, note: String| {
        if ns > 0 {
            lines.push(evidence(view, name, ns as f64, Unit::Ns, label, note));
        }
    };
    let part = |ns: u64| units::share(ns as f64 / it.ns.max(1) as f64);
    line(
        "the other end's window was full",
        it.window_ns(),
        format!(
            "{}; it reads too slowly, or its receive buffer is too small",
            part(it.window_ns())
        ),
    );
    line(
        "the own send buffer was full",
        it.buffer_ns(),
        format!("{}; all that was in it was on its way", part(it.buffer_ns())),
    );
    for (key, one) in it.connections.iter().take(MAX_CONNECTIONS) {
        let mut note = format!(
            "{}: {} of the time in which it had something to send",
            connection(key, one.sum.connections),
            units::share(of_busy(one))
        );
        if !key.local.is_empty() {
            let srtt = one.sum.srtt_ns.map(|ns| units::duration(ns as f64));
            note += &format!(
                "; room at the other end {} at the end and {} at least, own buffer {}, up to {} not sent, smoothed round trip {}",
                units::bytes(one.sum.window_bytes as f64),
                units::bytes(one.least_window_bytes as f64),
                units::bytes(one.sum.buffer_bytes as f64),
                units::bytes(one.sum.waiting_bytes as f64),
                srtt.unwrap_or_else(|| "not known".into())
            );
        }
        line("held up", one.held_ns(), note);
    }
    line(
        "clients were late to take what it sent",
        it.of_clients_ns,
        "not part of the loss: that delays nobody but them".into(),
    );
    lines
}

/// What to do; `peer` = the process of this host that does not read.
fn fixes(it: &Held<'_>, peer: Option<u32>) -> Vec<Fix> {
    let fix = |action: &str, risk: &str| Fix {
        action: action.into(),
        command: None,
        risk: Some(risk.into()),
        expect: None,
    };
    let mut fixes = Vec::new();
    if it.window_ns() > 0 {
        let look = match peer {
            Some(_) => "see what it does instead of reading",
            None => {
                "see what the other end does instead of reading: observe that process, on this host or on its own, with `deburr -p PID`"
            }
        };
        fixes.push(Fix {
            command: peer.map(|pid| format!("sudo deburr -p {pid} -d 30")),
            ..fix(
                look,
                "what it reads faster it may have to do something about: its queue moves one step on",
            )
        });
        fixes.push(fix(
            "if there was room at the other end all the time and the round trip is long, give the other end a larger receive buffer: no `SO_RCVBUF` in its program, a larger third value of `net.ipv4.tcp_rmem`",
            "memory for each connection; if the other end reads too slowly, a larger buffer only delays more",
        ));
    }
    if it.buffer_ns() > 0 {
        fixes.push(fix(
            "give these connections a larger send buffer: no `SO_SNDBUF` in the program, a larger third value of `net.ipv4.tcp_wmem`",
            "memory for each connection, and more that was accepted and not yet sent when the connection breaks",
        ));
    }
    fixes.push(fix(
        "send what is urgent on a connection of its own, and bound what waits for this one",
        "decide what is dropped when the queue is full",
    ));
    fixes
}
