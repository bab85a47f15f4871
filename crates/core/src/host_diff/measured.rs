// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is measured slower, and which differences can be the reason: those that cost the kind of time that there is
//! more of.

use super::compare::Row;
use super::document::{Difference, Effect};
use crate::finding::{LedgerState, Report};
use crate::syscalls::{FileRow, Profile};
use crate::text::units::{duration, share};
use serde::{Deserialize, Serialize};

/// Times that differ by less than this are taken for equal.
const MIN_RATIO: f64 = 1.1;
/// A part explains something if it is that much of what there is more of.
const MIN_SHARE: f64 = 0.1;

/// What a slow file that belongs to a difference adds to its weight: it comes before what only may be.
const SUPPORTED: f64 = 100.0;

const CPU: &[Effect] = &[Effect::User, Effect::System];
const WAITING: &[Effect] =
    &[Effect::Wakeup, Effect::Queue, Effect::BlockIo, Effect::Memory, Effect::Network];
const ALL: &[Effect] = &[
    Effect::User,
    Effect::System,
    Effect::Wakeup,
    Effect::Queue,
    Effect::BlockIo,
    Effect::Memory,
    Effect::Network,
];

/// What one host was measured to need for the same work.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Which host, by its place.
    host: usize,
    /// Where the time went: name, seconds, and what it can be of.
    parts: Vec<(&'static str, f64, &'static [Effect])>,
    /// What the seconds are.
    of: &'static str,
    /// Files and the seconds that calls on them took.
    files: Vec<(String, f64)>,
}

impl Measured {
    /// A command that took that long; user and system time if they are known.
    #[must_use]
    pub fn time(host: usize, wall_s: f64, cpu_s: Option<[f64; 2]>) -> Self {
        let parts = match cpu_s {
            None => vec![("wall time", wall_s, ALL)],
            Some([user, system]) => vec![
                ("CPU time in user mode", user, &CPU[..1]),
                ("CPU time in the kernel", system, &CPU[1..]),
                // Of a command with threads, CPU time can exceed its wall time.
                ("waiting", (wall_s - user - system).max(0.0), WAITING),
            ],
        };
        Self { host, parts, of: "time of the same command", files: vec![] }
    }

    /// A profile of a command's system calls: the median of its runs, and its slow files. `None` if no command was
    /// started, for then nobody knows how much work was done.
    #[must_use]
    pub fn profile(host: usize, profile: &Profile) -> Option<Self> {
        let mut runs: Vec<_> = profile.setup.runs.iter().collect();
        runs.sort_by_key(|run| run.wall_ns);
        let run = runs.get(runs.len() / 2)?;
        let seconds = |ns: u64| ns as f64 / 1e9;
        let cpu = [seconds(run.user_ns), seconds(run.system_ns)];
        let mut it = Self::time(host, seconds(run.wall_ns), Some(cpu));
        let count = runs.len() as f64;
        let file = |row: &FileRow| (row.path.clone(), seconds(row.times.total_ns) / count);
        it.files = profile.files.iter().map(file).collect();
        Some(it)
    }

    /// A recording: the waiting of its target, or of all that was seen, for each second on a CPU. How fast CPUs were
    /// cannot be told from it, for nobody knows how much work was done. `None` if nothing ran.
    #[must_use]
    pub fn recording(host: usize, report: &Report) -> Option<Self> {
        let sum = |states: &[LedgerState]| {
            let parts = report.ledger.iter().flat_map(|ledger| &ledger.parts);
            let of = parts.filter(|part| states.contains(&part.state));
            of.map(|part| part.ns as f64 / 1e9).sum::<f64>()
        };
        let on_cpu = sum(&[LedgerState::OnCpu]);
        if on_cpu <= 0.0 {
            return None;
        }
        let queued =
            sum(&[LedgerState::Queued, LedgerState::Throttled, LedgerState::QueuedOrThrottled]);
        let parts = vec![
            ("waiting for a CPU", queued / on_cpu, &WAITING[..2]),
            ("waiting for disks", sum(&[LedgerState::BlockIo]) / on_cpu, &WAITING[2..3]),
            ("waiting for memory", sum(&[LedgerState::MemStall]) / on_cpu, &WAITING[3..4]),
        ];
        Some(Self { host, parts, of: "waiting for each second on a CPU", files: vec![] })
    }

    /// Which host, by its place.
    #[must_use]
    pub fn host(&self) -> usize {
        self.host
    }

    /// All of it, seconds.
    fn total(&self) -> f64 {
        self.parts.iter().map(|(_, seconds, _)| seconds).sum()
    }
}

/// What the slowest host needs more than the fastest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The slowest host.
    pub slow: String,
    /// The fastest.
    pub fast: String,
    /// What was measured.
    pub of: String,
    /// Of the slowest, seconds.
    pub slow_s: f64,
    /// Of the fastest, seconds.
    pub fast_s: f64,
    /// Where the difference is, most first.
    pub parts: Vec<ExtraTime>,
    /// Differences that can be a reason: they cost time of which there is more.
    pub could_explain: u64,
    /// Differences that cannot.
    pub cannot_explain: u64,
    /// The same in a sentence.
    pub summary: String,
}

/// Time of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExtraTime {
    /// Which.
    pub name: String,
    /// Of the slowest host, seconds.
    pub slow_s: f64,
    /// Of the fastest, seconds.
    pub fast_s: f64,
    /// Share of all that is more, 0..1.
    pub share: f64,
    /// What it can be of.
    pub effects: Vec<Effect>,
}

/// Which hosts are slow by their measurements: those nearer to the slowest than to the fastest, by ratio. Nothing for
/// hosts that were not measured, or if all are alike.
#[must_use]
pub fn slow(measured: &[Measured], hosts: usize) -> Vec<Option<bool>> {
    let mut slow = vec![None; hosts];
    let Some((slowest, fastest)) = extremes(measured) else { return slow };
    let (most, least) = (slowest.total(), fastest.total());
    if most < MIN_RATIO * least {
        return slow;
    }
    let middle = (most * least.max(most * 1e-6)).sqrt();
    for it in measured {
        if let Some(slow) = slow.get_mut(it.host) {
            *slow = Some(it.total() > middle);
        }
    }
    slow
}

/// The slowest and the fastest, of those measured in the same way as the first.
fn extremes(measured: &[Measured]) -> Option<(&Measured, &Measured)> {
    let first = measured.first()?;
    let alike =
        || measured.iter().filter(|it| it.of == first.of && it.parts.len() == first.parts.len());
    let by_total = |a: &&Measured, b: &&Measured| a.total().total_cmp(&b.total());
    let (slow, fast) = (alike().max_by(by_total)?, alike().min_by(by_total)?);
    (slow.host != fast.host).then_some((slow, fast))
}

/// Says of each difference what share of the extra time it can be the reason of; `rows` and `differences` are of the
/// same facts in the same order.
pub(super) fn explain(
    measured: &[Measured],
    rows: &[Row<'_>],
    ids: &[String],
    differences: &mut [Difference],
) -> Option<Explanation> {
    let (slow, fast) = extremes(measured)?;
    let parts = extra(slow, fast);
    let (slow_s, fast_s) = (slow.total(), fast.total());
    let differ = slow_s >= MIN_RATIO * fast_s;
    let files = slow_files(slow, fast, slow_s - fast_s);
    let (mut could, mut cannot) = (0, 0);
    for (row, it) in rows.iter().zip(differences.iter_mut()) {
        let camp = |host: usize| row.camps.iter().position(|camp| camp.hosts.contains(&host));
        let together = camp(slow.host).is_some() && camp(slow.host) == camp(fast.host);
        let contrary = it.slows.contains(&ids[fast.host]) && !it.slows.contains(&ids[slow.host]);
        let explains = match (together || contrary, it.effects.is_empty()) {
            (true, _) => Some(0.0),
            (false, true) => None,
            (false, false) => Some(explained(&parts, &it.effects)),
        };
        if differ {
            it.explains = explains;
            if explains != Some(0.0) {
                it.supported_by.extend(supporting(&files, it));
            }
            match explains {
                Some(part) if part < MIN_SHARE => cannot += 1,
                Some(_) => could += 1,
                None => {}
            }
        }
    }
    let (slow_id, fast_id) = (ids[slow.host].clone(), ids[fast.host].clone());
    let ratio =
        if fast_s > 0.0 { format!("{:.1} times as much", slow_s / fast_s) } else { "more".into() };
    let mut summary = format!(
        "{}: {} on {slow_id}, {} on {fast_id}",
        slow.of,
        duration(slow_s * 1e9),
        duration(fast_s * 1e9)
    );
    if differ {
        let most = parts.first().map_or(String::new(), |part| {
            format!("; {} of what is more is {}", share(part.share), part.name)
        });
        summary +=
            &format!(", {ratio}{most}; {could} of the differences cost such time, {cannot} do not");
    } else {
        summary += ": hardly more, there is nothing to explain";
    }
    Some(Explanation {
        slow: slow_id,
        fast: fast_id,
        of: slow.of.into(),
        slow_s,
        fast_s,
        parts,
        could_explain: could,
        cannot_explain: cannot,
        summary,
    })
}

fn extra(slow: &Measured, fast: &Measured) -> Vec<ExtraTime> {
    let more: Vec<f64> =
        slow.parts.iter().zip(&fast.parts).map(|(a, b)| (a.1 - b.1).max(0.0)).collect();
    let all: f64 = more.iter().sum();
    let mut parts: Vec<ExtraTime> = slow
        .parts
        .iter()
        .zip(&fast.parts)
        .zip(&more)
        .map(|((slow, fast), more)| ExtraTime {
            name: slow.0.into(),
            slow_s: slow.1,
            fast_s: fast.1,
            share: if all > 0.0 { more / all } else { 0.0 },
            effects: slow.2.to_vec(),
        })
        .collect();
    parts.sort_by(|a, b| b.share.total_cmp(&a.share).then_with(|| a.name.cmp(&b.name)));
    parts
}

fn explained(parts: &[ExtraTime], effects: &[Effect]) -> f64 {
    let costs = |part: &&ExtraTime| part.effects.iter().any(|it| effects.contains(it));
    parts.iter().filter(costs).map(|part| part.share).sum::<f64>().min(1.0)
}

/// Files on which calls take longer on the slow host, by a share of what it is slower: path, seconds there and on the
/// fast host.
fn slow_files(slow: &Measured, fast: &Measured, extra_s: f64) -> Vec<(String, f64, f64)> {
    let of = |(path, slow_s): &(String, f64)| {
        let fast_s = fast.files.iter().find(|(other, _)| other == path).map_or(0.0, |it| it.1);
        (path.clone(), *slow_s, fast_s)
    };
    let mut files: Vec<_> = slow.files.iter().map(of).collect();
    files.retain(|(_, slow_s, fast_s)| slow_s - fast_s >= MIN_SHARE * extra_s);
    files
}

/// Parts of paths, and the group of differences that such files belong to.
const FILES_OF: [(&str, &str); 5] = [
    ("/thermal", "thermal"),
    // What a sensor does when it is read is code in ACPI's tables.
    ("/thermal", "firmware"),
    ("/cpufreq/", "frequency"),
    ("/cpuidle/", "idle"),
    ("/clocksource/", "clock source"),
];

fn belongs(path: &str, it: &Difference) -> bool {
    FILES_OF.iter().any(|(part, group)| path.contains(part) && it.group == *group)
}

/// What files that were slow to read while the snapshots were taken say: paths and sentences.
pub(super) fn support(files: &[(String, String)], differences: &mut [Difference]) {
    for it in differences.iter_mut().filter(|it| it.follows.is_none() && it.group != "firmware") {
        let of = files.iter().filter(|(path, _)| belongs(path, it));
        let sentences: Vec<String> = of.map(|(_, sentence)| sentence.clone()).collect();
        it.supported_by.extend(sentences);
    }
}

/// What slow files say for this difference being the reason.
fn supporting(files: &[(String, f64, f64)], it: &Difference) -> Vec<String> {
    let sentence = |(path, slow_s, fast_s): &(String, f64, f64)| {
        let path = path.replace('`', "'");
        let (slow, fast) = (duration(slow_s * 1e9), duration(fast_s * 1e9));
        format!("calls on `{path}` take {slow} there, {fast} on the fast host")
    };
    files.iter().filter(|(path, _, _)| belongs(path, it)).map(sentence).collect()
}

impl Difference {
    /// How much it matters here: its weight, by how much of the extra time it can be the reason of.
    #[must_use]
    pub fn importance(&self) -> f64 {
        let known = f64::from(self.weight) * self.explains.unwrap_or(1.0);
        known + if self.supported_by.is_empty() { 0.0 } else { SUPPORTED }
    }

    /// Whether it is known not to be the reason of what was measured.
    #[must_use]
    pub fn cannot_explain(&self) -> bool {
        self.explains.is_some_and(|part| part < MIN_SHARE)
    }
}
