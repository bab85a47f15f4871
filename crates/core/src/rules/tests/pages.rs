// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `docs/rules/CODE.md`: the page that `explain` prints, an example that is always current, and the scenarios that
//! reproduce it.

use super::{ROOT, about, diff, hosts, judged, kept, scenes, shown};
use crate::rules::{RULES, Rule, TOPICS, explain};
use std::fmt::Write as _;

const HEADINGS: [&str; 8] = [
    "What it detects",
    "Why it costs latency",
    "How it is computed",
    "When it is wrong",
    "How to confirm",
    "What to change, and the risk of changing it",
    "References",
    "Limits",
];

/// Names of the lab scenarios that expect a code.
#[allow(clippy::disallowed_methods, reason = "scenarios are read")]
pub(super) fn scenarios(code: &str) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(format!("{ROOT}/lab/scenarios")).expect("scenarios") {
        let path = entry.expect("a folder that is read").path();
        let text = std::fs::read_to_string(&path).expect("a scenario");
        let expects = text.lines().any(|line| line.starts_with("expect") && line.contains(code));
        if let (true, Some(stem)) = (expects, path.file_stem()) {
            names.push(stem.to_string_lossy().into_owned());
        }
    }
    names.sort();
    names
}

fn document(rule: &Rule) -> String {
    let mut page =
        String::from("<!-- Written by a test from the rule and its page: `make docs`. -->\n");
    page += &explain(rule.code).expect("a rule has a page");
    if let Some(scene) = scenes::scene(rule.code, "fires") {
        let example = shown(&about(&judged(&scene), rule.code));
        // Writing to a String cannot fail.
        let _ = write!(page, "\n## Example\n\n```text\n{}\n```\n", example.trim_end());
    }
    if let Some(example) = hosts::example(rule.code) {
        let _ = write!(page, "\n## Example\n\n```text\n{}\n```\n", example.trim_end());
    }
    let scenarios = scenarios(rule.code);
    if !scenarios.is_empty() {
        let _ = writeln!(page, "\n## Reproduce it\n");
        for name in scenarios {
            let _ = writeln!(page, "- `sudo deburr lab run {name}`");
        }
    }
    page
}

#[test]
fn documents_of_rules_are_up_to_date() {
    let mut differences = String::new();
    let mut index = String::from(
        "<!-- Written by a test: `make docs`. -->\n# Findings\n\n| code | name | what |\n|---|---|---|\n",
    );
    for rule in RULES {
        let (code, path) = (rule.code, format!("docs/rules/{}.md", rule.code));
        let now = document(rule);
        differences += &diff(&path, &kept(&path, &now), &now);
        let _ = writeln!(index, "| [{code}]({code}.md) | {} | {} |", rule.name, rule.summary);
    }
    index += "\nWhat several of them share:\n\n";
    for (name, page) in TOPICS {
        let path = format!("docs/rules/{name}.md");
        let now = format!("<!-- Written by a test: `make docs`. -->\n{page}");
        differences += &diff(&path, &kept(&path, &now), &now);
        let title = page.lines().next().and_then(|line| line.strip_prefix("# "));
        let _ = writeln!(index, "- [{name}]({name}.md): {}", title.expect("a page has a title"));
    }
    let path = "docs/rules/README.md";
    differences += &diff(path, &kept(path, &index), &index);
    assert!(differences.is_empty(), "UPDATE=1 cargo test accepts these:\n{differences}");
}

#[test]
fn every_page_has_the_same_headings() {
    for rule in RULES {
        let page = explain(rule.code).expect("a rule has a page");
        let headings: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        assert_eq!(headings, HEADINGS, "{}", rule.code);
        for section in page.split("\n## ").skip(1) {
            let (heading, body) = section.split_once('\n').expect("a section has a body");
            assert!(body.trim().len() > 40, "{}: `{heading}` says nothing", rule.code);
        }
    }
    assert_eq!(explain("SCH000"), None);
    assert!(explain("sleep").is_some_and(|page| page.contains("waits for others")));
    assert_eq!(explain("sch001"), explain("SCH001"));
}
