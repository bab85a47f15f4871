// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clock of one CPU that runs a program at each beat: an event of perf, whose period changes at random.
//!
//! A program that does the same things in the same order takes turns with a clock that beats evenly: measured, a function
//! with 15 % of the CPU time had 22 % of the samples of 4.5 s, again and again.

use libbpf_rs::libbpf_sys as sys;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

/// Flag of `perf_event_open`, `PERF_FLAG_FD_CLOEXEC` in `include/uapi/linux/perf_event.h`.
const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;
/// `PERF_EVENT_IOC_PERIOD`, `_IOW('$', 4, __u64)`, in the same file.
const SET_PERIOD: libc::Ioctl = 0x4008_2404;

/// Beats in a second of CPU time, on average.
const RATE: u64 = 99;
/// The rates that are drawn, in beats of 1000 s: evenly from four fifths of the average to six fifths. With a change, the
/// time since the last beat is forgotten, which is half a beat on average: they are that much faster.
const SLOWEST: u64 = (RATE * 1000 + 1000 / 2 * CHANGES) * 4 / 5;
const FASTEST: u64 = SLOWEST * 3 / 2;
/// Changes of the period in a second.
const CHANGES: u64 = 2;
/// One in so many calls of [`Clock::vary`], of which there are ten in a second, changes the period.
const ONE_IN: u64 = 10 / CHANGES;

/// CPU time between two beats, on average.
pub(super) const MEAN_PERIOD_NS: u64 = 1_000_000_000 / RATE;

/// A clock, as long as its program is attached.
pub(super) struct Clock {
    event: OwnedFd,
}

impl Clock {
    /// A clock that beats on that CPU, except while it is idle.
    ///
    /// # Errors
    /// The error of the kernel.
    pub(super) fn of(cpu: u32, random: &mut Random) -> Result<Self, String> {
        let mut event = sys::perf_event_attr {
            type_: sys::PERF_TYPE_SOFTWARE,
            size: size_of::<sys::perf_event_attr>() as u32,
            config: sys::PERF_COUNT_SW_CPU_CLOCK.into(),
            ..sys::perf_event_attr::default()
        };
        event.__bindgen_anon_1.sample_period = random.period_ns();
        event.set_exclude_idle(1);
        // SAFETY: the structure lives until the call returns, and says how long it is.
        let opened = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const event,
                -1,
                cpu.cast_signed(),
                -1,
                CLOSE_ON_EXEC,
            )
        };
        let failed = || {
            let error = io::Error::last_os_error();
            format!("open a clock of CPU {cpu} (perf_event_open): {error}")
        };
        let descriptor = i32::try_from(opened).ok().filter(|it| *it >= 0).ok_or_else(failed)?;
        // SAFETY: the descriptor is new, and nothing else owns it.
        Ok(Self { event: unsafe { OwnedFd::from_raw_fd(descriptor) } })
    }

    /// Another descriptor of its event.
    pub(super) fn event(&self) -> Result<OwnedFd, String> {
        self.event.try_clone().map_err(|error| format!("clock of a CPU: {error}"))
    }

    /// Changes the period, one in [`ONE_IN`] times. The time since the last beat is forgotten.
    pub(super) fn vary(&self, random: &mut Random) {
        if random.below(ONE_IN) > 0 {
            return;
        }
        let period_ns = random.period_ns();
        // SAFETY: the kernel reads a number, which lives until the call returns. If the CPU is offline by now, the old
        // period does as well.
        unsafe { libc::ioctl(self.event.as_raw_fd(), SET_PERIOD, &raw const period_ns) };
    }
}

/// Random numbers that nobody needs to be unable to guess: xorshift64.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 16) % end
    }

    fn period_ns(&mut self) -> u64 {
        1_000_000_000_000 / (SLOWEST + self.below(FASTEST - SLOWEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_even_around_their_mean() {
        let mut random = Random::new(7);
        let rates: Vec<f64> = (0..10_000).map(|_| 1e9 / random.period_ns() as f64).collect();
        let mean = rates.iter().sum::<f64>() / 10_000.0;
        assert!((mean - 100.0).abs() < 1.0, "{mean}");
        let slow = rates.iter().filter(|rate| **rate < 90.0).count();
        assert!((2300..2700).contains(&slow), "{slow} of 10000 in the slowest quarter");
        assert!(rates.iter().all(|rate| (79.0..121.0).contains(rate)));
    }
}
