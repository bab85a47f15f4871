// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Golden tests of the output: reports written by hand (`fixtures/render/*.json`) and the texts that must be rendered
//! from them (`*.txt` beside them). `UPDATE=1 cargo test` rewrites the texts.

use super::{TextStyle, json, text};
use crate::finding::{Answer, Finding, Question, Report, Severity};
use crate::text::escape::{command, width};
use crate::text::name::is_hidden;
use proptest::prelude::*;
use serde_json::Value;
use std::fmt::Write as _;

/// The reports, by file name. They are not produced by rules, so that the texts do not change with the rules.
pub(super) const SAMPLES: &[(&str, &str)] = &[
    ("healthy", include_str!("../../../../fixtures/render/healthy.json")),
    ("neighbour", include_str!("../../../../fixtures/render/neighbour.json")),
    ("quota", include_str!("../../../../fixtures/render/quota.json")),
    ("pinned", include_str!("../../../../fixtures/render/pinned.json")),
    ("unprivileged", include_str!("../../../../fixtures/render/unprivileged.json")),
    ("interrupted", include_str!("../../../../fixtures/render/interrupted.json")),
    ("rhythm", include_str!("../../../../fixtures/render/rhythm.json")),
    ("hostile", include_str!("../../../../fixtures/render/hostile.json")),
];

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/render");

pub(super) fn sample(name: &str) -> Report {
    let (_, document) = SAMPLES.iter().find(|(it, _)| *it == name).unwrap();
    serde_json::from_str(document).unwrap()
}

/// A report with a dozen findings and half a dozen ledgers, composed of the others.
fn many() -> Report {
    let mut report = sample("neighbour");
    for (i, name) in ["quota", "pinned", "unprivileged", "neighbour", "pinned", "interrupted"]
        .into_iter()
        .cycle()
        .take(11)
        .enumerate()
    {
        let other = sample(name);
        let named = |finding: Finding| Finding {
            title: finding.title.replace("`ruby`", "`后台任务`"),
            victim: crate::finding::Entity {
                pid: Some(20_000 + i as u32),
                comm: Some("后台任务".into()),
                ..finding.victim
            },
            ..finding
        };
        report.findings.extend(other.findings.into_iter().map(named));
        report.ledger.extend(other.ledger.into_iter().filter(|_| i < 5));
    }
    report.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    for item in &mut report.questions {
        if item.question == Question::Quota {
            (item.answer, item.severity) = (Answer::Found, Some(Severity::High));
        }
    }
    report.ruled_out.retain(|it| it.code == "OBS002" || it.code == "OBS003");
    report
}

/// A report on an observation that lost too much.
fn lossy() -> Report {
    let mut report = sample("neighbour");
    report.findings.extend(sample("interrupted").findings);
    report.findings[1].severity = Severity::Low;
    for item in &mut report.questions {
        if item.question == Question::Observer {
            (item.answer, item.severity) = (Answer::Found, Some(Severity::Low));
        }
    }
    report.ruled_out.retain(|it| it.code != "OBS001");
    report.observer = sample("interrupted").observer;
    report
}

const STYLE: TextStyle = TextStyle { columns: 100, color: false, verbosity: 1 };

/// Names of golden files, and the texts that belong into them.
fn texts() -> Vec<(String, String)> {
    let mut texts: Vec<(String, String)> =
        SAMPLES.iter().map(|(name, _)| ((*name).to_owned(), text(&sample(name), STYLE))).collect();
    for (suffix, style) in [
        ("60-columns", TextStyle { columns: 60, ..STYLE }),
        ("80-columns", TextStyle { columns: 80, ..STYLE }),
        ("quiet", TextStyle { verbosity: 0, ..STYLE }),
        ("verbose", TextStyle { verbosity: 2, ..STYLE }),
        ("color", TextStyle { color: true, ..STYLE }),
    ] {
        texts.push((format!("neighbour-{suffix}"), text(&sample("neighbour"), style)));
    }
    for (name, columns) in [("rhythm", 100), ("hostile", 60)] {
        let style = TextStyle { columns, verbosity: 2, ..STYLE };
        texts.push((format!("{name}-verbose"), text(&sample(name), style)));
    }
    texts.push(("lossy".into(), text(&lossy(), STYLE)));
    texts.push(("lossy-quiet".into(), text(&lossy(), TextStyle { verbosity: 0, ..STYLE })));
    texts.push(("many".into(), text(&many(), STYLE)));
    texts.push(("many-quiet".into(), text(&many(), TextStyle { verbosity: 0, ..STYLE })));
    texts
}

/// The lines in which two texts differ.
fn diff(name: &str, kept: &str, now: &str) -> String {
    let mut text = String::new();
    let (mut kept, mut now) = (kept.lines(), now.lines());
    for line in 1.. {
        match (kept.next(), now.next()) {
            (None, None) => break,
            (a, b) if a == b => {}
            (a, b) => {
                for (sign, side) in [('-', a), ('+', b)] {
                    if let Some(side) = side {
                        let _ = writeln!(text, "{name}:{line}: {sign} {side}");
                    }
                }
            }
        }
    }
    text
}

/// Compares texts with the files of a folder. `UPDATE=1` writes these instead.
#[expect(clippy::disallowed_methods, reason = "golden files are read, and written on demand")]
pub(crate) fn assert_kept(folder: &str, texts: &[(String, String)]) {
    let update = std::env::var_os("UPDATE").is_some();
    let mut differences = String::new();
    for (name, now) in texts {
        let path = format!("{folder}/{name}");
        if update {
            std::fs::write(&path, now).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        differences += &diff(name, &kept, now);
    }
    assert!(differences.is_empty(), "`UPDATE=1 cargo test` accepts these:\n{differences}");
}

#[test]
fn reports_look_as_they_are_kept() {
    let named = |(name, text): (String, String)| (format!("{name}.txt"), text);
    assert_kept(FOLDER, &texts().into_iter().map(named).collect::<Vec<_>>());
}

#[test]
fn json_keeps_every_field_and_their_order() {
    for (name, document) in SAMPLES {
        let now = json(&sample(name)).unwrap();
        let differences = diff(&format!("{name}.json"), document, &now);
        assert!(differences.is_empty(), "{differences}");
    }
}

#[test]
fn json_refuses_what_it_cannot_hold() {
    let mut report = sample("neighbour");
    report.findings[0].evidence[0].value = f64::NAN;
    let refusal = json(&report).unwrap_err().to_string();
    assert!(refusal.contains("run-queue wait"), "{refusal}");
}

/// Every command of a report, as it is shown.
fn commands(report: &Report) -> Vec<String> {
    let of = |finding: &Finding| {
        let fixes = finding.fix.iter().filter_map(|fix| fix.command.clone());
        let confirm = finding.confirm.iter().map(|it| it.command.clone());
        fixes.chain(confirm).chain(finding.prove.clone()).collect::<Vec<_>>()
    };
    report.findings.iter().flat_map(of).map(|text| command(&text)).collect()
}

/// Fails on a line that is too wide or holds a character that must not reach a terminal.
fn check_lines(report: &Report, columns: usize, verbosity: u8) {
    let commands = commands(report);
    let shown = text(report, TextStyle { columns, color: false, verbosity });
    for line in shown.lines() {
        assert!(!line.contains(is_hidden), "{line:?}");
        let is_command = commands.iter().any(|command| command.trim() == line.trim());
        assert!(width(line) <= columns.clamp(60, 100) || is_command, "{columns} columns: {line}");
        assert!(line == line.trim_end() || is_command, "trailing space: {line:?}");
    }
    let without = |text: String| {
        ["1", "2", "1;31", "1;33", "1;36", "0"]
            .iter()
            .fold(text, |text, code| text.replace(&format!("\x1b[{code}m"), ""))
    };
    let colored = text(report, TextStyle { columns, color: true, verbosity });
    assert_eq!(without(colored), shown, "colour adds nothing but colour");
}

#[test]
fn no_line_is_wider_than_the_page_except_commands() {
    let samples = SAMPLES.iter().map(|(name, _)| sample(name));
    for report in samples.chain([many(), lossy()]) {
        for columns in [20, 60, 72, 80, 100, 300] {
            for verbosity in 0..=2 {
                check_lines(&report, columns, verbosity);
            }
        }
    }
}

#[test]
fn messages_follow_the_conventions() {
    for (name, shown) in texts().iter().filter(|(name, _)| !name.starts_with("hostile")) {
        for line in shown.lines().filter(|line| !line.contains('\x1b')) {
            let words = line.trim_start();
            let said = |label: &str| words.strip_prefix(label).map(str::to_owned);
            let title = words
                .split_once("]: ")
                .filter(|(tag, _)| !tag.contains(' ') && tag.contains('['))
                .map(|(_, title)| title.to_owned());
            let message = title.or_else(|| said("fix: ")).or_else(|| said("risk: "));
            if let Some(message) = message {
                let first = message.chars().next().unwrap();
                assert!(!first.is_uppercase(), "{name}: begins with a capital: {line}");
                assert!(!message.ends_with('.'), "{name}: ends with a period: {line}");
            }
            assert!(
                !line.contains(['"', '\u{201c}']),
                "{name}: identifiers go in backticks: {line}"
            );
            // A number that has a unit has a space before it.
            let stuck = line.split(' ').any(|word| {
                let number = word.trim_end_matches(['%', 'm', 'u', 'n', 's']);
                number != word && number.parse::<f64>().is_ok()
            });
            assert!(!stuck, "{name}: unit without a space: {line}");
        }
    }
}

/// Puts drawn texts and numbers into every field of a document that is free to hold any.
pub(super) fn scramble(value: &mut Value, key: &str, texts: &mut impl Iterator<Item = String>) {
    match value {
        Value::Object(map) => map.iter_mut().for_each(|(key, value)| scramble(value, key, texts)),
        Value::Array(items) => items.iter_mut().for_each(|item| scramble(item, key, texts)),
        // Enumerations of the contract are not the host's to choose.
        Value::String(text)
            if ![
                "area",
                "kind",
                "severity",
                "unit",
                "state",
                "by",
                "explained_by",
                "question",
                "answer",
            ]
            .contains(&key) =>
        {
            *text = texts.next().unwrap_or_default();
        }
        _ => {}
    }
}

pub(super) fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), r"(?s)(\\|`|\x1b|\x{202e}|\n| |毛|.){0,200}", "[a-z/`]{0,300}"]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_text_of_a_host_reaches_the_terminal_or_breaks_the_layout(
        texts in prop::collection::vec(any_text(), 1..20),
        which in 0..SAMPLES.len(),
        columns in 0usize..120,
        verbosity in 0u8..4,
    ) {
        let mut document: Value = serde_json::from_str(SAMPLES[which].1).unwrap();
        scramble(&mut document, "", &mut texts.into_iter().cycle());
        check_lines(&serde_json::from_value(document).unwrap(), columns, verbosity);
    }

    #[test]
    fn json_reads_back_as_the_same_report(
        texts in prop::collection::vec(any_text(), 1..20),
        which in 0..SAMPLES.len(),
        numbers in prop::collection::vec(any::<f64>().prop_filter("JSON has no others", |x| x.is_finite()), 3),
        big in any::<u64>(),
    ) {
        let mut document: Value = serde_json::from_str(SAMPLES[which].1).unwrap();
        scramble(&mut document, "", &mut texts.into_iter().cycle());
        let mut report: Report = serde_json::from_value(document).unwrap();
        report.window.seconds = numbers[0];
        report.observer.bpf_run_ns = Some(big);
        for finding in &mut report.findings {
            finding.confidence = numbers[1];
            finding.cost.lost_ns_per_s = big;
            let share = crate::finding::Share::saturating(numbers[2]);
            finding.causes.iter_mut().for_each(|cause| cause.share = share);
        }
        let document = json(&report).unwrap();
        prop_assert_eq!(serde_json::from_str::<Report>(&document).unwrap(), report);
        let ending = "}\n";
        prop_assert!(document.ends_with(ending));
    }

    #[test]
    fn no_number_breaks_the_page(
        numbers in prop::collection::vec(any::<f64>(), 4),
        counts in prop::collection::vec(any::<u64>(), 4),
    ) {
        let mut report = sample("neighbour");
        report.window.seconds = numbers[0];
        report.observer.cpu_seconds = numbers[1];
        report.observer.lost = [("x_ns".into(), counts[0]), ("y".into(), counts[1])].into();
        report.ledger[0].wall_ns = counts[2];
        let finding = &mut report.findings[0];
        finding.confidence = numbers[2];
        finding.cost.lost_ns_per_s = counts[3];
        finding.causes[0].share = crate::finding::Share::saturating(numbers[3]);
        finding.evidence[0].from_s = numbers[0];
        finding.evidence[1].value = numbers[1];
        for (class, count) in finding.sizes.iter_mut().zip(&counts) {
            class.count = *count;
            class.ns = *count;
        }
        check_lines(&report, 100, 2);
    }
}
