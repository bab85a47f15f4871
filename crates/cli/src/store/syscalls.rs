// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records of system calls as rows, and back.

use super::decode::{Cells, Result};
use super::encode::{Row, cells, json};
use super::schema::{Kind, Table};
use deburr_core::recording::{
    FileClass, ProcId, SyscallFile, SyscallRecord, SyscallSpan, SyscallTotal,
};

/// The tables, in the order of [`Kind`].
pub(super) static TABLES: [Table; 3] = [
    Table {
        name: "syscall_span",
        columns: &[
            "t0_ns INTEGER NOT NULL",
            "t1_ns INTEGER NOT NULL",
            "proc INTEGER",
            "processes INTEGER NOT NULL",
            "threads INTEGER NOT NULL",
            "waits_known INTEGER NOT NULL",
            "beyond_calls INTEGER NOT NULL",
            "beyond_ns INTEGER NOT NULL",
            "unread_calls INTEGER NOT NULL",
            "unread_ns INTEGER NOT NULL",
            "lost INTEGER NOT NULL",
        ],
    },
    Table {
        name: "syscall",
        columns: &[
            "t0_ns INTEGER NOT NULL",
            "t1_ns INTEGER NOT NULL",
            "proc INTEGER",
            "name TEXT NOT NULL",
            "calls INTEGER NOT NULL",
            "errors INTEGER NOT NULL",
            "unfinished INTEGER NOT NULL",
            "under_way INTEGER NOT NULL",
            "ns INTEGER NOT NULL",
            "off_ns INTEGER NOT NULL",
            "wait_ns INTEGER NOT NULL",
            "max_ns INTEGER NOT NULL",
            "hist TEXT NOT NULL",
        ],
    },
    Table {
        name: "syscall_file",
        columns: &[
            "t0_ns INTEGER NOT NULL",
            "t1_ns INTEGER NOT NULL",
            "proc INTEGER",
            "path TEXT NOT NULL",
            "complete INTEGER NOT NULL",
            "class TEXT NOT NULL",
            "calls TEXT NOT NULL",
            "ns TEXT NOT NULL",
            "errors INTEGER NOT NULL",
            "max_ns INTEGER NOT NULL",
            "off_ns INTEGER NOT NULL",
            "wait_ns INTEGER NOT NULL",
            "bytes INTEGER NOT NULL",
        ],
    },
];

const CLASSES: [FileClass; 8] = [
    FileClass::Proc,
    FileClass::Sys,
    FileClass::Debug,
    FileClass::Cgroup,
    FileClass::Fuse,
    FileClass::Nameless,
    FileClass::Ordinary,
    FileClass::Unknown,
];

fn class_name(class: FileClass) -> &'static str {
    match class {
        FileClass::Proc => "proc",
        FileClass::Sys => "sys",
        FileClass::Debug => "debug",
        FileClass::Cgroup => "cgroup",
        FileClass::Fuse => "fuse",
        FileClass::Nameless => "nameless",
        FileClass::Ordinary => "ordinary",
        FileClass::Unknown => "unknown",
    }
}

/// The row of a record.
pub(super) fn row(record: &SyscallRecord) -> Row<'_> {
    let process = record.process().map(|id| id.0);
    let (kind, cells) = match record {
        SyscallRecord::Span(s) => (
            Kind::SyscallSpan,
            cells![
                s.t0_ns,
                s.t1_ns,
                process,
                s.processes,
                s.threads,
                s.waits_known,
                s.beyond_calls,
                s.beyond_ns,
                s.unread_calls,
                s.unread_ns,
                s.lost,
            ],
        ),
        SyscallRecord::Call(t) => (
            Kind::Syscall,
            cells![
                t.t0_ns,
                t.t1_ns,
                process,
                &t.name,
                t.calls,
                t.errors,
                t.unfinished,
                t.under_way,
                t.ns,
                t.off_ns,
                t.wait_ns,
                t.max_ns,
                json(&t.hist),
            ],
        ),
        SyscallRecord::File(f) => (
            Kind::SyscallFile,
            cells![
                f.t0_ns,
                f.t1_ns,
                process,
                &f.path,
                f.complete,
                class_name(f.class),
                json(&f.calls),
                json(&f.ns),
                f.errors,
                f.max_ns,
                f.off_ns,
                f.wait_ns,
                f.bytes,
            ],
        ),
    };
    Row { kind, tick: None, cells }
}

/// The record in a row of one of these tables.
///
/// # Panics
///
/// On a `kind` that has none of these tables, which is a fault of the caller.
pub(super) fn record(kind: Kind, c: &mut Cells<'_>) -> Result<SyscallRecord> {
    let (t0_ns, t1_ns) = (c.u64()?, c.u64()?);
    let process = c.maybe_u32()?.map(ProcId);
    Ok(match kind {
        Kind::SyscallSpan => SyscallRecord::Span(SyscallSpan {
            t0_ns,
            t1_ns,
            process,
            processes: c.u64()?,
            threads: c.u64()?,
            waits_known: c.bool()?,
            beyond_calls: c.u64()?,
            beyond_ns: c.u64()?,
            unread_calls: c.u64()?,
            unread_ns: c.u64()?,
            lost: c.u64()?,
        }),
        Kind::Syscall => SyscallRecord::Call(SyscallTotal {
            t0_ns,
            t1_ns,
            process,
            name: c.text()?,
            calls: c.u64()?,
            errors: c.u64()?,
            unfinished: c.u64()?,
            under_way: c.u64()?,
            ns: c.u64()?,
            off_ns: c.u64()?,
            wait_ns: c.u64()?,
            max_ns: c.u64()?,
            hist: c.json()?,
        }),
        Kind::SyscallFile => SyscallRecord::File(SyscallFile {
            t0_ns,
            t1_ns,
            process,
            path: c.text()?,
            complete: c.bool()?,
            class: c.one_of(&CLASSES, class_name)?,
            calls: c.json()?,
            ns: c.json()?,
            errors: c.u64()?,
            max_ns: c.u64()?,
            off_ns: c.u64()?,
            wait_ns: c.u64()?,
            bytes: c.u64()?,
        }),
        kind => unreachable!("{kind:?} is no table of system calls"),
    })
}
