// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was measured to be slower, and which differences can be the reason: those that cost the kind of time of which
//! the slow host needs more.

use super::compare::Row;
use super::document::{Difference, Effect};
use super::rank;
use crate::finding::{LedgerState, Report};
use crate::syscalls::{FileRow, Profile};
use crate::text::units::{duration, share};
use serde::{Deserialize, Serialize};

/// Times with a smaller ratio are taken as equal.
const MIN_RATIO: f64 = 1.1;
/// Minimum share of the extra time that counts as an explanation.
const MIN_SHARE: f64 = 0.1;

/// Added to the importance of a difference that a slow file supports: it comes before those that are merely possible.
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

/// A part of the measured time.
#[derive(Clone, Debug, PartialEq)]
struct TimePart {
    name: &'static str,
    seconds: f64,
    /// The kinds of time that it may consist of.
    effects: &'static [Effect],
}

impl TimePart {
    fn new(name: &'static str, seconds: f64, effects: &'static [Effect]) -> Self {
        Self { name, seconds, effects }
    }
}

/// A file on which calls take longer on the slow host.
struct SlowFile {
    path: String,
    slow_s: f64,
    fast_s: f64,
}

/// What a host was measured to need for the same work.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Index of the host.
    host: usize,
    /// How the time is divided.
    parts: Vec<TimePart>,
    /// What was measured.
    of: &'static str,
    /// Files, and the seconds that system calls on them took.
    files: Vec<(String, f64)>,
}

impl Measured {
    /// The time of a command, in seconds: wall time, and user and system time if they are known.
    #[must_use]
    pub fn time(host: usize, wall_s: f64, cpu_s: Option<[f64; 2]>) -> Self {
        let parts = match cpu_s {
            None => vec![TimePart::new("wall time", wall_s, ALL)],
            Some([user, system]) => vec![
                TimePart::new("CPU time in user mode", user, &CPU[..1]),
                TimePart::new("CPU time in the kernel", system, &CPU[1..]),
                // The CPU time of a command with several threads can exceed its wall time.
                TimePart::new("waiting", (wall_s - user - system).max(0.0), WAITING),
            ],
        };
        Self { host, parts, of: "time of the same command", files: vec![] }
    }

    /// A profile of a command's system calls: its run with the median wall time, and its files. `None` if no command
    /// was started, because then the amount of work is not known.
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

    /// A recording: the waiting of its target, or of all threads seen, per second on a CPU. It does not show how fast
    /// the CPUs were, because the amount of work is not known. `None` if nothing ran.
    #[must_use]
    pub fn recording(host: usize, report: &Report) -> Option<Self> {
        let sum = |states: &[LedgerState]| {
            let own = report.ledger.iter().filter(|ledger| !ledger.awaited);
            let parts = own.flat_map(|ledger| &ledger.parts);
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
            TimePart::new("waiting for a CPU", queued / on_cpu, &WAITING[..2]),
            TimePart::new(
                "waiting for disks",
                sum(&[LedgerState::BlockIo]) / on_cpu,
                &WAITING[2..3],
            ),
            TimePart::new(
                "waiting for memory",
                sum(&[LedgerState::MemStall]) / on_cpu,
                &WAITING[3..4],
            ),
        ];
        Some(Self { host, parts, of: "waiting for each second on a CPU", files: vec![] })
    }

    /// Index of the host.
    #[must_use]
    pub fn host(&self) -> usize {
        self.host
    }

    /// Sum of all parts, in seconds.
    fn total(&self) -> f64 {
        self.parts.iter().map(|part| part.seconds).sum()
    }
}

/// How much more time the slowest host needs than the fastest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// Identifier of the slowest host.
    pub slow: String,
    /// Identifier of the fastest host.
    pub fast: String,
    /// What was measured.
    pub of: String,
    /// Time of the slowest host, in seconds.
    pub slow_s: f64,
    /// Time of the fastest host, in seconds.
    pub fast_s: f64,
    /// The extra time by kind, most first.
    pub parts: Vec<ExtraTime>,
    /// Number of differences that can be the reason: they cost a kind of time of which there is more.
    pub could_explain: u64,
    /// Number of differences that cannot be the reason.
    pub cannot_explain: u64,
    /// The explanation as a sentence.
    pub summary: String,
}

/// Extra time of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExtraTime {
    /// Name of the kind.
    pub name: String,
    /// Time of the slowest host, in seconds.
    pub slow_s: f64,
    /// Time of the fastest host, in seconds.
    pub fast_s: f64,
    /// Share of the total extra time, 0..1.
    pub share: f64,
    /// Kinds of time that it may consist of.
    pub effects: Vec<Effect>,
}

/// Which hosts are slow by their measurements: those nearer to the slowest than to the fastest, by ratio. `None` for
/// hosts that were not measured, and for all hosts if they are about equally fast.
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

/// The slowest and the fastest host, among those measured in the same way as the first.
fn extremes(measured: &[Measured]) -> Option<(&Measured, &Measured)> {
    let first = measured.first()?;
    let alike =
        || measured.iter().filter(|it| it.of == first.of && it.parts.len() == first.parts.len());
    let by_total = |a: &&Measured, b: &&Measured| a.total().total_cmp(&b.total());
    let (slow, fast) = (alike().max_by(by_total)?, alike().min_by(by_total)?);
    (slow.host != fast.host).then_some((slow, fast))
}

/// Sets for each difference which share of the extra time it can be the reason for; `rows` and `differences` have the
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
            // What can explain little of it matters less here than elsewhere, and is told after what explains more.
            it.severity = rank::severity(it.importance().clamp(0.0, 100.0) as u8);
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
        slow.parts.iter().zip(&fast.parts).map(|(a, b)| (a.seconds - b.seconds).max(0.0)).collect();
    let all: f64 = more.iter().sum();
    let mut parts: Vec<ExtraTime> = slow
        .parts
        .iter()
        .zip(&fast.parts)
        .zip(&more)
        .map(|((slow, fast), more)| ExtraTime {
            name: slow.name.into(),
            slow_s: slow.seconds,
            fast_s: fast.seconds,
            share: if all > 0.0 { more / all } else { 0.0 },
            effects: slow.effects.to_vec(),
        })
        .collect();
    parts.sort_by(|a, b| b.share.total_cmp(&a.share).then_with(|| a.name.cmp(&b.name)));
    parts
}

fn explained(parts: &[ExtraTime], effects: &[Effect]) -> f64 {
    let costs = |part: &&ExtraTime| part.effects.iter().any(|it| effects.contains(it));
    parts.iter().filter(costs).map(|part| part.share).sum::<f64>().min(1.0)
}

/// Files on which calls take longer on the slow host by at least `MIN_SHARE` of the extra time.
fn slow_files(slow: &Measured, fast: &Measured, extra_s: f64) -> Vec<SlowFile> {
    let of = |(path, slow_s): &(String, f64)| {
        let fast_s = fast.files.iter().find(|(other, _)| other == path).map_or(0.0, |it| it.1);
        SlowFile { path: path.clone(), slow_s: *slow_s, fast_s }
    };
    let mut files: Vec<_> = slow.files.iter().map(of).collect();
    files.retain(|file| file.slow_s - file.fast_s >= MIN_SHARE * extra_s);
    files
}

/// Parts of paths, and the group of differences that files with such paths belong to.
const FILES_OF: [(&str, &str); 5] = [
    ("/thermal", "thermal"),
    // Reading a sensor runs code from ACPI tables.
    ("/thermal", "firmware"),
    ("/cpufreq/", "frequency"),
    ("/cpuidle/", "idle"),
    ("/clocksource/", "clock source"),
];

fn belongs(path: &str, it: &Difference) -> bool {
    FILES_OF.iter().any(|(part, group)| path.contains(part) && it.group == *group)
}

/// Adds files that were slow to read while the snapshots were taken (path, sentence)
/// to the differences that they belong to.
pub(super) fn support(files: &[(String, String)], differences: &mut [Difference]) {
    for it in differences.iter_mut().filter(|it| it.follows.is_none() && it.group != "firmware") {
        let of = files.iter().filter(|(path, _)| belongs(path, it));
        let sentences: Vec<String> = of.map(|(_, sentence)| sentence.clone()).collect();
        it.supported_by.extend(sentences);
    }
}

/// Sentences about slow files that support this difference as the reason.
fn supporting(files: &[SlowFile], it: &Difference) -> Vec<String> {
    let sentence = |file: &SlowFile| {
        let path = file.path.replace('`', "'");
        let (slow, fast) = (duration(file.slow_s * 1e9), duration(file.fast_s * 1e9));
        format!("calls on `{path}` take {slow} there, {fast} on the fast host")
    };
    files.iter().filter(|file| belongs(&file.path, it)).map(sentence).collect()
}

impl Difference {
    /// How much it matters here: its weight, multiplied by the share of the extra time that it can be the reason for,
    /// and increased if slow files support it.
    #[must_use]
    pub fn importance(&self) -> f64 {
        let known = f64::from(self.weight) * self.explains.unwrap_or(1.0);
        known + if self.supported_by.is_empty() { 0.0 } else { SUPPORTED }
    }

    /// Whether it is known not to be the reason for what was measured.
    #[must_use]
    pub fn cannot_explain(&self) -> bool {
        self.explains.is_some_and(|part| part < MIN_SHARE)
    }
}
