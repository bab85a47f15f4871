// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tables of a recording, as data. `docs/recording-format.md` explains them to readers with `sqlite3`; its part about
//! tables is generated from their declarations.
//!
//! The key of every table is `seq`, a number that counts up over all tables: merged by it, the rows are the record
//! stream again. It costs nothing, because rows are appended in its order. Ticks refer to the table `tick` for their
//! time range instead of repeating it, because hundreds of rows per second share it.

use super::column::{Cell, Cells, Column, Columns, Result};
use super::{packed, records};
use deburr_core::recording::Record;
use std::borrow::Cow;

/// `PRAGMA application_id` of a recording: "dbur".
pub(super) const APPLICATION_ID: i32 = 0x6462_7572;

/// `PRAGMA user_version`: raised when a table changes in a way that older readers would misread.
pub(super) const VERSION: i32 = 2;

/// The column of a row that shares its time range with others.
pub(crate) const TICK: Column =
    Column { name: "tick", kind: "INTEGER", required: true, json: false };

/// Time ranges that rows of the tick tables share.
const TICK_TABLE: &str =
    "CREATE TABLE tick(tick INTEGER PRIMARY KEY, t0_ns INTEGER NOT NULL, t1_ns INTEGER NOT NULL);";

/// Views for the questions that people ask first. They are part of the format only as a convenience: the reader never
/// uses them.
const VIEWS: [&str; 2] = [include_str!("views.sql"), include_str!("views_block.sql")];

/// Which recordings have a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// All recordings since the version of the table.
    Always,
    /// Recordings made since the table was added, within a version.
    Added,
    /// Recordings that have rows for it: the table is created with the first such row, together with its group.
    OnDemand(OnDemand),
}

/// Groups of tables that are created together: a recording that only observes has no use for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnDemand {
    /// The tables of a check of CPUs.
    Check,
    /// The tables of system calls.
    Syscalls,
    /// The tables of a profile.
    Profile,
}

impl OnDemand {
    fn views(self) -> &'static str {
        match self {
            Self::Check => include_str!("views_cpu_check.sql"),
            Self::Syscalls | Self::Profile => "",
        }
    }
}

/// The table of one kind of record.
pub(crate) struct Table {
    pub(crate) name: &'static str,
    /// Adds the columns after `seq`, in the order in which they are written and read.
    pub(super) columns: fn(&'static str, &mut Vec<Column>),
    /// First version of the format that has the table. For an older recording the table counts as empty.
    pub(super) since_version: i32,
    /// Which recordings since that version have the table.
    pub(super) presence: Presence,
    /// Reads the record of a row.
    pub(super) read: fn(&mut Cells<'_>) -> Result<Record>,
    /// What its rows are, in lines, for the document of the format.
    #[cfg(test)]
    pub(crate) meaning: &'static [&'static str],
    /// The fields of its records, for the same.
    #[cfg(test)]
    pub(crate) fields: fn() -> Vec<super::tests::Field>,
    /// Generates any record of the table.
    #[cfg(test)]
    pub(super) sample: fn(&mut proptest::test_runner::TestRng) -> Record,
}

/// A row that is ready to be written.
#[derive(Debug)]
pub(super) struct Row<'a> {
    /// Name of its table.
    pub(super) table: &'static str,
    /// The time range, for tables whose first column is `tick`.
    pub(super) tick: Option<(u64, u64)>,
    /// The other columns.
    pub(super) cells: Vec<Cell<'a>>,
}

impl<'a> Row<'a> {
    pub(super) fn new(
        table: &'static str,
        tick: Option<(u64, u64)>,
        record: &'a impl Columns,
    ) -> Self {
        let mut cells = Vec::new();
        record.write(&mut cells);
        Self { table, tick, cells }
    }
}

/// Declares the records of an enum, each with its table, its variant and its columns
/// ([`columns`](super::column::columns)). The comment of a record is the meaning of its table. `in` names the function that makes a [`Record`] of such a record, `since` and
/// the [`Presence`] after it say which recordings have the tables, unless a table says so itself. `and` adds arms for
/// variants that have their tables elsewhere.
macro_rules! tables {
    (
        $group:ident in $wrap:path, since $since:literal, $presence:expr;
        $(
            $(#[doc = $meaning:literal])*
            $table:literal $(over $tick:ident)? $(, since $own_since:literal, $own:expr)?
            => $variant:ident($type:ident) { $($fields:tt)* }
        )*
        $(and { $($arms:tt)* })?
    ) => {
        $( $crate::store::column::columns! { $type $(over $tick)? { $($fields)* } } )*

        /// The tables of these records.
        pub(in crate::store) static TABLES: &[$crate::store::table::Table] = &[$(
            $crate::store::table::Table {
                name: $table,
                columns: <$type as $crate::store::column::Columns>::columns,
                since_version: $crate::store::table::own!($since $(, $own_since)?),
                presence: $crate::store::table::own!($presence $(, $own)?),
                read: |cells| {
                    let record: $type = cells.read()?;
                    Ok($wrap($group::$variant(record.into())))
                },
                #[cfg(test)]
                meaning: &[$($meaning),*],
                #[cfg(test)]
                fields: <$type as $crate::store::tests::Documented>::fields,
                #[cfg(test)]
                sample: |rng| {
                    let record: $type = $crate::store::tests::Sample::sample(rng);
                    $wrap($group::$variant(record.into()))
                },
            }
        ),*];

        /// The row of such a record.
        pub(in crate::store) fn row(record: &$group) -> $crate::store::table::Row<'_> {
            match record {
                $(
                    $group::$variant(it) => {
                        let it: &$type = it;
                        let tick = $crate::store::table::range!(it $($tick)?);
                        $crate::store::table::Row::new($table, tick, it)
                    }
                )*
                $($($arms)*)?
            }
        }
    };
}

/// The value that a table states itself, else that of its group.
macro_rules! own {
    ($groups:expr) => {
        $groups
    };
    ($groups:expr, $own:expr) => {
        $own
    };
}

/// The time range that a row shares with others, if it does.
macro_rules! range {
    ($it:ident) => {
        None
    };
    ($it:ident tick) => {
        Some(($it.t0_ns, $it.t1_ns))
    };
}

pub(super) use {own, range, tables};

/// All tables.
pub(crate) fn all() -> impl Iterator<Item = &'static Table> {
    records::TABLES.into_iter().flatten()
}

impl Table {
    /// The columns of the table after `seq`.
    pub(crate) fn columns(&self) -> Vec<Column> {
        let mut columns = Vec::new();
        (self.columns)(self.name, &mut columns);
        columns
    }

    /// The group of tables that it is created with, if that happens on demand.
    pub(super) fn on_demand(&self) -> Option<OnDemand> {
        match self.presence {
            Presence::OnDemand(which) => Some(which),
            Presence::Always | Presence::Added => None,
        }
    }

    /// Name of the table that holds the rows. If the table has packed lists, `name` is that of a view in which the
    /// lists are JSON, as in recordings that were made before lists were packed.
    pub(super) fn stored(&self) -> Cow<'static, str> {
        let has_lists = self.columns().iter().any(|column| packed_of(column).is_some());
        if has_lists { format!("{}_packed", self.name).into() } else { self.name.into() }
    }

    fn create(&self) -> String {
        let (name, stored, columns) = (self.name, self.stored(), self.columns());
        let declared: Vec<_> = columns.iter().map(declaration).collect();
        let table =
            format!("CREATE TABLE {stored}(seq INTEGER PRIMARY KEY, {});", declared.join(", "));
        if stored == name {
            return table;
        }
        let shown: Vec<_> = columns.iter().map(shown).collect();
        format!("{table} CREATE VIEW {name} AS SELECT seq, {} FROM {stored};", shown.join(", "))
    }

    /// Statement that adds a row.
    pub(super) fn insert(&self) -> String {
        let marks = vec!["?"; self.columns().len() + 1].join(", ");
        format!("INSERT INTO {} VALUES ({marks})", self.stored())
    }
}

fn declaration(column: &Column) -> String {
    let null = if column.required { " NOT NULL" } else { "" };
    format!("{} {}{null}", column.name, column.kind)
}

/// How many numbers belong together in a column of packed lists; `None` for other columns.
pub(super) fn packed_of(column: &Column) -> Option<usize> {
    column.kind.strip_prefix("BLOB_OF_")?.parse().ok()
}

/// A column as the view shows it.
fn shown(column: &Column) -> Cow<'static, str> {
    packed_of(column).map_or(column.name.into(), |of| packed::sql(column.name, of).into())
}

/// Statements that create a group of tables, with their views.
pub(super) fn create_on_demand(which: OnDemand) -> String {
    let tables = all().filter(|table| table.on_demand() == Some(which));
    tables.map(Table::create).collect::<String>() + which.views()
}

/// Statements that create an empty recording of this version.
pub(super) fn create() -> String {
    let tables = all().filter(|table| table.on_demand().is_none());
    let tables: String = tables.map(Table::create).collect();
    [TICK_TABLE, &tables, VIEWS[0], VIEWS[1]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_has_its_own_name() {
        let names: Vec<&str> = all().map(|table| table.name).collect();
        let mut unique = names.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), names.len(), "{names:?}");
    }
}
