// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records of a check of CPUs as rows, and back.

use super::decode::{Cells, Result};
use super::encode::{Row, cells, json};
use super::schema::{Kind, Table};
use deburr_core::recording::{
    CheckSetup, CpuCheckRecord, CpuDistance, Mix, PairRound, Run, SweepWorker,
};

/// The tables, in the order of [`Kind`].
pub(super) static TABLES: [Table; 4] = [
    Table {
        name: "cpu_check",
        columns: &[
            "cpus TEXT NOT NULL",
            "cores_told TEXT",
            "hypervisor INTEGER",
            "realtime INTEGER NOT NULL",
            "chunk_ns INTEGER NOT NULL",
            "min_gap_ns INTEGER NOT NULL",
        ],
    },
    Table {
        name: "cpu_worker",
        columns: &[
            "t0_ns INTEGER NOT NULL",
            "t1_ns INTEGER NOT NULL",
            "workers INTEGER NOT NULL",
            "worker INTEGER NOT NULL",
            "wall_ns INTEGER NOT NULL",
            "cpu_ns INTEGER NOT NULL",
            "chunks INTEGER NOT NULL",
            "chunk_ns INTEGER NOT NULL",
            "gaps INTEGER NOT NULL",
            "gap_ns INTEGER NOT NULL",
            "migrations INTEGER NOT NULL",
            "cpu INTEGER NOT NULL",
        ],
    },
    Table {
        name: "cpu_round",
        columns: &[
            "t0_ns INTEGER NOT NULL",
            "t1_ns INTEGER NOT NULL",
            "mix TEXT NOT NULL",
            "slot_ns INTEGER NOT NULL",
            "a INTEGER NOT NULL",
            "b INTEGER NOT NULL",
            "a_alone TEXT NOT NULL",
            "b_alone TEXT NOT NULL",
            "a_together TEXT NOT NULL",
            "b_together TEXT NOT NULL",
        ],
    },
    Table {
        name: "cpu_distance",
        columns: &[
            "t_ns INTEGER NOT NULL",
            "a INTEGER NOT NULL",
            "b INTEGER NOT NULL",
            "one_way_ns INTEGER NOT NULL",
        ],
    },
];

/// Answers to the questions that people ask first of a check.
pub(super) const VIEWS: &str = include_str!("cpu_check.sql");

/// The row of a record.
pub(super) fn row(record: &CpuCheckRecord) -> Row<'_> {
    let (kind, cells) = match record {
        CpuCheckRecord::Setup(s) => (
            Kind::CpuCheck,
            cells![
                json(&s.cpus),
                s.cores_told.as_ref().map(json),
                s.hypervisor,
                s.realtime,
                s.chunk_ns,
                s.min_gap_ns,
            ],
        ),
        CpuCheckRecord::Worker(w) => (
            Kind::CpuWorker,
            cells![
                w.t0_ns,
                w.t1_ns,
                w.workers,
                w.worker,
                w.run.wall_ns,
                w.run.cpu_ns,
                w.run.chunks,
                w.run.chunk_ns,
                w.run.gaps,
                w.run.gap_ns,
                w.migrations,
                w.cpu,
            ],
        ),
        CpuCheckRecord::Round(r) => (
            Kind::CpuRound,
            cells![
                r.t0_ns,
                r.t1_ns,
                mix_name(r.mix),
                r.slot_ns,
                r.a,
                r.b,
                run(&r.a_alone),
                run(&r.b_alone),
                run(&r.a_together),
                run(&r.b_together),
            ],
        ),
        CpuCheckRecord::Distance(d) => (Kind::CpuDistance, cells![d.t_ns, d.a, d.b, d.one_way_ns]),
    };
    Row { kind, tick: None, cells }
}

/// `[wall_ns, cpu_ns, chunks, chunk_ns, gaps, gap_ns]`.
fn run(run: &Run) -> String {
    json(&[run.wall_ns, run.cpu_ns, run.chunks, run.chunk_ns, run.gaps, run.gap_ns])
}

fn mix_name(mix: Mix) -> &'static str {
    match mix {
        Mix::Adds => "adds",
        Mix::Divs => "divs",
    }
}

impl Cells<'_> {
    fn run(&mut self) -> Result<Run> {
        let [wall_ns, cpu_ns, chunks, chunk_ns, gaps, gap_ns] = self.json()?;
        Ok(Run { wall_ns, cpu_ns, chunks, chunk_ns, gaps, gap_ns })
    }
}

/// The record in a row of one of these tables.
///
/// # Panics
///
/// On a `kind` that has none of these tables, which is a fault of the caller.
pub(super) fn record(kind: Kind, c: &mut Cells<'_>) -> Result<CpuCheckRecord> {
    Ok(match kind {
        Kind::CpuCheck => CpuCheckRecord::Setup(CheckSetup {
            cpus: c.json()?,
            cores_told: c.maybe_json()?,
            hypervisor: c.maybe_bool()?,
            realtime: c.bool()?,
            chunk_ns: c.u64()?,
            min_gap_ns: c.u64()?,
        }),
        Kind::CpuWorker => CpuCheckRecord::Worker(SweepWorker {
            t0_ns: c.u64()?,
            t1_ns: c.u64()?,
            workers: c.u32()?,
            worker: c.u32()?,
            run: Run {
                wall_ns: c.u64()?,
                cpu_ns: c.u64()?,
                chunks: c.u64()?,
                chunk_ns: c.u64()?,
                gaps: c.u64()?,
                gap_ns: c.u64()?,
            },
            migrations: c.u32()?,
            cpu: c.u32()?,
        }),
        Kind::CpuRound => CpuCheckRecord::Round(PairRound {
            t0_ns: c.u64()?,
            t1_ns: c.u64()?,
            mix: c.one_of(&[Mix::Adds, Mix::Divs], mix_name)?,
            slot_ns: c.u64()?,
            a: c.u32()?,
            b: c.u32()?,
            a_alone: c.run()?,
            b_alone: c.run()?,
            a_together: c.run()?,
            b_together: c.run()?,
        }),
        Kind::CpuDistance => CpuCheckRecord::Distance(CpuDistance {
            t_ns: c.u64()?,
            a: c.u32()?,
            b: c.u32()?,
            one_way_ns: c.u64()?,
        }),
        kind => unreachable!("{kind:?} is no table of a check of CPUs"),
    })
}
