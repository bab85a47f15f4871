// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A timer that is precise enough to pace requests. The runtime's own timers have a resolution of 1 ms, which at
//! 1000 requests a second is the whole interval between two requests.

use crate::clock::SECOND_NS;
use rustix::fd::OwnedFd;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::io;
use tokio::io::unix::AsyncFd;

/// A `timerfd` on `CLOCK_MONOTONIC`.
pub(super) struct Timer(AsyncFd<OwnedFd>);

impl Timer {
    #[expect(
        deprecated,
        reason = "unsound for types that may give another descriptor each time, which `OwnedFd` does not; its \
                  successor is an `unsafe fn`, which this crate may not call"
    )]
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self(AsyncFd::new(timer)?))
    }

    /// Sleeps until that time of `CLOCK_MONOTONIC`, in nanoseconds.
    pub(super) async fn sleep_until(&self, mono_ns: u64) -> io::Result<()> {
        let once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let at = Timespec {
            tv_sec: (mono_ns / SECOND_NS).cast_signed(),
            tv_nsec: (mono_ns % SECOND_NS).cast_signed(),
        };
        let spec = Itimerspec { it_interval: once, it_value: at };
        timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::ABSTIME, &spec)?;
        loop {
            let mut ready = self.0.readable().await?;
            let mut expirations = [0; 8];
            let read =
                ready.try_io(|timer| Ok(rustix::io::read(timer.get_ref(), &mut expirations)?));
            match read {
                Ok(result) => return result.map(drop),
                Err(_not_yet) => {}
            }
        }
    }
}
