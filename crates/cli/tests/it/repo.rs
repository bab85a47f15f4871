// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the repository: what a reviewer would otherwise have to look for.

use std::path::{Path, PathBuf};
use std::process::Command;

const MAX_RUST_LINES: usize = 600;
const MAX_BPF_LINES: usize = 350;

/// Files that may be longer than the caps, each with the reason.
const LONG_FILES: &[(&str, &str)] = &[];

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

/// Every tracked or addable text file: path relative to the workspace, and its content.
pub(crate) fn files() -> Vec<(String, String)> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git runs");
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    String::from_utf8(listed.stdout)
        .expect("file names are UTF-8")
        .split_terminator('\0')
        .filter_map(|name| {
            // A file that is deleted but not yet staged is listed; a binary file is not text.
            let content = std::fs::read_to_string(root().join(name)).ok()?;
            Some((name.to_owned(), content))
        })
        .collect()
}

fn has_extension(name: &str, extensions: &[&str]) -> bool {
    Path::new(name).extension().is_some_and(|e| extensions.iter().any(|x| e == *x))
}

pub(crate) fn assert_none(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn source_files_stay_within_their_caps() {
    let mut problems = Vec::new();
    for (name, content) in files() {
        let cap = match () {
            () if name.ends_with(".rs") => MAX_RUST_LINES,
            () if name.starts_with("crates/bpf/src/bpf/") => MAX_BPF_LINES,
            () => continue,
        };
        let lines = content.lines().count();
        let excepted = LONG_FILES.iter().any(|(file, _)| *file == name);
        if lines > cap && !excepted {
            problems.push(format!("{name}: {lines} lines, cap {cap}"));
        } else if lines <= cap && excepted {
            problems.push(format!("{name}: {lines} lines, needs no exception any more"));
        }
    }
    assert_none(&problems);
}

#[test]
fn source_files_name_their_licence_first() {
    let mut problems = Vec::new();
    for (name, content) in files() {
        let bpf = name.starts_with("crates/bpf/src/bpf/");
        let licence = if bpf { "GPL-2.0 OR BSD-2-Clause" } else { "Apache-2.0 OR MIT" };
        let script = content.starts_with("#!");
        if !has_extension(&name, &["rs", "c", "h"]) && !script {
            continue;
        }
        let line = content.lines().nth(usize::from(script)).unwrap_or_default();
        let tag = format!("SPDX-License-Identifier: {licence}");
        if !line.contains(&tag) {
            problems.push(format!("{name}: `{tag}` is not its first line"));
        }
    }
    assert_none(&problems);
}

#[test]
fn no_merge_markers_and_no_trailing_blanks() {
    // Put together here, so that this file does not contain them itself.
    let markers = ["<".repeat(7), ">".repeat(7), "|".repeat(7)].map(|m| m + " ");
    let mut problems = Vec::new();
    for (name, content) in files() {
        let free = ["fixtures/", "fuzz/corpus/"].iter().any(|place| name.starts_with(place))
            || name.contains("/golden/");
        for (number, line) in content.lines().enumerate() {
            if markers.iter().any(|m| line.starts_with(m.as_str())) {
                problems.push(format!("{name}:{}: merge marker", number + 1));
            }
            if !free && line.ends_with([' ', '\t']) {
                problems.push(format!("{name}:{}: ends in a blank", number + 1));
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn nothing_names_the_place_where_it_was_written() {
    let foreign = [concat!("/", "work/"), concat!("../", "shared"), concat!("/", "root/")];
    let mut problems = Vec::new();
    for (name, content) in files() {
        for (number, line) in content.lines().enumerate() {
            if let Some(place) = foreign.iter().find(|f| line.contains(**f)) {
                problems.push(format!("{name}:{}: names `{place}`", number + 1));
            }
        }
    }
    assert_none(&problems);
}

/// Signed fields that are allowed, because they are `int` in all kernels from 5.10 to 7.2. The load of a kernel field
/// adapts to the field's size only if the field is declared as unsigned. Otherwise, a field that is a byte in some
/// kernels keeps the whole program from loading there.
const SIGNED_FIELDS: [&str; 6] = ["cpu", "throttle_count", "pid", "tgid", "major", "first_minor"];

#[test]
fn numbers_of_the_kernel_are_declared_without_a_sign() {
    let mut problems = Vec::new();
    for (name, content) in files() {
        if !name.starts_with("crates/bpf/src/bpf/kern") {
            continue;
        }
        for line in content.lines() {
            let mut words = line.split(';').next().unwrap_or_default().split_whitespace();
            let (kind, field, end) = (words.next(), words.next(), words.next());
            let signed = matches!(kind, Some("int" | "short" | "long" | "char"));
            let number = field.is_some_and(|it| !it.starts_with('*') && !it.ends_with(']'));
            if line.starts_with('\t')
                && signed
                && number
                && end.is_none()
                && !SIGNED_FIELDS.contains(&field.unwrap_or_default())
            {
                problems.push(format!("{name}: {}", line.trim()));
            }
        }
    }
    assert_none(&problems);
}

/// The arguments of a call, from after its parenthesis on.
fn arguments(call: &str) -> Vec<String> {
    let (mut all, mut depth) = (vec![String::new()], 0);
    for it in call.chars() {
        match it {
            ')' if depth == 0 => break,
            ',' if depth == 0 => {
                all.push(String::new());
                continue;
            }
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        all.last_mut().expect("there is one").push(it);
    }
    all
}

/// Before Linux 6.2, an address that is taken from a struct of our own within these macros is taken for a field of the kernel,
/// which has none of that name: the program does not load. A local variable must hold it.
#[test]
fn addresses_of_kernel_structs_are_read_before_they_are_followed() {
    let mut problems = Vec::new();
    for (name, content) in files() {
        if !name.starts_with("crates/bpf/src/bpf/") {
            continue;
        }
        for (call, at) in [("NUMBER_AT(", 1), ("ADDRESS_AT(", 2)] {
            for part in content.split(call).skip(1) {
                let given = arguments(part);
                if given.get(at).is_some_and(|address| address.contains("->")) {
                    problems.push(format!("{name}: {call}{})", given.join(",")));
                }
            }
        }
    }
    assert_none(&problems);
    assert_eq!(arguments("a, f(b, c)->d, e) + g(h)"), ["a", " f(b, c)->d", " e"]);
}
