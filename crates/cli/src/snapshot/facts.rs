// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turns the whitelist's entries for one file into facts.

use super::ethtool;
use super::expand::{Match, expand};
use super::files::Files;
use super::special;
use deburr_core::snapshot::form::Kind;
use deburr_core::snapshot::parts::{self, EntryValue};
use deburr_core::snapshot::whitelist::{self, Entry, Source};
use deburr_core::snapshot::{Area, Class, Fact, Instance, Value, fold};
use std::collections::BTreeMap;

/// Largest file that is read.
const CAP_BYTES: usize = 64 << 10;
/// The same for files with one or more lines for each CPU, mount or package.
const LONG_CAP_BYTES: usize = 16 << 20;

/// The values of a fact, by instance.
type Values = BTreeMap<Instance, Value>;

/// The entries of one file.
pub(super) type Job = Vec<&'static Entry>;

/// The whitelist, grouped by file.
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

/// Facts, and the values of instances that will be combined into facts.
#[derive(Default)]
struct CollectedFacts {
    facts: Vec<Fact>,
    by_key: BTreeMap<String, (Area, Class, Values)>,
}

impl CollectedFacts {
    fn add(&mut self, key: &str, area: Area, instance: Option<&Instance>, found: EntryValue) {
        let key =
            found.part.as_ref().map_or_else(|| key.to_owned(), |part| format!("{key}#{part}"));
        let Some(instance) = instance else {
            let (class, value) = (found.class, found.value);
            return self.facts.push(Fact { key, class, area, value, read_ns: None });
        };
        let (_, class, values) =
            self.by_key.entry(key).or_insert((area, found.class, Values::new()));
        // If a value is a setting of one card, and adjusted by another card itself, it is compared for neither.
        *class = found.class.max(*class);
        values.insert(distinct(instance, values), found.value);
    }

    fn facts(mut self) -> Vec<Fact> {
        for (key, (area, class, values)) in self.by_key {
            let value = one_absence(fold(values));
            self.facts.push(Fact { key, class, area, value, read_ns: None });
        }
        self.facts
    }
}

/// The facts of one file, or of all files that its pattern stands for.
pub(super) fn look(job: &Job, files: &mut Files, release: &str) -> Vec<Fact> {
    let Some(first) = job.first() else { return Vec::new() };
    let mut gathered = CollectedFacts::default();
    let combined = match first.source {
        Source::Modprobe => Some(special::modprobe(files)),
        Source::Loader => Some(special::loader(first, files)),
        Source::Rpm => Some(special::rpm(first, files)),
        Source::Ethtool => {
            for (card, found) in ethtool::look(first, files) {
                gathered.add(first.path, first.area, card.as_ref(), found);
            }
            return gathered.facts();
        }
        _ => None,
    };
    let matches = if combined.is_some() { Vec::new() } else { expand(files, first.path, release) };
    let nowhere = matches.is_empty() && first.path.contains('*') && !first.path.contains("{}");
    let absent = || if nowhere { parts::missing(job, &Value::Absent) } else { Vec::new() };
    for found in combined.unwrap_or_else(absent) {
        gathered.add(first.path, first.area, None, found);
    }
    for found in matches {
        let key = first.key(&found.names, None);
        for (area, value) in read(job, &found, &key, files) {
            gathered.add(&key, area, found.instance.as_ref(), value);
        }
    }
    gathered.facts()
}

/// One absent value instead of one for each instance, if all are absent.
fn one_absence(value: Value) -> Value {
    if value.uniform() == Some(&Value::Absent) { Value::Absent } else { value }
}

/// The instance under a name that is not taken yet: a card may have two interrupts of the same name.
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

fn read(job: &Job, file: &Match, key: &str, files: &mut Files) -> Vec<(Area, EntryValue)> {
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
            vec![EntryValue { part: None, class: first.class, value }]
        }
        None => match files.content(path, key, cap(first)) {
            Ok(content) => parts::found(job, &content),
            Err(value) => parts::missing(job, &value),
        },
    };
    // The entries of one file may belong to several areas.
    let area = |found: &EntryValue| {
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
