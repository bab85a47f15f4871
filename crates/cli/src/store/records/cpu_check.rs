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

    /// How `deburr cpu-check` was done, and on what. One row. This table, the next three and the view of them exist
    /// only in recordings of that command.
    "cpu_check" => Setup(CheckSetup) {
        /// CPUs that it may use, a JSON list of numbers
        cpus: Json,
        /// groups of two and more of them that share a core according to the kernel, a JSON list of lists; NULL = the
        /// kernel does not report it
        cores_told: OptionalJson,
        /// 1 = the processor says that it is a virtual one; NULL = not known
        hypervisor,
        /// 1 = the workers of the pair test ran as `SCHED_FIFO`
        realtime,
        /// length of a chunk, the unit of work, when it was calibrated
        chunk_ns,
        /// minimum length of a stop in the middle of a chunk to count as a gap
        min_gap_ns,
    }
    /// One worker of one step of the sweep. The scheduler is free to place it.
    "cpu_worker" => Worker(SweepWorker) {
        /// start of the step
        t0_ns,
        /// end of the step
        t1_ns,
        /// number of workers in the step
        workers,
        /// index of this worker, from 0
        worker,
        /// `wall_ns`: from the start of its first chunk to the end of its last
        /// `cpu_ns`: its CPU time in between
        /// `chunks`: number of chunks that it computed
        /// `chunk_ns`: median length of a chunk
        /// `gaps`: number of stops in the middle of a chunk
        /// `gap_ns`: total time of these stops
        run,
        /// how often it was found on another CPU
        migrations,
        /// CPU on which it was last
        cpu,
    }
    /// One round of the pair test. Two workers, each bound to its CPU: `a` alone, both, `b` alone, both, with pauses as
    /// long as the slots.
    "cpu_round" => Round(PairRound) {
        /// start of the round
        t0_ns,
        /// end of the round
        t1_ns,
        /// what they computed: `adds`, `divs`
        mix,
        /// length of a slot
        slot_ns,
        /// CPU of the first worker
        a,
        /// CPU of the second worker
        b,
        /// the first worker alone, a JSON list: wall time, CPU time, chunks, median length of a chunk, gaps, time in
        /// gaps; times in ns
        a_alone: RunList,
        /// the second worker alone, likewise
        b_alone: RunList,
        /// the first worker in the two slots of both
        a_together: RunList,
        /// the second worker in the two slots of both
        b_together: RunList,
    }
    /// How far apart two CPUs are.
    "cpu_distance" => Distance(CpuDistance) {
        /// when
        t_ns,
        /// one CPU
        a,
        /// the other one
        b,
        /// time until the other CPU sees a written cache line: half of the median round trip
        one_way_ns,
    }
}
