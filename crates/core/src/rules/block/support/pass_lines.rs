// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Evidence lines for a claim about the flusher's passes.

use super::clocks::{self, Compared, chance};
use super::journals::Journal;
use super::{files, knobs};
use crate::finding::{Evidence, Unit};
use crate::recording::{DevId, FileId, IoPurpose, Source, Stall, WritebackPass};
use crate::rules::words::{evidence, ticked};
use crate::stats::{Clock, Rhythm, grid, median_length_ns, rhythm};
use crate::text::units;
use crate::view::block::IoKey;
use crate::view::{Groups, View};
use std::collections::BTreeMap;

/// Maximum number of files with stalls that are listed.
const HELD_FILES: usize = 3;
/// Maximum number of passes whose times are listed.
const SHOWN: usize = 12;

/// Whether the passes that a timer starts (`periodic`) follow the flusher's clock: the interval, plus the length of a
/// pass.
pub(in crate::rules::block) fn rhythm_of(view: &View, passes: &[&WritebackPass]) -> Rhythm {
    let timed: Vec<&WritebackPass> =
        passes.iter().filter(|pass| pass.reason == "periodic").copied().collect();
    let at: Vec<u64> = timed.iter().map(|pass| pass.t0_ns).collect();
    rhythm(&at, view.window_ns(), &clock(view, median_ns(&timed)))
}

/// The flusher's clock if its interval is known, else all clocks that the window can show.
pub(in crate::rules::block) fn clock(view: &View, pass_ns: u64) -> Vec<Clock> {
    match knobs::interval_ns(view) {
        Some(interval_ns) => {
            let late = Clock::every(interval_ns.saturating_add(pass_ns));
            vec![Clock { to_ns: late.to_ns, ..Clock::every(interval_ns) }]
        }
        None => grid(view.window_ns()),
    }
}

/// Median length of passes.
fn median_ns(passes: &[&WritebackPass]) -> u64 {
    median_length_ns(passes.iter().map(|pass| pass.span()))
}

/// The period of the passes, and the setting that it follows from.
pub(in crate::rules::block) fn period(
    view: &View,
    rhythm: &Rhythm,
    passes: &[&WritebackPass],
) -> Option<Evidence> {
    let Rhythm::Found { period_ns, pairs, expected, p } = *rhythm else { return None };
    let link = match knobs::interval_ns(view) {
        Some(interval_ns) => format!(
            "`vm.dirty_writeback_centisecs` is {}: it sleeps {} after each pass, and passes take {}",
            interval_ns / 10_000_000,
            units::duration(interval_ns as f64),
            units::duration(median_ns(passes) as f64)
        ),
        None => "the setting of the flusher's interval could not be read".into(),
    };
    let note = format!(
        "{link}; {pairs} passes are followed by another at that distance where chance alone would give {expected:.1} (probability {})",
        chance(p)
    );
    let label = Source::Writeback.label();
    Some(evidence(view, "period of the passes", period_ns as f64, Unit::Ns, label, note))
}

/// Number, times, lengths and inodes of the passes.
pub(in crate::rules::block) fn passes(view: &View, passes: &[&WritebackPass]) -> Evidence {
    let at: Vec<String> =
        passes.iter().take(SHOWN).map(|pass| format!("{:.1}", pass.t0_ns as f64 / 1e9)).collect();
    let more = if passes.len() > SHOWN { ", ..." } else { "" };
    let longest_ns =
        passes.iter().map(|pass| pass.t1_ns.saturating_sub(pass.t0_ns)).max().unwrap_or(0);
    let inodes = passes.iter().map(|pass| pass.inodes).max().unwrap_or(0);
    let note = format!(
        "at {}{more} s; half of them take less than {}, the longest {}; up to {} in one",
        at.join(", "),
        units::duration(median_ns(passes) as f64),
        units::duration(longest_ns as f64),
        units::counted(inodes, "inode", "inodes")
    );
    evidence(
        view,
        "passes of the flusher",
        passes.len() as f64,
        Unit::Count,
        Source::Writeback.label(),
        note,
    )
}

/// How the victim's stalls coincide with the passes.
pub(in crate::rules::block) fn coincidence(view: &View, compared: &Compared<'_>) -> Evidence {
    let found = &compared.passes;
    let note = format!(
        "of {} fall into passes, which take {} of the time: chance alone would do that with probability {}",
        clocks::counted(found),
        units::share(found.cover),
        chance(found.p)
    );
    let label = Source::Writeback.label();
    evidence(view, "stalls inside passes", found.inside as f64, Unit::Count, label, note)
}

/// The journal's commits, whose interval is often as long as the flusher's, and how the stalls coincide with them.
pub(in crate::rules::block) fn journal(
    view: &View,
    device: DevId,
    compared: &Compared<'_>,
) -> Evidence {
    let commits = view.block().commits_on(device);
    let label = Source::Writeback.label();
    let found = &compared.commits;
    let note = if commits.is_empty() {
        "none was seen: a journal is not the reason".to_owned()
    } else {
        let mut gaps: Vec<u64> =
            commits.windows(2).map(|pair| pair[1].t0_ns.saturating_sub(pair[0].t0_ns)).collect();
        gaps.sort_unstable();
        let every = gaps
            .get(gaps.len() / 2)
            .map_or(String::new(), |&ns| format!(", every {}", seconds(ns)));
        let verdict = if compared.blames_commits() {
            "they hold it up too, see BLK005"
        } else {
            "another clock, and not the reason"
        };
        let own = Journal::of(view, device)
            .interval_ns(view, device)
            .map_or(String::new(), |ns| format!(" (`commit=` is {})", units::duration(ns as f64)));
        format!(
            "commits{every}{own}; {} of {} fall into one, which chance alone would do with probability {}: {verdict}",
            found.inside,
            clocks::counted(found),
            chance(found.p)
        )
    };
    evidence(view, "the journal", commits.len() as f64, Unit::Count, label, note)
}

/// The files that the stalled threads synced, read or wrote, where they are known, with shares of the stall time; most
/// time first.
pub(in crate::rules::block) fn held_files(view: &View, stalls: &[&Stall]) -> Option<Evidence> {
    let mut by_file: BTreeMap<FileId, u64> = BTreeMap::new();
    let mut known_ns = 0u64;
    for stall in stalls {
        let ns = stall.of_all_ns();
        if let Some(file) = stall.file {
            let sum = by_file.entry(file).or_default();
            *sum = sum.saturating_add(ns);
            known_ns = known_ns.saturating_add(ns);
        }
    }
    let mut files: Vec<(String, u64)> = by_file
        .into_iter()
        .filter_map(|(file, ns)| Some((view.block().path(IoPurpose::File(file))?, ns)))
        .collect();
    files.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let names: Vec<String> = files
        .iter()
        .take(HELD_FILES)
        .map(|(path, ns)| {
            format!("{} {}", ticked(path), units::share(*ns as f64 / known_ns.max(1) as f64))
        })
        .collect();
    (!names.is_empty()).then(|| {
        let note = format!("{} of the time of the stalls whose file is known", names.join(", "));
        evidence(view, "stalled at", 0.0, Unit::Text, Source::Writeback.label(), note)
    })
}

/// Which groups made the inodes dirty, in all and by file pattern.
pub(in crate::rules::block) fn dirtied(
    view: &View,
    groups: &Groups<'_>,
    device: DevId,
    passes: &[&WritebackPass],
) -> Option<Evidence> {
    let (names, known) = files::dirtiers(groups, passes)?;
    let written = |key: &IoKey| view.block().disk_of(key.device) == device && key.reason.is_some();
    let patterns = files::dirtied_patterns(view, groups, written);
    let mut note = format!("{names}; known of {} of the inodes", units::share(known));
    if !patterns.is_empty() {
        note += &format!("; {}", patterns.join("; "));
    }
    Some(evidence(view, "dirtied by", 0.0, Unit::Text, Source::Writeback.label(), note))
}

/// A period in seconds with one decimal, which is enough to tell clocks apart.
pub(in crate::rules::block) fn seconds(ns: u64) -> String {
    format!("{:.1} s", ns as f64 / 1e9)
}
