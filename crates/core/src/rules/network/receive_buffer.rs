// SPDX-License-Identifier: Apache-2.0 OR MIT
//! NET003: datagrams are dropped because a receive buffer is full.

use super::victims::{Victim, by_victim, causes, socket_entity, verdict};
use crate::finding::{Area, Evidence, Finding, Fix, Question, Severity, Unit};
use crate::recording::Source;
use crate::rules::confidence::Confidence;
use crate::rules::words::{evidence, ticked};
use crate::rules::{Check, Limit, Rule, Status, Verdict};
use crate::text::units;
use crate::view::{Datagrams, NetKey, View};
use std::cmp::Reverse;

/// Sockets of a victim that are told one by one.
const MAX_SOCKETS: usize = 3;

const LOW_DROPS: Limit = Limit {
    name: "low_drops",
    value: 1.0,
    unit: "datagrams in a second",
    why: "whoever sends datagrams has to bear that one is lost now and then",
};
const MEDIUM_DROPS: Limit = Limit {
    name: "medium_drops",
    value: 10.0,
    unit: "datagrams in a second",
    why: "at any rate that one socket of a service usually has, an answer is missing every few seconds",
};
const HIGH_DROPS: Limit = Limit {
    name: "high_drops",
    value: 100.0,
    unit: "datagrams in a second",
    why: "the buffer is full most of the time: the program does not keep up",
};
const LEAST_DROPS: Limit = Limit {
    name: "least_drops",
    value: 10.0,
    unit: "datagrams in the window",
    why: "fewer may be one burst, as at a start",
};

pub(in crate::rules) static RULE: Rule = Rule {
    code: "NET003",
    area: Area::Network,
    question: Question::Network,
    name: "receive-buffer",
    summary: "datagrams are dropped because a socket's receive buffer is full",
    any_of: &[Source::Sockets],
    helps: &[Source::Sched],
    limits: &[&[LOW_DROPS, MEDIUM_DROPS, HIGH_DROPS, LEAST_DROPS]],
    status: Status::Preview("0.1"),
    doc: include_str!("receive_buffer.md"),
    file: file!(),
    check: Check::Recording(check),
};

/// What the sockets of a victim dropped.
struct Dropped<'v> {
    victim: Victim<'v>,
    /// Those that dropped most first.
    sockets: Vec<(&'v NetKey, &'v Datagrams)>,
    drops: u64,
    per_s: f64,
}

fn check(view: &View) -> Verdict {
    let all = by_victim(view, view.net().dropped()).into_iter();
    let all: Vec<Dropped<'_>> = all.map(|(who, of)| Dropped::of(view, who, of)).collect();
    verdict(
        all,
        |it| it.drops,
        |it| Some(finding(view, severity(it)?, it)),
        |first| match first {
            Some(it) => format!(
                "{} came nearest: {} in the window",
                it.victim.name(),
                units::counted(it.drops, "datagram was dropped", "datagrams were dropped")
            ),
            None => "no socket of UDP dropped datagrams".into(),
        },
    )
}

impl<'v> Dropped<'v> {
    fn of(view: &View, victim: Victim<'v>, mut sockets: Vec<(&'v NetKey, &'v Datagrams)>) -> Self {
        sockets.sort_by_key(|(_, it)| Reverse(it.drops));
        let drops = sockets.iter().map(|(_, it)| it.drops).fold(0, u64::saturating_add);
        let per_s = drops as f64 / (view.window_ns() as f64 / 1e9).max(1e-9);
        Self { victim, sockets, drops, per_s }
    }
}

fn severity(it: &Dropped<'_>) -> Option<Severity> {
    if (it.drops as f64) < LEAST_DROPS.value {
        return None;
    }
    let levels = [
        (HIGH_DROPS, Severity::High),
        (MEDIUM_DROPS, Severity::Medium),
        (LOW_DROPS, Severity::Low),
    ];
    levels.iter().find(|(limit, _)| it.per_s >= limit.value).map(|(_, severity)| *severity)
}

fn finding(view: &View, severity: Severity, it: &Dropped<'_>) -> Finding {
    let confidence = Confidence::of(view).with_samples(it.drops);
    let mut lines = lines(view, it);
    lines.push(confidence.evidence(view));
    Finding {
        title: format!(
            "{} {} {} in every second, because the receive buffer of the socket at {} is full",
            it.victim.name(),
            it.victim.verb("loses", "lose"),
            amount(it.per_s),
            ticked(&it.sockets[0].0.local)
        ),
        victim: it.victim.entity(view),
        causes: causes(it.sockets.iter().map(|(key, one)| {
            (Some(socket_entity(&key.local, "its receive buffer is full")), one.drops)
        })),
        evidence: lines,
        fix: fixes(it),
        confirm: Some(it.victim.confirm(
            "with a larger buffer or a faster reader, the last column of `/proc/net/udp` grows no more",
        )),
        ..RULE.finding(severity, confidence.value())
    }
}

fn amount(per_s: f64) -> String {
    if per_s < 1.5 {
        "a datagram".into()
    } else {
        format!("{} datagrams", units::count(per_s.round()))
    }
}

fn lines(view: &View, it: &Dropped<'_>) -> Vec<Evidence> {
    let label = Source::Sockets.label();
    let mut lines = Vec::new();
    for (key, socket) in it.sockets.iter().take(MAX_SOCKETS) {
        let to = match key.remote.as_str() {
            "" => String::new(),
            remote => format!(" (connected to {})", ticked(remote)),
        };
        let buffer = match socket.buffer_bytes {
            Some(bytes) => format!(
                "its buffer holds {} with their overhead, {} waited at the end of a second",
                units::bytes(bytes as f64),
                units::bytes(socket.waiting_bytes as f64)
            ),
            None => "the size of its buffer could not be read".into(),
        };
        let note = format!(
            "by the socket at {}{to}, in {}; {buffer}",
            ticked(&key.local),
            units::counted(socket.seconds, "second", "seconds")
        );
        let drops = socket.drops as f64;
        lines.push(evidence(view, "datagrams dropped", drops, Unit::Count, label, note));
    }
    lines.extend(meanwhile(view, &it.victim));
    lines
}

/// What its threads did: whether they had no time to read, or did not want to.
fn meanwhile(view: &View, victim: &Victim<'_>) -> Option<Evidence> {
    let Victim::Group(group) = victim else { return None };
    let usage = group.usage.as_ref()?;
    let states = &usage.states;
    let share = |ns: u64| units::share(ns as f64 / usage.wall_ns.max(1) as f64);
    let parts: Vec<String> = [
        ("on a CPU", states.on_cpu_ns),
        ("queued for one", states.queued_ns),
        ("throttled", states.throttled_ns),
        ("waiting for a disk", states.block_io_ns),
        ("asleep", states.sleep_ns),
    ]
    .into_iter()
    .filter(|(_, ns)| *ns > 0)
    .map(|(what, ns)| format!("{} {what}", share(ns)))
    .collect();
    let label = Source::Sched.label();
    let note = format!(
        "of the time of its {}: {}",
        units::counted(usage.threads_max.into(), "thread", "threads"),
        parts.join(", ")
    );
    Some(evidence(view, "its threads meanwhile", 0.0, Unit::Text, label, note))
}

fn fixes(it: &Dropped<'_>) -> Vec<Fix> {
    let fix = |action: String, risk: &str| Fix {
        action,
        command: None,
        risk: Some(risk.into()),
        expect: None,
    };
    let socket = it.sockets[0].1;
    let most = socket.most_buffer_bytes.map_or_else(String::new, |bytes| {
        format!(" (`net.core.rmem_max` allows {} now)", units::bytes(bytes as f64))
    });
    vec![
        fix(
            "have the program read faster: a thread that only reads, several datagrams with one call (`recvmmsg`), several sockets for one port (`SO_REUSEPORT`)".into(),
            "with several readers datagrams may be processed in another order",
        ),
        fix(
            format!("give the socket a larger buffer: `SO_RCVBUF` in the program, and `net.core.rmem_max` if that is less{most}"),
            "a buffer bears bursts: where more comes than is read on average, it only makes what is read older",
        ),
        fix(
            "where its threads wait for a CPU, a quota or a disk, begin with the findings about that".into(),
            "none",
        ),
    ]
}
