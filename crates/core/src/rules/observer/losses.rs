// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the observer's loss counters mean, and how large a loss is relative to what there was to observe.

use crate::view::View;

struct LossCounter {
    name: &'static str,
    area: &'static str,
    meaning: &'static str,
}

const KNOWN: &[LossCounter] = &[
    LossCounter {
        name: "thread_table_full",
        area: "sched",
        meaning: "switches of threads that the probe's table had no place for: their time is unattributed",
    },
    LossCounter {
        name: "exit_unread",
        area: "sched",
        meaning: "threads that ended and whose entry was taken over before it was read: their last time is \
                  missing",
    },
    LossCounter {
        name: "torn_read",
        area: "sched",
        meaning: "entries that changed while they were read, every time that it was tried: they count a second \
                  later",
    },
    LossCounter {
        name: "slot_raced",
        area: "sched",
        meaning: "threads whose entry another one had taken meanwhile: their time before that is missing",
    },
    LossCounter {
        name: "switches_missed",
        area: "sched",
        meaning: "threads that left a CPU, and no switch told the probe of it: time in between is unattributed",
    },
    LossCounter {
        name: "clock_backward",
        area: "sched",
        meaning: "switches at which a CPU's clock was behind the one before: they took no time",
    },
    LossCounter {
        name: "blame_table_full_ns",
        area: "sched",
        meaning: "waiting behind processes for which the table of culprits had no room: they are not named",
    },
    LossCounter {
        name: "timeline_overrun",
        area: "timeline",
        meaning: "switches that were overwritten before they were read: idle CPUs may be overlooked",
    },
    LossCounter {
        name: "block_log_overrun",
        area: "block",
        meaning: "transfers that were overwritten before they were read: they are missing everywhere",
    },
    LossCounter {
        name: "block_nested",
        area: "block",
        meaning: "events that came while the same program ran on that CPU: their requests are missing",
    },
    LossCounter {
        name: "block_starts_full",
        area: "block",
        meaning: "requests that the table had no place for: they are missing",
    },
    LossCounter {
        name: "block_start_unseen",
        area: "block",
        meaning: "requests whose start was not seen, or was before the probe: they are missing",
    },
    LossCounter {
        name: "block_completion_unseen",
        area: "block",
        meaning: "requests of whose completion the probe was not told: they are missing",
    },
    LossCounter {
        name: "block_bios_beyond",
        area: "block",
        meaning: "parts of very long requests that were told without their files",
    },
    LossCounter {
        name: "block_workers_collide",
        area: "block",
        meaning: "requests whose reason of writeback may be that of another worker",
    },
    LossCounter {
        name: "block_late",
        area: "block",
        meaning: "requests that took longer than two seconds: the device's activity and the waits of others have them from then on only",
    },
    LossCounter {
        name: "block_folded",
        area: "block",
        meaning: "transfers of a second with very many files, told without their file",
    },
    LossCounter {
        name: "block_unnamed",
        area: "block",
        meaning: "transfers of files beyond the number that a recording tells apart",
    },
    LossCounter {
        name: "block_stalls_untold",
        area: "block",
        meaning: "long waits that are in the sums only, for too many processes had some in that second",
    },
    LossCounter {
        name: BEYOND,
        area: "block",
        meaning: "stalls, passes, commits and busy spells beyond the first 10 000 of each kind: the report looks at \
                  those only; record a shorter window",
    },
    LossCounter {
        name: "writeback_log_overrun",
        area: "writeback",
        meaning: "events of writeback that were overwritten before they were read",
    },
    LossCounter {
        name: "writeback_nested",
        area: "writeback",
        meaning: "events of writeback that came while the same program ran on that CPU",
    },
    LossCounter {
        name: "writeback_inodes_evicted",
        area: "writeback",
        meaning: "inodes whose last writeback was forgotten, for there were too many",
    },
    LossCounter {
        name: "writeback_tasks_collide",
        area: "writeback",
        meaning: "syncs and passes whose begin was overwritten by another task",
    },
    LossCounter {
        name: "writeback_begin_unseen",
        area: "writeback",
        meaning: "syncs and passes whose begin was not seen",
    },
];

/// What the recording holds and the view had no room for.
const BEYOND: &str = "block_beyond_report";

/// Every loss by name: what the observer counted, and what the view left out.
pub(in crate::rules) fn all(view: &View) -> impl Iterator<Item = (&str, u64)> {
    let seen = view.observer().lost.iter().map(|(name, &amount)| (name.as_str(), amount));
    let (beyond, _) = view.block().dropped_of();
    seen.chain((beyond > 0).then_some((BEYOND, beyond)))
}

/// The area of a loss counter, which is the source that lost it; `other` for an unknown name.
pub(in crate::rules) fn area(name: &str) -> &'static str {
    KNOWN.iter().find(|loss| loss.name == name).map_or("other", |loss| loss.area)
}

/// What a loss counter means; `None` for an unknown name.
pub(super) fn meaning(name: &str) -> Option<&'static str> {
    KNOWN.iter().find(|loss| loss.name == name).map(|loss| loss.meaning)
}

/// A loss as a share of its whole, 0..1. The whole is all waiting for times, all IO waits for lost stalls, all
/// transfers for other counts of block IO, else all context switches. `None` if the whole is 0.
pub(super) fn share(view: &View, name: &str, amount: u64) -> Option<f64> {
    let load = view.host_load();
    let usages = || view.processes().values().filter_map(|process| process.usage.as_ref());
    let whole = match whole(name) {
        ENTRIES => view.block().dropped_of().1,
        HOLD_UPS => {
            let waits = view.block().waits().values();
            waits.map(|held| held.waits.total_count()).fold(0, u64::saturating_add)
        }
        WAITING => load.queued.total().max(usages().map(|usage| usage.states.queued_ns).sum()),
        TRANSFERS => view.block().transfers(),
        _ => load.switches.max(usages().map(|usage| usage.switches).sum()),
    };
    (whole > 0).then(|| (amount as f64 / whole as f64).min(1.0))
}

const WAITING: &str = "all waiting";
const TRANSFERS: &str = "the transfers";
const HOLD_UPS: &str = "the hold-ups";
const ENTRIES: &str = "what was recorded of stalls, passes, commits and busy spells";

/// The whole that a loss is compared with, as words for a sentence.
pub(super) fn whole(name: &str) -> &'static str {
    match area(name) {
        _ if name == "block_stalls_untold" => HOLD_UPS,
        _ if name == BEYOND => ENTRIES,
        "block" | "writeback" => TRANSFERS,
        _ if name.ends_with("_ns") => WAITING,
        _ => "the context switches",
    }
}

/// The largest share over all loss counters, 0..1.
pub(in crate::rules) fn worst_share(view: &View) -> f64 {
    all(view).filter_map(|(name, amount)| share(view, name, amount)).fold(0.0, f64::max)
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
