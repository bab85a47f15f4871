// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The scorecard: what was right in many runs, by scenario.

use super::{Run, RunResult, Scores};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// How many were right, of how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct CorrectCount {
    right: u32,
    of: u32,
}

impl CorrectCount {
    fn count(&mut self, mark: Option<bool>) {
        self.of += u32::from(mark.is_some());
        self.right += u32::from(mark == Some(true));
    }

    fn add(&mut self, other: Self) {
        self.right += other.right;
        self.of += other.of;
    }

    /// `3 of 4`, or `-` if nothing was counted.
    fn cell(self) -> String {
        if self.of == 0 { "-".into() } else { format!("{} of {}", self.right, self.of) }
    }
}

/// One line of the scorecard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct Row {
    runs: u32,
    first: CorrectCount,
    culprit: CorrectCount,
    loss: CorrectCount,
    silence: CorrectCount,
    other: CorrectCount,
    all: CorrectCount,
    inconclusive: u32,
    broken: u32,
}

impl Row {
    fn count(&mut self, result: &RunResult) {
        self.runs += 1;
        match result {
            RunResult::Inconclusive { failed, .. } => {
                self.inconclusive += 1;
                self.all.count((!failed.is_empty()).then_some(false));
            }
            RunResult::Broken { .. } => self.broken += 1,
            RunResult::Judged(marks) => {
                self.first.count(marks.first);
                self.culprit.count(marks.culprit);
                self.loss.count(marks.loss);
                self.silence.count(marks.silence);
                self.other.count(marks.other);
                self.all.count(Some(marks.failed.is_empty()));
            }
        }
    }

    fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.inconclusive += other.inconclusive;
        self.broken += other.broken;
        for (mine, theirs) in [
            (&mut self.first, other.first),
            (&mut self.culprit, other.culprit),
            (&mut self.loss, other.loss),
            (&mut self.silence, other.silence),
            (&mut self.other, other.other),
            (&mut self.all, other.all),
        ] {
            mine.add(theirs);
        }
    }

    fn cells(&self) -> [String; 9] {
        let number = |n: u32| if n == 0 { "-".into() } else { n.to_string() };
        [
            self.runs.to_string(),
            self.first.cell(),
            self.culprit.cell(),
            self.loss.cell(),
            self.silence.cell(),
            self.other.cell(),
            self.all.cell(),
            number(self.inconclusive),
            number(self.broken),
        ]
    }
}

const HEADINGS: [&str; 10] = [
    "scenario",
    "runs",
    "first",
    "culprit",
    "loss",
    "silence",
    "other",
    "all right",
    "inconclusive",
    "broken",
];

/// The result of many runs. The names of its fields are stable; fields are only added.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Scorecard<'a> {
    schema: &'static str,
    scenarios: BTreeMap<String, Row>,
    total: Row,
    runs: &'a [Run],
}

impl<'a> Scorecard<'a> {
    /// Counts the results of these runs.
    pub(crate) fn of(runs: &'a [Run]) -> Self {
        let (mut scenarios, mut total) = (BTreeMap::<String, Row>::new(), Row::default());
        for run in runs {
            scenarios.entry(name(run)).or_default().count(&run.result);
        }
        scenarios.values().for_each(|row| total.add(row));
        Self { schema: "deburr.score/1", scenarios, total, runs }
    }

    /// Whether everything that was judged was right, and anything was judged.
    pub(crate) fn is_all_right(&self) -> bool {
        self.total.broken == 0 && self.total.all.of > 0 && self.total.all.right == self.total.all.of
    }

    fn rows(&self) -> Vec<[String; 10]> {
        let rows =
            self.scenarios.iter().map(|(name, row)| (&**name, row)).chain([("total", &self.total)]);
        rows.map(|(name, row)| {
            let mut cells = row.cells().into_iter();
            std::array::from_fn(|at| match at {
                0 => name.to_owned(),
                _ => cells.next().unwrap_or_default(),
            })
        })
        .collect()
    }

    /// The scorecard as text for a terminal.
    pub(crate) fn text(&self) -> String {
        let heading = HEADINGS.map(str::to_owned);
        let rows: Vec<_> = std::iter::once(heading).chain(self.rows()).collect();
        let widths: [usize; 10] = std::array::from_fn(|at| {
            rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0)
        });
        let mut text = String::new();
        for row in &rows {
            let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
            let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
        }
        for run in self.runs.iter().filter(|run| !is_right(run)) {
            let _ = writeln!(text, "\n{}", line(run));
        }
        text
    }

    /// The scorecard as a Markdown document.
    pub(crate) fn markdown(&self) -> String {
        let mut text = String::from(HEAD);
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        text.push_str(&line(&HEADINGS.map(str::to_owned)));
        text.push_str(&line(&HEADINGS.map(|_| "---".to_owned())));
        for row in self.rows() {
            text.push_str(&line(&row));
        }
        text.push_str("\n## What was not right\n\n");
        let mut wrong = self.runs.iter().filter(|run| !is_right(run)).peekable();
        if wrong.peek().is_none() {
            text.push_str("Nothing.\n");
        }
        for run in wrong {
            let _ = writeln!(text, "- `{}`, seed {} ({})", name(run), run.seed, numbers(run));
            for why in reasons(run) {
                let _ = writeln!(text, "  - {}", why.replace('\n', " "));
            }
        }
        text
    }
}

const HEAD: &str = "\
# Scorecard

Written by `deburr lab score --write docs/scorecard.md`; not by hand. Scenarios of the lab are run several times, each time
with other numbers: a file of `lab/scenarios` says in `[vary]` which of its numbers may be what, and the seed chooses.
`sudo target/release/deburr lab score NAME --seed SEED --runs 1` runs one of them again;
`--weight N` gives the lab N times a cgroup's default weight against the host's other work.

- **first**: the finding that must come first does.
- **culprit**: who must be blamed is, with as much of the loss as the scenario says at least.
- **loss**: the report and the victim's own clock agree on what it lost, in both runs.
- **silence**: nothing above `info` is found in control runs, nor with the load of scenarios in which nothing is wrong.
- **other**: all else that a scenario expects.
- **all right**: of the runs that came to an end, inconclusive ones included.
- **inconclusive**: not all was right, and the machine was not fit for it (others computed, the hypervisor took CPUs), or the
  fault did not come about by the victim's own account; or it was not run, because no CPU idled. Listed below with what was not so. The columns from *first* to *other* leave these runs out,
  and so look better than they are where there are many.

Lines with `prove` count the experiments of a scenario, which `--prove` runs, by *all right*: the result is the one that the
scenario names, and all that was changed is put back.

";

/// What a run is counted under: an experiment has a row of its own.
fn name(run: &Run) -> String {
    match &run.experiment {
        None => run.scenario.clone(),
        Some(arguments) => format!("{}: prove {arguments}", run.scenario),
    }
}

fn is_right(run: &Run) -> bool {
    matches!(&run.result, RunResult::Judged(Scores { failed, .. }) if failed.is_empty())
}

fn reasons(run: &Run) -> Vec<String> {
    match &run.result {
        RunResult::Judged(marks) => marks.failed.clone(),
        RunResult::Inconclusive { why, failed } => {
            let not_so = failed.iter().map(|what| format!("not so: {what}"));
            std::iter::once(format!("inconclusive: {why}")).chain(not_so).collect()
        }
        RunResult::Broken { why } => vec![format!("broken: {why}")],
    }
}

fn numbers(run: &Run) -> String {
    let numbers: Vec<_> =
        run.numbers.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    let weight = (run.weight != 1).then(|| format!("--weight {}", run.weight));
    numbers.into_iter().chain(weight).collect::<Vec<_>>().join(", ")
}

/// One run as short text.
pub(super) fn line(run: &Run) -> String {
    let reasons = reasons(run);
    let what = if reasons.is_empty() { "as expected".into() } else { reasons.join("\n  ") };
    format!("`{}`, seed {} ({})\n  {what}", name(run), run.seed, numbers(run))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(scenario: &str, seed: u64, result: RunResult) -> Run {
        let numbers = [("fault.0.shares".to_owned(), 2)].into();
        Run { scenario: scenario.into(), experiment: None, seed, numbers, weight: 100, result }
    }

    fn runs() -> Vec<Run> {
        let right = Scores { first: Some(true), loss: Some(true), ..Scores::default() };
        let wrong = Scores {
            first: Some(false),
            failed: vec!["`SCH001` comes first: nothing".into()],
            ..right.clone()
        };
        vec![
            run("starved", 1, RunResult::Judged(right)),
            run("starved", 2, RunResult::Judged(wrong)),
            run(
                "pinned",
                1,
                RunResult::Inconclusive {
                    why: "busy".into(),
                    failed: vec!["`SCH003` is found".into()],
                },
            ),
            run("pinned", 2, RunResult::Broken { why: "no disk".into() }),
        ]
    }

    #[test]
    fn what_is_inconclusive_is_not_all_right_and_in_no_other_column() {
        let runs = runs();
        let card = Scorecard::of(&runs);
        let rows = card.rows();
        assert_eq!(rows[0], ["pinned", "2", "-", "-", "-", "-", "-", "0 of 1", "1", "1"]);
        assert_eq!(
            rows[1],
            ["starved", "2", "1 of 2", "-", "2 of 2", "-", "-", "1 of 2", "-", "-"]
        );
        assert_eq!(rows[2][0..3], ["total", "4", "1 of 2"]);
        assert!(!card.is_all_right());
        assert!(Scorecard::of(&runs[..1]).is_all_right());
        assert!(!Scorecard::of(&runs[2..3]).is_all_right(), "nothing was judged");
    }

    #[test]
    fn an_experiment_is_counted_for_itself() {
        let mut runs = runs();
        let refuted = Scores { failed: vec!["`confirmed`: it is not".into()], ..Scores::default() };
        for result in [RunResult::Judged(Scores::default()), RunResult::Judged(refuted)] {
            let experiment = Some("SCH001".into());
            runs.push(Run { experiment, ..run("starved", 1, result) });
        }
        let card = Scorecard::of(&runs);
        let wanted = ["starved: prove SCH001", "2", "-", "-", "-", "-", "-", "1 of 2", "-", "-"];
        assert_eq!(card.rows()[2], wanted);
        assert_eq!(card.rows()[1][0..2], ["starved", "2"]);
        assert!(card.text().contains("`starved: prove SCH001`, seed 1"), "{}", card.text());
    }

    #[test]
    fn both_documents_name_each_failure_with_its_seed_and_numbers() {
        let runs = runs();
        let card = Scorecard::of(&runs);
        for text in [card.text(), card.markdown()] {
            for wanted in [
                "`starved`, seed 2 (fault.0.shares = 2, --weight 100)",
                "`SCH001` comes first: nothing",
                "inconclusive: busy",
                "not so: `SCH003` is found",
                "broken: no disk",
            ] {
                assert!(text.contains(wanted), "{wanted}: {text}");
            }
            assert!(!text.contains("seed 1 (fault.0.shares = 2, --weight 100)\n  as"), "{text}");
        }
    }
}
