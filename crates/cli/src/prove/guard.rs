// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether the whole host suffers from a change: looks at its pressure and at how many threads want to run, several times a
//! second, and calls the experiment off in the middle of a block.

use deburr_core::procfs::pressure;
use deburr_core::text::units;
use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Distance of looks.
const BEAT: Duration = Duration::from_millis(250);
/// What is compared are means over this time: shorter peaks are usual.
pub(super) const MEAN_OF: Duration = Duration::from_secs(3);
/// So much more of the time somebody is stalled than at any time without the change.
const MORE_PRESSURE: f64 = 0.5;
/// So many times as many threads want to run or wait for a disk as at most without the change, ...
const TIMES_THE_LOAD: f64 = 2.0;
/// ... and so many more, by CPU.
const MORE_LOAD: f64 = 4.0;

/// Names of what is compared, in the order of [`Look`].
const PRESSURES: [(&str, &str); 3] = [
    ("cpu", "some thread waits for a CPU"),
    ("io", "all threads that could work wait for disks"),
    ("memory", "all threads that could work wait for memory"),
];

/// The host at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Look {
    /// Time that somebody was stalled so far, by resource, in ns; `None` = not known here.
    stalled_ns: [Option<u64>; 3],
    /// Threads that run, want to, or wait for a disk.
    load: f64,
}

/// Means over some seconds: shares of the time by resource, and the number of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Mean {
    stalled: [Option<f64>; 3],
    load: f64,
}

impl Look {
    fn of(proc: &Path) -> Self {
        let read = |name: &str| fs::read(proc.join(name)).unwrap_or_default();
        let pressure = |name| pressure::parse(&read(&format!("pressure/{name}"))).ok();
        let stat = read("stat");
        let count = |field: &str| {
            let text = std::str::from_utf8(&stat).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix(field));
            line.and_then(|count| count.trim().parse::<f64>().ok()).unwrap_or(0.0)
        };
        let full = |name| pressure(name).and_then(|it| it.full_ns);
        Self {
            stalled_ns: [pressure("cpu").map(|it| it.some_ns), full("io"), full("memory")],
            load: count("procs_running ") + count("procs_blocked "),
        }
    }
}

/// The latest looks.
#[derive(Debug, Default)]
struct Looks(VecDeque<(Duration, Look)>);

impl Looks {
    /// Adds a look; returns the mean over [`MEAN_OF`] once so much time was looked at.
    fn add(&mut self, at: Duration, look: Look) -> Option<Mean> {
        self.0.push_back((at, look));
        while self.0.get(1).is_some_and(|&(second, _)| at - second >= MEAN_OF) {
            self.0.pop_front();
        }
        let &(from, first) = self.0.front()?;
        let length = at - from;
        if length < MEAN_OF {
            return None;
        }
        let mut stalled = [None; 3];
        for (share, (first, last)) in
            stalled.iter_mut().zip(first.stalled_ns.iter().zip(look.stalled_ns))
        {
            *share = first
                .zip(last)
                .map(|(first, last)| last.saturating_sub(first) as f64 / length.as_nanos() as f64);
        }
        let loads: f64 = self.0.iter().map(|(_, look)| look.load).sum();
        Some(Mean { stalled, load: loads / self.0.len() as f64 })
    }
}

/// The worst of both, number by number.
fn worst(a: Mean, b: Mean) -> Mean {
    let mut stalled = a.stalled;
    for (share, other) in stalled.iter_mut().zip(b.stalled) {
        if other > *share {
            *share = other;
        }
    }
    Mean { stalled, load: a.load.max(b.load) }
}

/// What is far worse than it ever was without the change, as a sentence.
fn harm(usual: &Mean, now: &Mean, cpus: f64) -> Option<String> {
    for ((_, what), (usual, now)) in PRESSURES.iter().zip(usual.stalled.iter().zip(now.stalled)) {
        let (Some(usual), Some(now)) = (usual, now) else { continue };
        if now > usual + MORE_PRESSURE {
            let shares = [now, *usual].map(units::share);
            return Some(format!(
                "the change harms the host: {what} {} of the time, without it {} at most",
                shares[0], shares[1]
            ));
        }
    }
    let limit = (usual.load * TIMES_THE_LOAD).max(usual.load + MORE_LOAD * cpus);
    (now.load > limit).then(|| {
        format!(
            "the change harms the host: {:.0} threads want to run or wait for disks, without it {:.0} at most",
            now.load, usual.load
        )
    })
}

/// What both threads know.
#[derive(Debug, Default)]
struct Shared {
    /// Begins anew at each block.
    looks: Looks,
    /// The host is changed.
    changed: bool,
    /// The worst without the change.
    usual: Option<Mean>,
    /// Why it was called off.
    why: Option<String>,
}

/// Looks at the host until it is dropped.
#[derive(Debug)]
pub(super) struct Guard {
    shared: Arc<Mutex<Shared>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Guard {
    /// Begins to look; `call_off` is set when the host suffers.
    pub(super) fn start(proc: PathBuf, call_off: Arc<AtomicBool>) -> Self {
        let (shared, over) = (Arc::<Mutex<Shared>>::default(), Arc::<AtomicBool>::default());
        let cpus = thread::available_parallelism().map_or(1.0, |cpus| cpus.get() as f64);
        let (theirs, ended) = (Arc::clone(&shared), Arc::clone(&over));
        let thread = thread::spawn(move || {
            let begin = Instant::now();
            while !ended.load(Ordering::Relaxed) {
                let look = Look::of(&proc);
                let mut shared = theirs.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(why) = shared.look(begin.elapsed(), look, cpus) {
                    shared.why.get_or_insert(why);
                    call_off.store(true, Ordering::Relaxed);
                }
                drop(shared);
                thread::sleep(BEAT);
            }
        });
        Self { shared, over, thread: Some(thread) }
    }

    /// From now on the host is changed, or is as it was.
    pub(super) fn block(&self, changed: bool) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.changed = changed;
        shared.looks = Looks::default();
    }

    /// Whether there is anything to compare the host with when it is changed.
    pub(super) fn knows_the_usual(&self) -> bool {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).usual.is_some()
    }

    /// Why the experiment was called off, if it was.
    pub(super) fn why(&self) -> Option<String> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).why.clone()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its only panic would be one of the standard library.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn look(&mut self, at: Duration, look: Look, cpus: f64) -> Option<String> {
        let mean = self.looks.add(at, look)?;
        if self.changed {
            return harm(self.usual.as_ref()?, &mean, cpus);
        }
        self.usual = Some(self.usual.map_or(mean, |usual| worst(usual, mean)));
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir, write};

    /// Looks for ten seconds at a host with that pressure on CPUs and that load.
    fn looks(shared: &mut Shared, from: u64, share: f64, load: f64) -> Option<String> {
        shared.looks = Looks::default();
        let look = |at: u64| Look {
            stalled_ns: [Some((at as f64 * share * 1e9) as u64), Some(0), None],
            load,
        };
        (from..from + 10).find_map(|at| shared.look(Duration::from_secs(at), look(at), 2.0))
    }

    #[test]
    fn only_what_is_far_worse_with_the_change_is_harm() {
        let mut shared = Shared { changed: true, ..Shared::default() };
        assert_eq!(looks(&mut shared, 0, 1.0, 99.0), None, "nothing to compare with");
        shared.changed = false;
        assert_eq!(looks(&mut shared, 10, 0.3, 4.0), None);
        assert_eq!(looks(&mut shared, 20, 0.1, 5.0), None);
        shared.changed = true;
        assert_eq!(looks(&mut shared, 30, 0.75, 12.0), None);
        let why = looks(&mut shared, 40, 0.85, 5.0).unwrap();
        assert_eq!(
            why,
            "the change harms the host: some thread waits for a CPU 85 % of the time, without it 30 % at most"
        );
        let why = looks(&mut shared, 50, 0.3, 14.0).unwrap();
        assert_eq!(
            why,
            "the change harms the host: 14 threads want to run or wait for disks, without it 5 at most"
        );
    }

    #[test]
    fn peaks_are_no_harm() {
        let mut shared = Shared::default();
        assert_eq!(looks(&mut shared, 0, 0.0, 1.0), None);
        shared.changed = true;
        shared.looks = Looks::default();
        let mut stalled_ns = 0;
        for quarter in 0..60 {
            // One of every eight quarters of a second is a peak.
            let peak = quarter % 8 == 0;
            stalled_ns += if peak { 250_000_000 } else { 0 };
            let look = Look {
                stalled_ns: [Some(stalled_ns), None, None],
                load: if peak { 30.0 } else { 1.0 },
            };
            let at = Duration::from_millis(10_000 + quarter * 250);
            assert_eq!(shared.look(at, look, 2.0), None);
        }
    }

    #[test]
    fn the_kernels_text_is_read_and_without_it_nothing_is_known() {
        let scratch = tempfile::tempdir().unwrap();
        let nothing = Look { stalled_ns: [None; 3], load: 0.0 };
        assert_eq!(Look::of(scratch.path()), nothing);
        create_dir(scratch.path().join("pressure")).unwrap();
        let text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=3\n";
        for (name, _) in PRESSURES {
            write(scratch.path().join("pressure").join(name), text).unwrap();
        }
        write(scratch.path().join("stat"), "cpu 1 2\nprocs_running 5\nprocs_blocked 2\n").unwrap();
        let look = Look { stalled_ns: [Some(7_000), Some(3_000), Some(3_000)], load: 7.0 };
        assert_eq!(Look::of(scratch.path()), look);
    }
}
