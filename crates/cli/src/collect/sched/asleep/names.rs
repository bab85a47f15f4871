// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of threads.

use super::super::super::Roots;
use super::history::Thread;
use deburr_core::text::name::decode;
use std::collections::BTreeMap;
use std::fs;

/// Seconds after which a name is read again: a thread gets its name after it was started.
const FOR_S: u32 = 5;
/// Names that are kept.
const NAMES: usize = 4096;
/// Names that are read in a second, at some 10 us each.
const READS: u32 = 128;

/// The names of some threads.
#[derive(Debug, Default)]
pub(super) struct Names {
    seconds: u32,
    /// Names that were read in this second.
    reads: u32,
    of: BTreeMap<Thread, Name>,
}

#[derive(Debug, Default)]
struct Name {
    text: String,
    read_at: u32,
}

impl Names {
    /// A second is over.
    pub(super) fn second(&mut self) {
        self.seconds += 1;
        self.reads = 0;
        if self.of.len() > NAMES {
            self.of.clear();
        }
    }

    /// The thread has that name now.
    pub(super) fn is(&mut self, it: Thread, comm: &[u8; 16]) {
        let end = comm.iter().position(|&byte| byte == 0).unwrap_or(comm.len());
        let name = Name { text: decode(&comm[..end]), read_at: self.seconds };
        self.of.insert(it, name);
    }

    /// The names of these are others' now.
    pub(super) fn forget(&mut self, is_gone: impl Fn(Thread) -> bool) {
        self.of.retain(|thread, _| !is_gone(*thread));
    }

    /// The name of a thread; the last one if it has ended, empty if none was known.
    pub(super) fn of(&mut self, roots: &Roots, it: Thread) -> String {
        let seconds = self.seconds;
        let is_new = !self.of.contains_key(&it);
        let name = self.of.entry(it).or_default();
        let due = is_new || seconds - name.read_at >= FOR_S;
        if due && self.reads < READS {
            self.reads += 1;
            let path = roots.proc.join(format!("{}/task/{}/comm", it.tgid, it.tid));
            if let Ok(comm) = fs::read(path) {
                name.text = decode(comm.trim_ascii_end());
            }
            name.read_at = seconds;
        }
        name.text.clone()
    }
}
