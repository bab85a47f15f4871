// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decides from the facts whether the profile probe can be used. Pure.

use crate::facts::{Facts, Fields};

/// Fields without which the probe cannot work.
pub(crate) const NEEDED: &[Fields] =
    &[("task_struct", &["pid", "tgid", "flags", "group_leader", "start_boottime"])];

/// What to load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfilePlan(());

impl ProfilePlan {
    /// Decides what to load.
    ///
    /// # Errors
    /// Why the probe cannot be used, as a clause: the kernel or the privileges do not suffice.
    pub fn new(facts: &Facts) -> Result<Self, String> {
        facts.obstacle(NEEDED, &[]).map_or(Ok(Self(())), Err)
    }

    /// The program that is loaded.
    #[allow(clippy::unused_self, reason = "there is none without a plan")]
    pub(super) fn programs(&self) -> [&'static str; 1] {
        ["on_beat"]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::tests::kernel_with;

    #[test]
    fn no_tracepoint_is_needed_but_the_threads_must_be_known() {
        let mut facts = kernel_with(&[]);
        assert!(ProfilePlan::new(&facts).is_ok());
        facts.fields.remove(&("task_struct", "start_boottime"));
        assert!(ProfilePlan::new(&facts).unwrap_err().contains("start_boottime"));
        facts.privileged = false;
        assert!(ProfilePlan::new(&facts).unwrap_err().contains("root"));
    }
}
