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

/// The names of some threads.
#[derive(Debug, Default)]
pub(super) struct Names {
    seconds: u32,
    of: BTreeMap<Thread, String>,
}

impl Names {
    /// A second is over.
    pub(super) fn second(&mut self) {
        self.seconds += 1;
        if self.seconds.is_multiple_of(FOR_S) || self.of.len() > NAMES {
            self.of.clear();
        }
    }

    /// The name of a thread; empty if it has ended.
    pub(super) fn of(&mut self, roots: &Roots, it: Thread) -> String {
        let read = || {
            let path = roots.proc.join(format!("{}/task/{}/comm", it.tgid, it.tid));
            fs::read(path).map(|comm| decode(comm.trim_ascii_end())).unwrap_or_default()
        };
        self.of.entry(it).or_insert_with(read).clone()
    }
}
