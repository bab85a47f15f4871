// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The effective CPU limit of a process: the tightest of the quotas of its cgroup and its ancestors, and of the number
//! of CPUs that it may run on.

use serde::Serialize;

/// A level of the cgroup tree with a quota.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QuotaLevel {
    /// Path of the cgroup in the tree.
    pub path: String,
    /// CPU time in each period, in microseconds.
    pub quota_us: u64,
    /// Length of a period, in microseconds.
    pub period_us: u64,
    /// Unused quota that may be accumulated, in microseconds; `None` if the kernel does not support it.
    pub burst_us: Option<u64>,
}

impl QuotaLevel {
    /// Limit in CPUs: quota / period.
    #[must_use]
    pub fn cpus(&self) -> f64 {
        self.quota_us as f64 / self.period_us.max(1) as f64
    }
}

/// Which ancestors of a process's cgroup are visible.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "sight", content = "reason")]
pub enum AncestorVisibility {
    /// All levels, up to the root of the tree.
    Whole,
    /// Only the lower levels: a level above may be tighter. Holds the reason.
    Part(String),
    /// No level. Holds the reason.
    None(String),
}

/// Inputs of [`effective`]: everything that may limit a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct LimitInputs<'a> {
    /// Levels with a quota, the process's own cgroup first.
    pub levels: &'a [QuotaLevel],
    /// Online CPUs; `None` if not known.
    pub online: Option<&'a [u32]>,
    /// CPUs that the affinity mask allows; `None` if not known.
    pub affinity: Option<&'a [u32]>,
    /// CPUs of the cpuset; `None` if not known.
    pub cpuset: Option<&'a [u32]>,
}

/// Source of a CPU limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitSource {
    /// The quota of a cgroup.
    Quota,
    /// The cpuset of a cgroup.
    Cpuset,
    /// The affinity mask.
    Affinity,
    /// Only the number of online CPUs.
    Online,
}

/// The effective CPU limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effective {
    /// Limit in CPUs.
    pub cpus: f64,
    /// Source of the limit.
    pub bound: LimitSource,
    /// Index of the level with the tightest quota. It is the limit only if `bound` is [`Bound::Quota`].
    pub level: Option<usize>,
    /// Number of CPUs that the process may run on.
    pub allowed: u32,
}

/// Computes the effective CPU limit; `None` if no set of CPUs is known.
#[must_use]
pub fn effective(given: LimitInputs<'_>) -> Option<Effective> {
    let sets = [
        (LimitSource::Online, given.online),
        (LimitSource::Cpuset, given.cpuset.filter(|cpus| !cpus.is_empty())),
        (LimitSource::Affinity, given.affinity.filter(|cpus| !cpus.is_empty())),
    ];
    let mut allowed: Option<Vec<u32>> = None;
    let mut bound = LimitSource::Online;
    for (kind, cpus) in sets {
        let Some(cpus) = cpus else { continue };
        let left: Vec<u32> = match &allowed {
            Some(before) => before.iter().copied().filter(|cpu| cpus.contains(cpu)).collect(),
            None => cpus.to_vec(),
        };
        // A mask may contain only CPUs that are offline by now. The kernel then uses other CPUs, and the mask limits
        // nothing.
        let tighter = allowed.as_ref().is_none_or(|before| left.len() < before.len());
        if tighter && !left.is_empty() {
            (allowed, bound) = (Some(left), kind);
        }
    }
    let allowed = allowed?.len() as u32;
    let tightest = |(a, _): &(f64, usize), (b, _): &(f64, usize)| a.total_cmp(b);
    let quotas = given.levels.iter().enumerate().map(|(index, level)| (level.cpus(), index));
    let quota = quotas.min_by(tightest);
    let effective = Effective {
        cpus: f64::from(allowed),
        bound,
        level: quota.map(|(_, index)| index),
        allowed,
    };
    Some(match quota {
        Some((cpus, _)) if cpus < effective.cpus => {
            Effective { cpus, bound: LimitSource::Quota, ..effective }
        }
        _ => effective,
    })
}

/// Number of threads that can run at the same time under a limit in CPUs: the limit, rounded up.
#[must_use]
pub fn fitting_threads(cpus: f64) -> u32 {
    // The cast saturates; a limit is at most some thousand CPUs.
    (cpus - 1e-9).ceil().max(1.0) as u32
}

/// Largest number of threads that is not reported as too many: [`fitting_threads`], but at least two, so that a thread
/// can wake up while another one runs.
#[must_use]
pub fn tolerated_threads(cpus: f64) -> u32 {
    fitting_threads(cpus).max(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn level(path: &str, quota_us: u64) -> QuotaLevel {
        QuotaLevel { path: path.into(), quota_us, period_us: 100_000, burst_us: Some(0) }
    }

    #[test]
    fn the_tightest_of_all_levels_binds() {
        let levels = [level("/pod/app", 500_000), level("/pod", 250_000), level("/", 900_000)];
        let online: Vec<u32> = (0..8).collect();
        let given =
            LimitInputs { levels: &levels, online: Some(&online), ..LimitInputs::default() };
        let found = effective(given).unwrap();
        assert_eq!((found.cpus, found.bound, found.level), (2.5, LimitSource::Quota, Some(1)));
        let pinned = effective(LimitInputs { affinity: Some(&[2, 3]), ..given }).unwrap();
        assert_eq!(
            (pinned.cpus, pinned.bound, pinned.level),
            (2.0, LimitSource::Affinity, Some(1))
        );
        let set = effective(LimitInputs {
            cpuset: Some(&[2, 3]),
            affinity: Some(&[0, 1, 2, 3]),
            ..given
        });
        assert_eq!(set.map(|set| (set.bound, set.allowed)), Some((LimitSource::Cpuset, 2)));
    }

    #[test]
    fn what_is_not_there_binds_nothing() {
        assert_eq!(effective(LimitInputs::default()), None);
        let online = [0, 1];
        let gone = LimitInputs {
            online: Some(&online),
            affinity: Some(&[7]),
            cpuset: Some(&[]),
            ..LimitInputs::default()
        };
        let found = effective(gone).unwrap();
        assert_eq!((found.cpus, found.bound, found.level), (2.0, LimitSource::Online, None));
    }

    #[test]
    fn two_threads_are_never_too_many() {
        for (cpus, fit, tolerated) in
            [(0.25, 1, 2), (1.0, 1, 2), (2.0, 2, 2), (2.1, 3, 3), (4.0, 4, 4)]
        {
            assert_eq!(
                (fitting_threads(cpus), tolerated_threads(cpus)),
                (fit, tolerated),
                "{cpus}"
            );
        }
    }

    proptest! {
        #[test]
        fn one_more_limit_never_allows_more(
            quotas in prop::collection::vec((1_000..10_000_000u64, 1_000..1_000_000u64), 0..6),
            online in prop::collection::btree_set(0..64u32, 1..64),
            mask in prop::collection::btree_set(0..64u32, 0..64),
        ) {
            let levels: Vec<QuotaLevel> = quotas.iter().map(|&(quota_us, period_us)| {
                QuotaLevel { path: "/".into(), quota_us, period_us, burst_us: None }
            }).collect();
            let online: Vec<u32> = online.into_iter().collect();
            let mask: Vec<u32> = mask.into_iter().collect();
            let all = LimitInputs { levels: &levels, online: Some(&online), ..LimitInputs::default() };
            let cpus = |given| effective(given).map(|found| found.cpus);
            let free = LimitInputs { levels: &[], ..all };
            let masked = LimitInputs { affinity: Some(&mask), ..all };
            prop_assert!(cpus(all) <= cpus(free));
            prop_assert!(cpus(masked) <= cpus(all));
            for level in &levels {
                prop_assert!(cpus(all).unwrap() <= level.cpus());
            }
        }
    }
}
