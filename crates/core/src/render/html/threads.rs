// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the time of single threads went: a bar for each, as long as the time in which it was not asleep.

use super::super::names;
use super::super::words::report as words;
use super::ledger::{AWAKE, ORDER, colour, ns};
use super::markup::{Markup, none};
use super::svg::{self, Anchor, WIDTH};
use super::{Cell, details, table};
use crate::finding::Ledger;
use crate::text::escape::identifier;
use crate::text::units::{counted, duration};
use crate::view::ThreadPlot;

const BAR: f64 = 14.0;
const GAP: f64 = 4.0;
/// Room for the names.
const LEFT: f64 = 190.0;
const NAME_COLUMNS: usize = 16;

const OTHERS: &str = "all others";

pub(super) fn write(to: &mut Markup, plot: &ThreadPlot) {
    let rest = Some(&plot.rest).filter(|it| it.wall_ns > 0);
    let bars: Vec<(String, &Ledger)> = plot.threads.iter().map(|it| (name(it), it)).collect();
    let bars: Vec<_> = bars.into_iter().chain(rest.map(|it| (OTHERS.into(), it))).collect();
    let longest_ns = bars.iter().map(|(_, it)| awake_ns(it)).max().unwrap_or(0);
    if longest_ns == 0 {
        return;
    }
    to.element("figure", &none(), |to| {
        let which = counted(plot.threads.len() as u64, "thread", "threads");
        let others = if rest.is_some() { ", and all others" } else { "" };
        let about = format!(
            "by thread, without the time asleep: the {which} that lost most{others} (the longest bar is {})",
            duration(longest_ns as f64)
        );
        to.prose("figcaption", &none(), &about);
        let described = format!("time of {which}{others} by state, without the time asleep");
        svg::plot(to, bars.len() as f64 * (BAR + GAP), &described, |to| {
            for (i, (name, ledger)) in bars.iter().enumerate() {
                let top = i as f64 * (BAR + GAP);
                svg::text(to, (LEFT - 6.0, top + BAR - 3.0), Anchor::End, name);
                stack(to, ledger, top, longest_ns);
            }
        });
        details(to, "as a table", |to| numbers(to, &plot.threads, rest));
    });
}

fn name(ledger: &Ledger) -> String {
    let comm = ledger.victim.comm.as_deref().unwrap_or_default();
    let tid = ledger.victim.tid.unwrap_or_default();
    format!("{} {tid}", identifier(comm, NAME_COLUMNS).replace('`', ""))
}

fn awake_ns(ledger: &Ledger) -> u64 {
    AWAKE.iter().map(|&state| ns(ledger, state)).fold(0, u64::saturating_add)
}

fn stack(to: &mut Markup, ledger: &Ledger, top: f64, longest_ns: u64) {
    let mut x = LEFT;
    for &state in AWAKE {
        let of_state_ns = ns(ledger, state);
        let width = of_state_ns as f64 / longest_ns as f64 * (WIDTH - LEFT);
        let width = width.clamp(0.0, WIDTH - x);
        if width > 0.0 {
            let hint = format!("{}: {}", words::state(state), duration(of_state_ns as f64));
            svg::group(to, &hint, |to| {
                svg::rect(to, colour(state), (x, top), (width.max(0.3), BAR));
            });
        }
        x += width;
    }
}

fn numbers(to: &mut Markup, threads: &[Ledger], rest: Option<&Ledger>) {
    let all = || threads.iter().chain(rest);
    let is_used = |state: &_| all().any(|it| ns(it, *state) > 0);
    let states: Vec<_> = ORDER.into_iter().filter(is_used).collect();
    let mut headings = vec!["thread", "existed for"];
    headings.extend(states.iter().map(|&state| words::state(state)));
    let row = |name: String, ledger: &Ledger| {
        let mut cells = vec![Cell::Words(name), Cell::Number(duration(ledger.wall_ns as f64))];
        let each = states.iter().map(|&state| Cell::Number(duration(ns(ledger, state) as f64)));
        cells.extend(each);
        cells
    };
    let mut rows: Vec<_> = threads.iter().map(|it| row(names::entity(&it.victim), it)).collect();
    rows.extend(rest.map(|it| row(OTHERS.into(), it)));
    table(to, &headings, rows);
}
