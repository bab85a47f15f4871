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

    /// Whose system calls were counted, and what did not fit. This table and the next two exist only in recordings that
    /// were made with `--syscalls`.
    "syscall_span" => Span(SyscallSpan) {
        /// start
        t0_ns,
        /// end
        t1_ns,
        /// the process; the calls of all processes that it started meanwhile count as its own; NULL = the command, or
        /// the whole target
        process = "proc",
        /// processes that started meanwhile
        processes,
        /// threads that started meanwhile, including the first ones of processes
        threads,
        /// 1 = waiting for a CPU is measured separately; 0 = it counts as blocked
        waits_known,
        /// calls about files for which the probe had no room
        beyond_calls,
        /// their time
        beyond_ns,
        /// calls whose file could not be determined
        unread_calls,
        /// their time
        unread_ns,
        /// threads that were not observed, and events that the probe missed
        lost,
    }
    /// All calls of one name.
    "syscall" => Call(SyscallTotal) {
        /// start
        t0_ns,
        /// end
        t1_ns,
        /// as in `syscall_span`
        process = "proc",
        /// as in the manual; in parentheses if it has no name
        name,
        /// calls that returned
        calls,
        /// those of them that returned an error
        errors,
        /// calls in which the thread ended
        unfinished,
        /// calls that had not returned at the end
        under_way,
        /// wall time of the calls that returned
        ns,
        /// part of `ns` in which the thread was off the CPU
        off_ns,
        /// part of `off_ns` in which it was runnable and waited for a CPU
        wait_ns,
        /// longest call
        max_ns,
        /// calls by length, a JSON list: below 64 ns, then four buckets for each power of two; empty buckets at the end
        /// are left out
        hist: Json,
    }
    /// All calls about one file.
    "syscall_file" => File(SyscallFile) {
        /// start
        t0_ns,
        /// end
        t1_ns,
        /// as in `syscall_span`
        process = "proc",
        /// path of the file when it was first used; for a name that was passed but not opened, that name
        path,
        /// 1 = the whole path; 0 = only its end
        complete,
        /// `proc`, `sys`, `debug`, `cgroup`, `fuse`, `nameless` (pipes, sockets), `ordinary`, `unknown`
        class,
        /// calls by kind, a JSON list of eight: open, read, write, getdents, ioctl, stat, readlink, other
        calls: Json,
        /// their wall time, likewise
        ns: Json,
        /// calls that returned an error
        errors,
        /// longest call
        max_ns,
        /// part of the time in which the thread was off the CPU
        off_ns,
        /// part of `off_ns` in which it was runnable
        wait_ns,
        /// bytes read and written
        bytes,
    }
}
