// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An experiment for a terminal: the plan, as it is shown before anything is changed, and the result with its blocks.

use super::TextStyle;
use super::bars::bar;
use super::page::{Colour, Page};
use super::prove_plot;
use super::table::{Column, Table};
use crate::prove::experiment::Test;
use crate::prove::outcome::{Change, Outcome};
use crate::prove::verdict::Verdict;
use crate::text::escape::sentence;
use crate::text::{shell_quote, ticked, units};

/// Most distances of bursts that are shown of a block.
const DISTANCES: usize = 8;
/// Width of the bars of the blocks.
const BAR_COLUMNS: usize = 30;
/// Width of a label.
const LABEL: usize = 12;

/// What will be done.
#[must_use]
pub fn experiment_plan(it: &Outcome, style: TextStyle) -> String {
    let mut page = Page::new(style);
    write_plan(&mut page, it);
    page.into_text()
}

/// What was done, and what follows.
#[must_use]
pub fn experiment(it: &Outcome, style: TextStyle) -> String {
    let mut page = Page::new(style);
    write(&mut page, it, style);
    page.into_text()
}

/// The headline of the result.
pub(super) fn headline(it: &Outcome) -> String {
    match &it.result {
        Some(result) => format!("{}: {}", word(result.verdict), result.sentence),
        None => format!("planned: {}", it.plan.experiment.hypothesis),
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Confirmed => "confirmed",
        Verdict::Refuted => "refuted",
        Verdict::Undecided { .. } | Verdict::Inconclusive { .. } => "inconclusive",
    }
}

fn write_plan(page: &mut Page, it: &Outcome) {
    let plan = &it.plan;
    let measure = &plan.experiment.measure;
    let mut row = |name: &str, text: &str| labelled(page, name, text);
    row("hypothesis", &plan.experiment.hypothesis);
    if let Some(starts) = &plan.starts {
        let words: Vec<_> = starts.command.iter().map(|word| shell_quote(word)).collect();
        let place = match &starts.cgroup {
            Some(path) => format!(" in cgroup {}", ticked(path)),
            None => String::new(),
        };
        let warmup = units::duration(plan.experiment.settle_seconds * 1e9);
        row(
            "starts",
            &format!(
                "{}{place}, anew for each block; the block begins {warmup} later, and then it is ended",
                ticked(&words.join(" "))
            ),
        );
    }
    // Of several settings of one kind, the kind is said once: the risk, and what they become.
    let alike = |a: &Change, b: &Change| (&a.risk, &a.from, &a.to) == (&b.risk, &b.from, &b.to);
    for changes in plan.changes.chunk_by(alike) {
        let names: Vec<String> =
            changes.iter().map(|change| format!("`{}`", change.setting)).collect();
        let [change, ..] = changes else { continue };
        let to = change.to.join(", ");
        row("change", &format!("{} from {} to {to}", names.join(", "), change.from));
        row("risk", &change.risk);
    }
    row("risk", &plan.experiment.risk);
    let name = measure.words();
    row(
        "measure",
        &match plan.question {
            Some(question) => format!("{name}: {} now", measure.shown(question.pilot)),
            None => name,
        },
    );
    match (&plan.experiment.test, plan.question) {
        (Test::Lowers { .. }, Some(question)) => {
            let least = units::percent(question.minimal_effect.part());
            row("if true", &format!("it falls by {least} at least"));
            row("if not", "it stays, or falls by less");
        }
        (Test::Follows { values, unit_ns, .. }, _) => {
            let periods: Vec<String> = values
                .iter()
                .map(|value| units::duration(value.saturating_mul(*unit_ns) as f64))
                .collect();
            let periods = periods.join(", ");
            row(
                "if true",
                &format!("bursts are {periods} apart, as the setting says, or multiples of it"),
            );
            row("if not", "bursts have one period, whatever the setting says, or none");
        }
        _ => {}
    }
    let [least, most] = plan.blocks;
    let [short, long] = plan.seconds.map(|seconds| units::duration(seconds * 1e9));
    row(
        "blocks",
        &format!(
            "{least} to {most}, in an order that chance decides (seed {}): {short} to {long} in all",
            plan.seed
        ),
    );
    row(
        "undone",
        "after each changed block, and at the end, whatever ends it; if all processes of deburr are killed, by `deburr prove \
         --recover`",
    );
}

fn labelled(page: &mut Page, name: &str, text: &str) {
    let label = format!("{name:LABEL$}");
    page.labelled(2, (Colour::Aside, &label), LABEL, Colour::Plain, &sentence(text));
}

pub(super) fn write(page: &mut Page, it: &Outcome, style: TextStyle) {
    page.paragraph(0, 2, Colour::Heading, &sentence(&headline(it)));
    if style.verbosity > 0 {
        page.gap();
        write_plan(page, it);
    }
    if !it.blocks.is_empty() {
        page.gap();
        blocks(page, it);
    }
    page.gap();
    if let Some(result) = &it.result {
        let mut said = Vec::new();
        let measure = &it.plan.experiment.measure;
        if let Some(fall) = &result.fall {
            let medians = [fall.before, fall.changed]
                .map(|it| it.map_or_else(|| "no number".into(), |it| measure.shown(it)));
            let [before, changed] = medians;
            said.push(("median", format!("{before} as it was, {changed} with the change")));
            if let Some(effect) = fall.effect {
                let end = |end: Option<f64>| end.map_or_else(|| "?".into(), units::percent);
                said.push((
                    "effect",
                    format!(
                        "a fall by {}; at least {} and at most {} with 95 % confidence each",
                        units::percent(effect.estimate),
                        end(effect.at_least),
                        end(effect.at_most)
                    ),
                ));
            }
            if let Some(look) = fall.looks.last() {
                said.push((
                    "chance",
                    format!(
                        "a change without effect looks like that with probability {}; one with the least effect that counts, \
                         with {}",
                        probability(look.no_effect.p),
                        probability(look.minimal_effect.p)
                    ),
                ));
            }
            said.push((
                "method",
                "exact randomisation test in groups of four blocks; a false `confirmed` or `refuted` has a probability of at most \
                 5 % over all looks"
                    .into(),
            ));
        }
        if let Some(period) = &result.period {
            let wakes = units::duration(period.late_ns);
            said.push((
                "fit",
                format!(
                    "the distances of the bursts fit the setting by {:.2}, each tick {wakes} later, and one period for all, {}, by \
                     {:.2} (1 = all are multiples of it, 0 = they have nothing to do with it)",
                    period.fit,
                    units::duration(period.one_ns),
                    period.fit_of_one
                ),
            ));
            said.push((
                "chance",
                format!(
                    "bursts that do not depend on the setting fit it as well with probability {}, bursts that follow it fit one \
                     period as well with {}",
                    probability(period.independent.p),
                    probability(period.follows.p)
                ),
            ));
        }
        for (name, text) in said {
            labelled(page, name, &text);
        }
    }
    for note in &it.notes {
        page.gap();
        page.labelled(0, (Colour::Heading, "note: "), 6, Colour::Plain, &sentence(note));
    }
}

/// How far bursts are apart, in words.
fn apart(distances_ns: &[f64]) -> String {
    let shown: Vec<String> =
        distances_ns.iter().take(DISTANCES).map(|ns| format!("{:.1}", ns / 1e9)).collect();
    let more = if distances_ns.len() > DISTANCES { ", ..." } else { "" };
    format!("{}{more} s apart", shown.join(", "))
}

fn probability(p: f64) -> String {
    if p < 0.001 { "less than 0.001".into() } else { format!("{p:.3}") }
}

/// The blocks in the order of time: a plot, or what was done, a bar, and the number.
fn blocks(page: &mut Page, it: &Outcome) {
    if page.plot(|| prove_plot::of(it)) {
        return;
    }
    let (blocks, measure) = (&it.blocks, &it.plan.experiment.measure);
    let most = blocks.iter().filter_map(|it| it.value).fold(0.0, f64::max);
    let mut table = Table::new(&[
        Column::Right,
        Column::Left(24),
        Column::Left(BAR_COLUMNS),
        Column::Left(usize::MAX),
    ]);
    table.heading(["block", "", "", &sentence(&measure.words())]);
    for (number, block) in (1..).zip(blocks) {
        let (shown, length) = match (block.value, &block.why_not) {
            (Some(value), _) => {
                let shown = match &*block.distances_ns {
                    [] => measure.shown(value),
                    distances => apart(distances),
                };
                (shown, bar(value / most.max(1.0), BAR_COLUMNS))
            }
            (None, why) => (why.clone().unwrap_or_else(|| "no number".into()), String::new()),
        };
        let predicted = block.predicted_ns.map(|ns| format!(", predicted {}", units::duration(ns)));
        table.row([
            number.to_string(),
            sentence(&prove_plot::done(block)),
            length,
            sentence(&(shown + &predicted.unwrap_or_default())),
        ]);
    }
    table.write(page, 2);
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::finding::{Host, Target, Tool};
    use crate::prove::design::{Arm, Design, Limits};
    use crate::prove::effect::{Direction, MinimalEffect};
    use crate::prove::experiment::Experiment;
    use crate::prove::judge::{Guard, Question, judge};
    use crate::prove::measure::Measure;
    use crate::prove::outcome::{Block, Outcomes, Plan, SCHEMA, Starts};
    use crate::text::Unit;

    /// An experiment whose blocks were measured, on a host of hostile names.
    pub(in super::super) fn outcome() -> Outcome {
        let question = Question {
            unit: Unit::Ns,
            direction: Direction::Falls,
            minimal_effect: MinimalEffect::Share(0.25),
            pilot: 1e8,
            guard: Guard::Pilot,
        };
        let design = Design::new(1, Limits::default()).unwrap();
        let value = |arm| if arm == Arm::Changed { 2e7 } else { 1e8 };
        let arms: Vec<Arm> = design.arms().take(8).collect();
        let numbers: Vec<Option<f64>> = arms.iter().map(|arm| Some(value(*arm))).collect();
        let judged = judge(&design, &question, &numbers);
        let block = |(at, arm): (usize, &Arm)| Block {
            at_seconds: 6.0 * at as f64,
            seconds: 5.0,
            arm: Some(*arm),
            set_to: None,
            predicted_ns: None,
            distances_ns: vec![],
            value: Some(value(*arm)),
            why_not: None,
        };
        let hostile = "`a\u{1b}[2J\u{202e}`";
        Outcome {
            schema: SCHEMA.into(),
            tool: Tool { version: "test".into() },
            host: Host { name: "h".into(), kernel: "6".into(), cpus: 2, cgroup: "v2".into() },
            start: "2026-01-02T03:04:05Z".into(),
            target: Target {
                kind: "host".into(),
                name: None,
                pid: None,
                processes: 0,
                entries: vec![],
            },
            plan: Plan {
                experiment: Experiment {
                    code: Some("SCH001".into()),
                    lever: "pause".into(),
                    hypothesis: format!("{hostile} waits"),
                    measure: Measure::Queued,
                    test: Test::Lowers { set: vec![], least_part: 0.25 },
                    risk: "none".into(),
                    block_seconds: 5.0,
                    settle_seconds: 1.0,
                },
                seed: 1,
                question: Some(question),
                starts: Some(Starts {
                    command: vec!["serve".into(), hostile.into()],
                    cgroup: Some(format!("/{hostile}")),
                }),
                changes: (7..10)
                    .map(|pid| Change {
                        setting: format!("pause:{pid}"),
                        from: "running".into(),
                        to: vec!["90%".into()],
                        risk: format!("{hostile} stops"),
                    })
                    .collect(),
                blocks: [8, 24],
                seconds: [50.0, 150.0],
            },
            blocks: arms.iter().enumerate().map(block).collect(),
            result: Some(Outcomes {
                verdict: judged.verdict,
                sentence: format!("{hostile} was it"),
                fall: Some(judged),
                period: None,
            }),
            notes: vec![format!("{hostile} was left")],
        }
    }

    #[test]
    fn a_plan_and_a_result_say_what_was_done_and_names_are_safe() {
        let style = TextStyle { columns: 90, color: false, verbosity: 1 };
        let (plan, text) = (experiment_plan(&outcome(), style), experiment(&outcome(), style));
        for text in [&plan, &text] {
            assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= 90), "{text}");
            assert_eq!(text.matches("stops").count(), 1, "alike changes are told once: {text}");
            assert!(text.contains("anew for"), "{text}");
            assert!(text.contains("`pause:7`, `pause:8`, `pause:9` from running to 90%"), "{text}");
        }
        assert!(text.starts_with("confirmed: "), "{text}");
        assert!(text.contains("100 ms of every second") && text.contains("20 ms of every second"));
        assert_eq!(text.matches("as it was ").count(), 4, "{text}");
        assert!(text.contains("0.028"), "{text}");
        let page = super::super::experiment_html(&outcome()).unwrap();
        super::super::check_page(&page);
        assert!(!page.contains('\u{1b}') && page.contains("deburr-prove"));
    }

    #[test]
    fn a_document_reads_back_as_it_was_written() {
        let json = serde_json::to_string(&outcome()).unwrap();
        assert_eq!(serde_json::from_str::<Outcome>(&json).unwrap(), outcome());
    }
}
