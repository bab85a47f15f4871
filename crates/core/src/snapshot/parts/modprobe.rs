// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Configuration of modprobe: which modules are blacklisted, and with which parameters modules are loaded.

use super::EntryValue;
use crate::snapshot::{Class, Value, filter, form};
use crate::text::name::decode;
use std::collections::{BTreeMap, BTreeSet};

/// Directories of the configuration, in order of precedence: of files with the same name, only the one in the first of
/// these directories counts.
pub const DIRECTORIES: [&str; 4] =
    ["/etc/modprobe.d", "/run/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d"];

/// Settings of configuration files, which must be in order of their names. `blacklist` is a set of modules, `options
/// MODULE` a list of parameters; other commands are a list of lines for each command and module.
#[must_use]
pub fn settings(files: &[Vec<u8>]) -> Vec<EntryValue> {
    let mut blacklist = BTreeSet::new();
    let mut others: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files {
        // A backslash at the end of a line continues it.
        let text = decode(file).replace("\\\n", " ");
        for line in form::lines(&text) {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                // Module names may be written with `-` or `_`.
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
    // Distributions have many aliases, which do not matter unless they are `off`.
    others
        .retain(|name, lines| !name.starts_with("alias") || lines.iter().any(|line| line == "off"));
    let mut values = vec![EntryValue::of("blacklist", Class::Configuration, Value::Set(blacklist))];
    let lists = others.into_iter();
    let list = |(name, lines)| EntryValue::of(name, Class::Configuration, Value::List(lines));
    values.extend(lists.map(list));
    values
}
