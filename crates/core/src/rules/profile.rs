// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names the functions in which CPU time is spent, where a profile was asked for. It decides nothing.

use super::words;
use crate::finding::{
    Area, Entity, EntityKind, Evidence, Finding, FunctionShare, ProcessProfile, Profile, Share,
    StackShare, Unit,
};
use crate::recording::{FRAME_END, KERNEL_MARK, Source};
use crate::text::units;
use crate::view::{FunctionSamples, Group, Samples, View};
use std::cmp::Reverse;

/// Samples from which on shares are told: of 30 samples a third is 17 to 53 % (95 % interval of a binomial).
const ENOUGH: u64 = 30;
/// Processes in the report that are not the target's.
const OTHERS: usize = 3;
/// Functions and stacks of a process in the report.
const FUNCTIONS: usize = 20;
const STACKS: usize = 20;
/// Functions that a finding names.
const NAMED: usize = 3;
/// Share from which on a function is named after the first.
const WORTH_NAMING: f64 = 0.05;

/// The section of the report; `None` if no profile was asked for, or nothing was found running.
pub(super) fn of(view: &View) -> Option<Profile> {
    let span = view.profile().span();
    let groups = view.groups();
    let mut all: Vec<(&Group<'_>, Samples<'_>)> = groups
        .list()
        .iter()
        .map(|group| (group, samples(view, group)))
        .filter(|(_, samples)| samples.all >= ENOUGH)
        .collect();
    all.sort_by_key(|(group, samples)| (!group.in_target, Reverse(samples.all)));
    let of_target = all.iter().filter(|(group, _)| group.in_target).count();
    // Where the target is the host, all are its.
    let is_host = super::candidates::target_is_host(view);
    all.truncate(if is_host { OTHERS } else { of_target.min(OTHERS) + OTHERS });
    let sleeps = super::sleep_stacks::of(view);
    (span.samples > 0 || !sleeps.is_empty()).then(|| Profile {
        period_ns: span.period_ns,
        samples: span.samples,
        lost: span.lost,
        processes: all.iter().map(|(group, samples)| process(view, group, samples)).collect(),
        sleeps,
    })
}

/// Adds to findings about CPU time in which functions it is spent: that of the victim, and that of who ran instead or is
/// waited for.
pub(super) fn name_functions(view: &View, findings: &mut [Finding]) {
    if view.profile().span().samples == 0 {
        return;
    }
    let groups = view.groups();
    let find = |entity: &Entity| {
        groups.list().iter().find(|group| is_of(&words::group_entity(view, group), entity))
    };
    for finding in findings {
        let of_victim = matches!(finding.area, Area::Cpu | Area::Sched);
        let of_causes = matches!(finding.area, Area::Sched | Area::Waiting);
        let victim = Some(&finding.victim).filter(|_| of_victim);
        let causes = finding.causes.iter().map(|cause| &cause.entity).filter(|_| of_causes);
        let first = causes.into_iter().find(|it| it.kind == EntityKind::Process);
        let mut named: Vec<&Entity> = victim.into_iter().chain(first).collect();
        named.dedup_by(|a, b| is_of(a, b));
        let lines = named.into_iter().filter_map(|entity| line(view, find(entity)?));
        let lines: Vec<_> = lines.collect();
        finding.evidence.extend(lines);
    }
}

/// Whether an entity means the same processes: causes have notes and shares besides.
fn is_of(group: &Entity, other: &Entity) -> bool {
    other.kind == EntityKind::Process
        && (group.pid, group.processes, &group.comm, &group.cgroup)
            == (other.pid, other.processes, &other.comm, &other.cgroup)
}

fn samples<'v>(view: &'v View, group: &Group<'_>) -> Samples<'v> {
    view.profile().of(group.members.iter().map(|(id, _)| *id))
}

/// The functions in which a group spends most of its CPU time; `None` = there are too few samples.
fn line(view: &View, group: &Group<'_>) -> Option<Evidence> {
    let samples = samples(view, group);
    if samples.all < ENOUGH {
        return None;
    }
    let functions = sorted(&samples);
    let (first, own) = functions.first().map(|(name, of)| (*name, of.own))?;
    let others = functions[1..].iter().take(NAMED - 1).filter_map(|(name, of)| {
        let share = Share::of(of.own, samples.all);
        let text = format!("{} in `{}`", units::share(share.get()), plain(name));
        (share.get() >= WORTH_NAMING).then_some(text)
    });
    let others: Vec<_> = others.collect();
    let also = if others.is_empty() { String::new() } else { format!(", {}", others.join(", ")) };
    let note = format!(
        "of the CPU time of {} in `{}`{also}; {} samples",
        words::group_name(group),
        plain(first),
        samples.all
    );
    let value = Share::of(own, samples.all).get();
    Some(words::evidence(view, "functions", value, Unit::Ratio, Source::Profile.label(), note))
}

/// Functions with samples of their own, most first.
fn sorted<'v>(samples: &Samples<'v>) -> Vec<(&'v str, FunctionSamples)> {
    let functions = samples.functions();
    let mut functions: Vec<_> = functions.into_iter().filter(|(_, of)| of.own > 0).collect();
    functions.sort_by_key(|(name, of)| (Reverse((of.own, of.with_callees)), *name));
    functions
}

/// Without the mark of the kernel.
fn plain(function: &str) -> &str {
    function.strip_suffix(KERNEL_MARK).unwrap_or(function)
}

fn process(view: &View, group: &Group<'_>, samples: &Samples<'_>) -> ProcessProfile {
    let share = |part| Share::of(part, samples.all);
    let functions = sorted(samples).into_iter().take(FUNCTIONS).map(|(name, of)| FunctionShare {
        name: plain(name).to_owned(),
        kernel: name.ends_with(KERNEL_MARK),
        own: share(of.own),
        with_callees: share(of.with_callees),
    });
    let mut stacks: Vec<(&str, u64)> =
        samples.stacks.iter().map(|(stack, count)| (*stack, *count)).collect();
    stacks.sort_by_key(|&(stack, count)| (Reverse(count), stack));
    let stacks = stacks.into_iter().take(STACKS).map(|(stack, count)| StackShare {
        frames: stack.split(FRAME_END).map(str::to_owned).collect(),
        share: share(count),
    });
    ProcessProfile {
        entity: words::group_entity(view, group),
        samples: samples.all,
        without_name: share(samples.without_name()),
        functions: functions.collect(),
        stacks: stacks.collect(),
    }
}
