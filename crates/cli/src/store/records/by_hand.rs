// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records whose tables are not declared by their fields.

use crate::store::column::{Cell, Cells, Columns, Result};
use crate::store::table::{Presence, Row, Table};
#[cfg(test)]
use crate::store::tests::{Documented, Field};
use deburr_core::recording::{LoadBin, Record};

pub(super) const HOST: &str = "host";
pub(super) const TARGET: &str = "target";

/// The tables of records that have no struct of their own.
pub(in crate::store) static BY_HAND: [Table; 2] = [
    Table {
        name: "load_bin",
        columns: |name, to| {
            String::columns("scope", to);
            LoadBin::columns(name, to);
        },
        since_version: 1,
        presence: Presence::Always,
        read: read_bin,
        #[cfg(test)]
        meaning: &[
            "The whole host or the target in one bin of about 100 ms (BPF scheduler probe).",
        ],
        #[cfg(test)]
        fields: || {
            let scope = Field::one::<String>("scope", &["`host` or `target`"]);
            [vec![scope], LoadBin::fields()].concat()
        },
        #[cfg(test)]
        sample: crate::store::tests::bin,
    },
    Table {
        name: "ending",
        columns: |_, to| u64::columns("window_ns", to),
        since_version: 1,
        presence: Presence::Always,
        read: |cells| Ok(Record::End { window_ns: cells.read()? }),
        #[cfg(test)]
        meaning: &[
            "The orderly end of the session. Missing if the session was killed or the disk was full.",
        ],
        #[cfg(test)]
        fields: || vec![Field::one::<u64>("window_ns", &["length of the window"])],
        #[cfg(test)]
        sample: |rng| Record::End { window_ns: crate::store::tests::Sample::sample(rng) },
    },
];

pub(super) fn bin_row<'a>(scope: &'static str, bin: &'a LoadBin) -> Row<'a> {
    let mut row = Row::new("load_bin", None, bin);
    row.cells.insert(0, Cell::Text(scope.into()));
    row
}

fn read_bin(cells: &mut Cells<'_>) -> Result<Record> {
    match cells.read::<String>()?.as_str() {
        HOST => Ok(Record::HostBin(cells.read()?)),
        TARGET => Ok(Record::TargetBin(cells.read()?)),
        _ => Err(cells.damage("expected `host` or `target`")),
    }
}
