// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random records, whether they make sense or not. Samples of structs come with the declaration of their columns.

use super::super::table;
use deburr_core::recording::{
    Awaited, CgroupId, CgroupVersion, Confidence, Container, Culprit, DevId, DeviceBin, Did, Entry,
    EventKind, FileClass, FileId, FileState, FutexUser, IdleCpu, InterruptContext, InterruptKind,
    IoCulprit, IoOp, IoPurpose, MemoryBound, Mix, Parallelism, ProcId, PsiResource, ReclaimKind,
    Record, RuntimeKind, SchedPolicy, Scheduling, SeenQuota, SleepState, Slept, SleptOn, Source,
    StallKind, State, TargetSpec, WAIT_BUCKETS, WaitHist, WokenBy,
};
use proptest::prelude::*;
use proptest::test_runner::TestRng;
use std::collections::BTreeMap;

/// A type of which random values can be generated.
pub(in crate::store) trait Sample: Sized {
    fn sample(rng: &mut TestRng) -> Self;
}

/// Any record of any table.
pub(super) fn record() -> impl Strategy<Value = Record> {
    Just(()).prop_perturb(|(), mut rng| {
        let tables: Vec<_> = table::all().collect();
        (tables[below(&mut rng, tables.len())].sample)(&mut rng)
    })
}

/// One of a few time ranges, so that some rows share one.
pub(in crate::store) fn range(rng: &mut TestRng) -> (u64, u64) {
    (below(rng, 3) as u64, 3 + below(rng, 2) as u64)
}

/// A bin of either scope.
pub(in crate::store) fn bin(rng: &mut TestRng) -> Record {
    let wrap = if bool::sample(rng) { Record::HostBin } else { Record::TargetBin };
    wrap(Sample::sample(rng))
}

fn below(rng: &mut TestRng, end: usize) -> usize {
    rng.next_u32() as usize % end
}

impl Sample for u64 {
    fn sample(rng: &mut TestRng) -> Self {
        match below(rng, 4) {
            0 => below(rng, 3) as u64,
            // Larger amounts are refused, once they are added up.
            1 => (1 << 45) - below(rng, 3) as u64,
            _ => rng.next_u64() >> 24,
        }
    }
}

macro_rules! by_cast {
    ($($type:ty),*) => {$(
        impl Sample for $type {
            fn sample(rng: &mut TestRng) -> Self {
                match below(rng, 4) {
                    0 => below(rng, 3) as Self,
                    1 => Self::MAX - below(rng, 3) as Self,
                    _ => rng.next_u64() as Self,
                }
            }
        }
    )*};
}

by_cast!(i64, i32, u32, u16);

impl Sample for bool {
    fn sample(rng: &mut TestRng) -> Self {
        below(rng, 2) == 0
    }
}

impl Sample for String {
    fn sample(rng: &mut TestRng) -> Self {
        match below(rng, 4) {
            0 => Self::new(),
            1 => "a\u{1b}[31m\n\t\"'\\</script>".into(),
            _ => (0..below(rng, 9)).filter_map(|_| char::from_u32(rng.next_u32() >> 12)).collect(),
        }
    }
}

impl<T: Sample> Sample for Option<T> {
    fn sample(rng: &mut TestRng) -> Self {
        bool::sample(rng).then(|| T::sample(rng))
    }
}

impl<T: Sample> Sample for Vec<T> {
    fn sample(rng: &mut TestRng) -> Self {
        (0..below(rng, 5)).map(|_| T::sample(rng)).collect()
    }
}

impl<T: Sample, const N: usize> Sample for [T; N] {
    fn sample(rng: &mut TestRng) -> Self {
        std::array::from_fn(|_| T::sample(rng))
    }
}

impl<A: Sample, B: Sample> Sample for (A, B) {
    fn sample(rng: &mut TestRng) -> Self {
        (A::sample(rng), B::sample(rng))
    }
}

impl<T: Sample> Sample for BTreeMap<String, T> {
    fn sample(rng: &mut TestRng) -> Self {
        Vec::<(String, T)>::sample(rng).into_iter().collect()
    }
}

/// All series have the same number of bins.
impl Sample for BTreeMap<IoCulprit, Vec<u64>> {
    fn sample(rng: &mut TestRng) -> Self {
        let bins = below(rng, 12);
        let mut series = || (Sample::sample(rng), (0..bins).map(|_| u64::sample(rng)).collect());
        (0..4).map(|_| series()).collect()
    }
}

macro_rules! structs {
    ($($type:ident { $($field:ident),* $(,)? })*) => {$(
        impl Sample for $type {
            fn sample(rng: &mut TestRng) -> Self {
                Self { $($field: Sample::sample(rng)),* }
            }
        }
    )*};
}

structs! {
    Container { runtime, id, name, pod, namespace }
    DevId { major, minor }
    IdleCpu { cpu, allowed, idle_ns }
    Parallelism { name, value, confidence, source }
    Scheduling { policy, priority, nice, threads, tid, ran_ns }
    Slept { state, call, on, woken }
    Awaited { proc, thread, too, did }
}

/// One of these values.
macro_rules! one_of {
    ($rng:ident; $($type:ident: $($value:expr),* ;)*) => {$(
        impl Sample for $type {
            fn sample($rng: &mut TestRng) -> Self {
                let all = [$($value),*];
                let at = below($rng, all.len());
                all.into_iter().nth(at).unwrap()
            }
        }
    )*};
}

fn any<T: Sample>(rng: &mut TestRng) -> T {
    T::sample(rng)
}

one_of! {
    rng;
    ProcId: Self(any(rng)), Self::OTHERS;
    FileId: Self(any(rng)), Self::OTHERS;
    CgroupId: Self(any(rng));
    CgroupVersion: Self::V1, Self::V2;
    PsiResource: Self::Cpu, Self::Io, Self::Memory;
    IoOp: Self::Read, Self::Write, Self::Other;
    Mix: Self::Adds, Self::Divs;
    StallKind: Self::Sync, Self::DirtyThrottle, Self::Request;
    FileState: Self::Linked, Self::Deleted, Self::InFilesystem, Self::Nameless;
    FileClass:
        Self::Proc, Self::Sys, Self::Debug, Self::Cgroup,
        Self::Fuse, Self::Nameless, Self::Ordinary, Self::Unknown;
    Culprit: Self::Process(any(rng)), Self::Migrated, Self::NotSampled, Self::Throttled;
    InterruptKind: Self::Soft, Self::Device, Self::Timer, Self::Processor;
    InterruptContext: Self::Interrupts, Self::OwnCall, Self::NotKnown;
    ReclaimKind: Self::Limit, Self::Direct, Self::Compaction;
    MemoryBound: Self::Max, Self::High;
    FutexUser: Self::Glibc, Self::Musl, Self::Shared, Self::Other;
    SleepState: Self::Asleep, Self::BlockIo, Self::Memory, Self::Uninterruptible, Self::Stopped;
    SleptOn:
        Self::NotKnown, Self::Pipe, Self::Others,
        Self::Character { terminal: any(rng) },
        Self::Futex { address: any(rng), value: any(rng), op: any(rng), user: any(rng) },
        Self::File { device: any(rng), inode: any(rng), path: any(rng), served: any(rng) },
        Self::Anonymous { name: any(rng) },
        Self::Inet {
            protocol: any(rng), listens: any(rng), port: any(rng), remote: any(rng), asked: any(rng),
            ready: any(rng),
        },
        Self::Unix { peer: any(rng), accepted: any(rng), ready: any(rng) },
        Self::Socket { family: any(rng) };
    WokenBy:
        Self::NotKnown, Self::NotYet, Self::SoftInterrupt, Self::HardInterrupt, Self::Timer,
        Self::KernelTimer, Self::Network, Self::Disk, Self::OtherCpu, Self::Device,
        Self::Thread { proc: any(rng), call: any(rng) },
        Self::Sender { proc: any(rng) };
    Did:
        Self::NotSeen, Self::OnCpu, Self::Queued, Self::Throttled, Self::Slept(any(rng));
    IoCulprit:
        Self::Process(any(rng)), Self::Writeback(any(rng)), Self::Filesystem, Self::Device;
    IoPurpose:
        Self::File(any(rng)), Self::Metadata, Self::Journal, Self::Flush,
        Self::Discard, Self::Swap, Self::RawDevice, Self::Unknown;
    State:
        Self::Active,
        Self::Partial { reason: any(rng) },
        Self::Missing { reason: any(rng), gain: any(rng) };
    EventKind:
        Self::ClockJump { by_ns: any(rng) },
        Self::Suspend { for_ns: any(rng) },
        Self::LateTick { by_ns: any(rng) },
        Self::TargetGone,
        Self::Interrupted { signal: any(rng) },
        Self::StoreFailed { reason: any(rng) };
    SeenQuota:
        Self::Leaf { quota_us: any(rng), period_us: any(rng), part: any(rng) },
        Self::NoMount,
        Self::Unknown;
    Entry:
        Self::Thread { tid: any(rng) }, Self::Name { name: any(rng) }, Self::Port { port: any(rng) };
    TargetSpec:
        Self::Host,
        Self::Process { pid: any(rng), comm: any(rng) },
        Self::Comm { comm: any(rng) },
        Self::Cgroup { path: any(rng) },
        Self::Container { container: any(rng), path: any(rng) },
        Self::Command { command: any(rng), pid: any(rng) };
    DeviceBin:
        Self::default(),
        Self { busy_ns: any(rng), depth_ns: any(rng), ios: any(rng), bytes: any(rng) };
}

macro_rules! any_of_all {
    ($($type:ident),*) => {$(
        impl Sample for $type {
            fn sample(rng: &mut TestRng) -> Self {
                Self::ALL[below(rng, Self::ALL.len())]
            }
        }
    )*};
}

any_of_all!(Confidence, RuntimeKind, Source);

impl Sample for SchedPolicy {
    fn sample(rng: &mut TestRng) -> Self {
        // There is no policy 4.
        Self::of_number([0, 1, 2, 3, 5, 6, 7][below(rng, 7)]).unwrap()
    }
}

impl Sample for WaitHist {
    fn sample(rng: &mut TestRng) -> Self {
        let mut hist = Self::default();
        for _ in 0..below(rng, 6) {
            let bucket = below(rng, WAIT_BUCKETS);
            (hist.count[bucket], hist.ns[bucket]) = (any(rng), any(rng));
        }
        hist
    }
}
