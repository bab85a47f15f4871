// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process that has precise timers expire on the CPU on which it runs, and sleeps meanwhile: nobody reads them. Such a timer
//! expires in an interrupt of the CPU's own timer, whoever runs there.

use super::victim::{now_ns, sleep_until};
use anyhow::{Context as _, Result};
use rustix::thread::ClockId;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// Timers that are set at once.
const TIMERS: u32 = 500;
/// Time for setting them: where an interrupt takes long, as in some virtual machines, whoever is interrupted meanwhile is never done.
const LEAD_NS: u64 = 3_000_000;
const ZERO: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Arguments of the hidden subcommand.
#[derive(Debug, clap::Args)]
pub(crate) struct TimersArgs {
    /// Time from the end of one timer to that of the next
    #[arg(long)]
    gap_us: u64,
}

impl TimersArgs {
    /// The words of a command line that has such a process work.
    pub(super) fn words(gap_us: u64) -> Vec<String> {
        vec!["timers".into(), format!("--gap-us={gap_us}")]
    }
}

/// Sets timers that expire one after the other, sleeps until the last has expired, and sets them again, for ever.
pub(crate) fn set_for_ever(args: &TimersArgs) -> Result<()> {
    let new = |_| timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC);
    let timers = (0..TIMERS).map(new).collect::<Result<Vec<_>, _>>();
    let timers = timers.context("cannot make timers")?;
    println!("ready");
    let gap_ns = args.gap_us * 1000;
    loop {
        let mut at_ns = now_ns(ClockId::Monotonic) + LEAD_NS;
        // In their order: only the first of all timers of a CPU has to be given to its clock.
        for timer in &timers {
            at_ns += gap_ns;
            let it_value = Timespec {
                tv_sec: i64::try_from(at_ns / 1_000_000_000)?,
                tv_nsec: i64::try_from(at_ns % 1_000_000_000)?,
            };
            let when = Itimerspec { it_interval: ZERO, it_value };
            timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &when)?;
        }
        sleep_until(at_ns);
    }
}
