// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The entries of one file of the whitelist in, their facts out.

use super::expand::{Match, expand};
use super::files::Files;
use super::special;
use deburr_core::snapshot::form::Kind;
use deburr_core::snapshot::parts::{self, Found};
use deburr_core::snapshot::whitelist::{self, Entry, Source};
use deburr_core::snapshot::{Area, Class, Fact, Instance, Value, fold};
use std::collections::BTreeMap;

/// Largest content that is read; the rest of a file is not looked at.
const CAP_BYTES: usize = 64 << 10;
/// The same of files with a line or more for each CPU, mount or package.
const LONG_CAP_BYTES: usize = 16 << 20;

/// A fact's values, by what they are of.
type Values = BTreeMap<Instance, Value>;

/// Entries of one file.
pub(super) type Job = Vec<&'static Entry>;

/// The whitelist, by file.
pub(super) fn jobs() -> Vec<Job> {
    let mut jobs: Vec<Job> = Vec::new();
    let mut known: BTreeMap<(&str, String), usize> = BTreeMap::new();
    for entry in whitelist::entries() {
        let source = format!("{:?}", entry.source);
        let at = *known.entry((entry.path, source)).or_insert(jobs.len());
        match jobs.get_mut(at) {
            Some(job) => job.push(entry),
            None => jobs.push(vec![entry]),
        }
    }
    jobs
}

/// What one file, or all that it stands for, says.
pub(super) fn look(job: &Job, files: &mut Files, release: &str) -> Vec<Fact> {
    let Some(first) = job.first() else { return Vec::new() };
    let combined = match first.source {
        Source::Modprobe => Some(special::modprobe(files)),
        Source::Loader => Some(special::loader(first, files)),
        Source::Rpm => Some(special::rpm(first, files)),
        _ => None,
    };
    if let Some(found) = combined {
        let fact = |found: Found| {
            fact(first.key(&[], found.part.as_deref()), first.area, found.class, found.value)
        };
        return found.into_iter().map(fact).collect();
    }
    let matches = expand(files, first.path, release);
    let folded = first.path.contains('*');
    if matches.is_empty() && folded && !first.path.contains("{}") {
        let absent = parts::missing(job, &Value::Absent);
        let fact = |found: Found| {
            fact(first.key(&[], found.part.as_deref()), first.area, found.class, found.value)
        };
        return absent.into_iter().map(fact).collect();
    }
    // Several instances of a fact, by key.
    let mut by_key: BTreeMap<String, (Area, Class, Values)> = BTreeMap::new();
    let mut facts = Vec::new();
    for found in matches {
        let key = first.key(&found.names, None);
        for (area, value) in read(job, &found, &key, files) {
            let key = with_part(&key, value.part.as_deref());
            match &found.instance {
                None => facts.push(fact(key, area, value.class, value.value)),
                Some(instance) => {
                    let values = by_key.entry(key).or_insert((area, value.class, Values::new()));
                    values.2.insert(distinct(instance, &values.2), value.value);
                }
            }
        }
    }
    for (key, (area, class, values)) in by_key {
        facts.push(fact(key, area, class, one_absence(fold(values))));
    }
    facts
}

/// What is nowhere is one absence, not one of each instance.
fn one_absence(value: Value) -> Value {
    if value.uniform() == Some(&Value::Absent) { Value::Absent } else { value }
}

/// The instance under a name that none of those before has: a card may have two interrupts of one name.
fn distinct(instance: &Instance, before: &Values) -> Instance {
    let taken = |instance: &Instance| before.contains_key(instance);
    match instance {
        Instance::Name(name) if taken(instance) => {
            let names = (2..).map(|number| Instance::Name(format!("{name} ({number})")));
            names.into_iter().find(|name| !taken(name)).unwrap_or_else(|| instance.clone())
        }
        instance => instance.clone(),
    }
}

fn fact(key: String, area: Area, class: Class, value: Value) -> Fact {
    Fact { key, class, area, value, read_ns: None }
}

fn with_part(key: &str, part: Option<&str>) -> String {
    part.map_or_else(|| key.to_owned(), |part| format!("{key}#{part}"))
}

/// Reads one file.
fn read(job: &Job, file: &Match, key: &str, files: &mut Files) -> Vec<(Area, Found)> {
    let Some(first) = job.first() else { return Vec::new() };
    let path = &file.path;
    let plain = match first.kind {
        Kind::Link => Some(files.link(path, key).map(Value::Text)),
        Kind::Exists => Some(files.exists(path).map(Value::Boolean)),
        Kind::Names => Some(files.names(path).map(|names| Value::Set(names.into_iter().collect()))),
        _ => None,
    };
    let found = match plain {
        Some(value) => {
            let value = value.unwrap_or_else(|missing| missing);
            vec![Found { part: None, class: first.class, value }]
        }
        None => match files.content(path, key, cap(first)) {
            Ok(content) => parts::found(job, &content),
            Err(value) => parts::missing(job, &value),
        },
    };
    // Entries of one file may be of several areas.
    let area = |found: &Found| {
        let own = job.iter().find(|entry| entry.part == found.part.as_deref());
        own.unwrap_or(first).area
    };
    found.into_iter().map(|found| (area(&found), found)).collect()
}

fn cap(entry: &Entry) -> usize {
    let long = matches!(
        entry.source,
        Source::Cpuinfo | Source::Mounts | Source::CgroupMounts | Source::Modules | Source::Dpkg
    );
    let binary = matches!(entry.kind, Kind::Hash | Kind::Acpi);
    let kernel_config = entry.path.contains("$release");
    if long || binary || kernel_config { LONG_CAP_BYTES } else { CAP_BYTES }
}
