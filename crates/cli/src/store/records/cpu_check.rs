// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records of a check of CPUs.

use crate::store::encodings::{Json, OptionalJson, RunList};
use crate::store::table::{OnDemand, Presence, tables};
use deburr_core::recording::{
    CheckSetup, CpuCheckRecord, CpuDistance, PairRound, Record, SweepWorker,
};

fn whole(record: CpuCheckRecord) -> Record {
    Record::CpuCheck(Box::new(record))
}

tables! {
    CpuCheckRecord in whole, since 2, Presence::OnDemand(OnDemand::Check);

    "cpu_check" => Setup(CheckSetup) {
        cpus: Json,
        cores_told: OptionalJson,
        hypervisor,
        realtime,
        chunk_ns,
        min_gap_ns,
    }
    "cpu_worker" => Worker(SweepWorker) { t0_ns, t1_ns, workers, worker, run, migrations, cpu }
    "cpu_round" => Round(PairRound) {
        t0_ns,
        t1_ns,
        mix,
        slot_ns,
        a,
        b,
        a_alone: RunList,
        b_alone: RunList,
        a_together: RunList,
        b_together: RunList,
    }
    "cpu_distance" => Distance(CpuDistance) { t_ns, a, b, one_way_ns }
}
