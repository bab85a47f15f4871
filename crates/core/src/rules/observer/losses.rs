// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the observer's loss counters mean, and how large a loss is relative to what there was to observe.

use crate::view::View;

/// A loss counter.
struct Loss {
    name: &'static str,
    area: &'static str,
    meaning: &'static str,
}

const KNOWN: &[Loss] = &[
    Loss {
        name: "thread_table_full",
        area: "sched",
        meaning: "switches of threads that the probe's table had no place for: their time is unattributed",
    },
    Loss {
        name: "exit_unread",
        area: "sched",
        meaning: "threads that ended and whose entry was taken over before it was read: their last time is \
                  missing",
    },
    Loss {
        name: "torn_read",
        area: "sched",
        meaning: "entries that changed while they were read, every time that it was tried: they count a second \
                  later",
    },
    Loss {
        name: "slot_raced",
        area: "sched",
        meaning: "threads whose entry another one had taken meanwhile: their time before that is missing",
    },
    Loss {
        name: "switches_missed",
        area: "sched",
        meaning: "threads that left a CPU, and no switch told the probe of it: time in between is unattributed",
    },
    Loss {
        name: "clock_backward",
        area: "sched",
        meaning: "switches at which a CPU's clock was behind the one before: they took no time",
    },
    Loss {
        name: "blame_table_full_ns",
        area: "sched",
        meaning: "waiting behind somebody whom the table of culprits had no place for: they are not named",
    },
    Loss {
        name: "timeline_overrun",
        area: "timeline",
        meaning: "switches that were overwritten before they were read: idle CPUs may be overlooked",
    },
    Loss {
        name: "block_log_overrun",
        area: "block",
        meaning: "transfers that were overwritten before they were read: they are missing everywhere",
    },
    Loss {
        name: "block_nested",
        area: "block",
        meaning: "events that came while the same program ran on that CPU: their requests are missing",
    },
    Loss {
        name: "block_starts_full",
        area: "block",
        meaning: "requests that the table had no place for: they are missing",
    },
    Loss {
        name: "block_start_unseen",
        area: "block",
        meaning: "requests whose start was not seen, or was before the probe: they are missing",
    },
    Loss {
        name: "block_completion_unseen",
        area: "block",
        meaning: "requests of whose completion the probe was not told: they are missing",
    },
    Loss {
        name: "block_bios_beyond",
        area: "block",
        meaning: "parts of very long requests that were told without their files",
    },
    Loss {
        name: "block_workers_collide",
        area: "block",
        meaning: "requests whose reason of writeback may be that of another worker",
    },
    Loss {
        name: "block_late",
        area: "block",
        meaning: "requests that took longer than two seconds: the device's activity and the waits of others have them from then on only",
    },
    Loss {
        name: "block_folded",
        area: "block",
        meaning: "transfers of a second with very many files, told without their file",
    },
    Loss {
        name: "block_unnamed",
        area: "block",
        meaning: "transfers of files beyond the number that a recording tells apart",
    },
    Loss {
        name: "block_stalls_untold",
        area: "block",
        meaning: "long waits that are in the sums only, for too many processes had some in that second",
    },
    Loss {
        name: BEYOND,
        area: "block",
        meaning: "stalls, passes, commits and busy spells beyond the first 10 000 of each kind: the report looks at \
                  those only; record a shorter window",
    },
    Loss {
        name: "writeback_log_overrun",
        area: "writeback",
        meaning: "events of writeback that were overwritten before they were read",
    },
    Loss {
        name: "writeback_nested",
        area: "writeback",
        meaning: "events of writeback that came while the same program ran on that CPU",
    },
    Loss {
        name: "writeback_inodes_evicted",
        area: "writeback",
        meaning: "inodes whose last writeback was forgotten, for there were too many",
    },
    Loss {
        name: "writeback_tasks_collide",
        area: "writeback",
        meaning: "syncs and passes whose begin was overwritten by another task",
    },
    Loss {
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
