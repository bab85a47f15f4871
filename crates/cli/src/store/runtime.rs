// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tables of runtimes' numbers of threads, and of what their threads did.

use super::decode::{Cells, Result};
use super::encode::{Cell, cells, json};
use super::schema::{TICK, Table};
use deburr_core::recording::{NamedThreads, RuntimeKind, RuntimeReading};

static RUNTIME: Table = Table {
    name: "runtime",
    columns: &[
        "t_ns INTEGER NOT NULL",
        "proc INTEGER NOT NULL",
        "runtime TEXT NOT NULL",
        "version TEXT",
        "threads INTEGER NOT NULL",
        "parallelism TEXT",
        "unread TEXT",
        "settings TEXT",
        "seen TEXT NOT NULL",
    ],
};

static NAMED_THREADS: Table = Table {
    name: "named_threads",
    columns: &[
        TICK,
        "proc INTEGER NOT NULL",
        "comm TEXT NOT NULL",
        "threads INTEGER NOT NULL",
        "on_cpu_ns INTEGER NOT NULL",
        "delay_ns INTEGER NOT NULL",
    ],
};

/// In the order of [`super::schema::Kind`].
pub(super) static TABLES: [&Table; 2] = [&RUNTIME, &NAMED_THREADS];

pub(super) fn named_cells(tick: &NamedThreads) -> Vec<Cell<'_>> {
    cells![tick.proc.0, &tick.comm, tick.threads, tick.on_cpu_ns, tick.delay_ns]
}

pub(super) fn read_named(c: &mut Cells<'_>) -> Result<NamedThreads> {
    Ok(NamedThreads {
        t0_ns: c.u64()?,
        t1_ns: c.u64()?,
        proc: c.proc_id()?,
        comm: c.text()?,
        threads: c.u32()?,
        on_cpu_ns: c.u64()?,
        delay_ns: c.u64()?,
    })
}

pub(super) fn cells(reading: &RuntimeReading) -> Vec<Cell<'_>> {
    let RuntimeReading { t_ns, proc, kind, version, threads, .. } = reading;
    let filled = |any: bool, text: String| any.then_some(text);
    cells![
        *t_ns,
        proc.0,
        kind.code(),
        version.as_ref(),
        *threads,
        filled(!reading.parallelism.is_empty(), json(&reading.parallelism)),
        reading.unread.as_ref(),
        filled(!reading.settings.is_empty(), json(&reading.settings)),
        json(&reading.seen),
    ]
}

pub(super) fn read(c: &mut Cells<'_>) -> Result<RuntimeReading> {
    Ok(RuntimeReading {
        t_ns: c.u64()?,
        proc: c.proc_id()?,
        kind: c.one_of(&RuntimeKind::ALL, RuntimeKind::code)?,
        version: c.maybe_text()?,
        threads: c.u32()?,
        parallelism: c.maybe_json()?.unwrap_or_default(),
        unread: c.maybe_text()?,
        settings: c.maybe_json()?.unwrap_or_default(),
        seen: c.json()?,
    })
}
