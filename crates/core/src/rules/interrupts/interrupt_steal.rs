// SPDX-License-Identifier: Apache-2.0 OR MIT
//! IRQ001: interrupts take time from threads that hold a CPU.

use super::bursts::{self, Bursts};
use super::taken::{Taken, TakenBy};
use super::words::{fix, name, purpose};
use crate::finding::{
    Area, Cause, Cost, Entity, EntityKind, Evidence, Finding, Fix, Question, Severity, Share, Unit,
};
use crate::recording::{InterruptContext, InterruptKind, SleepState, SleptOn, Source};
use crate::rules::candidates::may_suffer;
use crate::rules::confidence::Confidence;
use crate::rules::words::{self, evidence, group_name, of_every_second};
use crate::rules::{Check, Rule, Status, Verdict, remedy, severity};
use crate::text::units;
use crate::view::{Group, Groups, InterruptSource, Usage, View};
use std::cmp::Reverse;

pub(in crate::rules) static RULE: Rule = Rule {
    code: "IRQ001",
    area: Area::Interrupts,
    question: Question::CpuSpeed,
    name: "interrupt-steal",
    summary: "interrupts take time from threads that hold a CPU",
    any_of: &[Source::Interrupts],
    helps: &[Source::Sched],
    limits: &[&severity::LOSS_LIMITS],
    status: Status::Preview("0.1"),
    doc: include_str!("interrupt_steal.md"),
    file: file!(),
    check: Check::Recording(check),
};

const MAX_VICTIMS: usize = 5;
/// Sources that are named.
const MAX_SOURCES: usize = 4;
/// Of what was taken: a source that took less is not named.
const LEAST_SHARE: f64 = 0.05;
/// Of what was taken: a victim from which that much is taken on one CPU loses hardly anything elsewhere.
const STAYS: f64 = 0.9;
/// Doubt where what interrupts the victim may be its own doing.
const MAY_BE_OWN: f64 = 0.6;
/// Doubt where what a thread asked for is not told from what interrupts it.
const NOT_TOLD_APART: f64 = 0.5;

struct Loser<'g, 'v> {
    group: &'g Group<'v>,
    usage: &'g Usage,
    taken: Taken,
    ns_per_s: u64,
    /// Of the time in which it wanted to run.
    share: f64,
}

fn check(view: &View) -> Verdict {
    if !view.covers(Source::Sched) {
        let missing = "the time in which threads want to run: no scheduler probe".to_owned();
        return Verdict::NoData { missing: vec![missing] };
    }
    let groups = view.groups();
    let mut losers: Vec<Loser<'_, '_>> = groups
        .list()
        .iter()
        .filter(|group| may_suffer(view, group))
        .filter_map(|group| Loser::of(view, group))
        .collect();
    // Stable: of equals, the group that was seen first stays first.
    losers.sort_by_key(|it| Reverse(it.taken.ns));
    let found: Vec<Finding> = losers
        .iter()
        .filter_map(|it| Some(finding(view, &groups, it.severity()?, it)))
        .take(MAX_VICTIMS)
        .collect();
    if !found.is_empty() {
        return Verdict::Fired(found);
    }
    let nearest = losers.iter().max_by(|a, b| {
        let near = |it: &Loser<'_, '_>| severity::nearness(it.ns_per_s, it.share);
        near(a).total_cmp(&near(b)).then(a.taken.ns.cmp(&b.taken.ns))
    });
    Verdict::Quiet {
        closest: match nearest.filter(|it| it.taken.ns > 0) {
            Some(it) => format!(
                "{} came nearest: interrupts took {} from it, {} of the time in which it wanted to run",
                group_name(it.group),
                of_every_second(it.ns_per_s),
                units::share(it.share)
            ),
            None => "no interrupt took noticeable time from anybody".into(),
        },
    }
}

impl<'g, 'v> Loser<'g, 'v> {
    fn of(view: &View, group: &'g Group<'v>) -> Option<Self> {
        let usage = group.usage.as_ref()?;
        let taken = Taken::of(view, group);
        let share = (taken.ns as f64 / usage.wanted_ns().max(1) as f64).min(1.0);
        Some(Self { group, usage, ns_per_s: view.per_second(taken.ns), share, taken })
    }

    /// Its severity; `None` below the limits.
    fn severity(&self) -> Option<Severity> {
        severity::of_turns(self.ns_per_s, self.share, self.usage.per_turn_ns(self.taken.ns))
    }

    /// The sources that are named.
    fn named(&self) -> impl Iterator<Item = &TakenBy> {
        let least = self.taken.ns as f64 * LEAST_SHARE;
        self.taken.by.iter().take(MAX_SOURCES).filter(move |it| it.of.ns as f64 >= least)
    }

    fn part(&self, ns: u64) -> f64 {
        ns as f64 / self.taken.ns.max(1) as f64
    }

    /// Whether it runs on that CPU only, as far as interrupts show it: nearly all that was taken was taken there.
    fn stays_on(&self, cpu: u32) -> bool {
        let ns = self.taken.by.iter().filter(|by| by.cpu == cpu).map(|by| by.of.ns).sum();
        self.part(ns) >= STAYS
    }

    /// Time between the bursts of a source, where that means something: one thread, and its CPU alone.
    fn rhythm_ns(&self, by: &TakenBy) -> Option<u64> {
        let alone = self.usage.threads_max == 1 && self.part(by.of.ns) >= 0.5;
        self.bursts(by).filter(|_| alone).map(|bursts| bursts.every_ns)
    }

    /// The bursts in which the interrupts of a source come; `None` = steadily, or it is not known.
    fn bursts(&self, by: &TakenBy) -> Option<Bursts> {
        bursts::of(&by.of, self.usage.states.on_cpu_ns, self.usage.waits.total_count())
    }

    /// Why what interrupts it most may be its own doing: what that is called, and a sentence.
    fn may_be_own(&self, view: &View) -> Option<(&'static str, &'static str)> {
        let first = &self.taken.by.first()?.source;
        if self.uses_network(view) {
            return Some((
                "own traffic",
                "it waits for sockets of the network itself: some of the packets that interrupt it may be its own",
            ));
        }
        let calls = first.kind == InterruptKind::Processor;
        (calls && self.usage.threads_max > 1).then_some((
            "own threads",
            "it has several threads: each of them that unmaps or protects memory has the others interrupted, and so has each \
             that wakes one of them on another CPU",
        ))
    }

    /// Whether it waits for the network itself, so that packets which interrupt it may be its own.
    fn uses_network(&self, view: &View) -> bool {
        let of_network = |source: &InterruptSource| {
            source.kind == InterruptKind::Device || source.name.starts_with("NET_")
        };
        let is_slept = |on: &SleptOn| matches!(on, SleptOn::Inet { .. });
        let sleeps = self
            .group
            .members
            .iter()
            .filter_map(|(id, _)| view.processes().get(id)?.sleeps.as_ref());
        let mut kinds = sleeps.flat_map(|sleeps| sleeps.iter());
        self.taken.by.first().is_some_and(|by| of_network(&by.source))
            && kinds
                .any(|(key, _)| key.slept.state == SleepState::Asleep && is_slept(&key.slept.on))
    }
}

fn finding(view: &View, groups: &Groups<'_>, severity: Severity, it: &Loser<'_, '_>) -> Finding {
    let may_be_own = it.may_be_own(view);
    let mut confidence =
        Confidence::of(view).with_samples(it.taken.by.iter().map(|by| by.of.count).sum());
    if let Some((name, _)) = may_be_own {
        confidence = confidence.with(name, MAY_BE_OWN);
    }
    if it.part(it.taken.not_known_ns) >= 0.5 {
        confidence = confidence.with("own calls not told apart", NOT_TOLD_APART);
    }
    let mut lines = lines(view, groups, it);
    if let Some((name, note)) = may_be_own {
        let first = it.taken.by.first().map_or(0, |by| by.of.ns) as f64;
        let label = Source::Sched.label();
        lines.push(evidence(view, name, first, Unit::Ns, label, note.to_owned()));
    }
    lines.push(confidence.evidence(view));
    let most = it.taken.by.first();
    let who = most.map_or_else(String::new, |by| {
        format!(
            ": {} of it to {} on CPU {}",
            units::share(it.part(by.of.ns)),
            name(&by.source),
            by.cpu
        )
    });
    Finding {
        title: format!(
            "{} {} at least {} to interrupts{who}",
            group_name(it.group),
            words::verb(it.group, "loses", "lose"),
            of_every_second(it.ns_per_s)
        ),
        victim: words::group_entity(view, it.group),
        cost: Cost { lost_ns_per_s: it.ns_per_s, share: it.share, ..Cost::default() },
        causes: it.named().map(|by| cause(it, by)).collect(),
        evidence: lines,
        rhythm_ns: most.and_then(|by| it.rhythm_ns(by)),
        fix: fixes(view, it),
        confirm: Some(words::look_again(
            it.group,
            "with these interrupts on another CPU, or the threads, what they take from it falls"
                .into(),
        )),
        ..RULE.finding(severity, confidence.value())
    }
}

fn cause(it: &Loser<'_, '_>, by: &TakenBy) -> Cause {
    let mut entity = Entity::new(EntityKind::Irq);
    entity.comm = Some(match by.source.kind {
        InterruptKind::Timer => "timer".into(),
        _ if by.source.name.is_empty() => {
            by.source.irq.map_or_else(String::new, |irq| irq.to_string())
        }
        _ => by.source.name.clone(),
    });
    entity.cpu = Some(by.cpu);
    entity.note = Some(format!("{}, on CPU {}", purpose(&by.source), by.cpu));
    Cause { entity, share: Share::saturating(it.part(by.of.ns)) }
}

fn lines(view: &View, groups: &Groups<'_>, it: &Loser<'_, '_>) -> Vec<Evidence> {
    let label = Source::Interrupts.label();
    let time =
        |name: &str, ns: u64, note: String| evidence(view, name, ns as f64, Unit::Ns, label, note);
    let on_cpu_ns = it.usage.states.on_cpu_ns;
    let of_cpu = units::share(it.taken.ns as f64 / on_cpu_ns.max(1) as f64);
    let note = format!(
        "{of_cpu} of the time in which its threads held CPUs. This is the least that they lost: the time of the handlers. \
         The way into an interrupt and out of it comes on top and is not measured; in a virtual machine it can take longer \
         than the handler"
    );
    let mut lines = vec![time("taken by interrupts", it.taken.ns, note)];
    for by in it.named() {
        let name = format!("{} on CPU {}", name(&by.source), by.cpu);
        lines.push(time(&name, by.of.ns, rhythm(it, by)));
    }
    if let Some(by) = it.taken.by.first() {
        lines.push(by_cpu(view, by));
        lines.extend(who_asks(view, groups, it, by));
    }
    if it.taken.own_ns > 0 {
        let note = "soft interrupts that its own calls asked for, as by what it sends to this host: its own work, and not \
                    part of the loss"
            .to_owned();
        lines.push(time("in its own calls", it.taken.own_ns, note));
    }
    lines
}

/// How often, how long, in which bursts.
fn rhythm(it: &Loser<'_, '_>, by: &TakenBy) -> String {
    let of = &by.of;
    let mean_ns = of.ns as f64 / of.count.max(1) as f64;
    let per_s = of.count as f64 * 1e9 / it.usage.states.on_cpu_ns.max(1) as f64;
    let mut note = format!(
        "{}: {} in each second that it held a CPU, {} each, the longest {}",
        purpose(&by.source),
        units::count(per_s),
        units::duration(mean_ns),
        units::duration(of.longest_ns as f64)
    );
    if let Some(bursts) = it.bursts(by) {
        let many = units::count(bursts.size.round());
        note.push_str(&format!("; in bursts of {many}"));
        if let Some(ns) = it.rhythm_ns(by) {
            note.push_str(&format!(", one every {}", units::duration(ns as f64)));
        }
    }
    if by.source.kind == InterruptKind::Timer {
        note.push_str("; who sets these timers is not observed");
    }
    note
}

/// Which CPUs serve it, whoever holds them.
fn by_cpu(view: &View, by: &TakenBy) -> Evidence {
    let cpus = view.interrupts().by_cpu(&by.source);
    let here = cpus.get(&by.cpu).map_or(0, |of| of.ns);
    let all = cpus.values().map(|of| of.ns).fold(0, u64::saturating_add);
    let share = here as f64 / view.window_ns().max(1) as f64;
    let note = format!(
        "of the CPU's time, whoever held it; {} of all the host's {} is served there",
        units::share(here as f64 / all.max(1) as f64),
        name(&by.source)
    );
    let label = Source::Interrupts.label();
    let what = format!("{} of CPU {}", name(&by.source), by.cpu);
    evidence(view, &what, share.min(1.0), Unit::Ratio, label, note)
}

/// Who asks most for interrupts of that kind in its own calls: it sends to this host itself.
fn who_asks(
    view: &View,
    groups: &Groups<'_>,
    it: &Loser<'_, '_>,
    by: &TakenBy,
) -> Option<Evidence> {
    if by.source.kind != InterruptKind::Soft {
        return None;
    }
    let own_ns = |group: &Group<'_>| -> u64 {
        let all = group.members.iter().flat_map(|(id, _)| view.interrupts().of(*id));
        all.filter(|(key, _)| key.source == by.source && key.context == InterruptContext::OwnCall)
            .map(|(_, of)| of.ns)
            .sum()
    };
    let others =
        groups.list().iter().filter(|group| !std::ptr::eq(*group, it.group) && !group.is_kernel());
    let (ns, group) = others.map(|group| (own_ns(group), group)).max_by_key(|(ns, _)| *ns)?;
    let note = format!(
        "{} asks for such interrupts in calls of its own: what it sends to this host, on any CPU; that it causes those \
         here is not measured",
        group_name(group)
    );
    let name = format!("{} in calls of others", name(&by.source));
    (ns > 0).then(|| evidence(view, &name, ns as f64, Unit::Ns, Source::Interrupts.label(), note))
}

fn fixes(view: &View, it: &Loser<'_, '_>) -> Vec<Fix> {
    let mut fixes = Vec::new();
    for (at, by) in it.named().enumerate() {
        // What takes less than the first has no command: without it, most of the loss is left.
        let elsewhere = remedy::elsewhere(view, it.group, by.cpu).filter(|_| at == 0);
        let fix = fix(&by.source, by.cpu, elsewhere.as_deref());
        if !fixes.contains(&fix) {
            fixes.push(fix);
        }
    }
    fixes.truncate(2);
    fixes.extend(it.taken.by.first().map(|by| away(view, it, by)));
    fixes
}

/// Has the victim run elsewhere. Nothing is promised: there may be interrupts on the other CPUs, too.
fn away(view: &View, it: &Loser<'_, '_>, by: &TakenBy) -> Fix {
    let less = match (by.source.kind, by.source.name.as_str()) {
        (InterruptKind::Soft, "NET_RX" | "NET_TX") => ", or have nobody send so much to it",
        _ => "",
    };
    // Calls by other CPUs are for the threads that run there, and follow them.
    let follows = by.source.kind == InterruptKind::Processor;
    let command = remedy::away(view, it.group, by.cpu).filter(|_| it.stays_on(by.cpu) && !follows);
    let risk = match command {
        Some(_) => {
            "the CPUs that remain must have room for it; where it is bound to that CPU, that may be deliberate, and what \
             starts it binds it again"
        }
        None => "the CPUs that remain must have room for it",
    };
    Fix {
        action: format!(
            "have the victim run on other CPUs than CPU {} (`taskset`, a cpuset){less}",
            by.cpu
        ),
        command,
        risk: Some(risk.into()),
        expect: None,
    }
}
