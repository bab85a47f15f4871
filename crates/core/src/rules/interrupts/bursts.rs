// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether interrupts come in bursts.
//!
//! Of the interrupts of a source while threads of a process hold a CPU, the probe counts how many there are, and how many
//! of them begin a burst: the one before had ended a pause of a millisecond or more ago. Other things than bursts make
//! such pauses. A thread that leaves the CPU and returns sees one. Interrupts at random times have some, and those of a
//! clock have one before each if they are that far apart. A virtual CPU that the hypervisor stops has one now and then.
//! Bursts are told where none of these can be the reason.

use crate::stats::{SIGNIFICANT, poisson};
use crate::view::{BURST_PAUSE_NS, Interrupted};

/// Pauses of which so many are needed.
const MIN_PAUSES: u64 = 5;
/// Interrupts of a burst follow each other at least so many times faster than bursts do.
const CONTRAST: f64 = 5.0;
/// Pauses are at least this part of the time, or the source is steady but for a hitch now and then.
const PAUSED: f64 = 0.1;

/// The bursts in which interrupts come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bursts {
    /// How many interrupts are in one, on average.
    pub(super) size: f64,
    /// From the begin of one to that of the next, in nanoseconds of the thread's time on the CPU, on average.
    pub(super) every_ns: u64,
}

/// The bursts in which they came while threads held a CPU for `held_ns` in so many turns; `None` = they came steadily, or
/// what was counted does not tell.
pub(super) fn of(of: &Interrupted, held_ns: u64, turns: u64) -> Option<Bursts> {
    // Each turn may have begun with a pause in which the thread was away.
    let pauses = of.bursts.saturating_sub(turns);
    if pauses < MIN_PAUSES || poisson(pauses, of.steady_bursts as f64) >= SIGNIFICANT {
        return None;
    }
    let (held, pause) = (held_ns as f64, BURST_PAUSE_NS as f64);
    let paused = pauses as f64 * pause;
    // The longest that the other gaps can be on average: the pauses are no shorter than a millisecond.
    let others = of.count.saturating_sub(of.bursts).max(1) as f64;
    let gap = (held - of.ns as f64 - paused).max(0.0) / others;
    let size = of.count as f64 / pauses as f64;
    (paused >= PAUSED * held && pause >= CONTRAST * gap)
        .then_some(Bursts { size, every_ns: held_ns / pauses })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{InterruptTick, ProcId, Record};
    use crate::testkit::{MS, S, Scene, US, interrupts};
    use proptest::prelude::*;

    /// Numbers from 0 to 1, the same for each seed.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut it = self.0;
            it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((it ^ (it >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
        }

        fn exponential(&mut self, mean: f64) -> f64 {
            -mean * (1.0 - self.next()).ln()
        }
    }

    /// When threads hold the CPU: `on_ns` on it, `off_ns` away from it. And how long a handler runs.
    #[derive(Clone, Copy, Debug)]
    struct Holder {
        on_ns: u64,
        off_ns: u64,
        handler_ns: u64,
    }

    const ALWAYS: Holder = Holder { on_ns: u64::MAX, off_ns: 0, handler_ns: 5 * US };

    /// What the probe counts of interrupts at these times, a record a second, as the view sums it up; with the time that
    /// the thread held the CPU, and its turns.
    fn seen(times: &[u64], window_ns: u64, holder: Holder) -> (Interrupted, u64, u64) {
        let period = holder.on_ns.saturating_add(holder.off_ns);
        let mut ended_ns = None;
        let mut ticks: Vec<InterruptTick> = (0..window_ns.div_ceil(S))
            .map(|second| InterruptTick {
                t0_ns: second * S,
                t1_ns: ((second + 1) * S).min(window_ns),
                bursts: 0,
                ..interrupts(ProcId(1), 0, 0)
            })
            .collect();
        let mut free_ns = 0;
        for &at in times.iter().filter(|&&at| at < window_ns && at % period < holder.on_ns) {
            // While a handler runs, the next one waits.
            let began = at.max(free_ns);
            free_ns = began + holder.handler_ns;
            let tick = &mut ticks[(at / S) as usize];
            tick.count += 1;
            tick.ns += holder.handler_ns;
            if ended_ns.is_none_or(|ended| began.saturating_sub(ended) >= BURST_PAUSE_NS) {
                tick.bursts += 1;
            }
            ended_ns = Some(free_ns);
        }
        let mut scene = Scene::new(2, window_ns);
        scene.process("api", None);
        ticks.into_iter().for_each(|tick| {
            scene.push(Record::Interrupts(Box::new(tick)));
        });
        let view = scene.view();
        let mut sum = Interrupted::default();
        view.interrupts().of(ProcId(1)).for_each(|(_, of)| sum.add(of));
        let turns = window_ns.div_ceil(period);
        let held =
            if holder.off_ns == 0 { window_ns } else { (turns * holder.on_ns).min(window_ns) };
        (sum, held, turns)
    }

    fn told(times: &[u64], window_ns: u64, holder: Holder) -> Option<Bursts> {
        let (sum, held_ns, turns) = seen(times, window_ns, holder);
        of(&sum, held_ns, turns)
    }

    /// Times with these gaps, until the end of the window.
    fn until(window_ns: u64, mut gap_ns: impl FnMut() -> f64) -> Vec<u64> {
        let mut at = 0.0;
        let mut times = Vec::new();
        while at < window_ns as f64 && times.len() < 400_000 {
            at += gap_ns().max(1.0);
            times.push(at as u64);
        }
        times
    }

    #[test]
    fn what_is_sent_in_bursts_is_told_with_size_and_pace() {
        // 60 in half a millisecond, every 5 ms.
        let times: Vec<u64> =
            (0..2000).flat_map(|burst| (0..60).map(move |i| burst * 5 * MS + i * 8 * US)).collect();
        let bursts = told(&times, 10 * S, ALWAYS).expect("bursts");
        assert!((bursts.size - 60.0).abs() < 1.0, "{bursts:?}");
        assert!(bursts.every_ns.abs_diff(5 * MS) < 50 * US, "{bursts:?}");
    }

    /// The decoy: a thread that shares its CPU sees a steady storm in pieces.
    #[test]
    fn a_steady_storm_has_no_bursts_because_the_thread_was_away() {
        let times = until(10 * S, || 31_250.0);
        let shared = Holder { on_ns: 4 * MS, off_ns: 4 * MS, handler_ns: 5 * US };
        let (sum, ..) = seen(&times, 10 * S, shared);
        assert!(sum.bursts > 1000 && sum.count > 100 * sum.bursts, "it looks like bursts: {sum:?}");
        assert_eq!(told(&times, 10 * S, shared), None);
    }

    /// Scenario timer-storm on a busy host: a timer every 30 us, seen by a thread that got the CPU 631 times.
    #[test]
    fn the_storm_of_the_lab_is_steady() {
        let seen = Interrupted {
            ns: 336_840_245,
            count: 62_449,
            longest_ns: 300 * US,
            bursts: 599,
            steady_bursts: 6,
        };
        assert_eq!(of(&seen, 2 * S, 631), None);
        assert!(of(&seen, 2 * S, 0).is_some(), "were they not its own turns, they would be bursts");
    }

    /// The decoy: each second the hypervisor stops the virtual CPU for some milliseconds, 20 times.
    #[test]
    fn a_steady_storm_with_a_hitch_now_and_then_has_no_bursts() {
        let mut times = until(10 * S, || 31_250.0);
        times.retain(|at| at % (50 * MS) > 3 * MS);
        let (sum, ..) = seen(&times, 10 * S, ALWAYS);
        assert!(sum.bursts >= 199, "{sum:?}");
        assert_eq!(told(&times, 10 * S, ALWAYS), None);
    }

    #[test]
    fn a_storm_that_begins_in_the_window_has_no_bursts() {
        let mut random = Random(7);
        let mut times = until(5 * S, || random.exponential(2e6));
        times.extend(until(5 * S, || 31_250.0).iter().map(|at| at + 5 * S));
        let (sum, ..) = seen(&times, 10 * S, ALWAYS);
        assert!(sum.count > 50 * sum.bursts && sum.bursts > 1000, "{sum:?}");
        assert_eq!(told(&times, 10 * S, ALWAYS), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        #[test]
        fn random_times_are_no_bursts(
            seed in any::<u64>(), rate in 50.0..40_000.0f64, window_ms in 20..4000u64,
            on_ms in 1..50u64, off_ms in 0..20u64, handler_ns in 500..20_000u64,
        ) {
            let mut random = Random(seed);
            let window_ns = window_ms * MS;
            let times = until(window_ns, || random.exponential(1e9 / rate));
            let holder = Holder { on_ns: on_ms * MS, off_ns: off_ms * MS, handler_ns };
            prop_assert_eq!(told(&times, window_ns, holder), None);
        }

        #[test]
        fn a_clock_has_no_bursts_whatever_its_period(
            seed in any::<u64>(), period_us in 20.0..20_000.0f64, jitter in 0.0..0.3f64, window_ms in 20..4000u64,
            on_ms in 1..50u64, off_ms in 0..20u64, handler_ns in 500..15_000u64,
        ) {
            let mut random = Random(seed);
            let window_ns = window_ms * MS;
            let times = until(window_ns, || 1000.0 * period_us * (1.0 + jitter * (2.0 * random.next() - 1.0)));
            let holder = Holder { on_ns: on_ms * MS, off_ns: off_ms * MS, handler_ns };
            prop_assert_eq!(told(&times, window_ns, holder), None);
        }

        #[test]
        fn dense_bursts_with_long_pauses_are_told(
            seed in any::<u64>(), size in 40..150u64, every_us in 3_000..9_000u64, seconds in 2..4u64,
        ) {
            let mut random = Random(seed);
            let mut times = Vec::new();
            let mut at = 0;
            while at < seconds * S {
                times.extend((0..size).map(|i| at + i * 10 * US));
                at += ((every_us * US) as f64 * (0.9 + 0.2 * random.next())) as u64;
            }
            let bursts = told(&times, seconds * S, ALWAYS);
            let bursts = bursts.ok_or_else(|| TestCaseError::fail("no bursts"))?;
            prop_assert!((bursts.size / size as f64 - 1.0).abs() < 0.1, "{:?}", bursts);
            prop_assert!((bursts.every_ns as f64 / (every_us * US) as f64 - 1.0).abs() < 0.1, "{:?}", bursts);
        }

        #[test]
        fn a_few_interrupts_tell_nothing(count in 0..9u64, bursts in 0..5u64) {
            let few = Interrupted { count, bursts, ..Interrupted::default() };
            prop_assert_eq!(of(&few, 10 * MS, 0), None);
        }
    }
}
