// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Do the stalls follow a clock of the kernel's writeback? It gets other intervals, and the stalls must come as often.

use crate::prove::experiment::{self, Experiment, PERIODS, Test, settle_seconds};
use crate::prove::measure::Measure;
use crate::view::View;

/// A clock of writeback: its setting and where the view has its value.
pub(super) struct Clock {
    setting: &'static str,
    file: &'static str,
    what: &'static str,
    risk: &'static str,
}

/// How often the flusher wakes.
pub(super) const WAKES: Clock = Clock {
    setting: experiment::WAKES,
    file: "/proc/sys/vm/dirty_writeback_centisecs",
    what: "the flusher wakes",
    risk: "holds for the whole host: data reach the disk up to this much later or earlier",
};
/// When dirty inodes expire.
pub(super) const EXPIRES: Clock = Clock {
    setting: experiment::EXPIRES,
    file: "/proc/sys/vm/dirty_expire_centisecs",
    what: "inodes that were dirtied together expire",
    risk: "holds for the whole host: data reach the disk up to this much later or earlier",
};
/// When they expire unless it is set, in centiseconds.
const DEFAULT_EXPIRE: u64 = 3000;
/// The unit of both.
const CENTISECOND_NS: u64 = 10_000_000;

pub(super) fn all(view: &View, clock: Clock) -> Vec<Experiment> {
    let value = |file| view.block().setting(file)?.trim().parse::<u64>().ok();
    let Some(now) = value(clock.file).filter(|now| *now > 0) else { return vec![] };
    let expire = value(EXPIRES.file).unwrap_or(DEFAULT_EXPIRE);
    vec![Experiment {
        code: None,
        lever: "interval".into(),
        hypothesis: format!("stalls come when {}: `{}`", clock.what, clock.setting),
        measure: Measure::StallPeriod,
        test: Test::follows(clock.setting, CENTISECOND_NS, now),
        risk: clock.risk.into(),
        block_seconds: now as f64 / 100.0 * PERIODS,
        settle_seconds: settle_seconds(clock.setting, expire),
    }]
}
