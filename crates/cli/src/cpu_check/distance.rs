// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How far apart two CPUs are: measures how long a cache line takes from one to the other.

use super::sweep::no_thread;
use super::worker::{Halt, bind};
use super::{Check, Distances};
use crate::clock;
use deburr_core::cpu_check::schedule;
use deburr_core::recording::{CpuCheckRecord, CpuDistance};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

/// Number of round trips that are timed together, and number of such measurements.
const TRIPS: u64 = 20;
const TIMES: usize = 15;
/// Time limit for all of a pair's round trips: they never take that long if both CPUs run.
const LIMIT_NS: u64 = 2_000_000;
/// Reads of the cache line between two checks of the time limit.
const LOOKS: u32 = 1_000;

/// The value that goes back and forth; alone on its cache line, and on the one that is prefetched with it.
#[repr(align(128))]
struct Line(AtomicU64);

impl Check<'_> {
    /// Measures all pairs, as far as the time allows.
    pub(super) fn distances(&mut self) -> anyhow::Result<Distances> {
        let mut distances = Distances::new();
        let pairs = schedule::all_pairs(&self.cpus);
        let end_ns = clock::monotonic_ns() + self.budget.distances_ns;
        self.progress.stage("distances", pairs.len() as u64);
        for (at, &(a, b)) in pairs.iter().enumerate() {
            if self.halt.is_on() || clock::monotonic_ns() > end_ns {
                break;
            }
            self.progress.at(at as u64, &format!("CPUs {a} and {b}"));
            let Some(one_way_ns) = trip(a, b, self.realtime, self.halt)? else { continue };
            distances.insert((a, b), one_way_ns);
            let t_ns = self.t_ns();
            self.push(CpuCheckRecord::Distance(CpuDistance { t_ns, a, b, one_way_ns }));
        }
        Ok(distances)
    }
}

/// Half of the median round trip, in nanoseconds; half of [`LIMIT_NS`] if not even one measurement was completed.
/// `None` if a thread could not be bound.
fn trip(a: u32, b: u32, realtime: bool, halt: Halt<'_>) -> anyhow::Result<Option<u64>> {
    let (line, over) = (Line(AtomicU64::new(0)), AtomicBool::new(false));
    let (line, over) = (&line, &over);
    let limit_ns = clock::monotonic_ns() + LIMIT_NS;
    let echo = move || {
        let bound = bind(b, realtime).is_ok();
        let mut turn = 1;
        while bound && !over.load(Ordering::Relaxed) {
            if !await_value(line, turn, limit_ns, halt) {
                return bound;
            }
            line.0.store(turn + 1, Ordering::Release);
            turn += 2;
        }
        bound
    };
    let call = move || {
        let bound = bind(a, realtime).is_ok();
        let mut times = Vec::with_capacity(TIMES);
        let mut turn = 1;
        'all: while bound && times.len() < TIMES {
            let start_ns = clock::monotonic_ns();
            for _ in 0..TRIPS {
                line.0.store(turn, Ordering::Release);
                if !await_value(line, turn + 1, limit_ns, halt) {
                    break 'all;
                }
                turn += 2;
            }
            times.push((clock::monotonic_ns() - start_ns) / (2 * TRIPS));
        }
        over.store(true, Ordering::Relaxed);
        // The other thread waits for its turn, and sees `over` with it.
        line.0.store(turn, Ordering::Release);
        times.sort_unstable();
        bound.then(|| times.get(times.len() / 2).copied().unwrap_or(LIMIT_NS / 2))
    };
    thread::scope(|scope| {
        let echo = thread::Builder::new().spawn_scoped(scope, echo).map_err(no_thread)?;
        let call = thread::Builder::new().spawn_scoped(scope, call).map_err(no_thread)?;
        let one_way_ns = call.join().unwrap_or(None);
        Ok(one_way_ns.filter(|_| echo.join().unwrap_or(false)))
    })
}

/// Waits until the line holds `value`. Returns `false` if the time is over or a signal came.
fn await_value(line: &Line, value: u64, limit_ns: u64, halt: Halt<'_>) -> bool {
    loop {
        for _ in 0..LOOKS {
            if line.0.load(Ordering::Acquire) == value {
                return true;
            }
        }
        if clock::monotonic_ns() > limit_ns || halt.is_on() {
            return false;
        }
    }
}
