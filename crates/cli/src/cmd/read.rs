// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr read`: reads the output of other tools.

use super::page::Page;
use super::show;
use crate::args::{PageArgs, ShowArgs};
use crate::failure::{Exit, Failure};
use crate::{deadline, document, output};
use deburr_core::finding::Severity;
use deburr_core::render;
use deburr_core::rules;
use deburr_core::transcript::{Document, Given, Judged, MAX_LINE_BYTES, Reader, Transcript};
use deburr_core::view::Fold;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Most bytes of a file. Of the longest lines that tools print, ten million.
const MAX_BYTES: u64 = 2 << 30;
/// Most files in one call.
const MAX_FILES: usize = 1000;

/// Arguments of `deburr read`.
#[derive(Debug, clap::Args)]
#[command(
    mut_arg("json", |arg| arg.help("Print one JSON document (schema deburr.read/1)")),
    mut_arg("verbose", |arg| arg.help("Show all numbers, and all that was not understood")),
    mut_arg("fail_on", |arg| arg.help("Exit with status 1 if a rule has a finding of this level or worse")),
    after_help = "Examples:\n  \
        vmstat 1 10 | deburr read --cpus 4 -\n  \
        deburr read iostat.txt biosnoop.txt fdisk.txt\n\n\
        Files that are read together are taken for one host at one time. docs/read.md lists what is read.\n\n\
        Exit status: 0 done, 1 done and --fail-on was met, 2 usage or bad input, or nothing in it was understood, \
        4 output could not be written."
)]
pub(crate) struct ReadArgs {
    /// What the tools printed; - is standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Number of CPUs of the host, where the text does not say it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=8192))]
    cpus: Option<u32>,
    /// Seconds between two reports, where the text does not say it
    #[arg(long, value_name = "S", value_parser = interval)]
    interval: Option<f64>,
    #[command(flatten)]
    page: PageArgs,
    /// Replace the page if it exists
    #[arg(long, requires = "html")]
    force: bool,
    #[command(flatten)]
    show: ShowArgs,
}

fn interval(text: &str) -> Result<f64, String> {
    let seconds = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.')
        .then(|| text.parse::<f64>().ok());
    let seconds = seconds.flatten().filter(|s| (0.001..=86_400.0).contains(s));
    seconds.ok_or_else(|| "give seconds, from 0.001 to 86400".to_owned())
}

pub(crate) fn run(args: &ReadArgs) -> anyhow::Result<Exit> {
    if args.files.len() > MAX_FILES {
        let n = args.files.len();
        return Err(Failure::bad_input(format!("{n} files: give {MAX_FILES} at most")));
    }
    let inputs: Vec<&Path> = args.files.iter().map(PathBuf::as_path).collect();
    let page = Page::claim(&args.page, args.force, &inputs, args.show.json)?;
    let mut reader = Reader::new(Given { cpus: args.cpus, interval_s: args.interval });
    for path in &args.files {
        let name = path.to_string_lossy().into_owned();
        reader.file(&name);
        reader = if name == "-" {
            // Whoever pipes into this may take as long as they like.
            lines(&mut io::stdin().lock(), reader, &name)?
        } else {
            let file = document::open(path)?;
            let most = deadline::of_file(path);
            let shown = format!("`{name}`");
            deadline::within(most, shown, move || lines(&mut BufReader::new(file), reader, &name))??
        };
    }
    let document = deadline::within(deadline::MOST, "what the files hold", || judged(reader))?;
    let text = match args.show.json {
        true => render::json_document(&document)?,
        false => render::read_text(&document, show::style(&args.show)),
    };
    if !page.is_stdout() {
        output::print(text.as_bytes())?;
    }
    page.write(|| render::read_html(&document))?;
    if document.files.iter().all(|file| file.sections.is_empty()) {
        return Err(Failure::bad_input(
            "nothing in it was understood: `deburr read` knows the output of the tools in docs/read.md",
        ));
    }
    Ok(exit(&document, &args.show))
}

/// Reads a file to its end, line after line. What of a line is longer than [`MAX_LINE_BYTES`] is not kept.
fn lines(from: &mut impl BufRead, mut reader: Reader, name: &str) -> anyhow::Result<Reader> {
    let failed = |error| Failure::bad_input(format!("cannot read `{name}`: {error}"));
    let mut left = MAX_BYTES;
    let mut line = Vec::new();
    loop {
        line.clear();
        let most = (MAX_LINE_BYTES as u64 + 2).min(left);
        let read = from.by_ref().take(most).read_until(b'\n', &mut line).map_err(failed)?;
        left -= read as u64;
        if read == 0 && left > 0 {
            return Ok(reader);
        }
        if left == 0 {
            return Err(Failure::bad_input(format!(
                "`{name}` is longer than {} GiB",
                MAX_BYTES >> 30
            )));
        }
        if line.last() != Some(&b'\n') && line.len() > MAX_LINE_BYTES {
            left = left.saturating_sub(skip_line(from, left).map_err(failed)?);
        }
        reader.line(&line);
    }
}

/// Skips the rest of a line. The result is its length.
fn skip_line(from: &mut impl BufRead, most: u64) -> io::Result<u64> {
    let mut skipped = 0;
    while skipped < most {
        let buffer = from.fill_buf()?;
        if buffer.is_empty() {
            break;
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let n = end.map_or(buffer.len(), |at| at + 1);
        from.consume(n);
        skipped += n as u64;
        if end.is_some() {
            break;
        }
    }
    Ok(skipped)
}

/// What was read, and what the rules say of it.
fn judged(reader: Reader) -> Document {
    let version = env!("CARGO_PKG_VERSION");
    let Transcript { mut document, records, recorded_from } = reader.finish(version);
    if records.is_empty() {
        return document;
    }
    let mut fold = Fold::default();
    records.iter().for_each(|record| fold.push(record));
    let report = rules::report(fold.view(), version, false);
    // Rules about the observer have nothing to say of what another tool observed.
    let other = |code: &str| !code.starts_with("OBS");
    document.rules = Some(Judged {
        from: recorded_from,
        seconds: report.window.seconds,
        findings: report.findings.into_iter().filter(|it| other(&it.code)).collect(),
        ruled_out: report.ruled_out.into_iter().filter(|it| other(&it.code)).collect(),
        not_checked: report.not_checked.into_iter().filter(|it| other(&it.code)).collect(),
    });
    document
}

/// Exit status: whether a finding of the rules reaches the level of `--fail-on`.
pub(super) fn exit(document: &Document, show: &ShowArgs) -> Exit {
    let findings = document.rules.iter().flat_map(|judged| &judged.findings);
    let worst = findings.map(|finding| finding.severity).max();
    let limit = show.fail_on.map(Severity::from);
    if limit.is_some() && worst >= limit { Exit::Found } else { Exit::Done }
}
