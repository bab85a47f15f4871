// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The time up to which a look reports a thread.

use super::DEAD;
use crate::skel::sched::types::sched_thread;

/// The time up to which a thread is reported: when the waiting threads were listed, or its last switch if that came
/// later. If the reader itself gets no CPU for a while after that list, nothing is reported for that while.
pub(super) fn reported_until(thread: &sched_thread, asked_ns: u64) -> u64 {
    if thread.state == DEAD { thread.since_ns } else { asked_ns.max(thread.since_ns) }
}

/// Times up to which a thread is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReportedUntil {
    /// Its existence is reported up to this time.
    pub(super) wall_ns: u64,
    /// Its states are known up to this time; the rest is unattributed.
    pub(super) known_ns: u64,
}

/// The [`ReportedUntil`] of a thread that left the CPU, waited, and was not found waiting, between the look `before` and
/// the one at `at_ns`. What it does since is reported when it switches, so nothing is reported of that now; but after
/// the `last` look there is no later report.
pub(super) fn ends_of_lost(
    thread: &sched_thread,
    before: ReportedUntil,
    at_ns: u64,
    last: bool,
) -> Option<ReportedUntil> {
    let left_ns = Some(thread.since_ns).filter(|left_ns| *left_ns >= before.wall_ns);
    match (left_ns, last) {
        (left_ns, true) => {
            Some(ReportedUntil { wall_ns: at_ns, known_ns: left_ns.unwrap_or(before.known_ns) })
        }
        (Some(left_ns), false) => Some(ReportedUntil { wall_ns: left_ns, known_ns: left_ns }),
        (None, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::State;

    #[test]
    fn what_a_thread_does_is_told_up_to_the_question() {
        let thread = sched_thread { state: 3, since_ns: 100, ..sched_thread::default() };
        assert_eq!(reported_until(&thread, 400), 400);
        assert_eq!(reported_until(&thread, 90), 100, "it switched since");
        let dead = sched_thread { state: DEAD, since_ns: 100, ..sched_thread::default() };
        assert_eq!(reported_until(&dead, 400), 100);
    }

    #[test]
    fn of_a_thread_that_went_nobody_knows_where_all_is_told_until_it_left() {
        let in_state_ns = [400, 100, 0, 0, 0, 0, 0, 0];
        let queued = State::Queued as u8;
        let left = |since_ns| sched_thread {
            tid: 7,
            state: queued,
            first_ns: 0,
            since_ns,
            in_state_ns,
            ..sched_thread::default()
        };
        let ends = |wall_ns, known_ns| Some(ReportedUntil { wall_ns, known_ns });
        let of = |wall_ns, known_ns, at_ns, last| {
            ends_of_lost(&left(500), ReportedUntil { wall_ns, known_ns }, at_ns, last)
        };
        assert_eq!(of(200, 200, 900, false), ends(500, 500));
        assert_eq!(of(600, 600, 900, false), None, "what it waited for then was told");
        // At the last look the rest of the time is reported, as unattributed.
        assert_eq!(of(200, 200, 900, true), ends(900, 500));
        assert_eq!(of(600, 600, 900, true), ends(900, 600));
        assert_eq!(of(900, 500, 950, true), ends(950, 500), "the last look is done again");
    }
}
