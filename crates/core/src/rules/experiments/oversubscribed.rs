// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Is it the number of threads that has the victim stopped by its quota? Its program is started anew for each block, with
//! that number and with the one that fits.

use super::{group_of, lowers};
use crate::finding::{Entity, Finding};
use crate::prove::experiment::Experiment;
use crate::prove::measure::Measure;
use crate::rules::sched::oversized::number_that_fits;
use crate::rules::words::group_name;
use crate::text::shell_quote;
use crate::view::View;

/// The code of the findings.
pub(super) const CODE: &str = "SCH004";
/// Part of the lost time that must go with the number that fits. Throttled time is a sum over threads, and one that a runtime
/// has besides may be throttled along with the one that has work: with one busy goroutine on 32 threads, where the number is
/// not the cause, up to a third of it went.
const LEAST: f64 = 0.5;

pub(super) fn all(view: &View, finding: &Finding) -> Vec<Experiment> {
    let groups = view.groups();
    let Some(victim) = group_of(view, groups.list(), &finding.victim) else { return vec![] };
    let at = groups.list().iter().position(|group| std::ptr::eq(group, victim));
    let Some(number) = at.and_then(|at| number_that_fits(view, at, victim)) else {
        return vec![];
    };
    let (measure, loss) = match number.by_quota {
        true => (Measure::Throttled, "it is throttled"),
        false => (Measure::Queued, "its threads wait for each other"),
    };
    let (name, value) = number.variable;
    vec![lowers(
        "restart",
        format!("{} {}, and {loss} because of that", group_name(victim), number.now),
        measure,
        (vec![format!("env:{name}={value}")], LEAST),
        "what the command does, it does again in each block; fewer threads may leave more to wait inside the program, which \
         is not measured here",
    )]
}

/// The command that makes the experiment: how the victim is started is not known, only where.
pub(super) fn command(victim: &Entity) -> String {
    let place = victim.cgroup.as_ref().map(|path| format!(" --cgroup={}", shell_quote(path)));
    format!("sudo deburr prove {CODE}{} -- COMMAND", place.unwrap_or_default())
}
