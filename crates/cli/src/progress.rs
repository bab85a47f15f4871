// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How far the observation is: a bar on stderr where that is a terminal, nothing elsewhere.

use crate::clock::SECOND_NS;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;

/// The bar.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Shows a bar for a window of `asked_ns`, or a count of seconds where the end is open.
    pub(crate) fn start(asked_ns: Option<u64>, quiet: bool) -> Self {
        let shown = !quiet && std::io::stderr().is_terminal();
        let target = if shown {
            ProgressDrawTarget::stderr_with_hz(2)
        } else {
            ProgressDrawTarget::hidden()
        };
        let length_s = asked_ns.map(|ns| ns.div_ceil(SECOND_NS));
        let template = match length_s {
            Some(_) => "observing {wide_bar} {pos}/{len} s",
            None => "observing, {pos} s so far; ctrl-c ends it and reports",
        };
        let style = ProgressStyle::with_template(template).expect("a constant template");
        let bar = ProgressBar::with_draw_target(length_s, target).with_style(style);
        Self { bar }
    }

    /// So much of the window went by.
    pub(crate) fn at(&self, t_ns: u64) {
        self.bar.set_position(t_ns / SECOND_NS);
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Stages of a longer work, each with a bar of its own.
#[derive(Debug)]
pub(crate) struct Stages {
    bar: ProgressBar,
}

impl Stages {
    /// Shows nothing before the first stage.
    pub(crate) fn start(quiet: bool) -> Self {
        let shown = !quiet && std::io::stderr().is_terminal();
        let target = if shown {
            ProgressDrawTarget::stderr_with_hz(4)
        } else {
            ProgressDrawTarget::hidden()
        };
        let style = ProgressStyle::with_template("{prefix:9} {wide_bar} {percent:>3} % {msg:20}");
        let style = style.expect("a constant template");
        Self { bar: ProgressBar::with_draw_target(Some(1), target).with_style(style) }
    }

    /// Begins a stage.
    pub(crate) fn stage(&self, name: &'static str, length: u64) {
        self.bar.set_prefix(name);
        self.bar.set_length(length.max(1));
        self.bar.set_position(0);
    }

    /// So much of it is done, and this comes now.
    pub(crate) fn at(&self, done: u64, now: &str) {
        self.bar.set_message(now.to_owned());
        self.bar.set_position(done);
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// A count of things whose number is not known beforehand.
#[derive(Debug)]
pub(crate) struct Counted {
    bar: ProgressBar,
}

impl Counted {
    /// Shows nothing before there is something to tell.
    pub(crate) fn start(quiet: bool) -> Self {
        let shown = !quiet && std::io::stderr().is_terminal();
        let target = if shown {
            ProgressDrawTarget::stderr_with_hz(2)
        } else {
            ProgressDrawTarget::hidden()
        };
        let style = ProgressStyle::with_template("asked {human_pos} files, {msg}");
        let style = style.expect("a constant template");
        let bar = ProgressBar::with_draw_target(None, target).with_style(style);
        Self { bar }
    }

    /// So many files were asked.
    pub(crate) fn at(&self, files: u64, found: String) {
        self.bar.set_message(found);
        self.bar.set_position(files);
    }

    /// Takes the line away.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Steps of an experiment, whose number is known.
#[derive(Debug)]
pub(crate) struct Steps {
    bar: ProgressBar,
}

impl Steps {
    /// Shows a bar of so many steps.
    pub(crate) fn start(steps: u64, quiet: bool) -> Self {
        let shown = !quiet && std::io::stderr().is_terminal();
        let target = if shown {
            ProgressDrawTarget::stderr_with_hz(2)
        } else {
            ProgressDrawTarget::hidden()
        };
        let style = ProgressStyle::with_template("run {pos}/{len} {wide_bar} {msg}");
        let style = style.expect("a constant template");
        Self { bar: ProgressBar::with_draw_target(Some(steps), target).with_style(style) }
    }

    /// Begins a step, counted from 0.
    pub(crate) fn at(&self, step: u64, what: &str) {
        self.bar.set_message(deburr_core::render::message(what));
        self.bar.set_position(step + 1);
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
