// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the wall time of the target and the victims went: a bar for each, and one more for the part that was not
//! asleep.

use super::super::words::{asleep, memory, portion, report as words};
use super::markup::{Markup, class, none};
use super::svg::{self, Anchor, WIDTH};
use super::{Cell, details, table, threads};
use crate::finding::{Ledger, LedgerState};
use crate::text::units::{duration, share};
use crate::view::Plots;

/// Ledgers that are shown at once.
const SHOWN: usize = 6;
const BAR: f64 = 22.0;
/// Room between the two bars.
const FUNNEL: f64 = 14.0;
/// Width that a number takes, and a name of a state beside it.
const NUMBER: f64 = 50.0;
const NAME: f64 = 190.0;

/// All states, in the order in which bars show them: what is done or waited for first, then sleep.
pub(super) const ORDER: [LedgerState; 10] = [
    LedgerState::OnCpu,
    LedgerState::Queued,
    LedgerState::Throttled,
    LedgerState::QueuedOrThrottled,
    LedgerState::BlockIo,
    LedgerState::MemStall,
    LedgerState::Uninterruptible,
    LedgerState::Unattributed,
    LedgerState::Sleep,
    LedgerState::Stopped,
];

/// Those in which a thread is not asleep, which come before the last two.
pub(super) const AWAKE: &[LedgerState] = ORDER.split_at(ORDER.len() - 2).0;

pub(super) fn colour(state: LedgerState) -> &'static str {
    match state {
        LedgerState::OnCpu => "s-cpu",
        LedgerState::Queued => "s-queued",
        LedgerState::Throttled => "s-throttled",
        LedgerState::QueuedOrThrottled => "s-either",
        LedgerState::BlockIo => "s-io",
        LedgerState::MemStall => "s-memory",
        LedgerState::Uninterruptible => "s-other",
        LedgerState::Sleep => "s-asleep",
        LedgerState::Stopped => "s-stopped",
        LedgerState::Unattributed => "s-unknown",
    }
}

/// Writes them, each with its threads where they are known.
pub(super) fn all(to: &mut Markup, ledgers: &[Ledger], plots: Option<&Plots>) {
    legend(to, ledgers);
    let by_thread = |at: usize| plots?.threads.get(at)?.as_ref();
    let with_threads = |to: &mut Markup, at: usize, ledger: &Ledger| {
        write(to, ledger);
        if let Some(plot) = by_thread(at) {
            threads::write(to, plot);
        }
    };
    let (first, more) = ledgers.split_at(ledgers.len().min(SHOWN));
    first.iter().enumerate().for_each(|(at, it)| with_threads(to, at, it));
    if !more.is_empty() {
        details(to, &format!("{} more", more.len()), |to| {
            more.iter().enumerate().for_each(|(at, it)| with_threads(to, first.len() + at, it));
        });
    }
}

/// The colours of the states that any of the ledgers has.
fn legend(to: &mut Markup, ledgers: &[Ledger]) {
    to.element("ul", &class("legend").and("aria-hidden", "true"), |to| {
        for state in ORDER.into_iter().filter(|state| ledgers.iter().any(|it| ns(it, *state) > 0)) {
            to.element("li", &none(), |to| {
                svg::swatch(to, colour(state));
                to.text(words::state(state));
            });
        }
    });
}

pub(super) fn ns(ledger: &Ledger, state: LedgerState) -> u64 {
    let of = ledger.parts.iter().filter(|part| part.state == state);
    of.map(|part| part.ns).fold(0, u64::saturating_add)
}

/// The part of a ledger in which its threads were not asleep, if a bar of its own shows more of it.
fn awake(ledger: &Ledger) -> Option<f64> {
    let asleep = ns(ledger, LedgerState::Sleep).saturating_add(ns(ledger, LedgerState::Stopped));
    let awake = 1.0 - portion(asleep, ledger.wall_ns);
    (asleep > 0 && awake > 0.0 && awake < 0.7).then_some(awake)
}

fn write(to: &mut Markup, ledger: &Ledger) {
    to.element("figure", &none(), |to| {
        to.prose("figcaption", &none(), &words::ledger(ledger));
        let awake = awake(ledger);
        let height = if awake.is_some() { 2.0 * BAR + FUNNEL } else { BAR };
        svg::plot(to, height, &described(ledger), |to| draw(to, ledger, awake));
        if let Some(awake) = awake {
            let text = format!("below: the {} in which it was not asleep", share(awake));
            to.tag("p", &class("aside"), &text);
        }
        details(to, "as a table", |to| numbers(to, ledger));
        if let Some(text) = words::on_cpu(ledger) {
            to.prose("p", &none(), &text);
        }
        if let Some(text) = memory::kinds(ledger) {
            to.prose("p", &none(), &text);
        }
        if let Some(kinds) = asleep::kinds(ledger) {
            to.prose("p", &none(), &kinds);
            details(to, "on what it slept", |to| sleeps(to, ledger));
        }
        if words::waits_for_memory(ledger) {
            to.tag("p", &class("aside"), words::MEMORY);
        }
        for excess in words::remarks(ledger) {
            to.tag("p", &none(), &excess);
        }
    });
}

fn described(ledger: &Ledger) -> String {
    let parts = ORDER.into_iter().filter(|state| ns(ledger, *state) > 0);
    let parts: Vec<String> = parts
        .map(|state| {
            format!("{} {}", words::state(state), share(portion(ns(ledger, state), ledger.wall_ns)))
        })
        .collect();
    parts.join(", ")
}

fn draw(to: &mut Markup, ledger: &Ledger, awake: Option<f64>) {
    let wall = ledger.wall_ns;
    let stack = |to: &mut Markup, top: f64, whole: f64, states: &[LedgerState]| {
        let mut x = 0.0;
        for &state in states {
            let part = portion(ns(ledger, state), wall);
            let width = (part / whole * WIDTH).clamp(0.0, WIDTH - x);
            let hint = format!("{}: {}", words::state(state), share(part));
            if width > 0.0 {
                svg::group(to, &hint, |to| {
                    svg::rect(to, colour(state), (x, top), (width.max(0.3), BAR));
                    let label = match width {
                        NAME.. => format!("{} {}", words::state(state), share(part)),
                        NUMBER.. => share(part),
                        _ => return,
                    };
                    let at = (x + width / 2.0, top + BAR / 2.0 + 4.0);
                    match state {
                        LedgerState::Sleep | LedgerState::Stopped | LedgerState::Unattributed => {
                            svg::text(to, at, Anchor::Middle, &label);
                        }
                        _ => svg::label(to, at, &label),
                    }
                });
            }
            x += width;
        }
    };
    stack(to, 0.0, 1.0, &ORDER);
    if let Some(awake) = awake {
        let (top, foot, x) = (BAR, BAR + FUNNEL, svg::number(awake * WIDTH));
        let path = format!("M0 {top}H{x}L{WIDTH} {foot}H0z");
        to.element("path", &class("funnel").and("d", path), |_| {});
        stack(to, foot, awake, AWAKE);
    }
}

fn sleeps(to: &mut Markup, ledger: &Ledger) {
    let rows = ledger.asleep.iter().map(|part| {
        let of_all = portion(part.ns, ledger.wall_ns);
        vec![
            Cell::Words(asleep::kind(part.kind).into()),
            Cell::Words(asleep::what(part)),
            Cell::Number(share(of_all)),
            Cell::Bar(of_all, colour(part.state)),
            Cell::Number(duration(part.ns as f64)),
        ]
    });
    table(to, &["kind", "in which call, and on what", "of the time", "", "time"], rows.collect());
}

fn numbers(to: &mut Markup, ledger: &Ledger) {
    let mut rows = Vec::new();
    for part in &ledger.parts {
        let of_all = portion(part.ns, ledger.wall_ns);
        rows.push(vec![
            Cell::Words(words::state(part.state).into()),
            Cell::Number(share(of_all)),
            Cell::Bar(of_all, colour(part.state)),
            Cell::Number(duration(part.ns as f64)),
        ]);
    }
    table(to, &["state", "of the time", "", "time"], rows);
}
