// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report as one JSON document, `deburr.report/1`: the fields of [`Report`] in the order of its types.

use crate::finding::Report;
use serde::ser::Error as _;

/// The report as one JSON document with a final newline.
///
/// # Errors
/// Only if a number is not finite, which no rule produces: JSON has no such numbers, and a `null` in their
/// place would break the schema.
pub fn json(report: &Report) -> Result<String, serde_json::Error> {
    if let Some(place) = not_finite(report) {
        return Err(serde_json::Error::custom(format!("{place} is not a finite number")));
    }
    Ok(serde_json::to_string_pretty(report)? + "\n")
}

/// Where the report holds a number that JSON cannot hold.
fn not_finite(report: &Report) -> Option<String> {
    let mut numbers = vec![
        ("window.seconds".to_owned(), report.window.seconds),
        ("observer.cpu_seconds".to_owned(), report.observer.cpu_seconds),
    ];
    for finding in &report.findings {
        let code = &finding.code;
        numbers.push((format!("confidence of {code}"), finding.confidence));
        numbers.push((format!("cost.share of {code}"), finding.cost.share));
        for cause in &finding.causes {
            numbers.push((format!("a cause's share of {code}"), cause.share));
        }
        for evidence in &finding.evidence {
            let place = format!("evidence `{}` of {code}", evidence.name);
            for number in [evidence.value, evidence.from_s, evidence.to_s] {
                numbers.push((place.clone(), number));
            }
        }
    }
    numbers.into_iter().find(|(_, number)| !number.is_finite()).map(|(place, _)| place)
}
