// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the observer's loss counters mean, and how large a loss is relative to what there was to observe.

use crate::recording::ObserverTick;
use crate::text::Unit;
use crate::view::View;

struct LossCounter {
    name: &'static str,
    /// The source that lost it.
    area: &'static str,
    of: Whole,
    meaning: &'static str,
}

/// What a loss is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whole {
    Switches,
    Waiting,
    Transfers,
    /// Inodes that passes of the flusher wrote, and what was lost of such events.
    Writeback,
    Stalls,
    /// Interrupts, those of idle CPUs included.
    Interrupts,
    /// Times at which TCP sent something again.
    Resent,
    /// Samples of the profile, and sleeps whose stacks were looked at.
    Samples,
    /// Entries of the lists of which a view keeps only the first.
    Listed,
    Beats,
}

impl Whole {
    /// As words for a sentence.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Switches => "the context switches",
            Self::Waiting => "all waiting",
            Self::Transfers => "the transfers",
            Self::Writeback => "the events of writeback",
            Self::Stalls => "the hold-ups",
            Self::Interrupts => "the interrupts",
            Self::Resent => "what was sent again",
            Self::Samples => "the samples of the profile",
            Self::Beats => "the beats",
            Self::Listed => "what was recorded of stalls, passes, commits and busy spells",
        }
    }

    /// Its amount in a recording.
    fn amount(self, view: &View) -> u64 {
        let load = view.host_load();
        let (switches, queued_ns) = view.switches_and_queued_ns();
        match self {
            Self::Switches => load.switches.max(switches),
            Self::Waiting => load.queued.total().max(queued_ns),
            Self::Transfers => view.block().transfers(),
            Self::Writeback => {
                let inodes = view.block().passes().iter().map(|pass| pass.inodes);
                let of_it = |(name, lost): (&String, &u64)| {
                    let of = known(name).map(|loss| loss.of);
                    (of == Some(Self::Writeback)).then_some(*lost)
                };
                let lost = view.observer().lost.iter().filter_map(of_it);
                inodes.chain(lost).fold(0, u64::saturating_add)
            }
            Self::Stalls => {
                let waits = view.block().waits().values();
                waits.map(|held| held.waits.total_count()).fold(0, u64::saturating_add)
            }
            Self::Interrupts => view.interrupts().count(),
            Self::Resent => {
                let resent = view.net().connections().values();
                resent.map(|it| it.sum.times).fold(0, u64::saturating_add)
            }
            Self::Samples => {
                let profile = view.profile();
                let of_profile = profile.span().samples.saturating_add(profile.span().lost);
                of_profile.saturating_add(profile.sleeps().samples())
            }
            Self::Listed => view.block().dropped_of().1,
            Self::Beats => view.window_ns() / ObserverTick::BEAT_NS,
        }
    }
}

const KNOWN: &[LossCounter] = &[
    LossCounter {
        name: "thread_table_full",
        area: "sched",
        of: Whole::Switches,
        meaning: "switches of threads that the probe's table had no place for: their time is unattributed",
    },
    LossCounter {
        name: "exit_unread",
        area: "sched",
        of: Whole::Switches,
        meaning: "threads that ended and whose entry was taken over before it was read: their last time is \
                  missing",
    },
    LossCounter {
        name: "torn_read",
        area: "sched",
        of: Whole::Switches,
        meaning: "entries that changed while they were read, every time that it was tried: they count a second \
                  later",
    },
    LossCounter {
        name: "slot_raced",
        area: "sched",
        of: Whole::Switches,
        meaning: "threads whose entry another one had taken meanwhile: their time before that is missing",
    },
    LossCounter {
        name: "switches_missed",
        area: "sched",
        of: Whole::Switches,
        meaning: "threads that left a CPU, and no switch told the probe of it: time in between is unattributed",
    },
    LossCounter {
        name: "clock_backward",
        area: "sched",
        of: Whole::Switches,
        meaning: "switches at which a CPU's clock was behind the one before: they took no time",
    },
    LossCounter {
        name: "blame_table_full_ns",
        area: "sched",
        of: Whole::Waiting,
        meaning: "waiting behind processes for which the table of culprits had no room: they are not named",
    },
    LossCounter {
        name: "timeline_overrun",
        area: "timeline",
        of: Whole::Switches,
        meaning: "switches that were overwritten before they were read: idle CPUs may be overlooked",
    },
    LossCounter {
        name: "sleeps_overrun",
        area: "sched",
        of: Whole::Switches,
        meaning: "sleeps that were overwritten before they were read: on what the threads slept is not known",
    },
    LossCounter {
        name: "threads_unwatched",
        area: "sched",
        of: Whole::Switches,
        meaning: "threads whose place among the watched ones another one had: on what they slept is not known",
    },
    LossCounter {
        name: "reclaim_sums_full",
        area: "reclaim",
        of: Whole::Switches,
        meaning: "times that a thread freed memory which the table of sums had no place for: they are missing",
    },
    LossCounter {
        name: "reclaim_tasks_collide",
        area: "reclaim",
        of: Whole::Switches,
        meaning: "times that a thread freed memory whose begin was overwritten by another thread: they are missing",
    },
    LossCounter {
        name: "reclaim_begin_unseen",
        area: "reclaim",
        of: Whole::Switches,
        meaning: "times that a thread freed memory whose begin was not seen: they are missing",
    },
    LossCounter {
        name: "reclaim_nested",
        area: "reclaim",
        of: Whole::Switches,
        meaning: "events of reclaim that came while the same program ran on that CPU",
    },
    LossCounter {
        name: "irq_sums_full",
        area: "interrupts",
        of: Whole::Interrupts,
        meaning: "interrupts that the table of sums had no place for: they took more than is told",
    },
    LossCounter {
        name: "irq_nested",
        area: "interrupts",
        of: Whole::Interrupts,
        meaning: "interrupts that came while the same program ran on that CPU: they took more than is told",
    },
    LossCounter {
        name: "tcp_log_overrun",
        area: "tcp",
        of: Whole::Resent,
        meaning: "segments sent again that were overwritten before they were read: connections may have been held up longer",
    },
    LossCounter {
        name: "tcp_nested",
        area: "tcp",
        of: Whole::Resent,
        meaning: "segments sent again while the probe was running on that CPU: they are not counted",
    },
    LossCounter {
        name: ObserverTick::BEATS_MISSED,
        area: "observer",
        of: Whole::Beats,
        meaning: "beats at which the observer was stopped or had no CPU: what belongs to them is in the next one",
    },
    LossCounter {
        name: "block_log_overrun",
        area: "block",
        of: Whole::Transfers,
        meaning: "transfers that were overwritten before they were read: they are missing everywhere",
    },
    LossCounter {
        name: "block_nested",
        area: "block",
        of: Whole::Transfers,
        meaning: "events that came while the same program ran on that CPU: their requests are missing",
    },
    LossCounter {
        name: "block_starts_full",
        area: "block",
        of: Whole::Transfers,
        meaning: "requests that the table had no place for: they are missing",
    },
    LossCounter {
        name: "block_start_unseen",
        area: "block",
        of: Whole::Transfers,
        meaning: "requests whose start was not seen, or was before the probe: they are missing",
    },
    LossCounter {
        name: "block_completion_unseen",
        area: "block",
        of: Whole::Transfers,
        meaning: "requests of whose completion the probe was not told: they are missing",
    },
    LossCounter {
        name: "block_bios_beyond",
        area: "block",
        of: Whole::Transfers,
        meaning: "parts of very long requests that were told without their files",
    },
    LossCounter {
        name: "block_workers_collide",
        area: "block",
        of: Whole::Transfers,
        meaning: "requests whose reason of writeback may be that of another worker",
    },
    LossCounter {
        name: "block_late",
        area: "block",
        of: Whole::Transfers,
        meaning: "requests that took longer than two seconds: the device's activity and the waits of others have them from then on only",
    },
    LossCounter {
        name: "block_folded",
        area: "block",
        of: Whole::Transfers,
        meaning: "transfers of a second with very many files, told without their file",
    },
    LossCounter {
        name: "block_unnamed",
        area: "block",
        of: Whole::Transfers,
        meaning: "transfers of files beyond the number that a recording tells apart",
    },
    LossCounter {
        name: "block_stalls_untold",
        area: "block",
        of: Whole::Stalls,
        meaning: "long waits that are in the sums only, for too many processes had some in that second",
    },
    LossCounter {
        name: BEYOND,
        area: "block",
        of: Whole::Listed,
        meaning: "stalls, passes, commits and busy spells beyond the first 10 000 of each kind: the report looks at \
                  those only; record a shorter window",
    },
    LossCounter {
        name: "writeback_log_overrun",
        area: "writeback",
        of: Whole::Writeback,
        meaning: "events of writeback that were overwritten before they were read",
    },
    LossCounter {
        name: "writeback_nested",
        area: "writeback",
        of: Whole::Writeback,
        meaning: "events of writeback that came while the same program ran on that CPU",
    },
    LossCounter {
        name: "writeback_inodes_evicted",
        area: "writeback",
        of: Whole::Transfers,
        meaning: "inodes whose last writeback was forgotten, for there were too many",
    },
    LossCounter {
        name: "writeback_tasks_collide",
        area: "writeback",
        of: Whole::Transfers,
        meaning: "syncs and passes whose begin was overwritten by another task",
    },
    LossCounter {
        name: "writeback_begin_unseen",
        area: "writeback",
        of: Whole::Transfers,
        meaning: "syncs and passes whose begin was not seen",
    },
    LossCounter {
        name: "profile_overrun",
        area: "profile",
        of: Whole::Samples,
        meaning: "samples of what runs that were overwritten before they were read",
    },
    LossCounter {
        name: "profile_nested",
        area: "profile",
        of: Whole::Samples,
        meaning: "samples of what runs that came while the same program ran on that CPU",
    },
    LossCounter {
        name: "stacks_overrun",
        area: "profile",
        of: Whole::Samples,
        meaning: "beginnings and ends of sleeps that were overwritten before they were read: their stacks have less sleep than there was",
    },
    LossCounter {
        name: "stacks_nested",
        area: "profile",
        of: Whole::Samples,
        meaning: "switches and wake-ups that came while the same program ran on that CPU: the stacks of these sleeps were not looked at",
    },
    LossCounter {
        name: "stacks_without_beginning",
        area: "profile",
        of: Whole::Samples,
        meaning: "ends of sleeps whose beginning was not read: the stacks of these sleeps are not known",
    },
];

/// What the recording holds and the view had no room for.
const BEYOND: &str = "block_beyond_report";

/// Losses of what there was to see. A missed beat is none: what belongs to it is in the next one.
pub(super) fn of_events(view: &View) -> impl Iterator<Item = (&str, u64)> {
    all(view).filter(|&(name, _)| name != ObserverTick::BEATS_MISSED)
}

/// Every loss by name: what the observer counted, and what the view left out.
pub(in crate::rules) fn all(view: &View) -> impl Iterator<Item = (&str, u64)> {
    let seen = view.observer().lost.iter().map(|(name, &amount)| (name.as_str(), amount));
    let (beyond, _) = view.block().dropped_of();
    seen.chain((beyond > 0).then_some((BEYOND, beyond)))
}

fn known(name: &str) -> Option<&'static LossCounter> {
    KNOWN.iter().find(|loss| loss.name == name)
}

/// The area of a loss counter, which is the source that lost it; `other` for an unknown name.
pub(in crate::rules) fn area(name: &str) -> &'static str {
    known(name).map_or("other", |loss| loss.area)
}

/// What a loss counter means; `None` for an unknown name.
pub(super) fn meaning(name: &str) -> Option<&'static str> {
    known(name).map(|loss| loss.meaning)
}

/// What a loss is compared with. For an unknown name that is all waiting if it is a time, else all context switches.
pub(super) fn whole(name: &str) -> Whole {
    match (known(name), ObserverTick::unit_of(name)) {
        (Some(loss), _) => loss.of,
        (None, Unit::Ns) => Whole::Waiting,
        (None, _) => Whole::Switches,
    }
}

/// A loss as a share of its whole, 0..1. `None` if the whole is 0.
pub(super) fn share(view: &View, name: &str, amount: u64) -> Option<f64> {
    let whole = whole(name).amount(view);
    (whole > 0).then(|| (amount as f64 / whole as f64).min(1.0))
}

/// The largest share over all loss counters, 0..1, without those of the profile, which decides nothing.
pub(in crate::rules) fn worst_share(view: &View) -> f64 {
    let decides = of_events(view).filter(|&(name, _)| whole(name) != Whole::Samples);
    decides.filter_map(|(name, amount)| share(view, name, amount)).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::KNOWN;

    #[test]
    fn the_page_says_what_every_name_means() {
        let page = include_str!("events_lost.md");
        for loss in KNOWN {
            assert!(page.contains(&format!("- `{}`:", loss.name)), "{}", loss.name);
        }
    }
}
