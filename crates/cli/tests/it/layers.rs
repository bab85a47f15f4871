// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Layers of `deburr-core`: a module uses only modules below it, and the detectors of `rules` do not use each other. And
//! those of the command line.

use crate::repo::{assert_none, files};
use std::collections::BTreeSet;

const SOURCES: &str = "crates/core/src/";
const PROGRAM: &str = "crates/cli/src/";

/// The modules, lowest first, as ARCHITECTURE.md draws them. `finding` is below `rules` because it is data: what the
/// rules report.
const LAYERS: [&str; 19] = [
    "text",
    "sqlite",
    "filesystem",
    "stats",
    "recording",
    "procfs",
    "finding",
    "limits",
    "transcript",
    "view",
    "prove",
    "snapshot",
    "sweep",
    "syscalls",
    "host_diff",
    "compare",
    "cpu_check",
    "rules",
    "render",
];

/// Modules for tests: they may use everything, and nothing else uses them.
const FOR_TESTS: &str = "testkit";

#[test]
fn modules_of_core_use_those_below_them_only() {
    let mut problems = Vec::new();
    for (path, code) in product(SOURCES) {
        let module = path.split('/').next().unwrap().trim_end_matches(".rs");
        if module == "lib" {
            // With items of its own the root would be a way around the layers.
            if code.contains("use ") {
                problems.push(format!("{path} imports or re-exports items"));
            }
            continue;
        }
        let Some(own) = LAYERS.iter().position(|layer| *layer == module) else {
            problems.push(format!("{path}: `{module}` is in no layer"));
            continue;
        };
        for used in used(&path, &code) {
            if LAYERS.iter().position(|layer| *layer == used).is_none_or(|at| at > own) {
                problems.push(format!("{path} uses `{used}`, which is not below `{module}`"));
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn a_detector_is_used_by_the_list_of_rules_only() {
    let all = files();
    let pages = all.iter().filter_map(|(name, _)| {
        let path = name.strip_prefix(SOURCES)?.strip_prefix("rules/")?.strip_suffix(".md")?;
        path.split_once('/')
    });
    let detectors: Vec<(&str, &str)> = pages.collect();
    assert!(detectors.len() > 20, "{detectors:?}");
    let mut problems = Vec::new();
    for (path, code) in product(SOURCES) {
        let Some(in_rules) = path.strip_prefix("rules/").filter(|path| *path != "mod.rs") else {
            continue;
        };
        for (area, detector) in &detectors {
            let own = [format!("{area}/{detector}.rs"), format!("{area}/mod.rs")];
            if !own.iter().any(|own| own == in_rules) && names_module(&code, detector) {
                problems.push(format!("{path} uses the detector `{area}::{detector}`"));
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn the_command_line_uses_commands_and_these_the_shared_arguments() {
    let all = product(PROGRAM);
    let mut problems = Vec::new();
    for (path, code) in &all {
        let module = path.split('/').next().unwrap().trim_end_matches(".rs");
        let used = used(path, code);
        let may = |part: &str| match part {
            // `main` names its modules without `crate::`, and may use all.
            "cli" => false,
            "cmd" => ["cli", "cmd"].contains(&module),
            _ => module != "args",
        };
        problems.extend(
            used.iter().filter(|part| !may(part)).map(|part| format!("{path} uses `{part}`")),
        );
    }
    assert_none(&problems);
    let users =
        |part: &str| all.iter().filter(|(path, code)| used(path, code).contains(part)).count();
    assert!(users("args") > 10 && users("cmd") > 0, "the imports are found");
}

/// The modules that judge a run of the lab, lowest first.
const JUDGES: [&str; 5] = ["fitness", "observed", "check", "measured", "expect"];

#[test]
fn what_judges_a_run_of_the_lab_goes_one_way() {
    let all = product(PROGRAM);
    let mut problems = Vec::new();
    for (own, name) in JUDGES.iter().enumerate() {
        let path = format!("lab/{name}.rs");
        let (_, code) = all.iter().find(|(file, _)| *file == path).unwrap();
        let above = JUDGES[own + 1..].iter().filter(|above| names_module(code, above));
        problems.extend(above.map(|above| format!("{path} uses `{above}`")));
    }
    assert_none(&problems);
}

#[test]
fn what_is_used_is_found_however_it_is_written() {
    let source = "//! [`crate::render`]\nuse crate::text::units;\nuse crate::{\n    stats,\n    view::{View, block},\n};\n\
                  fn f() -> crate::finding::Unit { super::super::host_diff::g() }\n";
    let code = without_tests_and_comments(source);
    let expected = ["finding", "host_diff", "stats", "text", "view"];
    assert_eq!(used("rules/words.rs", &code).into_iter().collect::<Vec<_>>(), expected);
    assert!(names_module(&code, "view") && names_module(&code, "block"));
    assert!(!names_module(&code, "units_of"));
}

#[test]
fn tests_are_left_out_and_what_follows_them_is_not() {
    let source = "#[cfg(test)]\nmod tests {\n    use crate::rules::report;\n    fn f() { g(\"}\") }\n}\n\
                  #[cfg(test)]\nuse crate::cpu_check;\nuse crate::render;\n";
    let code = without_tests_and_comments(source);
    assert_eq!(used("view/mod.rs", &code).into_iter().collect::<Vec<_>>(), ["render"]);
}

/// The source files of a crate that are compiled into the product: path below its root, and code without comments and
/// tests.
fn product(root: &str) -> Vec<(String, String)> {
    let sources: Vec<(String, String)> = files()
        .into_iter()
        .filter_map(|(name, content)| Some((name.strip_prefix(root)?.to_owned(), content)))
        .filter(|(path, _)| path.ends_with(".rs"))
        .collect();
    let tests: Vec<String> =
        sources.iter().flat_map(|(path, source)| test_modules(path, source)).collect();
    let is_test = |path: &str| {
        path.starts_with(&format!("{FOR_TESTS}/"))
            || tests
                .iter()
                .any(|test| path == format!("{test}.rs") || path.starts_with(&format!("{test}/")))
    };
    let product = sources.into_iter().filter(|(path, _)| !is_test(path));
    product.map(|(path, source)| (path, without_tests_and_comments(&source))).collect()
}

/// The modules that a file declares for tests only, as paths without `.rs`.
fn test_modules(path: &str, source: &str) -> Vec<String> {
    let folder = match path.strip_suffix("/mod.rs") {
        Some(folder) => folder,
        None if path == "lib.rs" => return vec![],
        None => path.trim_end_matches(".rs"),
    };
    let after = source.split("#[cfg(test)]\n").skip(1);
    let declared = after.filter_map(|rest| {
        let (_, name) = rest.lines().next()?.strip_suffix(';')?.split_once("mod ")?;
        Some(format!("{folder}/{name}"))
    });
    declared.collect()
}

/// A source without lines of comment and without the items that are compiled for tests only.
fn without_tests_and_comments(source: &str) -> String {
    let lines = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code: String = lines.flat_map(|line| [line, "\n"]).collect();
    let mut product = String::new();
    let mut parts = code.split("#[cfg(test)]");
    product.push_str(parts.next().unwrap_or_default());
    parts.for_each(|part| product.push_str(after_item(part)));
    product
}

/// What follows the first item of a piece of code: after its semicolon, or after its braces.
fn after_item(code: &str) -> &str {
    let mut depth = 0;
    let mut quoted = false;
    let mut before = ' ';
    for (at, c) in code.char_indices() {
        match c {
            '"' if before != '\\' && before != '\'' => quoted = !quoted,
            '{' if !quoted && before != '\'' => depth += 1,
            '}' if !quoted && before != '\'' => {
                depth -= 1;
                if depth == 0 {
                    return code[at + 1..].trim_start_matches(';');
                }
            }
            ';' if !quoted && depth == 0 => return &code[at + 1..],
            _ => {}
        }
        before = c;
    }
    ""
}

/// The modules of the crate that a file names: after `crate::`, or after as many `super::` as lead to the root.
fn used<'c>(path: &str, code: &'c str) -> BTreeSet<&'c str> {
    let depth = path.trim_end_matches(".rs").trim_end_matches("/mod").split('/').count();
    let to_root = "super::".repeat(depth);
    let after = code.split("crate::").skip(1).chain(code.split(to_root.as_str()).skip(1));
    let mut used = BTreeSet::new();
    for path in after {
        match path.strip_prefix('{') {
            Some(list) => used.extend(branches(list)),
            None => used.extend(first_name(path)),
        }
    }
    used
}

/// The first names of the branches of an import list, up to its closing brace.
fn branches(list: &str) -> Vec<&str> {
    let (mut names, mut depth) = (Vec::from_iter(first_name(list)), 0);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => names.extend(first_name(&list[at + 1..])),
            _ => {}
        }
    }
    names
}

/// The name of a module at the beginning of a piece of code. A name with a capital is an item.
fn first_name(code: &str) -> Option<&str> {
    let code = code.trim_start();
    let end = code.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(code.len());
    Some(&code[..end]).filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase()))
}

/// Whether code imports a module of that name, or names it in a path.
fn names_module(code: &str, module: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    code.match_indices(module).any(|(at, _)| {
        let (before, after) = (&code[..at], &code[at + module.len()..]);
        let whole = !before.ends_with(is_part) && !after.starts_with(is_part);
        let statement = before.rsplit(';').next().unwrap_or_default();
        let imported = statement.lines().any(|line| line.trim_start().split("use ").count() > 1);
        whole && (after.starts_with("::") || imported)
    })
}
