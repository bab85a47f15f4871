// SPDX-License-Identifier: Apache-2.0 OR MIT
//! BLK002: inodes that became dirty together are written back together, again and again.

use super::support::victims::{STALL_LIMITS, Victim};
use super::support::{files, knobs, pass_lines, saturation};
use crate::finding::{
    Area, Cause, Confirm, Cost, Entity, EntityKind, Evidence, Finding, Fix, Question, Severity,
    Share, Unit,
};
use crate::recording::{DevId, Source, Stall, StallKind, WritebackPass};
use crate::rules::confidence::Confidence;
use crate::rules::words::{self, evidence, group_name, ticked};
use crate::rules::{Check, Limit, Rule, Status, Verdict, severity};
use crate::stats::{merge, overlaps};
use crate::text::units;
use crate::view::block::stalls::{longest_ns, number, stall_ns};
use crate::view::{Groups, View};
use std::collections::BTreeSet;

const MIN_INODES: Limit = Limit {
    name: "min_inodes",
    value: 50.0,
    unit: "inodes that come back together",
    why: "fewer requests at once pass unnoticed",
};
const MIN_PART: Limit = Limit {
    name: "min_part",
    value: 0.5,
    unit: "of the inodes of a cohort's pass, written one expiry before",
    why: "with less, the pass writes mostly something else",
};

pub(in crate::rules) static RULE: Rule = Rule {
    code: "BLK002",
    area: Area::Block,
    question: Question::Disk,
    name: "writeback-cohort",
    summary: "inodes that were first dirtied together expire together and are written in one big burst each time",
    any_of: &[Source::Writeback],
    helps: &[Source::Block, Source::Settings],
    limits: &[&[MIN_INODES, MIN_PART], &severity::LOSS_LIMITS, &STALL_LIMITS],
    status: Status::Preview("0.1"),
    doc: include_str!("writeback_cohort.md"),
    file: file!(),
    check: Check::Recording(check),
};

/// The range of whole seconds between two writebacks of an inode that is dirtied all the time: it expires after
/// `expire_ns`, and the next pass of the flusher comes within its interval and the length of its passes (2 s are
/// allowed for that).
fn range_s(expire_ns: u64, interval_ns: u64) -> (u32, u32) {
    let second = |ns: u64| u32::try_from(ns / 1_000_000_000).unwrap_or(u32::MAX);
    (second(expire_ns), second(expire_ns.saturating_add(interval_ns)).saturating_add(2))
}

fn within(histogram: &[(u32, u32)], (from, to): (u32, u32)) -> u64 {
    let inside = histogram.iter().filter(|(seconds, _)| (from..=to).contains(seconds));
    inside.map(|&(_, inodes)| u64::from(inodes)).sum()
}

/// A cohort: inodes of a device that are written back together repeatedly.
struct Cohort<'v> {
    device: DevId,
    /// The passes that wrote the cohort: those in which it came back, and those one expiry before them.
    passes: Vec<&'v WritebackPass>,
    /// Number of passes in which it came back.
    returned: u64,
    /// Inodes that came back in the biggest of these passes.
    inodes: u64,
    /// Whole seconds since most of these were last written.
    after_s: u32,
}

fn check(view: &View) -> Verdict {
    if view.block().passes().is_empty() {
        return Verdict::Quiet { closest: "the flusher wrote nothing back".into() };
    }
    let Some(expire_ns) = knobs::expire_ns(view).filter(|&ns| ns > 0) else {
        let missing =
            "/proc/sys/vm/dirty_expire_centisecs: not read, so it is not known when inodes expire";
        return Verdict::NoData { missing: vec![missing.into()] };
    };
    let range = range_s(expire_ns, knobs::interval_ns(view).unwrap_or(0));
    let block = view.block();
    let devices: BTreeSet<DevId> =
        block.passes().iter().map(|pass| block.disk_of(pass.device)).collect();
    let mut cohorts: Vec<Cohort<'_>> =
        devices.iter().filter_map(|&device| cohort(view, device, range)).collect();
    cohorts.sort_by_key(|cohort| (std::cmp::Reverse(cohort.inodes), cohort.device));
    if !cohorts.is_empty() {
        let groups = view.groups();
        let of = |cohort| finding(view, &groups, cohort, expire_ns);
        return Verdict::Fired(cohorts.iter().map(of).collect());
    }
    quiet(view, range)
}

fn cohort(view: &View, device: DevId, range: (u32, u32)) -> Option<Cohort<'_>> {
    let again = |pass: &&WritebackPass| {
        let inodes = within(&pass.since_last, range);
        inodes as f64 >= MIN_INODES.value && inodes as f64 >= MIN_PART.value * pass.inodes as f64
    };
    let all = view.block().unasked_passes_over(device);
    let returned: Vec<_> = all.iter().filter(|pass| again(pass)).copied().collect();
    let biggest = returned.iter().max_by_key(|pass| within(&pass.since_last, range))?;
    let inodes = within(&biggest.since_last, range);
    let second = |s: u32| u64::from(s) * 1_000_000_000;
    // The pass that wrote them the time before, one expiry earlier.
    let before = |pass: &WritebackPass| {
        pass.inodes >= inodes / 2
            && returned.iter().any(|later| {
                let distance_ns = later.t0_ns.saturating_sub(pass.t0_ns);
                (second(range.0)..=second(range.1 + 1)).contains(&distance_ns)
            })
    };
    let passes: Vec<_> = all.iter().filter(|pass| again(pass) || before(pass)).copied().collect();
    let inside = biggest.since_last.iter().filter(|(s, _)| (range.0..=range.1).contains(s));
    let &(after_s, _) = inside.max_by_key(|(_, inodes)| inodes)?;
    Some(Cohort { device, inodes, after_s, returned: returned.len() as u64, passes })
}

/// The verdict without a cohort that came back: there is none, or the window ended too early.
fn quiet(view: &View, range: (u32, u32)) -> Verdict {
    let expired = |pass: &&WritebackPass| within(&pass.ages, (range.0, u32::MAX));
    let passes = view.block().passes();
    let Some(first) =
        passes.iter().filter(|pass| expired(pass) as f64 >= MIN_INODES.value).max_by_key(expired)
    else {
        let most = passes.iter().map(|pass| pass.inodes).max().unwrap_or(0);
        let closest = format!(
            "no pass wrote many inodes that had expired; the biggest wrote {}",
            units::counted(most, "inode", "inodes")
        );
        return Verdict::Quiet { closest };
    };
    let back_ns = first.t1_ns.saturating_add(u64::from(range.1) * 1_000_000_000);
    let inodes = units::counted(expired(&first), "expired inode", "expired inodes");
    let at = first.t0_ns as f64 / 1e9;
    if back_ns > view.window_ns() {
        let missing = format!(
            "a pass at {at:.1} s wrote {inodes}: whether they come back together needs {} more",
            units::duration((back_ns - view.window_ns()) as f64)
        );
        return Verdict::NoData { missing: vec![missing] };
    }
    let closest = format!(
        "a pass at {at:.1} s wrote {inodes}, which did not come back together within {} s",
        range.1
    );
    Verdict::Quiet { closest }
}

/// The victim that loses most in the cohort's passes, with its stalls in them.
fn sufferer<'g>(
    view: &'g View,
    groups: &'g Groups<'g>,
    cohort: &Cohort<'_>,
) -> Option<(Victim<'g>, Vec<&'g Stall>)> {
    let spans = cohort.passes.iter().map(|pass| pass.span()).collect();
    let spans = merge(spans, 0);
    let kinds = [StallKind::Sync, StallKind::Request];
    Victim::all(view, groups)
        .into_iter()
        .map(|victim| {
            let mut stalls = victim.on_device(view, cohort.device, &kinds);
            stalls.retain(|stall| overlaps(&spans, stall.span()));
            (victim, stalls)
        })
        .filter(|(_, stalls)| !stalls.is_empty())
        .max_by_key(|(victim, stalls)| (stall_ns(stalls), std::cmp::Reverse(victim.at)))
}

fn finding(view: &View, groups: &Groups<'_>, cohort: &Cohort<'_>, expire_ns: u64) -> Finding {
    let sufferer = sufferer(view, groups, cohort);
    let (lost_ns, longest) =
        sufferer.as_ref().map_or((0, 0), |(_, stalls)| (stall_ns(stalls), longest_ns(stalls)));
    let severity =
        sufferer.as_ref().and_then(|(victim, _)| victim.severity(view, lost_ns, longest));
    let severity = severity.unwrap_or(Severity::Info);
    let confidence = Confidence::of(view)
        .with_samples(cohort.inodes)
        .with("came back", if cohort.returned > 1 { 1.0 } else { 0.95 });
    let spans: Vec<_> = cohort.passes.iter().map(|pass| pass.span()).collect();
    let device = view.block().device_name(cohort.device);
    let mut lines = cohort_lines(view, cohort, expire_ns);
    lines.extend(pass_lines::dirtied(view, groups, cohort.device, &cohort.passes));
    if let Some((victim, stalls)) = &sufferer {
        let note = format!(
            "of {}, of any length, fall into these passes, the longest {}",
            group_name(victim.group),
            units::duration(longest as f64)
        );
        lines.push(evidence(
            view,
            "stalls",
            number(stalls) as f64,
            Unit::Count,
            Source::Writeback.label(),
            note,
        ));
    }
    lines.extend(saturation::line(view, cohort.device, &spans));
    lines.extend(knobs::lines(view, Some(cohort.device)));
    lines.push(confidence.evidence(view));
    let mut kernel = Entity::new(EntityKind::Device);
    kernel.device = Some(device.clone());
    let block = view.block();
    Finding {
        title: format!(
            "{} that were dirtied together are written together to {}, every {} s",
            units::counted(cohort.inodes, "inode", "inodes"),
            ticked(&device),
            cohort.after_s
        ),
        device: Some(device),
        victim: sufferer
            .as_ref()
            .map_or(kernel, |(victim, _)| words::group_entity(view, victim.group)),
        cost: sufferer.as_ref().map_or_else(Cost::default, |(victim, stalls)| {
            victim.cost(view, lost_ns, Victim::main_kind(stalls), longest)
        }),
        causes: causes(view),
        evidence: lines,
        files: files::table(view, "written back", |key| {
            block.disk_of(key.device) == cohort.device
                && key.reason.as_deref().is_some_and(|reason| reason != "sync")
        }),
        fix: fixes(expire_ns),
        confirm: Some(look_again(expire_ns)),
        ..RULE.finding(severity, confidence.value())
    }
}

fn cohort_lines(view: &View, cohort: &Cohort<'_>, expire_ns: u64) -> Vec<Evidence> {
    let label = Source::Writeback.label();
    let at: Vec<String> = cohort
        .passes
        .iter()
        .take(8)
        .map(|pass| format!("{:.1}", pass.t0_ns as f64 / 1e9))
        .collect();
    let biggest_inodes = cohort.passes.iter().map(|pass| pass.inodes).max().unwrap_or(0);
    let note = format!(
        "of {} in the pass were written {} s before: `vm.dirty_expire_centisecs` {} counts from the moment an inode \
         becomes dirty, and all of these did so right after the last pass",
        units::counted(biggest_inodes, "inode", "inodes"),
        cohort.after_s,
        expire_ns / 10_000_000
    );
    let length =
        cohort.passes.iter().map(|pass| pass.t1_ns.saturating_sub(pass.t0_ns)).max().unwrap_or(0);
    let ages = cohort.passes.iter().flat_map(|pass| &pass.ages);
    let oldest = ages.filter(|(_, inodes)| *inodes > 0).map(|(seconds, _)| *seconds).max();
    let mut lines = vec![
        evidence(view, "came back", cohort.inodes as f64, Unit::Count, label, note),
        evidence(
            view,
            "passes with the cohort",
            cohort.passes.len() as f64,
            Unit::Count,
            label,
            format!("at {} s, the longest {}", at.join(", "), units::duration(length as f64)),
        ),
    ];
    if let Some(oldest) = oldest {
        let note = "dirty before it was written, of the oldest inode: the expiry, and the wait for the next pass".to_owned();
        lines.push(evidence(view, "age", f64::from(oldest) * 1e9, Unit::Ns, label, note));
    }
    lines
}

fn causes(view: &View) -> Vec<Cause> {
    let note = "counts from the moment an inode becomes dirty";
    vec![knobs::cause(view, "/proc/sys/vm/dirty_expire_centisecs", Share::WHOLE, note)]
}

/// Another look, which changes nothing; and in words what would prove it, which changes a setting of the host.
fn look_again(expire_ns: u64) -> Confirm {
    let (centisecs, key) = (expire_ns / 10_000_000, "vm.dirty_expire_centisecs");
    let half = (centisecs / 2).max(100);
    // Two bursts at their distance.
    let seconds = (centisecs * 3 / 100 + 20).clamp(30, 600);
    Confirm {
        command: format!("deburr -d {seconds}"),
        expect: Some(format!(
            "the cohort comes back at the same distance. Proof, which changes the host for that time: with `{key}` at {half} \
             instead of {centisecs} it comes back after {} s and what is left of the flusher's interval; if its distance \
             stays, a job rewrites these files in that rhythm",
            half / 100
        )),
    }
}

fn fixes(expire_ns: u64) -> Vec<Fix> {
    let centisecs = expire_ns / 10_000_000;
    vec![
        Fix {
            action: "let the application sync these files at moments of its own, spread over time (`fdatasync` of some of them \
                     each second): that takes them out of the cohort"
                .into(),
            command: None,
            risk: Some("it waits for each; from a thread that nothing waits for".into()), expect: None,
        },
        Fix {
            action: "append to fewer files, or stagger the first writes: an inode that becomes dirty at another time stays apart"
                .into(),
            command: None,
            risk: Some("after a stop of everything (`sync`, a snapshot, a restart) they are together again".into()), expect: None,
        },
        Fix {
            action: format!("do not expect `vm.dirty_expire_centisecs` (now {centisecs}) to end it: it sets how rare and how big the burst is"),
            command: None,
            risk: Some("ten times as long means as big a burst or a bigger one, ten times as rarely, and more is lost when the \
                        power fails"
                .into()), expect: None,
        },
    ]
}
