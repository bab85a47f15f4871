// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The load generator: an open loop. Each request has a scheduled time that is independent of the requests before
//! it, and its latency counts from that time. A stall of the service thus shows in the latency of every request
//! that is due during the stall (no coordinated omission).

mod client;
mod pool;
mod timer;

#[cfg(test)]
mod tests;

pub(crate) use client::Target;

use crate::clock::{SECOND_NS, monotonic_ns};
use anyhow::{Context as _, Result};
use deburr_core::procfs::schedstat;
use deburr_core::sweep::{Latency, Requests, Sample};
use pool::Pool;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use timer::Timer;
use tokio::task::LocalSet;

/// Longest sleep between two checks of `stop`.
const LOOK_NS: u64 = 100_000_000;

/// A load to generate. Timestamps are of `CLOCK_MONOTONIC`.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// The service that gets the requests.
    pub(crate) target: Target,
    /// Requests per second.
    pub(crate) rate_per_s: f64,
    /// When the first request is due.
    pub(crate) start_ns: u64,
    /// Start of the reported window. Requests due before it are warm-up.
    pub(crate) from_ns: u64,
    /// End of the window. No requests are due from then on.
    pub(crate) to_ns: u64,
    /// How long to wait for outstanding answers after the window.
    pub(crate) drain_ns: u64,
    /// Most requests in flight at a time, each on its own connection.
    pub(crate) max_connections: u32,
}

/// Result of a load.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Counts of the requests due in the window.
    pub(crate) requests: Requests,
    /// Their latency, each counted from when it was due.
    pub(crate) latency: Option<Latency>,
    /// The requests that were due before the window and had completed when it began.
    pub(crate) warmup: Warmup,
    /// For each answered request of the window: when it was due, and when its answer came.
    pub(crate) answers: Vec<(u64, u64)>,
    /// Whether `stop` ended it early.
    pub(crate) stopped: bool,
}

/// Requests that completed before the window.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warmup {
    /// Number of answered requests.
    pub(crate) answered: u64,
    /// Number of failed requests by reason.
    pub(crate) failures: BTreeMap<String, u64>,
}

/// What is known so far. A request of the window is identified by its index in `window`.
#[derive(Default)]
struct Ledger {
    /// State of each request of the window, in the order in which they are due.
    window: Vec<State>,
    failed: u64,
    failures: BTreeMap<String, u64>,
    answered_in_window: u64,
    late_ns: Vec<u64>,
    busy_ns: Option<u64>,
    warmup: Warmup,
}

/// State of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Failed,
    /// Latency in nanoseconds, from when the request was due.
    Answered(u64),
}

/// Drives a service until the end of the window and the wait for outstanding answers. `stop` is polled about ten
/// times a second or more often.
pub(crate) fn drive(load: &Load, stop: &dyn Fn() -> bool) -> Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the load generator")?;
    LocalSet::new().block_on(&runtime, run(load, stop))
}

async fn run(load: &Load, stop: &dyn Fn() -> bool) -> Result<Outcome> {
    let ledger = Rc::new(RefCell::new(Ledger::default()));
    let pool = Rc::new(Pool::new(load.target.clone(), load.max_connections));
    let timer = Timer::new().context("cannot make a timer")?;
    let due = |number: u64| load.start_ns + (number as f64 * 1e9 / load.rate_per_s) as u64;
    let mut number: u64 = 0;
    // Number of the first request of the window.
    let mut first = None;
    let mut stopped = false;
    let mut busy_before_ns = None;
    while !stopped && due(number) < load.to_ns {
        let now_ns = monotonic_ns();
        let due_ns = due(number);
        if now_ns < due_ns {
            timer.sleep_until(due_ns.min(now_ns + LOOK_NS)).await.context("cannot wait")?;
            stopped = stop();
            continue;
        }
        let in_window = due_ns >= load.from_ns;
        if in_window {
            if first.is_none() {
                first = Some(number);
                busy_before_ns = busy_ns();
            }
            ledger.borrow_mut().window.push(State::Open);
        }
        let slot = first.filter(|_| in_window).map(|first| (number - first) as usize);
        let (pool, ledger) = (pool.clone(), ledger.clone());
        let window = (load.from_ns, load.to_ns);
        tokio::task::spawn_local(async move {
            if in_window {
                ledger.borrow_mut().late_ns.push(monotonic_ns().saturating_sub(due_ns));
            }
            let result = pool.request().await;
            ledger.borrow_mut().over(slot, due_ns, monotonic_ns(), window, result);
        });
        number += 1;
        // If the generator cannot keep up with the rate, it must still process answers and signals.
        if number.is_multiple_of(64) {
            tokio::task::yield_now().await;
            stopped = stop();
        }
    }
    ledger.borrow_mut().busy_ns = busy_before_ns
        .zip(busy_ns())
        .map(|(before_ns, after_ns)| after_ns.saturating_sub(before_ns));
    let deadline_ns = load.to_ns + load.drain_ns;
    while !stopped && ledger.borrow().open() > 0 && monotonic_ns() < deadline_ns {
        tokio::time::sleep(Duration::from_millis(10)).await;
        stopped = stop();
    }
    let ledger = std::mem::take(&mut *ledger.borrow_mut());
    let dues = (0..).map(|i| due(first.unwrap_or(0) + i));
    Ok(ledger.outcome(dues, monotonic_ns(), &pool, stopped))
}

/// How long this thread has been running or waiting on a run queue so far (`/proc/thread-self/schedstat`).
fn busy_ns() -> Option<u64> {
    let stat = schedstat::parse(&std::fs::read("/proc/thread-self/schedstat").ok()?).ok()?;
    Some(stat.on_cpu_ns + stat.delay_ns)
}

impl Ledger {
    /// Records that a request has completed. `slot` is its index in the window; `None` = due before the window.
    fn over(
        &mut self,
        slot: Option<usize>,
        due_ns: u64,
        now_ns: u64,
        (from_ns, to_ns): (u64, u64),
        result: Result<(), String>,
    ) {
        if result.is_ok() && (from_ns..to_ns).contains(&now_ns) {
            self.answered_in_window += 1;
        }
        let state = match (slot, result) {
            (Some(_), Ok(())) => State::Answered(now_ns - due_ns),
            (Some(_), Err(why)) => {
                self.failed += 1;
                *self.failures.entry(why).or_default() += 1;
                State::Failed
            }
            (None, result) if now_ns < from_ns => {
                match result {
                    Ok(()) => self.warmup.answered += 1,
                    Err(why) => *self.warmup.failures.entry(why).or_default() += 1,
                }
                return;
            }
            (None, _) => return,
        };
        // If there is no such slot any more, the outcome has been taken already.
        if let Some(slot) = slot.and_then(|slot| self.window.get_mut(slot)) {
            *slot = state;
        }
    }

    /// Requests of the window that have not completed.
    fn open(&self) -> u64 {
        self.window.iter().filter(|state| **state == State::Open).count() as u64
    }

    fn outcome(
        mut self,
        dues: impl Iterator<Item = u64>,
        now_ns: u64,
        pool: &Pool,
        stopped: bool,
    ) -> Outcome {
        let due = self.window.len() as u64;
        let unanswered = self.open();
        let sample = |(state, due_ns): (&State, u64)| match *state {
            State::Open => Some(Sample { ns: now_ns.saturating_sub(due_ns), answered: false }),
            State::Failed => None,
            State::Answered(ns) => Some(Sample { ns, answered: true }),
        };
        let dues: Vec<u64> = dues.take(self.window.len()).collect();
        let samples = self.window.iter().zip(dues.iter().copied()).filter_map(sample).collect();
        let answer = |(state, due_ns): (&State, &u64)| match *state {
            State::Answered(ns) => Some((*due_ns, due_ns + ns)),
            State::Open | State::Failed => None,
        };
        let answers = self.window.iter().zip(&dues).filter_map(answer).collect();
        // Requests that were never begun are the last ones of the window, and count as late until now.
        let untouched = dues.iter().skip(self.late_ns.len());
        self.late_ns.extend(untouched.map(|due_ns| now_ns.saturating_sub(*due_ns)));
        self.late_ns.sort_unstable();
        let rank = (self.late_ns.len() * 99).div_ceil(100).max(1) - 1;
        Outcome {
            requests: Requests {
                due,
                answered_in_window: self.answered_in_window,
                answered: due - unanswered - self.failed,
                failed: self.failed,
                unanswered,
                failures: self.failures,
                generator_late_p99_ns: self.late_ns.get(rank).copied().unwrap_or(0),
                generator_busy_ns: self.busy_ns,
                connections: pool.most_open(),
                connections_exhausted: pool.was_exhausted(),
            },
            latency: Latency::of(samples),
            warmup: self.warmup,
            answers,
            stopped,
        }
    }
}

/// How long to wait for outstanding answers after a window of this length: as long again, within 1 to 5 s.
pub(crate) fn drain_ns(window_ns: u64) -> u64 {
    window_ns.clamp(SECOND_NS, 5 * SECOND_NS)
}
