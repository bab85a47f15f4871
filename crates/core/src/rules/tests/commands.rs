// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Suggested commands, when all names in a recording or a snapshot are hostile.

use super::{of_recordings, scenes};
use crate::finding::Finding;
use crate::host_diff::{HostInput, knowledge};
use crate::recording::Record;
use crate::rules::report;
use crate::snapshot::{Snapshot, Value, whitelist};
use crate::testkit::{commands, snapshot as snapshots, view};
use proptest::prelude::*;
use serde_json::Value as Json;

/// Parts of names that steer a shell, a terminal or a path.
const HOSTILE: [&str; 16] = [
    "; reboot",
    "$(reboot)",
    "`reboot`",
    "'; reboot; '",
    "\"; reboot; \"",
    "\nreboot\n",
    " && reboot",
    "|reboot",
    "> /etc/passwd",
    "/../../etc/cron.d/x",
    "../..",
    "\u{1b}[2J",
    "\u{202e}",
    "-rf",
    "~root/*",
    "$p ${IFS} !! #",
];

/// Where a hostile part goes.
#[derive(Clone, Copy, Debug)]
enum Place {
    Before,
    After,
    Within,
    Instead,
}

#[derive(Clone, Debug)]
struct Change {
    /// Which of the texts, in parts of a million.
    at: usize,
    part: usize,
    place: Place,
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let place = prop_oneof![
        Just(Place::Before),
        Just(Place::After),
        Just(Place::Within),
        Just(Place::Instead)
    ];
    let change = (0..1_000_000usize, 0..HOSTILE.len(), place);
    prop::collection::vec(change.prop_map(|(at, part, place)| Change { at, part, place }), 1..40)
}

fn changed(text: &str, part: &str, place: Place) -> String {
    match place {
        Place::Before => format!("{part}{text}"),
        Place::After => format!("{text}{part}"),
        Place::Instead => part.to_owned(),
        Place::Within => {
            let middle = text.char_indices().nth(text.chars().count() / 2).map_or(0, |(at, _)| at);
            format!("{}{part}{}", &text[..middle], &text[middle..])
        }
    }
}

/// The texts in a value.
fn texts<'a>(value: &'a mut Json, found: &mut Vec<&'a mut String>) {
    match value {
        Json::String(text) => found.push(text),
        Json::Array(items) => items.iter_mut().for_each(|item| texts(item, found)),
        Json::Object(fields) => fields.values_mut().for_each(|field| texts(field, found)),
        _ => {}
    }
}

/// The records with those changes, as far as they are records then.
fn hostile(records: &[Record], changes: &[Change]) -> Vec<Record> {
    let mut records = records.to_vec();
    let all = |value: &mut Json| {
        let mut found = Vec::new();
        texts(value, &mut found);
        found.len()
    };
    let mut named: Vec<(usize, usize)> = Vec::new();
    for (index, record) in records.iter().enumerate() {
        let mut value = serde_json::to_value(record).unwrap();
        named.extend((0..all(&mut value)).map(|text| (index, text)));
    }
    for change in changes.iter().filter(|_| !named.is_empty()) {
        let (index, at) = named[change.at * named.len() / 1_000_000];
        let mut value = serde_json::to_value(&records[index]).unwrap();
        let mut found = Vec::new();
        texts(&mut value, &mut found);
        if let Some(text) = found.into_iter().nth(at) {
            *text = changed(text, HOSTILE[change.part], change.place);
        }
        // Words of the format itself are no names.
        if let Ok(record) = serde_json::from_value(value) {
            records[index] = record;
        }
    }
    records
}

/// Every command of these findings.
fn commands_of(findings: &[Finding]) -> Vec<&str> {
    let fixes = findings.iter().flat_map(|it| &it.fix).filter_map(|fix| fix.command.as_deref());
    let confirms = findings.iter().filter_map(|it| it.confirm.as_ref());
    fixes.chain(confirms.map(|confirm| &*confirm.command)).collect()
}

#[test]
fn ordinary_names_make_commands_of_known_programs() {
    let mut count = 0;
    for rule in of_recordings() {
        let records = scenes::scene(rule.code, "fires").unwrap().records();
        let report = report(&view(&records), "0.1.0", true);
        for command in commands_of(&report.findings) {
            count += 1;
            assert_eq!(commands::fault(command), None, "{}", rule.code);
        }
    }
    assert!(count > 30, "{count} commands");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_recording_writes_a_command(rule in 0..100usize, changes in changes()) {
        let rules: Vec<_> = of_recordings().collect();
        let code = rules[rule % rules.len()].code;
        let records = hostile(&scenes::scene(code, "fires").unwrap().records(), &changes);
        for command in commands_of(&report(&view(&records), "0.1.0", true).findings) {
            prop_assert_eq!(commands::fault(command), None);
        }
    }
}

/// Two snapshots whose facts differ, with hostile keys, values and names.
fn snapshots() -> impl Strategy<Value = [Snapshot; 2]> {
    let patterns = || {
        let tables = whitelist::entries().iter().map(|entry| entry.key(&[], entry.part));
        tables.collect::<Vec<String>>()
    };
    let key = (any::<prop::sample::Index>(), changes()).prop_map(move |(at, changes)| {
        let patterns = patterns();
        let mut key = at.get(&patterns).replace("{}", "x").replace('*', "0");
        // Most are nearly right.
        for change in changes.iter().take(changes.len() % 3) {
            key = changed(&key, HOSTILE[change.part], change.place);
        }
        key
    });
    let made_up = prop_oneof![
        Just("/proc/sys/kernel/core_pattern".to_owned()),
        Just("/proc/cmdline#init".to_owned()),
        Just("/proc/modules#evil".to_owned()),
        Just("/proc/kcore".to_owned()),
        Just("/sys/power/state".to_owned()),
    ];
    let value = prop_oneof![
        Just(Value::Absent),
        any::<i64>().prop_map(|number| Value::text(number.to_string())),
        (0..HOSTILE.len()).prop_map(|part| Value::text(HOSTILE[part])),
        Just(Value::Boolean(true)),
    ];
    let facts =
        prop::collection::vec((prop_oneof![4 => key, 1 => made_up], value.clone(), value), 1..20);
    (facts, 0..HOSTILE.len()).prop_map(|(facts, name)| {
        let hosts = [snapshots::host("web-1"), snapshots::host(HOSTILE[name])];
        facts
            .into_iter()
            .fold(hosts, |[a, b], (key, from, to)| [a.with(&key, from), b.with(&key, to)])
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_snapshot_writes_a_command(hosts in snapshots()) {
        let inputs = hosts.each_ref().map(|snapshot| {
            HostInput { snapshot, label: "a;b", slow: None, golden: false }
        });
        let diff = crate::rules::diff(&inputs, &[], "0.1.0");
        for it in &diff.differences {
            // The table's own commands need no check.
            let own = knowledge::find(&it.key).and_then(|known| known.look);
            if own != Some(&*it.look) {
                prop_assert_eq!(commands::fault(&it.look), None);
            }
            for change in it.change.iter().filter(|change| change.is_command) {
                prop_assert_eq!(commands::fault(&change.text), None);
                prop_assert_eq!(commands::fault(&change.undo), None);
                for strange in ["core_pattern", "evil", "kcore", "power/state"] {
                    prop_assert!(!change.text.contains(strange), "{}", change.text);
                }
            }
            let is_read = !it.look.contains("kcore") && !it.look.contains("power/state");
            prop_assert!(is_read, "{}", it.look);
        }
        let own = |command: &str| diff.differences.iter().any(|it| it.look == command);
        for command in commands_of(&diff.findings).into_iter().filter(|command| !own(command)) {
            prop_assert_eq!(commands::fault(command), None);
        }
    }
}
