// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The golden inputs `fixtures/rules/CODE/{fires,quiet,nodata}.jsonl`, each with its report beside it as `.txt`.

use super::{about, diff, judged, kept, of_recordings, scenes, shown};
use crate::rules::{Verdict, report};
use crate::testkit::{from_jsonl, to_jsonl, view};

#[test]
fn kept_inputs_yield_what_is_kept() {
    let mut differences = String::new();
    for rule in of_recordings() {
        for kind in scenes::KINDS {
            let Some(scene) = scenes::scene(rule.code, kind) else {
                panic!("{} has no scene `{kind}`", rule.code)
            };
            let path = format!("fixtures/rules/{}/{kind}", rule.code);
            let (input, output) = (format!("{path}.jsonl"), format!("{path}.txt"));
            let now = to_jsonl(&scene.records());
            let records = kept(&input, &now);
            differences += &diff(&input, &records, &now);
            if records.is_empty() {
                continue;
            }
            let records =
                from_jsonl(&records).unwrap_or_else(|(at, error)| panic!("{input}:{at}: {error}"));
            let view = view(&records);
            let answer = match rule.judge(&view) {
                Verdict::Fired(_) => "fires",
                Verdict::Quiet { .. } => "quiet",
                Verdict::NoData { .. } => "nodata",
            };
            assert_eq!(answer, kind, "{path}");
            let said = shown(&about(&report(&view, "0.1.0", true), rule.code));
            differences += &diff(&output, &kept(&output, &said), &said);
        }
    }
    assert!(differences.is_empty(), "UPDATE=1 cargo test accepts these:\n{differences}");
}

#[test]
fn a_kept_input_reads_back_as_it_was_written() {
    let records = scenes::neighbour().records();
    assert_eq!(from_jsonl(&to_jsonl(&records)).expect("records"), records);
    assert_eq!(from_jsonl("{}\nnothing").expect_err("no record").0, 1);
}

#[test]
fn titles_are_lowercase_sentences_without_a_period() {
    for rule in of_recordings() {
        for finding in scenes::KINDS
            .into_iter()
            .filter_map(|kind| scenes::scene(rule.code, kind))
            .flat_map(|s| judged(&s).findings)
        {
            let title = &finding.title;
            let mut prose = String::new();
            for (at, part) in title.split('`').enumerate() {
                prose += if at % 2 == 0 { part } else { "NAME" };
            }
            assert_eq!(title.matches('`').count() % 2, 0, "identifiers end: {title}");
            assert!(!title.ends_with('.'), "{title}");
            assert!(!title.contains('\n'), "{title}");
            let shouted = prose.split(' ').find(|word| {
                word.starts_with(|c: char| c.is_uppercase())
                    && !["NAME", "CPU", "CPUs", "MB", "MiB", "BPF", "IO", "IOs"]
                        .contains(&word.trim_matches(|c: char| !c.is_alphanumeric()))
            });
            assert_eq!(shouted, None, "{title}");
        }
    }
}
