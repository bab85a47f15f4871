// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The answers to the questions that a report answers first: what the rules of each question said, in one word.

use super::asleep::tasks;
use super::candidates::target_is_host;
use super::{Rule, Verdict};
use crate::finding::{Answer, Area, Question, QuestionAnswer, Severity};
use crate::recording::{Source, State};
use crate::view::View;

/// The answers to all questions that a recording can be asked, from the verdicts of its rules.
pub(super) fn answers(view: &View, judged: &[(&'static Rule, Verdict)]) -> Vec<QuestionAnswer> {
    Question::ALL.into_iter().filter_map(|question| answer(view, question, judged)).collect()
}

/// `None` if no rule about recordings belongs to the question.
fn answer(
    view: &View,
    question: Question,
    judged: &[(&'static Rule, Verdict)],
) -> Option<QuestionAnswer> {
    let of = || judged.iter().filter(|(rule, _)| rule.question == question);
    of().next()?;
    let severity = of().filter_map(|(_, verdict)| worst(verdict)).max();
    let checked = of().any(|(_, verdict)| !matches!(verdict, Verdict::NoData { .. }));
    let answer = match severity {
        Some(Severity::Info) => Answer::Info,
        Some(_) => Answer::Found,
        None if checked => Answer::Ok,
        None => Answer::Unknown,
    };
    let reason = of().find_map(|(rule, verdict)| match verdict {
        Verdict::NoData { .. } => Some(why_unchecked(view, rule)),
        Verdict::Fired(_) | Verdict::Quiet { .. } => why_in_part(view, rule),
    });
    let unseen = question == Question::Others
        && !target_is_host(view)
        && checked
        && tasks::are_in_target(view);
    let reason = reason.or_else(|| unseen.then(|| "tasks not seen".to_owned()));
    Some(QuestionAnswer {
        question,
        answer,
        severity,
        codes: of().map(|(rule, _)| rule.code.to_owned()).collect(),
        in_part: reason.is_some(),
        reason,
    })
}

fn worst(verdict: &Verdict) -> Option<Severity> {
    match verdict {
        Verdict::Fired(findings) => findings.iter().map(|finding| finding.severity).max(),
        Verdict::Quiet { .. } | Verdict::NoData { .. } => None,
    }
}

/// Why a rule had no data, in two or three words.
fn why_unchecked(view: &View, rule: &Rule) -> String {
    if rule.any_of.iter().any(|&source| view.covers(source)) {
        let on_request = rule.area == Area::Waiting && target_is_host(view);
        return if on_request { "for a target only" } else { "too little data" }.into();
    }
    let Some(&source) = rule.any_of.first() else { return "too little data".into() };
    match view.coverage(source) {
        None if source.is_asked_for() => "not asked for".into(),
        None => "not observed".into(),
        Some(State::Missing { reason, .. }) => in_few_words(source, reason),
        Some(State::Active | State::Partial { .. }) => "too little data".into(),
    }
}

/// The same for a rule that was checked without its best source. What an available source did not see is in its
/// coverage: of a rule that needs just that, the detector says that it has no data.
fn why_in_part(view: &View, rule: &Rule) -> Option<String> {
    let &best = rule.any_of.first()?;
    match view.coverage(best) {
        Some(State::Missing { reason, .. }) => Some(in_few_words(best, reason)),
        Some(State::Active | State::Partial { .. }) | None => None,
    }
}

/// Why a source is missing, in two or three words.
fn in_few_words(source: Source, reason: &str) -> String {
    let says = |words: &[&str]| words.iter().any(|word| reason.contains(word));
    if says(&["root", "CAP_", "ermission denied"]) {
        "no root".into()
    } else if says(&["BTF"]) {
        "no BTF".into()
    } else if says(&["not looked at by"]) {
        "not looked at".into()
    } else {
        format!("no {}", source.label())
    }
}
