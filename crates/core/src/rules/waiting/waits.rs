// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the rules about waiting for others share: which groups wait in a certain way, how long, and behind whom.

use super::chain_ends;
use crate::finding::{Cause, Confirm, Cost, EntityKind, Evidence, Finding, Severity, Unit};
use crate::recording::{Awaited, Did, Entry, ProcId, Source, ThreadStates};
use crate::rules::asleep::words as sleep_words;
use crate::rules::candidates::{may_suffer, target_is_host};
use crate::rules::confidence::Confidence;
use crate::rules::words::{self, evidence, group_name, ticked};
use crate::rules::{Rule, Verdict, severity, sleep_stacks};
use crate::text::{Share, shell_quote, units};
use crate::view::{Group, Groups, Role, SleepKey, Usage, View};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Victims of a rule that have a finding.
const MAX_VICTIMS: usize = 5;
/// Causes, and lines of what they did.
const MAX_CAUSES: usize = 5;
/// Causes below this share are summed up in one line.
const MIN_SHARE: f64 = 0.01;
/// Share of the waits of which it must have been seen what others did meanwhile: fewer stand for no more than themselves.
const LEAST_OF_REASON: f64 = 0.1;

/// A sleep of a process.
pub(super) type Sleep<'v> = (ProcId, &'v SleepKey, u64);

/// The sleeps of a group that a rule is about.
pub(super) struct Waits<'v> {
    pub(super) group: &'v Group<'v>,
    pub(super) ns: u64,
    pub(super) ns_per_s: u64,
    /// Of the time in which it wanted to run, this waiting included.
    pub(super) share: f64,
    /// Lost for each turn of its threads on a CPU, on average.
    pub(super) per_turn_ns: Option<u64>,
    pub(super) sleeps: Vec<Sleep<'v>>,
}

/// For what threads wait that a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// Something that others have meanwhile: whoever waits for it loses time.
    Turn,
    /// What others do: that is time lost where the user says whose time counts.
    Others,
}

/// The groups that wait in that way, the one that loses most first; `Err` = there is no data.
fn of<'v>(
    view: &'v View,
    groups: &'v Groups<'v>,
    waits_for: For,
    is: impl Fn(&Sleep<'_>) -> bool,
) -> Result<Vec<Waits<'v>>, String> {
    let of_host = target_is_host(view);
    if of_host && waits_for == For::Others {
        return Err(
            "who waits for others is told for a target only (`-p`, `--comm`, `--cgroup`)".into()
        );
    }
    let mut seen = false;
    let mut all = Vec::new();
    for group in groups.list().iter().filter(|group| may_suffer(view, group)) {
        let Some(usage) = &group.usage else { continue };
        let of_process = |id: ProcId| view.processes().get(&id)?.sleeps.as_ref();
        let sleeps = group.members.iter().flat_map(|&(id, _)| {
            let sleeps = of_process(id).into_iter().flat_map(|sleeps| sleeps.iter());
            sleeps.map(move |(key, ns)| (id, key, ns))
        });
        // What others wait for is told where those wait for it who serve requests. So is what a runtime's own threads do.
        let serves = |(_, key, _): &Sleep<'_>| !matches!(key.role, Role::NoEntry | Role::Runtime);
        let sleeps = sleeps.inspect(|_| seen = true);
        let sleeps: Vec<Sleep<'_>> = sleeps.filter(|it| serves(it) && is(it)).collect();
        let ns = sleeps.iter().fold(0, |sum: u64, (.., ns)| sum.saturating_add(*ns));
        let share = ns as f64 / usage.wanted_ns().saturating_add(ns).max(1) as f64;
        let per_turn_ns = usage.per_turn_ns(ns);
        all.push(Waits { group, ns, ns_per_s: view.per_second(ns), share, per_turn_ns, sleeps });
    }
    // A target that has never slept has no sleep that could be recorded.
    let slept = |it: &Waits<'_>| it.group.usage.as_ref().is_some_and(has_slept);
    if !seen && (of_host || all.is_empty() || all.iter().any(slept)) {
        let whose =
            if of_host { "the threads of those that lose most" } else { "the target's threads" };
        return Err(format!("on what {whose} slept was not recorded"));
    }
    // Stable: of equals, the group that was seen first stays first.
    all.sort_by_key(|it| Reverse(it.ns));
    Ok(all)
}

/// Whether its threads left their CPUs otherwise than to wait for one.
fn has_slept(usage: &Usage) -> bool {
    let ThreadStates {
        block_io_ns, mem_stall_ns, uninterruptible_ns, sleep_ns, stopped_ns, ..
    } = usage.states;
    [block_io_ns, mem_stall_ns, uninterruptible_ns, sleep_ns, stopped_ns].iter().any(|&ns| ns > 0)
}

/// The verdict of a rule about sleeps: a finding for each group that loses enough. `waits_for` = what for, also in the
/// sentence about the one that came nearest.
pub(super) fn verdict(
    view: &View,
    is: impl Fn(&Sleep<'_>) -> bool,
    (kind, waits_for): (For, &str),
    finding: impl Fn(&View, Severity, &Waits<'_>) -> Finding,
) -> Verdict {
    let groups = view.groups();
    let all = match of(view, &groups, kind, is) {
        Ok(all) => all,
        Err(missing) => return Verdict::NoData { missing: vec![missing] },
    };
    let severe = |it: &Waits<'_>| severity::of_turns(it.ns_per_s, it.share, it.per_turn_ns);
    let victims = all.iter().filter_map(|it| Some((severe(it)?, it))).take(MAX_VICTIMS);
    let findings: Vec<Finding> =
        victims.map(|(severity, it)| finding(view, severity, it)).collect();
    if !findings.is_empty() {
        return Verdict::Fired(findings);
    }
    let closest = match all.first().filter(|it| it.ns > 0) {
        Some(it) => format!(
            "{} came nearest: it waited {waits_for} for {}, {} of the time in which it wanted to run",
            group_name(it.group),
            words::of_every_second(it.ns_per_s),
            units::share(it.share)
        ),
        None if target_is_host(view) => {
            format!("no thread whose sleeps were looked at waited {waits_for}")
        }
        None => format!("no thread waited {waits_for}"),
    };
    Verdict::Quiet { closest }
}

/// Who kept a group waiting, and what they did.
pub(super) struct Behind {
    /// The first thread of each chain, with its share.
    pub(super) causes: Vec<Cause>,
    /// Who comes first, in words; `None` if it is not known of the most part.
    pub(super) whom: Option<String>,
    /// What they did, as evidence.
    pub(super) lines: Vec<Evidence>,
    /// What took most of it.
    pub(super) reason: Reason,
    /// Share of the waits of which it is known what they were behind.
    pub(super) known: f64,
}

/// What those did that kept others waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    OnCpu,
    Queued,
    Throttled,
    BlockIo,
    Slept,
    Stopped,
    #[default]
    NotSeen,
}

impl Reason {
    pub(super) fn of(behind: &[Awaited]) -> Self {
        use crate::recording::SleepState;
        match behind.last().map(|it| &it.did) {
            None | Some(Did::NotSeen) => Self::NotSeen,
            Some(Did::OnCpu) => Self::OnCpu,
            Some(Did::Queued) => Self::Queued,
            Some(Did::Throttled) => Self::Throttled,
            Some(Did::Slept(slept)) if slept.is_for_disk() => Self::BlockIo,
            Some(Did::Slept(slept)) if slept.state == SleepState::Stopped => Self::Stopped,
            Some(Did::Slept(_)) => Self::Slept,
        }
    }
}

/// The time of each, the most first.
fn ranked<K: Ord>(sums: BTreeMap<K, u64>) -> Vec<(K, u64)> {
    let mut all: Vec<(K, u64)> = sums.into_iter().collect();
    all.sort_by_key(|(_, ns)| Reverse(*ns));
    all
}

impl Waits<'_> {
    /// Who kept it waiting.
    pub(super) fn behind(&self, view: &View) -> Behind {
        self.behind_or(view, |_| None)
    }

    /// The same; `other` = who has the other end, where who ended a sleep does not say that.
    pub(super) fn behind_or(
        &self,
        view: &View,
        other: impl Fn(&Sleep<'_>) -> Option<ProcId>,
    ) -> Behind {
        let mut first: BTreeMap<(ProcId, String, String), u64> = BTreeMap::new();
        let mut chains: BTreeMap<String, u64> = BTreeMap::new();
        let mut reasons: BTreeMap<Reason, u64> = BTreeMap::new();
        let mut unknown_ns = 0u64;
        for sleep in &self.sleeps {
            let (id, key, ns) = sleep;
            let add = |sum: &mut u64| *sum = sum.saturating_add(*ns);
            if let Some(by) = key.behind.first() {
                let who = sleep_words::who(view, *id, by);
                let links = key.behind.iter().map(|it| {
                    let who = sleep_words::who(view, *id, it);
                    format!("{who} {}", sleep_words::did(view, &it.did))
                });
                add(first.entry((by.proc, by.thread.clone(), who)).or_default());
                add(chains.entry(links.collect::<Vec<_>>().join(" <- ")).or_default());
                add(reasons.entry(Reason::of(&key.behind)).or_default());
            } else if let Some(by) = other(sleep).map(|proc| not_seen(view, proc)) {
                let who = sleep_words::who(view, *id, &by);
                let chain = format!("{who}, at the other end");
                add(first.entry((by.proc, by.thread, who)).or_default());
                add(chains.entry(chain).or_default());
            } else {
                add(&mut unknown_ns);
            }
        }
        let share = |ns: u64| ns as f64 / self.ns.max(1) as f64;
        let first = ranked(first);
        // Without a name they may be several.
        let is_one = |proc: &ProcId, thread: &str| {
            !thread.is_empty() || self.sleeps.iter().all(|(id, ..)| id != proc)
        };
        let whom = first
            .first()
            .filter(|((proc, thread, _), ns)| share(*ns) >= 0.5 && is_one(proc, thread));
        let label = Source::Sched.label();
        let mut lines: Vec<Evidence> = ranked(chains)
            .into_iter()
            .take(MAX_CAUSES)
            .filter(|(_, ns)| share(*ns) >= MIN_SHARE)
            .map(|(chain, ns)| {
                let note = format!("{} of it: {chain}", units::share(share(ns)));
                evidence(view, "behind", ns as f64, Unit::Ns, label, note)
            })
            .collect();
        if share(unknown_ns) >= MIN_SHARE {
            let note = format!(
                "{} of it: who ended these waits was not seen, or they go on",
                units::share(share(unknown_ns))
            );
            lines.push(evidence(view, "behind", unknown_ns as f64, Unit::Ns, label, note));
        }
        lines.extend(chain_ends::lines(view, &self.sleeps, self.ns));
        Behind {
            whom: whom.map(|((.., who), _)| who.clone()),
            causes: causes(view, &first, self.ns),
            lines,
            reason: ranked(reasons)
                .first()
                .filter(|(_, ns)| share(*ns) >= LEAST_OF_REASON)
                .map(|(reason, _)| *reason)
                .unwrap_or_default(),
            known: 1.0 - share(unknown_ns),
        }
    }

    /// The line about the whole, and the threads that wait.
    pub(super) fn lines(&self, view: &View, name: &str) -> Vec<Evidence> {
        let label = Source::Sched.label();
        let wall_ns = self.group.usage.as_ref().map_or(0, |usage| usage.wall_ns);
        let of_wall = units::share(self.ns as f64 / wall_ns.max(1) as f64);
        let note = format!("{of_wall} of the wall time of its threads");
        let mut lines = vec![evidence(view, name, self.ns as f64, Unit::Ns, label, note)];
        let mut threads: BTreeMap<&str, u64> = BTreeMap::new();
        for (_, key, ns) in &self.sleeps {
            if let Some(name) = &key.thread {
                let sum = threads.entry(name).or_default();
                *sum = sum.saturating_add(*ns);
            }
        }
        let named: Vec<String> =
            ranked(threads).iter().take(MAX_CAUSES).map(|(name, _)| ticked(name)).collect();
        if named.len() > 1 {
            let note = format!("names of the threads that wait: {}", named.join(", "));
            let count = named.len() as f64;
            lines.push(evidence(view, "who waits", count, Unit::Count, label, note));
        }
        lines
    }

    pub(super) fn cost(&self) -> Cost {
        Cost { lost_ns_per_s: self.ns_per_s, share: self.share, ..Cost::default() }
    }

    /// The command that observes it again, by the same entries, and what that should show.
    pub(super) fn look_again(&self, view: &View, expect: String) -> Confirm {
        let mut confirm = words::look_again(self.group, expect);
        for entry in view.meta().into_iter().flat_map(|meta| &meta.entries) {
            let given = match entry {
                Entry::Thread { tid } => format!("tid:{tid}"),
                Entry::Name { name } => format!("name:{name}"),
                Entry::Port { port } => format!("port:{port}"),
            };
            confirm.command += &format!(" --entry {}", shell_quote(&given));
        }
        confirm
    }

    /// How sure it is that it waits, whoever ended the waits.
    pub(super) fn confidence(&self, view: &View, behind: &Behind) -> Confidence {
        Confidence::of(view).with("ends seen", 0.5 + 0.5 * behind.known)
    }

    /// What is the same in the findings of all these rules.
    pub(super) fn finding(
        &self,
        view: &View,
        (rule, severity): (&Rule, Severity),
        (name, behind): (&str, &Behind),
    ) -> Finding {
        let confidence = self.confidence(view, behind);
        let mut lines = self.lines(view, name);
        lines.extend(behind.lines.iter().cloned());
        lines.extend(sleep_stacks::evidence(view, &self.sleeps));
        lines.push(confidence.evidence(view));
        Finding {
            victim: words::group_entity(view, self.group),
            cost: self.cost(),
            causes: behind.causes.clone(),
            evidence: lines,
            ..rule.finding(severity, confidence.value())
        }
    }
}

/// A process that was waited for; by whose thread, and what that did, was not seen.
fn not_seen(view: &View, proc: ProcId) -> Awaited {
    let facts = view.processes().get(&proc).and_then(|process| process.facts.as_ref());
    let thread = facts.map(|facts| facts.comm.clone()).unwrap_or_default();
    Awaited { proc, thread, too: false, did: Did::NotSeen }
}

/// Threads as causes; of a process whose threads all have its name, the process.
pub(super) fn causes(
    view: &View,
    first: &[((ProcId, String, String), u64)],
    whole_ns: u64,
) -> Vec<Cause> {
    let share = |ns: u64| ns as f64 / whole_ns.max(1) as f64;
    let told = first.iter().take(MAX_CAUSES).filter(|(_, ns)| share(*ns) >= MIN_SHARE);
    let causes = told
        .map(|((id, thread, _), ns)| {
            let process = view.processes().get(id).and_then(|process| process.facts.as_ref());
            let mut entity = words::process_entity(view, *id);
            if process.is_some_and(|facts| facts.comm != *thread) && !thread.is_empty() {
                entity.kind = EntityKind::Thread;
                entity.comm = Some(thread.clone());
            }
            Cause { entity, share: Share::of(*ns, whole_ns) }
        })
        .collect();
    words::and_others(causes, MIN_SHARE)
}
