// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arguments that several commands share.

use clap::{Args, ValueEnum};
use deburr_core::finding::Severity;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Longest window: a day. Longer observations are not diagnoses any more.
const MAX_WINDOW: Duration = Duration::from_secs(24 * 60 * 60);

/// What to look at, and for how long.
#[derive(Debug, Args)]
pub(crate) struct ObserveArgs {
    /// How long: 30, 30s, 5m, 1h [default: 30s; with a command: until it ends]
    #[arg(short, long, value_name = "TIME", value_parser = window, allow_negative_numbers = true)]
    pub(crate) duration: Option<Duration>,
    #[command(flatten)]
    pub(crate) target: Target,
    /// These threads of the target serve requests: one by its id, those of a name (with `*` at its end, all that begin
    /// so), or those that serve clients of a port. Where a number may be two of these: tid:N, name:N, port:N. May be
    /// given more than once
    #[arg(long, value_name = "TID|NAME|PORT")]
    pub(crate) entry: Vec<String>,
    #[command(flatten)]
    pub(crate) asked: Asked,
    /// Command to start and to look at until it ends; it runs as the same user, its exit status is not
    /// passed on, and with --json its stdout goes to stderr
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// What is observed only, or otherwise than usual, because the user asked for it. It goes to the collectors as it is.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Asked {
    /// Follow one in so many requests of block devices, whatever that costs [default: as many as 1 % of a CPU
    /// is enough for]
    #[arg(long, value_name = "N", hide = true, value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    pub(crate) io_one_in: Option<u32>,
    /// Count system calls, too: of the target, or of the processes that use most system time. Makes every system
    /// call of this host a little slower meanwhile
    #[arg(long)]
    pub(crate) syscalls: bool,
    /// Name the functions in which CPU time is spent, and in which threads of the target sleep, too: samples the stacks of what
    /// runs about 99 times a second on each CPU, and those with which threads go to sleep and are woken
    #[arg(long)]
    pub(crate) profile: bool,
}

/// At most one of these; without any, the whole host.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct Target {
    /// Look at this process
    #[arg(short, long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// Look at all processes of this name
    #[arg(long, value_name = "NAME")]
    pub(crate) comm: Option<String>,
    /// Look at this cgroup and those below it
    #[arg(long, value_name = "PATH")]
    pub(crate) cgroup: Option<String>,
    /// Look at this container
    #[arg(long, value_name = "ID|NAME")]
    pub(crate) container: Option<String>,
}

/// How a report is shown.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Print the report as one JSON document (schema deburr.report/1)
    #[arg(long)]
    pub(crate) json: bool,
    /// Exit with status 1 if there is a finding of this level or worse
    #[arg(long, value_name = "LEVEL")]
    pub(crate) fail_on: Option<Level>,
    /// Show all evidence, and every table of block IO
    #[arg(short, long, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    /// Use colour [default: auto]
    #[arg(long, value_name = "WHEN", default_value = "auto", hide_default_value = true)]
    pub(crate) color: Color,
    #[command(flatten)]
    pub(crate) messages: Messages,
}

/// The page that is written besides the text.
#[derive(Debug, Args)]
pub(crate) struct PageArgs {
    /// Also write the report into this file, as one HTML page that needs no other; `-` is standard output, instead of
    /// the text
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Messages {
    /// Show the essential only, and no progress
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Level {
    Info,
    Low,
    Medium,
    High,
}

impl From<Level> for Severity {
    fn from(level: Level) -> Self {
        match level {
            Level::Info => Self::Info,
            Level::Low => Self::Low,
            Level::Medium => Self::Medium,
            Level::High => Self::High,
        }
    }
}

/// Parses the length of a window.
pub(crate) fn window(text: &str) -> Result<Duration, String> {
    let accepted = "give more than 0 and at most 24h, like 30, 30s, 5m, 1h or 0.5s";
    let (number, unit_s) = match text.as_bytes().last() {
        Some(b's') => (&text[..text.len() - 1], 1.0),
        Some(b'm') => (&text[..text.len() - 1], 60.0),
        Some(b'h') => (&text[..text.len() - 1], 3600.0),
        _ => (text, 1.0),
    };
    // `f64::from_str` also takes `inf`, `nan` and `1e9`.
    if !number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(format!("not a length of time; {accepted}"));
    }
    let seconds = number.parse::<f64>().map_err(|_| format!("not a length of time; {accepted}"))?;
    match Duration::try_from_secs_f64(seconds * unit_s) {
        Ok(window) if !window.is_zero() && window <= MAX_WINDOW => Ok(window),
        _ => Err(format!("out of range; {accepted}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lengths_of_time() {
        for (text, ms) in [
            ("30", 30_000),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
            ("24h", 86_400_000),
            ("0.5s", 500),
            (".1", 100),
        ] {
            assert_eq!(window(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in
            ["", "0", "0s", "-1", "1e9", "25h", "inf", "nan", "s", "5 m", "5d", "1.2.3", "٣"]
        {
            let error = window(text).expect_err(text);
            assert!(error.contains("5m"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn a_length_of_time_is_never_zero_or_longer_than_a_day(text in "\\PC*|[0-9.]{1,30}[smh]?") {
            if let Ok(window) = window(&text) {
                prop_assert!(!window.is_zero() && window <= MAX_WINDOW);
            }
        }
    }
}
