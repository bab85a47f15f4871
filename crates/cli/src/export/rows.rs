// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the rows of a recording to those of the exported tables.

use super::schema::{self, From, Table};
use super::{Cell, Head, Sink, made};
use crate::deadline;
use crate::store::{self, Plain, StoredRow, plain};
use deburr_core::recording::{BlockRecord, Record};
use deburr_core::rules;
use deburr_core::snapshot::Snapshot;
use deburr_core::sqlite::Value;
use deburr_core::view::Fold;
use std::io;
use std::path::Path;

/// Why an export cannot go on.
#[derive(Debug)]
pub(crate) enum Broken {
    /// A cell of the recording that is not what its column holds: of which table, in which row.
    Damaged(String),
    /// A sink, by its place, could not write.
    Output(usize, io::Error),
}

/// Passes the rows of a recording to the sinks.
pub(crate) struct Rows {
    tables: Vec<Table>,
    sinks: Vec<Box<dyn Sink>>,
    head: Option<Head>,
    /// What the rules judge at the end.
    fold: Fold,
    /// Rows so far, of each table.
    pub(crate) counts: Vec<u64>,
}

impl Rows {
    pub(crate) fn new(sinks: Vec<Box<dyn Sink>>) -> Self {
        let tables = schema::tables();
        let counts = vec![0; tables.len()];
        Self { tables, sinks, head: None, fold: Fold::default(), counts }
    }

    /// Writes a row of the recording. `record` is what it holds.
    pub(crate) fn take(&mut self, row: &StoredRow<'_>, record: &Record) -> Result<(), Broken> {
        if let Record::Meta(meta) = record {
            let head = Head {
                host: meta.host_name.clone(),
                boot_id: meta.boot_id.clone(),
                start_unix_ns: meta.start_unix_ns,
                start_mono_ns: meta.start_mono_ns,
                recorded_by: meta.tool_version.clone(),
            };
            self.each(|sink| sink.begin(&head))?;
            self.head = Some(head);
        }
        let table = &self.tables[row.table];
        let start = self.head.as_ref().map(|head| head.start_unix_ns);
        let cells: Option<Vec<Cell<'_>>> =
            table.columns.iter().map(|field| cell(field.from, row, start)).collect();
        let Some(cells) = cells else {
            let (name, seq) = (table.name, row.seq);
            return Err(Broken::Damaged(format!(
                "table `{name}`, row {seq}: text that is not UTF-8"
            )));
        };
        self.write(row.table, &cells)?;
        if let Record::HostFacts(facts) = record
            && let Ok(snapshot) = Snapshot::parse(facts.document.as_bytes())
        {
            let head = self.head.clone();
            self.facts(head.as_ref(), &snapshot)?;
        }
        let fact = match (record, &self.head) {
            (Record::Meta(meta), Some(head)) => Some(made::of_kernel(head, &meta.kernel)),
            (Record::Block(block), Some(head)) => match &**block {
                BlockRecord::Setting(setting) => Some(made::of_setting(head, setting)),
                _ => None,
            },
            _ => None,
        };
        fact.map_or(Ok(()), |fact| self.put(made::FACT, &fact))?;
        self.fold.push(record);
        self.each(|sink| sink.record(record))
    }

    /// Writes the facts of a snapshot.
    pub(crate) fn snapshot(&mut self, snapshot: &Snapshot) -> Result<(), Broken> {
        self.facts(None, snapshot)?;
        self.complete()
    }

    /// Writes what the rules say, and completes all outputs. `file` is what was read, for the message if the rules take too
    /// long.
    pub(crate) fn finish(&mut self, file: &Path) -> anyhow::Result<Result<(), Broken>> {
        let Some(head) = self.head.take() else { return Ok(self.complete()) };
        let fold = std::mem::take(&mut self.fold);
        let shown = format!("`{}`", file.display());
        let (report, findings) = deadline::within(deadline::of_file(file), shown, move || {
            let view = fold.view();
            let report = rules::report(view, env!("CARGO_PKG_VERSION"), false);
            let findings = made::findings(&head, view, &report);
            (report, findings)
        })?;
        let told = findings.iter().try_for_each(|row| self.put(made::FINDING, row));
        let told = told.and_then(|()| self.each(|sink| sink.report(&report)));
        Ok(told.and_then(|()| self.complete()))
    }

    fn facts(&mut self, head: Option<&Head>, snapshot: &Snapshot) -> Result<(), Broken> {
        made::of_snapshot(head, snapshot).iter().try_for_each(|row| self.put(made::FACT, row))
    }

    fn complete(&mut self) -> Result<(), Broken> {
        self.each(|sink| sink.finish())
    }

    fn each(
        &mut self,
        mut write: impl FnMut(&mut dyn Sink) -> io::Result<()>,
    ) -> Result<(), Broken> {
        for (at, sink) in self.sinks.iter_mut().enumerate() {
            write(&mut **sink).map_err(|error| Broken::Output(at, error))?;
        }
        Ok(())
    }

    /// Writes a row of a table that is made for the export.
    fn put(&mut self, table: &str, cells: &[Cell<'_>]) -> Result<(), Broken> {
        let made = self.tables.iter().skip(store::tables().count());
        let at = made.take_while(|it| it.name != table).count();
        self.write(store::tables().count() + at, cells)
    }

    fn write(&mut self, table: usize, cells: &[Cell<'_>]) -> Result<(), Broken> {
        self.counts[table] += 1;
        self.each(|sink| sink.row(table, cells))
    }
}

fn cell<'a>(from: From, row: &StoredRow<'a>, start_unix_ns: Option<i64>) -> Option<Cell<'a>> {
    let at = |place: usize| row.cells.get(place).copied().unwrap_or(Value::Null);
    Some(match from {
        From::Seq => Cell::Integer(row.seq),
        From::Cell(place, column) => match plain(&column, at(place))? {
            Plain::Null => Cell::Null,
            Plain::Integer(number) => Cell::Integer(number),
            Plain::Text(text) => Cell::Text(text.into()),
            Plain::Json(json) => Cell::Json(json),
        },
        From::Wall(place) => {
            let since = at(place).as_i64().filter(|ns| *ns >= 0);
            let moment = since.zip(start_unix_ns).and_then(|(ns, start)| start.checked_add(ns));
            moment.map_or(Cell::Null, Cell::Time)
        }
        // Rows of stored tables have none.
        From::Made(_) => Cell::Null,
    })
}
