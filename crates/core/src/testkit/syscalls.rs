// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls in a [`Scene`].

use super::Scene;
use crate::recording::{
    Coverage, FileClass, ProcId, Record, Source, State, SyscallFile, SyscallRecord, SyscallSpan,
    SyscallTotal,
};

impl Scene {
    /// System calls are counted over the whole window: those of a process, or of the target (`None`).
    pub fn counted(&mut self, process: Option<ProcId>) -> &mut Self {
        let (source, state) = (Source::Syscalls, State::Active);
        self.push(Record::Coverage(Coverage { t_ns: 0, source, state }));
        let span = SyscallSpan {
            t1_ns: self.window_ns,
            process,
            waits_known: true,
            ..SyscallSpan::default()
        };
        self.push(Record::Syscalls(Box::new(SyscallRecord::Span(span))))
    }

    /// Adds calls by name, with the duration of each and the part of it off the CPU, in nanoseconds.
    pub fn calls(
        &mut self,
        process: Option<ProcId>,
        name: &str,
        calls: u64,
        (each_ns, off_ns): (u64, u64),
    ) -> &mut Self {
        let total = SyscallTotal {
            t1_ns: self.window_ns,
            process,
            name: name.into(),
            calls,
            ns: calls * each_ns,
            off_ns: calls * off_ns,
            max_ns: each_ns,
            ..SyscallTotal::default()
        };
        self.push(Record::Syscalls(Box::new(SyscallRecord::Call(total))))
    }

    /// Adds reads of a file of four bytes each, with the duration of each and the part
    /// of it off the CPU, in nanoseconds.
    pub fn reads(
        &mut self,
        process: Option<ProcId>,
        (path, class): (&str, FileClass),
        reads: u64,
        (each_ns, off_ns): (u64, u64),
    ) -> &mut Self {
        let mut file = SyscallFile {
            t1_ns: self.window_ns,
            process,
            path: path.into(),
            complete: true,
            class,
            max_ns: each_ns,
            off_ns: reads * off_ns,
            bytes: reads * 4,
            ..SyscallFile::default()
        };
        file.calls[1] = reads;
        file.ns[1] = reads * each_ns;
        self.push(Record::Syscalls(Box::new(SyscallRecord::File(file))))
    }
}
