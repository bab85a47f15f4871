// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the names of losses mean, and how much they are of what there was to see.

use crate::view::View;

/// What one name of a loss stands for.
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
        meaning: "switches that the kernel did not tell the probe of: time in between is unattributed",
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
];

/// The area of a loss: the source that lost it.
pub(in crate::rules) fn area(name: &str) -> &'static str {
    KNOWN.iter().find(|loss| loss.name == name).map_or("other", |loss| loss.area)
}

/// What a loss means, if its name is known.
pub(super) fn meaning(name: &str) -> Option<&'static str> {
    KNOWN.iter().find(|loss| loss.name == name).map(|loss| loss.meaning)
}

/// What a loss is a part of: all waiting for times, all context switches for counts. `None` where there is
/// nothing to compare with.
pub(super) fn share(view: &View, name: &str, amount: u64) -> Option<f64> {
    let load = view.host_load();
    let usages = || view.processes().values().filter_map(|process| process.usage.as_ref());
    let whole = if name.ends_with("_ns") {
        load.queued.total().max(usages().map(|usage| usage.states.queued_ns).sum())
    } else {
        load.switches.max(usages().map(|usage| usage.switches).sum())
    };
    (whole > 0).then(|| (amount as f64 / whole as f64).min(1.0))
}

/// The largest share that was lost of anything, 0..1.
pub(in crate::rules) fn worst_share(view: &View) -> f64 {
    let lost = &view.observer().lost;
    lost.iter().filter_map(|(name, &amount)| share(view, name, amount)).fold(0.0, f64::max)
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
