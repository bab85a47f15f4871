// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report as a JSON document, `deburr.report/1`: the fields of [`Report`] in the order of its types.

use crate::finding::Report;
use crate::text::escape;
use serde::Serialize;
use serde::ser::Error as _;

/// The report as a JSON document with a final newline.
///
/// # Errors
/// Only if a number is not finite, which no rule produces: JSON has no such numbers, and a `null` in their place would
/// violate the schema.
pub fn json(report: &Report) -> Result<String, serde_json::Error> {
    refuse_not_finite(report)?;
    json_document(report)
}

/// Fails if a number is not finite.
pub(super) fn refuse_not_finite(report: &Report) -> Result<(), serde_json::Error> {
    match not_finite(report) {
        Some(place) => Err(serde_json::Error::custom(format!("{place} is not a finite number"))),
        None => Ok(()),
    }
}

/// Any value as a JSON document with a final newline. Hidden characters ([`is_hidden`](crate::text::name::is_hidden))
/// are escaped: documents are also displayed, and a name must not change the direction of the text around it.
///
/// # Errors
/// If the value cannot be represented in JSON.
pub fn json_document(value: &impl Serialize) -> Result<String, serde_json::Error> {
    Ok(escape::json(&(serde_json::to_string_pretty(value)? + "\n")))
}

/// The place of a number that JSON cannot represent, if the report has one.
fn not_finite(report: &Report) -> Option<String> {
    let mut numbers = vec![
        ("window.seconds".to_owned(), report.window.seconds),
        ("observer.cpu_seconds".to_owned(), report.observer.cpu_seconds),
    ];
    for finding in &report.findings {
        let code = &finding.code;
        if let Some(chart) = &finding.chart {
            let values = chart.rows.iter().flat_map(|row| &row.values).copied();
            let all = values.chain([chart.from_s, chart.step_s, chart.resolution_s]);
            numbers.extend(all.map(|number| (format!("chart of {code}"), number)));
        }
        numbers.push((format!("confidence of {code}"), finding.confidence));
        numbers.push((format!("cost.share of {code}"), finding.cost.share));
        for evidence in &finding.evidence {
            let place = format!("evidence `{}` of {code}", evidence.name);
            for number in [evidence.value, evidence.from_s, evidence.to_s] {
                numbers.push((place.clone(), number));
            }
        }
    }
    numbers.into_iter().find(|(_, number)| !number.is_finite()).map(|(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::name::is_hidden;
    use proptest::prelude::*;

    #[test]
    fn what_turns_or_hides_text_is_escaped() {
        let names =
            ["gpj.\u{202e}exe", "\u{200e}\u{2066}\u{2069}", "\u{e0041}\u{7f}\n\"\\", "毛刺 é"];
        assert_eq!(
            json_document(&names).unwrap(),
            r#"[
  "gpj.\u202eexe",
  "\u200e\u2066\u2069",
  "\udb40\udc41\u007f\n\"\\",
  "毛刺 é"
]
"#
        );
    }

    proptest! {
        #[test]
        fn escaped_text_reads_back_the_same(
            texts in prop::collection::btree_map(any::<String>(), r"(?s)([\u{2028}-\u{206f}]|\u{e0041}|\\|.){0,12}", 0..5),
        ) {
            let document = json_document(&texts).unwrap();
            prop_assert!(!document.contains(|c| c != '\n' && is_hidden(c)));
            let back: std::collections::BTreeMap<String, String> = serde_json::from_str(&document).unwrap();
            prop_assert_eq!(back, texts);
        }
    }
}
