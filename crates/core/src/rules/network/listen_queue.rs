// SPDX-License-Identifier: Apache-2.0 OR MIT
//! NET002: requests for connections are dropped because the queue of a listening socket is full.

use super::victims::{Victim, by_victim, causes, socket_entity, verdict};
use crate::finding::{Area, Evidence, Finding, Fix, Question, Severity, Unit};
use crate::recording::Source;
use crate::rules::confidence::Confidence;
use crate::rules::words::{evidence, ticked};
use crate::rules::{Check, Limit, Rule, Status, Verdict};
use crate::text::units;
use crate::view::{Listener, NetKey, NetnsTotals, View};
use std::cmp::Reverse;

/// Listening sockets of a victim that are told one by one.
const MAX_SOCKETS: usize = 3;

const LEAST_DROPS: Limit = Limit {
    name: "least_drops",
    value: 3.0,
    unit: "requests in the window",
    why: "fewer may be one client that came at a bad time",
};
const LOW_SHARE: Limit = Limit {
    name: "low_share",
    value: 0.001,
    unit: "of the requests for connections",
    why: "one connection in a thousand waits for a second: the 99.9th percentile of whoever connects each time",
};
const MEDIUM_SHARE: Limit = Limit {
    name: "medium_share",
    value: 0.01,
    unit: "of the requests for connections",
    why: "the 99th percentile of whoever connects each time is a second",
};
const HIGH_SHARE: Limit = Limit {
    name: "high_share",
    value: 0.05,
    unit: "of the requests for connections",
    why: "one connection in twenty waits for a second or fails",
};

pub(in crate::rules) static RULE: Rule = Rule {
    code: "NET002",
    area: Area::Network,
    question: Question::Network,
    name: "listen-queue",
    summary: "requests for connections are dropped because the queue of a listening socket is full",
    any_of: &[Source::Sockets],
    helps: &[Source::Sched],
    limits: &[&[LEAST_DROPS, LOW_SHARE, MEDIUM_SHARE, HIGH_SHARE]],
    status: Status::Preview("0.1"),
    doc: include_str!("listen_queue.md"),
    file: file!(),
    check: Check::Recording(check),
};

/// What the listening sockets of a victim dropped.
struct Refused<'v> {
    victim: Victim<'v>,
    /// Those that dropped most first.
    sockets: Vec<(&'v NetKey, &'v Listener)>,
    drops: u64,
    /// What else happened in their namespaces.
    all: NetnsTotals,
}

fn check(view: &View) -> Verdict {
    let all = by_victim(view, view.net().listeners()).into_iter();
    let all: Vec<Refused<'_>> = all.map(|(who, of)| Refused::of(view, who, of)).collect();
    verdict(
        all,
        |it| it.drops,
        |it| Some(finding(view, severity(it)?, it)),
        |first| match first.filter(|it| it.drops > 0) {
            Some(it) => format!(
                "{} came nearest: {} of {}",
                it.victim.name(),
                units::counted(it.drops, "request was dropped", "requests were dropped"),
                units::count(it.requests() as f64)
            ),
            None => "no listening socket dropped a request for a connection".into(),
        },
    )
}

impl<'v> Refused<'v> {
    fn of(view: &View, victim: Victim<'v>, mut sockets: Vec<(&'v NetKey, &'v Listener)>) -> Self {
        sockets.sort_by_key(|(_, it)| (Reverse(it.drops), Reverse(it.waiting)));
        let mut namespaces: Vec<u32> = sockets.iter().filter_map(|(key, _)| key.netns).collect();
        namespaces.sort_unstable();
        namespaces.dedup();
        let mut all = NetnsTotals::default();
        for it in namespaces.iter().filter_map(|netns| view.net().namespaces().get(netns)) {
            all.opened = all.opened.saturating_add(it.opened);
            all.overflows = all.overflows.saturating_add(it.overflows);
            all.drops = all.drops.saturating_add(it.drops);
        }
        let counted = sockets.iter().filter_map(|(_, it)| it.drops).fold(0, u64::saturating_add);
        // Of sockets of nobody that is known only their namespace counts.
        let drops = match victim {
            Victim::Host => all.overflows,
            Victim::Group(_) => counted,
        };
        Self { victim, sockets, drops, all }
    }

    fn requests(&self) -> u64 {
        self.all.opened.saturating_add(self.drops)
    }

    fn share(&self) -> f64 {
        self.drops as f64 / self.requests().max(1) as f64
    }
}

fn severity(it: &Refused<'_>) -> Option<Severity> {
    // Requests are dropped for other reasons, too: those were no full queues.
    if (it.drops as f64) < LEAST_DROPS.value || it.all.overflows == 0 {
        return None;
    }
    let levels = [
        (HIGH_SHARE, Severity::High),
        (MEDIUM_SHARE, Severity::Medium),
        (LOW_SHARE, Severity::Low),
    ];
    levels.iter().find(|(limit, _)| it.share() >= limit.value).map(|(_, severity)| *severity)
}

fn finding(view: &View, severity: Severity, it: &Refused<'_>) -> Finding {
    let confidence = Confidence::of(view).with_samples(it.drops);
    let mut lines = lines(view, it);
    lines.push(confidence.evidence(view));
    let title = format!(
        "{} {} {} of the requests for connections, because the queue of the socket that listens at {} is full",
        it.victim.name(),
        it.victim.verb("drops", "drop"),
        units::share(it.share()),
        ticked(&it.sockets[0].0.local)
    );
    Finding {
        title,
        victim: it.victim.entity(view),
        causes: causes(it.sockets.iter().map(|(key, one)| {
            let socket = socket_entity(&key.local, "its queue of connections is full");
            (Some(socket), one.drops.unwrap_or(0))
        })),
        evidence: lines,
        fix: fixes(it),
        confirm: Some(it.victim.confirm(
            "with a longer queue or a faster reader, `ListenOverflows` of `/proc/net/netstat` grows no more",
        )),
        ..RULE.finding(severity, confidence.value())
    }
}

fn lines(view: &View, it: &Refused<'_>) -> Vec<Evidence> {
    let label = Source::Sockets.label();
    let count = |name, amount: u64, note: String| {
        evidence(view, name, amount as f64, Unit::Count, label, note)
    };
    let mut lines = vec![count(
        "requests dropped",
        it.drops,
        format!(
            "{} of {}; its client hears nothing and tries again after a second, then two, then four",
            units::share(it.share()),
            units::count(it.requests() as f64)
        ),
    )];
    for (key, one) in it.sockets.iter().take(MAX_SOCKETS) {
        let dropped = one.drops.map_or_else(
            || "what it dropped itself could not be read".into(),
            |drops| units::counted(drops, "request dropped", "requests dropped"),
        );
        let limit = one.limit.map_or_else(
            || "a limit that could not be read".into(),
            |limit| units::count(limit as f64),
        );
        let note = format!(
            "most connections that waited at {} to be accepted, of {limit}; {dropped}",
            ticked(&key.local)
        );
        lines.push(count("queue", one.waiting, note));
    }
    let note = format!(
        "in its network namespace; {} dropped by listening sockets in all, for this and other reasons",
        units::count(it.all.drops as f64)
    );
    lines.push(count("requests without a place in a queue", it.all.overflows, note));
    lines
}

fn fixes(it: &Refused<'_>) -> Vec<Fix> {
    let fix = |action: String, risk: &str| Fix {
        action,
        command: None,
        risk: Some(risk.into()),
        expect: None,
    };
    let most = it.sockets[0].1.most_limit.map_or_else(String::new, |most| {
        format!(" (`net.core.somaxconn` allows {} now)", units::count(most as f64))
    });
    vec![
        fix(
            "have the program accept connections faster: a thread that only accepts, several sockets for one port (`SO_REUSEPORT`); where its threads wait for a CPU, a quota or a disk, begin with the findings about that".into(),
            "what is accepted faster is served no faster: the queue may only move into the program",
        ),
        fix(
            format!("give it a longer queue: the second argument of `listen` (often called backlog), and `net.core.somaxconn` if that is less{most}"),
            "a longer queue bears bursts: if more clients come than are served on average, they wait longer and fail later",
        ),
        fix(
            "have clients keep their connections open".into(),
            "each open connection takes memory on both sides",
        ),
    ]
}
