// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files that a snapshot is taken of, on a host or below any directory: each as it is listed, and what several files
//! or no files are read from.
//!
//! The input is a line with the path of the file, or with the name of a reader, and the content.

use deburr_core::snapshot::ethtool::{self, Question};
use deburr_core::snapshot::parts::{self, EntryValue, loader, modprobe, packages, rpm};
use deburr_core::snapshot::whitelist::{self, Entry};
use deburr_core::snapshot::{Area, Fact, Snapshot};
use std::collections::BTreeMap;
use std::sync::OnceLock;

pub(crate) fn read(data: &[u8]) -> bool {
    let Some(end) = data.iter().position(|&byte| byte == b'\n') else { return false };
    let (line, content) = (&data[..end], &data[end + 1..]);
    let Ok(path) = std::str::from_utf8(line) else { return false };
    let files: Vec<Vec<u8>> = content.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect();
    let values = match path {
        "rpm" => packages::values(rpm::package(content).into_iter().collect()),
        "loader" => loader::entries(&files),
        "modprobe" => modprobe::settings(&files),
        "ethtool" => {
            let _ = ethtool::family(content);
            let answers = Question::ALL.map(|question| ethtool::facts(question, content));
            answers.into_iter().flatten().flatten().collect()
        }
        path => {
            let job: Vec<&Entry> =
                whitelist::entries().iter().filter(|entry| entry.path == path).collect();
            parts::found(&job, content)
        }
    };
    !values.is_empty() && written(path, values)
}

/// Whatever was read is written into a snapshot, and read again from there.
fn written(path: &str, values: Vec<EntryValue>) -> bool {
    let mut facts = BTreeMap::new();
    for EntryValue { part, class, value } in values {
        let key = part.map_or_else(|| path.to_owned(), |part| format!("{path}#{part}"));
        let fact = Fact { key: key.clone(), class, area: Area::Kernel, value, read_ns: None };
        facts.insert(key, fact);
    }
    static OTHER: OnceLock<Snapshot> = OnceLock::new();
    let other = OTHER.get_or_init(|| {
        let document = include_bytes!("../../../fixtures/snapshots/drift-slow.json");
        Snapshot::parse(document).expect("a kept snapshot")
    });
    let mut snapshot = other.clone();
    snapshot.facts = facts.into_values().collect();
    Snapshot::put_in_order(&mut snapshot.facts);
    let document = snapshot.document().expect("it is written");
    let again = Snapshot::parse(document.as_bytes());
    assert_eq!(again.as_ref().map(|again| &again.facts), Ok(&snapshot.facts), "{document}");
    true
}
