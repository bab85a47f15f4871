// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which of the kernel's own clocks do stalls follow: the flusher's passes or the journal's commits?

use crate::recording::{DevId, Stall};
use crate::rules::{Limit, Verdict};
use crate::stats::{
    self, Coincidence, Span, coincidence_by_length, covered_ns, median_length_ns, merge, overlaps,
};
use crate::text::units;
use crate::view::View;
use crate::view::block::stalls::{longest_ns, spans, stall_ns};

pub(in crate::rules::block) const LONG_COMMIT: Limit = Limit {
    name: "long_commit",
    value: 10.0,
    unit: "ms that half of the commits take",
    why: "a journal that is always committing leaves no chance to compare with: then their length decides",
};
pub(in crate::rules::block) const COVER: Limit = Limit {
    name: "cover",
    value: 0.5,
    unit: "of the window within commits, together with `long_commit`",
    why: "below it, the comparison with chance decides",
};

/// If fewer than [`stats::MIN_EPISODES`] episodes take at least this share of the window, a longer window would only
/// hold more of the same.
const NO_PAUSE: f64 = 0.5;

/// The reason for `NoData`: stalls of `name` touch `work` (`"a pass of the flusher"`), too few to tell from chance, and
/// how much longer to record. `None` where that would not help.
pub(in crate::rules::block) fn may_be_chance(
    view: &View,
    found: &Coincidence,
    name: &str,
    work: &str,
) -> Option<String> {
    let more_ns = found.needs_ns(view.window_ns()).filter(|_| found.inside > 0)?;
    Some(format!(
        "{name} stalled {} in {work}, which may be chance: needs {} more",
        units::counted(found.inside, "time", "times"),
        units::duration(more_ns as f64)
    ))
}

/// The verdict if the stalls of `name` have no pause, so that a longer recording would not tell more: there are too few
/// episodes to compare, and they take most of the window. `found`: how they coincide with `work` (`"a pass of the
/// flusher"`).
pub(in crate::rules::block) fn without_pause(
    view: &View,
    compared: &Compared<'_>,
    found: &Coincidence,
    (name, work): (&str, &str),
) -> Option<Verdict> {
    let share = compared.held_ns as f64 / view.window_ns().max(1) as f64;
    if compared.all_episodes >= stats::MIN_EPISODES || share < NO_PAUSE {
        return None;
    }
    let share = units::share(share.min(1.0));
    let what = format!("the hold-ups of {name} have no pause of 500 ms in {share} of the window");
    Some(if found.all_inside == 0 {
        Verdict::Quiet { closest: format!("{what}, and none of them touches {work}") }
    } else {
        let why = "no moments without them to compare with, and looking longer may give none";
        Verdict::NoData { missing: vec![format!("{what}: there are {why}")] }
    })
}

/// A victim's stalls on a device, compared with passes and with commits.
#[derive(Clone, Debug)]
pub(in crate::rules::block) struct Compared<'v> {
    /// How the stalls coincide with the flusher's passes.
    pub(in crate::rules::block) passes: Coincidence,
    /// How the stalls coincide with the journal's commits.
    pub(in crate::rules::block) commits: Coincidence,
    /// The stalls that touch a pass.
    pub(in crate::rules::block) in_passes: Vec<&'v Stall>,
    /// The stalls that touch a commit.
    pub(in crate::rules::block) in_commits: Vec<&'v Stall>,
    passes_alone: Coincidence,
    commits_alone: Coincidence,
    always_committing: bool,
    /// Number of episodes: stalls within 500 ms of each other are one.
    all_episodes: u64,
    /// Time that the episodes cover, in nanoseconds.
    held_ns: u64,
}

impl<'v> Compared<'v> {
    pub(in crate::rules::block) fn new(view: &View, device: DevId, stalls: &[&'v Stall]) -> Self {
        let window_ns = view.window_ns();
        let block = view.block();
        let passes: Vec<_> =
            block.unasked_passes_over(device).iter().map(|pass| pass.span()).collect();
        let commits: Vec<_> = block.commits_on(device).iter().map(|it| it.span()).collect();
        let long = median_length_ns(commits.iter().copied()) as f64 >= LONG_COMMIT.value * 1e6;
        let (passes, commits) = (merge(passes, 0), merge(commits, 0));
        let touching = |of: &[Span], inside: bool| -> Vec<&'v Stall> {
            let touches = |stall: &Stall| overlaps(of, stall.span());
            stalls.iter().filter(|stall| touches(stall) == inside).copied().collect()
        };
        let compare =
            |stalls: &[&Stall], of: &[Span]| coincidence_by_length(&spans(stalls), of, window_ns);
        let cover = covered_ns(&commits) as f64 / window_ns.max(1) as f64;
        let episodes = stats::episodes(&spans(stalls));
        Self {
            all_episodes: episodes.len() as u64,
            held_ns: covered_ns(&episodes),
            always_committing: long && cover >= COVER.value,
            passes: compare(stalls, &passes),
            commits: compare(stalls, &commits),
            in_passes: touching(&passes, true),
            in_commits: touching(&commits, true),
            passes_alone: compare(&touching(&commits, false), &passes),
            commits_alone: compare(&touching(&passes, false), &commits),
        }
    }

    /// Whether the passes are the cause: they coincide more than by chance, and not merely as companions of commits.
    pub(in crate::rules::block) fn blames_passes(&self) -> bool {
        self.passes.is_sure()
            && (self.passes_alone.is_sure() || self.passes.all_inside >= self.commits.all_inside)
    }

    /// Whether the commits are the cause. Commits inside passes take long because of the passes.
    pub(in crate::rules::block) fn blames_commits(&self) -> bool {
        let more_than_chance = self.commits.is_sure()
            && (self.commits_alone.is_sure() || self.commits.all_inside > self.passes.all_inside);
        more_than_chance || self.always_in_commits()
    }

    /// Whether the journal commits for so much of the window that there is no chance to compare with, every stall
    /// touches a commit, and passes are not the cause.
    pub(in crate::rules::block) fn always_in_commits(&self) -> bool {
        self.always_committing
            && !self.in_commits.is_empty()
            && self.commits.inside == self.commits.episodes
            && !self.blames_passes()
    }

    /// Time lost in stalls that touch a pass, in nanoseconds.
    pub(in crate::rules::block) fn lost_in_passes_ns(&self) -> u64 {
        stall_ns(&self.in_passes)
    }

    /// Longest stall that touches a pass, in nanoseconds.
    pub(in crate::rules::block) fn longest_in_passes_ns(&self) -> u64 {
        longest_ns(&self.in_passes)
    }
}

/// What was counted, in words: `13 groups of stalls (less than 500 ms apart)`.
pub(in crate::rules::block) fn counted(found: &Coincidence) -> String {
    let groups = units::counted(found.episodes, "group", "groups");
    if found.longest_only {
        format!("the {groups} of stalls that hold most of the time")
    } else {
        format!("{groups} of stalls (less than 500 ms apart)")
    }
}

/// A probability in words: `30 %`, below 1 % `4e-9`.
pub(in crate::rules::block) fn chance(p: f64) -> String {
    if p >= 0.01 {
        format!("{:.0} %", p * 100.0)
    } else if p > 0.0 {
        format!("{p:.0e}")
    } else {
        "below 1e-300".into()
    }
}
