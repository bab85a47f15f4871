// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Any reading of a runtime, and any of what its threads did.

use super::arbitrary::{maybe, proc_id, text};
use deburr_core::recording::{
    Confidence, NamedThreads, Parallelism, Record, RuntimeKind, RuntimeReading, SeenQuota,
};
use proptest::prelude::*;

pub(super) fn named_threads() -> impl Strategy<Value = Record> {
    (any::<[u64; 4]>(), proc_id(), text(), any::<u32>()).prop_map(
        |([t0_ns, t1_ns, on_cpu_ns, delay_ns], proc, comm, threads)| {
            let tick = NamedThreads { t0_ns, t1_ns, proc, comm, threads, on_cpu_ns, delay_ns };
            Record::NamedThreads(Box::new(tick))
        },
    )
}

pub(super) fn record() -> impl Strategy<Value = Record> {
    let number =
        (text(), any::<u32>(), prop::sample::select(Confidence::ALL.to_vec()), text()).prop_map(
            |(name, value, confidence, source)| Parallelism { name, value, confidence, source },
        );
    let seen = prop_oneof![
        any::<(Option<u64>, Option<u64>, bool)>().prop_map(|(quota_us, period_us, part)| {
            SeenQuota::Leaf { quota_us, period_us, part }
        }),
        Just(SeenQuota::NoMount),
        Just(SeenQuota::Unknown),
    ];
    let kind = prop::sample::select(RuntimeKind::ALL.to_vec());
    let texts = (maybe(text()), maybe(text()));
    let lists =
        (prop::collection::vec(number, 0..3), prop::collection::btree_map(text(), text(), 0..3));
    (any::<(u64, u32)>(), proc_id(), kind, texts, lists, seen).prop_map(
        |((t_ns, threads), proc, kind, (version, unread), (parallelism, settings), seen)| {
            Record::Runtime(Box::new(RuntimeReading {
                t_ns,
                proc,
                kind,
                version,
                threads,
                parallelism,
                unread,
                settings,
                seen,
            }))
        },
    )
}
