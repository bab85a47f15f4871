// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names the functions in which threads go to sleep, and those of who wakes them, where a profile was asked for. It decides
//! nothing.

use super::words::{self, ticked};
use crate::finding::{Evidence, SleepProfile, SleepStackShare, Unit};
use crate::recording::{FRAME_END, KERNEL_MARK, ProcId, SleptOn, Source};
use crate::text::{Share, units};
use crate::view::{Group, Groups, SleepKey, SleptIn, StackSleep, View};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Processes in the report, and stacks of each.
const PROCESSES: usize = 4;
const STACKS: usize = 20;
/// Sleeps that must have been looked at before a share is told. Rare ones are all looked at.
const ENOUGH: u64 = 5;
/// Share of a process's sleep in a call, or for a word, that must be a finding's: its stacks are not told apart.
const MOSTLY: f64 = 0.8;
/// Functions of a stack that evidence names, of the program and of the kernel: the innermost ones.
const FRAMES: usize = 6;
const KERNEL_FRAMES: usize = 4;

/// A stack of a kind of sleep: of the sleeper, or of a thread of this process. Processes of a group are one.
type Key<'v> = (&'v str, Option<ProcId>, &'v str);

/// For each process, the first one of its group.
type First = BTreeMap<ProcId, ProcId>;

fn first_of_each(groups: &Groups<'_>) -> First {
    let of_group = |group: &Group<'_>| {
        let first = group.members.first().map(|(id, _)| *id);
        let all: Vec<_> = group.members.iter().map(|(id, _)| *id).collect();
        all.into_iter().filter_map(move |id| Some((id, first?)))
    };
    groups.list().iter().flat_map(of_group).collect()
}

/// The stacks of some sleep.
#[derive(Default)]
struct Found<'v> {
    all: StackSleep,
    by_stack: BTreeMap<Key<'v>, StackSleep>,
}

impl<'v> Found<'v> {
    /// Adds those sleeps of a process that are in these.
    fn add(
        &mut self,
        view: &'v View,
        first: &First,
        process: ProcId,
        is: impl Fn(&SleptIn) -> bool,
    ) {
        for (kind, stacks) in view.profile().sleeps().of(process).filter(|(kind, _)| is(kind)) {
            for ((waker, stack), sleep) in stacks {
                if waker.is_none() {
                    self.all.add(*sleep);
                }
                if !stack.is_empty() {
                    let waker = waker.map(|id| first.get(&id).copied().unwrap_or(id));
                    self.by_stack.entry((&kind.0, waker, stack)).or_default().add(*sleep);
                }
            }
        }
    }

    /// Those of sleepers, or of who wakes them, most first.
    fn ranked(&self, of_wakers: bool) -> Vec<(Key<'v>, StackSleep)> {
        let of = self.by_stack.iter().filter(|((_, waker, _), _)| waker.is_some() == of_wakers);
        let mut all: Vec<_> = of.map(|(key, sleep)| (*key, *sleep)).collect();
        all.sort_by_key(|(key, sleep)| (Reverse(sleep.ns), *key));
        all
    }
}

/// Those of the target's processes that sleep most.
pub(super) fn of(view: &View) -> Vec<SleepProfile> {
    if view.profile().sleeps().is_empty() {
        return Vec::new();
    }
    let groups = view.groups();
    let first = first_of_each(&groups);
    let mut all: Vec<(&Group<'_>, Found<'_>)> = groups
        .list()
        .iter()
        .filter(|group| group.in_target)
        .map(|group| {
            let mut found = Found::default();
            for (process, _) in &group.members {
                found.add(view, &first, *process, |_| true);
            }
            (group, found)
        })
        .filter(|(_, found)| found.all.samples >= ENOUGH)
        .collect();
    all.sort_by_key(|(_, found)| Reverse(found.all.ns));
    let told = all.iter().take(PROCESSES);
    told.map(|(group, found)| {
        let shares = |of_wakers| {
            let ranked = found.ranked(of_wakers).into_iter().take(STACKS);
            ranked.map(|(key, sleep)| share(view, &groups, key, sleep, found.all)).collect()
        };
        SleepProfile {
            entity: words::group_entity(view, group),
            samples: found.all.samples,
            begins: shares(false),
            ends: shares(true),
        }
    })
    .collect()
}

fn share(
    view: &View,
    groups: &Groups<'_>,
    (call, waker, stack): Key<'_>,
    of: StackSleep,
    all: StackSleep,
) -> SleepStackShare {
    let is_first = |group: &&Group<'_>, id| group.members.first().map(|(id, _)| *id) == Some(id);
    let of_waker = waker.and_then(|id| groups.list().iter().find(|group| is_first(group, id)));
    SleepStackShare {
        call: call.to_owned(),
        waker: of_waker.map(|group| words::group_entity(view, group)),
        frames: stack.split(FRAME_END).map(str::to_owned).collect(),
        share: Share::of(of.ns, all.ns),
    }
}

/// The stack with which most of these sleeps begin, and the one with which they end.
pub(super) fn evidence(view: &View, sleeps: &[(ProcId, &SleepKey, u64)]) -> Vec<Evidence> {
    if view.profile().sleeps().is_empty() {
        return Vec::new();
    }
    let mut of_finding: BTreeMap<(ProcId, SleptIn), u64> = BTreeMap::new();
    for (process, key, ns) in sleeps {
        let sum = of_finding.entry((*process, slept_in(key))).or_default();
        *sum = sum.saturating_add(*ns);
    }
    let first = first_of_each(&view.groups());
    let processes: BTreeSet<ProcId> = sleeps.iter().map(|(process, ..)| *process).collect();
    let mut found = Found::default();
    for process in processes {
        let of_process = view.processes().get(&process).and_then(|it| it.sleeps.as_ref());
        let mut all: BTreeMap<SleptIn, u64> = BTreeMap::new();
        for (key, ns) in of_process.into_iter().flat_map(|sleeps| sleeps.iter()) {
            let sum = all.entry(slept_in(key)).or_default();
            *sum = sum.saturating_add(ns);
        }
        found.add(view, &first, process, |kind| {
            let whole = all.get(kind).copied().unwrap_or_default();
            let part = of_finding.get(&(process, kind.clone())).copied().unwrap_or_default();
            part > 0 && part as f64 >= whole as f64 * MOSTLY
        });
    }
    if found.all.samples < ENOUGH {
        return Vec::new();
    }
    let begins = line(view, &found, false, "begins");
    begins.into_iter().chain(line(view, &found, true, "ends")).collect()
}

fn slept_in(key: &SleepKey) -> SleptIn {
    let address = match key.slept.on {
        SleptOn::Futex { address, .. } => Some(address),
        _ => None,
    };
    (key.slept.call.clone(), address)
}

fn line(view: &View, found: &Found<'_>, of_wakers: bool, does: &str) -> Option<Evidence> {
    let ((_, waker, stack), sleep) = *found.ranked(of_wakers).first()?;
    let value = Share::of(sleep.ns, found.all.ns).get();
    let frames: Vec<&str> = stack.split(FRAME_END).collect();
    let of_kernel = frames.iter().filter(|frame| frame.ends_with(KERNEL_MARK)).count();
    let (program, kernel) = frames.split_at(frames.len() - of_kernel);
    let parts =
        [(innermost(program, FRAMES), ""), (innermost(kernel, KERNEL_FRAMES), "the kernel's ")];
    let parts = parts.into_iter().filter(|(functions, _)| !functions.is_empty());
    let parts: Vec<_> =
        parts.map(|(functions, of)| format!("{of}{}", ticked(&functions))).collect();
    let comm = waker.and_then(|process| view.processes().get(&process)?.facts.as_ref());
    let whose = comm.map(|facts| format!(" of {}", ticked(&facts.comm))).unwrap_or_default();
    let note = format!(
        "of this waiting {does} in {}{whose}; {} looked at",
        parts.join(", "),
        units::counted(found.all.samples, "sleep was", "sleeps were")
    );
    let name = if of_wakers { "stack of the waker" } else { "stack" };
    Some(words::evidence(view, name, value, Unit::Ratio, Source::Profile.label(), note))
}

/// The innermost of these functions, without the mark of the kernel.
fn innermost(frames: &[&str], most: usize) -> String {
    let told = frames[frames.len().saturating_sub(most)..].iter();
    let names: Vec<_> = told.map(|it| it.strip_suffix(KERNEL_MARK).unwrap_or(it)).collect();
    names.join(" > ")
}
