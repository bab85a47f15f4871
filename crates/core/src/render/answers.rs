// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first lines of a report: the questions that its reader comes with, each with a mark, and what was found, in a
//! sentence each.

use super::finding;
use super::page::{Colour, Page};
use crate::finding::{Answer, Finding, Question, QuestionAnswer, Severity};
use crate::text::escape::{label, width};

/// Columns between two questions, where all fit on one line, and where they do not.
const GAPS: [usize; 2] = [3, 2];
/// Maximum width of a reason, which has two or three words.
const REASON_COLUMNS: usize = 30;

/// Writes the questions on one line, or on as few as they fit: `x CPU wait   ok quota   ? memory: no root`.
///
/// The observer's own answer is shown only if it is no good one: its losses have their own block.
pub(super) fn questions(page: &mut Page, answers: &[QuestionAnswer]) {
    let items: Vec<(Colour, &str, String)> = shown(answers).map(item).collect();
    let columns = |(_, mark, text): &(Colour, &str, String)| mark.len() + 1 + width(text);
    let all: usize = items.iter().map(|it| columns(it) + GAPS[0]).sum();
    let gap = GAPS[usize::from(all > page.columns() + GAPS[0])];
    let (mut line, mut used) = (String::new(), 0);
    for it in &items {
        if used > 0 && used + gap + columns(it) > page.columns() {
            page.line(0, Colour::Plain, &line);
            (line, used) = (String::new(), 0);
        }
        if used > 0 {
            line += &" ".repeat(gap);
            used += gap;
        }
        let (ink, mark, text) = it;
        line += &format!("{} {text}", page.painted(*ink, mark));
        used += columns(it);
    }
    if used > 0 {
        page.line(0, Colour::Plain, &line);
    }
}

/// The answers that are shown.
pub(super) fn shown(answers: &[QuestionAnswer]) -> impl Iterator<Item = &QuestionAnswer> {
    answers.iter().filter(|it| {
        it.question != Question::Observer || matches!(it.answer, Answer::Found | Answer::Unknown)
    })
}

/// A mark with its colour, and the question's name, with what limits the answer.
fn item(answer: &QuestionAnswer) -> (Colour, &'static str, String) {
    let (ink, mark) = mark(answer);
    (ink, mark, words(answer))
}

/// The question's name, with what limits the answer.
pub(super) fn words(answer: &QuestionAnswer) -> String {
    let name = name(answer.question);
    let text = match (&answer.reason, answer.answer) {
        (Some(why), Answer::Unknown) => format!("{name}: {}", label(why, REASON_COLUMNS)),
        (_, Answer::Ok) if answer.in_part => format!("{name} (in part)"),
        _ => name.to_owned(),
    };
    text.trim_end().to_owned()
}

/// Writes the sentence of each finding.
pub(super) fn sentences(page: &mut Page, findings: &[Finding]) {
    findings.iter().for_each(|it| finding::claim(page, it));
}

fn mark(item: &QuestionAnswer) -> (Colour, &'static str) {
    match item.answer {
        Answer::Found => (Colour::Severity(item.severity.unwrap_or(Severity::Low)), "x"),
        Answer::Info => (Colour::Severity(Severity::Info), "i"),
        Answer::Ok => (Colour::Plain, "ok"),
        Answer::Unknown => (Colour::Aside, "?"),
    }
}

fn name(question: Question) -> &'static str {
    match question {
        Question::CpuWait => "CPU wait",
        Question::Quota => "quota",
        Question::CpuSpeed => "CPU speed",
        Question::Disk => "disk",
        Question::Memory => "memory",
        Question::Others => "others",
        Question::Network => "network",
        Question::Syscalls => "syscalls",
        Question::Configuration => "configuration",
        Question::Observer => "observer",
    }
}
