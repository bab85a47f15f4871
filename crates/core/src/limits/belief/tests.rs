// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Behaviour of each version of Go under a CPU limit, as measured on 8 CPUs, and of Java.

use super::*;
use crate::limits::effective::{LimitInputs, effective};
use crate::recording::ProcId;
use std::collections::BTreeMap;

const ONLINE: [u32; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

struct Case {
    kind: RuntimeKind,
    number: &'static str,
    version: &'static str,
    value: u32,
    settings: &'static [(&'static str, &'static str)],
    /// Quotas in CPUs, own cgroup first; 0 = no quota.
    quotas: &'static [f64],
    part: bool,
}

const PLAIN: Case = Case {
    kind: RuntimeKind::Go,
    number: "GOMAXPROCS",
    version: "go1.24.3",
    value: 8,
    settings: &[],
    quotas: &[4.0],
    part: false,
};
const JAVA: Case =
    Case { kind: RuntimeKind::Jvm, number: "processors", version: "17.0.15", ..PLAIN };

fn judged(case: &Case) -> Belief {
    judge(case).unwrap()
}

fn judge(case: &Case) -> Option<Belief> {
    let levels: Vec<QuotaLevel> = case
        .quotas
        .iter()
        .enumerate()
        .filter(|(_, cpus)| **cpus > 0.0)
        .map(|(depth, cpus)| QuotaLevel {
            path: format!("/level{depth}"),
            quota_us: (cpus * 1e5) as u64,
            period_us: 100_000,
            burst_us: None,
        })
        .collect();
    let effective =
        effective(LimitInputs { levels: &levels, online: Some(&ONLINE), ..LimitInputs::default() })
            .unwrap();
    let level = effective.level.and_then(|at| levels.get(at));
    let own = case.quotas.first().copied().filter(|cpus| *cpus > 0.0);
    let reading = RuntimeReading {
        t_ns: 0,
        proc: ProcId(1),
        kind: case.kind,
        version: Some(case.version.into()),
        threads: 12,
        parallelism: vec![Parallelism {
            name: case.number.into(),
            value: case.value,
            confidence: Confidence::Exact,
            source: "memory".into(),
        }],
        unread: None,
        settings: case
            .settings
            .iter()
            .map(|&(k, v)| (k.to_owned(), v.to_owned()))
            .collect::<BTreeMap<_, _>>(),
        seen: SeenQuota::Leaf {
            quota_us: own.map(|cpus| (cpus * 1e5) as u64),
            period_us: own.map(|_| 100_000),
            part: case.part,
        },
    };
    let own_level = level.is_some_and(|level| level.path == "/level0");
    belief(&reading, Circumstances { effective, level, own_level })
}

fn fixes_of(belief: &Belief) -> String {
    belief.fixes.iter().map(|fix| fix.action.as_str()).collect::<Vec<_>>().join("; ")
}

#[test]
fn an_old_go_counts_cpus_and_is_told_a_number_or_a_newer_go() {
    let found = judged(&PLAIN);
    assert_eq!(
        (found.fit, found.fitting, found.why),
        (ThreadFit::Above, 4, ThreadCountReason::OldVersion)
    );
    assert!(found.because.starts_with("Go 1.24 counts"), "{}", found.because);
    let fixes = fixes_of(&found);
    assert!(fixes.contains("GOMAXPROCS=4") && fixes.contains("go 1.25"), "{fixes}");
    let in_part = judged(&Case { part: true, ..PLAIN });
    assert!(fixes_of(&in_part).contains("go 1.26"), "1.25 would look at the wrong place");
}

#[test]
fn a_number_that_fits_needs_no_fix() {
    let set = judged(&Case { value: 4, settings: &[("GOMAXPROCS", "4")], ..PLAIN });
    assert_eq!((set.fit, set.why, set.fixes.len()), (ThreadFit::Fits, ThreadCountReason::Set, 0));
    let new = judged(&Case { version: "go1.26.8", value: 4, ..PLAIN });
    assert_eq!((new.fit, new.why), (ThreadFit::Fits, ThreadCountReason::KnowsLimit));
    let half = judged(&Case { version: "go1.25.14", value: 2, quotas: &[0.5], ..PLAIN });
    assert_eq!((half.fit, half.why), (ThreadFit::Fits, ThreadCountReason::KnowsLimit));
    let free = judged(&Case { quotas: &[0.0], ..PLAIN });
    assert_eq!((free.fit, free.fitting), (ThreadFit::Fits, 8));
}

#[test]
fn what_fits_is_what_the_fix_sets() {
    for (quotas, fitting) in [(&[0.5], 1), (&[1.0], 1), (&[1.5], 2), (&[4.0], 4)] {
        let found = judged(&Case { value: 16, quotas, ..PLAIN });
        assert_eq!((found.fit, found.fitting), (ThreadFit::Above, fitting), "{quotas:?}");
        assert!(fixes_of(&found).contains(&format!("`GOMAXPROCS={fitting}`")), "{quotas:?}");
    }
}

#[test]
fn a_new_go_that_is_above_its_limit_says_why() {
    let whys = [
        (
            Case { settings: &[("GOMAXPROCS", "96")], value: 96, ..PLAIN },
            ThreadCountReason::Set,
            "environment",
        ),
        (
            Case {
                settings: &[("DefaultGODEBUG", "containermaxprocs=0,updatemaxprocs=0")],
                ..PLAIN
            },
            ThreadCountReason::OldLanguage,
            "go.mod",
        ),
        (
            Case { settings: &[("GODEBUG", "containermaxprocs=0")], ..PLAIN },
            ThreadCountReason::TurnedOff,
            "GODEBUG",
        ),
        (
            Case { quotas: &[0.0, 3.0], ..PLAIN },
            ThreadCountReason::LevelAbove,
            "`/level1` above it",
        ),
        (
            Case { quotas: &[5.0, 3.0], value: 5, ..PLAIN },
            ThreadCountReason::LevelAbove,
            "`/level1` above it",
        ),
        (
            Case { quotas: &[3.0], value: 6, ..PLAIN },
            ThreadCountReason::Program,
            "runtime.GOMAXPROCS",
        ),
    ];
    for (case, why, says) in whys {
        let found = judged(&Case { version: "go1.26.8", ..case });
        assert_eq!((found.fit, found.why), (ThreadFit::Above, why));
        assert!(found.because.contains(says), "{}", found.because);
        assert!(!found.fixes.is_empty() && found.fixes.iter().all(|fix| fix.risk.is_some()));
    }
    // The environment turns quotas on that the language version turned off.
    let on = judged(&Case {
        version: "go1.26.8",
        value: 4,
        settings: &[
            ("DefaultGODEBUG", "containermaxprocs=0"),
            ("GODEBUG", "x=1,containermaxprocs=1"),
        ],
        ..PLAIN
    });
    assert_eq!((on.fit, on.why), (ThreadFit::Fits, ThreadCountReason::KnowsLimit));
}

#[test]
fn a_bind_mounted_part_of_the_tree_misleads_only_1_25() {
    let bound =
        |version, value| judged(&Case { version, value, part: true, quotas: &[3.0], ..PLAIN }).why;
    assert_eq!(bound("go1.25.14", 8), ThreadCountReason::MountRoot);
    assert_eq!(bound("go1.26.8", 3), ThreadCountReason::KnowsLimit);
    assert_eq!(bound("go1.24.3", 8), ThreadCountReason::OldVersion);
}

#[test]
fn automaxprocs_rounds_down_and_looks_at_its_own_cgroup() {
    let library = &[("automaxprocs", "v1.6.0")];
    let own = judged(&Case { settings: library, value: 2, quotas: &[2.9], ..PLAIN });
    assert_eq!((own.fit, own.why), (ThreadFit::Fits, ThreadCountReason::KnowsLimit));
    let above = judged(&Case { settings: library, quotas: &[0.0, 2.0], value: 7, ..PLAIN });
    assert_eq!((above.fit, above.why), (ThreadFit::Above, ThreadCountReason::LevelAbove));
}

#[test]
fn a_quota_of_more_than_the_cpus_explains_nothing() {
    let found = judged(&Case { version: "go1.26.8", quotas: &[0.0, 12.0], ..PLAIN });
    assert_eq!((found.fit, found.why), (ThreadFit::Fits, ThreadCountReason::KnowsLimit));
}

#[test]
fn java_looks_above_its_own_cgroup_from_some_version_on() {
    let own = judged(&Case { value: 4, ..JAVA });
    assert_eq!((own.fit, own.why), (ThreadFit::Fits, ThreadCountReason::KnowsLimit));
    // Java 17 counts all CPUs where Java 21.0.12 uses the quota.
    let nested = Case { quotas: &[0.0, 3.0], ..JAVA };
    let old = judged(&nested);
    assert_eq!((old.fit, old.why), (ThreadFit::Above, ThreadCountReason::LevelAbove));
    let fixes = fixes_of(&old);
    for fix in ["ActiveProcessorCount=3", "Java 25", "own cgroup"] {
        assert!(fixes.contains(fix), "{fixes}");
    }
    let new = judged(&Case { value: 3, ..nested });
    assert_eq!((new.fit, new.why), (ThreadFit::Fits, ThreadCountReason::KnowsLimit));
    assert!(new.because.contains("`/level1` above it"), "{}", new.because);
    let later = judged(&Case { value: 6, ..nested });
    assert_eq!((later.fit, later.why), (ThreadFit::Above, ThreadCountReason::Unknown));
}

#[test]
fn what_was_set_by_hand_is_to_be_set_otherwise() {
    let count = &[("ActiveProcessorCount", "6")];
    let processors = judged(&Case { value: 6, settings: count, ..JAVA });
    assert_eq!((processors.fit, processors.why), (ThreadFit::Above, ThreadCountReason::Set));
    // A lower number of processors does not change a number of threads that a flag sets.
    let flag = &[("ParallelGCThreads", "9")];
    let threads = judged(&Case { number: "ParallelGCThreads", value: 9, settings: flag, ..JAVA });
    assert_eq!((threads.fit, threads.why), (ThreadFit::Above, ThreadCountReason::Set));
    assert!(fixes_of(&threads).contains("ParallelGCThreads=4"), "{}", fixes_of(&threads));
}

#[test]
fn threads_that_do_not_compute_are_not_judged() {
    for (kind, number) in [
        (RuntimeKind::Jvm, "CICompilerCount"),
        (RuntimeKind::DotNet, "pool threads"),
        (RuntimeKind::Node, "UV_THREADPOOL_SIZE"),
    ] {
        assert_eq!(judge(&Case { kind, number, value: 96, ..PLAIN }), None, "{number}");
    }
    let heaps = Case { kind: RuntimeKind::DotNet, number: "Server GC threads", ..PLAIN };
    assert_eq!(judged(&heaps).fit, ThreadFit::Above);
}
