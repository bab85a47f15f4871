// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Converts the content of a file, or of a part of a file, to a value of a given kind. Content that does not match the
//! kind becomes text, so there are no errors.

use super::{Integer, Unit, Value, filter};
use crate::text::name::decode;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Longest content that is kept. The kernel's files with one value have at most one page.
pub const MAX_TEXT_BYTES: usize = 8 << 10;
/// Length of the header of an ACPI table, and offset of the checksum in it.
const ACPI_HEADER_BYTES: usize = 36;
const ACPI_CHECKSUM: usize = 9;
/// Byte ranges of a FACP table with addresses of other tables, which differ between boots.
const FACP_ADDRESSES: [(usize, usize); 4] = [(36, 40), (40, 44), (132, 140), (140, 148)];

/// How the content of a file, or of a part of it, is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text.
    Text,
    /// A number, numbers, a boolean word (`Y`, `N`, `on`, `off`, ...), or else text.
    Auto,
    /// A whole number.
    Number(Option<Unit>),
    /// A boolean: `0` or `1`; anything else as [`Kind::Auto`].
    Switch,
    /// Words separated by blanks, ordered.
    List,
    /// Items separated by commas, ordered.
    Commas,
    /// Lines, ordered, without comments and empty lines.
    Lines,
    /// Words separated by blanks, unordered.
    Set,
    /// Parameters of the kernel, ordered and filtered ([`filter::parameters`]).
    Words,
    /// Words, of which the selected one is in brackets. A second fact `#available` holds all words.
    Choice,
    /// Whether the CPU flag with the name of the part is set.
    Flag,
    /// SHA-256 of the content.
    Hash,
    /// An ACPI table: fields of its header, and SHA-256.
    Acpi,
    /// Last path component of the target of a symbolic link.
    Link,
    /// Whether the file exists.
    Exists,
    /// Names of the entries of a directory.
    Names,
}

/// Converts content to a value. [`Kind::Flag`], [`Kind::Link`], [`Kind::Exists`] and [`Kind::Names`] do not describe
/// the content of a file; for them the result is text.
#[must_use]
pub fn value(kind: Kind, content: &[u8]) -> Value {
    match kind {
        Kind::Hash => return Value::Text(format!("sha256:{}", sha256(content))),
        Kind::Acpi => return acpi(content),
        _ => {}
    }
    if content.len() > MAX_TEXT_BYTES {
        return Value::Unreadable(format!("it has {} bytes, more than are kept", content.len()));
    }
    let text = decode(content);
    let text = text.trim_end_matches(['\n', '\r']).trim();
    let words = || text.split_whitespace().map(str::to_owned);
    match kind {
        Kind::Number(unit) => number(text, unit).unwrap_or_else(|| auto(text)),
        Kind::Auto => auto(text),
        Kind::Switch => match text {
            "0" => Value::Boolean(false),
            "1" => Value::Boolean(true),
            _ => auto(text),
        },
        Kind::List => Value::List(words().collect()),
        Kind::Commas => Value::List(text.split(',').map(|item| item.trim().to_owned()).collect()),
        Kind::Lines => Value::List(lines(text).map(str::to_owned).collect()),
        Kind::Set => Value::Set(words().collect()),
        Kind::Words => {
            Value::List(filter::parameters(text).map(|parameter| parameter.to_string()).collect())
        }
        Kind::Choice => {
            chosen(text).map_or_else(|| auto(text), |word| Value::Text(word.to_owned()))
        }
        _ => Value::Text(text.to_owned()),
    }
}

/// All words of a file of [`Kind::Choice`].
#[must_use]
pub fn choices(content: &[u8]) -> Value {
    let text = decode(content);
    Value::Set(
        text.split_whitespace().map(|word| word.trim_matches(['[', ']']).to_owned()).collect(),
    )
}

/// Lines that are neither empty nor comments.
pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', ';']))
}

/// The word in brackets.
fn chosen(text: &str) -> Option<&str> {
    text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
}

/// A whole number. With [`Unit::Kib`] it may be followed by `kB`: `8192 kB`.
fn number(text: &str, unit: Option<Unit>) -> Option<Value> {
    let digits = match unit {
        Some(Unit::Kib) => text.strip_suffix("kB").map_or(text, str::trim),
        _ => text,
    };
    let amount = digits.parse::<i128>().ok()?;
    let in_range = i128::from(i64::MIN) <= amount && amount <= i128::from(u64::MAX);
    in_range.then_some(Value::Integer(Integer { amount, unit }))
}

fn auto(text: &str) -> Value {
    match text {
        "Y" | "y" | "on" | "yes" | "enabled" => return Value::Boolean(true),
        "N" | "n" | "off" | "no" | "disabled" => return Value::Boolean(false),
        _ => {}
    }
    if let Some(value) = number(text, None) {
        return value;
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.len() > 1 && words.iter().all(|word| word.parse::<i128>().is_ok()) {
        true => Value::List(words.into_iter().map(str::to_owned).collect()),
        false => Value::Text(text.to_owned()),
    }
}

fn sha256(content: &[u8]) -> String {
    let mut hex = String::new();
    for byte in Sha256::digest(content) {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// Header fields and hash of an ACPI table. In a FACP table the addresses, and the checksum that covers them, are
/// replaced by 0 before hashing.
fn acpi(content: &[u8]) -> Value {
    let Some(header) = content.get(..ACPI_HEADER_BYTES) else {
        return Value::Unreadable(format!(
            "it has {} bytes, less than an ACPI table",
            content.len()
        ));
    };
    let mut same = content.to_vec();
    if header.starts_with(b"FACP") {
        for (from, to) in FACP_ADDRESSES.into_iter().chain([(ACPI_CHECKSUM, ACPI_CHECKSUM + 1)]) {
            let end = to.min(same.len());
            same.get_mut(from.min(end)..end).unwrap_or_default().fill(0);
        }
    }
    let text = |from: usize, to: usize| decode(&header[from..to]).trim().to_owned();
    let revision = header[24..28].iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
    Value::Table(BTreeMap::from([
        ("bytes".into(), content.len().to_string()),
        ("oem".into(), text(10, 16)),
        ("oem_table".into(), text(16, 24)),
        ("oem_revision".into(), format!("{revision:#x}")),
        ("sha256".into(), sha256(&same)),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(words: &[&str]) -> Value {
        Value::List(words.iter().map(|&word| word.to_owned()).collect())
    }

    #[test]
    fn contents_become_what_they_are() {
        let khz = Value::Integer(Integer { amount: 2_000_000, unit: Some(Unit::Khz) });
        let kib = Value::Integer(Integer { amount: 24, unit: Some(Unit::Kib) });
        for (kind, content, wanted) in [
            (Kind::Text, &b"acpi-cpufreq\n"[..], Value::text("acpi-cpufreq")),
            (Kind::Text, b"\xff\x1b[0m\n", Value::text("\\xff\u{1b}[0m")),
            (Kind::Number(Some(Unit::Khz)), b"2000000\n", khz),
            (Kind::Number(Some(Unit::Kib)), b"  24 kB", kib),
            (Kind::Number(None), b"-1\n", Value::integer(-1)),
            (Kind::Number(None), b"max\n", Value::text("max")),
            (Kind::Number(None), b"18446744073709551615", Value::integer(u64::MAX)),
            (
                Kind::Number(None),
                b"99999999999999999999999",
                Value::text("99999999999999999999999"),
            ),
            (Kind::Auto, b"4096\t131072\t6291456\n", list(&["4096", "131072", "6291456"])),
            (Kind::Auto, b"N\n", Value::Boolean(false)),
            (Kind::Auto, b"0\n", Value::integer(0)),
            (Kind::Switch, b"1\n", Value::Boolean(true)),
            (Kind::Switch, b"2\n", Value::integer(2)),
            (Kind::Choice, b"always [madvise] never\n", Value::text("madvise")),
            (Kind::Choice, b"none\n", Value::text("none")),
            (Kind::Commas, b"lockdown,capability\n", list(&["lockdown", "capability"])),
            (Kind::Lines, b"# c\nloop\n\n kvm \n", list(&["loop", "kvm"])),
            (Kind::Text, b"", Value::text("")),
        ] {
            assert_eq!(value(kind, content), wanted, "{content:?}");
        }
        let all = ["always", "madvise", "never"].map(str::to_owned);
        assert_eq!(choices(b"always [madvise] never\n"), Value::Set(all.into()));
        assert!(!value(Kind::Text, &[b'a'; MAX_TEXT_BYTES + 1]).is_known());
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(value(Kind::Hash, b""), Value::text(empty));
    }

    #[test]
    fn tables_of_two_boots_are_alike_and_of_two_firmwares_are_not() {
        let mut table = vec![0; 244];
        table[..4].copy_from_slice(b"FACP");
        table[10..16].copy_from_slice(b"DELL  ");
        let first = value(Kind::Acpi, &table);
        table[40..44].copy_from_slice(b"\x12\x34\x56\x78");
        table[9] = 77;
        assert_eq!(value(Kind::Acpi, &table), first);
        table[109] = 1;
        assert_ne!(value(Kind::Acpi, &table), first);
        let Value::Table(fields) = first else { panic!("{first:?}") };
        assert_eq!((fields["oem"].as_str(), fields["bytes"].as_str()), ("DELL", "244"));
        assert!(!value(Kind::Acpi, b"SSDT").is_known());
    }

    proptest! {
        #[test]
        fn no_content_makes_it_panic(content in prop::collection::vec(any::<u8>(), 0..200)) {
            for kind in [Kind::Text, Kind::Auto, Kind::Switch, Kind::Choice, Kind::Words, Kind::Hash, Kind::Acpi, Kind::Lines] {
                let _ = value(kind, &content);
            }
            let mut facp = b"FACP".to_vec();
            facp.extend_from_slice(&content);
            let _ = value(Kind::Acpi, &facp);
        }
    }
}
