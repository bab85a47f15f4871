// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Do requests wait because of what another process asks of the device? That process is stopped for most of each second.

use super::{culprit, lowers};
use crate::finding::Finding;
use crate::prove::experiment::Experiment;
use crate::prove::measure::Measure;
use crate::rules::words::group_name;
use crate::view::View;

/// Part of what a culprit causes that must go while it is stopped for most of the time.
const LEAST: f64 = 0.4;

pub(super) fn all(view: &View, finding: &Finding) -> Vec<Experiment> {
    let groups = view.groups();
    let Some((worst, share, pids)) = culprit(view, groups.list(), finding) else { return vec![] };
    vec![lowers(
        "pause",
        format!("requests wait because the device works for {}", group_name(worst)),
        Measure::BlockIo,
        (pids.iter().map(|pid| format!("pause:{pid}=90%")).collect(), LEAST * share),
        "what is paused does nothing for most of each second of a changed block; locks that it holds stay held",
    )]
}
