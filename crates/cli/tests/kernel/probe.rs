// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The scheduler probe on this kernel: it loads, its numbers agree with the kernel's own, and whatever threads do
//! (churn, reuse of pids, exec, too many of them), their time is conserved or the loss is counted.

use crate::common::{root_or_skip, skip};
use deburr_bpf::sched::plan::{Needs, Plan, plan};
use deburr_bpf::sched::{Blame, Clock, ProbeCulprit, SchedProbe, State, ThreadDelta, ThreadScan};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const CPUS: u32 = 1024;

pub(crate) fn make_plan() -> Plan {
    let needs = Needs { threads: 1000, cgroup_v2: false, quota_in_use: true, sleeps: true };
    plan(&deburr_bpf::facts::facts(), needs).unwrap()
}

pub(crate) fn cpus() -> u32 {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap();
    text.trim().rsplit(['-', ',']).next().unwrap().parse::<u32>().unwrap().min(CPUS) + 1
}

/// A probe and its reader.
pub(crate) struct Watch {
    probe: SchedProbe,
    scan: ThreadScan,
    blame: Blame,
}

impl Watch {
    pub(crate) fn begin(plan: &Plan) -> Self {
        let mut probe = SchedProbe::open(plan, cpus(), None).unwrap();
        let waiting = probe.begin_window(clock(&probe)).unwrap();
        let scan = ThreadScan::begin(&probe, &waiting, |_| {});
        Self { probe, scan, blame: Blame::default() }
    }

    fn look(&mut self) -> Vec<ThreadDelta> {
        let mut threads = Vec::new();
        let waiting = self.probe.who_waits(clock(&self.probe)).unwrap();
        self.scan.look(&self.probe, &waiting, false, |thread| threads.push(thread.clone()));
        threads
    }

    /// Threads of this process, with their time since the last look.
    pub(crate) fn look_at(&mut self, tgid: u32) -> Vec<ThreadDelta> {
        self.look().into_iter().filter(|thread| thread.tgid == tgid).collect()
    }
}

fn clock(probe: &SchedProbe) -> Clock {
    probe.clock().unwrap()
}

pub(crate) fn of(thread: &ThreadDelta, state: State) -> u64 {
    thread.states_ns[state as usize]
}

/// Asserts that the states of all threads sum to their wall time, within a thousandth.
fn assert_conserved(threads: &[ThreadDelta]) {
    let (wall, parts) = threads.iter().fold((0, 0), |(wall, parts), thread| {
        (wall + thread.wall_ns, parts + thread.states_ns.iter().sum::<u64>())
    });
    assert!(wall > 0, "no thread was seen");
    let ratio = parts as f64 / wall as f64;
    assert!(
        (ratio - 1.0).abs() < 0.001,
        "the parts of {} threads are {ratio} of their time",
        threads.len()
    );
}

/// A thread that spins until it is dropped.
pub(crate) struct Spinner {
    stop: Arc<AtomicBool>,
    handle: Option<JoinHandle<()>>,
    pub(crate) tid: u32,
}

impl Spinner {
    pub(crate) fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (send, receive) = std::sync::mpsc::channel();
        let flag = Arc::clone(&stop);
        let handle = thread::spawn(move || {
            send.send(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()).unwrap();
            while !flag.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        Self { stop, handle: Some(handle), tid: receive.recv().unwrap() }
    }

    pub(crate) fn pin(&self, cpu: usize) {
        let mut set = rustix::thread::CpuSet::new();
        set.set(cpu);
        let pid = rustix::process::Pid::from_raw(self.tid.cast_signed());
        rustix::thread::sched_setaffinity(pid, &set).unwrap();
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.handle.take().unwrap().join();
    }
}

/// `(on CPU, delay)` of `/proc/self/task/TID/schedstat`, nanoseconds.
pub(crate) fn schedstat(tid: u32) -> (u64, u64) {
    let text = std::fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).unwrap();
    let mut numbers = text.split_whitespace().map(|number| number.parse::<u64>().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

/// Unit of the counters in `/proc/stat`, in nanoseconds.
const TICK_NS: u64 = 10_000_000;

/// Steal time of a CPU so far, in nanoseconds.
fn stolen_ns(cpu: u32) -> u64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("cpu{cpu} "))).unwrap();
    line.split_whitespace().nth(7).unwrap().parse::<u64>().unwrap() * TICK_NS
}

/// Polls until `is_so` returns true, since this thread may run late on a busy host; panics after 30 s.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not so after 30 s");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn every_program_loads_within_its_budget_of_instructions() {
    if !root_or_skip("kernel", "every_program_loads_within_its_budget_of_instructions") {
        return;
    }
    let forced = Plan { wakeup_hook: true, task_iterator: true, ..make_plan() };
    let _probe = SchedProbe::open(&forced, cpus(), None).unwrap();
    let mut seen = 0;
    for entry in std::fs::read_dir("/proc/self/fdinfo").unwrap() {
        let Ok(text) = std::fs::read_to_string(entry.unwrap().path()) else { continue };
        let verified = text.lines().find_map(|line| line.strip_prefix("verified_insns:"));
        if let Some(count) = verified {
            seen += 1;
            // The verifier gives up at a million instructions; older ones prune less well. Load time grows with the
            // count.
            let count: u32 = count.trim().parse().unwrap();
            assert!(count < 90_000, "{count} instructions were verified");
        }
    }
    assert!(seen >= 3, "only {seen} programs are loaded");
}

#[test]
fn on_cpu_and_queued_time_agree_with_schedstat() {
    crate::common::tried(
        "kernel",
        "on_cpu_and_queued_time_agree_with_schedstat",
        try_on_cpu_and_queued_time_agree_with_schedstat,
    );
}

fn try_on_cpu_and_queued_time_agree_with_schedstat() {
    if !root_or_skip("kernel", "on_cpu_and_queued_time_agree_with_schedstat") {
        return;
    }
    let spinners: Vec<_> = (0..3).map(|_| Spinner::start()).collect();
    for spinner in &spinners {
        spinner.pin(0);
    }
    let me = std::process::id();
    let mut watch = Watch::begin(&make_plan());
    let read = || -> (u64, Vec<(u64, u64)>) {
        (stolen_ns(0), spinners.iter().map(|spinner| schedstat(spinner.tid)).collect())
    };
    // This thread may have to wait for a CPU between two readings. So at both ends the probe's look lies between two
    // readings of the file, which bound what the probe must report.
    let first = read();
    watch.look();
    let second = read();
    thread::sleep(Duration::from_secs(2));
    let third = read();
    let threads = watch.look_at(me);
    let fourth = read();
    assert_conserved(&threads);
    for (at, spinner) in spinners.iter().enumerate() {
        let thread = threads.iter().find(|thread| thread.tid == spinner.tid).unwrap();
        let share = |ns: u64| ns as f64 / thread.wall_ns as f64;
        // The kernel does not count steal time as time on a CPU; the thread was on it all the same.
        let stolen = share(fourth.0 - first.0 + TICK_NS);
        let ours = share(of(thread, State::OnCpu));
        let theirs = [share(third.1[at].0 - second.1[at].0), share(fourth.1[at].0 - first.1[at].0)];
        assert!(
            (theirs[0] - 0.03..theirs[1] + stolen + 0.03).contains(&ours),
            "on CPU: {ours} here, {theirs:?} there, {stolen} stolen"
        );
        // The file's run delay grows when a wait ends, so it may lack or exceed one wait at either end: three spinners
        // in one queue wait for some tens of milliseconds of these two seconds, longer beside other load.
        let longest = share(thread.wait_max_ns.max(200_000_000));
        let ours = share(of(thread, State::Queued) + of(thread, State::Throttled));
        let theirs = [share(third.1[at].1 - second.1[at].1), share(fourth.1[at].1 - first.1[at].1)];
        assert!(
            (theirs[0] - longest..theirs[1] + longest).contains(&ours),
            "queued: {ours} here, {theirs:?} there"
        );
    }
}

#[test]
fn who_waits_behind_whom_is_told_and_sums_to_the_waiting() {
    crate::common::tried(
        "kernel",
        "who_waits_behind_whom_is_told_and_sums_to_the_waiting",
        try_who_waits_behind_whom_is_told_and_sums_to_the_waiting,
    );
}

fn try_who_waits_behind_whom_is_told_and_sums_to_the_waiting() {
    if !root_or_skip("kernel", "who_waits_behind_whom_is_told_and_sums_to_the_waiting") {
        return;
    }
    let spinners: Vec<_> = (0..4).map(|_| Spinner::start()).collect();
    for spinner in &spinners {
        spinner.pin(0);
    }
    let me = std::process::id();
    let mut watch = Watch::begin(&make_plan());
    watch.probe.end_epoch();
    watch.look();
    thread::sleep(Duration::from_secs(2));
    let epoch = watch.probe.end_epoch();
    let threads = watch.look_at(me);
    let sums = watch.blame.of_epoch(&watch.probe, epoch);
    let total: u64 = sums.iter().filter(|((victim, _), _)| *victim == me).map(|(_, ns)| ns).sum();
    let queued: u64 = threads.iter().map(|thread| of(thread, State::Queued)).sum();
    let ratio = total as f64 / queued as f64;
    // A wait in progress at an end of the epoch has no blame yet: one wait of each of the four spinners, some ten
    // milliseconds of two seconds.
    assert!((0.9..1.1).contains(&ratio), "blame is {ratio} of the waiting");
    // Whenever one of the four runs, the three others wait behind it, whoever else runs in between.
    let own = sums.get(&(me, ProbeCulprit::Process(me))).copied().unwrap_or(0);
    let ran: u64 = spinners
        .iter()
        .filter_map(|spinner| threads.iter().find(|thread| thread.tid == spinner.tid))
        .map(|thread| of(thread, State::OnCpu))
        .sum();
    let ratio = own as f64 / (3 * ran) as f64;
    assert!((0.85..1.15).contains(&ratio), "blame among the four is {ratio} of what it must be");
    assert!(!sums.contains_key(&(me, ProbeCulprit::Process(0))), "idleness is never a culprit");
}

#[test]
fn the_last_move_of_a_waiting_thread_is_told() {
    let test = "the_last_move_of_a_waiting_thread_is_told";
    if !root_or_skip("kernel", test) {
        return;
    }
    if cpus() < 2 {
        skip("kernel", test, "one CPU");
        return;
    }
    let watch = Watch::begin(&make_plan());
    let (spinner, beside) = (Spinner::start(), Spinner::start());
    beside.pin(0);
    for (from, to) in [(0, 1), (1, 0)] {
        until("the thread is moved while it wants the CPU", || {
            spinner.pin(from);
            let before_ns = clock(&watch.probe).now();
            spinner.pin(to);
            // The clock of a run queue may be late by a tick or a few.
            watch
                .probe
                .last_move(spinner.tid)
                .is_some_and(|last| last.from_cpu == from && last.at_ns + 1_000_000_000 > before_ns)
        });
    }
}

#[test]
fn two_probes_side_by_side_see_the_same() {
    crate::common::tried(
        "kernel",
        "two_probes_side_by_side_see_the_same",
        try_two_probes_side_by_side_see_the_same,
    );
}

fn try_two_probes_side_by_side_see_the_same() {
    if !root_or_skip("kernel", "two_probes_side_by_side_see_the_same") {
        return;
    }
    let spinner = Spinner::start();
    let (mut one, mut other) = (Watch::begin(&make_plan()), Watch::begin(&make_plan()));
    let _empty = deburr_bpf::empty::Empty::on_switch().unwrap();
    let begin = Instant::now();
    one.look();
    other.look();
    let mut apart = begin.elapsed();
    thread::sleep(Duration::from_secs(1));
    let end = Instant::now();
    let (one, other) = (one.look(), other.look());
    // This thread may have to wait for a CPU between the looks of the two probes: their figures may differ by that
    // time.
    apart += end.elapsed();
    let on_cpu_ns = |threads: &[ThreadDelta]| {
        let thread = threads.iter().find(|thread| thread.tid == spinner.tid).unwrap();
        (of(thread, State::OnCpu), thread.wall_ns)
    };
    let ((one, wall_ns), (other, _)) = (on_cpu_ns(&one), on_cpu_ns(&other));
    let allowed_ns = apart.as_nanos() as f64 + 0.02 * wall_ns as f64;
    assert!(
        one.abs_diff(other) as f64 <= allowed_ns,
        "{one} and {other} of {wall_ns} ns, {apart:?} apart"
    );
}

/// Capacity of the overflow map, in threads.
const OVERFLOW_THREADS: usize = 2048;

fn threads_on_host() -> usize {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap();
    text.split_whitespace().nth(3).unwrap().split_once('/').unwrap().1.parse().unwrap()
}

/// Threads that sleep until this is dropped.
struct Sleepers(Arc<AtomicBool>, Vec<JoinHandle<()>>);

impl Sleepers {
    fn start(count: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..count)
            .map(|_| {
                let stop = Arc::clone(&stop);
                thread::Builder::new()
                    .stack_size(64 << 10)
                    .spawn(move || {
                        while !stop.load(Ordering::Relaxed) {
                            thread::sleep(Duration::from_millis(300));
                        }
                    })
                    .unwrap()
            })
            .collect();
        Self(stop, threads)
    }
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        for thread in self.1.drain(..) {
            let _ = thread.join();
        }
    }
}

#[test]
fn threads_beyond_the_table_are_kept_in_the_overflow_map() {
    if !root_or_skip("kernel", "threads_beyond_the_table_are_kept_in_the_overflow_map") {
        return;
    }
    let sleepers = Sleepers::start(300);
    let threads_before = threads_on_host();
    let me = std::process::id();
    let mut watch = Watch::begin(&Plan { slots: 64, ..make_plan() });
    thread::sleep(Duration::from_millis(800));
    watch.look();
    thread::sleep(Duration::from_secs(1));
    let threads = watch.look_at(me);
    // Threads of other processes count too: with more on the host than the map has room for, losing some is right.
    let most_threads = threads_before.max(threads_on_host());
    if most_threads >= OVERFLOW_THREADS {
        let lost = watch.probe.lost();
        assert!(lost.contains_key("thread_table_full"), "{most_threads} threads, {lost:?}");
        return;
    }
    assert!(threads.len() > sleepers.1.len(), "only {} threads are seen", threads.len());
    assert!(threads.iter().any(|thread| thread.slot.is_none()), "none is in the overflow map");
    assert_conserved(&threads);
    assert!(!watch.probe.lost().contains_key("thread_table_full"), "{:?}", watch.probe.lost());
}

#[test]
fn threads_beyond_all_memory_are_counted_as_lost() {
    if !root_or_skip("kernel", "threads_beyond_all_memory_are_counted_as_lost") {
        return;
    }
    let _sleepers = Sleepers::start(2500);
    let watch = Watch::begin(&Plan { slots: 16, ..make_plan() });
    until("threads are lost", || {
        watch.probe.lost().get("thread_table_full").is_some_and(|&count| count > 0)
    });
}

#[test]
fn ten_thousand_threads_are_seen() {
    if !root_or_skip("kernel", "ten_thousand_threads_are_seen") {
        return;
    }
    let sleepers = Sleepers::start(10_000);
    let me = std::process::id();
    let plan = plan(
        &deburr_bpf::facts::facts(),
        Needs { threads: 10_500, cgroup_v2: false, quota_in_use: false, sleeps: false },
    );
    let mut watch = Watch::begin(&plan.unwrap());
    watch.look();
    thread::sleep(Duration::from_secs(1));
    let threads = watch.look_at(me);
    assert!(threads.len() > sleepers.1.len(), "only {} threads are seen", threads.len());
    assert_conserved(&threads);
}

#[test]
fn short_lived_threads_are_seen_to_their_end() {
    if !root_or_skip("kernel", "short_lived_threads_are_seen_to_their_end") {
        return;
    }
    let me = std::process::id();
    let mut watch = Watch::begin(&make_plan());
    watch.look_at(me);
    let (mut made, mut seen, mut threads) = (0u64, BTreeSet::new(), Vec::new());
    let start = Instant::now();
    let mut epoch = Instant::now();
    while start.elapsed() < Duration::from_secs(3) {
        for _ in 0..50 {
            thread::spawn(|| {}).join().unwrap();
            made += 1;
        }
        if epoch.elapsed() > Duration::from_millis(500) {
            epoch = Instant::now();
            watch.probe.end_epoch();
            threads.extend(watch.look_at(me));
        }
    }
    watch.probe.end_epoch();
    threads.extend(watch.look_at(me));
    for thread in threads.iter().filter(|thread| thread.dead) {
        // A thread id may be reused within three seconds: wall time and switches distinguish the second thread from the
        // first.
        seen.insert((thread.tid, thread.wall_ns, thread.switches));
    }
    let lost = watch.probe.lost().get("exit_unread").copied().unwrap_or(0);
    let accounted = seen.len() as u64 + lost;
    assert!(
        accounted * 100 >= made * 99,
        "of {made} threads {} were seen, {lost} lost",
        seen.len()
    );
    assert_conserved(&threads);
}

#[test]
fn a_reused_pid_is_another_process() {
    if !root_or_skip("kernel", "a_reused_pid_is_another_process") {
        return;
    }
    let mut watch = Watch::begin(&make_plan());
    watch.look();
    let mut starts: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
    // Asking for a pid may fail when another process takes it first; one success is enough.
    for _ in 0..20 {
        let mut first = Command::new("true").spawn().unwrap();
        first.wait().unwrap();
        for thread in watch.look() {
            starts.entry(thread.tgid).or_default().insert(thread.leader_boot_ns);
        }
        if std::fs::write("/proc/sys/kernel/ns_last_pid", (first.id() - 1).to_string()).is_err() {
            skip("kernel", "a_reused_pid_is_another_process", "cannot choose the next pid");
            return;
        }
        let mut second = Command::new("true").spawn().unwrap();
        second.wait().unwrap();
        for thread in watch.look() {
            starts.entry(thread.tgid).or_default().insert(thread.leader_boot_ns);
        }
        if second.id() == first.id() {
            let seen = starts.get(&first.id()).map_or(0, BTreeSet::len);
            assert_eq!(seen, 2, "processes seen with pid {}", first.id());
            return;
        }
    }
    panic!("in 20 attempts no pid could be had again");
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a process is in this state, by its letter in `/proc/PID/stat`.
fn is_in_state(pid: u32, state: char) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(state))
}

/// Body of the child process of the next test.
fn exec_from_a_thread() {
    thread::spawn(|| {
        thread::sleep(Duration::from_millis(700));
        panic!("{}", Command::new("sleep").arg("60").exec());
    });
    thread::sleep(Duration::from_secs(60));
}

/// Environment variable, set in the child process of the next test, which execs.
const EXEC_CHILD: &str = "DEBURR_TEST_EXEC_FROM_A_THREAD";

/// Command that starts a process with two threads, of which the second one execs.
fn exec_test() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "probe::exec_by_a_thread_ends_the_thread_and_not_the_process"])
        .env(EXEC_CHILD, "1");
    command
}

#[test]
fn exec_by_a_thread_ends_the_thread_and_not_the_process() {
    if std::env::var_os(EXEC_CHILD).is_some() {
        exec_from_a_thread();
    }
    if !root_or_skip("kernel", "exec_by_a_thread_ends_the_thread_and_not_the_process") {
        return;
    }
    let mut watch = Watch::begin(&make_plan());
    let child = Killed(exec_test().spawn().unwrap());
    let pid = child.0.id();
    until("two threads before exec", || watch.look_at(pid).len() >= 2);
    let comm = || std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    until("exec", || comm().trim() == "sleep");
    until("it sleeps", || is_in_state(pid, 'S'));
    watch.look_at(pid);
    thread::sleep(Duration::from_secs(1));
    let after = watch.look_at(pid);
    assert_eq!(
        after.len(),
        1,
        "threads after exec: {:?}",
        after.iter().map(|t| t.tid).collect::<Vec<_>>()
    );
    assert_eq!((after[0].tid, after[0].tgid), (pid, pid));
    assert_eq!(deburr_core::text::name::decode(&after[0].comm), "sleep");
    let asleep = of(&after[0], State::Sleep) as f64 / after[0].wall_ns as f64;
    assert!(asleep > 0.99, "asleep for {asleep} of its time");
    assert_conserved(&after);
}

/// A thread that execs continues under the leader's id: the thread that leaves the CPU is then not the one that got it,
/// and yet no switch was missed.
#[test]
fn exec_by_a_thread_is_no_missed_switch() {
    const TIMES: u64 = 6;
    if !root_or_skip("kernel", "exec_by_a_thread_is_no_missed_switch") {
        return;
    }
    let mut watch = Watch::begin(&make_plan());
    for _ in 0..TIMES {
        let child = exec_test().spawn().unwrap();
        let child = Killed(child);
        let comm = || std::fs::read_to_string(format!("/proc/{}/comm", child.0.id())).unwrap();
        until("exec", || comm().trim() == "sleep");
        until("it sleeps", || is_in_state(child.0.id(), 'S'));
        watch.look();
    }
    watch.look();
    let missed = watch.scan.switches_missed(true);
    assert!(missed < TIMES / 2, "{missed} switches were missed by {TIMES} execs");
}

#[test]
fn a_stopped_thread_is_not_asleep() {
    if !root_or_skip("kernel", "a_stopped_thread_is_not_asleep") {
        return;
    }
    let child = Killed(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap());
    let pid = child.0.id();
    let mut watch = Watch::begin(&make_plan());
    let handle = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    rustix::process::kill_process(handle, rustix::process::Signal::STOP).unwrap();
    until("it is stopped", || is_in_state(pid, 'T'));
    watch.look();
    thread::sleep(Duration::from_secs(1));
    let stopped = watch.look_at(pid);
    assert_eq!(stopped.len(), 1);
    let share = of(&stopped[0], State::Stopped) as f64 / stopped[0].wall_ns as f64;
    assert!(share > 0.99, "stopped for {share} of its time");
}
