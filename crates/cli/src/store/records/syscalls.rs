// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records of system calls.

use crate::store::encodings::Json;
use crate::store::table::{OnDemand, Presence, tables};
use deburr_core::recording::{Record, SyscallFile, SyscallRecord, SyscallSpan, SyscallTotal};

fn whole(record: SyscallRecord) -> Record {
    Record::Syscalls(Box::new(record))
}

tables! {
    SyscallRecord in whole, since 2, Presence::OnDemand(OnDemand::Syscalls);

    "syscall_span" => Span(SyscallSpan) {
        t0_ns,
        t1_ns,
        process = "proc",
        processes,
        threads,
        waits_known,
        beyond_calls,
        beyond_ns,
        unread_calls,
        unread_ns,
        lost,
    }
    "syscall" => Call(SyscallTotal) {
        t0_ns,
        t1_ns,
        process = "proc",
        name,
        calls,
        errors,
        unfinished,
        under_way,
        ns,
        off_ns,
        wait_ns,
        max_ns,
        hist: Json,
    }
    "syscall_file" => File(SyscallFile) {
        t0_ns,
        t1_ns,
        process = "proc",
        path,
        complete,
        class,
        calls: Json,
        ns: Json,
        errors,
        max_ns,
        off_ns,
        wait_ns,
        bytes,
    }
}
