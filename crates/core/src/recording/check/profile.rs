// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Invariants of a profile: the stacks have no more samples than were taken.

use super::{Faults, Invariant};
use crate::recording::{ProfileRecord, Record};

const SAMPLES: Invariant = "the stacks of a profile have no more samples than were taken";

/// What was seen so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Profiles {
    taken: u64,
    in_stacks: u64,
}

impl Profiles {
    pub(super) fn push(&mut self, record: &Record, faults: &mut Faults) {
        let Record::Profile(record) = record else { return };
        match &**record {
            ProfileRecord::Span(span) => self.taken = self.taken.saturating_add(span.samples),
            ProfileRecord::Stack(it) => {
                self.in_stacks = self.in_stacks.saturating_add(it.samples);
                let Self { taken, in_stacks } = *self;
                faults.unless(in_stacks <= taken, SAMPLES, || format!("{in_stacks} of {taken}"));
            }
            ProfileRecord::Sleep(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{ProcId, ProfileSpan, ProfileStack};

    #[test]
    fn stacks_have_no_more_samples_than_were_taken() {
        let check = |samples: u64| {
            let (mut profiles, mut faults) = (Profiles::default(), Faults::default());
            let span = ProfileSpan { samples: 5, ..ProfileSpan::default() };
            let (process, stack) = (ProcId(1), "main".to_owned());
            let stack = ProfileStack { t0_ns: 0, t1_ns: 1, process, stack, samples };
            let stacks = [0, 1].map(|_| ProfileRecord::Stack(stack.clone()));
            for record in [ProfileRecord::Span(span)].into_iter().chain(stacks) {
                profiles.push(&Record::Profile(Box::new(record)), &mut faults);
            }
            faults.found.len()
        };
        assert_eq!([check(2), check(3)], [0, 1]);
    }
}
