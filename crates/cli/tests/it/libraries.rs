// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The libraries of this workspace have licences that `deny.toml` allows, come from crates.io, and each is there once.
//! `make deny` asks in addition for known faults, which needs network and a program that takes minutes to compile.

use crate::repo::{assert_none, root};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// Whether an SPDX expression can be fulfilled with these licences.
fn is_fulfilled(expression: &str, allowed: &BTreeSet<String>) -> bool {
    // The separator of old manifests.
    let text = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = text.split_whitespace().collect::<Vec<_>>().into_iter().peekable();
    let fulfilled = any(&mut words, allowed);
    fulfilled && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::vec::IntoIter<&'a str>>;

fn any(words: &mut Words<'_>, allowed: &BTreeSet<String>) -> bool {
    let mut fulfilled = all(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        fulfilled |= all(words, allowed);
    }
    fulfilled
}

fn all(words: &mut Words<'_>, allowed: &BTreeSet<String>) -> bool {
    let mut fulfilled = one(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        fulfilled &= one(words, allowed);
    }
    fulfilled
}

fn one(words: &mut Words<'_>, allowed: &BTreeSet<String>) -> bool {
    match words.next() {
        Some("(") => any(words, allowed) & (words.next() == Some(")")),
        Some(licence) => match words.next_if_eq(&"WITH").and_then(|_| words.next()) {
            Some(exception) => allowed.contains(&format!("{licence} WITH {exception}")),
            None => allowed.contains(licence),
        },
        None => false,
    }
}

fn deny() -> toml::Table {
    let text = std::fs::read_to_string(root().join("deny.toml")).unwrap();
    text.parse().unwrap()
}

fn licences() -> BTreeSet<String> {
    let list = deny()["licenses"]["allow"].as_array().unwrap().clone();
    list.iter().map(|licence| licence.as_str().unwrap().to_owned()).collect()
}

/// What cargo knows of the libraries that are built here.
fn packages() -> Vec<Value> {
    let version = Command::new("rustc").arg("-vV").output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap().to_owned();
    let arguments = ["metadata", "--format-version=1", "--locked", "--offline"];
    let output = Command::new("cargo")
        .args(arguments)
        .args(["--filter-platform", &host])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    document["packages"].as_array().unwrap().clone()
}

#[test]
fn an_expression_is_fulfilled_by_one_of_its_choices() {
    let allowed = ["MIT", "NCSA", "Apache-2.0 WITH LLVM-exception"];
    let allowed: BTreeSet<String> = allowed.into_iter().map(str::to_owned).collect();
    for expression in [
        "MIT",
        "GPL-3.0 OR MIT",
        "MIT/GPL-3.0",
        "(MIT OR X) AND NCSA",
        "Apache-2.0 WITH LLVM-exception OR Y",
    ] {
        assert!(is_fulfilled(expression, &allowed), "{expression}");
    }
    for expression in [
        "",
        "GPL-3.0",
        "MIT AND GPL-3.0",
        "(GPL-3.0 OR X) AND MIT",
        "Apache-2.0",
        "MIT WITH X",
        "MIT )",
        "(MIT",
    ] {
        assert!(!is_fulfilled(expression, &allowed), "{expression}");
    }
}

#[test]
fn libraries_have_licences_that_are_allowed_and_come_from_one_place() {
    let allowed = licences();
    let packages = packages();
    let mut problems = Vec::new();
    for package in &packages {
        let (name, licence) = (&package["name"], package["license"].as_str().unwrap_or_default());
        if !is_fulfilled(licence, &allowed) {
            problems.push(format!("{name}: its licence `{licence}` is not in deny.toml"));
        }
        let source = package["source"].as_str();
        let is_own = source.is_none() && name.as_str().is_some_and(|it| it.starts_with("deburr"));
        if !is_own && !source.is_some_and(|it| it.starts_with("registry+")) {
            problems.push(format!("{name}: it comes from {source:?}"));
        }
    }
    assert!(packages.len() > 50, "{} packages", packages.len());
    assert_none(&problems);
}

#[test]
fn a_library_is_there_in_one_version_or_deny_toml_says_why() {
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages() {
        let text = |key: &str| package[key].as_str().unwrap().to_owned();
        versions.entry(text("name")).or_default().push(text("version"));
    }
    let deny = deny();
    let skipped = deny["bans"]["skip"].as_array().unwrap();
    let skipped: BTreeSet<&str> = skipped.iter().map(|it| it["crate"].as_str().unwrap()).collect();
    let mut problems = Vec::new();
    for (name, of) in &versions {
        let extra = of.iter().filter(|version| !skipped.contains(&*format!("{name}@{version}")));
        if extra.count() > 1 {
            problems.push(format!("{name}: {}", of.join(", ")));
        }
    }
    for skipped in skipped {
        let (name, version) = skipped.split_once('@').unwrap();
        let of = versions.get(name).map_or(&[][..], Vec::as_slice);
        if of.len() < 2 || !of.iter().any(|it| it == version) {
            problems.push(format!("{skipped}: deny.toml need not mention it any more"));
        }
    }
    assert_none(&problems);
}
