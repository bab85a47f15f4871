// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Settings of modprobe: which modules are kept out, and with which parameters they are loaded.

use crate::snapshot::{Class, Value, filter, form};
use crate::text::name::decode;
use std::collections::{BTreeMap, BTreeSet};

/// The directories, in which of two files of the same name the one in the first counts.
pub const DIRECTORIES: [&str; 4] =
    ["/etc/modprobe.d", "/run/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d"];

/// Settings of files, in the order of their names: `blacklist` is a set of modules, `options MODULE` the parameters,
/// and what else there is a list of lines for each command and module.
#[must_use]
pub fn settings(files: &[Vec<u8>]) -> Vec<(String, Class, Value)> {
    let mut blacklist = BTreeSet::new();
    let mut others: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files {
        // A line that ends in a backslash goes on.
        let text = decode(file).replace("\\\n", " ");
        for line in form::lines(&text) {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                // A module may be written with either.
                ["blacklist", module] => _ = blacklist.insert(module.replace('-', "_")),
                ["options", module, rest @ ..] => {
                    let rest = filter::parameters(&rest.join(" ")).map(|option| option.to_string());
                    others
                        .entry(format!("options {}", module.replace('-', "_")))
                        .or_default()
                        .extend(rest);
                }
                [command @ ("install" | "remove" | "softdep" | "alias"), name, rest @ ..] => {
                    others.entry(format!("{command} {name}")).or_default().push(rest.join(" "));
                }
                _ => {}
            }
        }
    }
    // Aliases that a distribution brings are many, and of no matter unless they are off.
    others
        .retain(|name, lines| !name.starts_with("alias") || lines.iter().any(|line| line == "off"));
    let mut values = vec![("blacklist".to_owned(), Class::Configuration, Value::Set(blacklist))];
    let lists = others.into_iter();
    values.extend(lists.map(|(name, lines)| (name, Class::Configuration, Value::List(lines))));
    values
}
