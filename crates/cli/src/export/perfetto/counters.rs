// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counters of a trace. The viewer shows a value until the next one, so a counter falls to 0 where its last range ends and
//! no other follows.

use super::tracks::{Trace, Track, UnitName};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

/// From when to when, since the start of the window.
type Span = (u64, u64);

/// The counters that were anything else than 0 so far.
#[derive(Debug, Default)]
pub(super) struct Counters {
    known: HashMap<(Track, String), Counter>,
}

#[derive(Debug)]
struct Counter {
    track: Track,
    value: f64,
    /// End of its last range.
    until_ns: u64,
}

impl Counters {
    /// A level within a range.
    pub(super) fn level<W: Write>(
        &mut self,
        trace: &mut Trace<W>,
        parent: Track,
        name: &str,
        unit: UnitName,
        (t0_ns, t1_ns): Span,
        value: f64,
    ) -> io::Result<()> {
        let key = (parent, name.to_owned());
        let Some(counter) = self.known.get_mut(&key) else {
            if value == 0.0 {
                return Ok(());
            }
            let track = trace.counter(parent, name, unit)?;
            trace.set(track, t0_ns, value)?;
            self.known.insert(key, Counter { track, value, until_ns: t1_ns });
            return Ok(());
        };
        if counter.until_ns < t0_ns && counter.value != 0.0 {
            trace.set(counter.track, counter.until_ns, 0.0)?;
            counter.value = 0.0;
        }
        if counter.value.to_bits() != value.to_bits() {
            trace.set(counter.track, t0_ns, value)?;
            counter.value = value;
        }
        counter.until_ns = t1_ns;
        Ok(())
    }

    /// How many threads, CPUs or requests a time within a range is on average.
    pub(super) fn average<W: Write>(
        &mut self,
        trace: &mut Trace<W>,
        parent: Track,
        name: &str,
        unit: UnitName,
        span: Span,
        ns: u64,
    ) -> io::Result<()> {
        match span.1.saturating_sub(span.0) {
            0 => Ok(()),
            length => self.level(trace, parent, name, unit, span, ns as f64 / length as f64),
        }
    }

    /// A time as a share of a range. What was measured by different clocks may exceed the range a little.
    pub(super) fn percent<W: Write>(
        &mut self,
        trace: &mut Trace<W>,
        parent: Track,
        name: &str,
        span: Span,
        ns: u64,
    ) -> io::Result<()> {
        let within = ns.min(span.1.saturating_sub(span.0));
        self.average(trace, parent, name, "%", span, within.saturating_mul(100))
    }

    /// Lets all counters fall to 0.
    pub(super) fn end<W: Write>(&mut self, trace: &mut Trace<W>) -> io::Result<()> {
        let left: BTreeMap<Track, &Counter> =
            self.known.values().map(|it| (it.track, it)).collect();
        for counter in left.values().filter(|counter| counter.value != 0.0) {
            trace.set(counter.track, counter.until_ns, 0.0)?;
        }
        Ok(())
    }
}
