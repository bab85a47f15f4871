// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs scenarios several times each, with other numbers than in their files, and keeps what a scorecard counts of
//! each run.

mod card;

pub(crate) use card::Scorecard;

use super::check::{Check, Topic};
use super::experiment::ExperimentSpec;
use super::measured;
use super::needs::Need;
use super::prove;
use super::runner::{self, Outcome, Settings};
use super::scenario::Scenario;
use super::stage::{Interrupted, Stop};
use super::vary::{self, RunNumbers};
use crate::claim;
use crate::failure::{Exit, Failure};
use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a run waits for an idle CPU on a busy host.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// One run of a scenario with numbers of its own, or of one of its experiments, and its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    /// Name of the scenario.
    pub(crate) scenario: String,
    /// Arguments of `deburr prove` if it was an experiment, with the scenario's placeholders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) experiment: Option<String>,
    /// Seed of its numbers. The same seed gives the same numbers.
    pub(crate) seed: u64,
    /// The numbers that were chosen.
    pub(crate) numbers: RunNumbers,
    /// Weight of the lab's cgroup against the rest of the host.
    pub(crate) weight: u32,
    pub(crate) result: RunResult,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RunResult {
    Judged(Scores),
    /// The machine was not fit for it, and not everything was right.
    Inconclusive {
        /// What was wrong with the machine.
        why: String,
        /// What was not as expected; empty if it was not run.
        failed: Vec<String>,
    },
    /// It failed with an error.
    Broken {
        why: String,
    },
}

/// What was right in a run. Absent = the scenario does not check it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Scores {
    /// The first finding is the right one.
    pub(crate) first: Option<bool>,
    /// The culprits are named, with their shares.
    pub(crate) culprit: Option<bool>,
    /// The victim's loss in the report agrees with what the victim measured itself, in both runs.
    pub(crate) loss: Option<bool>,
    /// Nothing above `info` is found where nothing is wrong.
    pub(crate) silence: Option<bool>,
    /// Everything else that the scenario expects.
    pub(crate) other: Option<bool>,
    /// What was not as expected.
    pub(crate) failed: Vec<String>,
}

impl Scores {
    fn of(checks: &[Check]) -> Self {
        let all = |topic| {
            let mut checks = checks.iter().filter(|check| check.topic == topic).peekable();
            checks.peek()?;
            Some(checks.all(|check| check.pass))
        };
        Self {
            first: all(Topic::First),
            culprit: all(Topic::Culprit),
            loss: all(Topic::Loss),
            silence: all(Topic::Silence),
            other: all(Topic::Other),
            failed: checks
                .iter()
                .filter(|check| !check.pass)
                .map(|check| check.what.clone())
                .collect(),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Plan<'a> {
    /// Names of scenarios, and the texts of their files.
    pub(crate) scenarios: Vec<(String, &'static str)>,
    /// Number of runs of each scenario.
    pub(crate) runs: u32,
    /// Seed of the first run of each scenario. The seeds of later runs follow it.
    pub(crate) seed: u64,
    /// Weight of the lab's cgroup against the rest of the host, in multiples of the default.
    pub(crate) weight: u32,
    /// Whether the experiments of the scenarios are run, too.
    pub(crate) prove: bool,
    /// File to which a line of JSON is added for each run. The runs that it contains already are counted as well.
    pub(crate) log: Option<&'a Path>,
}

/// Runs the plan: each scenario once before any is run again. Returns all runs, those of the log first. A signal ends
/// it early; the runs until then are returned.
pub(crate) fn run(
    plan: &Plan<'_>,
    stop: &Stop,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Run>> {
    let mut runs = plan.log.map(read_log).transpose()?.unwrap_or_default();
    for number in 0..u64::from(plan.runs) {
        for (name, text) in &plan.scenarios {
            let seed = plan.seed + number;
            let (scenario, numbers) =
                vary::varied(text, seed).with_context(|| format!("`{name}`"))?;
            let experiments = scenario.experiments.iter().filter(|_| plan.prove);
            for experiment in std::iter::once(None).chain(experiments.map(Some)) {
                let result = match run_one(&scenario, experiment, plan.weight, stop, progress) {
                    Ok(result) => result,
                    Err(error) if error.is::<Interrupted>() => return Ok(runs),
                    Err(error) => RunResult::Broken { why: format!("{error:#}") },
                };
                let run = Run {
                    scenario: name.clone(),
                    experiment: experiment.map(|spec| spec.run.shown()),
                    seed,
                    numbers: numbers.clone(),
                    weight: plan.weight,
                    result,
                };
                card::line(&run).lines().for_each(&mut *progress);
                if let Some(log) = plan.log {
                    append(log, &run)?;
                }
                runs.push(run);
            }
        }
    }
    Ok(runs)
}

/// Runs a scenario, or an experiment on it. Neither is repeated with the same numbers, so an inconclusive one is counted as
/// such.
fn run_one(
    scenario: &Scenario,
    experiment: Option<&ExperimentSpec>,
    weight: u32,
    stop: &Stop,
    progress: &mut dyn FnMut(&str),
) -> Result<RunResult> {
    if let Some(why) = unmet(scenario, stop)? {
        return Ok(RunResult::Inconclusive { why, failed: Vec::new() });
    }
    if let Some(experiment) = experiment {
        let proved = prove::run_once(scenario, experiment, weight, stop, progress)?;
        let failed = Scores::of(&proved.checks).failed;
        return Ok(result(Scores { failed, ..Scores::default() }, &proved.unfit));
    }
    let settings = Settings { seconds: scenario.seconds, weight, keep: None, keep_control: None };
    let outcome = runner::run_once(scenario, &settings, stop, progress)?;
    Ok(judged(scenario, &outcome))
}

fn judged(scenario: &Scenario, outcome: &Outcome) -> RunResult {
    let mut checks = outcome.checks.clone();
    // A victim that waits for a disk reports how long its commits took.
    if scenario.victim.as_victim().measures_syncs()
        && scenario.stall_ms.is_some()
        && scenario.measured.is_none()
    {
        let own = outcome.fault.victim.io.as_ref().map_or(&[][..], |io| &io.stalls);
        checks.push(measured::stalls(own, &outcome.fault.recorded));
    }
    result(Scores::of(&checks), &outcome.unfit)
}

fn result(scores: Scores, unfit: &[String]) -> RunResult {
    if !scores.failed.is_empty() && !unfit.is_empty() {
        return RunResult::Inconclusive { why: unfit.join("; "), failed: scores.failed };
    }
    RunResult::Judged(scores)
}

/// The first requirement that is not met; `None` if all are. Waits a while for an idle CPU.
fn unmet(scenario: &Scenario, stop: &Stop) -> Result<Option<String>> {
    let deadline = Instant::now() + IDLE_TIMEOUT;
    loop {
        stop.check()?;
        let reasons: Vec<_> =
            scenario.needs.iter().filter_map(|need| Some((*need, need.unmet()?))).collect();
        let Some((_, reason)) = reasons.first() else { return Ok(None) };
        let only_busy = reasons.iter().all(|(need, _)| *need == Need::IdleCpu);
        if !only_busy || Instant::now() > deadline {
            return Ok(Some(reason.clone()));
        }
    }
}

fn read_log(log: &Path) -> Result<Vec<Run>> {
    let text = match std::fs::read_to_string(log) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read `{}`", log.display()));
        }
    };
    let runs: Result<Vec<Run>, _> = text.lines().map(serde_json::from_str).collect();
    runs.with_context(|| format!("`{}` is no log of `deburr lab score`", log.display()))
}

fn append(log: &Path, run: &Run) -> Result<()> {
    let line = serde_json::to_string(run)? + "\n";
    claim::append(log)?.write_all(line.as_bytes()).map_err(|error| {
        Failure::error(Exit::Output, format!("cannot write `{}`: {error}", log.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_check_of_a_topic_is_enough_and_an_absent_topic_has_no_mark() {
        let check = |topic, pass| Check::new(pass, format!("{topic:?} {pass}")).about(topic);
        let marks = Scores::of(&[
            check(Topic::First, true),
            check(Topic::Loss, true),
            check(Topic::Loss, false),
            check(Topic::Silence, false),
        ]);
        assert_eq!((marks.first, marks.culprit, marks.loss), (Some(true), None, Some(false)));
        assert_eq!((marks.silence, marks.other), (Some(false), None));
        assert_eq!(marks.failed, ["Loss false", "Silence false"]);
    }

    #[test]
    fn a_log_reads_back_as_it_was_written_and_is_added_to() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        assert_eq!(read_log(&log).unwrap(), []);
        let run = Run {
            scenario: "healthy".into(),
            experiment: None,
            seed: 3,
            numbers: RunNumbers::from([("victim.work_us".into(), 5)]),
            weight: 1,
            result: RunResult::Judged(Scores { loss: Some(true), ..Scores::default() }),
        };
        let experiment = Some("SCH001".into());
        let other =
            Run { experiment, result: RunResult::Broken { why: "a\nb".into() }, ..run.clone() };
        append(&log, &run).unwrap();
        append(&log, &other).unwrap();
        assert_eq!(read_log(&log).unwrap(), [run, other]);
        std::fs::write(&log, "else\n").unwrap();
        assert!(read_log(&log).is_err());
    }
}
