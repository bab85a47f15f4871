// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Entries: which threads of the target serve requests, as the user says.

use serde::{Deserialize, Serialize};

/// Ends a name that stands for all names which begin so.
pub const ANY_END: char = '*';

/// Threads that serve requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Entry {
    /// One thread.
    Thread {
        /// Thread id in the observer's pid namespace.
        tid: u32,
    },
    /// All threads with that name.
    Name {
        /// Comm; with [`ANY_END`] at its end, all that begin so.
        name: String,
    },
    /// All threads that were seen to wait for clients of that port.
    Port {
        /// A port of TCP on which somebody listens.
        port: u16,
    },
}

impl Entry {
    /// Whether a thread with that name is meant.
    #[must_use]
    pub fn names(&self, comm: &str) -> bool {
        match self {
            Self::Name { name } => match name.strip_suffix(ANY_END) {
                Some(beginning) => comm.starts_with(beginning),
                None => comm == name,
            },
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_exact_unless_it_ends_with_a_star() {
        let names = |name: &str, comm| Entry::Name { name: name.into() }.names(comm);
        assert!(names("worker", "worker") && !names("worker", "worker-1"));
        assert!(names("worker*", "worker") && names("worker*", "worker-1"));
        assert!(!names("worker*", "a worker") && !names("w*r", "worker"));
        assert!(!Entry::Port { port: 80 }.names("80"));
    }
}
