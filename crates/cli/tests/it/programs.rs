// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every program that a file of this repository starts is on `scripts/programs`, the list from which `scripts/setup`
//! installs. Names that are put together at run time are not seen here: `scripts/test` runs under `scripts/listed` to
//! catch those.

#![allow(clippy::unwrap_used, reason = "in a test it says what was not so")]

use crate::program::scratch;
use crate::repo::{assert_none, files, root};
use crate::shell;
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

const GROUPS: [&str; 5] = ["build", "dev", "lab", "bench", "vm"];
/// Text that precedes a program's name, in Rust and in Python.
const RUST: [&str; 6] = ["Command::new(", ".tool(", "run(", "no_program(", "which(", "\"--\", "];
const PYTHON: [&str; 7] = ["run(", "Popen(", "which(", "need(", "output(", ".apt(", "command = "];
/// Text that precedes a shell script in Rust.
const SCRIPTS: [&str; 4] = ["\"-c\", ", "\"-c\", &format!(", "script = ", "script = format!("];

/// The lines of the list: groups, package in Debian, package in Fedora, programs.
fn list() -> Vec<[String; 4]> {
    let text = std::fs::read_to_string(root().join("scripts/programs")).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let mut words = line.split_whitespace();
            let [groups, debian, fedora] =
                [(); 3].map(|()| words.next().unwrap_or_default().to_owned());
            [groups, debian, fedora, words.collect::<Vec<_>>().join(" ")]
        })
        .collect()
}

fn listed() -> BTreeSet<String> {
    let words = list().into_iter().flat_map(|[.., programs]| {
        programs.split([' ', '|']).map(str::to_owned).collect::<Vec<_>>()
    });
    words.filter(|word| !word.contains(':')).collect()
}

/// The string literal at the start of a text, without its quotes; `r#"..."#` as well as `"..."`.
fn literal(text: &str) -> Option<String> {
    if let Some(raw) = text.strip_prefix("r#\"") {
        return raw.split_once("\"#").map(|(inside, _)| inside.to_owned());
    }
    let mut rest = text.strip_prefix('"')?.chars();
    let mut inside = String::new();
    loop {
        match rest.next()? {
            '"' => return Some(inside),
            '\\' => match rest.next()? {
                'n' => inside.push('\n'),
                '\n' => inside.push(' '),
                other => inside.push(other),
            },
            other => inside.push(other),
        }
    }
}

/// The string literals after one of the marks, possibly on the next line or first in a list.
fn literals<'a>(text: &'a str, marks: &'a [&'a str]) -> impl Iterator<Item = String> + 'a {
    let behind = marks.iter().flat_map(move |mark| {
        text.match_indices(mark).map(move |(at, mark)| text[at + mark.len()..].trim_start())
    });
    behind.filter_map(|text| literal(text.strip_prefix('[').unwrap_or(text).trim_start()))
}

/// The strings in constants `PROGRAMS`: programs that are started by a name that is looked up there.
fn constants(text: &str) -> impl Iterator<Item = String> + '_ {
    let lists = text.split("const PROGRAMS: ").skip(1).filter_map(|rest| {
        let (_, list) = rest.split_once('=')?;
        list.trim_start().strip_prefix('[')?.split_once(']').map(|(list, _)| list)
    });
    lists.flat_map(|list| list.split(',').filter_map(|word| literal(word.trim())))
}

/// The program that a word can be the name of, if any. Of a path, the last part is the name.
fn program(word: &str) -> Option<String> {
    let name = word.rsplit('/').next()?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "+-._".contains(c);
    let whole = name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(plain);
    // Scripts of this repository are named by a path in it.
    (whole && !root().join(word).exists()).then(|| name.to_owned())
}

/// The programs that a file of this repository starts, as far as its text shows them.
fn started(name: &str, content: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let first = content.lines().next().unwrap_or_default();
    let recipes = || -> String {
        let lines = content.lines().filter_map(|line| line.strip_prefix('\t'));
        let lines = lines.map(|line| line.trim_start_matches(['@', '-']).to_owned() + "\n");
        lines.collect::<String>().replace("$(CARGO)", "cargo").replace("$$", "$")
    };
    if name.ends_with(".rs") {
        found.extend(literals(content, &RUST).filter(|word| !word.contains(' ')));
        found.extend(constants(content));
        let tests = name.contains("/tests/");
        let scripts = literals(content, &SCRIPTS).filter(|_| tests);
        found.extend(scripts.flat_map(|script| shell::commands(&script)));
    } else if name.ends_with(".py") || first.contains("python3") {
        found.extend(literals(content, &PYTHON));
    } else if first.starts_with("#!") && first.ends_with("bash") {
        found.extend(shell::commands(content));
    } else if name == "Makefile" {
        found.extend(shell::commands(&recipes()));
    }
    if let Some(interpreter) = first.strip_prefix("#!") {
        found.extend(interpreter.split_whitespace().map(str::to_owned));
    }
    found.iter().filter_map(|word| program(word)).collect()
}

/// Whether a word that looks like a program's name is none: a scenario of the lab, or a name that no host has.
fn is_no_program(file: &str, word: &str) -> bool {
    let scenario = || root().join(format!("lab/scenarios/{word}.toml")).exists();
    let of_lab = ["crates/cli/tests/kernel/lab", "crates/cli/src/lab/score/"];
    word == "no-such-program" || (of_lab.iter().any(|it| file.starts_with(it)) && scenario())
}

#[test]
fn every_program_that_is_started_is_on_the_list() {
    let listed = listed();
    let mut problems = Vec::new();
    let mut seen = BTreeSet::new();
    // These two files hold examples.
    let examples = ["crates/cli/tests/it/programs.rs", "crates/cli/tests/it/shell.rs"];
    for (name, content) in files().into_iter().filter(|(name, _)| !examples.contains(&&**name)) {
        for word in started(&name, &content) {
            if !listed.contains(&word) && !is_no_program(&name, &word) {
                problems.push(format!("{name}: starts `{word}`, which `scripts/programs` lacks"));
            }
            seen.insert(word);
        }
    }
    assert_none(&problems);
    // One program from each kind of file, as proof that each kind is read.
    for known in
        ["losetup", "delpart", "cargo", "expand", "perf", "dpkg-deb", "clang-format", "awk"]
    {
        assert!(seen.contains(known), "{known}: {seen:?}");
    }
}

#[test]
fn a_program_that_is_not_on_the_list_is_seen() {
    let cases = [
        ("crates/x/tests/it/a.rs", "Command::new(\"/usr/sbin/mkfs.zfs\")"),
        ("crates/x/tests/it/a.rs", "deburr(&[\"record\", \"--\", \"mkfs.zfs\"])"),
        ("crates/x/tests/it/a.rs", "disk::run(\n    \"mkfs.zfs\", &[])"),
        ("crates/x/tests/it/a.rs", "sh.args([\"-c\", \"set -e; x=$(cat a | mkfs.zfs)\"])"),
        (
            "crates/x/tests/it/a.rs",
            "let script = r#\"cd \"$A\"; for i in 1; do mkfs.zfs $i; done\"#;",
        ),
        ("crates/x/src/a.rs", "const PROGRAMS: [&str; 2] =\n    [\"ls\", \"mkfs.zfs\"];"),
        ("bench/a.py", "subprocess.run(\n    [\"mkfs.zfs\", path])"),
        ("bench/a", "#!/usr/bin/env python3\nx = shutil.which(\"mkfs.zfs\")"),
        ("scripts/a", "#!/usr/bin/env bash\nif ! mkfs.zfs \"$1\"; then exit; fi"),
        ("Makefile", "all:\n\t@mkfs.zfs $$(git ls-files)\n"),
        ("bench/a.bt", "#!/usr/bin/env mkfs.zfs"),
    ];
    for (name, content) in cases {
        assert!(started(name, content).contains("mkfs.zfs"), "{content}");
    }
}

#[test]
fn a_line_of_the_list_says_who_wants_what_and_where_it_comes_from() {
    let mut problems = Vec::new();
    for [groups, debian, fedora, programs] in list() {
        let none = groups == "-" && debian == "-" && fedora == "-";
        if !none && !groups.split(',').all(|group| GROUPS.contains(&group)) {
            problems.push(format!("{programs}: unknown group in `{groups}`"));
        }
        if programs.is_empty() {
            problems.push(format!("{debian}: no program"));
        }
    }
    assert_none(&problems);
}

#[test]
fn under_scripts_listed_nothing_else_is_found() {
    let here = scratch();
    let foreign = here.path().join("not-on-the-list");
    std::fs::write(&foreign, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&foreign, PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", here.path().display(), std::env::var("PATH").unwrap());
    let found = |words: &[&str], name: &str| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args(["sh", "-c", "command -v \"$0\"", name]);
        let output = command.env("PATH", &path).current_dir(root()).output().unwrap();
        (output.status.code(), output.stdout.len() > 1)
    };
    assert_eq!(found(&["env"], "not-on-the-list"), (Some(0), true));
    assert_ne!(found(&["scripts/listed"], "not-on-the-list").0, Some(0));
    assert_eq!(found(&["scripts/listed"], "sleep"), (Some(0), true));
    let tests = std::fs::read_to_string(root().join("scripts/test")).unwrap();
    assert!(tests.contains("exec scripts/listed"), "the tests run under it");
}
