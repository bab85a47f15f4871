// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions that take most CPU time, and the stacks that were found.

use super::super::words::profile as words;
use super::markup::{Markup, class, none};
use super::{Cell, details, table};
use crate::finding::{FunctionShare, ProcessProfile, Profile, StackShare};
use crate::text::units::share;

pub(super) fn all(to: &mut Markup, profile: &Profile) {
    to.tag("p", &class("aside"), &words::sampled(profile));
    for process in &profile.processes {
        to.element("div", &class("device"), |to| of_process(to, process));
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
