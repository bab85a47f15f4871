// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The reports that the documentation shows (`docs/reports`), made from recordings of the incidents. `UPDATE=1` writes
//! them anew.

use crate::docs::assert_generated;
use crate::repo::root;
use assert_cmd::cargo::cargo_bin_cmd;
use deburr_core::render::{self, TextStyle};

/// Width of the texts, in columns.
const COLUMNS: usize = 100;

/// What a command of `deburr` prints about files of the repository, and the page that it writes.
fn printed(arguments: &[&str]) -> (String, String) {
    let [text, page] = [&[][..], &["--html", "-"]].map(|more| {
        let mut command = cargo_bin_cmd!("deburr");
        let command = command.current_dir(root()).env_remove("NO_COLOR").args(arguments).args(more);
        String::from_utf8(command.assert().success().get_output().stdout.clone()).unwrap()
    });
    (text, page)
}

/// The check of CPUs. No command makes a page of its JSON.
fn cpu_check(fixture: &str) -> (String, String) {
    let json = std::fs::read(root().join(fixture)).unwrap();
    let check = serde_json::from_slice(&json).unwrap();
    let style = TextStyle { columns: COLUMNS, color: false, verbosity: 1 };
    (render::cpu_check(&check, style), render::cpu_check_html(&check).unwrap())
}

/// The reports: name, text and page.
fn reports() -> Vec<(&'static str, (String, String))> {
    let of = |recording: &str| {
        printed(&["report", &format!("fixtures/lab/{recording}/recording.deburr")])
    };
    vec![
        ("neighbour", of("neighbour-4")),
        ("writeback", of("writeback")),
        ("shared-cores", cpu_check("fixtures/cpu-check/hidden-smt.json")),
        ("go-quota", of("go-quota")),
        (
            "drift",
            printed(&[
                "diff",
                "fixtures/snapshots/drift-healthy.json",
                "fixtures/snapshots/drift-slow.json",
            ]),
        ),
    ]
}

#[test]
fn the_reports_that_are_shown_are_those_of_today() {
    let index = std::fs::read_to_string(root().join("docs/reports/README.md")).unwrap();
    let reports = reports();
    for (name, (text, page)) in &reports {
        assert!(text.lines().count() > 10 && page.contains("</html>"), "{name} is a whole report");
        assert_generated(&format!("docs/reports/{name}.txt"), text);
        assert_generated(&format!("docs/reports/{name}.html"), page);
        for kind in ["txt", "html"] {
            assert!(index.contains(&format!("]({name}.{kind})")), "{name}.{kind} is linked");
        }
        // What the index quotes is in the report.
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let quoted = index
            .split(&format!("]({name}.txt)"))
            .nth(1)
            .and_then(|after| after.split("> ").nth(1));
        let quoted =
            words(quoted.expect("the index quotes each report").split("\n\n").next().unwrap());
        assert!(
            words(text).contains(&quoted.replace(" > ", " ")),
            "{name}: the report does not say: {quoted}"
        );
    }
    let kept = std::fs::read_dir(root().join("docs/reports")).unwrap().count();
    assert_eq!(kept, 2 * reports.len() + 1, "docs/reports holds nothing else");
}
