// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs tests whose measurements can be disturbed by stolen CPU time or other load. If the machine was fit, a failure
//! is a failure. If it was not, the test is tried again; if no try succeeds, it is inconclusive. The limits are those
//! of the lab (`src/lab/fitness.rs`).

use deburr_core::procfs::pid;
use deburr_core::procfs::stat;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

const TRIES: u32 = 3;
const STEAL_SHARE: f64 = 0.05;
const OUTSIDE_SHARE: f64 = 0.15;

/// Runs a test, and again if it fails while the machine is unfit, up to three times in all.
pub(crate) fn tried(tier: &str, test: &str, run: impl Fn()) {
    tried_times(TRIES, tier, test, run);
}

/// Like [`tried`] with another number of tries, for a test that makes several tries by itself.
///
/// Beside other tests, whose load is no reason to excuse a failure, it is run once: `scripts/test` runs what fails there by
/// itself.
pub(crate) fn tried_times(tries: u32, tier: &str, test: &str, run: impl Fn()) {
    if std::env::var("DEBURR_AT_ONCE").is_ok_and(|at_once| at_once != "1") {
        return run();
    }
    let mut reason = String::new();
    for _ in 0..tries {
        let before = Fitness::now();
        let Err(panic) = catch_unwind(AssertUnwindSafe(&run)) else { return };
        let unfit = before.unfit(&Fitness::now());
        if unfit.is_empty() {
            resume_unwind(panic);
        }
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let said = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked");
        let said: String = said.chars().take(300).collect();
        reason = format!("{tries} tries; {}; not so: {said}", unfit.join(", "));
    }
    super::inconclusive(tier, test, &reason);
}

/// CPU time of the machine since boot, in seconds.
pub(crate) struct Fitness {
    at: Instant,
    cpus: f64,
    busy: f64,
    stolen: f64,
    /// CPU time of this process, of its children that have ended, and of kernel threads, which also work for it.
    known: f64,
}

impl Fitness {
    pub(crate) fn now() -> Self {
        let user_hz = rustix::param::clock_ticks_per_second();
        let text = std::fs::read("/proc/stat").expect("the counters of CPUs");
        let cpus = stat::parse(&text, user_hz).expect("the counters of CPUs");
        let sum = |of: fn(&stat::CpuTimes) -> u64| cpus.iter().map(of).sum::<u64>() as f64 / 1e9;
        let own = std::fs::read_to_string("/proc/self/stat").expect("its own counters");
        let own = own.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
        // utime, stime, cutime and cstime are fields 14 to 17; the first one after the comm is field 3.
        let own: u64 = own.skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum();
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let kernel = processes
            .filter_map(|entry| pid::stat(&std::fs::read(entry.path().join("stat")).ok()?).ok())
            .filter(|process| process.kernel_thread)
            .map(|process| process.cpu_ticks);
        let known = (own + kernel.sum::<u64>()) as f64 / user_hz as f64;
        let busy = sum(|it| it.user_ns + it.system_ns);
        Self {
            at: Instant::now(),
            cpus: cpus.len() as f64,
            busy,
            stolen: sum(|it| it.steal_ns),
            known,
        }
    }

    /// Why the machine was not fit between this reading and `after`; empty if it was fit.
    pub(crate) fn unfit(&self, after: &Self) -> Vec<String> {
        let wall = after.at.duration_since(self.at).as_secs_f64().max(0.01) * after.cpus;
        let (busy, stolen) = (after.busy - self.busy, after.stolen - self.stolen);
        let steal = stolen / (busy + stolen).max(1e-9);
        let outside = (busy - (after.known - self.known)).max(0.0) / wall;
        let mut reasons = Vec::new();
        if steal > STEAL_SHARE {
            reasons.push(format!(
                "the hypervisor took {:.0} % of what the CPUs wanted",
                steal * 100.0
            ));
        }
        if outside > OUTSIDE_SHARE {
            reasons.push(format!("others took {:.0} % of all CPUs", outside * 100.0));
        }
        reasons
    }
}

#[test]
fn a_failure_on_a_fit_machine_is_one() {
    let at = Instant::now();
    let counters = |seconds: u64, busy: f64, stolen: f64, known: f64| {
        let at = at + std::time::Duration::from_secs(seconds);
        Fitness { at, cpus: 2.0, busy, stolen, known }
    };
    let before = counters(0, 0.0, 0.0, 0.0);
    assert!(before.unfit(&counters(10, 10.0, 0.1, 8.0)).is_empty());
    assert_eq!(before.unfit(&counters(10, 10.0, 1.0, 9.0)).len(), 1, "stolen");
    assert_eq!(before.unfit(&counters(10, 10.0, 0.1, 5.0)).len(), 1, "others");
}
