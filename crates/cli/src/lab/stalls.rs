// SPDX-License-Identifier: Apache-2.0 OR MIT
//! For what the threads of a victim sleep, by their own clocks: they know which of their calls is for what.
//!
//! Of a call's time, what the thread ran and what it waited for a CPU is no sleep. The kernel tells both in the thread's
//! own files, which share no code with what is held against this.

use super::victim::{Window, now_ns};
use anyhow::Result;
use rustix::thread::ClockId;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// For what a thread sleeps in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    /// For others: an answer, room, a lock, a connection, work that is late.
    Others,
    /// For its own timer.
    Timer,
    /// For work that there is not: who hands it out sleeps on its own timer, or who wants it is slow to take it.
    Idle,
    /// For a disk, or for others that wait for one.
    Disk,
}

/// How long the threads of a victim slept in a window of time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Slept {
    pub(crate) others_ns: u64,
    pub(crate) timer_ns: u64,
    pub(crate) idle_ns: u64,
    pub(crate) disk_ns: u64,
    /// On its own timer, of a thread that serves no requests itself. It is no part of `timer_ns`.
    pub(crate) beside_ns: u64,
}

impl Slept {
    /// With what a thread slept that serves no requests itself.
    pub(crate) fn beside(self, other: Self) -> Self {
        Self {
            others_ns: self.others_ns + other.others_ns,
            timer_ns: self.timer_ns,
            idle_ns: self.idle_ns + other.idle_ns,
            disk_ns: self.disk_ns + other.disk_ns,
            beside_ns: self.beside_ns + other.timer_ns,
        }
    }
}

/// The sleeps of a thread.
pub(crate) struct Stalls {
    /// `None` = it is not measured.
    schedstat: Option<File>,
    /// For what, when the call began and ended, and how much of that it slept.
    calls: Vec<(For, [u64; 2], u64)>,
}

impl Stalls {
    /// Those of the thread that calls.
    pub(crate) fn of_this_thread() -> Result<Self> {
        Ok(Self { schedstat: Some(File::open("/proc/thread-self/schedstat")?), calls: Vec::new() })
    }

    /// None: of a thread that measuring would make late itself.
    pub(crate) fn unmeasured() -> Self {
        Self { schedstat: None, calls: Vec::new() }
    }

    /// Does what may sleep.
    pub(crate) fn during<T>(&mut self, what: For, call: impl FnOnce() -> T) -> T {
        let Some(schedstat) = &self.schedstat else { return call() };
        let (from_ns, before_ns) = (now_ns(ClockId::Monotonic), awake_ns(schedstat));
        let result = call();
        let (to_ns, then_ns) = (now_ns(ClockId::Monotonic), awake_ns(schedstat));
        let slept_ns = (to_ns - from_ns).saturating_sub(then_ns.saturating_sub(before_ns));
        self.calls.push((what, [from_ns, to_ns], slept_ns));
        result
    }

    /// The calls, when the thread is over.
    pub(crate) fn calls(self) -> Calls {
        Calls(self.calls)
    }
}

/// How long a thread has run, and waited for a CPU: the first two numbers of the file.
fn awake_ns(schedstat: &File) -> u64 {
    let mut text = [0; 64];
    let length = schedstat.read_at(&mut text, 0).unwrap_or(0);
    let text = std::str::from_utf8(&text[..length]).unwrap_or_default();
    text.split_ascii_whitespace().take(2).filter_map(|it| it.parse::<u64>().ok()).sum()
}

/// The calls of a thread, or of several.
#[derive(Debug, Default)]
pub(crate) struct Calls(Vec<(For, [u64; 2], u64)>);

impl Calls {
    pub(crate) fn extend(&mut self, more: Self) {
        self.0.extend(more.0);
    }

    /// What of them is within a window; of a call that is so in part, that part.
    pub(crate) fn within(&self, window: Window) -> Slept {
        let mut all = Slept::default();
        for &(what, [from_ns, to_ns], slept_ns) in &self.0 {
            let inside_ns = to_ns.min(window.to_ns).saturating_sub(from_ns.max(window.from_ns));
            let part = inside_ns as f64 / (to_ns - from_ns).max(1) as f64;
            let ns = (slept_ns as f64 * part) as u64;
            *match what {
                For::Others => &mut all.others_ns,
                For::Timer => &mut all.timer_ns,
                For::Idle => &mut all.idle_ns,
                For::Disk => &mut all.disk_ns,
            } += ns;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_a_call_slept_is_told_and_what_it_ran_is_not() {
        let begin_ns = now_ns(ClockId::Monotonic);
        let mut stalls = Stalls::of_this_thread().unwrap();
        stalls.during(For::Timer, || std::thread::sleep(Duration::from_millis(60)));
        stalls.during(For::Others, || {
            let until = now_ns(ClockId::ThreadCPUTime) + 30_000_000;
            while now_ns(ClockId::ThreadCPUTime) < until {}
        });
        let window = Window { from_ns: begin_ns, to_ns: now_ns(ClockId::Monotonic) };
        let slept = stalls.calls().within(window);
        // The kernel adds to its sums at ticks and switches.
        assert!(slept.timer_ns >= 50_000_000, "{slept:?}");
        assert!(slept.others_ns < 15_000_000, "{slept:?}");
    }

    #[test]
    fn of_a_call_at_the_edge_the_part_within_counts() {
        let calls = Calls(vec![(For::Others, [0, 100], 80), (For::Timer, [150, 250], 100)]);
        let slept = calls.within(Window { from_ns: 50, to_ns: 200 });
        assert_eq!(slept, Slept { others_ns: 40, timer_ns: 50, ..Slept::default() });
    }
}
