// SPDX-License-Identifier: Apache-2.0 OR MIT
//! BLK005: commits of a filesystem's journal stall processes.

use super::support::clocks::{self, COVER, Compared, LONG_COMMIT, chance};
use super::support::journals::Journal;
use super::support::victims::{STALL_LIMITS, Victim};
use super::support::{files, knobs, pass_lines, saturation};
use crate::finding::{
    Area, Cause, Confirm, Entity, EntityKind, Evidence, Finding, Question, Severity, Share, Unit,
};
use crate::recording::{DevId, IoPurpose, JournalCommit, Source, StallKind};
use crate::rules::confidence::Confidence;
use crate::rules::words::{self, evidence, group_name};
use crate::rules::{Check, Limit, Rule, Status, Verdict, severity};
use crate::stats::{self, median_length_ns};
use crate::text::units;
use crate::view::View;
use crate::view::block::stalls::{longest_ns, stall_ns};

const KINDS: [StallKind; 2] = [StallKind::Sync, StallKind::Request];
const MAX_VICTIMS: usize = 3;

const CHANCE: Limit = Limit {
    name: "chance",
    value: stats::SIGNIFICANT,
    unit: "at most, that as many stalls touch a commit by chance",
    why: "on loads without a clock the tests are wrong in at most 2 of 100 windows",
};
pub(in crate::rules) static RULE: Rule = Rule {
    code: "BLK005",
    area: Area::Block,
    question: Question::Disk,
    name: "journal-stall",
    summary: "syncs and changes of files wait for commits of the filesystem's journal",
    any_of: &[Source::Writeback],
    helps: &[Source::Block, Source::Settings],
    limits: &[&[CHANCE, LONG_COMMIT, COVER], &severity::LOSS_LIMITS, &STALL_LIMITS],
    status: Status::Preview("0.1"),
    doc: include_str!("journal_stall.md"),
    file: file!(),
    check: Check::Recording(check),
};

struct StalledVictim<'g> {
    victim: Victim<'g>,
    device: DevId,
    compared: Compared<'g>,
    severity: Option<Severity>,
    lost_ns: u64,
}

fn check(view: &View) -> Verdict {
    if view.block().commits().is_empty() {
        return Verdict::Quiet { closest: "no journal committed anything".into() };
    }
    let groups = view.groups();
    let mut hits: Vec<StalledVictim<'_>> = Vec::new();
    for victim in Victim::all(view, &groups) {
        hits.extend(
            victim.devices(view).into_iter().map(|device| hit(view, victim.clone(), device)),
        );
    }
    hits.sort_by_key(|hit| {
        (std::cmp::Reverse((hit.severity, hit.lost_ns)), hit.victim.at, hit.device)
    });
    let is_so = |hit: &&StalledVictim<'_>| hit.severity.is_some() && hit.compared.blames_commits();
    let findings: Vec<Finding> =
        hits.iter().filter(is_so).take(MAX_VICTIMS).map(|hit| finding(view, hit)).collect();
    if findings.is_empty() { quiet(view, hits.first()) } else { Verdict::Fired(findings) }
}

fn hit<'g>(view: &'g View, victim: Victim<'g>, device: DevId) -> StalledVictim<'g> {
    let stalls = victim.on_device(view, device, &KINDS);
    let compared = Compared::new(view, device, &stalls);
    let lost_ns = stall_ns(&compared.in_commits);
    let severity = victim.severity(view, lost_ns, longest_ns(&compared.in_commits));
    StalledVictim { victim, device, compared, severity, lost_ns }
}

fn longest_commit_ns(commits: &[&JournalCommit]) -> u64 {
    commits.iter().map(|it| it.t1_ns.saturating_sub(it.t0_ns)).max().unwrap_or(0)
}

fn median_ns(commits: &[&JournalCommit]) -> u64 {
    median_length_ns(commits.iter().map(|it| it.span()))
}

fn quiet(view: &View, nearest: Option<&StalledVictim<'_>>) -> Verdict {
    let commits = view.block().commits();
    let longest = commits.iter().map(|it| it.t1_ns.saturating_sub(it.t0_ns)).max().unwrap_or(0);
    let of = units::counted(commits.len() as u64, "commit", "commits");
    let Some(hit) = nearest.filter(|hit| hit.compared.commits.episodes > 0) else {
        let closest = format!(
            "{of}, the longest {}; no process stalled for 10 ms or more",
            units::duration(longest as f64)
        );
        return Verdict::Quiet { closest };
    };
    let found = &hit.compared.commits;
    let name = group_name(hit.victim.group);
    let whose = (name.as_str(), "a commit of the journal");
    if let Some(verdict) = clocks::without_pause(view, &hit.compared, found, whose) {
        return verdict;
    }
    if hit.severity.is_some()
        && !hit.compared.blames_passes()
        && let Some(missing) = clocks::may_be_chance(view, found, &name, "a commit of the journal")
    {
        return Verdict::NoData { missing: vec![missing] };
    }
    let closest = format!(
        "{} of {} of {name} fall into one of {of}; chance alone would do that with probability {}; the longest stall took {}",
        found.inside,
        units::counted(found.episodes, "stall", "stalls"),
        chance(found.p),
        units::duration(longest as f64)
    );
    Verdict::Quiet { closest }
}

fn finding(view: &View, hit: &StalledVictim<'_>) -> Finding {
    let StalledVictim { victim, device, compared, lost_ns, .. } = hit;
    let commits = view.block().commits_on(*device);
    let journal = Journal::of(view, *device);
    let longest = longest_ns(&compared.in_commits);
    let found = &compared.commits;
    let confidence = Confidence::of(view)
        .with("no chance", if compared.always_in_commits() { 0.7 } else { 1.0 - found.p })
        .with_samples(found.inside * 4);
    let mut lines = commit_lines(view, *device, compared);
    lines.extend(pass_lines::held_files(view, &compared.in_commits));
    lines.push(confidence.evidence(view));
    let mut kernel = Entity::new(EntityKind::Kernel);
    let kind = commits.first().map_or("journal", |commit| commit.kind.as_str());
    kernel.comm = Some(kind.to_owned());
    kernel.device = Some(view.block().device_name(*device));
    let main_kind = Victim::main_kind(&compared.in_commits);
    Finding {
        title: format!(
            "{} {} {}, up to {} at once, while {} ({} of {} stalls)",
            group_name(victim.group),
            words::verb(victim.group, "stalls", "stall"),
            words::of_every_second(view.per_second(*lost_ns)),
            units::duration(longest as f64),
            journal.works(&view.block().device_name(*device)),
            found.inside,
            found.episodes
        ),
        device: Some(view.block().device_name(*device)),
        victim: words::group_entity(view, victim.group),
        cost: victim.cost(view, *lost_ns, main_kind, longest),
        causes: vec![Cause { entity: kernel, share: Share::WHOLE }],
        evidence: lines,
        sizes: crate::view::waits::size_classes(&victim.held(main_kind).waits),
        files: files::table(view, "written", |key| {
            view.block().disk_of(key.device) == *device
                && key.reason.is_none()
                && key.what != IoPurpose::Flush
        }),
        fix: journal.fixes(view, *device),
        confirm: Some(Confirm {
            command: format!("deburr -d {}", 60),
            expect: Some(journal.expect()),
        }),
        ..RULE.finding(hit.severity.unwrap_or(Severity::Info), confidence.value())
    }
}

fn commit_lines(view: &View, device: DevId, compared: &Compared<'_>) -> Vec<Evidence> {
    let commits = view.block().commits_on(device);
    let longest_commit = longest_commit_ns(&commits);
    let found = &compared.commits;
    let label = Source::Writeback.label();
    let note = format!(
        "of {} fall into commits, which take {} of the time: chance alone would do that with probability {}",
        clocks::counted(found),
        units::share(found.cover),
        chance(found.p)
    );
    let mut lines = vec![evidence(
        view,
        "stalls inside commits",
        found.inside as f64,
        Unit::Count,
        label,
        note,
    )];
    let mut gaps: Vec<u64> =
        commits.windows(2).map(|pair| pair[1].t0_ns.saturating_sub(pair[0].t0_ns)).collect();
    gaps.sort_unstable();
    let every = gaps
        .get(gaps.len() / 2)
        .map_or(String::new(), |&ns| format!("every {}, ", pass_lines::seconds(ns)));
    let blocks: Vec<u64> = commits.iter().filter_map(|commit| commit.blocks).collect();
    let blocks = blocks
        .iter()
        .max()
        .map_or(String::new(), |&n| format!("; up to {}", units::counted(n, "block", "blocks")));
    let note = format!(
        "{every}half of them take less than {}, the longest {}{blocks}",
        units::duration(median_ns(&commits) as f64),
        units::duration(longest_commit as f64)
    );
    lines.push(evidence(view, "commits", commits.len() as f64, Unit::Count, label, note));
    let other = &compared.passes;
    let note = format!(
        "{} of the stalls fall into one, which chance alone would do with probability {}",
        other.inside,
        chance(other.p)
    );
    let passes = view.block().unasked_passes_over(device).len() as f64;
    lines.push(evidence(view, "passes of the flusher", passes, Unit::Count, label, note));
    let spans: Vec<_> = commits.iter().map(|it| it.span()).collect();
    lines.extend(saturation::line(view, device, &spans));
    lines.extend(saturation::latency_lines(view, device));
    lines.extend(knobs::lines(view, Some(device)));
    lines
}
