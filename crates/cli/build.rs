// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes two lists out of `lab/scenarios`, so that a new scenario is one new file: the texts, for the binary, and a test
//! of each, for `tests/kernel`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn main() {
    let manifest = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let folder = manifest.join("../../lab/scenarios");
    println!("cargo:rerun-if-changed={}", folder.display());
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("lab/scenarios is part of the repository")
        .map(|entry| entry.expect("lab/scenarios is readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort_by(|a, b| a.file_stem().cmp(&b.file_stem()));

    let (mut texts, mut tests) = (String::from("&[\n"), String::new());
    for file in &files {
        println!("cargo:rerun-if-changed={}", file.display());
        let stem = file.file_stem().and_then(|stem| stem.to_str()).expect("a plain name");
        // Writing to a String cannot fail.
        let _ = writeln!(texts, "    ({stem:?}, include_str!({:?})),", file.display().to_string());
        if !has_no_test(file) {
            let name = stem.replace('-', "_");
            let _ = writeln!(tests, "#[test]\nfn {name}() {{\n    passes({stem:?});\n}}\n");
        }
    }
    texts.push_str("]\n");
    write(&out.join("scenarios.rs"), &texts);
    write(&out.join("scenario_tests.rs"), &tests);
}

/// Whether the scenario says why no test runs it by its name.
fn has_no_test(file: &Path) -> bool {
    let text = std::fs::read_to_string(file).expect("a scenario is readable");
    text.lines().any(|line| line.starts_with("no_test = "))
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).expect("OUT_DIR is writable");
}
