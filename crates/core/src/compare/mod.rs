// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two recordings side by side: what is lost in one that is not lost in the other, by whom, and whether that can be
//! chance.
//!
//! - [`Summary`]: what is kept of a recording after it was judged.
//! - [`Plan`]: which processes of the two are the same ([`pairs`](self)), and so which are read second by second.
//! - [`SeriesFold`]: those seconds, from a second pass over each recording.
//! - [`compare`]: the tests ([`crate::stats::shift`]), all of them together (Holm), and the verdict.
//! - [`sizes`]: how long waits and requests are in both.
//! - [`document`]: the result as data.

mod beside;
mod configuration;
mod decide;
pub mod document;
mod findings;
mod losses;
mod measured;
mod pairs;
mod series;
pub mod sizes;
mod summary;
#[cfg(test)]
pub(crate) mod tests;
mod verdict;

pub use series::SeriesFold;
pub use summary::{MOST_GROUPS, Summary};
pub use verdict::{measure_varies_too_much, times, varies_too_much};

use crate::finding::{Area, Severity, Tool};
use crate::stats::{LEAST_CORRELATION, SIGNIFICANT};
use crate::view::waits::{percentile_ns, size_classes};
use decide::{Tested, decide};
use document::{
    Change, Comparison, LedgerPair, Loss, LossChange, Measure, Method, ProcessPair, ProcessSide,
    Recording, SCHEMA, Unpaired,
};
use pairs::Pair;
use series::Blocks;

/// Most pairs of processes that are compared.
pub const MOST_PAIRS: usize = 200;
/// Most processes that are told of those that are in one recording only.
const MOST_UNPAIRED: usize = 10;
/// Least time on CPUs, or lost, of such a process, in nanoseconds of each second.
const UNPAIRED_NS_PER_S: f64 = 1e7;

/// What is compared: which processes of the two recordings are the same.
#[derive(Clone, Debug)]
pub struct Plan {
    sides: [Summary; 2],
    /// All pairs.
    pairs: Vec<Pair>,
    /// The pairs that lose most in one of the recordings, at most [`MOST_PAIRS`].
    chosen: Vec<Pair>,
}

impl Plan {
    /// Matches the processes of two recordings.
    #[must_use]
    pub fn new(a: Summary, b: Summary) -> Self {
        let pairs = pairs::pairs([&a, &b]);
        let sides = [a, b];
        let group = |pair: &Pair, side: usize| &sides[side].groups[pair.groups[side]];
        let suffers = |pair: &&Pair| (0..2).any(|side| group(pair, side).may_suffer);
        let mut chosen: Vec<Pair> = pairs.iter().filter(suffers).copied().collect();
        let rate = |amount: u64, side: usize| amount as f64 / sides[side].window_ns.max(1) as f64;
        let weight = |pair: &Pair, amount: fn(&summary::GroupSummary) -> u64| {
            rate(amount(group(pair, 0)), 0).max(rate(amount(group(pair, 1)), 1))
        };
        chosen.sort_by(|x, y| {
            let by = |amount: fn(&summary::GroupSummary) -> u64| {
                weight(y, amount).total_cmp(&weight(x, amount))
            };
            by(|it| it.lost_ns).then_with(|| by(|it| it.on_cpu_ns))
        });
        chosen.truncate(MOST_PAIRS);
        Self { sides, pairs, chosen }
    }

    /// Empty series for the compared processes of the first (0) or the second recording (1).
    #[must_use]
    pub fn series(&self, side: usize) -> SeriesFold {
        let mut numbers = vec![None; self.sides[side].groups.len()];
        for (number, pair) in (0..).zip(&self.chosen) {
            numbers[pair.groups[side]] = Some(number);
        }
        let of = self.sides[side].group_of.iter();
        let of = of.filter_map(|(id, group)| Some((*id, numbers[*group as usize]?))).collect();
        let side = &self.sides[side];
        let devices = side.devices.keys().copied().collect();
        SeriesFold::new(of, self.chosen.len(), devices, side.window_ns)
    }

    fn group(&self, pair: &Pair, side: usize) -> &summary::GroupSummary {
        &self.sides[side].groups[pair.groups[side]]
    }

    /// The cgroup in B of the processes that have this comm and cgroup in A.
    fn in_b(&self, comm: &str, path: &Option<String>) -> Option<String> {
        let is_it = |pair: &&Pair| {
            let entity = &self.group(pair, 0).entity;
            entity.comm.as_deref() == Some(comm) && entity.cgroup == *path
        };
        self.group(self.pairs.iter().find(is_it)?, 1).entity.cgroup.clone()
    }
}

/// Compares two recordings. The series are those of [`Plan::series`], filled from each. `files` are their names.
#[must_use]
pub fn compare(
    plan: &Plan,
    series: [&SeriesFold; 2],
    files: [&str; 2],
    tool_version: &str,
) -> Comparison {
    let blocks: Vec<[Blocks; 2]> = (0..plan.chosen.len())
        .map(|at| {
            let width_ns = series[0].width_ns(at).max(series[1].width_ns(at));
            series.map(|series| series.blocks(at, width_ns))
        })
        .collect();
    let losses: Vec<Vec<(Loss, Tested)>> =
        blocks.iter().map(|[a, b]| losses::tested([a, b])).collect();
    let measured = measured::tested(
        series.map(|it| &it.measured),
        [&plan.sides[0].devices, &plan.sides[1].devices],
        series.map(SeriesFold::window_ns),
    );
    let of_losses = losses.iter().flatten().map(|(_, it)| it);
    let all: Vec<&Tested> = of_losses.chain(measured.iter().map(|(.., it)| it)).collect();
    let (decided, comparisons) = decide(&all);
    let mut decided = decided.into_iter();
    let mut processes: Vec<ProcessPair> = Vec::new();
    for ((pair, blocks), tested) in plan.chosen.iter().zip(&blocks).zip(&losses) {
        let changes = tested.iter().zip(decided.by_ref());
        let changes =
            changes.map(|((loss, _), it)| blamed(plan, pair, losses::loss_change(*loss, it)));
        processes.push(ProcessPair {
            matched_by: pair.by,
            a: process_side(plan, pair, 0, &blocks[0]),
            b: process_side(plan, pair, 1, &blocks[1]),
            losses: changes.collect(),
            ledger: ledger(plan, pair),
        });
    }
    let measures: Vec<Measure> = measured
        .iter()
        .zip(decided)
        .map(|((what, of, _), it)| measured::measure(*what, of.clone(), it))
        .collect();
    processes.sort_by(|x, y| weight(y).total_cmp(&weight(x)));
    let reports = [&plan.sides[0].report, &plan.sides[1].report];
    let findings = findings::side_by_side(reports, &processes);
    let [a, b] = [0, 1].map(|side| recording(&plan.sides[side], files[side]));
    let verdict = verdict::verdict(&processes, &measures);
    Comparison {
        schema: SCHEMA.into(),
        tool: Tool { version: tool_version.into() },
        a,
        b,
        verdict,
        method: Method {
            test: "Welch's t test on seconds, corrected for autocorrelation".into(),
            level: SIGNIFICANT,
            correction: "Holm: the probability of one or more false differences".into(),
            comparisons: comparisons as u64,
            least_correlation: LEAST_CORRELATION,
        },
        findings,
        processes,
        unpaired: unpaired(plan),
        measures,
        devices: beside::devices([&plan.sides[0], &plan.sides[1]]),
        files: beside::files(reports),
        quotas: beside::quotas([&plan.sides[0], &plan.sides[1]]),
        settings: beside::settings([&plan.sides[0], &plan.sides[1]]),
        configuration: configuration::differences([&plan.sides[0], &plan.sides[1]]),
        notes: notes(plan),
    }
}

/// Adds behind whom a difference was waited.
fn blamed(plan: &Plan, pair: &Pair, mut change: LossChange) -> LossChange {
    let groups = [plan.group(pair, 0), plan.group(pair, 1)];
    let waited = match change.loss {
        Loss::Queued => groups.map(|group| &group.behind),
        Loss::BlockIo | Loss::Sync | Loss::Requests => groups.map(|group| &group.behind_io),
        _ => return change,
    };
    if matches!(change.change, Change::Grown | Change::Shrunk) {
        let windows_ns = [plan.sides[0].window_ns, plan.sides[1].window_ns];
        let more = change.change == Change::Grown;
        change.behind =
            losses::behind(waited, windows_ns, more, |comm, path| plan.in_b(comm, path));
    }
    change
}

fn ledger(plan: &Plan, pair: &Pair) -> Vec<LedgerPair> {
    let [a, b] = [0, 1].map(|side| {
        let window_ns = plan.sides[side].window_ns.max(1) as f64;
        let rate = move |ns: u64| ns as f64 * 1e9 / window_ns;
        plan.group(pair, side).ledger.iter().map(move |(state, ns)| (*state, rate(*ns)))
    });
    let rows = a.zip(b).map(|((state, a_ns_per_s), (_, b_ns_per_s))| LedgerPair {
        state,
        a_ns_per_s,
        b_ns_per_s,
    });
    rows.collect()
}

fn process_side(plan: &Plan, pair: &Pair, side: usize, blocks: &Blocks) -> ProcessSide {
    let group = plan.group(pair, side);
    let percentile = |p: f64| {
        let (waits, max_ns) = group.waits.as_ref()?;
        percentile_ns(waits, p, *max_ns)
    };
    ProcessSide {
        process: group.entity.clone(),
        threads: group.threads,
        blocks: blocks.on_cpu.len() as u32,
        block_ns: blocks.width_ns,
        on_cpu_ns_per_s: blocks.on_cpu.iter().sum::<f64>() / blocks.on_cpu.len().max(1) as f64,
        waits: group.waits.as_ref().map_or_else(Vec::new, |(waits, _)| size_classes(waits)),
        p50_ns: percentile(0.5),
        p99_ns: percentile(0.99),
        max_ns: group.waits.as_ref().map(|(_, max_ns)| *max_ns).filter(|ns| *ns > 0),
    }
}

/// Order of pairs: differences beyond chance first, then by the time that is lost.
fn weight(pair: &ProcessPair) -> f64 {
    let of = |it: &LossChange| {
        let (less, more) = (it.a_ns_per_s.min(it.b_ns_per_s), it.a_ns_per_s.max(it.b_ns_per_s));
        match it.change {
            Change::Grown | Change::Shrunk => 1e15 + more - less,
            _ => more,
        }
    };
    let largest = pair.losses.iter().map(of).fold(0.0, f64::max);
    largest + pair.a.on_cpu_ns_per_s.max(pair.b.on_cpu_ns_per_s) / 1e12
}

fn recording(side: &Summary, file: &str) -> Recording {
    Recording {
        file: file.into(),
        host: side.report.host.clone(),
        window: side.report.window.clone(),
        target: side.report.target.clone(),
    }
}

/// The processes that are in one recording only, if they matter: those that lose or run most.
fn unpaired(plan: &Plan) -> Vec<Unpaired> {
    let mut all = Vec::new();
    for (side, only_in) in [(0, "a"), (1, "b")] {
        let mut paired = vec![false; plan.sides[side].groups.len()];
        plan.pairs.iter().for_each(|pair| paired[pair.groups[side]] = true);
        let rate = |ns: u64| ns as f64 * 1e9 / plan.sides[side].window_ns.max(1) as f64;
        let alone = plan.sides[side].groups.iter().zip(&paired).filter(|(_, paired)| !**paired);
        all.extend(alone.map(|(group, _)| Unpaired {
            only_in: only_in.into(),
            process: group.entity.clone(),
            on_cpu_ns_per_s: rate(group.on_cpu_ns),
            lost_ns_per_s: rate(group.lost_ns),
        }));
    }
    all.retain(|it| it.on_cpu_ns_per_s.max(it.lost_ns_per_s) >= UNPAIRED_NS_PER_S);
    all.sort_by(|x, y| {
        let weight = |it: &Unpaired| it.on_cpu_ns_per_s.max(it.lost_ns_per_s);
        weight(y).total_cmp(&weight(x))
    });
    all.truncate(MOST_UNPAIRED);
    all
}

fn notes(plan: &Plan) -> Vec<String> {
    let mut notes = Vec::new();
    let [a, b] = [0, 1].map(|side| &plan.sides[side]);
    if a.report.host.cpus != b.report.host.cpus {
        let cpus = [a, b].map(|it| it.report.host.cpus);
        notes.push(format!(
            "A has {} CPUs and B has {}: the same load waits differently",
            cpus[0], cpus[1]
        ));
    }
    if a.report.target.kind != b.report.target.kind {
        let kinds = [a, b].map(|it| it.report.target.kind.clone());
        notes.push(format!(
            "A observes a {}, and B a {}: only what is in both is compared",
            kinds[0], kinds[1]
        ));
    }
    notes.extend(configuration::not_known([a, b]));
    for (side, letter) in [(a, "A"), (b, "B")] {
        if side.left_out > 0 {
            notes.push(format!(
                "{letter} has {} more groups of processes, which do less than the {MOST_GROUPS} that were looked at",
                side.left_out
            ));
        }
        let doubts = side
            .report
            .findings
            .iter()
            .filter(|it| it.area == Area::Observer && it.severity > Severity::Info);
        notes.extend(doubts.map(|it| format!("{letter}, {}: {}", it.code, it.title)));
    }
    notes
}
