// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What must hold of everything that is shown.

use deburr_core::compare::document::{Comparison, Outcome};
use deburr_core::compare::{Plan, Summary, compare};
use deburr_core::cpu_check::{Document, judge};
use deburr_core::finding::Report;
use deburr_core::recording::Record;
use deburr_core::recording::check::Checker;
use deburr_core::render::{self, TextStyle};
use deburr_core::rules;
use deburr_core::text::name::is_hidden;
use deburr_core::view::{Fold, View};

/// As on a terminal of usual width, without colours: those would be control characters.
pub(crate) const STYLE: TextStyle = TextStyle { columns: 80, color: false, verbosity: 2 };

/// Nothing in the text steers the terminal, hides or turns text.
pub(crate) fn visible(text: &str) {
    let found = text.chars().find(|&c| c != '\n' && is_hidden(c));
    assert!(found.is_none(), "{found:?} is shown in {text:?}");
}

/// A command is one line.
pub(crate) fn pasteable(command: &str) {
    assert!(!command.contains('\n'), "a command of two lines: {command:?}");
    visible(command);
}

/// Checks the records, judges and shows them, as `deburr check` and `deburr report` do.
pub(crate) fn records(records: &[Record]) {
    let (mut fold, mut checker) = (Fold::default(), Checker::default());
    for record in records {
        fold.push(record);
        checker.push(record);
    }
    for violation in checker.finish().violations {
        visible(&render::message(&violation.to_string()));
    }
    let report = rules::report(fold.view(), "0.1.0", false);
    self::report(&report);
    if let Some(check) = judge(fold.view()) {
        let document = Document::new(check, &report);
        visible(&render::cpu_check(&document, STYLE));
        visible(&render::json_document(&document).expect("a document"));
    }
    compared(records, fold.view(), report);
}

/// Compares records with themselves, as `deburr compare` does.
fn compared(records: &[Record], view: &View, report: Report) {
    let side = Summary::of(view, report);
    let plan = Plan::new(side.clone(), side);
    let mut series = [plan.series(0), plan.series(1)];
    for series in &mut series {
        records.iter().for_each(|record| series.push(record));
    }
    let found = compare(&plan, [&series[0], &series[1]], ["a", "b"], "0.1.0");
    let outcome = found.verdict.outcome;
    assert!(
        matches!(outcome, Outcome::NoDifference | Outcome::NotComparable),
        "a recording differs from itself: {:?}",
        found.verdict
    );
    visible(&render::comparison(&found, STYLE));
    let json = render::json_document(&found).expect("a document");
    visible(&json);
    serde_json::from_str::<Comparison>(&json).expect("its own document is read");
}

fn report(report: &Report) {
    for finding in &report.findings {
        let (code, share) = (&finding.code, finding.cost.share);
        assert!((0.0..=1.0).contains(&finding.confidence), "{code}: {}", finding.confidence);
        assert!((0.0..=1.0).contains(&share), "{code}: share {share}");
        let blamed: f64 = finding.causes.iter().map(|cause| cause.share.get()).sum();
        assert!(blamed <= 1.0 + 1e-6, "{code}: {blamed} of the loss is blamed");
        let fixes = finding.fix.iter().filter_map(|fix| fix.command.as_deref());
        fixes.for_each(pasteable);
        if let Some(confirm) = &finding.confirm {
            pasteable(&confirm.command);
        }
    }
    visible(&render::text(report, STYLE));
    let json = render::json(report).expect("numbers are finite");
    visible(&json);
    let back: Report = serde_json::from_str(&json).expect("its own document is read");
    assert_eq!(render::json(&back).ok(), Some(json), "the document changed when it was read");
}
