// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the documents: what they name exists, and their generated parts are up to date.
//!
//! `UPDATE=1` rewrites the generated parts.

use crate::repo::{assert_none, files, root};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

fn documents() -> Vec<(String, String)> {
    files().into_iter().filter(|(name, _)| name.ends_with(".md")).collect()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Compares a generated file with its expected content; with `UPDATE`, writes it first.
pub(crate) fn assert_generated(path: &str, wanted: &str) {
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(root().join(path), wanted).expect("the repository is writable");
    }
    let found = std::fs::read_to_string(root().join(path)).unwrap_or_default();
    assert!(found == wanted, "{path} is not up to date: `make docs` writes it");
}

/// The targets of the Makefile, and whether each has its line in `make help`.
fn make_targets() -> Vec<(String, bool)> {
    read("Makefile")
        .lines()
        .filter_map(|line| {
            let (target, rest) = line.split_once(':')?;
            let name =
                !target.is_empty() && target.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
            (name && !rest.starts_with('=')).then(|| (target.to_owned(), rest.contains("## ")))
        })
        .collect()
}

/// The commands in a document's console blocks (lines that begin with `$ `), without comments.
pub(crate) fn console_lines(document: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut inside = false;
    for line in document.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if let (true, Some(command)) = (inside, line.strip_prefix("$ ")) {
            lines.push(command.split(" #").next().unwrap_or_default().trim().to_owned());
        }
    }
    lines
}

#[test]
fn links_lead_somewhere() {
    let mut problems = Vec::new();
    for (name, content) in documents() {
        let folder = root().join(&name).parent().expect("a file has a folder").to_owned();
        for link in content.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap_or_default();
            if !link.contains("://") && !file.is_empty() && !folder.join(file).exists() {
                problems.push(format!("{name}: `{link}` does not exist"));
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn paths_in_backticks_exist() {
    const FOLDERS: [&str; 8] =
        ["crates/", "docs/", "lab/", "scripts/", "bench/", "hooks/", "fixtures/", "LICENSES/"];
    let mut problems = Vec::new();
    for (name, content) in documents() {
        for word in content.split('`').skip(1).step_by(2) {
            // The reader fills in AREA and NAME.
            let pattern = ["AREA", "NAME", "*", " ", "<"].iter().any(|p| word.contains(p));
            let path = FOLDERS.iter().any(|folder| word.starts_with(folder));
            if path && !pattern && !root().join(word).exists() {
                problems.push(format!("{name}: `{word}` does not exist"));
            }
        }
    }
    assert_none(&problems);
}

/// `docs/decoys.md`: for each rule that names a cause there are tests in which the correlate is there, but is not the
/// cause.
#[test]
fn every_rule_has_decoys_that_exist() {
    let mut problems = Vec::new();
    let sources = files().into_iter().filter(|(name, _)| name.ends_with(".rs"));
    let sources: String = sources.map(|(_, content)| content).collect();
    let document = read("docs/decoys.md");
    let rows: Vec<Vec<&str>> = document
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| finding"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    for row in &rows {
        let [finding, _, _, decoys, _] = row.as_slice() else {
            problems.push(format!("{row:?}: five columns are wanted"));
            continue;
        };
        let tests: Vec<&str> = decoys.split('`').skip(1).step_by(2).collect();
        if tests.is_empty() {
            problems.push(format!("{finding}: no test is named"));
        }
        for test in tests.iter().filter(|test| !sources.contains(&format!("fn {test}("))) {
            problems.push(format!("{finding}: there is no test `{test}`"));
        }
    }
    // The rules about the observer itself name no cause.
    for rule in deburr_core::rules::RULES.iter().filter(|rule| !rule.code.starts_with("OBS")) {
        if !rows.iter().any(|row| row.first() == Some(&rule.code)) {
            problems.push(format!("{}: has no decoy", rule.code));
        }
    }
    assert_none(&problems);
}

#[test]
fn make_targets_exist_and_say_what_they_do() {
    let targets = make_targets();
    assert!(targets.len() > 5, "{targets:?}");
    let mut problems: Vec<_> = targets
        .iter()
        .filter(|(_, helps)| !helps)
        .map(|(target, _)| format!("Makefile: `{target}` says nothing in `make help`"))
        .collect();
    for (name, content) in documents() {
        let quoted = content.split('`').skip(1).step_by(2).map(str::to_owned);
        for command in quoted.chain(console_lines(&content)) {
            let Some(target) = command.strip_prefix("make ") else { continue };
            let target = target.split_whitespace().next().unwrap_or_default();
            if !targets.iter().any(|(t, _)| t == target) {
                problems.push(format!("{name}: `{command}`: there is no such target"));
            }
        }
    }
    assert_none(&problems);
}

/// Indentation of a list item in which a block of code stands.
fn without_indentation(block: &str) -> String {
    let first = block.lines().next().unwrap_or_default();
    let indent = &first[..first.len() - first.trim_start().len()];
    // Code may be indented in its file, too: what counts is the same text line by line.
    block
        .lines()
        .map(|line| line.strip_prefix(indent).unwrap_or(line).trim_end())
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn the_code_in_contributing_is_that_of_the_files() {
    let contributing = read("CONTRIBUTING.md");
    let mut checked = 0;
    for part in contributing.split("<!-- crates/").skip(1) {
        let (path, rest) = part.split_once(" -->\n").expect("a path");
        let block = rest.split("```rust\n").nth(1).and_then(|code| code.split("```").next());
        let wanted = without_indentation(block.expect("a block of code follows").trim_end());
        let found: Vec<String> =
            read(&format!("crates/{path}")).lines().map(str::to_owned).collect();
        let lines = wanted.lines().count();
        let is_there =
            found.windows(lines).any(|window| without_indentation(&window.join("\n")) == wanted);
        assert!(is_there, "CONTRIBUTING.md: crates/{path} has not:\n{wanted}");
        checked += 1;
    }
    assert!(checked > 2, "{checked} blocks of code");
}

#[test]
fn the_map_is_short() {
    let lines = read("ARCHITECTURE.md").lines().count();
    assert!(lines <= 200, "ARCHITECTURE.md has {lines} lines");
}

#[test]
fn the_readme_shows_the_example_report() {
    let (open, close) = ("<!-- docs/example-report.txt -->\n```text\n", "```\n<!-- end -->");
    let readme = read("README.md");
    let (before, rest) = readme.split_once(open).expect("README.md has the place for the report");
    let (_, after) = rest.split_once(close).expect("README.md has the end of the report");
    let report = read("docs/example-report.txt");
    assert!(report.lines().count() > 10, "docs/example-report.txt is a whole report");
    assert_generated("README.md", &format!("{before}{open}{report}{close}{after}"));
}

#[test]
fn the_files_of_a_snapshot_are_listed() {
    use deburr_core::snapshot::{Class, filter, whitelist};
    let mut text = String::from(
        "# Files of a snapshot\n\n\
         Written by `make docs` from `crates/core/src/snapshot/whitelist`; not by hand. `deburr snapshot` reads these \
         files and no\nothers; [snapshot.md](snapshot.md) says what the classes mean. `*` stands for each CPU, disk, \
         card, ..., `{}` for each of\nthe names that are there, `#` leads to a part of a file.\n",
    );
    let mut area = None;
    for class_of in whitelist::entries().chunk_by(|a, b| a.area == b.area) {
        if area != Some(class_of[0].area) {
            area = Some(class_of[0].area);
            writeln!(text, "\n## {}\n", class_of[0].area.name()).expect("a String takes all");
        }
        for class in Class::ALL {
            let mut by_directory: Vec<(String, Vec<String>)> = Vec::new();
            for entry in class_of.iter().filter(|entry| entry.class == class) {
                let (directory, name) = entry.path.rsplit_once('/').expect("a path has a slash");
                let name = entry.part.map_or(name.to_owned(), |part| format!("{name}#{part}"));
                let name = format!("`{name}`");
                match by_directory.iter_mut().find(|(known, _)| known == directory) {
                    Some((_, names)) => names.push(name),
                    None => by_directory.push((directory.to_owned(), vec![name])),
                }
            }
            for (directory, names) in by_directory {
                let names = names.join(", ");
                writeln!(text, "- {}: `{directory}/`: {names}", class.name()).expect("as above");
            }
        }
    }
    text.push_str("\n## What stays out\n\n");
    let list = |names: &[&str]| {
        names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    };
    for (what, names) in [
        ("values of parameters of the kernel whose name holds", filter::SECRET_WORDS.as_slice()),
        ("though not of those that hold", &filter::NOT_SECRET),
        ("values of those whose name is, or begins with", &filter::SECRET_PREFIXES),
        ("options of mounts that begin with", &filter::SECRET_OPTIONS),
    ] {
        writeln!(text, "- {what} {}", list(names)).expect("as above");
    }
    text.push_str(
        "- values with an IPv4, IPv6 or MAC address or a URL in them, and all that follows `--`\n\
         - the source of a mount over the network\n",
    );
    let identity = list(&filter::IDENTITY_PREFIXES);
    writeln!(text, "\nOf class identity, not configuration, are the parameters {identity}.")
        .expect("as above");
    assert_generated("docs/snapshot-files.md", &text);
}

#[test]
fn scenarios_are_listed() {
    let mut text = String::from(
        "# Scenarios of the lab\n\n\
         Written by `make docs` from `lab/scenarios`; not by hand. `deburr lab run NAME` runs one, with a control run \
         without\nits fault; everything that it makes is undone. `deburr lab list` says which can run here. With `--prove`, \
         the experiments\nof the scenario are run instead, while its fault lasts, and each must have the result that is \
         given here\n([prove.md](prove.md)).\n\n\
         | scenario | what happens | first finding | experiments | needs |\n|---|---|---|---|---|\n",
    );
    let mut names = BTreeSet::new();
    for (path, content) in files() {
        if !path.starts_with("lab/scenarios/") {
            continue;
        }
        let stem = Path::new(&path).file_stem().expect("a file has a name").to_string_lossy();
        let scenario: toml::Table = content.parse().unwrap_or_else(|e| panic!("{path}: {e}"));
        let field = |name: &str| scenario.get(name).and_then(toml::Value::as_str).unwrap_or("none");
        let needs: Vec<_> = scenario
            .get("needs")
            .and_then(toml::Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(toml::Value::as_str)
            .collect();
        assert_eq!(field("name"), stem, "{path}: its name is not its file's");
        let experiments: Vec<_> = scenario
            .get("prove")
            .and_then(toml::Value::as_array)
            .into_iter()
            .flatten()
            .map(|it| {
                let words = it["run"].as_array().expect("words").iter();
                let words: Vec<_> = words.filter_map(toml::Value::as_str).collect();
                // What is measured and for how long is in the file.
                let what = if words[0] == "--set" { words[1] } else { words[0] };
                format!("`{what}` {}", it["expect"].as_str().expect("a word"))
            })
            .collect();
        let experiments =
            if experiments.is_empty() { "none".into() } else { experiments.join(", ") };
        let row = (field("summary"), field("expect_first"), experiments, needs.join(", "));
        writeln!(text, "| {stem} | {} | {} | {} | {} |", row.0, row.1, row.2, row.3)
            .expect("a String takes all");
        names.insert(stem.into_owned());
    }
    assert!(!names.is_empty(), "there are scenarios");
    assert_generated("docs/scenarios.md", &text);
}

/// The table of settings in `docs/prove.md` is that of the code.
#[test]
fn the_settings_of_experiments_are_documented() {
    use deburr_core::prove::knob::LEVERS;
    let mut table =
        String::from("| setting | values | what it does, and what it may cost |\n|---|---|---|\n");
    for lever in LEVERS {
        let unit = lever.unit.map_or(String::new(), |unit| format!(", {unit}"));
        let values = lever.values.words();
        let _ = writeln!(table, "| `{}` | {values}{unit} | {} |", lever.pattern(), lever.risk);
    }
    let text = read("docs/prove.md");
    let (open, close) = ("<!-- settings -->\n", "<!-- end of settings -->\n");
    let (before, rest) = text.split_once(open).expect("the page has a place for the table");
    let (_, after) = rest.split_once(close).expect("the place has an end");
    assert_generated("docs/prove.md", &format!("{before}{open}{table}{close}{after}"));
}
