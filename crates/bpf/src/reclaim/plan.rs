// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decides from the facts which programs of the reclaim probe are loaded, or why it cannot be used. Pure.

use crate::facts::{Facts, Fields};

/// Fields without which the probe cannot work.
pub(crate) const NEEDED: &[Fields] =
    &[("task_struct", &["pid", "tgid", "flags", "group_leader", "start_boottime"])];

/// Fields without which it is not known whose limit makes a thread reclaim.
pub(crate) const OF_BOUNDS: &[Fields] = &[
    ("css_set", &["subsys"]),
    ("mem_cgroup", &["css", "memory"]),
    ("page_counter", &["usage", "max", "parent"]),
];

/// What to load: each hook is used where the kernel has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReclaimPlan {
    /// Number of arguments of the hook where a thread begins to reclaim at the limit of a cgroup; `None` = such reclaim is
    /// not reported.
    pub limit_args: Option<u32>,
    /// It is known whose limit.
    pub bounds: bool,
    /// Direct reclaim for the host is reported.
    pub direct: bool,
    /// Compaction is reported.
    pub compaction: bool,
}

impl ReclaimPlan {
    /// Decides what to load.
    ///
    /// # Errors
    /// Why the probe cannot be used, as a clause: the kernel or the privileges do not suffice.
    pub fn new(facts: &Facts) -> Result<Self, String> {
        if let Some(obstacle) = facts.obstacle(NEEDED, &[]) {
            return Err(obstacle);
        }
        let known = |name, counts: &[u32]| facts.arguments(name).filter(|it| counts.contains(it));
        let ends = |name| known(name, &[1, 2]).is_some();
        // The arguments of compaction differ between kernels, and none is read.
        let both = |begin, end| facts.arguments(begin).and(facts.arguments(end)).is_some();
        let plan = Self {
            limit_args: known("mm_vmscan_memcg_reclaim_begin", &[2, 3])
                .filter(|_| ends("mm_vmscan_memcg_reclaim_end")),
            bounds: facts.missing(OF_BOUNDS).is_empty(),
            direct: facts.arguments("mm_vmscan_direct_reclaim_begin").is_some()
                && ends("mm_vmscan_direct_reclaim_end"),
            compaction: both("mm_compaction_begin", "mm_compaction_end"),
        };
        if plan.programs().is_empty() {
            return Err("this kernel's type information lacks the tracepoints of reclaim".into());
        }
        Ok(plan)
    }

    /// What this kernel does not tell, as parts of a sentence.
    #[must_use]
    pub fn gaps(&self) -> Vec<&'static str> {
        let all = [
            (self.limit_args.is_none(), "this kernel does not tell of reclaim at a cgroup's limit"),
            (
                self.limit_args.is_some() && !self.bounds,
                "whose limit makes a thread reclaim is not known: this kernel's memory cgroups have unknown fields",
            ),
            (!self.direct, "this kernel does not tell of direct reclaim"),
            (!self.compaction, "this kernel does not tell of compaction"),
        ];
        all.into_iter().filter(|(lacks, _)| *lacks).map(|(_, words)| words).collect()
    }

    /// The programs that are loaded and attached. The beginnings are attached first: an end without one is counted.
    pub(super) fn programs(&self) -> Vec<&'static str> {
        let all = [
            (self.limit_args == Some(2), "on_limit_began_2"),
            (self.limit_args == Some(3), "on_limit_began_3"),
            (self.direct, "on_direct_began"),
            (self.compaction, "on_compaction_began"),
            (self.limit_args.is_some(), "on_limit_ended"),
            (self.direct, "on_direct_ended"),
            (self.compaction, "on_compaction_ended"),
        ];
        all.into_iter().filter(|(loaded, _)| *loaded).map(|(_, name)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::tests::kernel_with;

    const LIMIT: [(&str, u32); 2] =
        [("mm_vmscan_memcg_reclaim_begin", 2), ("mm_vmscan_memcg_reclaim_end", 1)];

    #[test]
    fn each_kind_is_told_where_both_ends_are() {
        let hooks = [LIMIT[0], LIMIT[1], ("mm_compaction_begin", 5)];
        let plan = ReclaimPlan::new(&kernel_with(&hooks)).unwrap();
        assert_eq!((plan.limit_args, plan.bounds), (Some(2), true));
        assert!(!plan.direct && !plan.compaction, "one end is not enough");
        assert_eq!(plan.programs(), ["on_limit_began_2", "on_limit_ended"]);
        assert_eq!(plan.gaps().len(), 2);
    }

    #[test]
    fn where_the_kernel_names_the_cgroup_it_is_not_searched() {
        let hooks = [("mm_vmscan_memcg_reclaim_begin", 3), ("mm_vmscan_memcg_reclaim_end", 2)];
        let plan = ReclaimPlan::new(&kernel_with(&hooks)).unwrap();
        assert!(plan.programs().contains(&"on_limit_began_3"));
        let strange = [("mm_vmscan_memcg_reclaim_begin", 4), LIMIT[1], ("mm_compaction_begin", 4)];
        assert!(ReclaimPlan::new(&kernel_with(&strange)).unwrap_err().contains("tracepoints"));
    }

    #[test]
    fn without_the_fields_of_cgroups_the_time_is_told_all_the_same() {
        let mut facts = kernel_with(&LIMIT);
        facts.fields.remove(&("page_counter", "parent"));
        let plan = ReclaimPlan::new(&facts).unwrap();
        assert!(plan.limit_args.is_some() && !plan.bounds);
        assert!(plan.gaps()[0].contains("whose limit"), "{:?}", plan.gaps());
    }
}
