// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values in words. Names in them are untrusted: callers must escape the text where they show it.

use crate::snapshot::{Integer, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of items of a set, list or table that are named.
const MAX_ITEMS: usize = 12;
/// Maximum number of parts that are named of a value with one for each CPU or disk.
const MAX_PARTS: usize = 4;

/// The value in words; of sets and tables, only what not all of the other values contain.
pub(super) fn shown(value: &Value, others: &[&Value]) -> String {
    match value {
        Value::Text(text) if text.is_empty() => "(empty)".into(),
        Value::Text(text) => text.clone(),
        Value::Integer(integer) => number(*integer),
        Value::Boolean(true) => "on".into(),
        Value::Boolean(false) => "off".into(),
        Value::List(items) if items.is_empty() => "(none)".into(),
        Value::List(items) => named(items.iter().cloned(), items.len()),
        Value::Set(items) => set(items, others),
        Value::Table(items) => table(items, others),
        Value::Each(parts) => {
            if let Some(uniform) = value.uniform() {
                let others: Vec<&Value> =
                    others.iter().map(|other| other.uniform().unwrap_or(other)).collect();
                return shown(uniform, &others);
            }
            let mut texts: Vec<String> = parts
                .iter()
                .take(MAX_PARTS)
                .map(|part| format!("{}: {}", part.of.join(","), shown(&part.value, &[])))
                .collect();
            if parts.len() > MAX_PARTS {
                texts.push(format!("and {} more", parts.len() - MAX_PARTS));
            }
            texts.join("; ")
        }
        Value::Absent => "not there".into(),
        Value::Unreadable(why) => format!("not readable: {why}"),
        Value::TimedOut { after_ms } => format!("not read within {after_ms} ms"),
    }
}

/// The value as it is written into a file or a command; `None` if it is not a single text, number or flag.
pub(super) fn plain(value: &Value) -> Option<String> {
    match value.uniform()? {
        Value::Text(text) => Some(text.clone()),
        Value::Integer(integer) => Some(integer.amount.to_string()),
        Value::Boolean(on) => Some(u8::from(*on).to_string()),
        _ => None,
    }
}

fn number(integer: Integer) -> String {
    match integer.unit.map_or("", crate::snapshot::Unit::symbol) {
        "" => integer.amount.to_string(),
        "kHz" if integer.amount % 1000 == 0 => format!("{} MHz", integer.amount / 1000),
        unit => format!("{} {unit}", integer.amount),
    }
}

fn named(items: impl Iterator<Item = String>, of: usize) -> String {
    let mut text = items.take(MAX_ITEMS).collect::<Vec<_>>().join(", ");
    if of > MAX_ITEMS {
        text += &format!(" and {} more", of - MAX_ITEMS);
    }
    text
}

fn set(items: &BTreeSet<String>, others: &[&Value]) -> String {
    let common = |item: &&String| {
        others.iter().all(|other| match other {
            Value::Set(set) => set.contains(*item),
            _ => false,
        })
    };
    let own: Vec<String> = items.iter().filter(|item| !common(item)).cloned().collect();
    if others.is_empty() || own.len() == items.len() {
        return if items.is_empty() {
            "(none)".into()
        } else {
            named(own.iter().cloned(), own.len())
        };
    }
    match own.len() {
        0 => format!("none of these ({} that all have)", items.len()),
        n => format!("{} (beside {} that all have)", named(own.into_iter(), n), items.len() - n),
    }
}

fn table(items: &BTreeMap<String, String>, others: &[&Value]) -> String {
    let common = |name: &String, value: &String| {
        others.iter().all(|other| match other {
            Value::Table(table) => table.get(name) == Some(value),
            _ => false,
        })
    };
    let own: Vec<String> = items
        .iter()
        .filter(|(name, value)| others.is_empty() || !common(name, value))
        .map(
            |(name, value)| if value.is_empty() { name.clone() } else { format!("{name} {value}") },
        )
        .collect();
    let count = own.len();
    match (count, items.len()) {
        (_, 0) => "(none)".into(),
        (0, all) => format!("none of these ({all} that all have)"),
        (n, all) if n < all => {
            format!("{} (beside {} that all have)", named(own.into_iter(), n), all - n)
        }
        (n, _) => named(own.into_iter(), n),
    }
}
