// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr sweep`: measures a service under rising load, in several variants.

use super::page::Page;
use super::show;
use crate::args::{Color, Messages, PageArgs, window};
use crate::claim::Claim;
use crate::clock::monotonic_ns;
use crate::failure::{Exit, Failure};
use crate::output;
use crate::progress::Steps;
use crate::signals::Signals;
use crate::sweep::address::{self, Address};
use crate::sweep::rates::{self, Rates};
use crate::sweep::variants::{self, VariedSetting};
use crate::sweep::{self, Plan, SweepCgroups};
use deburr_core::finding::Tool;
use deburr_core::render;
use deburr_core::sweep::{Setup, Sweep, Workload};
use deburr_core::text::name;
use deburr_core::text::units;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::Duration;

/// Maximum number of requests in one run: each is kept in memory.
const MAX_REQUESTS: f64 = 20e6;
/// Number of file descriptors that are needed besides those of the connections.
const OTHER_FILES: u64 = 64;

/// Arguments of `deburr sweep`.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("files").args(["output", "html"]).multiple(true))]
#[command(after_help = "Examples:\n  \
    deburr sweep --rate 200..4000x2 --url http://127.0.0.1:8080/work \\\n    \
        --vary env:GOMAXPROCS=4,unset --cpus 4 -- ./service\n  \
    deburr sweep --cmd --vary env:OMP_NUM_THREADS=1,2,4 --cpus 2 -- ./solve input\n\n\
    Exit status: 0 done, 2 usage or bad input, 3 no right to make cgroups, 4 output could not be written.")]
pub(crate) struct SweepArgs {
    /// Rates, in requests per second: 200..4000x2 (each twice the one before), 100..500+100, 50,100
    #[arg(long, value_name = "RATES", value_parser = rates::parse, required_unless_present = "cmd")]
    rate: Option<Rates>,
    /// What to ask for: http://127.0.0.1:8080/path, or tcp://127.0.0.1:7 for a service that echoes
    #[arg(long, value_name = "URL", required_unless_present = "cmd")]
    url: Option<String>,
    /// Measure the time that the command itself takes, instead of requests
    #[arg(long, conflicts_with_all = ["rate", "url", "accept", "warmup", "seconds", "connections"])]
    cmd: bool,
    /// What to vary: env:NAME=V1,V2,unset. Given several times, all combinations are run
    #[arg(long, value_name = "WHAT", value_parser = variants::parse)]
    vary: Vec<VariedSetting>,
    /// CPU limit of the command: 0.5, 4 [default: none]
    #[arg(long, value_name = "N", value_parser = cpus)]
    cpus: Option<f64>,
    /// How often each combination is run, interleaved
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    reps: u32,
    /// Length of each measurement
    #[arg(long, value_name = "TIME", value_parser = window, default_value = "4")]
    seconds: Duration,
    /// Load before each measurement
    #[arg(long, value_name = "TIME", value_parser = window, default_value = "1")]
    warmup: Duration,
    /// Up to which 99th percentile a service keeps up: 50ms, 0.2s [default: 10 times the lowest one]
    #[arg(long, value_name = "TIME", value_parser = latency)]
    accept: Option<Duration>,
    /// Requests under way at a time, at most
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    connections: u32,
    /// How long the service may take until it listens
    #[arg(long, value_name = "TIME", value_parser = window, default_value = "30")]
    start_timeout: Duration,
    /// Drive other machines than this one, too
    #[arg(long)]
    allow_remote: bool,
    /// Print one JSON document (schema deburr.sweep/1)
    #[arg(long)]
    json: bool,
    /// Also keep that document in this file; `-` is standard output, as with --json
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    page: PageArgs,
    /// Replace output files that exist
    #[arg(long, requires = "files")]
    force: bool,
    /// Use colour [default: auto]
    #[arg(long, value_name = "WHEN", default_value = "auto", hide_default_value = true)]
    color: Color,
    #[command(flatten)]
    messages: Messages,
    /// The command: it is started anew for each run, in a cgroup of its own, and ended after it
    #[arg(last = true, value_name = "CMD", required = true)]
    command: Vec<OsString>,
}

pub(crate) fn run(args: &SweepArgs) -> anyhow::Result<Exit> {
    let plan = plan(args)?;
    let claim = args.output.as_ref().map(|path| Claim::new(path, args.force)).transpose()?;
    let to_stdout = claim.as_ref().is_some_and(Claim::is_stdout);
    let is_taken = args.json || to_stdout;
    let page = Page::claim(&args.page, args.force, args.output.as_deref().as_slice(), is_taken)?;
    let signals = Signals::install()?;
    let mut ground = SweepCgroups::new()?;
    let quiet = args.messages.quiet;
    let steps = plan.steps();
    if !quiet {
        announce(&plan, steps.len());
    }
    let bar = Steps::start(steps.len() as u64, quiet);
    let begun_ns = monotonic_ns();
    let stop = || signals.pending().is_some();
    let (mut runs, mut failure) = (Vec::new(), None);
    for (number, step) in steps.iter().enumerate() {
        bar.at(number as u64, &plan.name(*step));
        match sweep::run(&plan, &mut ground, *step, begun_ns, &stop) {
            Ok(Some(run)) => runs.push(run),
            Ok(None) => break,
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    bar.finish();
    let cleared = ground.clear();
    let all = runs.len() == steps.len();
    if runs.is_empty()
        && let Some(error) = failure
    {
        return Err(error);
    }
    let sweep = Sweep::new(plan.setup, runs, !all);
    let document = render::json_document(&sweep)?;
    if let Some(file) = claim.filter(|_| !to_stdout) {
        file.keep(document.as_bytes())?;
    }
    if args.json || to_stdout {
        output::print(document.as_bytes())?;
    } else if !page.is_stdout() {
        output::print(render::sweep_text(&sweep, show::page(args.color)).as_bytes())?;
    }
    page.write(|| render::sweep_html(&sweep))?;
    // Runs that were measured before a failure are still reported.
    match failure {
        Some(error) => Err(error),
        None => cleared.map(|()| Exit::Done),
    }
}

fn announce(plan: &Plan, steps: usize) {
    let seconds = plan.run_seconds();
    let runs = units::counted(steps as u64, "run", "runs");
    output::say(if plan.address.is_some() {
        let all = units::duration(seconds * steps as f64 * 1e9);
        format!("{runs} of {seconds} s and what starting takes: {all} at least")
    } else {
        runs
    });
}

fn plan(args: &SweepArgs) -> anyhow::Result<Plan> {
    let address = match &args.url {
        Some(url) => Some(address::parse(url, args.allow_remote).map_err(Failure::bad_input)?),
        None => None,
    };
    let variants = variants::variants(&args.vary).map_err(Failure::bad_input)?;
    let rates_per_s = args.rate.clone().map_or(Vec::new(), |Rates(rates)| rates);
    let seconds = args.seconds.as_secs_f64();
    let warmup_s = args.warmup.as_secs_f64();
    if let Some(highest) = rates_per_s.last()
        && highest * (seconds + warmup_s) > MAX_REQUESTS
    {
        return Err(Failure::bad_input(format!(
            "{highest}/s for {} s are more than {MAX_REQUESTS} requests a run: give a lower rate or fewer --seconds",
            seconds + warmup_s
        )));
    }
    if address.is_some() {
        check_files(args.connections)?;
    }
    let (driven, of_requests) = match &address {
        Some(Address { driven, .. }) => (driven.clone(), true),
        None => (Workload::Command, false),
    };
    let setup = Setup {
        tool: Tool { version: env!("CARGO_PKG_VERSION").into() },
        host: show::host(),
        start: show::now(),
        command: args.command.iter().map(|word| name::decode(word.as_bytes())).collect(),
        driven,
        limit_cpus: args.cpus,
        seconds: if of_requests { seconds } else { 0.0 },
        warmup_s: if of_requests { warmup_s } else { 0.0 },
        repetitions: args.reps,
        rates_per_s,
        variants,
        accepted_p99_ns: args.accept.map(|it| u64::try_from(it.as_nanos()).unwrap_or(u64::MAX)),
        max_connections: of_requests.then_some(args.connections),
    };
    Ok(Plan { setup, words: args.command.clone(), address, start_timeout: args.start_timeout })
}

/// Checks that this process may open enough files: each connection is one.
fn check_files(connections: u32) -> anyhow::Result<()> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let needed = u64::from(connections) + OTHER_FILES;
    match limit {
        Some(limit) if limit < needed => Err(Failure::bad_input(format!(
            "--connections {connections} takes {needed} open files, and {limit} are allowed: `ulimit -n {needed}` \
             allows more"
        ))),
        _ => Ok(()),
    }
}

/// Parses a CPU limit: 0.01 to 10 000 CPUs.
fn cpus(text: &str) -> Result<f64, String> {
    let expected = "give a number of CPUs, at least 0.01, like 0.5 or 4";
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let cpus: f64 = text.parse().ok().filter(|_| plain).ok_or(expected)?;
    if (0.01..=10_000.0).contains(&cpus) { Ok(cpus) } else { Err(expected.into()) }
}

/// Parses a latency: like a window, but also in milliseconds.
fn latency(text: &str) -> Result<Duration, String> {
    let expected = "give a length of time, like 50ms or 0.2s";
    let Some(ms) = text.strip_suffix("ms") else {
        return window(text).map_err(|_| expected.into());
    };
    let plain = !ms.is_empty() && ms.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let ms: f64 = ms.parse().ok().filter(|_| plain).ok_or(expected)?;
    match Duration::try_from_secs_f64(ms / 1000.0) {
        Ok(latency) if !latency.is_zero() => Ok(latency),
        _ => Err(expected.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_latencies() {
        assert_eq!(cpus("0.25"), Ok(0.25));
        assert_eq!(cpus("4"), Ok(4.0));
        for text in ["", "0", "0.001", "-1", "inf", "nan", "1e3", "20000", "4 CPUs"] {
            assert!(cpus(text).is_err(), "{text}");
        }
        assert_eq!(latency("50ms"), Ok(Duration::from_millis(50)));
        assert_eq!(latency("0.2s"), Ok(Duration::from_millis(200)));
        for text in ["", "ms", "0ms", "-5ms", "1e3ms", "infms", "50us"] {
            assert!(latency(text).is_err(), "{text}");
        }
    }
}
