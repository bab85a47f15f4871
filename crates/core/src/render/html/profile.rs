// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions that take most CPU time, and the stacks that were found.

use super::super::words::profile as words;
use super::markup::{Markup, class, none};
use super::{Cell, details, table};
use crate::finding::{
    FunctionShare, ProcessProfile, Profile, SleepProfile, SleepStackShare, StackShare,
};
use crate::text::units::share;

pub(super) fn all(to: &mut Markup, profile: &Profile) {
    to.tag("p", &class("aside"), &words::sampled(profile));
    for process in &profile.processes {
        to.element("div", &class("device"), |to| of_process(to, process));
    }
    if !profile.sleeps.is_empty() {
        to.tag("p", &class("aside"), words::SLEEPS);
    }
    for sleep in &profile.sleeps {
        to.element("div", &class("device"), |to| of_sleep(to, sleep));
    }
}

fn of_sleep(to: &mut Markup, sleep: &SleepProfile) {
    to.prose("h3", &none(), &words::whose_sleep(sleep));
    let cells = |stack: &SleepStackShare| {
        vec![
            Cell::Number(share(stack.share.get())),
            Cell::Bar(stack.share.get(), "c-count"),
            Cell::Words(words::sleep_stack(stack)),
        ]
    };
    for (does, stacks) in [(words::BEGINS, &sleep.begins), (words::ENDS, &sleep.ends)] {
        if !stacks.is_empty() {
            table(to, &["share", "", does], stacks.iter().map(cells).collect());
        }
    }
}

fn of_process(to: &mut Markup, process: &ProcessProfile) {
    to.prose("h3", &none(), &words::whose(process));
    let cells = |function: &FunctionShare| {
        vec![
            Cell::Number(share(function.own.get())),
            Cell::Bar(function.own.get(), "c-count"),
            Cell::Number(share(function.with_callees.get())),
            Cell::Words(words::function(function)),
        ]
    };
    let headings = ["itself", "", "with callees", "function"];
    table(to, &headings, process.functions.iter().map(cells).collect());
    if process.stacks.is_empty() {
        return;
    }
    details(to, "stacks", |to| {
        let cells = |stack: &StackShare| {
            vec![
                Cell::Number(share(stack.share.get())),
                Cell::Bar(stack.share.get(), "c-count"),
                Cell::Words(words::stack(stack)),
            ]
        };
        table(to, &["share", "", "stack"], process.stacks.iter().map(cells).collect());
    });
}
