// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The victim process. It serves requests to itself and measures, with clocks only, how long they took and how long
//! it was runnable without running. That is the second, independent channel that a report is compared with.

use super::stage::Stage;
use super::stalls::Slept;
use super::victims::{Running, Victim, VictimSpec, WhichRun};
use anyhow::{Context as _, Result, ensure};
use rustix::thread::{ClockId, clock_nanosleep_absolute, set_current_timer_slack};
use rustix::time::{Timespec, clock_gettime};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::hint::black_box;
use std::io::BufRead;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// The load of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    /// Number of serving threads.
    pub(crate) threads: u32,
    /// CPU time of a request, in microseconds.
    pub(crate) work_us: u64,
    /// Time from one request to the next of the same thread, in microseconds; 0 = back to back.
    pub(crate) period_us: u64,
}

impl Victim for Demand {
    fn validate(&self, _cgroup: &str) -> Result<()> {
        ensure!((1..=256).contains(&self.threads), "`victim.threads` must be 1 to 256");
        ensure!(self.work_us > 0, "`victim.work_us` must be positive");
        ensure!(
            self.period_us == 0 || self.work_us < self.period_us,
            "`victim.work_us` must be less than `victim.period_us`, or that be 0"
        );
        Ok(())
    }

    fn describe(&self) -> Vec<String> {
        let ms = |us: u64| us as f64 / 1000.0;
        let load = match self.period_us {
            0 => format!("requests of {} ms of CPU time back to back", ms(self.work_us)),
            period_us => {
                let work_ms = ms(self.work_us);
                format!("a request of {work_ms} ms of CPU time every {} ms", ms(period_us))
            }
        };
        let threads = match self.threads {
            1 => "1 thread with".into(),
            threads => format!("{threads} threads, each with"),
        };
        vec![format!("{threads} {load}")]
    }

    fn threads(&self, _with_faults: bool) -> u32 {
        self.threads
    }

    fn measures_waiting(&self) -> bool {
        true
    }

    fn start(&self, spec: &VictimSpec, stage: &Stage, _run: WhichRun<'_>) -> Result<Running> {
        let what = [
            "serve".into(),
            format!("--threads={}", self.threads),
            format!("--work-us={}", self.work_us),
            format!("--period-us={}", self.period_us),
        ];
        spec.start_worker(stage, &what)
    }
}

/// What a server measured itself in a window of time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// Length of the window, in nanoseconds.
    pub(crate) wall_ns: u64,
    /// Requests completed in it, by all threads.
    pub(crate) requests: u64,
    /// Sum of the delays from when a sleeping thread should have woken to when it ran, in nanoseconds. Absent if
    /// requests were only measured from outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) woke_late_ns: Option<u64>,
    /// Time within requests in which the thread did not run although it never gave up its CPU, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) preempted_ns: Option<u64>,
    /// Time in which it stood still although it computed, in nanoseconds. Only of a victim that looks for that; its latencies
    /// are then the lengths of these times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stood_still_ns: Option<u64>,
    /// For what its threads slept, by their own clocks. Only of a victim whose calls are each for one thing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) slept: Option<Slept>,
    /// Median latency, from when a request was due to when it was done, in nanoseconds.
    pub(crate) p50_ns: u64,
    /// 99th percentile of that latency.
    pub(crate) p99_ns: u64,
    /// Longest latency.
    pub(crate) max_ns: u64,
    /// Only of a victim whose requests are writes. These take hardly any CPU time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) io: Option<IoSummary>,
}

/// What a victim that waits for a disk measured itself in a window of time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IoSummary {
    /// Its long requests, in order. The list is cut off if there are too many.
    pub(crate) stalls: Vec<Stall>,
    /// Number of long requests, including those that are not listed.
    pub(crate) stall_count: u64,
    /// Sum of the lengths of all long requests, in nanoseconds.
    pub(crate) stalled_ns: u64,
    /// Bytes that it wrote to the files below each path.
    pub(crate) written_bytes: BTreeMap<String, u64>,
}

/// A request that took long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stall {
    /// Start, in nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) at_ns: u64,
    /// Length, in nanoseconds.
    pub(crate) length_ns: u64,
}

impl Summary {
    /// Summarises answers, each given by the times at which it was due and at which it arrived. Those that arrived in
    /// the window count. Latency is measured from when they were due.
    pub(crate) fn of_answers(answers: &[(u64, u64)], window: Window) -> Self {
        let inside =
            answers.iter().filter(|(_, came)| (window.from_ns..window.to_ns).contains(came));
        let mut latencies: Vec<u64> = inside.map(|(due, came)| came.saturating_sub(*due)).collect();
        latencies.sort_unstable();
        Self {
            wall_ns: window.to_ns.saturating_sub(window.from_ns),
            requests: latencies.len() as u64,
            p50_ns: percentile(&latencies, 50),
            p99_ns: percentile(&latencies, 99),
            max_ns: percentile(&latencies, 100),
            ..Self::default()
        }
    }

    /// Time in which it was runnable but not running, per second of wall time, all threads. `None` if it was not
    /// measured.
    pub(crate) fn waited_ns_per_s(&self) -> Option<f64> {
        let waited_ns = self.woke_late_ns? + self.preempted_ns?;
        Some(waited_ns as f64 / self.wall_ns.max(1) as f64 * 1e9)
    }

    /// Requests per second of wall time.
    pub(crate) fn requests_per_s(&self) -> f64 {
        self.requests as f64 / self.wall_ns.max(1) as f64 * 1e9
    }
}

/// Serves from the first line on standard input to the second, which gives a [`Window`]. Prints the [`Summary`] of
/// that window as JSON.
pub(crate) fn serve_until_told(demand: Demand) -> Result<()> {
    let mut stdin = std::io::stdin().lock();
    let mut line = String::new();
    stdin.read_line(&mut line)?;
    line.clear();
    let served = serve(demand, &AtomicBool::new(false), || stdin.read_line(&mut line).map(drop))?;
    let window = line.parse()?;
    println!("{}", serde_json::to_string(&summary(&served, window))?);
    Ok(())
}

/// Serves for ever, in this thread: a neighbour that uses CPU time.
pub(crate) fn serve_for_ever(demand: Demand) -> ! {
    requests(demand, 0, now_ns(ClockId::Monotonic)).for_each(drop);
    unreachable!("its requests do not end")
}

/// A range of `CLOCK_MONOTONIC`, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// Its first nanosecond.
    pub(crate) from_ns: u64,
    /// The first nanosecond after it.
    pub(crate) to_ns: u64,
}

impl Window {
    /// Length of the part of a range that lies in the window.
    pub(super) fn overlap_ns(self, from_ns: u64, to_ns: u64) -> u64 {
        to_ns.min(self.to_ns).saturating_sub(from_ns.max(self.from_ns))
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.from_ns, self.to_ns)
    }
}

impl FromStr for Window {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (from, to) = text.trim().split_once(' ').context("a window is two numbers")?;
        Ok(Self { from_ns: from.parse()?, to_ns: to.parse()? })
    }
}

/// One request, as measured by the clocks of its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Request {
    /// When it should have begun.
    due_ns: u64,
    /// When the thread should have run for it: later than due if the previous request was not done by then.
    ready_ns: u64,
    /// When the thread started to run for it.
    begun_ns: u64,
    /// When it was done.
    done_ns: u64,
    /// CPU time from `begun_ns` to `done_ns`.
    cpu_ns: u64,
}

impl Request {
    /// The part, in the window, of the time within the request in which the thread had no CPU. When that was within
    /// the request is unknown, so it is spread evenly over the request.
    fn preempted_ns(&self, window: Window) -> u64 {
        let length_ns = self.done_ns - self.begun_ns;
        let lost_ns = length_ns.saturating_sub(self.cpu_ns);
        let inside_ns = window.overlap_ns(self.begun_ns, self.done_ns);
        (lost_ns as f64 * inside_ns as f64 / length_ns.max(1) as f64) as u64
    }
}

/// Serves until `wait` returns. Returns all requests.
fn serve(
    demand: Demand,
    stop: &AtomicBool,
    wait: impl FnOnce() -> std::io::Result<()>,
) -> Result<Vec<Request>> {
    let start_ns = now_ns(ClockId::Monotonic);
    thread::scope(|scope| {
        let serve_thread = move |number| {
            let mut requests = requests(demand, number, start_ns);
            let mut served = Vec::new();
            // The request in progress when the end is signalled is kept too: much of its time may be in the window.
            while !stop.load(Ordering::Relaxed) {
                served.extend(requests.next());
            }
            served
        };
        let servers: Vec<_> =
            (0..demand.threads).map(|number| scope.spawn(move || serve_thread(number))).collect();
        let waited = wait();
        stop.store(true, Ordering::Relaxed);
        let served = servers
            .into_iter()
            .flat_map(|server| server.join().expect("a server thread does not panic"))
            .collect();
        waited?;
        Ok(served)
    })
}

/// The requests of one thread. Their due times are fixed in advance. A late start therefore delays the next request
/// too, and no delay that users would have noticed is left out.
fn requests(demand: Demand, number: u32, start_ns: u64) -> impl Iterator<Item = Request> {
    // The kernel may delay timers of a sleeping thread by this slack to save wake-ups; 50 us by default.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    let (work_ns, period_ns) = (demand.work_us * 1000, demand.period_us * 1000);
    // Due times are staggered, so that threads do not compete with each other.
    let mut next_ns = start_ns + period_ns * u64::from(number) / u64::from(demand.threads.max(1));
    let mut now = Clocks::now();
    std::iter::from_fn(move || {
        let due_ns = if period_ns == 0 { now.wall_ns } else { next_ns };
        next_ns = due_ns + period_ns;
        let ready_ns = due_ns.max(now.wall_ns);
        if now.wall_ns < due_ns {
            sleep_until(due_ns);
            now = Clocks::now();
        }
        let begun = now;
        now = work(begun, work_ns);
        Some(Request {
            due_ns,
            ready_ns,
            begun_ns: begun.wall_ns,
            done_ns: now.wall_ns,
            cpu_ns: now.cpu_ns - begun.cpu_ns,
        })
    })
}

/// Summarises the part of the requests that falls into a window.
fn summary(served: &[Request], window: Window) -> Summary {
    let mut latencies: Vec<u64> = served
        .iter()
        .filter(|request| (window.from_ns..window.to_ns).contains(&request.done_ns))
        .map(|request| request.done_ns - request.due_ns)
        .collect();
    latencies.sort_unstable();
    Summary {
        wall_ns: window.to_ns.saturating_sub(window.from_ns),
        requests: latencies.len() as u64,
        woke_late_ns: Some(served.iter().map(|r| window.overlap_ns(r.ready_ns, r.begun_ns)).sum()),
        preempted_ns: Some(served.iter().map(|request| request.preempted_ns(window)).sum()),
        stood_still_ns: None,
        p50_ns: percentile(&latencies, 50),
        p99_ns: percentile(&latencies, 99),
        max_ns: percentile(&latencies, 100),
        slept: None,
        io: None,
    }
}

/// The smallest of the values, which must be in ascending order, that at least `percent` % of them do not exceed. 0
/// if there are no values.
pub(crate) fn percentile(ascending: &[u64], percent: usize) -> u64 {
    let rank = (ascending.len() * percent).div_ceil(100).max(1);
    ascending.get(rank - 1).copied().unwrap_or(0)
}

/// Computes until this thread has used that much CPU time.
pub(super) fn compute(work_ns: u64) {
    work(Clocks::now(), work_ns);
}

/// Computes until this much CPU time is used.
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

pub(crate) fn now_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

pub(crate) fn sleep_until(wall_ns: u64) {
    let seconds = i64::try_from(wall_ns / 1_000_000_000).unwrap_or(i64::MAX);
    let nanoseconds = i64::try_from(wall_ns % 1_000_000_000).unwrap_or(0);
    let until = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    while clock_nanosleep_absolute(ClockId::Monotonic, &until) == Err(rustix::io::Errno::INTR) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    /// Serves for `time`. Returns the requests and the window in which they were served.
    fn serve_for(demand: Demand, time: Duration) -> (Vec<Request>, Window) {
        let from_ns = now_ns(ClockId::Monotonic);
        let wait = || {
            thread::sleep(time);
            Ok(())
        };
        let served = serve(demand, &AtomicBool::new(false), wait).unwrap();
        (served, Window { from_ns, to_ns: now_ns(ClockId::Monotonic) })
    }

    /// Back-to-back requests: each is ready when the previous one is done, then waits, then is served.
    fn requests_of(parts: &[(u64, u64, u64)]) -> Vec<Request> {
        let mut now_ns = 0;
        let one = |&(late_ns, cpu_ns, lost_ns): &(u64, u64, u64)| {
            let ready_ns = now_ns;
            let begun_ns = ready_ns + late_ns;
            now_ns = begun_ns + cpu_ns + lost_ns;
            Request { due_ns: ready_ns, ready_ns, begun_ns, done_ns: now_ns, cpu_ns }
        };
        parts.iter().map(one).collect()
    }

    proptest! {
        #[test]
        fn windows_side_by_side_hold_what_the_whole_holds(
            parts in proptest::collection::vec((0u64..1_000_000, 0u64..1_000_000, 0u64..1_000_000), 0..50),
            cut_ns in 0u64..50_000_000,
        ) {
            let served = requests_of(&parts);
            let of = |from_ns, to_ns| summary(&served, Window { from_ns, to_ns });
            let (left, right, whole) = (of(0, cut_ns), of(cut_ns, u64::MAX), of(0, u64::MAX));
            prop_assert_eq!(left.requests + right.requests, whole.requests);
            let late = |it: &Summary| it.woke_late_ns.unwrap();
            let preempted = |it: &Summary| it.preempted_ns.unwrap();
            prop_assert_eq!(late(&left) + late(&right), late(&whole));
            // One request is cut by the boundary, and both halves are rounded.
            prop_assert!((preempted(&left) + preempted(&right)).abs_diff(preempted(&whole)) <= 2);
            prop_assert_eq!(preempted(&whole), parts.iter().map(|part| part.2).sum::<u64>());
            prop_assert_eq!(late(&whole), parts.iter().map(|part| part.0).sum::<u64>());
            prop_assert!(whole.p50_ns <= whole.p99_ns && whole.p99_ns <= whole.max_ns);
        }

        #[test]
        fn a_window_reads_back_as_it_was_written(from_ns: u64, to_ns: u64) {
            let window = Window { from_ns, to_ns };
            prop_assert_eq!(format!("{window}\n").parse::<Window>().unwrap(), window);
        }

        #[test]
        fn any_other_line_is_an_error_and_no_panic(line in ".{0,40}") {
            let _ = line.parse::<Window>();
        }
    }

    #[test]
    fn answers_count_from_when_they_were_due_and_in_the_window_in_which_they_came() {
        let answers = [(0, 50), (10, 100), (90, 150), (150, 300)];
        let summary = Summary::of_answers(&answers, Window { from_ns: 100, to_ns: 300 });
        let numbers = (summary.requests, summary.p50_ns, summary.max_ns, summary.wall_ns);
        assert_eq!(numbers, (2, 60, 90, 200));
        assert_eq!(summary.waited_ns_per_s(), None, "it does not see that");
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values: Vec<u64> = (1..=200).collect();
        assert_eq!([50, 99, 100].map(|percent| percentile(&values, percent)), [100, 198, 200]);
        assert_eq!(percentile(&[7], 50), 7);
        assert_eq!(percentile(&[], 99), 0);
    }

    #[test]
    fn nothing_served_is_a_summary_of_zeroes() {
        let nothing = summary(&[], Window { from_ns: 1, to_ns: 6 });
        let zero = Summary {
            wall_ns: 5,
            woke_late_ns: Some(0),
            preempted_ns: Some(0),
            ..Summary::default()
        };
        assert_eq!(nothing, zero);
        assert_eq!(zero.waited_ns_per_s(), Some(0.0));
    }

    #[test]
    fn every_request_uses_its_cpu_time_and_the_clocks_explain_the_wall_time() {
        let demand = Demand { threads: 1, work_us: 500, period_us: 0 };
        let (served, window) = serve_for(demand, Duration::from_millis(50));
        assert!(!served.is_empty());
        assert!(served.iter().all(|request| request.cpu_ns >= 500_000));
        // Back to back, the thread is either running or runnable from the first request to the last.
        let cpu_ns: u64 = served.iter().map(|request| request.cpu_ns).sum();
        let summary = summary(&served, window);
        // Waiting is counted by the run queue's clock, which is behind by a part of a tick at some switches.
        let most_ns = summary.wall_ns + summary.wall_ns / 10;
        assert!(
            cpu_ns + summary.preempted_ns.unwrap() <= most_ns,
            "{cpu_ns} ns of CPU, {summary:?}"
        );
    }

    #[test]
    fn requests_that_are_due_on_a_schedule_leave_time_to_sleep() {
        let demand = Demand { threads: 2, work_us: 100, period_us: 10_000 };
        let (served, window) = serve_for(demand, Duration::from_millis(60));
        assert!(!served.is_empty());
        let cpu_ns: u64 = served.iter().map(|request| request.cpu_ns).sum();
        assert!(cpu_ns < window.to_ns - window.from_ns);
    }
}
