// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Findings of two reports, side by side.

use super::document::{Change, FindingPair, Loss, LossChange, ProcessPair, Told};
use super::pairs::without_ids;
use crate::finding::{Area, Entity, EntityKind, Finding, Report};

/// Matches the findings of two reports. `processes` are the compared processes, by which losses of victims are told
/// from chance.
pub(super) fn side_by_side([a, b]: [&Report; 2], processes: &[ProcessPair]) -> Vec<FindingPair> {
    // Findings about the observation itself are notes here.
    let told = |it: &&Finding| it.area != Area::Observer;
    let mut left: Vec<&Finding> = a.findings.iter().filter(told).collect();
    let mut pairs = Vec::new();
    for finding in b.findings.iter().filter(told) {
        let same = |exactly: bool| {
            left.iter().position(|other| {
                other.code == finding.code
                    && other.device == finding.device
                    && is_same(&other.victim, &finding.victim, exactly)
            })
        };
        let other = same(true).or_else(|| same(false)).map(|at| left.remove(at));
        pairs.push(pair(other, Some(finding), [a, b], processes));
    }
    pairs.extend(left.into_iter().map(|finding| pair(Some(finding), None, [a, b], processes)));
    let largest = |it: &FindingPair| {
        [&it.a, &it.b].into_iter().flatten().map(|told| (told.severity, told.lost_ns_per_s)).max()
    };
    // The sort is stable: ties stay in the order of the reports.
    pairs.sort_by(|x, y| {
        let rank = |it: &FindingPair| (it.change, it.beyond_chance == Some(false));
        rank(x).cmp(&rank(y)).then_with(|| largest(y).cmp(&largest(x)))
    });
    pairs
}

pub(super) fn is_same(a: &Entity, b: &Entity, exactly: bool) -> bool {
    let path = |entity: &Entity| {
        let path = entity.cgroup.as_deref().unwrap_or_default();
        if exactly { path.to_owned() } else { without_ids(path) }
    };
    (a.kind, &a.comm, &a.device, &a.path, a.cpu) == (b.kind, &b.comm, &b.device, &b.path, b.cpu)
        && (a.key == b.key)
        && (path(a) == path(b) || !exactly && a.kind == EntityKind::Process)
}

fn pair(
    a: Option<&Finding>,
    b: Option<&Finding>,
    reports: [&Report; 2],
    processes: &[ProcessPair],
) -> FindingPair {
    let Some(shown) = b.or(a) else { unreachable!("one of them has it") };
    let tested = tested(shown, a, processes);
    let absent_because = match (a, b) {
        (Some(_), Some(_)) => None,
        (None, _) => why_absent(reports[0], &shown.code),
        (_, None) => why_absent(reports[1], &shown.code),
    };
    let blind = absent_because.as_ref().is_some_and(|(_, blind)| *blind);
    let beyond_chance = match tested {
        Some(Change::Grown | Change::Shrunk) => Some(true),
        Some(Change::Alike | Change::OtherLoad) => Some(false),
        _ => None,
    };
    let change = match (a, b) {
        _ if blind => Change::NotComparable,
        (None, _) => Change::New,
        (_, None) => Change::Gone,
        (Some(_), Some(_)) => tested.unwrap_or(Change::InBoth),
    };
    FindingPair {
        code: shown.code.clone(),
        name: shown.name.clone(),
        change,
        beyond_chance,
        victim: shown.victim.clone(),
        device: shown.device.clone(),
        a: a.map(told),
        b: b.map(told),
        absent_because: absent_because.map(|(why, _)| why),
    }
}

fn told(finding: &Finding) -> Told {
    Told {
        severity: finding.severity,
        title: finding.title.clone(),
        lost_ns_per_s: finding.cost.lost_ns_per_s,
        share: finding.cost.share,
    }
}

/// Why a report does not have a finding, and whether that is for lack of data.
fn why_absent(report: &Report, code: &str) -> Option<(String, bool)> {
    let quiet = report.ruled_out.iter().find(|it| it.code == code);
    let blind = report.not_checked.iter().find(|it| it.code == code);
    match (quiet, blind) {
        (_, Some(blind)) => Some((blind.missing.join("; "), true)),
        (Some(quiet), None) => Some((quiet.closest.clone(), false)),
        // The rule found another victim.
        (None, None) => None,
    }
}

/// How the loss of a finding's victim changed, where its loss is one that was compared.
fn tested(shown: &Finding, a: Option<&Finding>, processes: &[ProcessPair]) -> Option<Change> {
    let losses: &[Loss] = match shown.code.as_str() {
        "SCH001" | "SCH003" => &[Loss::Queued, Loss::QueuedOrThrottled],
        "SCH002" | "SCH004" => &[Loss::Throttled, Loss::QueuedOrThrottled],
        "MEM001" | "MEM002" | "MEM003" => &[Loss::MemStall],
        "BLK001" | "BLK002" | "BLK003" | "BLK004" | "BLK005" | "BLK007" => {
            &[Loss::Sync, Loss::Requests, Loss::BlockIo]
        }
        "BLK006" => &[Loss::DirtyThrottle],
        _ => return None,
    };
    let is_victim = |pair: &&ProcessPair| {
        let in_a = a.is_some_and(|a| is_same(&a.victim, &pair.a.process, true));
        in_a || is_same(&shown.victim, &pair.b.process, true)
            || a.is_some() && is_same(&shown.victim, &pair.a.process, true)
    };
    let pair = processes.iter().find(is_victim)?;
    // Requests under way are a loss only where no thread is seen to wait for them.
    let weight = |it: &LossChange| (it.loss != Loss::Requests, it.a_ns_per_s.max(it.b_ns_per_s));
    let of_kind = pair.losses.iter().filter(|it| losses.contains(&it.loss));
    let leading = of_kind.max_by(|x, y| {
        let (x, y) = (weight(x), weight(y));
        x.0.cmp(&y.0).then(x.1.total_cmp(&y.1))
    });
    leading.map(|it| it.change)
}
