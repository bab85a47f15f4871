// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Entries of a boot loader (`/boot/loader/entries`): the parameters with which each kernel will be booted.

use super::EntryValue;
use crate::snapshot::{Class, Value, filter, form};
use crate::text::name::decode;
use std::collections::BTreeMap;

/// Configuration parameters by kernel version. An entry without a version is identified by its title. File names are
/// not used, because they contain the machine id.
#[must_use]
pub fn entries(files: &[Vec<u8>]) -> Vec<EntryValue> {
    let mut by_version = BTreeMap::new();
    for file in files {
        let text = decode(file);
        let field = |name: &str| {
            let fields = form::lines(&text).filter_map(|line| line.split_once(char::is_whitespace));
            let values: Vec<&str> =
                fields.filter(|(field, _)| *field == name).map(|(_, value)| value.trim()).collect();
            (!values.is_empty()).then(|| values.join(" "))
        };
        let Some(version) = field("version").or_else(|| field("title")) else { continue };
        let options = field("options").unwrap_or_default();
        let options = filter::parameters(&options)
            .filter(|option| filter::parameter_class(&option.name) == Class::Configuration);
        by_version.insert(version, Value::List(options.map(|option| option.to_string()).collect()));
    }
    let entry = |(version, options)| EntryValue::of(version, Class::Configuration, options);
    by_version.into_iter().map(entry).collect()
}
