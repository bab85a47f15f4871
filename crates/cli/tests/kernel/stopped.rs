// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The reader of the scheduler probe is stopped between any two of its readings, while threads switch all the time: what
//! it tells of them is as consistent as ever.

use crate::common::root_or_skip;
use crate::probe::{make_plan, of};
use deburr_bpf::sched::{SchedProbe, State, ThreadDelta, ThreadScan};
use deburr_core::recording::{bucket_of, bucket_range_ns};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const CPUS: u32 = 1024;
/// Length of a stop. Threads that sleep for a millisecond at a time switch many times in it.
const STOP: Duration = Duration::from_millis(300);
/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// The thread at whose readings the reader stops, and before which of them; negative = it does not.
static AT_TID: AtomicU32 = AtomicU32::new(0);
static AT_READING: AtomicI32 = AtomicI32::new(-1);
/// Whether the threads of [`Crowd`] compute.
static CROWDED: AtomicBool = AtomicBool::new(false);

/// Stops the reader before one of the readings of one thread. Meanwhile there is a crowd on that thread's CPU, and it waits
/// for much longer than before.
fn stand_still(tid: u32) {
    if tid == AT_TID.load(Ordering::Relaxed) && AT_READING.fetch_sub(1, Ordering::Relaxed) == 0 {
        CROWDED.store(true, Ordering::Relaxed);
        thread::sleep(STOP);
        CROWDED.store(false, Ordering::Relaxed);
    }
}

/// Threads on one CPU: one that computes for a moment and sleeps for a millisecond, all the time, and others that compute
/// only in a crowd.
struct Crowd {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    tid: u32,
}

impl Crowd {
    fn start() -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let (send, receive) = std::sync::mpsc::channel();
        let threads = (0..6).map(|number| {
            let (ends, send) = (Arc::clone(&ends), send.clone());
            thread::spawn(move || {
                let mut first = rustix::thread::CpuSet::new();
                first.set(0);
                let _ = rustix::thread::sched_setaffinity(None, &first);
                if number == 0 {
                    let tid = rustix::thread::gettid().as_raw_nonzero().get();
                    send.send(tid.unsigned_abs()).unwrap();
                }
                while !ends.load(Ordering::Relaxed) {
                    if number == 0 {
                        (0..2000).for_each(|_| std::hint::spin_loop());
                        thread::sleep(Duration::from_millis(1));
                    } else if CROWDED.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    } else {
                        thread::sleep(Duration::from_millis(2));
                    }
                }
            })
        });
        let threads = threads.collect();
        Self { ends, threads, tid: receive.recv().unwrap() }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// What is read of this process: stopped before readings of a thread, and between the query and the look.
struct Reader {
    probe: SchedProbe,
    scan: ThreadScan,
    /// Up to when the last look told.
    cut_ns: u64,
}

impl Reader {
    fn begin() -> Self {
        let mut probe = SchedProbe::open(&make_plan(), CPUS.min(cpus()), None).unwrap();
        let clock = probe.clock().unwrap();
        let waiting = probe.begin_window(clock).unwrap();
        let mut scan = ThreadScan::begin(&probe, &waiting, |_| {});
        scan.between = Some(stand_still);
        Self { probe, scan, cut_ns: 0 }
    }

    /// Threads of this process as of one look, which is asserted to be consistent.
    fn look(&mut self, last: bool, stop: bool) -> Vec<ThreadDelta> {
        let clock = self.probe.clock().unwrap();
        let waiting = self.probe.who_waits(clock).unwrap();
        if stop {
            thread::sleep(STOP);
        }
        let mut threads = Vec::new();
        self.scan.look(&self.probe, &waiting, last, |thread| {
            if thread.tgid == std::process::id() {
                threads.push(thread.clone());
            }
        });
        let before_ns = self.cut_ns;
        self.cut_ns = self.scan.in_window_ns(waiting.at_ns());
        if last {
            self.cut_ns = self.cut_ns.max(self.scan.until_ns());
        }
        for thread in &threads {
            let tick_ns = self.cut_ns - before_ns.min(thread.from_ns);
            assert!(thread.wall_ns <= tick_ns, "{} ns of {tick_ns} ns: {thread:?}", thread.wall_ns);
            assert!(thread.from_ns >= before_ns, "told of before: {thread:?}");
            let states_ns: u64 = thread.states_ns.iter().sum();
            assert!(states_ns <= thread.wall_ns + 1000, "{thread:?}");
            let top = thread.waits.count.iter().rposition(|&count| count > 0);
            let (from_ns, to_ns) = top.map_or((0, 0), bucket_range_ns);
            let longest = thread.wait_max_ns;
            assert!((from_ns..=to_ns).contains(&longest), "{longest}, in {:?}", bucket_of(longest));
        }
        threads
    }
}

fn cpus() -> u32 {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap();
    text.trim().rsplit(['-', ',']).next().unwrap().parse::<u32>().unwrap() + 1
}

/// Asserts that all of the time of a thread was told once.
fn assert_told(parts: &[ThreadDelta], until_ns: u64) {
    let sum = |of: &dyn Fn(&ThreadDelta) -> u64| parts.iter().map(of).sum::<u64>();
    let (wall_ns, states_ns) =
        (sum(&|part| part.wall_ns), sum(&|part| part.states_ns.iter().sum()));
    let from_ns = parts.iter().map(|part| part.from_ns).min().unwrap();
    assert_eq!(from_ns + wall_ns, until_ns.min(parts.last().unwrap().until_ns()), "no gap");
    assert!(states_ns >= wall_ns * 99 / 100, "{states_ns} of {wall_ns} ns are in a state");
    // All waits that ended are there, and few are in progress.
    let (queued_ns, waits_ns) =
        (sum(&|part| of(part, State::Queued)), sum(&|part| part.waits.total_ns()));
    let in_progress_ns = parts.last().unwrap().waiting_ns;
    assert!(
        queued_ns.abs_diff(waits_ns + in_progress_ns) <= queued_ns / 100,
        "{queued_ns} {waits_ns}"
    );
}

#[test]
fn a_reader_that_is_stopped_between_any_two_readings_tells_no_more_than_there_was() {
    let test = "a_reader_that_is_stopped_between_any_two_readings_tells_no_more_than_there_was";
    if !root_or_skip("kernel", test) {
        return;
    }
    let mut reader = Reader::begin();
    let crowd = Crowd::start();
    AT_TID.store(crowd.tid, Ordering::Relaxed);
    let mut parts = Vec::new();
    // There are five pauses in the readings of a thread.
    for stop in (0..6).chain([-1, -1, -1]) {
        thread::sleep(PAUSE);
        AT_READING.store(stop, Ordering::Relaxed);
        parts.extend(reader.look(false, stop < 0));
    }
    thread::sleep(PAUSE);
    AT_READING.store(-1, Ordering::Relaxed);
    parts.extend(reader.look(true, true));
    parts.retain(|part| part.tid == crowd.tid);
    assert!(parts.len() >= 9, "{} looks", parts.len());
    assert_told(&parts, reader.cut_ns);
}
