// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SCH005: threads are stopped by others: by signals, by a tracer, or by the freezer of a cgroup.

use crate::finding::{Area, Cause, Cost, Entity, Finding, Fix, Question, Severity, Share, Unit};
use crate::recording::{ProcId, Source, WokenBy};
use crate::rules::asleep::kind::SIGNALS;
use crate::rules::candidates::{may_suffer, target_is_host};
use crate::rules::confidence::Confidence;
use crate::rules::words::{self, evidence, group_name, ticked};
use crate::rules::{Check, Limit, Rule, Status, Verdict, severity};
use crate::text::units;
use crate::view::{Group, Lengths, View};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Victims that have a finding, and causes of each.
const MAX_VICTIMS: usize = 5;
const MAX_CAUSES: usize = 5;
/// Causes below this share are not named.
const MIN_SHARE: f64 = 0.01;
/// Stops that take so long are looked at one by one, in nanoseconds.
const EACH_NS: f64 = 2e6;

const LONG_STOP: Limit = Limit {
    name: "long_stop",
    value: 100.0,
    unit: "ms of a single stop",
    why: "whatever is asked meanwhile waits that long, however seldom it happens: people notice a tenth of a second",
};

pub(in crate::rules) static RULE: Rule = Rule {
    code: "SCH005",
    area: Area::Sched,
    question: Question::Others,
    name: "stopped",
    summary: "threads are stopped by signals, held by a tracer, or frozen",
    any_of: &[Source::Sched],
    helps: &[],
    limits: &[&severity::LOSS_LIMITS, &[LONG_STOP]],
    status: Status::Preview("0.1"),
    doc: include_str!("stopped.md"),
    file: file!(),
    check: Check::Recording(check),
};

/// By what threads are stopped, as the call says that lets them go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Means {
    Tracer,
    Signals,
    Freezer,
    NotKnown,
}

impl Means {
    fn of(call: &str) -> Self {
        match call {
            // A tracer that ends lets go of what it traces.
            "ptrace" | "exit" | "exit_group" => Self::Tracer,
            // To `cgroup.freeze`, or `freezer.state`.
            "write" | "writev" | "pwrite64" => Self::Freezer,
            call if SIGNALS.contains(&call) => Self::Signals,
            _ => Self::NotKnown,
        }
    }

    /// What the one does that lets a group go on.
    fn in_words(self, group: &Group<'_>) -> String {
        let (it, its) = (words::verb(group, "it", "them"), words::verb(group, "its", "their"));
        match self {
            Self::Tracer => format!("traces {it}"),
            Self::Signals => format!("sends the signal that continues {it}"),
            Self::Freezer => format!("thaws {its} cgroup"),
            Self::NotKnown => format!("lets {it} go on"),
        }
    }
}

/// A group that is stopped now and then.
struct Stopped<'v> {
    group: &'v Group<'v>,
    ns: u64,
    /// For each thread of the group, of every second.
    ns_per_s: u64,
    share: f64,
    /// By whom it was let go on.
    by: Vec<((ProcId, Means), Lengths)>,
    all: Lengths,
    longest_ns: u64,
    per_turn_ns: Option<u64>,
}

impl<'v> Stopped<'v> {
    fn of(view: &View, group: &'v Group<'v>) -> Option<Self> {
        let usage = group.usage.as_ref()?;
        let mut by: BTreeMap<(ProcId, Means), Lengths> = BTreeMap::new();
        let (mut all, mut longest_ns) = (Lengths::default(), 0);
        for (id, _) in &group.members {
            let sleeps = view.processes().get(id).and_then(|it| it.sleeps.as_ref());
            longest_ns = longest_ns.max(sleeps.map_or(0, |sleeps| sleeps.longest_stop_ns()));
            for (woken, lengths) in sleeps.into_iter().flat_map(|sleeps| sleeps.stops()) {
                all.add(lengths);
                if let WokenBy::Thread { proc, call } = woken {
                    by.entry((*proc, Means::of(call))).or_default().add(lengths);
                }
            }
        }
        // Of a whole host, who is stopped and stays so keeps nobody waiting: a job in the background, a debugger's program.
        let ns = match target_is_host(view) {
            true => all.ns.min(usage.states.stopped_ns),
            false => usage.states.stopped_ns,
        };
        let threads = (usage.wall_ns as f64 / view.window_ns().max(1) as f64).max(1.0);
        let share = ns as f64 / usage.wanted_ns().saturating_add(ns).max(1) as f64;
        let ns_per_s = (view.per_second(ns) as f64 / threads) as u64;
        let mut by: Vec<_> = by.into_iter().collect();
        by.sort_by_key(|(_, it)| Reverse(it.ns));
        let per_turn_ns = usage.per_turn_ns(ns);
        Some(Self { group, ns, ns_per_s, share, by, all, longest_ns, per_turn_ns })
    }

    fn severity(&self) -> Option<Severity> {
        let is_long = self.ns > 0 && self.longest_ns as f64 / 1e6 >= LONG_STOP.value;
        let by_loss = severity::of_turns(self.ns_per_s, self.share, self.per_turn_ns);
        by_loss.or(is_long.then_some(Severity::Low))
    }

    /// How much of it is of stops that were seen to end.
    fn seen(&self) -> f64 {
        let seen_ns = self.by.iter().fold(0, |sum: u64, (_, it)| sum.saturating_add(it.ns));
        (seen_ns as f64 / self.ns.max(1) as f64).min(1.0)
    }
}

fn check(view: &View) -> Verdict {
    let groups = view.groups();
    let of = groups.list().iter().filter(|group| may_suffer(view, group));
    let mut all: Vec<Stopped<'_>> = of.filter_map(|group| Stopped::of(view, group)).collect();
    if all.is_empty() {
        let missing = vec!["the states of the target's threads were not recorded".into()];
        return Verdict::NoData { missing };
    }
    // Stable: of equals, the group that was seen first stays first.
    all.sort_by_key(|it| Reverse(it.ns_per_s));
    let victims = all.iter().filter_map(|it| Some((it.severity()?, it))).take(MAX_VICTIMS);
    let found: Vec<Finding> = victims.map(|(severity, it)| finding(view, severity, it)).collect();
    if !found.is_empty() {
        return Verdict::Fired(found);
    }
    Verdict::Quiet {
        closest: match all.first().filter(|it| it.ns > 0) {
            Some(it) => format!(
                "{} came nearest: stopped for {}",
                group_name(it.group),
                words::of_every_second(it.ns_per_s)
            ),
            None => "no thread was stopped by a signal, held by a tracer, or frozen".into(),
        },
    }
}

fn finding(view: &View, severity: Severity, it: &Stopped<'_>) -> Finding {
    let group = it.group;
    let label = Source::Sched.label();
    let most = it.by.first().map(|((proc, means), _)| (words::process_entity(view, *proc), *means));
    let confidence = Confidence::of(view).with("ends seen", 0.5 + 0.5 * it.seen());
    let of_wall =
        it.ns as f64 / group.usage.as_ref().map_or(0, |usage| usage.wall_ns).max(1) as f64;
    let which = if target_is_host(view) { "; of stops that ended in the window" } else { "" };
    let whole = format!("{} of the wall time of its threads{which}", units::share(of_wall));
    let mut lines = vec![evidence(view, "stopped", it.ns as f64, Unit::Ns, label, whole)];
    if it.longest_ns > 0 {
        // One stands for a millisecond of shorter ones.
        let mean_ns = it.all.mean_ns();
        let stops = units::counted(it.all.looked_at, "stop of a thread", "stops of threads");
        let note = (mean_ns >= EACH_NS)
            .then(|| format!("{stops} in all, of {} on average", units::duration(mean_ns)));
        lines.push(evidence(view, "longest stop", it.longest_ns as f64, Unit::Ns, label, note));
    }
    for ((proc, means), lengths) in it.by.iter().take(MAX_CAUSES) {
        let share = lengths.ns as f64 / it.ns.max(1) as f64;
        if share >= MIN_SHARE {
            let who = name_of(&words::process_entity(view, *proc));
            let share = units::share(share.min(1.0));
            let note = format!("{share} of it: {who} {}", means.in_words(group));
            lines.push(evidence(view, "let go on", lengths.ns as f64, Unit::Ns, label, note));
        }
    }
    if it.seen() < 1.0 - MIN_SHARE {
        let unseen_ns = it.ns as f64 * (1.0 - it.seen());
        let note = "who let it go on was not seen, or it is stopped still".to_owned();
        lines.push(evidence(view, "let go on", unseen_ns, Unit::Ns, label, note));
    }
    lines.push(confidence.evidence(view));
    let means = most.as_ref().map_or(Means::NotKnown, |(_, means)| *means);
    Finding {
        title: format!(
            "{} {} stopped for {}: {}",
            group_name(group),
            words::verb(group, "is", "are"),
            words::of_every_second(it.ns_per_s),
            match &most {
                Some((who, means)) => format!("{} {}", name_of(who), means.in_words(group)),
                None => format!("who lets {} go on was not seen", words::verb(group, "it", "them")),
            }
        ),
        victim: words::group_entity(view, group),
        cost: Cost { lost_ns_per_s: it.ns_per_s, share: it.share, ..Cost::default() },
        causes: causes(view, it),
        evidence: lines,
        fix: vec![fix(group, means)],
        confirm: Some(words::look_again(group, "after the change, nothing is stopped".into())),
        ..RULE.finding(severity, confidence.value())
    }
}

fn name_of(who: &Entity) -> String {
    ticked(who.comm.as_deref().unwrap_or("?"))
}

fn causes(view: &View, it: &Stopped<'_>) -> Vec<Cause> {
    let mut of: BTreeMap<ProcId, u64> = BTreeMap::new();
    for ((proc, _), lengths) in &it.by {
        let sum = of.entry(*proc).or_default();
        *sum = sum.saturating_add(lengths.ns);
    }
    let mut of: Vec<(ProcId, u64)> = of.into_iter().collect();
    of.sort_by_key(|&(_, ns)| Reverse(ns));
    let known_ns = of.iter().fold(0, |sum: u64, (_, ns)| sum.saturating_add(*ns));
    let whole_ns = it.ns.max(known_ns).max(1);
    let causes = of
        .iter()
        .take(MAX_CAUSES)
        .map(|&(proc, ns)| Cause {
            entity: words::process_entity(view, proc),
            share: Share::of(ns, whole_ns),
        })
        .filter(|cause| cause.share.get() >= MIN_SHARE)
        .collect();
    words::and_others(causes, MIN_SHARE)
}

fn fix(group: &Group<'_>, means: Means) -> Fix {
    let pid = group.first().pid;
    let (action, command, risk) = match means {
        Means::Tracer => (
            "detach the tracer: a debugger, `strace`, a profiler that stops what it looks at, a program that writes a core dump; \
             look with one that does not stop it (`perf`, BPF)",
            Some(format!("grep TracerPid /proc/{pid}/status")),
            "what the tracer was to find out stays unknown",
        ),
        Means::Signals => (
            "find out why it is stopped by signals: a tool that limits its CPU time does that (`cpulimit`), and so do scripts that \
             make it hold still for a backup; a quota of a cgroup limits it in small parts, and a snapshot needs no stop",
            Some("perf trace -a -e kill,tgkill,pidfd_send_signal -- sleep 10".into()),
            "what made it hold still may rely on that",
        ),
        Means::Freezer => (
            "find out who freezes its cgroup: `docker pause`, `docker commit` without `--pause=false`, a checkpoint, a backup \
             that wants files to stand still",
            Some(format!("cat /proc/{pid}/cgroup")),
            "a copy that is made while it runs may be inconsistent, unless the filesystem makes a snapshot",
        ),
        Means::NotKnown => (
            "see by what it is stopped while it is: `t` in the state is a tracer, `T` a signal; in a frozen cgroup \
             `cgroup.events` says `frozen 1`",
            Some(format!("grep -e State -e TracerPid /proc/{pid}/status")),
            "none",
        ),
    };
    Fix { action: action.into(), command, risk: Some(risk.into()), expect: None }
}
