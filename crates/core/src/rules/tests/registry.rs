// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What every rule must have: unique codes, consistent names, limits, scenarios and inputs.

use super::{ROOT, RULES, of_recordings, pages, scenes};
use crate::finding::Question;
use crate::rules::{Status, find};
use crate::testkit::{S, Scene};
use std::path::Path;

/// Codes of removed rules, which are never reused.
const RETIRED: [&str; 0] = [];

#[test]
fn codes_are_unique_and_never_given_again() {
    for (at, rule) in RULES.iter().enumerate() {
        assert!(!RETIRED.contains(&rule.code), "{}", rule.code);
        let first =
            RULES.iter().position(|other| other.code == rule.code || other.name == rule.name);
        assert_eq!(first, Some(at), "{}", rule.code);
        assert!(std::ptr::eq(find(&rule.code.to_lowercase()).expect("found by its code"), *rule));
    }
    assert!(find("SCH000").is_none());
}

#[test]
fn rules_are_ordered_by_code() {
    assert!(RULES.is_sorted_by_key(|rule| rule.code));
}

#[test]
fn no_rule_is_from_a_version_to_come() {
    let number = |version: &str| -> Vec<u32> {
        version.split('.').take(2).map(|part| part.parse().expect("a number")).collect()
    };
    for rule in RULES {
        let (Status::Preview(since) | Status::Stable(since)) = rule.status;
        assert!(number(since) <= number(env!("CARGO_PKG_VERSION")), "{}: {since}", rule.code);
    }
}

#[test]
fn code_name_and_file_agree() {
    for rule in RULES {
        let number = rule.code.strip_prefix(rule.area.prefix()).unwrap_or_default();
        assert!(number.len() == 3 && number.bytes().all(|b| b.is_ascii_digit()), "{}", rule.code);
        let folder = format!("{:?}", rule.area).to_lowercase();
        let file = Path::new(rule.file);
        let stem = file.file_stem().expect("a name").to_string_lossy().replace('_', "-");
        assert_eq!(stem, rule.name);
        assert_eq!(file.parent().and_then(Path::file_name).expect("a folder"), folder.as_str());
    }
}

/// Each rule has one question by its type; here each question has a rule, and a report has each of its rules in the
/// answer to that question and in no other.
#[test]
fn every_rule_answers_one_question() {
    for question in Question::ALL {
        assert!(RULES.iter().any(|rule| rule.question == question), "{question:?} has no rule");
    }
    let report = super::report(&Scene::new(2, S).view(), "0.1.0", true);
    for rule in of_recordings() {
        let of = report.questions.iter().filter(|it| it.codes.iter().any(|code| code == rule.code));
        let questions: Vec<Question> = of.map(|it| it.question).collect();
        assert_eq!(questions, [rule.question], "{}", rule.code);
    }
    let asked: usize = report.questions.iter().map(|it| it.codes.len()).sum();
    assert_eq!(asked, of_recordings().count());
}

#[test]
fn summaries_and_limits_are_sentence_parts_with_units() {
    for rule in RULES {
        assert!(
            rule.summary.starts_with(char::is_lowercase) && !rule.summary.ends_with('.'),
            "{}",
            rule.code
        );
        let limits: Vec<_> = rule.limits().collect();
        assert!(!limits.is_empty(), "{} decides by numbers", rule.code);
        for (at, limit) in limits.iter().enumerate() {
            assert!(
                limit.value.is_finite() && !limit.unit.is_empty() && !limit.why.is_empty(),
                "{}",
                limit.name
            );
            assert!(!limit.why.ends_with('.'), "{}", limit.name);
            let first = limits.iter().position(|other| other.name == limit.name);
            assert_eq!(first, Some(at), "{} of {}", limit.name, rule.code);
        }
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the list of uncovered codes is read")]
fn every_code_is_reproduced_or_says_why_not() {
    let uncovered = std::fs::read_to_string(format!("{ROOT}/lab/UNCOVERED.md")).expect("the list");
    for rule in RULES {
        let excused = uncovered
            .lines()
            .any(|line| line.split('|').nth(1).is_some_and(|code| code.trim() == rule.code));
        let scenarios = pages::scenarios(rule.code);
        assert_eq!(scenarios.is_empty(), excused, "{}: {scenarios:?}", rule.code);
    }
}

#[test]
fn every_rule_has_its_three_inputs() {
    // The inputs of rules about hosts are in `hosts.rs`.
    for rule in of_recordings() {
        for kind in scenes::KINDS {
            assert!(scenes::scene(rule.code, kind).is_some(), "{} {kind}", rule.code);
        }
    }
}
