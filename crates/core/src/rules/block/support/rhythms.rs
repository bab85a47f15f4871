// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Does a process's timer set the pace of a device: does one come back to it at regular intervals, and do the stalls of
//! others follow?

use super::clocks::{Compared, chance};
use super::journals::Journal;
use super::{chart, pass_lines};
use crate::finding::{Chart, Evidence, Unit};
use crate::recording::{DevId, IoOp, Source};
use crate::rules::Limit;
use crate::rules::words::{evidence, group_name, ticked};
use crate::stats::{
    self, BurstPattern, Clock, Coincidence, Rhythm, Span, coincidence, pace, rhythm, worst_moments,
};
use crate::text::units;
use crate::view::block::Neighbour;
use crate::view::{Groups, Series, View};
use std::collections::BTreeMap;

pub(in crate::rules::block) const RHYTHM: Limit = Limit {
    name: "rhythm",
    value: stats::SIGNIFICANT,
    unit: "at most, that bursts without a clock look like a clock's by chance, and likewise that as many stalls touch them; times \
           the number of clocks and processes that were tried",
    why: "on loads without a timer the tests are wrong in at most 2 of 100 windows",
};

/// Maximum number of groups that are tested, busiest first: each test raises the chance of an error.
const ASKED: usize = 4;
/// A group must ask for at least 1 / `MIN_PART` of the device's bytes to set its pace.
const MIN_PART: u64 = 20;

/// What a finding says about timing: whose timer sets the pace, and the chart.
pub(in crate::rules::block) struct TimingEvidence {
    /// For the title: ``, every 3.0 s, when `backup` writes``; empty if it is not sure.
    pub(in crate::rules::block) words: String,
    pub(in crate::rules::block) lines: Vec<Evidence>,
    /// The interval of that timer, in nanoseconds; `None` if it is not sure.
    pub(in crate::rules::block) period_ns: Option<u64>,
    /// The device's busy share, the bursts of the group that sets the pace, and the events that may follow them.
    pub(in crate::rules::block) chart: Option<Chart>,
}

impl TimingEvidence {
    /// Tests whether events follow a group's timer: `name` is what they are called (`stalls`), `events` when they were.
    /// `victim` is the group that cannot be the cause.
    pub(in crate::rules::block) fn of(
        view: &View,
        groups: &Groups<'_>,
        device: DevId,
        victim: Option<usize>,
        (name, events): (&str, Vec<Span>),
        compared: Option<&Compared<'_>>,
    ) -> Self {
        let pacer = pacer(view, groups, device, victim, &events);
        let words = pacer.as_ref().and_then(Pacer::words);
        let period_ns = pacer.as_ref().and_then(Pacer::period_ns);
        let lines = pacer.as_ref().map_or(vec![], |it| lines(view, device, it, name, compared));
        let mut marks = vec![(name, events)];
        if let Some(pacer) = pacer.as_ref().filter(|_| words.is_some()) {
            marks.insert(0, (&pacer.comm, pacer.pace.bursts.clone()));
        }
        let chart = chart::of(view, device, marks);
        let words = words.map_or(String::new(), |words| format!(", {words}"));
        Self { words, lines, period_ns, chart }
    }
}

/// A group that comes back to a device in bursts, and how events coincide with them.
struct Pacer {
    /// `` `backup` (pid 7) ``.
    name: String,
    /// `` `backup` ``.
    comm: String,
    verb: &'static str,
    /// Its bursts and their period.
    pace: BurstPattern,
    /// How the stalls of others, or the device's full stretches, coincide with its bursts.
    together: Coincidence,
    asked: usize,
}

impl Pacer {
    /// The period, if there is one and the events follow it; nanoseconds.
    fn period_ns(&self) -> Option<u64> {
        match self.pace.rhythm {
            Rhythm::Found { period_ns, .. } if self.is_together() => Some(period_ns),
            _ => None,
        }
    }

    fn is_together(&self) -> bool {
        self.together.is_sure() && self.together.p * (self.asked as f64) < RHYTHM.value
    }

    /// For a title: ``every 3.0 s, when `backup` writes``.
    fn words(&self) -> Option<String> {
        let period = pass_lines::seconds(self.period_ns()?);
        Some(format!("every {period}, when {} {}", self.comm, self.verb))
    }
}

/// The group that most likely sets a device's pace: `events` may follow it, `victim` is excluded.
fn pacer(
    view: &View,
    groups: &Groups<'_>,
    device: DevId,
    victim: Option<usize>,
    events: &[Span],
) -> Option<Pacer> {
    let asked = busiest(view, groups, device, victim);
    let number = asked.len();
    let moments = worst_moments(events);
    let window_ns = view.window_ns();
    let mut all: Vec<(usize, BurstPattern, Coincidence)> = asked
        .into_iter()
        .map(|(at, series)| {
            let pace = pace(&series.bins(), series.width_ns(), window_ns, number);
            let together = coincidence(&moments, &pace.bursts, window_ns);
            (at, pace, together)
        })
        .collect();
    // A group with a period before one without; then the one with which more events coincide; of equals, the busier
    // one.
    let clock = |pace: &BurstPattern| matches!(pace.rhythm, Rhythm::Found { .. });
    all.sort_by(|a, b| clock(&b.1).cmp(&clock(&a.1)).then(a.2.p.total_cmp(&b.2.p)));
    let (at, pace, together) = all.into_iter().next()?;
    let group = &groups.list()[at];
    Some(Pacer {
        name: group_name(group),
        comm: ticked(group.comm),
        verb: verb(view, groups, device, at),
        pace,
        together,
        asked: number,
    })
}

/// The series of the groups that ask for most of a device's bytes, with their indices; busiest first.
fn busiest(
    view: &View,
    groups: &Groups<'_>,
    device: DevId,
    victim: Option<usize>,
) -> Vec<(usize, Series)> {
    let mut all_bytes = 0u64;
    let mut by_group: BTreeMap<usize, Series> = BTreeMap::new();
    for (by, series) in view.block().paces().of(device) {
        all_bytes = all_bytes.saturating_add(series.total());
        // Writeback, journals and the many small processes have clocks of their own, or none.
        let Neighbour::Group(at) = Neighbour::of(view, groups, by) else { continue };
        if Some(at) != victim {
            let sum = by_group.entry(at).or_insert_with(crate::view::block::pace_series);
            sum.merge(series);
        }
    }
    let mut busiest: Vec<(usize, Series)> = by_group.into_iter().collect();
    busiest.retain(|(_, series)| series.total() >= all_bytes / MIN_PART);
    busiest.sort_by_key(|(at, series)| (std::cmp::Reverse(series.total()), *at));
    busiest.truncate(ASKED);
    busiest
}

/// Verb for what a group does to a device.
fn verb(view: &View, groups: &Groups<'_>, device: DevId, at: usize) -> &'static str {
    let bytes = |op: IoOp| -> u64 {
        let of = view.block().sums().iter().filter(|(key, _)| {
            key.op == op
                && view.block().disk_of(key.device) == device
                && key.submitter.is_some_and(|id| groups.index_of(id) == Some(at))
        });
        of.map(|(_, sum)| sum.bytes).sum()
    };
    let (read, written) = (bytes(IoOp::Read), bytes(IoOp::Write));
    match (read, written) {
        (0, 0) => "uses it",
        _ if written >= read.saturating_mul(10) => "writes",
        _ if read >= written.saturating_mul(10) => "reads",
        _ => "reads and writes",
    }
}

/// Evidence lines: what is known about the group's period, and about the journal's. `events` is what may follow:
/// `stalls`, ...
fn lines(
    view: &View,
    device: DevId,
    pacer: &Pacer,
    events: &str,
    compared: Option<&Compared<'_>>,
) -> Vec<Evidence> {
    let label = Source::Block.label();
    let Pacer { name, pace, together, asked, .. } = pacer;
    let bursts = units::counted(pace.bursts.len() as u64, "burst", "bursts");
    let inside = format!(
        "{} of {} {events} begin in one (of those within 500 ms the longest), which chance alone would do with probability {}",
        together.inside,
        together.episodes,
        chance((together.p * *asked as f64).min(1.0))
    );
    let line = match pace.rhythm {
        Rhythm::Found { period_ns, pairs, expected, p } if pacer.is_together() => {
            let note = format!(
                "of the requests of {name}: {pairs} of {bursts} are followed by another at that distance where chance gives \
                 {expected:.1} (probability {}); {inside}",
                chance(p)
            );
            evidence(view, "rhythm", period_ns as f64, Unit::Ns, label, note)
        }
        Rhythm::NeedsMore { for_ns } if together.inside > 0 => {
            let note = format!(
                "{bursts} of requests of {name}, too few to tell a clock from chance: needs {} more; {inside}",
                units::duration(for_ns as f64)
            );
            evidence(view, "rhythm", 0.0, Unit::Text, label, note)
        }
        _ => return vec![],
    };
    let mut lines = vec![line];
    if pacer.period_ns().is_some() {
        lines.push(journal(view, device, compared));
    }
    lines
}

/// Evidence line on the journal's timer, another clock that comes to mind.
fn journal(view: &View, device: DevId, compared: Option<&Compared<'_>>) -> Evidence {
    let commits = view.block().commits_on(device);
    let at: Vec<u64> = commits.iter().map(|commit| commit.t0_ns).collect();
    // The log of xfs has no timer that a mount option sets.
    let due_ns = Journal::of(view, device).interval_ns(view, device);
    let clock: Vec<Clock> = due_ns.into_iter().map(Clock::every).collect();
    match (rhythm(&at, view.window_ns(), &clock), compared) {
        (Rhythm::Found { .. }, Some(compared)) => pass_lines::journal(view, device, compared),
        _ => {
            let note = if commits.is_empty() {
                "no commit was seen: its timer is not the clock".to_owned()
            } else {
                let timer = due_ns.map_or("a timer".into(), |ns| {
                    format!("its timer (`commit=` is {})", units::duration(ns as f64))
                });
                format!("commits, which do not follow {timer}: another clock, and not the reason")
            };
            let label = Source::Writeback.label();
            evidence(view, "the journal", commits.len() as f64, Unit::Count, label, note)
        }
    }
}
