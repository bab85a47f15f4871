// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Progress displays on stderr. Nothing is shown where stderr is not a terminal.

use crate::clock::SECOND_NS;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;

/// Progress of an observation.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Shows a bar for a window of `asked_ns`, or a count of seconds if the window has no set length.
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

    /// Sets the time since the start of the window.
    pub(crate) fn at(&self, t_ns: u64) {
        self.bar.set_position(t_ns / SECOND_NS);
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Progress of work in several stages, each with a bar of its own.
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

    /// Begins a stage of `length` units.
    pub(crate) fn stage(&self, name: &'static str, length: u64) {
        self.bar.set_prefix(name);
        self.bar.set_length(length.max(1));
        self.bar.set_position(0);
    }

    /// Sets how many units of the stage are done, and names the one that comes now.
    pub(crate) fn at(&self, done: u64, now: &str) {
        self.bar.set_message(now.to_owned());
        self.bar.set_position(done);
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Progress of a search through files whose number is not known beforehand.
#[derive(Debug)]
pub(crate) struct SearchProgress {
    bar: ProgressBar,
}

impl SearchProgress {
    /// Shows nothing before the first count.
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

    /// Sets the number of files that were searched, and a text about what was found.
    pub(crate) fn at(&self, files: u64, found: String) {
        self.bar.set_message(found);
        self.bar.set_position(files);
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Progress of an experiment with a known number of steps.
#[derive(Debug)]
pub(crate) struct Steps {
    bar: ProgressBar,
}

impl Steps {
    /// Shows a bar of `steps` steps.
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

    /// Begins a step, counted from 0, with a description.
    pub(crate) fn at(&self, step: u64, what: &str) {
        self.bar.set_message(deburr_core::render::message(what));
        self.bar.set_position(step + 1);
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
