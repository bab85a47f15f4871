// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of runtimes' numbers of threads.

use super::decode::{Cells, Result};
use super::encode::{Cell, cells, json};
use super::schema::Table;
use deburr_core::recording::{RuntimeKind, RuntimeReading};

pub(super) static TABLE: Table = Table {
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
