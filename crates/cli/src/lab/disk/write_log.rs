// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was written to a disk, by mark. The lab's writers fill each file with one letter, so a block shows to which
//! files it belongs without asking a filesystem. The files of a report are compared with this independent channel.

use crate::lab::victim::Window;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Length of a block, in bytes. A write begins and ends at a block boundary.
const BLOCK: usize = 4096;
/// The first byte of a marked block is followed by at least this many bytes of the same letter. A filesystem's own
/// blocks do not look like that.
const MARK: usize = 16;
/// Mark of blocks without a letter: metadata, the journal, other writers.
const UNMARKED: u8 = b'-';

/// The writes of one mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MarkedWrites {
    /// Runs of consecutive blocks of the mark within a request.
    pub(crate) requests: u64,
    /// Bytes of these blocks.
    pub(crate) bytes: u64,
}

/// Writes by mark.
pub(crate) type WritesByMark = BTreeMap<char, MarkedWrites>;

/// All writes: completion time in nanoseconds, mark, and bytes.
#[derive(Debug, Default)]
pub(super) struct WriteLog(Vec<(u64, u8, u32)>);

impl WriteLog {
    pub(super) fn add(&mut self, done_ns: u64, data: &[u8]) {
        let mut last: Option<(u8, u32)> = None;
        for block in data.chunks(BLOCK) {
            let (mark, length) = (mark(block), block.len() as u32);
            match &mut last {
                Some((seen, bytes)) if *seen == mark => *bytes += length,
                _ => {
                    self.0.extend(last.map(|(seen, bytes)| (done_ns, seen, bytes)));
                    last = Some((mark, length));
                }
            }
        }
        self.0.extend(last.map(|(seen, bytes)| (done_ns, seen, bytes)));
    }

    /// What was completed in a window.
    pub(super) fn of(&self, window: Window) -> WritesByMark {
        let mut marks = WritesByMark::new();
        let inside = |at_ns| (window.from_ns..window.to_ns).contains(&at_ns);
        for &(_, mark, bytes) in self.0.iter().filter(|(at_ns, ..)| inside(*at_ns)) {
            let written = marks.entry(char::from(mark)).or_default();
            written.requests += 1;
            written.bytes += u64::from(bytes);
        }
        marks
    }
}

fn mark(block: &[u8]) -> u8 {
    match block {
        [first, rest @ ..]
            if first.is_ascii_lowercase()
                && rest.len() >= MARK
                && rest[..MARK].iter().all(|byte| byte == first) =>
        {
            *first
        }
        _ => UNMARKED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_told_apart_within_a_request_and_times_by_the_window() {
        let mut tally = WriteLog::default();
        let mut data = vec![b'h'; 3 * BLOCK];
        data[BLOCK..2 * BLOCK].fill(b'c');
        data[BLOCK + 100..].fill(0);
        tally.add(10, &data);
        tally.add(20, &[b'h'; 2 * BLOCK]);
        tally.add(30, &[b'h'; BLOCK]);
        let marks = tally.of(Window { from_ns: 10, to_ns: 30 });
        let bytes: Vec<_> = marks.iter().map(|(mark, w)| (*mark, w.requests, w.bytes)).collect();
        assert_eq!(bytes, [('-', 1, 4096), ('c', 1, 4096), ('h', 2, 3 * 4096)]);
    }

    #[test]
    fn what_is_of_no_letter_is_unmarked() {
        for block in [&[0; BLOCK][..], &[0xff; BLOCK], b"", b"h", b"hhhhhhhhhhhhhhhi", b"jbd2"] {
            assert_eq!(mark(block), UNMARKED, "{block:?}");
        }
    }
}
