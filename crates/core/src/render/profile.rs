// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The section about functions: those that take most CPU time, and the stacks that are found most often.

use super::page::{Colour, Page};
use super::table::{Column, Table};
use super::words::profile as words;
use crate::finding::{ProcessProfile, Profile, SleepProfile};
use crate::text::units::share;

/// Processes, and functions and stacks of each, at verbosity 1.
const PROCESSES: usize = 2;
const FUNCTIONS: usize = 5;
const STACKS: usize = 2;
/// Stacks of each above that.
const MORE_STACKS: usize = 10;

/// Writes the section; with verbosity 0 nothing.
pub(super) fn write(page: &mut Page, profile: &Profile, verbosity: u8) {
    if verbosity == 0 {
        return;
    }
    let all = verbosity >= 2;
    page.gap();
    page.paragraph(0, 2, Colour::Heading, words::TITLE);
    page.paragraph(2, 2, Colour::Aside, &words::sampled(profile));
    let shown = if all { profile.processes.len() } else { PROCESSES };
    for process in profile.processes.iter().take(shown) {
        of_process(page, process, all);
    }
    if profile.sleeps.is_empty() {
        return;
    }
    page.gap();
    page.paragraph(0, 2, Colour::Heading, words::SLEEPS);
    let shown = if all { profile.sleeps.len() } else { PROCESSES };
    for sleep in profile.sleeps.iter().take(shown) {
        of_sleep(page, sleep, all);
    }
}

fn of_sleep(page: &mut Page, sleep: &SleepProfile, all: bool) {
    page.gap();
    page.paragraph(2, 2, Colour::Plain, &words::whose_sleep(sleep));
    for (does, stacks) in [(words::BEGINS, &sleep.begins), (words::ENDS, &sleep.ends)] {
        let shown = if all { MORE_STACKS } else { FUNCTIONS };
        for stack in stacks.iter().take(shown) {
            let label = format!("{} {does}: ", share(stack.share.get()));
            page.labelled(4, (Colour::Aside, &label), 8, Colour::Plain, &words::sleep_stack(stack));
        }
    }
}

fn of_process(page: &mut Page, process: &ProcessProfile, all: bool) {
    page.gap();
    page.paragraph(2, 2, Colour::Plain, &words::whose(process));
    let mut table = Table::new(&[Column::Right, Column::Right, Column::Left(usize::MAX)]);
    table.heading(["itself", "with callees", "function"]);
    let functions = if all { process.functions.len() } else { FUNCTIONS };
    for function in process.functions.iter().take(functions) {
        let shares = [function.own, function.with_callees].map(|part| share(part.get()));
        table.row(shares.into_iter().chain([words::function(function)]));
    }
    table.write(page, 4);
    let stacks = if all { MORE_STACKS } else { STACKS };
    for stack in process.stacks.iter().take(stacks) {
        let label = format!("{} in ", share(stack.share.get()));
        page.labelled(4, (Colour::Aside, &label), 8, Colour::Plain, &words::stack(stack));
    }
}
