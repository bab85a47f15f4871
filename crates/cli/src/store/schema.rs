// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tables of a recording, as data. `docs/recording-format.md` says what they mean to a reader with
//! `sqlite3`; a test compares the two.
//!
//! Every table's key is `seq`, a number that counts up over all tables: merged by it, the rows are the
//! record stream again. It costs nothing to keep, as rows are appended in its order. Ticks refer to
//! `tick` for their range of time instead of repeating it, as hundreds of rows a second share it.

use super::{block, cpu_check, packed, runtime, syscalls, tables};
use std::borrow::Cow;

/// `PRAGMA application_id` of a recording: "dbur".
pub(super) const APPLICATION_ID: i32 = 0x6462_7572;

/// `PRAGMA user_version`: raised when a table changes in a way that older readers would misread.
pub(super) const VERSION: i32 = 2;

/// One kind of record.
#[derive(Debug)]
pub(super) struct Table {
    /// Its name.
    pub(super) name: &'static str,
    /// Columns after `seq`, with their types, in the order in which they are written and read. `BLOB_OF_3` is a list of
    /// lists of three numbers each, packed ([`packed`]).
    pub(super) columns: &'static [&'static str],
}

/// Where a record goes. The order is that of [`tables::TABLES`], then [`block::TABLES`], then
/// [`runtime::TABLES`], then [`cpu_check::TABLES`], then [`syscalls::TABLES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Meta,
    Coverage,
    Process,
    Cgroup,
    ProcessTick,
    Blame,
    Idle,
    Schedstat,
    LoadBin,
    Cpu,
    CgroupCpu,
    Psi,
    Observer,
    Event,
    Ending,
    Device,
    Mount,
    Setting,
    File,
    Io,
    DeviceTick,
    Bins,
    Disk,
    Pass,
    Commit,
    Wait,
    Stall,
    IoBlame,
    Pace,
    Held,
    Runtime,
    NamedThreads,
    CpuCheck,
    CpuWorker,
    CpuRound,
    CpuDistance,
    SyscallSpan,
    Syscall,
    SyscallFile,
}

/// Tables that are made when the first of their rows is written: a recording that has none has no use for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnDemand {
    /// Of a check of CPUs.
    Check,
    /// Of system calls.
    Syscalls,
}

impl Kind {
    pub(super) const ALL: [Self; 39] = [
        Self::Meta,
        Self::Coverage,
        Self::Process,
        Self::Cgroup,
        Self::ProcessTick,
        Self::Blame,
        Self::Idle,
        Self::Schedstat,
        Self::LoadBin,
        Self::Cpu,
        Self::CgroupCpu,
        Self::Psi,
        Self::Observer,
        Self::Event,
        Self::Ending,
        Self::Device,
        Self::Mount,
        Self::Setting,
        Self::File,
        Self::Io,
        Self::DeviceTick,
        Self::Bins,
        Self::Disk,
        Self::Pass,
        Self::Commit,
        Self::Wait,
        Self::Stall,
        Self::IoBlame,
        Self::Pace,
        Self::Held,
        Self::Runtime,
        Self::NamedThreads,
        Self::CpuCheck,
        Self::CpuWorker,
        Self::CpuRound,
        Self::CpuDistance,
        Self::SyscallSpan,
        Self::Syscall,
        Self::SyscallFile,
    ];

    /// Its table.
    pub(super) fn table(self) -> &'static Table {
        let alone = runtime::TABLES.into_iter();
        let alone = alone.chain(&cpu_check::TABLES).chain(&syscalls::TABLES);
        let mut tables = tables::TABLES.iter().chain(&block::TABLES).chain(alone);
        tables.nth(self as usize).expect("each kind has a table")
    }

    /// Version of the format from which on a recording has its table. A table that an older recording lacks
    /// is empty.
    pub(super) fn since_version(self) -> i32 {
        if (self as usize) < tables::TABLES.len() { 1 } else { 2 }
    }

    /// With which others its table is made, if it is only there where it has rows.
    pub(super) fn on_demand(self) -> Option<OnDemand> {
        match self {
            Self::CpuCheck | Self::CpuWorker | Self::CpuRound | Self::CpuDistance => {
                Some(OnDemand::Check)
            }
            Self::SyscallSpan | Self::Syscall | Self::SyscallFile => Some(OnDemand::Syscalls),
            _ => None,
        }
    }

    /// Whether its table came to the format after others of its version: a recording may lack it.
    pub(super) fn is_addition(self) -> bool {
        matches!(self, Self::Pace | Self::Held | Self::Runtime | Self::NamedThreads)
            || self.on_demand().is_some()
    }
}

/// The column that [`Table::has_tick`] looks for.
pub(super) const TICK: &str = "tick INTEGER NOT NULL";

/// Ranges of time that rows of the tick tables share.
const TICK_TABLE: &str =
    "CREATE TABLE tick(tick INTEGER PRIMARY KEY, t0_ns INTEGER NOT NULL, t1_ns INTEGER NOT NULL);";

/// Answers to the questions that people ask first. They are part of the format only as a convenience:
/// the reader never uses them.
const VIEWS: &str = include_str!("views.sql");

impl Table {
    /// Whether its first column refers to `tick`.
    pub(super) fn has_tick(&self) -> bool {
        self.columns.first() == Some(&TICK)
    }

    /// The table that holds its rows. Where lists are packed, that is not what goes by its name: there is a view, in
    /// which they are JSON, as they are in recordings that were made before lists were packed.
    pub(super) fn stored(&self) -> Cow<'static, str> {
        let has_lists = self.columns.iter().any(|column| packed_of(column).is_some());
        if has_lists { format!("{}_packed", self.name).into() } else { self.name.into() }
    }

    fn create(&self) -> String {
        let (name, stored) = (self.name, self.stored());
        let table =
            format!("CREATE TABLE {stored}(seq INTEGER PRIMARY KEY, {});", self.columns.join(", "));
        if stored == name {
            return table;
        }
        let columns: Vec<_> = self.columns.iter().map(|column| shown(column)).collect();
        format!("{table} CREATE VIEW {name} AS SELECT seq, {} FROM {stored};", columns.join(", "))
    }

    /// Statement that adds a row.
    pub(super) fn insert(&self) -> String {
        let marks = vec!["?"; self.columns.len() + 1].join(", ");
        format!("INSERT INTO {} VALUES ({marks})", self.stored())
    }

    /// Statement that yields the rows of the table `from` in order: `seq`, then the columns; in place of `tick`, its
    /// bounds. Of a column that is not `there`, because it was added later, NULL.
    pub(super) fn select(&self, from: &str, there: &[String]) -> String {
        let known = |name: &'static str| {
            if there.iter().any(|column| column == name) { name } else { "NULL" }
        };
        let names: Vec<&str> = self.columns.iter().map(|column| known(split(column).0)).collect();
        if self.has_tick() {
            format!(
                "SELECT seq, k.t0_ns, k.t1_ns, {} FROM {from} r LEFT JOIN tick k USING (tick) ORDER BY seq",
                names[1..].join(", ")
            )
        } else {
            format!("SELECT seq, {} FROM {from} ORDER BY seq", names.join(", "))
        }
    }
}

/// A column's name and its type.
fn split(column: &'static str) -> (&'static str, &'static str) {
    column.split_once(' ').expect("a column has a type")
}

/// How many numbers belong together in a column that holds packed lists.
fn packed_of(column: &'static str) -> Option<usize> {
    split(column).1.strip_prefix("BLOB_OF_")?.parse().ok()
}

/// A column as everybody reads it.
fn shown(column: &'static str) -> Cow<'static, str> {
    let name = split(column).0;
    packed_of(column).map_or(name.into(), |of| packed::sql(name, of).into())
}

/// Statements that add tables that a recording that only observes has no use for.
pub(super) fn create_on_demand(which: OnDemand) -> String {
    let kinds = Kind::ALL.into_iter().filter(|kind| kind.on_demand() == Some(which));
    let views = match which {
        OnDemand::Check => cpu_check::VIEWS,
        OnDemand::Syscalls => "",
    };
    kinds.map(|kind| kind.table().create()).collect::<String>() + views
}

/// Statements that make an empty recording of this version.
pub(super) fn create() -> String {
    let mut sql = String::from(TICK_TABLE);
    for kind in Kind::ALL.into_iter().filter(|kind| kind.on_demand().is_none()) {
        sql += &kind.table().create();
    }
    sql + VIEWS + block::VIEWS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_own_table() {
        let names: Vec<&str> = Kind::ALL.iter().map(|kind| kind.table().name).collect();
        let mut unique = names.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), names.len(), "{names:?}");
        for (position, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, position);
        }
    }

    #[test]
    fn the_format_document_names_every_table_and_column() {
        let document = include_str!("../../../../docs/recording-format.md");
        assert!(document.contains(&format!("Version: {VERSION}")), "version");
        for kind in Kind::ALL {
            let table = kind.table();
            let start = document
                .find(&format!("### `{}`", table.name))
                .unwrap_or_else(|| panic!("no section for {}", table.name));
            let section = document[start + 4..].split("\n### ").next().unwrap();
            for column in table.columns {
                let name = column.split(' ').next().unwrap();
                assert!(section.contains(&format!("`{name}`")), "{}.{name}", table.name);
            }
        }
    }
}
