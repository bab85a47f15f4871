// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A snapshot: parsed, written again, and compared with itself and with one that deburr took.

use crate::judged::{STYLE, pasteable, visible};
use deburr_core::host_diff::HostInput;
use deburr_core::host_diff::document::HostDiff;
use deburr_core::render;
use deburr_core::rules;
use deburr_core::snapshot::Snapshot;
use std::sync::OnceLock;

pub(crate) fn read(data: &[u8]) -> bool {
    let snapshot = match Snapshot::parse(data) {
        Ok(snapshot) => snapshot,
        Err(error) => {
            visible(&render::message(&error.to_string()));
            return false;
        }
    };
    let document = snapshot.document().expect("it is written");
    let again = Snapshot::parse(document.as_bytes());
    assert_eq!(again.as_ref(), Ok(&snapshot), "it was written and read");
    let same = compared(&snapshot, &snapshot);
    assert!(same.differences.is_empty(), "it differs from itself: {:?}", same.differences);
    static OTHER: OnceLock<Snapshot> = OnceLock::new();
    let other = OTHER.get_or_init(|| {
        let document = include_bytes!("../../../fixtures/snapshots/drift-slow.json");
        Snapshot::parse(document).expect("a kept snapshot")
    });
    for (a, b) in [(&snapshot, other), (other, &snapshot)] {
        let diff = compared(a, b);
        visible(&render::host_diff(&diff, STYLE));
        visible(&render::json_document(&diff).expect("numbers are finite"));
        for step in diff.differences.iter().filter_map(|difference| difference.change.as_ref()) {
            if step.is_command {
                pasteable(&step.text);
                assert!(!step.text.contains(".."), "a command leaves its directory: {}", step.text);
            }
        }
    }
    true
}

fn compared(a: &Snapshot, b: &Snapshot) -> HostDiff {
    let input =
        |snapshot, slow| HostInput { snapshot, label: "x", slow: Some(slow), golden: false };
    rules::diff(&[input(a, false), input(b, true)], &[], "0.1.0")
}
