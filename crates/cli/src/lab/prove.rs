// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether experiments on a scenario say what is known of it: `deburr prove`, executed as users execute it, while victim and
//! faults run.

use super::check::{self, Check};
use super::experiment::{Cast, Expected, ExperimentSpec};
use super::fitness::{Machine, Verdict};
use super::runner::{self, Load};
use super::scenario::Scenario;
use super::service;
use super::stage::Stop;
use super::victim::Window;
use super::victims::WhichRun;
use crate::clock::monotonic_ns;
use anyhow::{Context as _, Result};
use deburr_core::prove::outcome::{Outcome, Outcomes};
use serde::Serialize;
use std::time::Duration;

/// From the start of the load to that of the experiment: its observation before the first block must see what the blocks
/// will see. Caches are filled, and threads are where the scheduler wants them.
const STEADY: Duration = Duration::from_secs(2);
/// Longest time that an experiment may take.
const LONGEST: Duration = Duration::from_secs(600);

/// An experiment on a running scenario, and what came of it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Proved {
    /// Name of the scenario.
    pub(crate) scenario: String,
    /// Arguments of `deburr prove`, with the scenario's placeholders.
    pub(crate) arguments: String,
    /// The result that it must have.
    pub(crate) expected: Expected,
    /// Whether it has that result, or whether the machine may be the reason if not.
    pub(crate) verdict: Verdict,
    /// Why the machine was not fit for the experiment. Empty = it was fit.
    pub(crate) unfit: Vec<String>,
    /// Number of tries, including the last. A try is repeated if something fails and the machine may be the reason.
    pub(crate) tries: u32,
    /// What the machine was like meanwhile.
    pub(crate) machine: Machine,
    /// Length of the experiment with its observation before, in seconds.
    pub(crate) seconds: f64,
    /// The expectations, and whether they were met.
    pub(crate) checks: Vec<Check>,
    /// What the experiment wrote; absent if it could not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) experiment: Option<Outcome>,
}

/// Runs all experiments of a scenario, each with victim and faults of its own, again while a result is inconclusive.
pub(crate) fn run(
    scenario: &Scenario,
    weight: u32,
    stop: &Stop,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Proved>> {
    let mut all = Vec::new();
    for spec in &scenario.experiments {
        all.push(runner::tried(|tries| {
            let mut one = run_once(scenario, spec, weight, stop, progress)?;
            one.tries = tries;
            if one.verdict == Verdict::Inconclusive {
                progress(&runner::void(&scenario.name, tries, &one.unfit, &one.checks));
            }
            let verdict = one.verdict;
            Ok((one, verdict))
        })?);
    }
    Ok(all)
}

/// Runs one experiment, with victim and faults of its own.
pub(super) fn run_once(
    scenario: &Scenario,
    spec: &ExperimentSpec,
    weight: u32,
    stop: &Stop,
    progress: &mut dyn FnMut(&str),
) -> Result<Proved> {
    let (name, shown) = (&scenario.name, spec.run.shown());
    progress(&format!("`{name}`: with its fault, `deburr prove {shown}`"));
    let which = WhichRun { with_faults: true, quota_us: &mut None };
    let Load { mut stage, victim, meter } = runner::start(scenario, weight, stop, which)?;
    stage.settle(STEADY)?;
    let cast = Cast {
        victim: victim.pid,
        lab: stage.cgroup_path(),
        cpus: stage.cpu_list(),
        program: service::program(&stage).display().to_string(),
        pids: &|comm| stage.pids(comm),
        version: stage.tree().version,
    };
    let mut arguments = vec!["prove".into(), "--yes".into(), "--json".into(), "-q".into()];
    if !spec.run.starts_command() {
        arguments.push(format!("-p{}", victim.pid));
    }
    arguments.extend(spec.run.expanded(&cast)?);
    // What the experiment starts takes the victim's place.
    let victim = Some(victim).filter(|_| !spec.run.starts_command());
    let from_ns = monotonic_ns();
    let (status, json, complaint) = stage.run_experiment(&arguments, &spec.environment, LONGEST)?;
    let window = Window { from_ns, to_ns: monotonic_ns() };
    let machine = meter.finish(window)?;
    if scenario.disk.is_some() {
        // The disk becomes fast, so that the victim ends soon.
        stage.disk()?.served().set_base_us(0)?;
    }
    drop(victim);
    stage.clear()?;
    // 1 = it ended before it was decided.
    let experiment: Option<Outcome> = match matches!(status.code(), Some(0 | 1)) {
        true => Some(serde_json::from_str(&json).context("the experiment wrote no result")?),
        false => None,
    };
    let done = experiment.as_ref().and_then(|it| Some((it.result.as_ref()?, &*it.notes)));
    let seconds = (window.to_ns - window.from_ns) as f64 / 1e9;
    let mut checks = checks(spec, done.ok_or(complaint.trim()));
    checks.push(Check::new(
        seconds < LONGEST.as_secs_f64(),
        format!("it takes less than {} s: {seconds:.0} s", LONGEST.as_secs()),
    ));
    let unfit = machine.unfit();
    Ok(Proved {
        scenario: name.clone(),
        arguments: shown,
        expected: spec.expect,
        verdict: check::verdict(&checks, &unfit),
        unfit,
        tries: 1,
        machine,
        seconds,
        checks,
        experiment,
    })
}

/// The checks of an experiment: of its result and remarks, or of why it could not run.
fn checks(spec: &ExperimentSpec, result: Result<(&Outcomes, &[String]), &str>) -> Vec<Check> {
    let wanted = format!("`deburr prove {}` says `{}`", spec.run.shown(), spec.expect.word());
    let (result, notes) = match result {
        Ok(done) => done,
        Err(why) => return vec![Check::new(false, format!("{wanted}: it could not run: {why}"))],
    };
    let is_it = spec.expect.is(result.verdict);
    let seen = if is_it { "" } else { "it does not: " };
    let left = if notes.is_empty() { "nothing is left".into() } else { notes.join("; ") };
    vec![
        Check::new(is_it, format!("{wanted}: {seen}{}", result.sentence)),
        Check::new(notes.is_empty(), format!("all that it changed is put back: {left}")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use deburr_core::prove::verdict;
    use std::collections::BTreeMap;

    #[test]
    fn only_the_expected_result_passes_and_an_unfit_machine_excuses_any_other() {
        let run = vec!["SCH001".to_owned()].try_into().unwrap();
        let environment = BTreeMap::new();
        let spec = ExperimentSpec { run, environment, expect: Expected::Confirmed };
        let result =
            |verdict| Outcomes { verdict, sentence: "so it is".into(), fall: None, period: None };
        let [confirmed, refuted] = [verdict::Verdict::Confirmed, verdict::Verdict::Refuted];
        let undecided = verdict::Verdict::Undecided { blocks_more: None };
        let unfit = ["the hypervisor took it all".to_owned()];
        for (verdict, notes, passes) in [
            (Some(confirmed), &[][..], true),
            (Some(confirmed), &["a setting is gone".to_owned()], false),
            (Some(refuted), &[], false),
            (Some(undecided), &[], false),
            (None, &[], false),
        ] {
            let result = verdict.map(result);
            let result = result.as_ref().map(|it| (it, notes)).ok_or("SCH001 was not found");
            let checks = checks(&spec, result);
            let expected = if passes { Verdict::Passed } else { Verdict::Failed };
            assert_eq!(check::verdict(&checks, &[]), expected, "{checks:?}");
            let expected = if passes { Verdict::Passed } else { Verdict::Inconclusive };
            assert_eq!(check::verdict(&checks, &unfit), expected, "{checks:?}");
            assert!(checks[0].what.contains("SCH001") && checks[0].what.contains("`confirmed`"));
        }
    }
}
