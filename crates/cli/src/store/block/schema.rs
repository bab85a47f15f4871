// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tables of block IO, in the order of [`super::super::schema::Kind`].

use crate::store::schema::{TICK, Table};

/// Answers to the questions that people ask first of block IO.
pub(in crate::store) const VIEWS: &str = include_str!("views.sql");

pub(in crate::store) static TABLES: [Table; 15] = [
    Table {
        name: "device",
        columns: &[
            "device TEXT NOT NULL",
            "name TEXT NOT NULL",
            "disk TEXT",
            "start_sector INTEGER",
            "sectors INTEGER",
            "backing TEXT",
            "gone INTEGER NOT NULL",
        ],
    },
    Table {
        name: "mount",
        columns: &[
            "fs TEXT NOT NULL",
            "fstype TEXT NOT NULL",
            "source TEXT NOT NULL",
            "point TEXT NOT NULL",
            "options TEXT NOT NULL",
        ],
    },
    Table {
        name: "setting",
        columns: &["t_ns INTEGER NOT NULL", "path TEXT NOT NULL", "value TEXT"],
    },
    Table {
        name: "file",
        columns: &[
            "file INTEGER NOT NULL",
            "fs TEXT NOT NULL",
            "ino INTEGER NOT NULL",
            "generation INTEGER NOT NULL",
            "path TEXT NOT NULL",
            "state TEXT NOT NULL",
            "dirtied_by INTEGER",
        ],
    },
    Table {
        name: "io_tick",
        columns: &[
            TICK,
            "device TEXT NOT NULL",
            "what TEXT NOT NULL",
            "file INTEGER",
            "op TEXT NOT NULL",
            "submitter INTEGER",
            "owner INTEGER",
            "reason TEXT",
            "ios INTEGER NOT NULL",
            "bytes INTEGER NOT NULL",
            "total_ns INTEGER NOT NULL",
            "max_ns INTEGER NOT NULL",
        ],
    },
    Table {
        name: "device_tick",
        columns: &[
            TICK,
            "device TEXT NOT NULL",
            "op TEXT NOT NULL",
            "total BLOB_OF_3",
            "queue BLOB_OF_3",
            "device_time BLOB_OF_3",
            "max_ns INTEGER NOT NULL",
            "sampled_one_in INTEGER NOT NULL",
            "before BLOB_OF_3",
        ],
    },
    Table {
        name: "device_bins",
        columns: &[TICK, "device TEXT NOT NULL", "bins INTEGER NOT NULL", "active BLOB_OF_5"],
    },
    Table {
        name: "disk_reading",
        columns: &[
            "t_ns INTEGER NOT NULL",
            "device TEXT NOT NULL",
            "reads INTEGER NOT NULL",
            "read_bytes INTEGER NOT NULL",
            "read_ns INTEGER NOT NULL",
            "writes INTEGER NOT NULL",
            "write_bytes INTEGER NOT NULL",
            "write_ns INTEGER NOT NULL",
            "discard_bytes INTEGER NOT NULL",
            "flushes INTEGER NOT NULL",
            "busy_ns INTEGER NOT NULL",
            "depth_ns INTEGER NOT NULL",
            "in_flight INTEGER NOT NULL",
        ],
    },
    Table {
        name: "writeback_pass",
        columns: &[
            "t0_ns INTEGER NOT NULL",
            "t1_ns INTEGER NOT NULL",
            "device TEXT NOT NULL",
            "reason TEXT NOT NULL",
            "inodes INTEGER NOT NULL",
            "bytes INTEGER NOT NULL",
            "ios INTEGER NOT NULL",
            "ages TEXT",
            "since_last TEXT",
            "dirtied_by TEXT",
            "asked_by TEXT",
        ],
    },
    Table {
        name: "journal_commit",
        columns: &[
            "t0_ns INTEGER NOT NULL",
            "t1_ns INTEGER NOT NULL",
            "device TEXT NOT NULL",
            "kind TEXT NOT NULL",
            "blocks INTEGER",
        ],
    },
    Table {
        name: "io_wait",
        columns: &[
            TICK,
            "proc INTEGER NOT NULL",
            "kind TEXT NOT NULL",
            "device TEXT",
            "waits BLOB_OF_3",
            "max_ns INTEGER NOT NULL",
            "unmeasured INTEGER",
        ],
    },
    Table {
        name: "stall",
        columns: &[
            "t0_ns INTEGER NOT NULL",
            "t1_ns INTEGER NOT NULL",
            "proc INTEGER NOT NULL",
            "kind TEXT NOT NULL",
            "device TEXT",
            "file INTEGER",
            "latest_ns INTEGER",
            "within INTEGER",
            "within_ns INTEGER",
        ],
    },
    Table {
        name: "io_blame",
        columns: &[
            TICK,
            "victim INTEGER NOT NULL",
            "device TEXT NOT NULL",
            "culprit TEXT NOT NULL",
            "proc INTEGER",
            "cgroup INTEGER",
            "ns INTEGER NOT NULL",
        ],
    },
    Table { name: "io_pace", columns: &[TICK, "device TEXT NOT NULL", "sectors BLOB NOT NULL"] },
    Table {
        name: "io_held",
        columns: &[
            TICK,
            "device TEXT NOT NULL",
            "op TEXT NOT NULL",
            "cgroup TEXT",
            "ios INTEGER NOT NULL",
            "bytes INTEGER NOT NULL",
            "service_ns INTEGER",
            "members TEXT",
        ],
    },
];
