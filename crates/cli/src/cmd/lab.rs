// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr lab`: reproduces an incident, observes it, and compares the findings with the expected ones.

use crate::claim::{self, Claim};
use crate::failure::{Exit, Failure};
use crate::host::guard::REMOVE_TIMEOUT;
use crate::host::journal::recover;
use crate::lab::{
    self, Interrupted, Keep, Outcome, Proved, RemedyEffect, Scenario, Settings, Stop, Verdict,
};
use crate::output;
use anyhow::{Result, ensure};
use deburr_core::render;
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `deburr lab`.
#[derive(Debug, clap::Args)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

impl LabArgs {
    /// Whether this is the command that undoes what was left behind.
    pub(crate) fn cleans(&self) -> bool {
        matches!(self.command, LabCommand::Clean)
    }
}

#[derive(Debug, clap::Subcommand)]
enum LabCommand {
    /// List the scenarios, what they expect and whether they run here
    List,
    /// Run a scenario twice, without and with its fault, and check what deburr says of it
    #[command(after_help = "Exit status: 0 as expected, 1 not as expected, 2 usage or bad input, \
                            3 what it needs is not here, 4 not as expected three times while the \
                            hypervisor or others took the CPUs: inconclusive, 130 interrupted.")]
    Run(RunArgs),
    /// Undo what a run left behind that was killed together with its guard
    #[command(
        after_help = "Exit status: 0 nothing is left, 1 something could not be undone, 3 not root."
    )]
    Clean,
    /// Run scenarios several times with other numbers, and count what is found rightly
    #[command(
        after_help = "Exit status: 0 all right, 1 not all right, 2 usage or bad input. A signal ends it early; \
                            what was run until then is counted."
    )]
    Score(ScoreArgs),
}

#[derive(Debug, clap::Args)]
struct ScoreArgs {
    /// Scenarios' names, as for `lab run` [default: all]
    names: Vec<String>,
    /// How often each is run
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// What the numbers of the first runs depend on; the next run's seed is one more
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Add each run to this file, a line of JSON each, and count what is there already
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Write the scorecard to this file as a document (docs/scorecard.md)
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Replace the file of --write if it exists
    #[arg(long, requires = "write")]
    force: bool,
    /// Run nothing: count what is in the file of `--log`
    #[arg(long, requires = "log")]
    count: bool,
    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
    /// As for `lab run`
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    weight: u32,
    /// After each run of a scenario, run the experiments that it names, too, as `lab run --prove` does, and count them
    #[arg(long, conflicts_with = "count")]
    prove: bool,
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// A scenario's name, or what several names begin with: `quota`, `neighbour-8`, `neighbour`
    name: String,
    /// Length of the observation with the fault, in seconds [default: the scenario's]; that without it is half as long
    #[arg(short = 'd', long, alias = "duration", value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: Option<u32>,
    /// Keep the recording of the run with the fault; what is not the lab's own goes in without its names
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
    /// Keep the recording of the run without the fault likewise; that run is then as long as the other. For `deburr
    /// compare`
    #[arg(long, value_name = "FILE")]
    keep_control: Option<PathBuf>,
    /// Replace the files of --keep and --keep-control if they exist
    #[arg(long)]
    force: bool,
    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
    /// CPU weight of the lab's cgroup, in multiples of the default; more than 1 shields the lab from other
    /// load on the host, at the expense of that load
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    weight: u32,
    /// Instead: make the fault, do what the first remedy with a command says, and see whether the loss falls as it
    /// promises
    #[arg(long, conflicts_with_all = ["keep", "keep_control"])]
    remedy: bool,
    /// Instead: make the fault, run the experiments that the scenario names (`deburr prove`) meanwhile, and see whether each
    /// says what is known of the scenario
    #[arg(long, conflicts_with_all = ["keep", "keep_control", "remedy", "seconds"])]
    prove: bool,
}

/// The document of `lab run --prove --json`.
#[derive(Serialize)]
struct ProveDocument<'a> {
    schema: &'static str,
    passed: bool,
    verdict: Verdict,
    experiments: &'a [Proved],
}

/// The document of `lab run --remedy --json`.
#[derive(Serialize)]
struct RemedyDocument<'a> {
    schema: &'static str,
    passed: bool,
    verdict: Verdict,
    remedies: &'a [RemedyEffect],
}

/// The document of `lab run --json`; field names are stable, additions only.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    passed: bool,
    verdict: Verdict,
    runs: &'a [Outcome],
}

const PASSED: u8 = 0;
const FAILED: u8 = 1;
const NEEDS_NOT_MET: u8 = 3;
const INCONCLUSIVE: u8 = 4;
/// 128 + SIGINT, as in shells.
const INTERRUPTED: u8 = 130;

pub(crate) fn run(args: &LabArgs) -> Result<ExitCode> {
    match &args.command {
        LabCommand::List => {
            output::print(lab::list(&lab::scenarios()?).as_bytes())?;
            Ok(ExitCode::from(PASSED))
        }
        LabCommand::Clean => Ok(ExitCode::from(if clean()? { PASSED } else { FAILED })),
        LabCommand::Score(args) => score(args),
        LabCommand::Run(args) => match run_selected(args) {
            Err(error) if error.is::<Interrupted>() => {
                output::say(Interrupted);
                Ok(ExitCode::from(INTERRUPTED))
            }
            result => result,
        },
    }
}

/// Undoes what journals name whose runner and janitor are both gone. Returns whether nothing is left.
pub(super) fn clean() -> Result<bool> {
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::error(Exit::Missing, "only root can undo what the lab changed"));
    }
    let recovered = recover(REMOVE_TIMEOUT);
    recovered.left.iter().chain(&recovered.failed).for_each(output::say);
    for name in &recovered.undone {
        output::print(format!("undone: `{name}`\n").as_bytes())?;
    }
    let failed = !recovered.failed.is_empty();
    if recovered.undone.is_empty() && !failed {
        output::print(b"nothing was left behind\n")?;
    }
    Ok(!failed)
}

fn run_selected(args: &RunArgs) -> Result<ExitCode> {
    let mut scenarios = lab::select(&args.name)?;
    if args.prove {
        scenarios.retain(|scenario| !scenario.experiments.is_empty());
        if scenarios.is_empty() {
            let all = lab::scenarios()?;
            let with = all.iter().filter(|scenario| !scenario.experiments.is_empty());
            let with: Vec<&str> = with.map(|scenario| &*scenario.name).collect();
            return Err(Failure::bad_input(format!(
                "`{}` names no experiment; scenarios that do: {}",
                args.name,
                with.join(", ")
            )));
        }
    }
    let kept = args.keep.iter().chain(&args.keep_control).next();
    ensure!(
        kept.is_none() || scenarios.len() == 1,
        "`--keep` takes one recording, but `{}` means {} scenarios",
        args.name,
        scenarios.len()
    );
    if args.force && kept.is_none() {
        return Err(Failure::bad_input(
            "--force: give a file to replace, with --keep or --keep-control",
        ));
    }
    let open =
        |path: &Option<PathBuf>| path.as_ref().map(|path| Keep::new(path, args.force)).transpose();
    let (keep, keep_control) = (open(&args.keep)?, open(&args.keep_control)?);
    if let (Some(keep), Some(control)) = (&keep, &keep_control)
        && keep.path() == control.path()
    {
        return Err(Failure::bad_input("--keep and --keep-control are the same file"));
    }
    let mut runnable = true;
    for scenario in &scenarios {
        for reason in scenario.needs.iter().filter_map(|need| need.unmet()) {
            output::say(format!("`{}` cannot run here: {reason}", scenario.name));
            runnable = false;
        }
    }
    if !runnable {
        return Ok(ExitCode::from(NEEDS_NOT_MET));
    }
    let stop = Stop::on_signals()?;
    if args.remedy {
        return run_remedies(&scenarios, args, &stop);
    }
    if args.prove {
        return run_experiments(&scenarios, args, &stop);
    }
    let mut outcomes = Vec::new();
    for scenario in &scenarios {
        let settings = settings(scenario, args, [keep.as_ref(), keep_control.as_ref()]);
        outcomes.push(run_one(scenario, args, &settings, &stop)?);
    }
    let verdict = Verdict::worst(outcomes.iter().map(|outcome| outcome.verdict));
    let passed = verdict == Verdict::Passed;
    if args.json {
        let document = Document { schema: "deburr.lab/1", passed, verdict, runs: &outcomes };
        output::print(render::json_document(&document)?.as_bytes())?;
    }
    Ok(exit_code(verdict))
}

fn score(args: &ScoreArgs) -> Result<ExitCode> {
    let mut scenarios = Vec::new();
    for name in &args.names {
        scenarios.extend(lab::select_texts(name)?);
    }
    if scenarios.is_empty() {
        scenarios = lab::all_texts();
    }
    let card_file = args.write.as_ref().map(|path| Claim::new(path, args.force)).transpose()?;
    if let Some(log) = args.log.as_ref().filter(|_| !args.count) {
        claim::append(log)?;
    }
    let plan = lab::Plan {
        scenarios,
        runs: if args.count { 0 } else { args.runs },
        seed: args.seed,
        weight: args.weight,
        prove: args.prove,
        log: args.log.as_deref(),
    };
    let stop = Stop::on_signals()?;
    let mut progress = |what: &str| output::say(what);
    let runs = lab::score(&plan, &stop, &mut progress)?;
    let card = lab::Scorecard::of(&runs);
    if let Some(file) = &card_file {
        file.keep(card.markdown().as_bytes())?;
    }
    if args.json {
        output::print(render::json_document(&card)?.as_bytes())?;
    } else if !card_file.as_ref().is_some_and(Claim::is_stdout) {
        output::print(card.text().as_bytes())?;
    }
    Ok(ExitCode::from(if card.is_all_right() { PASSED } else { FAILED }))
}

fn settings<'a>(
    scenario: &Scenario,
    args: &RunArgs,
    [keep, keep_control]: [Option<&'a Keep>; 2],
) -> Settings<'a> {
    let seconds = args.seconds.unwrap_or(scenario.seconds);
    Settings { seconds, weight: args.weight, keep, keep_control }
}

fn run_remedies(scenarios: &[Scenario], args: &RunArgs, stop: &Stop) -> Result<ExitCode> {
    let mut progress = |what: &str| output::say(what);
    let mut remedies = Vec::new();
    let mut verdict = Verdict::Passed;
    for scenario in scenarios {
        let one =
            lab::remedy(scenario, &settings(scenario, args, [None, None]), stop, &mut progress)?;
        verdict = Verdict::worst([verdict, one.verdict]);
        remedies.push(one);
    }
    if args.json {
        let passed = verdict == Verdict::Passed;
        let schema = "deburr.lab/1";
        let document = RemedyDocument { schema, passed, verdict, remedies: &remedies };
        output::print(render::json_document(&document)?.as_bytes())?;
    } else {
        remedies.iter().try_for_each(|it| output::print(lab::remedied(it).as_bytes()))?;
    }
    Ok(exit_code(verdict))
}

fn run_experiments(scenarios: &[Scenario], args: &RunArgs, stop: &Stop) -> Result<ExitCode> {
    let mut progress = |what: &str| output::say(what);
    let mut experiments = Vec::new();
    for scenario in scenarios {
        let proved = lab::prove(scenario, args.weight, stop, &mut progress)?;
        if !args.json {
            proved.iter().try_for_each(|it| output::print(lab::proved(it).as_bytes()))?;
        }
        experiments.extend(proved);
    }
    let verdict = Verdict::worst(experiments.iter().map(|it| it.verdict));
    if args.json {
        let passed = verdict == Verdict::Passed;
        let schema = "deburr.lab/1";
        let document = ProveDocument { schema, passed, verdict, experiments: &experiments };
        output::print(render::json_document(&document)?.as_bytes())?;
    }
    Ok(exit_code(verdict))
}

fn exit_code(verdict: Verdict) -> ExitCode {
    ExitCode::from(match verdict {
        Verdict::Passed => PASSED,
        Verdict::Failed => FAILED,
        Verdict::Inconclusive => INCONCLUSIVE,
    })
}

fn run_one(
    scenario: &Scenario,
    args: &RunArgs,
    settings: &Settings<'_>,
    stop: &Stop,
) -> Result<Outcome> {
    if !args.json {
        let plan = lab::plan(scenario, settings, lab::usable_cpus().len());
        output::print(format!("{plan}\n").as_bytes())?;
    }
    let mut progress = |what: &str| output::say(what);
    let outcome = lab::run(scenario, settings, stop, &mut progress)?;
    if !args.json {
        output::print(format!("{}\n", lab::outcome(scenario, &outcome)).as_bytes())?;
    }
    if let Some(keep) = settings.keep {
        output::say(format!(
            "the recording with the fault is kept: `deburr report {}`",
            keep.path().display()
        ));
    }
    if let Some(control) = settings.keep_control {
        let fault =
            settings.keep.map_or_else(|| "FAULT".into(), |keep| keep.path().display().to_string());
        output::say(format!(
            "the recording without the fault is kept: `deburr compare {} {fault}`",
            control.path().display()
        ));
    }
    Ok(outcome)
}
