// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Converts the content of a file to the values of its facts.

mod lines;
pub mod loader;
pub mod modprobe;
mod mounts;
pub mod packages;
pub mod rpm;

use super::form::{self, Kind};
use super::whitelist::{Entry, Source};
use super::{Class, Value, filter};
use crate::text::name::decode;
use std::collections::BTreeMap;

/// Value of a fact that belongs to an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryValue {
    /// Part of the file; `None` = the whole file.
    pub part: Option<String>,
    /// What a difference in the value means.
    pub class: Class,
    /// The value.
    pub value: Value,
}

impl EntryValue {
    /// Value of a part of a file.
    #[must_use]
    pub fn of(part: impl Into<String>, class: Class, value: Value) -> Self {
        Self { part: Some(part.into()), class, value }
    }
}

/// Values of the entries of one file: one value for each entry, or one for each part if the entry stands for all parts.
#[must_use]
pub fn found(entries: &[&Entry], content: &[u8]) -> Vec<EntryValue> {
    let Some(first) = entries.first() else { return Vec::new() };
    match first.source {
        Source::Whole => whole(first, content),
        Source::Colon => by_name(entries, &lines::colon(content)),
        Source::Node => by_name(entries, &lines::node(content)),
        Source::Shell => by_name(entries, &lines::shell(content)),
        Source::Cpuinfo => entries.iter().map(|entry| cpuinfo(entry, content)).collect(),
        Source::Params => params(content),
        Source::Mounts => mounts::mounts(content).unwrap_or_else(|value| missing(entries, &value)),
        Source::CgroupMounts => {
            let value = mounts::cgroups(content).unwrap_or_else(|unreadable| unreadable);
            entries.iter().map(|entry| one(entry, value.clone())).collect()
        }
        Source::Cgroups => lines::cgroups(content),
        Source::Modules => lines::modules(content),
        Source::Swaps => vec![one(first, lines::swaps(content))],
        Source::Dpkg => packages::dpkg(content),
        Source::Foreign => {
            let reason = "deburr does not read this form of a list of packages";
            vec![one(first, Value::Unreadable(reason.into()))]
        }
        // These need several files, or are not text; the caller combines them.
        Source::Loader | Source::Modprobe | Source::Rpm | Source::Ethtool => Vec::new(),
    }
}

/// Values of the entries of a file that could not be read: `value` for each, but `false` for [`Kind::Exists`] if the
/// file is absent.
#[must_use]
pub fn missing(entries: &[&Entry], value: &Value) -> Vec<EntryValue> {
    let exists = |entry: &Entry| entry.kind == Kind::Exists && *value == Value::Absent;
    let value = |entry: &Entry| if exists(entry) { Value::Boolean(false) } else { value.clone() };
    entries.iter().map(|entry| one(entry, value(entry))).collect()
}

/// A value for the entry's own part, or for the whole file.
fn one(entry: &Entry, value: Value) -> EntryValue {
    let part = entry.part.filter(|part| *part != "{}").map(str::to_owned);
    EntryValue { part, class: entry.class, value }
}

fn whole(entry: &Entry, content: &[u8]) -> Vec<EntryValue> {
    let mut found = vec![one(entry, form::value(entry.kind, content))];
    if entry.kind == Kind::Choice {
        let available = form::choices(content);
        found.push(EntryValue::of("available", Class::Capability, available));
    }
    found
}

fn by_name(entries: &[&Entry], values: &BTreeMap<String, Vec<u8>>) -> Vec<EntryValue> {
    let value = |entry: &Entry| {
        let content = entry.part.and_then(|part| values.get(part));
        content.map_or(Value::Absent, |content| form::value(entry.kind, content))
    };
    entries.iter().map(|entry| one(entry, value(entry))).collect()
}

/// The value that all CPUs have in common, or one for each CPU.
fn cpuinfo(entry: &Entry, content: &[u8]) -> EntryValue {
    let wanted = entry.part.unwrap_or_default();
    let name = if entry.kind == Kind::Flag { "flags" } else { wanted };
    let read = |text: &[u8]| match entry.kind {
        Kind::Flag => Value::Boolean(
            text.split(u8::is_ascii_whitespace).any(|flag| flag == wanted.as_bytes()),
        ),
        kind => form::value(kind, text),
    };
    // Hundreds of CPUs have the same flags: identical content is parsed once.
    let mut known: BTreeMap<&[u8], Value> = BTreeMap::new();
    let mut values = Vec::new();
    for (cpu, text) in lines::cpuinfo(content, name) {
        values.push((
            super::Instance::Number(cpu),
            known.entry(text).or_insert_with(|| read(text)).clone(),
        ));
    }
    let folded = super::fold(values);
    one(entry, folded.uniform().cloned().unwrap_or(folded))
}

fn params(content: &[u8]) -> Vec<EntryValue> {
    let mut given: BTreeMap<String, Vec<Option<String>>> = BTreeMap::new();
    for parameter in filter::parameters(&decode(content)) {
        given.entry(parameter.name).or_default().push(parameter.value);
    }
    let value = |mut values: Vec<Option<String>>| match values.len() {
        1 => values.remove(0).map_or(Value::Boolean(true), parameter),
        _ => Value::List(values.into_iter().map(Option::unwrap_or_default).collect()),
    };
    let found = |(name, values): (String, _)| {
        let class = filter::parameter_class(&name);
        EntryValue::of(name, class, value(values))
    };
    given.into_iter().map(found).collect()
}

/// A number if the text is its canonical decimal form, else text.
fn parameter(text: String) -> Value {
    match text.parse::<i64>() {
        Ok(number) if number.to_string() == text => Value::integer(number),
        _ => Value::Text(text),
    }
}

#[cfg(test)]
mod tests;
