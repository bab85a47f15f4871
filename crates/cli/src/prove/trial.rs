// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Carries out a plan: block after block, until it is decided, something goes wrong, or a signal comes. Whatever ends it, the
//! host is put back first.

use super::guard::{self, Guard};
use super::restart;
use super::runner::{self, Observation, Taken, tell};
use super::{Changes, Restarted, plan};
use crate::clock::monotonic_ns;
use crate::collect::Roots;
use crate::signals::Signals;
use anyhow::{Context as _, Result};
use deburr_core::prove::design::{Arm, Design, GROUP, Limits};
use deburr_core::prove::effect::Effect;
use deburr_core::prove::experiment::Test;
use deburr_core::prove::judge::judge;
use deburr_core::prove::knob::Knob;
use deburr_core::prove::outcome::{Block, Outcomes, Plan};
use deburr_core::prove::period::{self, MOST_ROUNDS, PeriodBlock, PeriodJudgement, judge_periods};
use deburr_core::prove::verdict::{Judgement, Reason, Verdict};
use deburr_core::recording::TargetSpec;
use deburr_core::text::units;
use std::time::Duration;

/// A changed block in which the measure is this many times the baseline ends the experiment: the change does harm.
const HARM: f64 = 5.0;
/// And if so many more of the runs of the probed command fail than in unchanged blocks.
const FAILURES: f64 = 0.2;
/// Time after which a changed block that does not end is put back by force, beside twice its length.
const LATEST: Duration = Duration::from_secs(20);

/// What came of it.
#[derive(Debug)]
pub(crate) struct Trial {
    pub(crate) blocks: Vec<Block>,
    pub(crate) result: Outcomes,
    pub(crate) notes: Vec<String>,
}

/// An experiment under way.
struct Running<'a> {
    plan: &'a Plan,
    knobs: &'a [Knob],
    changes: &'a mut Changes,
    /// The command that is started anew for each block, if any.
    command: Option<&'a mut Restarted>,
    observation: &'a Observation<'a>,
    signals: &'a Signals,
    guard: Guard,
    quiet: bool,
    begun_ns: u64,
    blocks: Vec<Block>,
    notes: Vec<String>,
    /// Runs of the probe and failures, in unchanged and changed blocks.
    probes: [(u64, u64); 2],
}

/// Why it does not go on.
enum Stop {
    /// A signal came.
    Signal,
    /// The reason.
    Because(String),
}

/// Carries out the plan. `command` is the one that it starts, if it starts one.
pub(crate) fn run(
    plan: &Plan,
    knobs: &[Knob],
    (changes, command): (&mut Changes, Option<&mut Restarted>),
    observation: &Observation<'_>,
    (signals, quiet): (&Signals, bool),
) -> Result<Trial> {
    let mut running = Running {
        plan,
        knobs,
        changes,
        command,
        observation,
        signals,
        guard: Guard::start(Roots::default().proc, signals.off_switch()),
        quiet,
        begun_ns: monotonic_ns(),
        blocks: vec![],
        notes: vec![],
        probes: [(0, 0); 2],
    };
    let result = match &plan.experiment.test {
        Test::Lowers { .. } => running.fall(),
        Test::Follows { unit_ns, values, .. } => running.period(*unit_ns, values),
    };
    let Running { blocks, mut notes, changes, command, .. } = running;
    let ended = command.map_or(Ok(()), Restarted::end);
    notes.extend(changes.restore()?);
    ended?;
    Ok(Trial { blocks, result: result?, notes })
}

impl Running<'_> {
    /// Blocks of both arms in groups, until it is decided whether the measure falls.
    fn fall(&mut self) -> Result<Outcomes> {
        let design = Design::new(self.plan.seed, Limits::default())?;
        let question = self.plan.question.context("a plan without a question")?;
        let length = Duration::from_secs_f64(self.plan.experiment.block_seconds);
        let (mut numbers, mut last) = (Vec::new(), None::<Judgement>);
        for arm in design.arms() {
            let (knobs, what) = match arm {
                Arm::Before => (&[][..], "as it was"),
                Arm::Changed => (self.knobs, "changed"),
            };
            let block = Block { arm: Some(arm), ..Block::default() };
            match self.block(knobs, length, block, what)? {
                Ok(value) => numbers.push(value),
                Err(stop) => return Ok(Outcomes { fall: last, ..ended(stop) }),
            }
            if let Some(harm) = self.harm() {
                return Ok(Outcomes { fall: last, ..ended(Stop::Because(harm)) });
            }
            if numbers.len() % GROUP == 0 {
                let judged = judge(&design, &question, &numbers);
                let goes_on = judged.verdict.is_undecided();
                last = Some(judged);
                if !goes_on {
                    break;
                }
            }
        }
        let judged = last.context("an experiment without a group")?;
        let sentence = self.of_fall(&judged, question.minimal_effect.part());
        Ok(Outcomes { verdict: judged.verdict, sentence, fall: Some(judged), period: None })
    }

    /// What the test of a fall says, as a sentence.
    fn of_fall(&self, judged: &Judgement, least: f64) -> String {
        let experiment = &self.plan.experiment;
        let (hypothesis, it) = (&experiment.hypothesis, experiment.measure.words());
        let part = |effect: &Option<Effect>| effect.map_or(0.0, |effect| effect.estimate);
        match judged.verdict {
            Verdict::Confirmed => format!(
                "{hypothesis}: with the change, the {it} falls by {}",
                units::percent(part(&judged.effect))
            ),
            Verdict::Refuted => format!(
                "it is not so that {hypothesis}: with the change, the {it} does not fall by {}",
                units::percent(least)
            ),
            Verdict::Inconclusive { reason } => match reason {
                Reason::SymptomAbsent => {
                    format!(
                        "the {it} is far less than before the experiment, without the change too"
                    )
                }
                Reason::SymptomGone { .. } => {
                    format!("in the middle of it the {it} became far less, without the change too")
                }
                Reason::NumbersMissing => "too many blocks gave no number".into(),
                Reason::BlocksUsedUp { blocks_more } => more(blocks_more),
            },
            Verdict::Undecided { blocks_more } => more(blocks_more),
        }
    }

    /// Blocks with a value of the setting each, in rounds, until it is decided whether the period follows.
    fn period(&mut self, unit_ns: u64, values: &[u64]) -> Result<Outcomes> {
        let (mut rounds, mut last) = (Vec::new(), None::<PeriodJudgement>);
        for round in 0..MOST_ROUNDS {
            let mut blocks = Vec::new();
            for at in period::order(self.plan.seed, round, values.len()) {
                let predicted_ns = values[at].saturating_mul(unit_ns) as f64;
                let block = Block {
                    set_to: Some(values[at]),
                    predicted_ns: Some(predicted_ns),
                    ..Block::default()
                };
                let length = plan::length(&self.plan.experiment, Some(values[at]));
                let knob = std::slice::from_ref(&self.knobs[at]);
                match self.block(knob, length, block, &knob[0].to_string())? {
                    Ok(_) => {
                        let last = self.blocks.last();
                        let distances_ns = last.map(|it| it.distances_ns.clone());
                        let distances_ns = distances_ns.unwrap_or_default();
                        blocks.push(PeriodBlock { predicted_ns, distances_ns });
                    }
                    Err(stop) => return Ok(Outcomes { period: last, ..ended(stop) }),
                }
            }
            rounds.push(blocks);
            last = judge_periods(&rounds);
            if last.as_ref().is_some_and(|it| !it.verdict.is_undecided()) {
                break;
            }
        }
        let Some(judged) = last else {
            return Ok(ended(Stop::Because("the stalls are too few for a period".into())));
        };
        let hypothesis = &self.plan.experiment.hypothesis;
        let sentence = match judged.verdict {
            Verdict::Confirmed => format!("{hypothesis}: their period follows the setting"),
            Verdict::Refuted => {
                format!("it is not so that {hypothesis}: their period does not follow the setting")
            }
            Verdict::Inconclusive { reason: Reason::NumbersMissing } => {
                "too many blocks had too few bursts of stalls for a period".into()
            }
            _ => "it cannot be told whether the period follows the setting".into(),
        };
        Ok(Outcomes { verdict: judged.verdict, sentence, fall: None, period: Some(judged) })
    }

    /// One block: sets the host, lets it settle, observes. The number; `None` if there was none.
    fn block(
        &mut self,
        knobs: &[Knob],
        length: Duration,
        block: Block,
        what: &str,
    ) -> Result<Result<Option<f64>, Stop>> {
        tell(self.blocks.len() + 1, self.plan.blocks[1] as usize, what, self.quiet);
        let settle = Duration::from_secs_f64(self.plan.experiment.settle_seconds);
        let target = match self.change(knobs, length, settle)? {
            Ok(target) => target,
            Err(stop) => return Ok(Err(stop)),
        };
        let target = target.as_ref().unwrap_or(self.observation.target);
        let at_seconds = monotonic_ns().saturating_sub(self.begun_ns) as f64 / 1e9;
        let observation = Observation { target, ..*self.observation };
        let Some(taken) = observation.take(length, self.signals)? else {
            return Ok(Err(self.signalled()));
        };
        if let Some(command) = &mut self.command
            && let Err(error) = command.check("in the middle of a block")
        {
            return Ok(Err(Stop::Because(format!("{error:#}"))));
        }
        let Taken { value, why_not, distances_ns, probes, probes_failed, target_gone } = taken;
        let arm = usize::from(!knobs.is_empty());
        self.probes[arm].0 += probes;
        self.probes[arm].1 += probes_failed;
        let seconds = length.as_secs_f64();
        self.blocks.push(Block { at_seconds, seconds, value, why_not, distances_ns, ..block });
        if target_gone {
            return Ok(Err(Stop::Because("the target has ended".into())));
        }
        self.changes.check()?;
        if let Some(why) = self.changes.undone_by_others()? {
            return Ok(Err(Stop::Because(why)));
        }
        Ok(Ok(value))
    }

    /// What ended a block in its middle.
    fn signalled(&self) -> Stop {
        self.guard.why().map_or(Stop::Signal, Stop::Because)
    }

    /// Puts back what was changed, makes the changes of the next block, and waits until they have had their effect. Returns
    /// the command if it was started anew: it is what is measured.
    fn change(
        &mut self,
        knobs: &[Knob],
        length: Duration,
        settle: Duration,
    ) -> Result<Result<Option<TargetSpec>, Stop>> {
        let because = |error: anyhow::Error| Ok(Err(Stop::Because(format!("{error:#}"))));
        // The first block may be a changed one. What a command that is started anew does is known only while it runs.
        while !knobs.is_empty() && self.command.is_none() && !self.guard.knows_the_usual() {
            if !runner::settle(guard::MEAN_OF, self.signals) {
                return Ok(Err(self.signalled()));
            }
        }
        if let Some(command) = &mut self.command {
            command.end()?;
        }
        self.notes.extend(self.changes.restore()?);
        let (of_command, of_host) = restart::divided(knobs);
        if !of_host.is_empty() {
            let at_most = (length + settle + restart::LONGEST_START) * 2 + LATEST;
            if let Err(error) = self.changes.apply(&of_host, at_most) {
                return because(error);
            }
        }
        self.guard.block(!knobs.is_empty());
        let Some(command) = &mut self.command else {
            let waited = runner::settle(settle, self.signals);
            return Ok(if waited { Ok(None) } else { Err(self.signalled()) });
        };
        match command.start(&of_command, settle, self.signals) {
            Ok(Some(target)) => Ok(Ok(Some(target))),
            Ok(None) => Ok(Err(self.signalled())),
            Err(error) => because(error),
        }
    }

    /// Why the change does harm, if it does.
    fn harm(&self) -> Option<String> {
        let last = self.blocks.last().filter(|it| it.arm == Some(Arm::Changed))?;
        let measure = &self.plan.experiment.measure;
        let baseline = self.plan.question?.pilot;
        if let Some(value) = last.value.filter(|value| *value > HARM * baseline) {
            return Some(format!(
                "the change does harm: {} is {}",
                measure.words(),
                measure.shown(value)
            ));
        }
        let share = |(runs, failed): (u64, u64)| failed as f64 / runs.max(1) as f64;
        let [before, changed] = self.probes.map(share);
        (changed > before + FAILURES)
            .then(|| "the change does harm: more runs of the command fail with it".to_owned())
    }
}

/// How many blocks more would decide it.
fn more(blocks: Option<u32>) -> String {
    match blocks {
        Some(blocks) => format!("about {blocks} blocks more would decide it"),
        None => "the numbers scatter too much to tell".into(),
    }
}

/// The result of an experiment that ended before it was decided.
fn ended(stop: Stop) -> Outcomes {
    let sentence = match stop {
        Stop::Signal => "it was interrupted".to_owned(),
        Stop::Because(why) => why,
    };
    let verdict = Verdict::Undecided { blocks_more: None };
    Outcomes { verdict, sentence, fall: None, period: None }
}
