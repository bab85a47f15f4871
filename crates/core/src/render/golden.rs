// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What people see, kept in `fixtures/render/`: `UPDATE=1 cargo test` writes the files anew.

use super::escape::width;
use super::{TextStyle, samples, text};
use std::fmt::Write as _;

/// Name of a golden file and the text that belongs into it.
fn goldens() -> Vec<(String, String)> {
    let style = TextStyle { columns: 100, color: false, verbosity: 1 };
    let mut files: Vec<(String, String)> = samples::all()
        .into_iter()
        .map(|(name, report)| (name.to_owned(), text(&report, style)))
        .collect();
    for (suffix, style) in [
        ("narrow", TextStyle { columns: 60, ..style }),
        ("80", TextStyle { columns: 80, ..style }),
        ("quiet", TextStyle { verbosity: 0, ..style }),
        ("verbose", TextStyle { verbosity: 2, ..style }),
        ("color", TextStyle { color: true, ..style }),
    ] {
        files.push((format!("neighbour-{suffix}"), text(&samples::neighbour(), style)));
    }
    files.push(("many-80".into(), text(&samples::many(), TextStyle { columns: 80, ..style })));
    files
}

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/render");

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
                        let _ = writeln!(text, "{name}.txt:{line}: {sign} {side}");
                    }
                }
            }
        }
    }
    text
}

#[test]
#[allow(clippy::disallowed_methods, reason = "golden files are read and written")]
fn reports_look_as_they_are_kept() {
    let update = std::env::var_os("UPDATE").is_some();
    let mut differences = String::new();
    for (name, now) in goldens() {
        let path = format!("{FOLDER}/{name}.txt");
        if update {
            std::fs::create_dir_all(FOLDER).unwrap();
            std::fs::write(&path, &now).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        differences += &diff(&name, &kept, &now);
    }
    assert!(differences.is_empty(), "UPDATE=1 cargo test accepts these:\n{differences}");
}

#[test]
fn no_line_is_wider_than_the_page_except_commands() {
    for (name, report) in samples::all() {
        let commands: Vec<String> = report
            .findings
            .iter()
            .flat_map(|it| {
                let fixes = it.fix.iter().filter_map(|fix| fix.command.as_deref());
                fixes.chain(it.confirm.iter().map(|confirm| confirm.command.as_str()))
            })
            .map(super::escape::command)
            .collect();
        for columns in [60, 72, 80, 100, 300] {
            for verbosity in 0..=2 {
                let shown = text(&report, TextStyle { columns, color: false, verbosity });
                for line in shown.lines() {
                    let command = commands.iter().any(|command| command == line.trim());
                    assert!(width(line) <= columns.min(100) || command, "{name}: {line}");
                }
            }
        }
    }
}
