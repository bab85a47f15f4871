// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Prints reports on stdout.

use crate::args::{Color, Level, ShowArgs};
use crate::collect::{Cgroups, Roots, cpus_online};
use crate::failure::Exit;
use crate::output;
use anstream::{AutoStream, ColorChoice};
use anyhow::Context as _;
use deburr_core::cpu_check::Document;
use deburr_core::finding::{Host, Report, Severity};
use deburr_core::render::{self, TextStyle};
use deburr_core::text::name;
use std::io;

/// Maximum width of the text: longer lines are hard to read.
const MAX_COLUMNS: usize = 100;

/// Prints the report as text or JSON.
pub(super) fn report(report: &Report, show: &ShowArgs) -> anyhow::Result<()> {
    let text = if show.json {
        render::json(report).context("the report holds a number that JSON cannot have")?
    } else {
        render::text(report, style(show))
    };
    output::print(text.as_bytes())
}

/// Prints the result of a CPU check as text or JSON.
pub(super) fn cpu_check(document: &Document, show: &ShowArgs) -> anyhow::Result<()> {
    let text = if show.json {
        render::json_document(document)?
    } else {
        render::cpu_check(document, style(show))
    };
    output::print(text.as_bytes())
}

/// Exit status: whether a finding reaches the level of `--fail-on`.
pub(super) fn exit(report: &Report, show: &ShowArgs) -> Exit {
    let worst = report.findings.iter().map(|finding| finding.severity).max();
    let limit = show.fail_on.map(<Level as Into<Severity>>::into);
    match (worst, limit) {
        (Some(worst), Some(limit)) if worst >= limit => Exit::Found,
        _ => Exit::Done,
    }
}

/// Style of the text, as the options ask.
pub(super) fn style(show: &ShowArgs) -> TextStyle {
    let verbosity = if show.messages.quiet { 0 } else { 1 + u8::from(show.verbose) };
    TextStyle { verbosity, ..page(show.color) }
}

/// Style with the width and colour that suit stdout.
pub(super) fn page(color: Color) -> TextStyle {
    let stdout = io::stdout();
    let choice = match color {
        // Honours NO_COLOR, CLICOLOR, TERM and whether stdout is a terminal.
        Color::Auto => AutoStream::choice(&stdout),
        Color::Always => ColorChoice::Always,
        Color::Never => ColorChoice::Never,
    };
    let columns = rustix::termios::tcgetwinsize(&stdout).map_or(0, |size| usize::from(size.ws_col));
    TextStyle {
        columns: if columns == 0 { MAX_COLUMNS } else { columns.min(MAX_COLUMNS) },
        color: choice != ColorChoice::Never,
        verbosity: 1,
    }
}

/// This host, for a document.
pub(super) fn host() -> Host {
    let roots = Roots::default();
    let host = rustix::system::uname();
    Host {
        name: name::decode(host.nodename().to_bytes()),
        kernel: name::decode(host.release().to_bytes()),
        cpus: u32::try_from(cpus_online(&roots).len()).unwrap_or(u32::MAX),
        cgroup: Cgroups::open(&roots).layout().into(),
    }
}

/// The time, for a document: RFC 3339 in UTC, in whole seconds.
pub(super) fn now() -> String {
    let now = jiff::Timestamp::now().as_second();
    jiff::Timestamp::from_second(now).unwrap_or_default().to_string()
}
