// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `deburr prove`: changes one thing, measures, puts it back, and says whether that was the cause.

use super::page::Page;
use super::{lab, show};
use crate::args::{Color, Messages, PageArgs, Target, window};
use crate::collect::Roots;
use crate::failure::{Exit, Failure};
use crate::output;
use crate::prove::runner::{self, Observation};
use crate::prove::{Changes, Restarted, plan, restart, trial};
use crate::signals::Signals;
use crate::target;
use anyhow::{Context as _, Result};
use clap::builder::NonEmptyStringValueParser;
use deburr_core::finding::{Finding, Target as FindingTarget, Tool};
use deburr_core::prove::experiment::{self, Experiment, PERIODS, Test};
use deburr_core::prove::knob::{Kind, Knob};
use deburr_core::prove::measure::Measure;
use deburr_core::prove::outcome::{Outcome, SCHEMA};
use deburr_core::recording::TargetSpec;
use deburr_core::{render, rules};
use std::ffi::OsString;
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::time::Duration;

/// Length of the observation before the experiment.
const PILOT: Duration = Duration::from_secs(10);
/// The same for findings about disks, whose rhythms take longer.
const DISK_PILOT: Duration = Duration::from_secs(30);
/// From the start of a command to its block.
const WARMUP: Duration = Duration::from_secs(2);
/// Length of a block of an experiment of the user's.
const BLOCK: Duration = Duration::from_secs(5);
/// Part of the baseline by which a measure must fall, unless something else is known.
const LEAST_PERCENT: u8 = 25;
/// Largest seed: every reader of JSON keeps it exactly.
const MOST_SEED: u64 = (1 << 53) - 1;
/// Unit of the kernel's settings of time that end in `_centisecs`, in nanoseconds.
const CENTISECOND_NS: u64 = 10_000_000;

/// Arguments of `deburr prove`.
#[derive(Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("what").args(["code", "set", "follow", "recover"]).required(true).multiple(false),
    after_help = "Examples:\n  \
        deburr prove SCH001 -p 15919                     the default experiment for what is found\n  \
        deburr prove SCH001 -p 15919 --lever pause       another one\n  \
        deburr prove BLK001 -p 15919 --dry-run           only the plan\n  \
        deburr prove --follow vm.dirty_writeback_centisecs --measure stall-period -p 15919\n  \
        deburr prove --set pause:4711=90% --measure queued -p 15919\n  \
        deburr prove --allow-module --set module:acpi_cpufreq=unloaded --measure probe --probe 'sh test.sh'\n  \
        deburr prove SCH004 --cgroup /web -- ./service   starts it anew for each block, with fewer threads or not\n  \
        deburr prove --set env:GOMAXPROCS=4 --measure throttled -- ./service\n  \
        deburr prove --recover                           undo what a killed experiment left\n\n\
        Exit status: 0 done, whatever the result, 2 usage or bad input, 3 a privilege or kernel feature is missing, 4 output \
        could not be written."
)]
pub(crate) struct ProveArgs {
    /// The finding whose cause is put to the test: SCH001, SCH002, SCH003, SCH004, BLK001, BLK002, BLK003, BLK004
    #[arg(value_name = "CODE", value_parser = NonEmptyStringValueParser::new())]
    code: Option<String>,
    #[command(flatten)]
    target: Target,
    /// Which of the experiments for the finding: `precedence`, `pause`, ... [default: the first]
    #[arg(long, value_name = "NAME", requires = "code")]
    lever: Option<String>,
    /// What is changed in some blocks: vm.dirty_ratio=10, cgroup:/batch:cpu.weight=10, nice:4711=5,
    /// module:NAME=unloaded, env:GOMAXPROCS=4 or arg:1=--threads=4 of the command
    #[arg(long, value_name = "SETTING=VALUE", requires = "measure")]
    set: Vec<String>,
    /// Let `--set module:NAME=unloaded` unload a module: it may fail to load again, and comes back without what was set up
    /// in it
    #[arg(long, requires = "set")]
    allow_module: bool,
    /// A setting of the kernel's clocks that has another value in each block: vm.dirty_writeback_centisecs
    #[arg(long, value_name = "SETTING", requires = "measure")]
    follow: Option<String>,
    /// What decides: queued, throttled, block-io, stalled, wait:p99, io-latency:p99, stall-period, probe:p50
    #[arg(long, value_name = "MEASURE")]
    measure: Option<Measure>,
    /// A shell command that is run again and again, for `probe`: 'curl -fs http://127.0.0.1/'. It fails if its exit status
    /// is not 0
    #[arg(long, value_name = "CMD", requires = "measure")]
    probe: Option<String>,
    /// By how many percent of its value the measure must fall at least [default: 25, or what the finding promises]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    least: Option<u8>,
    /// Length of a block [default: 5s; where a period is to follow, seven of them]
    #[arg(long, value_name = "TIME", value_parser = window)]
    block: Option<Duration>,
    /// Length of the observation before the experiment [default: 10s, for disks 30s, of a command as long as a
    /// block]
    #[arg(short, long, value_name = "TIME", value_parser = window)]
    duration: Option<Duration>,
    /// From the start of the command to its block [default: 2s]
    #[arg(long, value_name = "TIME", value_parser = window, requires = "command")]
    warmup: Option<Duration>,
    /// What the order of the blocks follows from [default: chance]
    #[arg(long, value_parser = clap::value_parser!(u64).range(..=MOST_SEED))]
    seed: Option<u64>,
    /// Show the plan, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// Undo what an experiment left whose processes were all killed
    #[arg(long)]
    recover: bool,
    /// Print one JSON document (schema deburr.prove/1)
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    page: PageArgs,
    /// Replace the page if it exists
    #[arg(long, requires = "html")]
    force: bool,
    /// Use colour [default: auto]
    #[arg(long, value_name = "WHEN", default_value = "auto", hide_default_value = true)]
    color: Color,
    #[command(flatten)]
    messages: Messages,
    /// A command that is started anew for each block, in the cgroup of --cgroup, and ended after it
    #[arg(last = true, value_name = "CMD", conflicts_with_all = ["pid", "comm", "container", "follow", "recover"])]
    command: Vec<OsString>,
}

impl ProveArgs {
    /// Whether it only undoes what another experiment left.
    pub(crate) fn recovers(&self) -> bool {
        self.recover
    }
}

pub(crate) fn run(args: &ProveArgs) -> Result<Exit> {
    if args.recover {
        return recover();
    }
    let page = Page::claim(&args.page, args.force, &[], args.json)?;
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::error(
            Exit::Missing,
            "only root can change what an experiment changes",
        ));
    }
    let mut victim = Victim::of(args)?;
    let signals = Signals::install()?;
    let (experiment, baseline, target) = match &args.code {
        Some(code) => from_finding(args, code, &mut victim, &signals)?,
        None => of_user(args, &mut victim, &signals)?,
    };
    let knobs = plan::knobs(&experiment.test).map_err(Failure::bad_input)?;
    let now = present(&knobs, victim.command())?;
    let seed = match args.seed {
        Some(seed) => seed,
        None => u64::from_str_radix(&crate::claim::random_name()?, 16)? & MOST_SEED,
    };
    let changes = plan::changes(&knobs, &now);
    let mut plan = plan::plan(experiment, changes, baseline, seed).map_err(Failure::bad_input)?;
    plan.starts = victim.command().map(|command| command.starts());
    let mut outcome = Outcome {
        schema: SCHEMA.into(),
        tool: Tool { version: env!("CARGO_PKG_VERSION").into() },
        host: show::host(),
        start: show::now(),
        target: shown(&target),
        plan,
        blocks: vec![],
        result: None,
        notes: vec![],
    };
    let style = show::page(args.color);
    if args.dry_run {
        return print(args, &page, &outcome);
    }
    if !args.yes && !agreed(&render::experiment_plan(&outcome, style))? {
        output::say("nothing was changed");
        return Ok(Exit::Done);
    }
    let (_, of_host) = restart::divided(&knobs);
    let mut changes = Changes::begin(&std::env::current_exe()?, &of_host)?;
    let observation = Observation {
        target: &target,
        measure: &outcome.plan.experiment.measure,
        probe: args.probe.as_deref(),
    };
    let trial = trial::run(
        &outcome.plan,
        &knobs,
        (&mut changes, victim.command()),
        &observation,
        (&signals, args.messages.quiet),
    );
    let left = changes.finish();
    let ended = victim.finish();
    let trial = trial?;
    ended?;
    outcome.blocks = trial.blocks;
    outcome.result = Some(trial.result);
    outcome.notes = trial.notes;
    outcome.notes.extend(left?);
    let decided = outcome.result.as_ref().is_some_and(|it| !it.verdict.is_undecided());
    let printed = print(args, &page, &outcome)?;
    // What ended before its last block proved nothing.
    Ok(if decided { printed } else { Exit::Found })
}

fn print(args: &ProveArgs, page: &Page, outcome: &Outcome) -> Result<Exit> {
    let style = show::page(args.color);
    let verbosity = if args.messages.quiet { 0 } else { 1 };
    let text = match args.json {
        true => render::json_document(outcome)?,
        false => render::experiment(outcome, render::TextStyle { verbosity, ..style }),
    };
    if !page.is_stdout() {
        output::print(text.as_bytes())?;
    }
    page.write(|| render::experiment_html(outcome))?;
    Ok(Exit::Done)
}

/// Whose measure is taken.
enum Victim {
    /// What runs already.
    Running(TargetSpec),
    /// A command that is started anew again and again.
    Restarted(Box<Restarted>),
}

impl Victim {
    fn of(args: &ProveArgs) -> Result<Self> {
        let roots = Roots::default();
        if args.command.is_empty() {
            let target = target::resolve(&args.target, &roots).map_err(Failure::bad_input)?;
            return Ok(Self::Running(target.unwrap_or(TargetSpec::Host)));
        }
        let place = args.target.cgroup.as_deref().map(|given| target::cgroup_path(&roots, given));
        let probe = args.probe.as_deref();
        Ok(Self::Restarted(Box::new(Restarted::new(&args.command, place.as_deref(), probe)?)))
    }

    fn command(&mut self) -> Option<&mut Restarted> {
        match self {
            Self::Running(_) => None,
            Self::Restarted(command) => Some(command),
        }
    }

    /// As it is, ready to be observed: a command is started.
    fn begin(&mut self, args: &ProveArgs, signals: &Signals) -> Result<TargetSpec> {
        match self {
            Self::Running(target) => Ok(target.clone()),
            Self::Restarted(command) => {
                command.start(&[], args.warmup.unwrap_or(WARMUP), signals)?.context("interrupted")
            }
        }
    }

    /// Length of the observation before. That of a command is as long as a block: what it does changes with the time since
    /// its start.
    fn pilot(&mut self, args: &ProveArgs, usual: Duration) -> Duration {
        let of_command = self.command().map(|_| args.block.unwrap_or(BLOCK));
        args.duration.or(of_command).unwrap_or(usual)
    }

    /// Ends the command until its first block; an error if it has ended by itself.
    fn pause(&mut self) -> Result<()> {
        let Some(command) = self.command() else { return Ok(()) };
        command.check("while it was measured")?;
        command.end()
    }

    fn finish(self) -> Result<()> {
        match self {
            Self::Running(_) => Ok(()),
            Self::Restarted(command) => command.finish(),
        }
    }
}

/// Observes, and takes the experiment for the first finding of that code.
fn from_finding(
    args: &ProveArgs,
    code: &str,
    victim: &mut Victim,
    signals: &Signals,
) -> Result<(Experiment, Option<f64>, TargetSpec)> {
    let known = rules::find(code).map(|rule| rule.code);
    let Some(code) = known.filter(|code| rules::with_experiments().any(|it| it == *code)) else {
        let with = rules::with_experiments().collect::<Vec<_>>().join(", ");
        return Err(Failure::bad_input(match known {
            Some(code) => {
                format!(
                    "there is no experiment for {code}; there are some for {with}, and `--set` makes others"
                )
            }
            None => format!("`{code}` is no code of a finding; experiments are there for {with}"),
        }));
    };
    if rules::experiment_starts_command(code) != victim.command().is_some() {
        return Err(Failure::bad_input(match victim.command() {
            None => format!(
                "the experiment for {code} starts the program anew for each block: `deburr prove {code} -- CMD`, with \
                 `--cgroup PATH` for the cgroup that it is to be in"
            ),
            Some(_) => format!(
                "the experiment for {code} starts no command: leave out `--` and what follows"
            ),
        }));
    }
    let usual = if code.starts_with("BLK") { DISK_PILOT } else { PILOT };
    let length = victim.pilot(args, usual);
    if !args.messages.quiet {
        output::say(format!("looking for {code}, for {} s", length.as_secs()));
    }
    let target = victim.begin(args, signals)?;
    let fold = runner::observe(&target, length, signals)?.context("interrupted")?;
    victim.pause()?;
    let view = fold.view();
    let report = rules::report(view, env!("CARGO_PKG_VERSION"), true);
    let findings: Vec<&Finding> = report.findings.iter().filter(|it| it.code == code).collect();
    let Some(finding) = findings.first() else {
        return Err(Failure::bad_input(format!(
            "{code} was not found in {} s: there is nothing to prove; see `deburr -d {0}`",
            length.as_secs()
        )));
    };
    let all = rules::experiments(view, finding);
    let chosen = match &args.lever {
        Some(lever) => all.iter().find(|it| it.lever == *lever),
        None => all.first(),
    };
    let Some(chosen) = chosen else {
        let levers: Vec<&str> = all.iter().map(|it| it.lever.as_str()).collect();
        return Err(Failure::bad_input(match levers.is_empty() {
            true => format!(
                "{code} was found, but nothing of its cause can be changed for a while: {}",
                finding.title
            ),
            false => {
                format!("there is no such lever for this {code}; there are: {}", levers.join(", "))
            }
        }));
    };
    let mut experiment = chosen.clone();
    adjust(args, &mut experiment);
    // From now on only the victim counts.
    let target = match (&target, finding.victim.pid, &finding.victim.comm) {
        (TargetSpec::Host, Some(pid), Some(comm)) => {
            TargetSpec::Process { pid, comm: comm.clone() }
        }
        (TargetSpec::Host, _, _) => {
            return Err(Failure::bad_input(format!(
                "the victim is not one process: name one with -p; {}",
                finding.title
            )));
        }
        _ => target,
    };
    let baseline = match experiment.test {
        Test::Lowers { .. } => Some(experiment.measure.of(view).map_err(Failure::bad_input)?),
        Test::Follows { .. } => None,
    };
    Ok((experiment, baseline, target))
}

/// The experiment that the user made up.
fn of_user(
    args: &ProveArgs,
    victim: &mut Victim,
    signals: &Signals,
) -> Result<(Experiment, Option<f64>, TargetSpec)> {
    let measure = args.measure.clone().context("a measure is required")?;
    if measure.is_of_probe() != args.probe.is_some() {
        return Err(Failure::bad_input(
            "`--measure probe` and `--probe CMD` need each other: the command is what is timed",
        ));
    }
    let (test, hypothesis, block, settle_seconds) = match &args.follow {
        Some(setting) => {
            // Any value shows whether there is such a setting.
            let knob = Knob::parse(&format!("{setting}=1")).map_err(Failure::bad_input)?;
            if !setting.ends_with("_centisecs") {
                return Err(Failure::bad_input(format!(
                    "`{setting}` is no clock; those of writeback are: vm.dirty_writeback_centisecs, vm.dirty_expire_centisecs"
                )));
            }
            let expires = Knob::parse(&format!("{}=1", experiment::EXPIRES))?;
            let values = present(&[knob, expires], None)?;
            let now: u64 = values[0].parse().ok().filter(|now| *now > 0).ok_or_else(|| {
                Failure::bad_input(format!("`{setting}` is {}: it is off", values[0]))
            })?;
            let block = Duration::from_secs_f64(now as f64 / 100.0 * PERIODS);
            let hypothesis = format!("stalls follow `{setting}`");
            let settle = experiment::settle_seconds(setting, values[1].parse()?);
            (Test::follows(setting, CENTISECOND_NS, now), hypothesis, block, settle)
        }
        None => {
            let least_part = f64::from(args.least.unwrap_or(LEAST_PERCENT)) / 100.0;
            let set: Vec<String> = args.set.clone();
            let shown: Vec<String> = set.iter().map(|it| format!("`{it}`")).collect();
            let hypothesis = format!("{} lowers the {}", shown.join(" with "), measure.words());
            (Test::Lowers { set, least_part }, hypothesis, BLOCK, experiment::SETTLE_SECONDS)
        }
    };
    let knobs = plan::knobs(&test).map_err(Failure::bad_input)?;
    if victim.command().is_some() && restart::divided(&knobs).0.is_empty() {
        return Err(Failure::bad_input(
            "nothing of the command is changed: `--set env:NAME=VALUE` or `--set arg:NUMBER=VALUE` does that; what runs \
             already is measured without `--`",
        ));
    }
    if let Some(knob) = knobs.iter().find(|it| it.lever().kind == Kind::Module)
        && !args.allow_module
    {
        return Err(Failure::bad_input(format!(
            "`{knob}` is done only with `--allow-module`: a module may fail to load again, and what was set up in it since \
             it was loaded is lost"
        )));
    }
    present(&knobs, victim.command())?;
    let mut experiment = Experiment {
        code: None,
        lever: "set".into(),
        hypothesis,
        measure,
        test,
        risk: "whatever depends on what is changed does so for the length of a block at a time"
            .into(),
        block_seconds: block.as_secs_f64(),
        settle_seconds,
    };
    adjust(args, &mut experiment);
    let target = victim.begin(args, signals)?;
    let baseline = match experiment.test {
        Test::Follows { .. } => None,
        Test::Lowers { .. } => {
            let length = victim.pilot(args, PILOT);
            if !args.messages.quiet {
                output::say(format!("measuring as it is, for {} s", length.as_secs()));
            }
            let observation = Observation {
                target: &target,
                measure: &experiment.measure,
                probe: args.probe.as_deref(),
            };
            let taken = observation.take(length, signals)?.context("interrupted")?;
            victim.pause()?;
            let why = || taken.why_not.clone().unwrap_or_default();
            Some(taken.value.ok_or_else(|| Failure::bad_input(format!("no number: {}", why())))?)
        }
    };
    Ok((experiment, baseline, target))
}

/// What the user wants to be otherwise.
fn adjust(args: &ProveArgs, experiment: &mut Experiment) {
    if let (Some(percent), Test::Lowers { least_part, .. }) = (args.least, &mut experiment.test) {
        *least_part = f64::from(percent) / 100.0;
    }
    if let (Some(block), Test::Lowers { .. }) = (args.block, &experiment.test) {
        experiment.block_seconds = block.as_secs_f64();
    }
    if experiment.starts_command() {
        experiment.settle_seconds = args.warmup.unwrap_or(WARMUP).as_secs_f64();
    }
}

/// Shows the plan, and asks.
fn agreed(plan: &str) -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::bad_input(
            "there is no terminal to ask on: --yes carries the plan out, --dry-run shows it",
        ));
    }
    let mut stderr = std::io::stderr().lock();
    write!(stderr, "{plan}\ncarry it out? [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Undoes what a killed experiment left.
fn recover() -> Result<Exit> {
    let clean = lab::clean()?;
    Ok(if clean { Exit::Done } else { Exit::Found })
}

/// What the settings hold now.
fn present(knobs: &[Knob], command: Option<&mut Restarted>) -> Result<Vec<String>> {
    let one = |knob: &Knob| match &command {
        Some(command) if knob.lever().kind.is_of_command() => command.present(knob),
        _ => Changes::present(knob),
    };
    let all: Result<Vec<String>> = knobs.iter().map(one).collect();
    all.map_err(|error| Failure::bad_input(format!("{error:#}")))
}

fn shown(target: &TargetSpec) -> FindingTarget {
    let (kind, name, pid) = target.told();
    // A command has another number in each block.
    let pid = pid.filter(|_| !matches!(target, TargetSpec::Command { .. }));
    FindingTarget { kind: kind.into(), name, pid, processes: 0, entries: vec![] }
}
