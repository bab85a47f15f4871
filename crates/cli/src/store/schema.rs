// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tables of a recording, as data. `docs/recording-format.md` says what they mean to a reader with
//! `sqlite3`; a test compares the two.
//!
//! Every table's key is `seq`, a number that counts up over all tables: merged by it, the rows are the
//! record stream again. It costs nothing to keep, as rows are appended in its order. Ticks refer to
//! `tick` for their range of time instead of repeating it, as hundreds of rows a second share it.

/// `PRAGMA application_id` of a recording: "dbur".
pub(super) const APPLICATION_ID: i32 = 0x6462_7572;

/// `PRAGMA user_version`: raised when a table changes in a way that older readers would misread.
pub(super) const VERSION: i32 = 1;

/// One kind of record.
#[derive(Debug)]
pub(super) struct Table {
    /// Its name.
    pub(super) name: &'static str,
    /// Columns after `seq`, with their types, in the order in which they are written and read.
    pub(super) columns: &'static [&'static str],
}

/// Where a record goes. The order is that of [`TABLES`].
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
}

impl Kind {
    pub(super) const ALL: [Self; 15] = [
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
    ];

    /// Its table.
    pub(super) fn table(self) -> &'static Table {
        &TABLES[self as usize]
    }
}

/// The column that [`Table::has_tick`] looks for.
const TICK: &str = "tick INTEGER NOT NULL";

const TABLES: [Table; 15] = [
    Table {
        name: "meta",
        columns: &[
            "tool_version TEXT NOT NULL",
            "host_name TEXT NOT NULL",
            "kernel TEXT NOT NULL",
            "cpus_online TEXT NOT NULL",
            "cgroup_layout TEXT NOT NULL",
            "cpu_controller TEXT",
            "start_unix_ns INTEGER NOT NULL",
            "start_mono_ns INTEGER NOT NULL",
            "asked_ns INTEGER",
            "target TEXT NOT NULL",
            "root INTEGER NOT NULL",
        ],
    },
    Table {
        name: "coverage",
        columns: &[
            "t_ns INTEGER NOT NULL",
            "source TEXT NOT NULL",
            "state TEXT NOT NULL",
            "reason TEXT",
            "gain TEXT",
        ],
    },
    Table {
        name: "process",
        columns: &[
            "proc INTEGER NOT NULL",
            "pid INTEGER NOT NULL",
            "start_ns INTEGER NOT NULL",
            "comm TEXT NOT NULL",
            "cmdline TEXT NOT NULL",
            "kernel_thread INTEGER",
            "cgroup INTEGER",
            "cpus_allowed TEXT",
            "cpuset_cpus TEXT",
            "nice INTEGER",
            "in_target INTEGER NOT NULL",
            "observer INTEGER NOT NULL",
        ],
    },
    Table {
        name: "cgroup",
        columns: &[
            "cgroup INTEGER NOT NULL",
            "parent INTEGER",
            "path TEXT NOT NULL",
            "version TEXT NOT NULL",
            "quota_us INTEGER",
            "period_us INTEGER",
            "burst_us INTEGER",
            "weight INTEGER",
            "container TEXT",
        ],
    },
    Table {
        name: "process_tick",
        columns: &[
            TICK,
            "proc INTEGER NOT NULL",
            "threads INTEGER NOT NULL",
            "wall_ns INTEGER NOT NULL",
            "on_cpu_ns INTEGER NOT NULL",
            "queued_ns INTEGER NOT NULL",
            "throttled_ns INTEGER NOT NULL",
            "block_io_ns INTEGER NOT NULL",
            "mem_stall_ns INTEGER NOT NULL",
            "uninterruptible_ns INTEGER NOT NULL",
            "sleep_ns INTEGER NOT NULL",
            "stopped_ns INTEGER NOT NULL",
            "waits TEXT",
            "wait_max_ns INTEGER NOT NULL",
            "switches INTEGER NOT NULL",
            "wakeup_latency_ns INTEGER NOT NULL",
        ],
    },
    Table {
        name: "blame",
        columns: &[
            TICK,
            "victim INTEGER NOT NULL",
            "culprit INTEGER NOT NULL",
            "ns INTEGER NOT NULL",
        ],
    },
    Table {
        name: "idle",
        columns: &[
            TICK,
            "victim INTEGER NOT NULL",
            "min_wait_ns INTEGER NOT NULL",
            "waits INTEGER NOT NULL",
            "waits_ns INTEGER NOT NULL",
            "idle_allowed_ns INTEGER NOT NULL",
            "idle_forbidden_ns INTEGER NOT NULL",
            "cpus TEXT",
        ],
    },
    Table {
        name: "schedstat",
        columns: &[
            TICK,
            "proc INTEGER NOT NULL",
            "threads INTEGER NOT NULL",
            "wall_ns INTEGER NOT NULL",
            "on_cpu_ns INTEGER NOT NULL",
            "delay_ns INTEGER NOT NULL",
            "slices INTEGER NOT NULL",
        ],
    },
    Table {
        name: "load_bin",
        columns: &[
            "scope TEXT NOT NULL",
            "t0_ns INTEGER NOT NULL",
            "t1_ns INTEGER NOT NULL",
            "on_cpu_ns INTEGER NOT NULL",
            "queued_ns INTEGER NOT NULL",
            "throttled_ns INTEGER NOT NULL",
            "block_io_ns INTEGER NOT NULL",
            "waits INTEGER NOT NULL",
            "switches INTEGER NOT NULL",
        ],
    },
    Table {
        name: "cpu_reading",
        columns: &[
            "t_ns INTEGER NOT NULL",
            "cpu INTEGER NOT NULL",
            "user_ns INTEGER NOT NULL",
            "system_ns INTEGER NOT NULL",
            "idle_ns INTEGER NOT NULL",
            "iowait_ns INTEGER NOT NULL",
            "irq_ns INTEGER NOT NULL",
            "steal_ns INTEGER NOT NULL",
        ],
    },
    Table {
        name: "cgroup_reading",
        columns: &[
            "t_ns INTEGER NOT NULL",
            "cgroup INTEGER NOT NULL",
            "usage_ns INTEGER",
            "nr_periods INTEGER",
            "nr_throttled INTEGER",
            "throttled_ns INTEGER",
            "nr_bursts INTEGER",
            "burst_ns INTEGER",
        ],
    },
    Table {
        name: "psi_reading",
        columns: &[
            "t_ns INTEGER NOT NULL",
            "cgroup INTEGER",
            "resource TEXT NOT NULL",
            "some_ns INTEGER NOT NULL",
            "full_ns INTEGER",
        ],
    },
    Table {
        name: "observer_tick",
        columns: &[
            TICK,
            "cpu_ns INTEGER NOT NULL",
            "bpf_runs INTEGER NOT NULL",
            "bpf_run_ns INTEGER",
            "rss_bytes INTEGER NOT NULL",
            "bpf_map_bytes INTEGER NOT NULL",
            "lost TEXT",
        ],
    },
    Table {
        name: "event",
        columns: &["t_ns INTEGER NOT NULL", "event TEXT NOT NULL", "ns INTEGER", "detail TEXT"],
    },
    Table { name: "ending", columns: &["window_ns INTEGER NOT NULL"] },
];

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

    fn create(&self) -> String {
        format!("CREATE TABLE {}(seq INTEGER PRIMARY KEY, {});", self.name, self.columns.join(", "))
    }

    /// Statement that adds a row.
    pub(super) fn insert(&self) -> String {
        let marks = vec!["?"; self.columns.len() + 1].join(", ");
        format!("INSERT INTO {} VALUES ({marks})", self.name)
    }

    /// Statement that yields the rows in order: `seq`, then the columns; in place of `tick`, its bounds.
    pub(super) fn select(&self) -> String {
        let names: Vec<&str> =
            self.columns.iter().filter_map(|column| column.split(' ').next()).collect();
        if self.has_tick() {
            format!(
                "SELECT r.seq, k.t0_ns, k.t1_ns, r.{} FROM {} r LEFT JOIN tick k USING (tick) ORDER BY r.seq",
                names[1..].join(", r."),
                self.name
            )
        } else {
            format!("SELECT seq, {} FROM {} ORDER BY seq", names.join(", "), self.name)
        }
    }
}

/// Statements that make an empty recording of this version.
pub(super) fn create() -> String {
    let mut sql = String::from(TICK_TABLE);
    for kind in Kind::ALL {
        sql += &kind.table().create();
    }
    sql + VIEWS
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
