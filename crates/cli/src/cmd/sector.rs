// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr sector`: finds the files that a disk's sectors belong to.

use crate::args::Messages;
use crate::collect::Roots;
use crate::failure::{Exit, Failure};
use crate::output;
use crate::progress::SearchProgress;
use crate::sector::{self, Document, Method, Part, SectorRequest, apart};
use clap::ValueEnum as _;
use deburr_core::render;
use std::ffi::OsString;
use std::io::Read as _;
use std::path::PathBuf;
use std::time::Instant;

/// Maximum number of sectors, from the arguments and from standard input together.
const MAX_SECTORS: usize = 1_000_000;
/// Maximum size of standard input, in bytes: that many sectors, with room for blanks.
const MAX_INPUT_BYTES: u64 = 24 << 20;

/// Arguments of `deburr sector`.
#[derive(Debug, clap::Args)]
pub(crate) struct SectorArgs {
    /// The disk, or a partition of it: /dev/sda, sda, 8:0
    #[arg(value_name = "DEV")]
    pub(crate) device: String,
    /// Sectors from the start of the disk, in units of 512 bytes; - reads them from standard input
    #[arg(value_name = "SECTOR", required = true)]
    pub(crate) sectors: Vec<String>,
    /// The sectors count from the start of the partition DEV
    #[arg(long)]
    pub(crate) partition_relative: bool,
    /// Ask only the files below this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) under: Option<PathBuf>,
    /// Use this method only [default: debugfs, then the files for what it does not find]
    #[arg(long, value_name = "METHOD")]
    pub(crate) method: Option<Method>,
    /// Print one JSON document (schema deburr.sector/1)
    #[arg(long)]
    pub(crate) json: bool,
    /// Look in this process
    #[arg(long, hide = true)]
    pub(crate) here: bool,
    #[command(flatten)]
    pub(crate) messages: Messages,
}

pub(crate) fn run(args: &SectorArgs) -> anyhow::Result<Exit> {
    let sectors = sectors(&args.sectors)?;
    if !args.here {
        let all = apart::run(&again(args, args.json), lines(&sectors), apart::GIVEN_UP_AFTER)?;
        let Some((text, exit)) = all else { return by_parts(args, &sectors) };
        output::print(&text)?;
        return Ok(exit);
    }
    let question = question(args, &sectors);
    let bar = SearchProgress::start(args.messages.quiet);
    let document = sector::look(&question, &Roots::default(), &mut |files, found| {
        bar.at(files, format!("{found} of {} found", sectors.len()));
    });
    bar.finish();
    print(args, &document.map_err(Failure::bad_input)?)
}

fn question<'a>(args: &'a SectorArgs, sectors: &'a [u64]) -> SectorRequest<'a> {
    SectorRequest {
        device: &args.device,
        sectors,
        partition_relative: args.partition_relative,
        method: args.method,
        under: args.under.as_deref(),
    }
}

fn print(args: &SectorArgs, document: &Document) -> anyhow::Result<Exit> {
    let text = if args.json { render::json_document(document)? } else { sector::text(document) };
    output::print(text.as_bytes())?;
    Ok(if document.looked { Exit::Done } else { Exit::Missing })
}

/// Looks at parts of the sectors, after all of them together were given up.
fn by_parts(args: &SectorArgs, sectors: &[u64]) -> anyhow::Result<Exit> {
    let why = apart::given_up();
    let begin = Instant::now();
    let mut document = sector::unknown(&question(args, sectors), &Roots::default(), &why)
        .map_err(Failure::bad_input)?;
    let arguments = again(args, true);
    let answers = apart::by_parts(
        sectors,
        || begin.elapsed() < apart::PARTS_END_AFTER,
        |part| {
            let run = apart::run(&arguments, lines(part), apart::PART_GIVEN_UP_AFTER)?;
            let Some((text, exit)) = run else { return Ok(None) };
            // Without an answer it has said why.
            let Ok(mut part) = serde_json::from_slice::<Part>(&text) else { return Ok(None) };
            document.looked |= exit == Exit::Done;
            document.note(&mut part);
            Ok(Some(part.sectors))
        },
    )?;
    if answers.iter().all(Option::is_none) {
        return Err(Failure::error(Exit::Missing, why));
    }
    document.complete(answers);
    print(args, &document)
}

/// The arguments with which this program looks itself, at sectors on its standard input.
fn again(args: &SectorArgs, json: bool) -> Vec<OsString> {
    let mut again: Vec<OsString> = vec!["sector".into(), "--here".into()];
    let mut option = |given: bool, name: &str| again.extend(given.then(|| name.into()));
    option(args.partition_relative, "--partition-relative");
    option(json, "--json");
    option(args.messages.quiet, "--quiet");
    if let Some(directory) = &args.under {
        again.extend(["--under".into(), directory.into()]);
    }
    if let Some(method) = args.method.and_then(|method| method.to_possible_value()) {
        again.extend(["--method".into(), method.get_name().into()]);
    }
    again.extend(["--".into(), args.device.as_str().into(), "-".into()]);
    again
}

fn lines(sectors: &[u64]) -> String {
    sectors.iter().flat_map(|sector| [sector.to_string(), "\n".into()]).collect()
}

/// The sectors in the arguments; for `-`, those on standard input.
fn sectors(words: &[String]) -> anyhow::Result<Vec<u64>> {
    let mut sectors = Vec::new();
    for word in words {
        if word != "-" {
            sectors.push(sector(word)?);
            continue;
        }
        let mut text = String::new();
        let stdin = std::io::stdin().lock();
        stdin.take(MAX_INPUT_BYTES + 1).read_to_string(&mut text).map_err(|error| {
            Failure::bad_input(format!("cannot read sectors from standard input: {error}"))
        })?;
        if text.len() as u64 > MAX_INPUT_BYTES {
            return Err(Failure::bad_input("too many sectors on standard input"));
        }
        for word in text.split_whitespace() {
            sectors.push(sector(word)?);
        }
    }
    if sectors.is_empty() || sectors.len() > MAX_SECTORS {
        let n = sectors.len();
        return Err(Failure::bad_input(format!("{n} sectors: give 1 to {MAX_SECTORS}")));
    }
    Ok(sectors)
}

fn sector(word: &str) -> anyhow::Result<u64> {
    let digits = word.bytes().all(|byte| byte.is_ascii_digit());
    let number = word.parse().ok().filter(|_| digits);
    number.ok_or_else(|| {
        Failure::bad_input(format!(
            "`{word}` is not a sector: give a decimal number of units of 512 bytes, or - to read \
             them from standard input"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::sector;

    #[test]
    fn a_sector_is_a_decimal_number() {
        assert_eq!(sector("254486424").unwrap(), 254_486_424);
        for word in ["", "-1", "+1", "0x10", "1.5", "99999999999999999999", "٣"] {
            assert!(sector(word).is_err(), "{word}");
        }
    }
}
