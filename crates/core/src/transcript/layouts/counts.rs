// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What workers counted that do nothing but count, each in a loop of its own, for the same time.

use super::{Described, Parsed, Parser, Taken};
use crate::text::units;
use crate::transcript::engine::Context;
use crate::transcript::line::{Line, number, whole};

const MAX_WORKERS: usize = 4096;

/// The counts of one run.
#[derive(Debug, Default)]
pub(in crate::transcript) struct Counts {
    /// Number of workers that the text announces.
    pub(in crate::transcript) workers: u64,
    /// How long they counted, in seconds.
    pub(in crate::transcript) seconds: f64,
    /// Line and count of each worker.
    pub(in crate::transcript) counts: Vec<(u64, u64)>,
}

/// `loading 9 CPUs for 30 seconds`, or the call that prints it, `lc 9 30`.
fn announced(line: &Line<'_>) -> Option<(u64, f64)> {
    match *line.words.as_slice() {
        ["loading", n, "CPUs" | "CPU", "for", s, "seconds" | "second"] | ["lc", n, s] => {
            Some((whole(n)?, number(s)?))
        }
        _ => None,
    }
}

pub(super) fn begins(line: &Line<'_>, _: &Context) -> Option<Box<dyn Parser>> {
    announced(line).map(|_| Box::new(Counts::default()) as Box<dyn Parser>)
}

impl Parser for Counts {
    fn line(&mut self, line: &Line<'_>) -> Taken {
        if let Some((workers, seconds)) = announced(line) {
            if !self.counts.is_empty() {
                return Taken::No;
            }
            (self.workers, self.seconds) = (workers, seconds);
            return Taken::Yes;
        }
        // A remark of whoever pasted it may follow.
        let count = match *line.words.as_slice() {
            [count] => whole(count),
            [count, arrow, ..] if arrow.starts_with('<') || arrow.starts_with('#') => whole(count),
            _ => None,
        };
        match count {
            Some(_) if self.counts.len() >= MAX_WORKERS => Taken::Unread("more than 4096 workers"),
            Some(count) => {
                self.counts.push((line.number, count));
                Taken::Yes
            }
            None => Taken::No,
        }
    }

    fn end(self: Box<Self>) -> Parsed {
        Parsed::Counts(*self)
    }
}

impl Counts {
    pub(super) fn describe(&self) -> Described {
        let layout = format!(
            "{} that count for {}",
            units::counted(self.workers, "worker", "workers"),
            units::duration(self.seconds * 1e9)
        );
        let missing = self.workers != self.counts.len() as u64;
        Described::new("counting loops", layout, self.counts.len(), ["count", "counts"]).note(
            missing,
            format!("{} were announced", units::counted(self.workers, "worker", "workers")),
        )
    }
}
