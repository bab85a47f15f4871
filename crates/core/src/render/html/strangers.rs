// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pages of strangers: whatever the document in a page says, it is refused, or shown without a panic and without markup of
//! its own.

use super::super::golden::{any_text, sample};
use super::super::prove_plot::tests::examples;
use super::super::{
    TextStyle, comparison, cpu_check, experiment, host_diff, read_text, sweep_text,
};
use super::tests::{check, drifted};
use super::{
    InPage, MOST_PAGE_BYTES, comparison_html, cpu_check_html, embedded, experiment_html,
    host_diff_html, html, read_html, read_page, sweep_html,
};
use crate::transcript::{Given, Judged, Reader};
use crate::{compare, transcript};
use proptest::prelude::*;
use serde_json::Value;
use std::sync::LazyLock;

/// A document of each kind, with the element that it is in.
static DOCUMENTS: LazyLock<[(&str, Value); 8]> = LazyLock::new(|| {
    let sweep = include_str!("../../../../../fixtures/sweep/example.json");
    let check = include_str!("../../../../../fixtures/cpu-check/hidden-smt.json");
    let mut reader = Reader::new(Given { cpus: Some(4), interval_s: None });
    for text in [
        include_str!("../../../../../fixtures/transcripts/neighbour-runqlat.txt"),
        include_str!("../../../../../fixtures/transcripts/neighbour-vmstat.txt"),
        include_str!("../../../../../fixtures/transcripts/writeback-iostat-xmt.txt"),
    ] {
        reader.file("a.txt");
        text.lines().for_each(|line| reader.line(line.as_bytes()));
    }
    let read = reader.finish("0.1.0");
    let view = crate::testkit::view(&read.records);
    let report = crate::rules::report(&view, "0.1.0", false);
    let rules = Judged {
        from: read.recorded_from,
        seconds: report.window.seconds,
        findings: report.findings,
        ruled_out: report.ruled_out,
        not_checked: report.not_checked,
    };
    let read = transcript::Document { rules: Some(rules), ..read.document };
    let [(_, falls), (_, follows)] = examples();
    let value = |it: Result<Value, serde_json::Error>| it.expect("a document");
    [
        (embedded::SWEEP, value(serde_json::from_str(sweep))),
        (embedded::COMPARISON, value(serde_json::to_value(compare::tests::sample()))),
        (embedded::READ, value(serde_json::to_value(read))),
        (embedded::REPORT, value(serde_json::to_value(sample("rhythm")))),
        (embedded::CHECK, value(serde_json::from_str(check))),
        (embedded::HOST_DIFF, value(serde_json::to_value(drifted()))),
        (embedded::EXPERIMENT, value(serde_json::to_value(falls))),
        (embedded::EXPERIMENT, value(serde_json::to_value(follows))),
    ]
});

/// How a value is changed.
#[derive(Clone, Debug)]
enum Change {
    Number(Value),
    Text(String),
    Empty,
    Twice,
    Gone,
}

fn any_change() -> impl Strategy<Value = Change> {
    let numbers = prop_oneof![
        prop::sample::select(vec![0.into(), u64::MAX.into(), (-1).into(), 3.into(), 1e308.into()]),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
    ];
    prop_oneof![
        4 => numbers.prop_map(Change::Number),
        2 => any_text().prop_map(Change::Text),
        1 => Just(Change::Empty),
        1 => Just(Change::Twice),
        1 => Just(Change::Gone),
    ]
}

/// Changes the value at a place, which counts all values of the document. Returns the places that are left.
fn changed(value: &mut Value, place: usize, change: &Change) -> Result<(), usize> {
    if place == 0 {
        match (change, &mut *value) {
            (Change::Number(number), Value::Number(_)) => *value = number.clone(),
            (Change::Text(text), Value::String(own)) => own.clone_from(text),
            (Change::Empty, Value::Array(items)) => items.clear(),
            (Change::Twice, Value::Array(items)) => items.extend_from_within(..),
            (Change::Gone, own) => *own = Value::Null,
            _ => {}
        }
        return Ok(());
    }
    let mut left = place - 1;
    let inner: Vec<&mut Value> = match value {
        Value::Array(items) => items.iter_mut().collect(),
        Value::Object(map) => map.values_mut().collect(),
        _ => vec![],
    };
    for item in inner {
        match changed(item, left, change) {
            Ok(()) => return Ok(()),
            Err(rest) => left = rest,
        }
    }
    Err(left)
}

fn places(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(places).sum(),
        Value::Object(map) => map.values().map(places).sum(),
        _ => 0,
    }
}

fn page(id: &str, document: &Value) -> String {
    format!("{}{}{document}</script>", embedded::DOCTYPE, embedded::start(id))
}

/// Shows what a page holds, as text and as another page.
fn show(it: &InPage, style: TextStyle) -> (String, String) {
    match it {
        InPage::Sweep(it) => (sweep_text(it, style), sweep_html(it).unwrap()),
        InPage::Comparison(it) => (comparison(it, style), comparison_html(it).unwrap()),
        InPage::Read(it) => (read_text(it, style), read_html(it).unwrap()),
        InPage::Report(it, check) => {
            (super::super::text(it, style), html(it, None, check.as_deref()).unwrap())
        }
        InPage::Check(it) => (cpu_check(it, style), cpu_check_html(it).unwrap()),
        InPage::HostDiff(it) => (host_diff(it, style), host_diff_html(it).unwrap()),
        InPage::Experiment(it) => (experiment(it, style), experiment_html(it).unwrap()),
    }
}

const STYLE: TextStyle = TextStyle { columns: 100, color: false, verbosity: 2 };

#[test]
fn every_document_is_read_back_and_shown_the_same() {
    for (id, document) in &*DOCUMENTS {
        let first = read_page(page(id, document).as_bytes()).unwrap();
        let (text, html) = show(&first, STYLE);
        let again = read_page(html.as_bytes()).unwrap();
        assert_eq!(again, first, "{id}");
        assert_eq!(show(&again, STYLE), (text, html));
        let other = document["schema"].as_str().unwrap().replace("/1", "/9");
        let mut unknown = document.clone();
        unknown["schema"] = other.clone().into();
        let refusal = read_page(page(id, &unknown).as_bytes()).unwrap_err().to_string();
        assert!(refusal.contains(&other), "{refusal}");
    }
}

#[test]
fn no_text_of_a_document_steers_the_terminal() {
    let text = "\u{1b}]0;x\u{202e}`\n<img src=x>";
    let hostile = Change::Text(text.into());
    let is_shown = |text: &str| text.contains(|c| c != '\n' && crate::text::name::is_hidden(c));
    let mut shown = Vec::new();
    for (id, document) in &*DOCUMENTS {
        for place in 0..places(document) {
            let mut other = document.clone();
            changed(&mut other, place, &hostile).unwrap();
            if other == *document {
                continue;
            }
            let Ok(read) = read_page(page(id, &other).as_bytes()) else { continue };
            let (text, html) = show(&read, STYLE);
            if is_shown(&text) || is_shown(&html) || html.contains("<img") {
                let lines = text.lines().filter(|line| is_shown(line));
                shown.push(format!("{id}, place {place}: {:?}", lines.collect::<Vec<_>>()));
            }
        }
    }
    assert!(shown.is_empty(), "these are shown as they are: {shown:#?}");
}

#[test]
fn no_number_of_a_document_is_too_large() {
    for (id, document) in &*DOCUMENTS {
        for place in 0..places(document) {
            let mut other = document.clone();
            changed(&mut other, place, &Change::Number(u64::MAX.into())).unwrap();
            if other == *document {
                continue;
            }
            let Ok(read) = read_page(page(id, &other).as_bytes()) else { continue };
            let (_, html) = show(&read, STYLE);
            assert!(!html.contains("=\"inf") && !html.contains("=\"NaN"), "{id}, place {place}");
        }
    }
}

#[test]
fn a_point_of_no_variant_is_shown() {
    let mut document = DOCUMENTS[0].1.clone();
    document["points"][0]["variant"] = 99.into();
    document["points"][1]["p99_ns"] = serde_json::json!({ "value": 5.0, "low": 9e9, "high": 1.0 });
    let read = read_page(page(embedded::SWEEP, &document).as_bytes()).unwrap();
    assert!(show(&read, STYLE).0.contains("latency"));
}

#[test]
fn thousands_of_variants_and_rates_make_no_chart() {
    let mut document = DOCUMENTS[0].1.clone();
    let variant = document["variants"][0].clone();
    document["variants"] = vec![variant; 20_000].into();
    document["rates_per_s"] = (1..20_000).collect::<Vec<u32>>().into();
    let read = read_page(page(embedded::SWEEP, &document).as_bytes()).unwrap();
    let (text, html) = show(&read, STYLE);
    assert!(!text.contains("p99 latency by rate") && html.len() <= MOST_PAGE_BYTES);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn whatever_a_document_says_it_is_refused_or_shown(
        which in 0..DOCUMENTS.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any_change()), 1..8),
        verbosity in 0..3u8,
    ) {
        let (id, document) = &DOCUMENTS[which];
        let mut document = document.clone();
        for (place, change) in &changes {
            let place = place.index(places(&document));
            prop_assert_eq!(changed(&mut document, place, change), Ok(()));
        }
        // In the page as deburr writes it: no text of the document ends its element.
        let document = document.to_string().replace('<', "\\u003c");
        let page = format!("{}{}{document}</script>", embedded::DOCTYPE, embedded::start(id));
        if let Ok(read) = read_page(page.as_bytes()) {
            let (text, html) = show(&read, TextStyle { verbosity, ..STYLE });
            check(&html);
            prop_assert!(html.len() <= MOST_PAGE_BYTES);
            prop_assert!(!text.contains(|c| c != '\n' && crate::text::name::is_hidden(c)));
        }
    }
}
