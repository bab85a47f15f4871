// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether a victim may wait for its own budget and not for a CPU. The kernel stops a `SCHED_DEADLINE` thread that used
//! up the runtime of its period, and real-time threads that together used up theirs (`sched_rt_runtime_us`,
//! `cpu.rt_runtime_us`). Its account of waiting does not tell that apart: whoever runs meanwhile looks like the reason.

use super::blame::Blame;
use crate::finding::{Cause, Evidence, Fix, Unit};
use crate::recording::{SchedPolicy, Scheduling, Source};
use crate::rules::remedy;
use crate::rules::words::evidence;
use crate::view::{Group, View};

/// A victim that may be stopped by its own budget.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnBudget<'g> {
    kind: &'g Scheduling,
}

impl<'g> OwnBudget<'g> {
    /// `None` if nothing says so. A deadline thread waits for nobody but other deadline threads, a real-time thread only
    /// for those that are real-time, too: if an ordinary one ran meanwhile, the victim was not allowed to.
    pub(super) fn of(group: &Group<'g>, blame: &Blame<'_>) -> Option<Self> {
        let kind = remedy::real_time(group)?;
        let worst = blame.worst_other();
        let is_ordinary = worst.as_ref().is_some_and(|worst| {
            let known = worst.group.members.iter().any(|(_, it)| !it.scheduling.is_empty());
            known && remedy::real_time(worst.group).is_none()
        });
        (kind.policy == SchedPolicy::Deadline || is_ordinary).then_some(Self { kind })
    }

    /// The causes, with the doubt about them if there is one.
    pub(super) fn doubt(budget: Option<Self>, mut causes: Vec<Cause>) -> Vec<Cause> {
        if budget.is_some() {
            for cause in causes.iter_mut().filter(|cause| cause.entity.note.is_none()) {
                cause.entity.note = Some("ran meanwhile, and may not be in its way".into());
            }
        }
        causes
    }

    /// The remedies, which promise nothing if there is a doubt.
    pub(super) fn unpromised(budget: Option<Self>, mut fixes: Vec<Fix>) -> Vec<Fix> {
        if budget.is_some() {
            fixes.iter_mut().for_each(|fix| fix.expect = None);
        }
        fixes
    }

    /// What it may wait for, as the rest of a sentence.
    pub(super) fn words(self) -> String {
        format!("its own budget ({})", self.policy())
    }

    fn policy(self) -> String {
        self.kind.shown().unwrap_or_default()
    }

    /// The evidence line.
    pub(super) fn line(self, view: &View) -> Evidence {
        let whose = match self.kind.policy {
            SchedPolicy::Deadline => "the runtime of its period",
            _ => "the time that real-time threads have in each period",
        };
        let note = format!(
            "{}: once {whose} is used up, the kernel stops it until the next one, and that time counts as waiting here; hence a \
             level less severe",
            self.policy()
        );
        evidence(view, "own budget", 0.0, Unit::Text, Source::Sched.label(), note)
    }
}
