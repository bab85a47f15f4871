// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clocks of a session: the schedule of its beats, and detection of suspends and of steps of the wall clock.

use deburr_core::recording::EventKind;
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Length of a bin, and the interval between two beats: 100 ms.
pub(crate) const BIN_NS: u64 = 100_000_000;

/// Nanoseconds in a second.
pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// A beat that is later than this is recorded as [`EventKind::LateTick`].
const LATE_NS: u64 = SECOND_NS;

/// Clocks that drift apart by less than this did not jump. NTP slews all of them alike, and steps the wall clock only
/// for larger offsets.
const JUMP_NS: u64 = 100_000_000;

/// `CLOCK_MONOTONIC`, in nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    read(ClockId::Monotonic).cast_unsigned()
}

/// CPU time of this process, in nanoseconds.
pub(crate) fn cpu_time_ns() -> u64 {
    read(ClockId::ProcessCPUTime).cast_unsigned()
}

/// CPU time of the thread that calls, in nanoseconds.
pub(crate) fn thread_cpu_time_ns() -> u64 {
    read(ClockId::ThreadCPUTime).cast_unsigned()
}

fn read(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    // Nanoseconds in an `i64` last until the year 2262.
    time.tv_sec.saturating_mul(SECOND_NS.cast_signed()).saturating_add(time.tv_nsec)
}

/// Sleeps until `CLOCK_MONOTONIC` reaches `mono_ns`, or until a signal arrives.
pub(crate) fn sleep_until(mono_ns: u64) {
    let request = Timespec {
        tv_sec: (mono_ns / SECOND_NS).cast_signed(),
        tv_nsec: (mono_ns % SECOND_NS).cast_signed(),
    };
    // Interrupted or not, the caller reads the clock and checks for signals again.
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &request);
}

/// How long the machine was suspended since it booted, nanoseconds; up to some microseconds more.
pub(crate) fn suspended_ns() -> u64 {
    let mono_ns = monotonic_ns();
    read(ClockId::Boottime).cast_unsigned().saturating_sub(mono_ns)
}

/// Readings of the three clocks, taken one right after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    /// `CLOCK_MONOTONIC`: stands still during suspend, is never set.
    pub(crate) mono_ns: u64,
    /// `CLOCK_BOOTTIME`: runs on during suspend, is never set.
    pub(crate) boot_ns: u64,
    /// `CLOCK_REALTIME`: runs on during suspend, can be set.
    pub(crate) real_ns: i64,
    /// Time that the three readings took. The clocks may seem to differ by this much without a jump.
    pub(crate) spread_ns: u64,
}

impl Clocks {
    pub(crate) fn now() -> Self {
        let mono_ns = monotonic_ns();
        let boot_ns = read(ClockId::Boottime).cast_unsigned();
        let real_ns = read(ClockId::Realtime);
        Self { mono_ns, boot_ns, real_ns, spread_ns: monotonic_ns().saturating_sub(mono_ns) }
    }
}

/// Time of the window: `CLOCK_MONOTONIC` since its start, and what the run queues' clock ran on while that one stood still.
///
/// While a machine falls asleep and wakes up, the kernel stops `CLOCK_MONOTONIC` first and starts it last. The clock by
/// which threads are accounted runs on for some tenths of a second then; that is time of the window, too. Otherwise the
/// ledger of a second would hold more than a second.
#[derive(Clone, Debug, Default)]
pub(crate) struct WindowClock {
    start_mono_ns: u64,
    /// From each of these times of `CLOCK_MONOTONIC` on, the window is longer by that much in all, nanoseconds.
    longer: Vec<(u64, u64)>,
}

impl WindowClock {
    /// A window that starts at this time of `CLOCK_MONOTONIC`.
    pub(crate) fn starting_at(start_mono_ns: u64) -> Self {
        Self { start_mono_ns, longer: Vec::new() }
    }

    /// `CLOCK_MONOTONIC` at the start of the window, nanoseconds.
    pub(crate) fn start_mono_ns(&self) -> u64 {
        self.start_mono_ns
    }

    /// Nanoseconds since the start of the window at this time of `CLOCK_MONOTONIC`; 0 before it.
    pub(crate) fn since_start_ns(&self, mono_ns: u64) -> u64 {
        let longer = self.longer.iter().rev().find(|(from_ns, _)| *from_ns <= mono_ns);
        let longer_ns = longer.map_or(0, |(_, by_ns)| *by_ns);
        mono_ns.saturating_sub(self.start_mono_ns).saturating_add(longer_ns)
    }

    /// Nanoseconds since the start of the window, now.
    pub(crate) fn now_ns(&self) -> u64 {
        self.since_start_ns(monotonic_ns())
    }

    /// `CLOCK_MONOTONIC` at this time of the window, if the machine is not suspended before.
    pub(crate) fn mono_ns(&self, since_start_ns: u64) -> u64 {
        let longer_ns = self.longer.last().map_or(0, |(_, by_ns)| *by_ns);
        self.start_mono_ns.saturating_add(since_start_ns.saturating_sub(longer_ns))
    }

    /// The run queues' clock was found to have run on by this much while `CLOCK_MONOTONIC` stood still, at `mono_ns`.
    pub(crate) fn ran_on(&mut self, mono_ns: u64, by_ns: u64) {
        let longer_ns = self.longer.last().map_or(0, |(_, by_ns)| *by_ns);
        self.longer.push((mono_ns, longer_ns.saturating_add(by_ns)));
    }
}

/// Detects that the machine was suspended or that the wall clock was set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JumpDetector {
    last: Clocks,
}

impl JumpDetector {
    pub(crate) fn new(start: Clocks) -> Self {
        Self { last: start }
    }

    /// Returns the events between the previous readings and these.
    pub(crate) fn observe(&mut self, now: Clocks) -> Vec<EventKind> {
        let mut events = Vec::new();
        let tolerance_ns = JUMP_NS + now.spread_ns + self.last.spread_ns;
        let mono_ns = now.mono_ns.saturating_sub(self.last.mono_ns);
        let boot_ns = now.boot_ns.saturating_sub(self.last.boot_ns);
        let real_ns = now.real_ns.saturating_sub(self.last.real_ns);
        let asleep_ns = boot_ns.saturating_sub(mono_ns);
        if asleep_ns > tolerance_ns {
            events.push(EventKind::Suspend { for_ns: asleep_ns });
        }
        let by_ns = real_ns.saturating_sub_unsigned(boot_ns);
        if by_ns.unsigned_abs() > tolerance_ns {
            events.push(EventKind::ClockJump { by_ns });
        }
        self.last = now;
        events
    }
}

/// By how much a beat at `t_ns` that was due at `due_ns` is late, if that is more than [`LATE_NS`].
pub(crate) fn late(t_ns: u64, due_ns: u64) -> Option<u64> {
    t_ns.checked_sub(due_ns).filter(|&late_ns| late_ns > LATE_NS)
}

/// Schedule of the beats: one every [`BIN_NS`], on a fixed grid. Beats that were missed are skipped, so that a busy
/// host sees no burst of them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Schedule {
    /// Grid line of the last beat.
    bin: u64,
}

/// A beat that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DueBeat {
    /// Whether it is the first beat of its second.
    pub(crate) second: bool,
    /// How late it is, if by more than [`LATE_NS`].
    pub(crate) late_ns: Option<u64>,
    /// Number of beats before it that were missed.
    pub(crate) missed: u64,
}

impl Schedule {
    /// Time at which the next beat is due, in nanoseconds since the start of the window.
    pub(crate) fn next_ns(&self) -> u64 {
        (self.bin + 1) * BIN_NS
    }

    /// The beat that is due at `t_ns` (nanoseconds since the start of the window); `None` if it is too early for one.
    pub(crate) fn wake(&mut self, t_ns: u64) -> Option<DueBeat> {
        let bin = t_ns / BIN_NS;
        if bin <= self.bin {
            return None;
        }
        let bins_per_second = SECOND_NS / BIN_NS;
        let late_ns = late(t_ns, self.next_ns());
        let missed = self.missed_at(t_ns);
        let second = bin / bins_per_second > self.bin / bins_per_second;
        self.bin = bin;
        Some(DueBeat { second, late_ns, missed })
    }

    /// Number of beats that are missed if the next one comes at `t_ns`.
    pub(crate) fn missed_at(&self, t_ns: u64) -> u64 {
        (t_ns / BIN_NS).saturating_sub(self.bin + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: Clocks =
        Clocks { mono_ns: 5_000, boot_ns: 9_000, real_ns: 1_700_000_000_000_000_000, spread_ns: 0 };

    fn after(mono_ns: u64, slept_ns: u64, set_by_ns: i64) -> Clocks {
        Clocks {
            mono_ns: START.mono_ns + mono_ns,
            boot_ns: START.boot_ns + mono_ns + slept_ns,
            real_ns: START.real_ns + (mono_ns + slept_ns).cast_signed() + set_by_ns,
            spread_ns: 0,
        }
    }

    #[test]
    fn a_window_is_longer_by_what_the_run_queues_clock_ran_on() {
        let mut window = WindowClock::starting_at(1_000);
        assert_eq!((window.since_start_ns(900), window.since_start_ns(1_500)), (0, 500));
        assert_eq!(window.mono_ns(500), 1_500);
        window.ran_on(1_600, 400);
        assert_eq!(window.since_start_ns(1_500), 500, "what was before keeps its time");
        assert_eq!(window.since_start_ns(1_600), 1_000);
        window.ran_on(1_700, 50);
        assert_eq!(window.since_start_ns(1_700), 1_150);
        assert_eq!(window.mono_ns(1_250), 1_800);
    }

    #[test]
    fn clocks_in_step_are_no_event() {
        let mut detector = JumpDetector::new(START);
        assert_eq!(detector.observe(after(SECOND_NS, 0, 0)), []);
        assert_eq!(detector.observe(after(2 * SECOND_NS, 0, 90_000_000)), [], "below the limit");
    }

    #[test]
    fn sleep_and_a_set_clock_are_told_apart() {
        let mut detector = JumpDetector::new(START);
        let hour_ns = 3600 * SECOND_NS;
        assert_eq!(
            detector.observe(after(SECOND_NS, hour_ns, 0)),
            [EventKind::Suspend { for_ns: hour_ns }]
        );
        let back_ns = -5 * SECOND_NS.cast_signed();
        assert_eq!(
            detector.observe(after(2 * SECOND_NS, hour_ns, back_ns)),
            [EventKind::ClockJump { by_ns: back_ns }]
        );
        assert_eq!(detector.observe(after(3 * SECOND_NS, hour_ns, back_ns)), [], "told once");
    }

    #[test]
    fn readings_that_took_long_are_no_jump() {
        let mut detector = JumpDetector::new(START);
        let torn = Clocks { spread_ns: SECOND_NS, ..after(SECOND_NS, 0, 800_000_000) };
        assert_eq!(detector.observe(torn), []);
    }

    #[test]
    fn what_is_early_or_a_little_late_is_not_late() {
        assert_eq!(late(SECOND_NS, 5 * SECOND_NS), None);
        assert_eq!(late(5 * SECOND_NS, 4 * SECOND_NS), None);
        assert_eq!(late(5 * SECOND_NS, 4 * SECOND_NS - 1), Some(SECOND_NS + 1));
    }

    #[test]
    fn a_late_beat_is_one_beat() {
        let mut schedule = Schedule::default();
        assert_eq!(schedule.wake(99_999_999), None);
        assert_eq!(
            schedule.wake(BIN_NS),
            Some(DueBeat { second: false, late_ns: None, missed: 0 })
        );
        assert_eq!(
            schedule.wake(3_250_000_000),
            Some(DueBeat { second: true, late_ns: Some(3_050_000_000), missed: 30 })
        );
        assert_eq!(schedule.next_ns(), 3_300_000_000, "back on the grid");
        assert_eq!(schedule.wake(3_299_999_999), None);
    }

    proptest! {
        #[test]
        fn one_beat_a_bin_and_one_second_a_second(mut steps in prop::collection::vec(0u64..3_000_000_000, 1..60)) {
            let mut schedule = Schedule::default();
            let mut t_ns = 0;
            let (mut seconds, mut beats) = (0, 0);
            steps.push(SECOND_NS);
            for step in steps {
                let before = t_ns;
                t_ns += step;
                let due = schedule.wake(t_ns);
                prop_assert_eq!(due.is_some(), t_ns / BIN_NS > before / BIN_NS);
                let crossed = t_ns / SECOND_NS > before / SECOND_NS;
                prop_assert_eq!(due.is_some_and(|due| due.second), crossed);
                seconds += u64::from(crossed);
                beats += due.map_or(0, |due| 1 + due.missed);
                prop_assert_eq!(beats, t_ns / BIN_NS, "each beat was, or is counted as missed");
                prop_assert!(schedule.next_ns() > t_ns);
            }
            prop_assert!(seconds >= 1);
        }

        #[test]
        fn the_detector_never_panics(clocks in prop::collection::vec(any::<(u64, u64, i64, u32)>(), 0..20)) {
            let mut detector = JumpDetector::new(START);
            for (mono_ns, boot_ns, real_ns, spread) in clocks {
                detector.observe(Clocks { mono_ns, boot_ns, real_ns, spread_ns: spread.into() });
            }
        }
    }
}
