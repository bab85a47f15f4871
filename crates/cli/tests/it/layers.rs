// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Layers of `deburr-core`: a module uses only modules below it.

use crate::repo::{assert_none, files};

const SOURCES: &str = "crates/core/src/";

/// The modules, lowest first, as ARCHITECTURE.md draws them. `finding` is below `rules` because it is data: what the
/// rules report.
const LAYERS: [&str; 15] = [
    "text",
    "sqlite",
    "stats",
    "recording",
    "procfs",
    "finding",
    "limits",
    "view",
    "snapshot",
    "sweep",
    "syscalls",
    "host_diff",
    "cpu_check",
    "rules",
    "render",
];

/// Modules for tests: they may use everything, and nothing else uses them.
const FOR_TESTS: &str = "testkit";

#[test]
fn modules_of_core_use_those_below_them_only() {
    let mut problems = Vec::new();
    for (name, content) in files() {
        let Some(path) = name.strip_prefix(SOURCES).filter(|path| path.ends_with(".rs")) else {
            continue;
        };
        let module = path.split('/').next().unwrap().trim_end_matches(".rs");
        if module == "lib" || module == FOR_TESTS || is_test(path) {
            continue;
        }
        let Some(own) = LAYERS.iter().position(|layer| *layer == module) else {
            problems.push(format!("{name}: `{module}` is in no layer"));
            continue;
        };
        for used in used(&content) {
            if LAYERS.iter().position(|layer| *layer == used).is_none_or(|at| at > own) {
                problems.push(format!("{name} uses `{used}`, which is not below `{module}`"));
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn what_is_used_is_found_and_what_is_said_in_comments_or_tests_is_not() {
    let source = "//! [`crate::render`]\nuse crate::text::units;\nuse crate::{stats, view::View};\nfn f() -> crate::finding::Unit {}\n\
                  #[cfg(test)]\nmod tests {\n    use crate::rules::report;\n}\n";
    assert_eq!(used(source), ["text", "stats", "view", "finding"]);
}

/// Whether a file is compiled for tests only.
fn is_test(path: &str) -> bool {
    path.split('/').any(|part| part.starts_with("tests")) || path == "render/golden.rs"
}

/// Modules that a source file names after `crate::`, outside of comments and of its test module.
fn used(source: &str) -> Vec<&str> {
    let product = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code = product.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut used = Vec::new();
    for line in code {
        for path in line.split("crate::").skip(1) {
            let names: Vec<&str> = match path.strip_prefix('{') {
                Some(list) => list.split(',').collect(),
                None => vec![path],
            };
            used.extend(names.iter().filter_map(|name| {
                let end = |c: char| !c.is_ascii_alphanumeric() && c != '_';
                // A name with a capital is an item of the crate's root, which holds no code.
                name.trim()
                    .split(end)
                    .next()
                    .filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase()))
            }));
        }
    }
    used
}
