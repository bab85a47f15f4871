// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a recording: its records in order, one at a time.
//!
//! The file may be anybody's. Only the rows of ordinary tables of the known schema are read ([`deburr_core::sqlite`]),
//! within [`bounds`](super::bounds), and nothing is ever written: not to the file, not beside it, not elsewhere.

use super::bounds::{Budget, Counted};
use super::column::Cells;
use super::opened::{self, Opened};
use super::table::{self, Presence, TICK};
use deburr_core::recording::{Record, Sums};
use deburr_core::sqlite::{Database, Fault, Pass, Rows, Schema, Source, Value};
use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

/// Why a file cannot be read as a recording. The text names the file and, if there is one, a way out.
#[derive(Debug)]
pub(crate) struct OpenError(String);

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OpenError {}

/// A recording that is open for reading.
#[derive(Debug)]
pub(crate) struct Reader {
    database: Database<Box<dyn Source>>,
    schema: Schema,
    shown: String,
    bytes: u64,
    /// Locked, so that the log stays as it is.
    _index: Option<File>,
}

/// A row as it is stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredRow<'a> {
    /// Place of its table in [`table::all`].
    pub(crate) table: usize,
    /// Its key.
    pub(crate) seq: i64,
    /// Its cells, in the order of the declared columns, with the bounds of its range in place of `tick`. Columns that
    /// the recording lacks are NULL.
    pub(crate) cells: &'a [Value<'a>],
}

/// A table that is read: where its rows are, and which of their cells are wanted.
struct Reading<'b, 'a> {
    head: Option<i64>,
    /// Its place in [`table::all`].
    at: usize,
    table: &'static table::Table,
    rows: Rows<'b, 'a, Box<dyn Source>>,
    /// The place of `tick` in a row, for tables with a time range.
    tick: Option<Option<usize>>,
    /// The places of the other columns of the declaration; `None` for those that were added later.
    places: Vec<Option<usize>>,
    counted: Counted,
}

impl Reader {
    /// Opens a recording, which may be complete, cut short or still written to.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        let shown = path.display().to_string();
        let opened = opened::open(path).map_err(|what| OpenError(format!("`{shown}` {what}")))?;
        Self::of(opened, shown)
    }

    /// Opens a recording whose bytes are at hand. `shown` is its name in messages.
    pub(super) fn of(opened: Opened, shown: String) -> Result<Self, OpenError> {
        let bytes = opened.file.size() + opened.log.as_ref().map_or(0, Source::size);
        let fail = |fault| unreadable(&shown, fault);
        let database = Database::open(opened.file, opened.log).map_err(fail)?;
        check_version(&database, &shown)?;
        let schema = Schema::read(&database).map_err(fail)?;
        Ok(Self { database, schema, shown, bytes, _index: opened.index })
    }

    /// Passes every record to `take`, in the order in which they were written.
    pub(crate) fn for_each(&self, mut take: impl FnMut(&Record)) -> Result<(), OpenError> {
        self.pass(|_, record, _| {
            take(record);
            ControlFlow::Continue(())
        })
    }

    /// Passes every row to `take`, as it is stored and as a record, until `take` breaks it off. It may take its time:
    /// others may wait for whom it writes to.
    pub(crate) fn for_each_row(
        &self,
        mut take: impl FnMut(&StoredRow<'_>, &Record) -> ControlFlow<()>,
    ) -> Result<(), OpenError> {
        self.pass(|row, record, budget| {
            let begun = Instant::now();
            let flow = take(row, record);
            budget.add(begun.elapsed());
            flow
        })
    }

    /// Passes every row to `take`, as it is stored and as a record, until `take` breaks it off. The time that `take` takes
    /// counts as reading.
    fn pass(
        &self,
        mut take: impl FnMut(&StoredRow<'_>, &Record, &mut Budget) -> ControlFlow<()>,
    ) -> Result<(), OpenError> {
        let pass = Pass::new(&self.database);
        let ticks = self.ticks(&pass)?;
        let mut readings = self.readings(&pass)?;
        let (mut budget, mut sums) = (Budget::new(self.bytes), Sums::default());
        loop {
            let next = readings.iter_mut().filter(|reading| reading.head.is_some());
            let Some(reading) = next.min_by_key(|reading| reading.head) else { return Ok(()) };
            budget
                .spend(reading.rows.bytes())
                .map_err(|fault| self.fault(reading.table.name, fault))?;
            let mut cells = reading.cells(&ticks);
            let record = (reading.table.read)(&mut cells);
            let record = record.map_err(|damage| {
                OpenError(format!("`{}` is damaged: {}", self.shown, damage.message))
            })?;
            sums.add(&record).map_err(|what| {
                self.fault(reading.table.name, Fault::Limit(format!("it holds {what}")))
            })?;
            let seq = reading.head.unwrap_or_default();
            let row = StoredRow { table: reading.at, seq, cells: cells.all() };
            if take(&row, &record, &mut budget).is_break() {
                return Ok(());
            }
            reading.advance().map_err(|fault| self.fault(reading.table.name, fault))?;
        }
    }

    /// The tables that the recording has.
    fn readings<'b, 'a>(
        &self,
        pass: &'b Pass<'a, Box<dyn Source>>,
    ) -> Result<Vec<Reading<'b, 'a>>, OpenError> {
        let version = self.database.user_version();
        let mut readings = Vec::new();
        let known = table::all().enumerate().filter(|(_, table)| table.since_version <= version);
        for (at, table) in known {
            let mut name = table.stored();
            if !self.schema.has(&name) {
                // A recording from before lists were packed.
                name = table.name.into();
            }
            let Some(stored) =
                self.schema.table(&name).map_err(|fault| unreadable(&self.shown, fault))?
            else {
                if table.presence == Presence::Always {
                    let shown = &self.shown;
                    return Err(OpenError(format!(
                        "`{shown}` is damaged: it has no table `{name}`"
                    )));
                }
                continue;
            };
            let fail = |fault| self.fault(&name, fault);
            if stored.columns[0].name != "seq" {
                return Err(fail(Fault::Damaged("its key is not `seq`".into())));
            }
            let place = |name: &str| stored.columns.iter().position(|column| column.name == name);
            let columns = table.columns();
            let has_tick = columns.first() == Some(&TICK);
            let mut reading = Reading {
                head: None,
                at,
                table,
                rows: pass.rows(stored.root).map_err(fail)?,
                tick: has_tick.then(|| place(TICK.name)),
                places: columns[usize::from(has_tick)..].iter().map(|it| place(it.name)).collect(),
                counted: Counted::new(table.name),
            };
            reading.advance().map_err(fail)?;
            readings.push(reading);
        }
        Ok(readings)
    }

    /// The time ranges that rows share, in the order of their numbers.
    fn ticks(&self, pass: &Pass<'_, Box<dyn Source>>) -> Result<Vec<(i64, [i64; 2])>, OpenError> {
        const NAME: &str = "tick";
        let fail = |fault| self.fault(NAME, fault);
        let table = self.schema.table(NAME).map_err(|fault| unreadable(&self.shown, fault))?;
        let Some(table) = table else { return Ok(Vec::new()) };
        let place = |name: &str| table.columns.iter().position(|column| column.name == name);
        let (Some(0), Some(t0), Some(t1)) = (place("tick"), place("t0_ns"), place("t1_ns")) else {
            return Err(fail(Fault::Damaged("it has not the columns that it should have".into())));
        };
        let mut rows = pass.rows(table.root).map_err(fail)?;
        let mut counted = Counted::new(NAME);
        let mut ticks = Vec::new();
        while let Some(tick) = rows.advance().map_err(fail)? {
            counted.add().map_err(fail)?;
            let range = (rows.get(t0).as_i64(), rows.get(t1).as_i64());
            let (Some(t0_ns), Some(t1_ns)) = range else {
                return Err(fail(Fault::Damaged(format!("row {tick}: expected integers"))));
            };
            ticks.push((tick, [t0_ns, t1_ns]));
        }
        Ok(ticks)
    }

    /// The error for a fault in a table.
    fn fault(&self, table: &str, fault: Fault) -> OpenError {
        let of = |what| format!("table `{table}`: {what}");
        unreadable(
            &self.shown,
            match fault {
                Fault::Damaged(what) => Fault::Damaged(of(what)),
                Fault::Limit(what) => Fault::Limit(of(what)),
                Fault::Unreadable(what) => Fault::Unreadable(what),
            },
        )
    }
}

impl Reading<'_, '_> {
    fn advance(&mut self) -> Result<(), Fault> {
        self.head = self.rows.advance()?;
        if self.head.is_some() { self.counted.add() } else { Ok(()) }
    }

    /// The cells of the current row, with the bounds of its time range in place of `tick`.
    fn cells<'c>(&'c self, ticks: &[(i64, [i64; 2])]) -> Cells<'c> {
        let range = self.tick.map(|place| {
            let tick = place.and_then(|place| self.rows.get(place).as_i64());
            let found = tick.and_then(|tick| ticks.binary_search_by_key(&tick, |it| it.0).ok());
            found.map_or([Value::Null; 2], |at| ticks[at].1.map(Value::Integer))
        });
        let places = self.places.iter();
        let cells = places.map(|place| place.map_or(Value::Null, |place| self.rows.get(place)));
        let cells = range.into_iter().flatten().chain(cells).collect();
        Cells::new(self.table.name, self.head.unwrap_or_default(), cells)
    }
}

fn check_version(database: &Database<Box<dyn Source>>, shown: &str) -> Result<(), OpenError> {
    if database.application_id() != table::APPLICATION_ID {
        return Err(OpenError(format!(
            "`{shown}` is a SQLite file, but not a recording of deburr"
        )));
    }
    let version = database.user_version();
    if version > table::VERSION {
        return Err(OpenError(format!(
            "`{shown}` has format version {version}, this deburr reads up to {}; use a newer deburr",
            table::VERSION
        )));
    }
    if version < 1 {
        return Err(OpenError(format!("`{shown}` has format version {version}, which never was")));
    }
    Ok(())
}

fn unreadable(shown: &str, fault: Fault) -> OpenError {
    OpenError(match fault {
        Fault::Damaged(what) => format!("`{shown}` is damaged or cut off: {what}"),
        Fault::Limit(what) => format!("`{shown}` holds more than is read: {what}"),
        Fault::Unreadable(what) => format!("cannot read `{shown}`: {what}"),
    })
}
