// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is exported: tables, and of each column the type, the unit and the meaning in time. `docs/export.md` is written
//! from it.
//!
//! The tables are those of a recording (`cli::store`), which says what each column means. Units follow from the names of
//! the columns; what a number means in time follows from its table. [`OTHERWISE`] lists the exceptions, and a test that no
//! number is without both. Two tables are made for the export, [`made`].

use super::made;
use crate::store::{self, Column, TICK};

/// A table of an export.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) columns: Vec<Field>,
}

/// A column of an exported table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Whether cells may be null.
    pub(crate) nullable: bool,
    pub(crate) unit: Unit,
    pub(crate) holds: Holds,
    /// Where its cells come from.
    pub(crate) from: From,
}

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Integer,
    Real,
    Text,
    Json,
    Time,
}

/// Where the cells of a column come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// The key of the row.
    Seq,
    /// The cell of the stored row at that place.
    Cell(usize, Column),
    /// The start of the window and the time since then, which is in the stored row at that place.
    Wall(usize),
    /// The export makes them; what they mean.
    Made(&'static str),
}

/// Unit of the numbers of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Nanoseconds.
    Ns,
    /// Nanoseconds per second of wall time.
    NsPerS,
    /// A share, 0 to 1.
    Ratio,
    /// Microseconds.
    Us,
    Bytes,
    /// Units of 512 bytes.
    Sectors,
    /// A number of things.
    Count,
    /// 1 = yes, 0 = no.
    Flag,
    /// A number without a unit: an identity, a weight.
    Plain,
    /// No number.
    None,
}

/// What a column holds with regard to time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// A moment, or the bound of a range.
    Moment,
    /// Which row, process, file, ... it is about.
    Identity,
    /// A fact that is valid from the row on, or once for the recording.
    Fact,
    /// What fell into the row's range of time: may be added up.
    Amount,
    /// A counter of the kernel as it was read: only differences mean something.
    Cumulative,
    /// A state at the end of the range or at the moment: must not be added up.
    Level,
    /// The largest value within the range: must not be added up.
    Maximum,
    /// An average, a median, a percentile or a share over the range: must not be added up.
    Statistic,
}

impl Kind {
    /// In the document.
    #[cfg(test)]
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Integer => "integer",
            Self::Real => "real",
            Self::Text => "text",
            Self::Json => "JSON",
            Self::Time => "time",
        }
    }
}

impl Unit {
    /// In documents and in files.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Ns => "ns",
            Self::NsPerS => "ns/s",
            Self::Ratio => "0 to 1",
            Self::Us => "us",
            Self::Bytes => "bytes",
            Self::Sectors => "512 bytes",
            Self::Count => "count",
            Self::Flag => "0 or 1",
            Self::Plain => "number",
            Self::None => "",
        }
    }
}

impl Holds {
    /// In documents and in files.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Moment => "moment",
            Self::Identity => "identity",
            Self::Fact => "fact",
            Self::Amount => "amount",
            Self::Cumulative => "cumulative",
            Self::Level => "level",
            Self::Maximum => "maximum",
            Self::Statistic => "statistic",
        }
    }
}

/// Tables whose rows are facts, or describe one event.
const FACTS: [&str; 13] = [
    "meta",
    "host_facts",
    "coverage",
    "process",
    "cgroup",
    "event",
    "runtime",
    "device",
    "mount",
    "setting",
    "file",
    "ending",
    "cpu_check",
];
/// Tables of the kernel's counters.
const CUMULATIVE: [&str; 5] =
    ["cpu_reading", "cgroup_reading", "psi_reading", "disk_reading", "memory_reading"];
/// Columns that say whom or what a row is about.
const IDENTITIES: [&str; 28] = [
    "peer",
    "irq",
    "netns",
    "inode",
    "seq",
    "proc",
    "pid",
    "cgroup",
    "parent",
    "victim",
    "culprit",
    "file",
    "ino",
    "generation",
    "submitter",
    "owner",
    "dirtied_by",
    "cpu",
    "a",
    "b",
    "worker",
    "device",
    "fs",
    "scope",
    "tid",
    "entry",
    "waker",
    "address",
];
/// Columns that are 0 or 1.
const FLAGS: [&str; 15] = [
    "accepted",
    "root",
    "kernel",
    "kernel_thread",
    "in_target",
    "observer",
    "many",
    "gone",
    "hypervisor",
    "realtime",
    "waits_known",
    "complete",
    "cores_told",
    "asked",
    "in_request",
];
/// Columns that count things.
const COUNTS: [&str; 65] = [
    "looks",
    "occupied_looks",
    "late_looks",
    "held_looks",
    "corked_looks",
    "samples",
    "bursts",
    "connections",
    "times",
    "dropped_here",
    "requests",
    "timeouts",
    "probes",
    "recoveries",
    "segments",
    "data_segments",
    "total_segments",
    "drops",
    "opened",
    "overflows",
    "waiting",
    "most_waiting",
    "somaxconn",
    "threads",
    "looked_at",
    "switches",
    "waits",
    "slices",
    "nr_periods",
    "nr_throttled",
    "nr_bursts",
    "bpf_runs",
    "ios",
    "reads",
    "writes",
    "flushes",
    "in_flight",
    "inodes",
    "blocks",
    "unmeasured",
    "within",
    "bins",
    "workers",
    "chunks",
    "gaps",
    "migrations",
    "processes",
    "beyond_calls",
    "unread_calls",
    "lost",
    "calls",
    "errors",
    "unfinished",
    "under_way",
    "hist",
    "sampled_one_in",
    "members",
    "ages",
    "since_last",
    "asked_by",
    "parallelism",
    "count",
    "pages",
    "refaults_file",
    "refaults_anon",
];
/// Columns of facts whose name does not say that they have no unit.
const PLAIN: [&str; 2] = ["nice", "weight"];

/// Columns that hold something else than the other numbers of their table.
pub(super) const OTHERWISE: [(&str, &str, Holds); 54] = [
    ("interrupts", "longest_ns", Holds::Maximum),
    ("resent", "connections", Holds::Level),
    ("resent", "srtt_ns", Holds::Level),
    ("resent", "rto_ns", Holds::Maximum),
    ("resent", "data_segments", Holds::Level),
    ("resent", "total_segments", Holds::Level),
    ("sending", "connections", Holds::Level),
    ("sending", "accepted", Holds::Fact),
    ("sending", "srtt_ns", Holds::Level),
    ("sending", "window_bytes", Holds::Level),
    ("sending", "buffer_bytes", Holds::Level),
    ("sending", "waiting_bytes", Holds::Level),
    ("unread", "connections", Holds::Level),
    ("unread", "longest_ns", Holds::Maximum),
    ("unread", "waiting_bytes", Holds::Level),
    ("held_back", "longest_ns", Holds::Maximum),
    ("held_back", "most_bytes", Holds::Maximum),
    ("accept_queue", "inode", Holds::Fact),
    ("accept_queue", "most_waiting", Holds::Maximum),
    ("accept_queue", "longest_ns", Holds::Maximum),
    ("datagrams", "waiting_bytes", Holds::Level),
    ("datagrams", "buffer_bytes", Holds::Fact),
    ("datagrams", "most_buffer_bytes", Holds::Fact),
    ("listener", "waiting", Holds::Maximum),
    ("listener", "most_waiting", Holds::Fact),
    ("listener", "somaxconn", Holds::Fact),
    ("sleep", "longest_ns", Holds::Maximum),
    ("reclaim", "longest_ns", Holds::Maximum),
    ("reclaim", "limit_bytes", Holds::Level),
    ("reclaim", "usage_bytes", Holds::Level),
    ("memory_reading", "free_bytes", Holds::Level),
    ("memory_reading", "low_bytes", Holds::Level),
    ("memory_held", "anon_bytes", Holds::Level),
    ("memory_held", "swapped_bytes", Holds::Level),
    ("memory_held", "grown_bytes", Holds::Level),
    ("process_tick", "threads", Holds::Level),
    // It is the same in all rows of a wait.
    ("long_wait", "wait_ns", Holds::Fact),
    ("idle", "min_wait_ns", Holds::Fact),
    ("schedstat", "threads", Holds::Level),
    ("named_threads", "threads", Holds::Level),
    ("observer_tick", "rss_bytes", Holds::Level),
    ("observer_tick", "bpf_map_bytes", Holds::Level),
    ("device_tick", "sampled_one_in", Holds::Fact),
    ("device_bins", "bins", Holds::Fact),
    ("disk_reading", "in_flight", Holds::Level),
    ("stall", "latest_ns", Holds::Moment),
    ("io_held", "service_ns", Holds::Statistic),
    ("cpu_worker", "workers", Holds::Fact),
    ("cpu_worker", "chunk_ns", Holds::Statistic),
    ("cpu_worker", "cpu", Holds::Level),
    ("cpu_round", "slot_ns", Holds::Fact),
    ("cpu_distance", "one_way_ns", Holds::Statistic),
    ("syscall_span", "waits_known", Holds::Fact),
    ("profile_span", "period_ns", Holds::Fact),
];

/// All tables: those of the recording in the order of [`store::tables`], then [`made::FINDING`] and [`made::FACT`].
pub(crate) fn tables() -> Vec<Table> {
    let made = [(made::FINDING, made::FINDING_COLUMNS), (made::FACT, made::FACT_COLUMNS)];
    let made = made.into_iter().map(|(name, columns)| Table { name, columns: columns.to_vec() });
    store::tables().map(of_stored).chain(made).collect()
}

fn of_stored(table: &store::Table) -> Table {
    let declared = table.columns();
    let has_tick = declared.first() == Some(&TICK);
    let bound = |name| Column { name, ..TICK };
    let stored: Vec<Column> = if has_tick {
        [bound("t0_ns"), bound("t1_ns")].into_iter().chain(declared.into_iter().skip(1)).collect()
    } else {
        declared
    };
    let mut columns = vec![field(table.name, "seq", Kind::Integer, false, From::Seq)];
    let mut walls = Vec::new();
    for (at, column) in stored.iter().enumerate() {
        let kind = match column.kind {
            // What it says has a table of its own, [`made::FACT`].
            store::COMPRESSED => continue,
            "INTEGER" => Kind::Integer,
            "TEXT" if !column.json => Kind::Text,
            _ => Kind::Json,
        };
        let from = From::Cell(at, *column);
        columns.push(field(table.name, column.name, kind, !column.required, from));
        let wall = match column.name {
            "t_ns" => "t_wall",
            "t0_ns" => "t0_wall",
            "t1_ns" => "t1_wall",
            _ => continue,
        };
        // It is null if it lies outside of the years that a time can have.
        walls.push(field(table.name, wall, Kind::Time, true, From::Wall(at)));
        if column.name != "t0_ns" {
            columns.append(&mut walls);
        }
    }
    Table { name: table.name, columns }
}

fn field(table: &str, name: &'static str, kind: Kind, nullable: bool, from: From) -> Field {
    let unit = unit(name, kind);
    Field { name, kind, nullable, unit, holds: holds(table, name, kind, unit), from }
}

fn unit(name: &str, kind: Kind) -> Unit {
    let number = kind == Kind::Integer;
    match name {
        _ if matches!(kind, Kind::Text | Kind::Time) => Unit::None,
        name if number && (IDENTITIES.contains(&name) || PLAIN.contains(&name)) => Unit::Plain,
        name if number && FLAGS.contains(&name) => Unit::Flag,
        name if name.ends_with("_ns") || name == "ns" => Unit::Ns,
        name if name.ends_with("_us") => Unit::Us,
        name if name.ends_with("bytes") => Unit::Bytes,
        "sectors" | "start_sector" => Unit::Sectors,
        name if number && COUNTS.contains(&name) => Unit::Count,
        // What is in a list or an object has units of its own, which its meaning says.
        _ => Unit::None,
    }
}

fn holds(table: &str, name: &str, kind: Kind, unit: Unit) -> Holds {
    let otherwise = OTHERWISE.iter().find(|(of, column, _)| (*of, *column) == (table, name));
    let moment = kind == Kind::Time || ["t_ns", "t0_ns", "t1_ns"].contains(&name);
    match otherwise {
        Some((_, _, holds)) => *holds,
        None if moment => Holds::Moment,
        None if IDENTITIES.contains(&name) => Holds::Identity,
        None if FACTS.contains(&table) => Holds::Fact,
        None if name.ends_with("max_ns") => Holds::Maximum,
        None if CUMULATIVE.contains(&table) && unit != Unit::None => Holds::Cumulative,
        None if unit == Unit::None && kind == Kind::Text => Holds::Identity,
        None => Holds::Amount,
    }
}
