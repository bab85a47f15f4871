// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an experiment is going to do: fixed, and shown, before anything is changed.

use anyhow::{Result, ensure};
use deburr_core::prove::design::{GROUP, Limits};
use deburr_core::prove::effect::{Direction, MinimalEffect};
use deburr_core::prove::experiment::{Experiment, PERIODS, Test};
use deburr_core::prove::judge::{Guard, Question};
use deburr_core::prove::knob::Knob;
use deburr_core::prove::measure::Measure;
use deburr_core::prove::outcome::{Change, Plan};
use deburr_core::prove::period::MOST_ROUNDS;
use deburr_core::text::Unit;
use std::time::Duration;

/// What a block takes beside its observation and what settles: programs are attached and detached.
const AROUND: Duration = Duration::from_millis(400);

/// The knobs of an experiment: all that are turned in a changed block, or the one setting with each of its values.
pub(crate) fn knobs(test: &Test) -> Result<Vec<Knob>> {
    let parse = |text: &String| Ok(Knob::parse(text)?);
    match test {
        Test::Lowers { set, .. } => set.iter().map(parse).collect(),
        Test::Follows { setting, values, .. } => {
            values.iter().map(|value| parse(&format!("{setting}={value}"))).collect()
        }
    }
}

/// The changes with the values of now, one for each setting.
pub(crate) fn changes(knobs: &[Knob], now: &[String]) -> Vec<Change> {
    let mut changes: Vec<Change> = Vec::new();
    for (knob, from) in knobs.iter().zip(now) {
        let setting = knob.setting();
        match changes.iter_mut().find(|it| it.setting == setting) {
            Some(change) => change.to.push(knob.value().into()),
            None => changes.push(Change {
                setting,
                from: from.clone(),
                to: vec![knob.value().into()],
                risk: knob.lever().risk.into(),
            }),
        }
    }
    changes
}

/// Length of a block.
pub(crate) fn length(experiment: &Experiment, value: Option<u64>) -> Duration {
    match (&experiment.test, value) {
        (Test::Follows { unit_ns, .. }, Some(value)) => {
            Duration::from_secs_f64(value as f64 * *unit_ns as f64 / 1e9 * PERIODS)
        }
        _ => Duration::from_secs_f64(experiment.block_seconds),
    }
}

/// The plan. `baseline` is the measure before the experiment.
pub(crate) fn plan(
    experiment: Experiment,
    changes: Vec<Change>,
    baseline: Option<f64>,
    seed: u64,
) -> Result<Plan> {
    let around = experiment.settle_seconds + AROUND.as_secs_f64();
    let (question, blocks, seconds) = match &experiment.test {
        Test::Lowers { least_part, .. } => {
            let baseline = baseline.unwrap_or(0.0);
            let measure = &experiment.measure;
            ensure!(
                baseline > 0.0,
                "{}: there is none now, so that no change could lower it",
                measure.words()
            );
            let Limits { least_groups, most_groups } = Limits::default();
            let blocks = [least_groups, most_groups].map(|groups| groups * GROUP as u32);
            let each = experiment.block_seconds + around;
            let seconds = blocks.map(|blocks| f64::from(blocks) * each);
            let question = Question {
                unit: Unit::Ns,
                direction: Direction::Falls,
                minimal_effect: MinimalEffect::Share(*least_part),
                pilot: baseline,
                guard: Guard::Pilot,
            };
            question.check()?;
            (Some(question), blocks, seconds)
        }
        Test::Follows { values, .. } => {
            ensure!(
                experiment.measure == Measure::StallPeriod,
                "only `stall-period` can follow a setting, not `{}`",
                experiment.measure
            );
            let round: f64 = values
                .iter()
                .map(|value| length(&experiment, Some(*value)).as_secs_f64() + around)
                .sum();
            let blocks = [1, MOST_ROUNDS].map(|rounds| (rounds * values.len()) as u32);
            (None, blocks, [round, round * MOST_ROUNDS as f64])
        }
    };
    Ok(Plan { experiment, seed, question, starts: None, changes, blocks, seconds })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Reader;
    use deburr_core::rules;
    use deburr_core::view::Fold;
    use std::collections::BTreeMap;
    use std::path::Path;

    /// The experiments for the findings of the lab's recordings: by code, those of the first finding.
    fn suggested() -> BTreeMap<String, Vec<(String, Experiment)>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/lab");
        let mut all: BTreeMap<String, Vec<(String, Experiment)>> = BTreeMap::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let mut fold = Fold::default();
            let reader = Reader::open(&path.join("recording.deburr")).unwrap();
            reader.for_each(|record| fold.push(record)).unwrap();
            let report = rules::report(fold.view(), "test", false);
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            for finding in &report.findings {
                for experiment in rules::experiments(fold.view(), finding) {
                    let of_code = all.entry(finding.code.clone()).or_default();
                    of_code.push((name.clone(), experiment));
                }
            }
        }
        all
    }

    #[test]
    fn what_findings_suggest_can_be_planned() {
        let all = suggested();
        for code in ["SCH001", "SCH002", "SCH003", "SCH004", "BLK001", "BLK002", "BLK004"] {
            assert!(
                rules::with_experiments().any(|it| it == code) && all.contains_key(code),
                "{code}"
            );
        }
        for (code, experiments) in all {
            for (scenario, experiment) in experiments {
                assert_eq!(experiment.code.as_deref(), Some(code.as_str()));
                let knobs =
                    knobs(&experiment.test).unwrap_or_else(|e| panic!("{scenario} {code}: {e}"));
                assert!(!knobs.is_empty(), "{scenario} {code}");
                let starts = rules::experiment_starts_command(&code);
                assert_eq!(experiment.starts_command(), starts, "{scenario} {code}");
                let now = vec!["1".to_owned(); knobs.len()];
                let changes = changes(&knobs, &now);
                let plan = plan(experiment, changes, Some(1e8), 1).unwrap();
                assert!(plan.seconds[0] > 5.0 && plan.seconds[1] > plan.seconds[0]);
                assert!(plan.blocks[0] >= 4 && plan.changes.iter().all(|it| !it.risk.is_empty()));
            }
        }
    }

    #[test]
    fn what_is_not_there_cannot_be_lowered() {
        let (_, experiment) = suggested().remove("SCH001").unwrap().remove(0);
        let error = plan(experiment, vec![], Some(0.0), 1).unwrap_err().to_string();
        assert!(error.contains("there is none now"), "{error}");
    }
}
