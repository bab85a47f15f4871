// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Splits files with a name and a value in each line.

use super::EntryValue;
use crate::snapshot::{Class, Integer, Unit, Value};
use crate::text::name::decode;
use std::collections::BTreeMap;

/// Non-empty lines of a file, without leading and trailing blanks.
fn lines(content: &[u8]) -> impl Iterator<Item = &[u8]> {
    content.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty())
}

/// Splits a line at the first occurrence of a byte, and trims both sides.
fn divided(line: &[u8], by: u8) -> Option<(&[u8], &[u8])> {
    let at = line.iter().position(|&byte| byte == by)?;
    Some((line[..at].trim_ascii(), line[at + 1..].trim_ascii()))
}

/// Lines `Key: value`. If a key occurs twice, the first value counts.
pub(super) fn colon(content: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut values = BTreeMap::new();
    for (name, value) in lines(content).filter_map(|line| divided(line, b':')) {
        values.entry(decode(name)).or_insert_with(|| value.to_vec());
    }
    values
}

/// Lines `Node 0 Key: value`.
pub(super) fn node(content: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let all = colon(content).into_iter();
    all.map(|(name, value)| (name.rsplit(' ').next().unwrap_or_default().to_owned(), value))
        .collect()
}

/// Lines `KEY=value` and `KEY="value"`. If a key occurs twice, the last value counts, as in a shell. The line `# KEY is
/// not set` of a kernel configuration counts as `KEY=n`.
pub(super) fn shell(content: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut values = BTreeMap::new();
    for line in lines(content) {
        if let Some(comment) = line.strip_prefix(b"#") {
            if let Some(name) = comment.trim_ascii().strip_suffix(b" is not set") {
                values.insert(decode(name), b"n".to_vec());
            }
            continue;
        }
        let Some((name, value)) = divided(line, b'=') else { continue };
        let name = name.strip_prefix(b"export ").unwrap_or(name).trim_ascii();
        let quoted = |quote: &[u8]| value.strip_prefix(quote)?.strip_suffix(quote);
        let value = quoted(b"\"").or_else(|| quoted(b"'")).unwrap_or(value);
        values.insert(decode(name), value.to_vec());
    }
    values
}

/// Value of the key `wanted` in `/proc/cpuinfo`, for each CPU.
pub(super) fn cpuinfo<'a>(content: &'a [u8], wanted: &str) -> Vec<(u32, &'a [u8])> {
    let (mut cpu, mut values) = (None, Vec::new());
    for (name, value) in lines(content).filter_map(|line| divided(line, b':')) {
        if name == b"processor" {
            cpu = std::str::from_utf8(value).ok().and_then(|number| number.parse().ok());
        } else if let (true, Some(cpu)) = (name == wanted.as_bytes(), cpu) {
            values.push((cpu, value));
        }
    }
    values
}

/// Names and sizes of `/proc/modules`. The rest of a line (users, state, address) is left out.
pub(super) fn modules(content: &[u8]) -> Vec<EntryValue> {
    let module = |line: &[u8]| {
        let line = decode(line);
        let mut words = line.split_whitespace();
        let (name, size) = (words.next()?.to_owned(), words.next()?.parse::<u64>().ok()?);
        let size = Value::Integer(Integer { amount: size.into(), unit: Some(Unit::Bytes) });
        Some(EntryValue::of(name, Class::Configuration, size))
    };
    lines(content).filter_map(module).collect()
}

/// Controllers of `/proc/cgroups`, and whether they are enabled. Hierarchy id and number of cgroups are left out.
pub(super) fn cgroups(content: &[u8]) -> Vec<EntryValue> {
    let rows = lines(content).filter(|line| !line.starts_with(b"#"));
    rows.filter_map(|line| {
        let fields: Vec<&[u8]> =
            line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty()).collect();
        let enabled = *fields.get(3)?;
        let name = decode(fields.first()?);
        Some(EntryValue::of(name, Class::Configuration, Value::Boolean(enabled == b"1")))
    })
    .collect()
}

/// Type, size and priority of each swap area of `/proc/swaps`, in file order. The used size is left out, and so is the
/// name of the device or file, which is specific to the machine.
pub(super) fn swaps(content: &[u8]) -> Value {
    let row = |line: &[u8]| {
        let line = decode(line);
        let fields: Vec<&str> = line.split_whitespace().collect();
        // Fields are counted from the end, because the name may contain blanks.
        let [.., kind, size_kib, _used, priority] = fields.as_slice() else { return None };
        let zram =
            if fields.first().is_some_and(|name| name.contains("zram")) { " of zram" } else { "" };
        Some(format!("{kind}{zram}, {size_kib} KiB, priority {priority}"))
    };
    Value::List(lines(content).skip(1).filter_map(row).collect())
}
