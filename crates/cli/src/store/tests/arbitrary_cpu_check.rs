// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arbitrary records of a check of CPUs.

use super::arbitrary::maybe;
use deburr_core::recording::{
    CheckSetup, CpuCheckRecord, CpuDistance, Mix, PairRound, Record, Run, SweepWorker,
};
use proptest::prelude::*;

fn run() -> impl Strategy<Value = Run> {
    any::<[u64; 6]>().prop_map(|[wall_ns, cpu_ns, chunks, chunk_ns, gaps, gap_ns]| Run {
        wall_ns,
        cpu_ns,
        chunks,
        chunk_ns,
        gaps,
        gap_ns,
    })
}

pub(super) fn record() -> impl Strategy<Value = Record> {
    let cpus = || prop::collection::vec(any::<u32>(), 0..4);
    let told = maybe(prop::collection::vec(cpus(), 0..3));
    let setup = (cpus(), told, any::<(Option<bool>, bool, u64, u64)>()).prop_map(
        |(cpus, cores_told, (hypervisor, realtime, chunk_ns, min_gap_ns))| {
            CpuCheckRecord::Setup(CheckSetup {
                cpus,
                cores_told,
                hypervisor,
                realtime,
                chunk_ns,
                min_gap_ns,
            })
        },
    );
    let worker = (any::<(u64, u64)>(), any::<[u32; 4]>(), run()).prop_map(|(times, n, run)| {
        CpuCheckRecord::Worker(SweepWorker {
            t0_ns: times.0,
            t1_ns: times.1,
            workers: n[0],
            worker: n[1],
            run,
            migrations: n[2],
            cpu: n[3],
        })
    });
    let round = (any::<([u64; 3], [u32; 2], bool)>(), [run(), run(), run(), run()]).prop_map(
        |((times, cpus, is_adds), runs)| {
            CpuCheckRecord::Round(PairRound {
                t0_ns: times[0],
                t1_ns: times[1],
                mix: if is_adds { Mix::Adds } else { Mix::Divs },
                slot_ns: times[2],
                a: cpus[0],
                b: cpus[1],
                a_alone: runs[0],
                b_alone: runs[1],
                a_together: runs[2],
                b_together: runs[3],
            })
        },
    );
    let distance = any::<(u64, u32, u32, u64)>().prop_map(|(t_ns, a, b, one_way_ns)| {
        CpuCheckRecord::Distance(CpuDistance { t_ns, a, b, one_way_ns })
    });
    prop_oneof![setup, worker, round, distance]
        .prop_map(|record| Record::CpuCheck(Box::new(record)))
}
