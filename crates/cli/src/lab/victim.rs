// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The process that suffers: it serves requests to itself and measures, with nothing but clocks, how long they
//! took and how long it was kept from a CPU. That is the second, independent channel that a report is
//! compared with.

use anyhow::Result;
use rustix::thread::{ClockId, clock_nanosleep_absolute, set_current_timer_slack};
use rustix::time::{Timespec, clock_gettime};
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::io::BufRead;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// The load that a server is under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    /// Threads that serve.
    pub(crate) threads: u32,
    /// CPU time of a request.
    pub(crate) work_us: u64,
    /// Time from one request to the next of the same thread; 0 = back to back.
    pub(crate) period_us: u64,
}

/// What a server measured of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// Length of the measurement.
    pub(crate) wall_ns: u64,
    /// Requests served, all threads.
    pub(crate) requests: u64,
    /// CPU time of them.
    pub(crate) cpu_ns: u64,
    /// Time from when a sleeping thread should have woken to when it ran.
    pub(crate) woke_late_ns: u64,
    /// Time within requests during which the thread did not run, although it never gave up its CPU.
    pub(crate) preempted_ns: u64,
    /// Median time from when a request was due to when it was done.
    pub(crate) p50_ns: u64,
    /// 99th percentile of the same.
    pub(crate) p99_ns: u64,
    /// Longest of the same.
    pub(crate) max_ns: u64,
}

impl Summary {
    /// Time in which it wanted a CPU and had none, per second of wall time, all threads.
    pub(crate) fn waited_ns_per_s(&self) -> f64 {
        (self.woke_late_ns + self.preempted_ns) as f64 / self.wall_ns.max(1) as f64 * 1e9
    }

    /// Requests per second of wall time.
    pub(crate) fn requests_per_s(&self) -> f64 {
        self.requests as f64 / self.wall_ns.max(1) as f64 * 1e9
    }
}

/// Serves from the first line on standard input to its end, then prints the [`Summary`] as JSON.
pub(crate) fn serve_until_told(demand: Demand) -> Result<()> {
    let mut stdin = std::io::stdin().lock();
    let mut line = String::new();
    stdin.read_line(&mut line)?;
    let stop = AtomicBool::new(false);
    let summary = serve(demand, &stop, || while stdin.read_line(&mut line).is_ok_and(|n| n > 0) {});
    println!("{}", serde_json::to_string(&summary)?);
    Ok(())
}

/// Serves for ever, without measuring: a neighbour with a moderate appetite.
pub(crate) fn serve_for_ever(demand: Demand) -> Result<()> {
    serve(demand, &AtomicBool::new(false), || loop_for_ever());
    Ok(())
}

fn loop_for_ever() {
    loop {
        thread::park();
    }
}

/// Serves until `wait` returns.
fn serve(demand: Demand, stop: &AtomicBool, wait: impl FnOnce()) -> Summary {
    let start_ns = now_ns(ClockId::Monotonic);
    let mut served = Served::default();
    thread::scope(|scope| {
        let servers: Vec<_> = (0..demand.threads)
            .map(|number| scope.spawn(move || serve_thread(demand, number, start_ns, stop)))
            .collect();
        wait();
        stop.store(true, Ordering::Relaxed);
        for server in servers {
            served.merge(&server.join().expect("a server thread does not panic"));
        }
    });
    served.summary(now_ns(ClockId::Monotonic) - start_ns)
}

/// One thread's requests. Their due times are fixed in advance, so that a late start makes the next request
/// late too and nothing that users would have felt is left out.
fn serve_thread(demand: Demand, number: u32, start_ns: u64, stop: &AtomicBool) -> Served {
    // The kernel may wake a sleeper up to this much late to save wake-ups; 50 us by default.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    let (work_ns, period_ns) = (demand.work_us * 1000, demand.period_us * 1000);
    // Threads take turns rather than compete with each other.
    let mut due_ns = start_ns + period_ns * u64::from(number) / u64::from(demand.threads.max(1));
    let mut served = Served::default();
    let mut begun = Clocks::now();
    while !stop.load(Ordering::Relaxed) {
        if period_ns == 0 {
            due_ns = begun.wall_ns;
        } else if begun.wall_ns < due_ns {
            sleep_until(due_ns);
            begun = Clocks::now();
            served.woke_late_ns += begun.wall_ns.saturating_sub(due_ns);
        }
        let done = work(begun, work_ns);
        let cpu_ns = done.cpu_ns - begun.cpu_ns;
        served.cpu_ns += cpu_ns;
        served.preempted_ns += (done.wall_ns - begun.wall_ns).saturating_sub(cpu_ns);
        served.latencies.add(done.wall_ns - due_ns.min(done.wall_ns));
        due_ns += period_ns;
        begun = done;
    }
    served
}

/// Computes until so much CPU time is used up.
fn work(begun: Clocks, work_ns: u64) -> Clocks {
    let mut number = begun.wall_ns;
    loop {
        for _ in 0..2000 {
            number = black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
        let now = Clocks::now();
        if now.cpu_ns - begun.cpu_ns >= work_ns {
            return now;
        }
    }
}

#[derive(Clone, Copy)]
struct Clocks {
    wall_ns: u64,
    cpu_ns: u64,
}

impl Clocks {
    fn now() -> Self {
        Self { wall_ns: now_ns(ClockId::Monotonic), cpu_ns: now_ns(ClockId::ThreadCPUTime) }
    }
}

fn now_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

fn sleep_until(wall_ns: u64) {
    let seconds = i64::try_from(wall_ns / 1_000_000_000).unwrap_or(i64::MAX);
    let nanoseconds = i64::try_from(wall_ns % 1_000_000_000).unwrap_or(0);
    let until = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    while clock_nanosleep_absolute(ClockId::Monotonic, &until) == Err(rustix::io::Errno::INTR) {}
}

/// What one or more threads served.
#[derive(Debug, Default)]
struct Served {
    cpu_ns: u64,
    woke_late_ns: u64,
    preempted_ns: u64,
    latencies: Latencies,
}

impl Served {
    fn merge(&mut self, other: &Self) {
        self.cpu_ns += other.cpu_ns;
        self.woke_late_ns += other.woke_late_ns;
        self.preempted_ns += other.preempted_ns;
        self.latencies.merge(&other.latencies);
    }

    fn summary(&self, wall_ns: u64) -> Summary {
        Summary {
            wall_ns,
            requests: self.latencies.count(),
            cpu_ns: self.cpu_ns,
            woke_late_ns: self.woke_late_ns,
            preempted_ns: self.preempted_ns,
            p50_ns: self.latencies.percentile_ns(0.5),
            p99_ns: self.latencies.percentile_ns(0.99),
            max_ns: self.latencies.max_ns,
        }
    }
}

/// Each power of two is divided into so many buckets: a percentile is at most 1/16 too high.
const PARTS: u64 = 16;

/// Histogram of latencies.
#[derive(Debug)]
struct Latencies {
    count: Vec<u64>,
    max_ns: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { count: vec![0; bucket_of(u64::MAX) + 1], max_ns: 0 }
    }
}

/// Values below `PARTS` have a bucket each; above, the 4 bits after the leading one choose the part.
fn bucket_of(ns: u64) -> usize {
    let bits = PARTS.ilog2();
    let Some(shift) = ns.checked_ilog2().and_then(|exponent| exponent.checked_sub(bits)) else {
        return ns as usize;
    };
    (PARTS * u64::from(shift) + (ns >> shift)) as usize
}

/// The greatest value of a bucket.
fn bucket_top_ns(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * PARTS {
        return bucket;
    }
    let shift = bucket / PARTS - 1;
    (u128::from(bucket % PARTS + PARTS + 1) << shift)
        .saturating_sub(1)
        .try_into()
        .unwrap_or(u64::MAX)
}

impl Latencies {
    fn add(&mut self, ns: u64) {
        self.count[bucket_of(ns)] += 1;
        self.max_ns = self.max_ns.max(ns);
    }

    fn merge(&mut self, other: &Self) {
        for (mine, others) in self.count.iter_mut().zip(&other.count) {
            *mine += others;
        }
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    fn count(&self) -> u64 {
        self.count.iter().sum()
    }

    /// Upper bound of the value that a share of all values do not exceed; 0 if there are none.
    fn percentile_ns(&self, share: f64) -> u64 {
        let rank = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        let bucket = self.count.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        bucket.map_or(0, |bucket| bucket_top_ns(bucket).min(self.max_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    proptest! {
        #[test]
        fn a_value_lies_in_its_bucket_which_is_narrow(ns: u64, shift in 0u32..64) {
            let ns = ns >> shift;
            let bucket = bucket_of(ns);
            let top = bucket_top_ns(bucket);
            prop_assert!(ns <= top, "{ns} above {top}");
            prop_assert!(bucket == 0 || bucket_top_ns(bucket - 1) < ns);
            prop_assert!(top - ns <= ns / PARTS);
        }

        #[test]
        fn percentiles_are_at_most_one_part_above_the_exact_ones(
            mut values in proptest::collection::vec(0u64..10_000_000_000, 1..200),
            share in 0.01f64..1.0,
        ) {
            let mut latencies = Latencies::default();
            values.iter().for_each(|&ns| latencies.add(ns));
            values.sort_unstable();
            let exact = values[((values.len() as f64 * share).ceil() as usize).max(1) - 1];
            let shown = latencies.percentile_ns(share);
            prop_assert!(shown >= exact && shown <= exact + exact / PARTS, "{exact} shown as {shown}");
        }
    }

    #[test]
    fn nothing_served_is_a_summary_of_zeroes() {
        assert_eq!(Served::default().summary(5), Summary { wall_ns: 5, ..Summary::default() });
        assert_eq!(Summary::default().waited_ns_per_s(), 0.0);
    }

    #[test]
    fn every_request_uses_its_cpu_time_and_the_clocks_explain_the_wall_time() {
        let demand = Demand { threads: 1, work_us: 500, period_us: 0 };
        let summary =
            serve(demand, &AtomicBool::new(false), || thread::sleep(Duration::from_millis(50)));
        assert!(summary.requests > 0);
        assert!(summary.cpu_ns >= summary.requests * 500_000);
        // Back to back, the thread is on a CPU or kept from it from the first request to the last.
        let explained = summary.cpu_ns + summary.preempted_ns;
        assert!(explained <= summary.wall_ns, "{summary:?}");
        assert!(summary.p50_ns <= summary.p99_ns && summary.p99_ns <= summary.max_ns);
    }

    #[test]
    fn requests_that_are_due_on_a_schedule_leave_time_to_sleep() {
        let demand = Demand { threads: 2, work_us: 100, period_us: 10_000 };
        let summary =
            serve(demand, &AtomicBool::new(false), || thread::sleep(Duration::from_millis(60)));
        assert!(summary.requests >= 4, "{summary:?}");
        assert!(summary.cpu_ns < summary.wall_ns);
    }
}
