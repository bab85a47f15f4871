// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a finding says: the claim, the victim and its causes, the numbers, and what to do.

use super::super::names;
use super::portion;
use crate::finding::{
    Area, Cause, Cost, Entity, EntityKind, Evidence, FileShare, Finding, LongestWait, LossBasis,
    Promise, Severity, SizeClass, WaitPart,
};
use crate::text::escape::{identifier, label, sentence};
use crate::text::units::{bytes, count, duration, share};

/// Maximum width of a source, which can be the path of a file.
const SOURCE_COLUMNS: usize = 40;
/// Number of causes that are shown before the rest is summed up.
const CAUSES_SHOWN: usize = 5;
/// Minimum share of the loss for which a line about the unattributed remainder is shown.
const REMAINDER_MIN: f64 = 0.005;

/// The word for a severity.
pub(in super::super) fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::High => "high",
        Severity::Medium => "medium",
        Severity::Low => "low",
        Severity::Info => "info",
    }
}

/// Severity and code: `high[SCH001]`.
pub(in super::super) fn tag(finding: &Finding) -> String {
    format!("{}[{}]", severity(finding.severity), label(&finding.code, 12))
}

/// The victim, what it loses, and how long its waits are, each with its name. With `full`, containers have their cgroup.
pub(in super::super) fn facts(finding: &Finding, full: bool) -> Vec<(&'static str, String)> {
    let nobody = matches!(
        finding.victim.kind,
        EntityKind::Host | EntityKind::Observer | EntityKind::Unknown
    );
    let loses = finding.cost.lost_ns_per_s > 0;
    let facts = [
        ("victim", (!nobody).then(|| described(&finding.victim, full))),
        ("loses", loses.then(|| loss(finding))),
        ("waits", waits(&finding.cost)),
        ("longest", finding.longest.as_ref().map(|wait| longest(wait, finding))),
    ];
    facts.into_iter().filter_map(|(name, text)| Some((name, text?))).collect()
}

/// An entity with its container, unit or cgroup, and its note.
fn described(entity: &Entity, full: bool) -> String {
    let mut text = names::entity(entity);
    let place = names::place(entity, full)
        .filter(|place| *place != text && (entity.kind != EntityKind::Cgroup || full));
    if let Some(place) = place {
        text = format!("{text} in {place}");
    }
    match &entity.note {
        // CPUs that the note names, and who the note says is not known.
        Some(note) if entity.kind == EntityKind::Cpu && entity.cpu.is_none() => sentence(note),
        Some(note) if entity.kind == EntityKind::Unknown => sentence(note),
        Some(note) => format!("{text}: {}", sentence(note)),
        None => text,
    }
}

/// What the victim loses, and the share of what: a loss at the disk is a share of a longer time than one of a CPU.
fn loss(finding: &Finding) -> String {
    let cost = &finding.cost;
    let of = match finding.area {
        Area::Block => "in which it wanted a CPU or the disk",
        Area::Memory => "in which it wanted a CPU or memory",
        // Of its many connections one is enough.
        Area::Network if matches!(finding.code.as_str(), "NET005" | "NET006" | "NET007") => {
            "in the window"
        }
        Area::Network => "that these connections had in the window",
        Area::Syscalls => "in which it wanted a CPU or was in these calls",
        Area::Waiting => "in which it wanted a CPU or waited so",
        Area::Sched | Area::Cpu | Area::Host | Area::Interrupts | Area::Observer => {
            "in which it wanted to run"
        }
    };
    let lost = duration(cost.lost_ns_per_s as f64);
    let every = if cost.lost_ns_per_s > 1_000_000_000 {
        format!("{lost} in every second, over all its threads")
    } else {
        format!("{lost} of every second")
    };
    let part = match cost.share_at_most {
        Some(most) => format!("between {} and {}", share(cost.share), share(most)),
        None => share(cost.share),
    };
    format!("{every}: {part} of the time {of}")
}

fn waits(cost: &Cost) -> Option<String> {
    let parts = [
        cost.p50_ns.map(|ns| format!("half of them under {}", duration(ns as f64))),
        cost.p99_ns.map(|ns| format!("99 % under {}", duration(ns as f64))),
        cost.max_ns.map(|ns| format!("the longest {}", duration(ns as f64))),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// The longest wait, whole: when it ended, and what it was behind.
fn longest(wait: &LongestWait, finding: &Finding) -> String {
    let part = |WaitPart { entity, ns }: &WaitPart| {
        let of = duration(*ns as f64);
        match &entity.note {
            _ if same_process(entity, &finding.victim) => format!("{of} behind its own threads"),
            Some(note) if entity.kind == EntityKind::Unknown => format!("{of} {}", sentence(note)),
            _ if entity.kind == EntityKind::Cgroup => {
                format!("{of} throttled by {}", names::entity(entity))
            }
            _ => format!("{of} behind {}", names::entity(entity)),
        }
    };
    let parts: Vec<String> = wait.parts.iter().map(part).collect();
    let length = duration(wait.wait_ns as f64);
    format!("{length} until {}: {}", sentence(&time_of_day(&wait.at)), parts.join(", "))
}

/// The time of day of an RFC 3339 time; all of it where it is none.
fn time_of_day(at: &str) -> String {
    match at.split_once('T').and_then(|(_, time)| time.strip_suffix('Z')) {
        Some(time) => format!("{time} UTC"),
        None => at.to_owned(),
    }
}

/// What the reader has to put into the command of the experiment, if anything, as a clause.
pub(in super::super) fn prove_with(finding: &Finding) -> &'static str {
    match finding.blank_in_prove() {
        Some("COMMAND") => "; in place of COMMAND, how it is started",
        Some("PID") => ", on that host, with a process that is woken often in place of PID",
        Some(_) => ", on that host, with a command that computes in place of CMD",
        None => "",
    }
}

/// A culprit, or several summed up.
pub(in super::super) struct CauseRow {
    /// Share of the loss, 0..1.
    pub(in super::super) share: f64,
    pub(in super::super) who: String,
    /// Which processes of several it is.
    pub(in super::super) whom: Option<String>,
}

/// What the causes are to the victim, and the causes, with what is not attributed. Without `full` only the first ones.
pub(in super::super) fn causes(finding: &Finding, full: bool) -> (&'static str, Vec<CauseRow>) {
    let known = |cause: &&Cause| cause.entity.kind != EntityKind::Unknown;
    let mut limit = if full { usize::MAX } else { CAUSES_SHOWN };
    // Do not sum up a single cause: a line can name it.
    if finding.causes.iter().filter(known).count() == limit.saturating_add(1) {
        limit += 1;
    }
    let others: Vec<&Cause> = finding.causes.iter().filter(known).skip(limit).collect();
    let unknown = finding.causes.iter().filter(|cause| !known(cause));
    let mut rows = Vec::new();
    for cause in finding.causes.iter().filter(known).take(limit) {
        let own = same_process(&cause.entity, &finding.victim);
        let who = if own { "its own threads".into() } else { described(&cause.entity, full) };
        let whom = cause.entity.whom.as_ref().filter(|_| !own).and_then(names::whom);
        rows.push(CauseRow { share: cause.share.get(), who, whom });
    }
    let plain = |share, who| CauseRow { share, who, whom: None };
    if !others.is_empty() {
        let part = others.iter().map(|cause| cause.share.get()).sum();
        rows.push(plain(part, format!("{} others", others.len())));
    }
    rows.extend(unknown.map(|cause| plain(cause.share.get(), described(&cause.entity, full))));
    let rest = 1.0 - finding.causes.iter().map(|cause| cause.share.get()).sum::<f64>();
    if !rows.is_empty() && rest >= REMAINDER_MIN {
        rows.push(plain(rest, "not attributed".into()));
    }
    let runs = |cause: &Cause| {
        use EntityKind::{Irq, Kernel, Process, Thread, Unknown};
        matches!(cause.entity.kind, Process | Thread | Kernel | Irq | Unknown)
    };
    (if finding.causes.iter().all(runs) { "behind" } else { "because of" }, rows)
}

fn same_process(a: &Entity, b: &Entity) -> bool {
    a.kind == EntityKind::Process && b.kind == a.kind && a.pid.is_some() && a.pid == b.pid
}

/// A class of wait lengths: the number of its waits, and the time that they took.
pub(in super::super) struct SizeRow {
    /// Lower bound of the class.
    pub(in super::super) from: String,
    /// Upper bound of the class, if it has one.
    pub(in super::super) to: Option<String>,
    pub(in super::super) length: String,
    pub(in super::super) waits: String,
    /// Share of all waits, 0..1.
    pub(in super::super) waits_share: f64,
    pub(in super::super) time: String,
    /// Share of the time of all waits, 0..1.
    pub(in super::super) time_share: f64,
}

/// The classes from the first to the last one with waits.
pub(in super::super) fn sizes(sizes: &[SizeClass]) -> Vec<SizeRow> {
    let used = |class: &SizeClass| class.count > 0;
    let Some(first) = sizes.iter().position(used) else { return Vec::new() };
    let last = sizes.iter().rposition(used).unwrap_or(first);
    let all: u64 = sizes.iter().map(|class| class.count).fold(0, u64::saturating_add);
    let all_ns: u64 = sizes.iter().map(|class| class.ns).fold(0, u64::saturating_add);
    let row = |class: &SizeClass| SizeRow {
        from: duration(class.from_ns as f64),
        to: class.to_ns.map(|ns| duration(ns as f64)),
        length: range(class.from_ns, class.to_ns),
        waits: count(class.count as f64),
        waits_share: portion(class.count, all),
        time: duration(class.ns as f64),
        time_share: portion(class.ns, all_ns),
    };
    sizes[first..=last].iter().map(row).collect()
}

/// Bounds of a class of lengths: `under 16 us`, `16 - 64 us`, `512 us - 1.0 ms`, `4.2 s or more`.
pub(in super::super) fn range(from_ns: u64, to_ns: Option<u64>) -> String {
    let from = duration(from_ns as f64);
    match to_ns.map(|ns| duration(ns as f64)) {
        None => format!("{from} or more"),
        Some(to) if from_ns == 0 => format!("under {to}"),
        Some(to) => match (from.split_once(' '), to.split_once(' ')) {
            (Some((number, a)), Some((_, b))) if a == b => format!("{number} - {to}"),
            _ => format!("{from} - {to}"),
        },
    }
}

/// Minimum length of a folder that paths of a table have in common and that is shown once.
const MIN_FOLDER: usize = 12;

/// The folder that all paths of these rows are below, with its final slash; empty if there is only one path, or if the
/// folder is too short for a line of its own.
pub(in super::super) fn common_folder(rows: &[FileShare]) -> &str {
    let mut paths = rows.iter().filter(|row| row.is_path).map(|row| &*row.name);
    let Some(first) = paths.next() else { return "" };
    let (mut common, mut others) = (first, 0);
    for path in paths {
        let same = common.bytes().zip(path.bytes()).take_while(|(a, b)| a == b).count();
        let end = common.as_bytes()[..same].iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
        common = &common[..end];
        others += 1;
    }
    if others > 0 && common.len() >= MIN_FOLDER { common } else { "" }
}

/// The cells of a row of the table of files: name below `folder`, files, IOs, their share, bytes, their share. The name
/// is about `columns` wide at most.
pub(in super::super) fn file(row: &FileShare, folder: &str, columns: usize) -> [String; 6] {
    let name = match row.is_path {
        true => identifier(row.name.strip_prefix(folder).unwrap_or(&row.name), 3 * columns),
        false => sentence(&row.name),
    };
    [
        name,
        if row.files > 0 { count(row.files as f64) } else { String::new() },
        count(row.ios as f64),
        share(row.ios_share),
        bytes(row.bytes as f64),
        share(row.bytes_share),
    ]
}

/// The evidence, grouped by source and part of the window.
pub(in super::super) fn evidence(evidence: &[Evidence]) -> Vec<(String, Vec<&Evidence>)> {
    let mut groups: Vec<(String, Vec<&Evidence>)> = Vec::new();
    for item in evidence {
        let origin = origin(item);
        match groups.iter_mut().find(|(group, _)| *group == origin) {
            Some((_, items)) => items.push(item),
            None => groups.push((origin, vec![item])),
        }
    }
    groups
}

fn origin(item: &Evidence) -> String {
    let source = label(&item.source, SOURCE_COLUMNS);
    // A value read at a single point in time has no range.
    match item.to_s > item.from_s {
        true => format!("from {source}, {}", seconds(item.from_s, item.to_s)),
        false => format!("from {source}"),
    }
}

/// A part of the window: `0-30 s`.
fn seconds(from: f64, to: f64) -> String {
    let short = |s: f64| format!("{}", (s * 10.0).round() / 10.0);
    format!("{}-{} s", short(from), short(to))
}

/// What a remedy is promised to leave of the loss.
pub(in super::super) fn promise(promise: &Promise) -> String {
    let part = share(promise.left_at_most);
    match promise.of {
        LossBasis::Second => format!("at most {part} of this loss is left"),
        LossBasis::Transfer => {
            format!("each of its transfers waits for at most {part} of the time that it waits now")
        }
    }
}
