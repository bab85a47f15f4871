// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A thread that was woken and gets no CPU is reported as waiting, not as asleep, also where several looks fall into
//! one wait.

use crate::common::{root_or_skip, tried};
use crate::probe::{Spinner, Watch, make_plan};
use deburr_bpf::sched::State;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A thread that sleeps for [`NAP`] at a time and computes briefly in between.
struct Napper {
    stop: Arc<AtomicBool>,
    naps: Arc<AtomicU64>,
    handle: Option<JoinHandle<()>>,
    tid: u32,
}

const NAP: Duration = Duration::from_millis(4);

impl Napper {
    fn start(cpu: usize) -> Self {
        let (stop, naps) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (send, receive) = std::sync::mpsc::channel();
        let (flag, count) = (Arc::clone(&stop), Arc::clone(&naps));
        let handle = thread::spawn(move || {
            let mut one = rustix::thread::CpuSet::new();
            one.set(cpu);
            rustix::thread::sched_setaffinity(None, &one).unwrap();
            send.send(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()).unwrap();
            while !flag.load(Ordering::Relaxed) {
                thread::sleep(NAP);
                count.fetch_add(1, Ordering::Relaxed);
                (0..20_000).for_each(|_| std::hint::spin_loop());
            }
        });
        Self { stop, naps, handle: Some(handle), tid: receive.recv().unwrap() }
    }
}

impl Drop for Napper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.handle.take().unwrap().join();
    }
}

#[test]
fn a_woken_thread_that_gets_no_cpu_waits_and_does_not_sleep() {
    if !root_or_skip("kernel", "a_woken_thread_that_gets_no_cpu_waits_and_does_not_sleep") {
        return;
    }
    let napper = Napper::start(0);
    // Dropped before the napper, which otherwise would get no CPU to end on.
    let spinners: Vec<_> = (0..3).map(|_| Spinner::start()).collect();
    let set_nice = |tid: u32, nice| {
        let thread = rustix::process::Pid::from_raw(tid.cast_signed());
        rustix::process::setpriority_process(thread, nice).unwrap();
    };
    // The napper's weight is 15 of some 9400: it waits for half a second at a time.
    set_nice(napper.tid, 19);
    for spinner in &spinners {
        spinner.pin(0);
        set_nice(spinner.tid, -5);
    }
    let me = std::process::id();
    let mut watch = Watch::begin(&make_plan());
    let naps_before = napper.naps.load(Ordering::Relaxed);
    let mut told = [0u64; 8];
    // Several looks fall into each wait: a look must not report what the next one would have to revise.
    for _ in 0..30 {
        thread::sleep(Duration::from_millis(100));
        for thread in watch.look_at(me).iter().filter(|thread| thread.tid == napper.tid) {
            for (sum, ns) in told.iter_mut().zip(thread.states_ns) {
                *sum += ns;
            }
        }
    }
    let naps = napper.naps.load(Ordering::Relaxed) - naps_before;
    drop(spinners);
    let wall_ns: u64 = told.iter().sum();
    // The number of naps bounds its sleep: timers are late only by the CPU's interrupts, which is little.
    let slept_ns = (naps + 1) * 2 * NAP.as_nanos() as u64;
    let asleep_ns = told[State::Sleep as usize];
    assert!(asleep_ns <= slept_ns, "asleep for {asleep_ns} of {wall_ns} ns, in {naps} naps");
    let waited_ns = told[State::Queued as usize] + told[State::Throttled as usize];
    let rest_ns = wall_ns - told[State::OnCpu as usize] - slept_ns.min(wall_ns / 2);
    assert!(waited_ns as f64 >= 0.9 * rest_ns as f64, "queued for {waited_ns} of {rest_ns} ns");
}

/// Forks, and keeps the child from its CPU for 0.6 s: real-time threads (FIFO) of the same priority have no time
/// slices.
const STARVED_CHILD: &str = "
import os, sys, time
child = os.fork()
if child == 0:
    os._exit(0)
os.write(1, b'%d\\n' % child)
end = time.monotonic() + 0.6
while time.monotonic() < end:
    pass
os.wait()
";

#[test]
fn a_thread_that_never_had_a_cpu_waits_for_its_first_one() {
    if !root_or_skip("kernel", "a_thread_that_never_had_a_cpu_waits_for_its_first_one") {
        return;
    }
    let mut watch = Watch::begin(&make_plan());
    let begun = Instant::now();
    let words = ["-f", "5", "taskset", "-c", "0", "python3", "-c", STARVED_CHILD];
    let mut parent = Command::new("chrt").args(words).stdout(Stdio::piped()).spawn().unwrap();
    let mut child = String::new();
    BufReader::new(parent.stdout.take().unwrap()).read_line(&mut child).unwrap();
    let child: u32 = child.trim().parse().unwrap();
    let mut told = [0u64; 8];
    for _ in 0..4 {
        thread::sleep(Duration::from_millis(100));
        for thread in watch.look_at(child) {
            for (sum, ns) in told.iter_mut().zip(thread.states_ns) {
                *sum += ns;
            }
        }
    }
    assert!(parent.wait().unwrap().success());
    let waited_ns = told[State::Queued as usize];
    assert!(waited_ns >= 300_000_000, "queued for {waited_ns} ns of 400 ms: {told:?}");
    assert_eq!(waited_ns, told.iter().sum::<u64>(), "it does nothing else: {told:?}");
    // Its lifetime is counted once, and is no longer than this test.
    let rest = watch.look_at(child);
    let lived_ns = waited_ns + rest.iter().map(|thread| thread.wall_ns).sum::<u64>();
    assert!(rest.len() == 1 && rest[0].dead, "{rest:?}");
    assert!(u128::from(lived_ns) <= begun.elapsed().as_nanos(), "{lived_ns} ns");
}

/// Keeps CPU 1 for 0.7 s of every 0.8 s; real-time threads may have it for 0.95 s of every second. Says when it begins.
const KEEPER: &str = "
import os, time
while True:
    os.write(1, b'begins\\n')
    end = time.monotonic() + 0.7
    while time.monotonic() < end:
        pass
    time.sleep(0.1)
";

#[test]
fn who_keeps_a_cpu_while_the_probe_is_attached_runs_from_the_beginning() {
    const TEST: &str = "who_keeps_a_cpu_while_the_probe_is_attached_runs_from_the_beginning";
    tried("kernel", TEST, || {
        if root_or_skip("kernel", TEST) {
            try_who_keeps_a_cpu_while_the_probe_is_attached_runs_from_the_beginning();
        }
    });
}

fn try_who_keeps_a_cpu_while_the_probe_is_attached_runs_from_the_beginning() {
    let words = ["-f", "5", "taskset", "-c", "1", "python3", "-c", KEEPER];
    let mut keeper = Command::new("chrt").args(words).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(keeper.stdout.take().unwrap());
    let mut line = String::new();
    // The second turn: the interpreter has started.
    for _ in 0..2 {
        said.read_line(&mut line).unwrap();
    }
    // The kernel's own count of its time on the CPU; how much of it others take is the kernel's affair.
    let ran_ns = || {
        let text = fs::read_to_string(format!("/proc/{}/schedstat", keeper.id())).unwrap();
        text.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    let before_ns = ran_ns();
    let mut watch = Watch::begin(&make_plan());
    let attached_ns = ran_ns();
    let (mut on_cpu_ns, mut wall_ns) = (0, 0);
    for _ in 0..12 {
        thread::sleep(Duration::from_millis(100));
        for thread in watch.look_at(keeper.id()) {
            let in_states_ns = thread.states_ns.iter().sum::<u64>();
            assert!(in_states_ns <= thread.wall_ns, "{thread:?}");
            on_cpu_ns += thread.states_ns[State::OnCpu as usize];
            wall_ns += thread.wall_ns;
        }
    }
    let after_ns = ran_ns();
    keeper.kill().unwrap();
    keeper.wait().unwrap();
    // It is attached in the middle of a turn of 700 ms: whoever is seen from the next switch on lacks what is left of it.
    let (least_ns, most_ns) = (after_ns - attached_ns, after_ns - before_ns);
    let slack_ns = 20_000_000 + least_ns / 50;
    assert!(
        (least_ns.saturating_sub(slack_ns)..=most_ns + slack_ns).contains(&on_cpu_ns),
        "on the CPU for {on_cpu_ns} of {wall_ns} ns; the kernel counted {least_ns} to {most_ns}"
    );
}
