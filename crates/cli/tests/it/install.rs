// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which files `make install` installs, and where.

use crate::program::{scratch, stdout};
use crate::repo::root;
use std::path::Path;
use std::process::Command;

const BUILT: &str = env!("CARGO_BIN_EXE_deburr");

fn said(program: impl AsRef<Path>, arguments: &[&str]) -> String {
    let output = Command::new(program.as_ref()).args(arguments).current_dir(root()).output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", program.as_ref().display()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    stdout(&output)
}

#[test]
fn the_tables_of_lines_are_beside_the_binary_and_not_in_it() {
    let prefix = scratch();
    said(root().join("scripts/install"), &[BUILT, &prefix.path().display().to_string()]);
    let [binary, lines] =
        ["bin/deburr", "bin/.debug/deburr.debug"].map(|file| prefix.path().join(file));
    let sections = |file: &str| said("readelf", &["--section-headers", "--wide", file]);
    let (inside, beside) =
        (sections(&binary.display().to_string()), sections(&lines.display().to_string()));
    for section in [".debug_line", ".symtab"] {
        assert!(sections(BUILT).contains(section), "the test is about those that it has");
        assert!(!inside.contains(section), "{inside}");
        assert!(beside.contains(section), "{beside}");
    }
    assert!(inside.contains(".gnu_debuglink"), "who looks for them finds them: {inside}");
    assert_eq!(said(&binary, &["--version"]), said(BUILT, &["--version"]));
    for file in ["man/man1/deburr.1", "bash-completion/completions/deburr"] {
        assert!(prefix.path().join("share").join(file).exists(), "{file}");
    }
}
