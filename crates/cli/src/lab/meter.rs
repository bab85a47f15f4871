// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures the machine during a run: stolen time, CPU time of processes outside of the lab, and lateness of timers.
//! It reads the kernel's own counters, not what the observing `deburr` reports, which is under test.

use super::fitness::Machine;
use super::victim::{Window, percentile};
use crate::clock::{monotonic_ns, sleep_until};
use anyhow::{Context as _, Result};
use deburr_core::procfs::stat::{self, CpuTimes};
use deburr_core::procfs::{pid, stat::ticks_ns};
use deburr_sys::realtime;
use rustix::param::clock_ticks_per_second;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Interval between two readings of CPU counters.
const READ_EVERY_NS: u64 = 100_000_000;
/// Processes are read with every n-th of these readings.
const PROCESSES_EVERY: u64 = 10;
/// Interval of the timers.
const TIMER_NS: u64 = 10_000_000;

/// Counters at one time.
#[derive(Clone, Debug, Default)]
struct Reading {
    at_ns: u64,
    cpus: Vec<CpuTimes>,
    /// CPU time so far of each process of the lab, with that of the children it has waited for, and of each kernel
    /// thread, by pid. `None` if processes were not read.
    known_ns: Option<BTreeMap<u32, u64>>,
}

/// When each timer was due, and how late it fired, in nanoseconds. `None` = they could not be measured.
type Timers = Option<Vec<(u64, u64)>>;

/// Measures in threads of its own until [`Meter::finish`].
#[derive(Debug)]
pub(crate) struct Meter {
    stop: Arc<AtomicBool>,
    reader: Option<JoinHandle<Vec<Reading>>>,
    timers: Option<JoinHandle<Timers>>,
}

impl Meter {
    /// Starts measuring. `lab` is the directory of the lab's cgroup.
    pub(crate) fn start(lab: &Path) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (lab, until, also_until) = (lab.to_owned(), stop.clone(), stop.clone());
        Self {
            stop,
            reader: Some(std::thread::spawn(move || read_until(&lab, &until))),
            timers: Some(std::thread::spawn(move || timers_until(&also_until))),
        }
    }

    /// Stops measuring, and returns what the machine was like in a window that is over.
    pub(crate) fn finish(mut self, window: Window) -> Result<Machine> {
        // A reading after the end of the window is needed.
        sleep_until(window.to_ns.max(monotonic_ns()) + 2 * READ_EVERY_NS);
        self.stop.store(true, Ordering::Relaxed);
        let readings = self.reader.take().and_then(|thread| thread.join().ok());
        let late = self.timers.take().and_then(|thread| thread.join().ok()).flatten();
        let mut machine = machine(&readings.unwrap_or_default(), window)
            .context("the counters of CPUs (`/proc/stat`) cannot be read")?;
        machine.late_p99_ns = late.map(|late| p99_ns(&late, window));
        Ok(machine)
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn read_until(lab: &Path, stop: &AtomicBool) -> Vec<Reading> {
    let mut readings = Vec::new();
    let mut next_ns = monotonic_ns();
    for number in 0_u64.. {
        let processes = number.is_multiple_of(PROCESSES_EVERY);
        let known_ns = processes.then(|| known_ns(lab));
        let cpus = fs::read("/proc/stat").ok().and_then(|text| stat::parse(&text, user_hz()).ok());
        let Some(cpus) = cpus else { break };
        readings.push(Reading { at_ns: monotonic_ns(), cpus, known_ns });
        if stop.load(Ordering::Relaxed) {
            break;
        }
        next_ns = (next_ns + READ_EVERY_NS).max(monotonic_ns());
        sleep_until(next_ns);
    }
    readings
}

/// Measures timers. `None` without real-time priority: the lab's own load would then make them late.
fn timers_until(stop: &AtomicBool) -> Timers {
    realtime::take_precedence().ok()?;
    let mut late = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let due_ns = monotonic_ns() + TIMER_NS;
        sleep_until(due_ns);
        late.push((due_ns, monotonic_ns().saturating_sub(due_ns)));
    }
    Some(late)
}

fn user_hz() -> u64 {
    clock_ticks_per_second()
}

/// CPU time of each process of the lab and of each kernel thread, by pid. Children that have been waited for count:
/// a storm of forks is the lab's own load, and none of its processes lives until the next reading.
fn known_ns(lab: &Path) -> BTreeMap<u32, u64> {
    let (mut inside, mut dirs) = (Vec::new(), vec![PathBuf::from(lab)]);
    while let Some(dir) = dirs.pop() {
        let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
        inside.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
        let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
        dirs.extend(
            entries.filter(|it| it.file_type().is_ok_and(|it| it.is_dir())).map(|it| it.path()),
        );
    }
    let mut known = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(number) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let Ok(text) = fs::read(entry.path().join("stat")) else { continue };
        let Ok(process) = pid::stat(&text) else { continue };
        if process.kernel_thread || inside.contains(&number) {
            let ticks = process.cpu_ticks.saturating_add(process.reaped_ticks);
            known.insert(number, ticks_ns(ticks, user_hz()));
        }
    }
    known
}

/// What readings say about a window. `None` without a reading before it and one after it.
fn machine(readings: &[Reading], window: Window) -> Option<Machine> {
    let before = readings.iter().rfind(|reading| reading.at_ns <= window.from_ns)?;
    let after = readings.iter().find(|reading| reading.at_ns >= window.to_ns)?;
    // The counter is in whole ticks, so its difference may be too small by one.
    let tick_ns = ticks_ns(1, user_hz());
    let stolen = pairs(before, after).map(|(from, to)| (to.cpu, grown(from, to, |it| it.steal_ns)));
    let stolen_ns = stolen.map(|(cpu, ns)| (cpu, ns + tick_ns)).collect();
    let sum = |of: fn(&CpuTimes) -> u64| -> u64 {
        pairs(before, after).map(|(from, to)| grown(from, to, of)).sum()
    };
    let stolen_sum = sum(|it| it.steal_ns);
    let wanted = stolen_sum + sum(|it| it.user_ns + it.system_ns + it.irq_ns);
    Some(Machine {
        steal_share: stolen_sum as f64 / wanted.max(1) as f64,
        outside_share: outside_share(readings, window),
        late_p99_ns: None,
        stolen_ns,
    })
}

fn pairs<'a>(
    before: &'a Reading,
    after: &'a Reading,
) -> impl Iterator<Item = (&'a CpuTimes, &'a CpuTimes)> {
    after
        .cpus
        .iter()
        .filter_map(|to| Some((before.cpus.iter().find(|from| from.cpu == to.cpu)?, to)))
}

fn grown(from: &CpuTimes, to: &CpuTimes, of: impl Fn(&CpuTimes) -> u64) -> u64 {
    of(to).saturating_sub(of(from))
}

/// Share of all CPUs' time, from the first to the last reading of processes within the window, that was used by
/// neither the lab's processes nor kernel threads.
fn outside_share(readings: &[Reading], window: Window) -> f64 {
    let inside: Vec<_> = readings
        .iter()
        .filter(|it| (window.from_ns..=window.to_ns).contains(&it.at_ns) && it.known_ns.is_some())
        .collect();
    let (Some(first), Some(last)) = (inside.first(), inside.last()) else { return 0.0 };
    let busy: u64 =
        pairs(first, last).map(|(from, to)| grown(from, to, |it| it.user_ns + it.system_ns)).sum();
    // Processes come and go, so each pair of readings is compared separately.
    let known: u64 = inside
        .windows(2)
        .filter_map(|two| two[0].known_ns.as_ref().zip(two[1].known_ns.as_ref()))
        .flat_map(|(from, to)| {
            to.iter().map(|(pid, ns)| ns.saturating_sub(from.get(pid).copied().unwrap_or(0)))
        })
        .sum();
    let all = last.at_ns.saturating_sub(first.at_ns) * last.cpus.len() as u64;
    busy.saturating_sub(known) as f64 / all.max(1) as f64
}

fn p99_ns(late: &[(u64, u64)], window: Window) -> u64 {
    let inside = late.iter().filter(|(due_ns, _)| (window.from_ns..window.to_ns).contains(due_ns));
    let mut late_ns: Vec<u64> = inside.map(|(_, late_ns)| *late_ns).collect();
    late_ns.sort_unstable();
    percentile(&late_ns, 99)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const WINDOW: Window = Window { from_ns: 2 * S, to_ns: 6 * S };

    /// The reading at second `s`. In each second, CPU 0 runs for 0.5 s and loses `steal_ms`, CPU 1 is idle, and
    /// process 7 of the lab uses `lab_ms`.
    fn reading(s: u64, steal_ms: u64, lab_ms: u64) -> Reading {
        let ms = 1_000_000;
        let busy = CpuTimes {
            cpu: 0,
            user_ns: s * 400 * ms,
            system_ns: s * 100 * ms,
            steal_ns: s * steal_ms * ms,
            ..CpuTimes::default()
        };
        Reading {
            at_ns: s * S,
            cpus: vec![busy, CpuTimes { cpu: 1, ..CpuTimes::default() }],
            known_ns: Some(BTreeMap::from([(7, s * lab_ms * ms)])),
        }
    }

    fn readings(steal_ms: u64, lab_ms: u64) -> Vec<Reading> {
        (1..=7).map(|s| reading(s, steal_ms, lab_ms)).collect()
    }

    #[test]
    fn shares_are_those_of_the_window() {
        let quiet = machine(&readings(0, 500), WINDOW).unwrap();
        assert_eq!((quiet.steal_share, quiet.outside_share), (0.0, 0.0));
        let tick_ns = ticks_ns(1, user_hz());
        assert_eq!(quiet.stolen_ns, BTreeMap::from([(0, tick_ns), (1, tick_ns)]), "the error");
        assert_eq!(quiet.unfit(), Vec::<String>::new());

        let noisy = machine(&readings(500, 100), WINDOW).unwrap();
        assert_eq!(noisy.steal_share, 0.5);
        // 0.4 s of each second of two CPUs.
        assert!((noisy.outside_share - 0.2).abs() < 1e-9, "{noisy:?}");
        assert_eq!(noisy.stolen_ns[&0], 4 * 500_000_000 + tick_ns);
        assert_eq!(noisy.unfit().len(), 2);
    }

    #[test]
    fn a_process_that_ends_takes_nothing_back() {
        let mut some = readings(0, 500);
        for late in &mut some[4..] {
            late.known_ns = Some(BTreeMap::new());
        }
        // Seconds 2 to 4 were the lab's, seconds 4 to 6 belong to no known process.
        let share = machine(&some, WINDOW).unwrap().outside_share;
        assert!((share - 0.125).abs() < 1e-9, "{share}");
    }

    #[test]
    fn without_readings_around_the_window_nothing_is_said() {
        assert_eq!(machine(&[], WINDOW), None);
        assert_eq!(machine(&readings(0, 0)[..4], WINDOW), None, "none after it");
        assert_eq!(machine(&readings(0, 0)[2..], WINDOW), None, "none before it");
    }

    #[test]
    fn timers_outside_of_the_window_do_not_count() {
        let mut late: Vec<_> = (0..100).map(|i| (2 * S + i, i)).collect();
        late.push((6 * S, 10 * S));
        assert_eq!(p99_ns(&late, WINDOW), 98);
    }

    #[test]
    fn what_children_of_the_lab_used_is_the_labs() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("cgroup.procs"), std::process::id().to_string()).unwrap();
        let own_ns = || known_ns(dir.path())[&std::process::id()];
        let before_ns = own_ns();
        let spins = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; times";
        let output = std::process::Command::new("sh").args(["-c", spins]).output().unwrap();
        // `times` prints the shell's own user time first, as `0m0.12s`.
        let text = String::from_utf8(output.stdout).unwrap();
        let seconds = text.split_once('m').and_then(|(_, rest)| rest.split_once('s')).unwrap().0;
        let child_ns = seconds.parse::<f64>().unwrap() * 1e9;
        assert!(child_ns > 0.0, "{text}");
        assert!((own_ns() - before_ns) as f64 >= child_ns * 0.9 - 1e7, "{text}");
    }

    #[test]
    fn this_machine_can_be_measured() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("cgroup.procs"), std::process::id().to_string()).unwrap();
        let meter = Meter::start(dir.path());
        // Leaves time for a reading before the window.
        sleep_until(monotonic_ns() + 2 * READ_EVERY_NS);
        let from_ns = monotonic_ns();
        sleep_until(from_ns + 12 * READ_EVERY_NS);
        let machine = meter.finish(Window { from_ns, to_ns: monotonic_ns() }).unwrap();
        assert!((0.0..=1.0).contains(&machine.steal_share), "{machine:?}");
        assert!((0.0..=1.01).contains(&machine.outside_share), "{machine:?}");
        assert!(!machine.stolen_ns.is_empty());
    }
}
