// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reports as HTML pages: where one goes, and reading one back.

use super::show;
use crate::args::{PageArgs, ShowArgs};
use crate::claim::{Claim, is_stdout};
use crate::deadline;
use crate::document;
use crate::failure::{Exit, Failure};
use crate::output;
use anyhow::Context as _;
use deburr_core::cpu_check::Document;
use deburr_core::finding::Report;
use deburr_core::render::{self, InPage};
use deburr_core::view::{Fold, Plots};
use std::path::Path;

/// Bytes at the beginning of a file that tell whether it is a page.
const START_BYTES: u64 = 16;

/// Where the page goes, if one is asked for.
#[derive(Debug)]
pub(super) struct Page(Option<Claim>);

impl Page {
    /// Claims the file of the page, before anything is observed or read. `others` are the other files of the
    /// command, which a page must not replace, and `json` tells whether standard output is taken.
    ///
    /// # Errors
    /// As for [`Claim::new`], and if two outputs have one place.
    pub(super) fn claim(
        args: &PageArgs,
        force: bool,
        others: &[&Path],
        json: bool,
    ) -> anyhow::Result<Self> {
        let Some(path) = &args.html else { return Ok(Self(None)) };
        if !is_stdout(path) && others.iter().any(|other| same_file(other, path)) {
            let shown = path.display();
            return Err(Failure::bad_input(format!("`{shown}` is given twice; name another page")));
        }
        let claim = Claim::new(path, force)?;
        if claim.is_stdout() && json {
            let both =
                "--json and the page of --html would both go to standard output; name a file";
            return Err(Failure::bad_input(both));
        }
        Ok(Self(Some(claim)))
    }

    /// A fold that keeps what a page shows, if one is asked for.
    pub(super) fn fold(&self) -> Fold {
        if self.0.is_some() { Fold::with_plots() } else { Fold::default() }
    }

    /// Whether standard output is for the page.
    pub(super) fn is_stdout(&self) -> bool {
        self.0.as_ref().is_some_and(Claim::is_stdout)
    }

    /// Shows a report, and writes the page. The text comes first: it is there even if the page cannot be written.
    pub(super) fn show_report(
        &self,
        report: &Report,
        plots: Option<&Plots>,
        check: Option<&Document>,
        show: &ShowArgs,
    ) -> anyhow::Result<Exit> {
        if !self.is_stdout() {
            show::report(report, show)?;
        }
        self.write(|| render::html(report, plots, check))?;
        Ok(show::exit(report, show))
    }

    /// Writes the page, if one is asked for.
    pub(super) fn write(
        &self,
        page: impl FnOnce() -> Result<String, serde_json::Error>,
    ) -> anyhow::Result<()> {
        let Some(claim) = &self.0 else { return Ok(()) };
        let html = page().context("the result holds a number that JSON cannot have")?;
        claim.keep(html.as_bytes())
    }
}

fn same_file(a: &Path, b: &Path) -> bool {
    let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    whole(a) == whole(b)
}

/// What a page holds that was written by [`Page`]; `None` if the file is something else.
///
/// # Errors
/// If it is a page without a report or a check, or one that is too large.
pub(super) fn in_page(file: &Path) -> anyhow::Result<Option<InPage>> {
    // Looking at a pipe would take something out of it.
    if !file.metadata().is_ok_and(|meta| meta.is_file()) {
        return Ok(None);
    }
    let path = file.to_owned();
    let shown = file.display();
    deadline::within(deadline::MOST, format_args!("`{shown}`"), move || {
        let shown = path.display();
        if !render::is_page(&document::read(&path, START_BYTES)?) {
            return Ok(None);
        }
        let page = document::read(&path, render::MAX_PAGE_BYTES)?;
        if page.len() as u64 > render::MAX_PAGE_BYTES {
            let most = render::MAX_PAGE_BYTES >> 20;
            return Err(Failure::bad_input(format!("`{shown}` is longer than {most} MiB")));
        }
        let read = render::read_page(&page);
        let read = read.map_err(|why| Failure::bad_input(format!("`{shown}` {why}")))?;
        output::say(format!(
            "`{shown}` is a page: what follows is what it says, commands too, and nothing of it was checked here"
        ));
        Ok(Some(read))
    })?
}
