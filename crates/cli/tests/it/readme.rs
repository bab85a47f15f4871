// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The README's examples: the arguments of all are checked, and those that need no root are run.

use crate::docs::console_lines;
use crate::repo::root;
use assert_cmd::Command;
use std::collections::BTreeSet;

fn readme() -> String {
    std::fs::read_to_string(root().join("README.md")).expect("README.md is there")
}

fn deburr(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_deburr"));
    command.args(arguments);
    command
}

/// Arguments of every `target/release/deburr` line, and whether it is run with sudo.
fn examples() -> Vec<(bool, Vec<String>)> {
    console_lines(&readme())
        .into_iter()
        .filter_map(|line| {
            let plain = line.strip_prefix("sudo ");
            let arguments = plain.unwrap_or(&line).strip_prefix("target/release/deburr")?;
            Some((plain.is_some(), arguments.split_whitespace().map(str::to_owned).collect()))
        })
        .collect()
}

#[test]
fn the_arguments_of_every_example_are_understood() {
    let examples = examples();
    assert!(examples.len() > 5, "{examples:?}");
    for (_, arguments) in examples {
        let mut checked: Vec<_> = arguments.iter().map(String::as_str).collect();
        let end = checked.iter().position(|a| *a == "--").unwrap_or(checked.len());
        checked.insert(end, "--help");
        deburr(&checked).assert().success();
    }
}

#[test]
fn examples_that_need_no_root_run() {
    for (root, arguments) in examples() {
        // A report needs a recording; the tests of the store make one.
        if root || arguments.is_empty() || arguments[0] == "report" {
            continue;
        }
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let done = deburr(&arguments).assert().success();
        assert!(!done.get_output().stdout.is_empty(), "`deburr {arguments:?}` says nothing");
    }
}

#[test]
fn every_code_is_explained() {
    let readme = readme();
    let codes: BTreeSet<_> = readme
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| {
            word.len() == 6
                && word[..3].bytes().all(|b| b.is_ascii_uppercase())
                && word[3..].bytes().all(|b| b.is_ascii_digit())
        })
        .collect();
    assert!(codes.contains("SCH001"), "{codes:?}");
    for code in codes {
        let explained = deburr(&["explain", code]).assert().success();
        let text = String::from_utf8_lossy(&explained.get_output().stdout).into_owned();
        assert!(text.contains(code), "{text}");
    }
}
