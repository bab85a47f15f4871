// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The longest wait of a process, told whole.

use crate::recording::{Culprit, LongWait};

/// One run-queue wait, and all that it was behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeWait {
    /// When it ended, in nanoseconds since the start of the window.
    pub t_ns: u64,
    /// The thread that waited.
    pub tid: u32,
    /// Its length, in nanoseconds.
    pub wait_ns: u64,
    /// Nanoseconds behind each culprit, in the order of the records. Their sum is at most [`Self::wait_ns`]; for the rest
    /// the CPU was idle or waking up.
    pub parts: Vec<(Culprit, u64)>,
}

impl WholeWait {
    /// The longest of a process so far, with one more part of any wait: parts of a shorter one are dropped.
    pub(super) fn push(longest: &mut Option<Box<Self>>, part: &LongWait) {
        let LongWait { t_ns, tid, wait_ns, culprit, ns, .. } = *part;
        match longest {
            Some(it) if (it.t_ns, it.tid, it.wait_ns) == (t_ns, tid, wait_ns) => {
                it.parts.push((culprit, ns));
            }
            Some(it) if it.wait_ns >= wait_ns => {}
            _ => {
                *longest = Some(Box::new(Self { t_ns, tid, wait_ns, parts: vec![(culprit, ns)] }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::ProcId;

    #[test]
    fn the_longest_is_kept_with_all_its_parts() {
        let mut longest = None;
        let mut push = |t_ns, wait_ns, behind, ns| {
            let culprit = Culprit::Process(ProcId(behind));
            let part = LongWait { t_ns, victim: ProcId(1), tid: 1, wait_ns, culprit, ns };
            WholeWait::push(&mut longest, &part);
        };
        push(1, 10, 2, 6);
        push(1, 10, 3, 4);
        push(2, 30, 2, 9);
        push(2, 30, 3, 20);
        push(3, 30, 4, 30);
        push(4, 20, 5, 20);
        let parts = [2, 3].map(|behind| Culprit::Process(ProcId(behind)));
        assert_eq!(
            longest.map(|it| *it),
            Some(WholeWait {
                t_ns: 2,
                tid: 1,
                wait_ns: 30,
                parts: vec![(parts[0], 9), (parts[1], 20)]
            })
        );
    }
}
