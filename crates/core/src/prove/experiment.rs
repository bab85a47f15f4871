// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an experiment changes, what it measures, and what its hypothesis predicts. All of it is fixed before the first
//! block.

use super::knob::Knob;
use super::measure::Measure;
use serde::{Deserialize, Serialize};

/// A hypothesis and how it is put to the test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// Code of the finding that it is about; absent for one that a user made up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// What is changed, in one word: to choose between the experiments for a finding.
    pub lever: String,
    /// What is believed to be the cause, as a sentence without a period.
    pub hypothesis: String,
    /// What decides.
    pub measure: Measure,
    /// What is changed, and what must follow if the hypothesis is true.
    pub test: Test,
    /// What may happen meanwhile, as a sentence without a period.
    pub risk: String,
    /// Length of a block, in seconds.
    pub block_seconds: f64,
    /// Time from a change to the block that it is for, in seconds.
    pub settle_seconds: f64,
}

impl Experiment {
    /// Whether it changes settings of a command, which is then started anew for each block.
    #[must_use]
    pub fn starts_command(&self) -> bool {
        let Test::Lowers { set, .. } = &self.test else { return false };
        let knobs = set.iter().filter_map(|text| Knob::parse(text).ok());
        knobs.into_iter().any(|knob| knob.lever().kind.is_of_command())
    }
}

/// The two kinds of experiments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Test {
    /// In some blocks all of these hold, as for `--set`: the measure must be lower there.
    Lowers {
        /// The changes.
        set: Vec<String>,
        /// By which part of the baseline at least, 0..1. Less is not the cause.
        least_part: f64,
    },
    /// Each block has another value of a setting, and the measure must be as long as that.
    Follows {
        /// The setting, as for `--set`, without its value.
        setting: String,
        /// Length that 1 means, in nanoseconds.
        unit_ns: u64,
        /// The values, the present one among them.
        values: Vec<u64>,
    },
}

/// Values of a clock's setting, in parts of the present one. No two of them are near a multiple of one another, so that a
/// period that stays what it was is not taken for one that follows: they are powers of the fifth root of 4, which is as far
/// as possible from 2 in two steps and in three.
pub const FACTORS: [f64; 4] = [1.0, 0.758, 1.32, 1.741];
/// Periods in a block: fewer leave too much to chance.
pub const PERIODS: f64 = 7.0;
/// Time from a change to the block that it is for, in seconds, unless the change needs longer to have its effect.
pub const SETTLE_SECONDS: f64 = 1.0;
/// The setting of how often the flusher wakes.
pub const WAKES: &str = "vm.dirty_writeback_centisecs";
/// The setting of when dirty inodes expire.
pub const EXPIRES: &str = "vm.dirty_expire_centisecs";

/// How long writeback takes until it goes on as usual after a clock was set, in seconds. When the interval of the flusher
/// changes, the kernel has it write all that is dirty at once (`dirty_writeback_centisecs_handler`), and then nothing is due
/// until it expires. `expire_centisecs` is when that is.
#[must_use]
pub fn settle_seconds(setting: &str, expire_centisecs: u64) -> f64 {
    let due = if setting == WAKES { expire_centisecs as f64 / 100.0 } else { 0.0 };
    SETTLE_SECONDS + due
}

impl Test {
    /// That a measure follows the clock of a setting, which is `now`.
    #[must_use]
    pub fn follows(setting: &str, unit_ns: u64, now: u64) -> Self {
        let value = |factor: f64| ((now as f64 * factor).round() as u64).max(1);
        Self::Follows { setting: setting.into(), unit_ns, values: FACTORS.map(value).into() }
    }
}
