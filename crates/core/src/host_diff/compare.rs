// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which hosts have which value: hosts that agree form a camp.
//!
//! Hosts agree if their values are equal. For a fact with a value for each CPU, disk or card, hosts agree
//! if each value occurs equally often; where they have different numbers of these, if the same values
//! occur. So a host with 64 CPUs agrees with one of 8 if all CPUs of both have the same setting, and disks
//! that swapped their names make no difference.

use super::knowledge;
use crate::procfs::cpu_list;
use crate::snapshot::{Area, Class, FILTERED, Fact, Snapshot, Value, whitelist};
use std::collections::{BTreeMap, BTreeSet};

/// Relative tolerance, as a fraction of the larger amount, within which amounts that scale with memory agree.
const MEMORY_TOLERANCE: f64 = 0.02;

/// A key and the values of all hosts.
#[derive(Debug)]
pub(super) struct Row<'a> {
    pub(super) key: &'a str,
    pub(super) area: Area,
    pub(super) class: Class,
    /// Groups of hosts that agree, largest first, then in the order of hosts. Their value is that of the first host.
    pub(super) camps: Vec<AgreeingHosts>,
    /// Hosts on which the value is not known, and why.
    pub(super) unknown: Vec<(usize, String)>,
}

#[derive(Clone, Debug)]
pub(super) struct AgreeingHosts {
    pub(super) hosts: Vec<usize>,
    pub(super) value: Value,
}

/// A row for every key of any host, in the order of keys.
pub(super) fn rows<'a>(snapshots: &[&'a Snapshot]) -> Vec<Row<'a>> {
    let mut keys: BTreeMap<&str, Vec<Option<&Fact>>> = BTreeMap::new();
    for (host, snapshot) in snapshots.iter().enumerate() {
        for fact in &snapshot.facts {
            keys.entry(&fact.key).or_insert_with(|| vec![None; snapshots.len()])[host] = Some(fact);
        }
    }
    let families: Vec<BTreeSet<&str>> = snapshots.iter().map(|it| families(it)).collect();
    keys.into_iter().map(|(key, facts)| row(key, &facts, snapshots, &families)).collect()
}

fn row<'a>(
    key: &'a str,
    facts: &[Option<&Fact>],
    snapshots: &[&Snapshot],
    families: &[BTreeSet<&str>],
) -> Row<'a> {
    // Snapshots by different versions may disagree on the class: a class that is not compared takes precedence.
    let of = facts.iter().flatten();
    let class = of
        .clone()
        .map(|fact| fact.class)
        .max_by_key(|class| (!class.is_compared(), *class))
        .unwrap_or(Class::Counter);
    let area = of.map(|fact| fact.area).min().unwrap_or(Area::Other);
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    for (host, fact) in facts.iter().enumerate() {
        match fact.map(|fact| &fact.value) {
            Some(value) => match reason(value) {
                Some(why) => unknown.push((host, why)),
                None => known.push((host, value.clone())),
            },
            None if looked(key, host, facts, snapshots, families) => {
                known.push((host, Value::Absent));
            }
            None => {
                let version = &snapshots[host].tool.version;
                unknown.push((host, format!("deburr {version} did not look")));
            }
        }
    }
    Row { key, area, class, camps: camps(key, known), unknown }
}

/// Whether a host without the key is known not to have what it stands for: the same version of deburr found the key on
/// another host, or other keys of the same family (parameters, modules, states) were found on this host.
fn looked(
    key: &str,
    host: usize,
    facts: &[Option<&Fact>],
    snapshots: &[&Snapshot],
    families: &[BTreeSet<&str>],
) -> bool {
    let version = &snapshots[host].tool.version;
    let same = |(other, fact): (usize, &Option<&Fact>)| {
        fact.is_some() && snapshots[other].tool.version == *version
    };
    facts.iter().enumerate().any(same) || family(key).is_some_and(|it| families[host].contains(it))
}

/// The file or folder that is always read as a whole, so that a key that is missing from it does not exist.
fn family(key: &str) -> Option<&str> {
    if let Some((file, _)) = key.split_once('#') {
        return Some(file);
    }
    let (folder, _) = key.split_once("/state")?;
    folder.ends_with("cpuidle").then_some(folder)
}

fn families(snapshot: &Snapshot) -> BTreeSet<&str> {
    snapshot.facts.iter().filter_map(|fact| family(&fact.key)).collect()
}

/// Why a value is not known; `None` if it is known.
fn reason(value: &Value) -> Option<String> {
    match value {
        Value::Unreadable(why) => Some(why.clone()),
        Value::TimedOut { after_ms } => {
            Some(format!("reading it did not end within {after_ms} ms"))
        }
        Value::Text(text) if text == FILTERED => Some("its value is kept out of snapshots".into()),
        Value::Each(parts) => parts.iter().find_map(|part| {
            reason(&part.value).map(|why| format!("{}: {why}", part.of.join(",")))
        }),
        _ => None,
    }
}

fn camps(key: &str, known: Vec<(usize, Value)>) -> Vec<AgreeingHosts> {
    let presence_only = knowledge::fits("/proc/modules#*", key);
    let sizes: BTreeSet<u64> = known.iter().map(|(_, value)| instances(value)).collect();
    let alike = sizes.len() == 1;
    let mut by_content: BTreeMap<Content, AgreeingHosts> = BTreeMap::new();
    for (host, value) in known {
        let content = if presence_only {
            Content::One(Value::Boolean(value != Value::Absent))
        } else {
            content(&value, alike)
        };
        let camp =
            by_content.entry(content).or_insert_with(|| AgreeingHosts { hosts: Vec::new(), value });
        camp.hosts.push(host);
    }
    let mut camps: Vec<AgreeingHosts> = by_content.into_values().collect();
    let scales = knowledge::find(key).is_some_and(|known| known.scales)
        || whitelist::find(key).is_some_and(|entry| entry.scales_with_memory);
    if scales && camps.len() > 1 {
        camps = merged(camps);
    }
    camps.sort_by(|a, b| b.hosts.len().cmp(&a.hosts.len()).then_with(|| a.hosts.cmp(&b.hosts)));
    camps
}

/// What is compared of a value.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Content {
    One(Value),
    Amounts(Vec<(Value, u64)>),
    Values(Vec<Value>),
}

fn content(value: &Value, alike: bool) -> Content {
    let Value::Each(parts) = value else { return Content::One(value.clone()) };
    if let Some(uniform) = value.uniform() {
        return Content::One(uniform.clone());
    }
    let mut amounts: BTreeMap<Value, u64> = BTreeMap::new();
    for part in parts {
        *amounts.entry(part.value.clone()).or_default() += members(&part.of);
    }
    match alike {
        true => Content::Amounts(amounts.into_iter().collect()),
        false => Content::Values(amounts.into_keys().collect()),
    }
}

fn instances(value: &Value) -> u64 {
    match value {
        Value::Each(parts) => parts.iter().map(|part| members(&part.of)).sum(),
        _ => 1,
    }
}

/// Number of instances in a list such as `0-3`, `8`, `sda`. A malformed range counts as one.
fn members(of: &[String]) -> u64 {
    let count = |range: &String| match range.starts_with(|c: char| c.is_ascii_digit()) {
        true => cpu_list::parse(range.as_bytes()).map_or(1, |cpus| cpus.len() as u64),
        false => 1,
    };
    of.iter().map(count).sum()
}

/// Merges camps with similar amounts: in the order of amounts, a camp within the
/// tolerance of the previous one joins it.
fn merged(camps: Vec<AgreeingHosts>) -> Vec<AgreeingHosts> {
    let (mut numbers, mut others): (Vec<AgreeingHosts>, Vec<AgreeingHosts>) =
        camps.into_iter().partition(|camp| amounts(&camp.value).is_some());
    numbers.sort_by_cached_key(|camp| amounts(&camp.value));
    let mut last: Option<Vec<i128>> = None;
    for camp in numbers {
        let now = amounts(&camp.value).unwrap_or_default();
        let near = |last: &Vec<i128>| {
            let each = |(now, last): (&i128, &i128)| {
                now.saturating_sub(*last).unsigned_abs() as f64
                    <= MEMORY_TOLERANCE * now.unsigned_abs().max(last.unsigned_abs()) as f64
            };
            now.len() == last.len() && now.iter().zip(last).all(each)
        };
        match (last.as_ref().is_some_and(near), others.last_mut()) {
            (true, Some(before)) => {
                // The value shown is that of the first host.
                if camp.hosts < before.hosts {
                    before.value = camp.value;
                }
                before.hosts.extend(camp.hosts);
                before.hosts.sort_unstable();
            }
            _ => others.push(camp),
        }
        last = Some(now);
    }
    others
}

/// The amounts of a purely numeric value: a single one, those of a list, or those of all instances in their order.
fn amounts(value: &Value) -> Option<Vec<i128>> {
    match value {
        Value::Integer(integer) => Some(vec![integer.amount]),
        Value::List(items) => items.iter().map(|item| item.parse().ok()).collect(),
        Value::Each(parts) => {
            let mut by_instance: BTreeMap<(usize, String), Vec<i128>> = BTreeMap::new();
            for part in parts {
                let amounts = amounts(&part.value)?;
                for name in &part.of {
                    let numbers = cpu_list::parse(name.as_bytes()).unwrap_or_default();
                    // Numbered instances come first, in numeric order, then named ones.
                    let mut names: Vec<(usize, String)> =
                        numbers.iter().map(|number| (*number as usize, String::new())).collect();
                    if names.is_empty() {
                        names.push((usize::MAX, name.clone()));
                    }
                    by_instance.extend(names.into_iter().map(|name| (name, amounts.clone())));
                }
            }
            Some(by_instance.into_values().flatten().collect())
        }
        _ => None,
    }
}
