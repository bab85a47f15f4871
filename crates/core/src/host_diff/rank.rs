// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much a difference matters: what is known about it, which driver is in charge, what it follows from.

use super::compare::{AgreeingHosts, Row};
use super::document::{Difference, ValueOnHosts};
use super::drivers::Drivers;
use super::knowledge::{self, HIGH, Knowledge, LOW, MEDIUM, RequiredDriver, SlowerSide};
use super::value_text::shown;
use super::{change, drivers, value_text};
use crate::finding::Severity;
use crate::snapshot::{Area, Value};
use std::cmp::Ordering;

/// Weight of a parameter that has no effect on any of the hosts.
const SAYS_NOTHING: u8 = 10;
/// Maximum weight of a difference that follows from another one.
const FOLLOWS: u8 = 20;

/// How many rows are looked at for the one that a difference follows from. No host has as many that begin alike.
const MAX_PARENTS: usize = 2_000;

/// The hosts that are compared, and all rows that differ.
pub(super) struct Ranking<'a> {
    pub(super) ids: &'a [String],
    pub(super) drivers: &'a [Drivers],
    pub(super) slow: &'a [Option<bool>],
    /// Index of the golden host, which the others are to become like.
    pub(super) golden: Option<usize>,
    /// All rows that differ and should not.
    pub(super) rows: &'a [Row<'a>],
}

/// The severity of a weight.
#[must_use]
pub(super) fn severity(weight: u8) -> Severity {
    match weight {
        HIGH.. => Severity::High,
        MEDIUM.. => Severity::Medium,
        LOW.. => Severity::Low,
        _ => Severity::Info,
    }
}

/// Most important first; ties in the order of keys.
pub(super) fn order(a: &Difference, b: &Difference) -> Ordering {
    let importance = b.importance().total_cmp(&a.importance());
    importance.then_with(|| b.weight.cmp(&a.weight)).then_with(|| a.key.cmp(&b.key))
}

/// The values of a row and the hosts that have them.
pub(super) fn held(camps: &[AgreeingHosts], ids: &[String]) -> Vec<ValueOnHosts> {
    let of = |at: usize| {
        let others: Vec<&Value> = camps
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != at)
            .map(|(_, camp)| &camp.value)
            .collect();
        ValueOnHosts {
            hosts: named(&camps[at].hosts, ids),
            value: camps[at].value.clone(),
            shown: shown(&camps[at].value, &others),
        }
    };
    (0..camps.len()).map(of).collect()
}

fn named(hosts: &[usize], ids: &[String]) -> Vec<String> {
    hosts.iter().map(|&host| ids[host].clone()).collect()
}

impl Ranking<'_> {
    /// The difference of a row, with what is known about it.
    pub(super) fn difference(&self, row: &Row<'_>) -> Difference {
        let known = knowledge::find(row.key);
        let mut weight =
            known.map_or_else(|| knowledge::unknown_weight(row.class, row.area), |it| it.weight);
        if row.camps.iter().any(|camp| camp.value == Value::Absent) {
            weight = weight.min(known.and_then(|known| known.where_missing).unwrap_or(weight));
        }
        let mut cautions = Vec::new();
        if let Some(who) = known.and_then(|known| known.only_with) {
            weight = self.in_charge(row, who, weight, &mut cautions);
        }
        let follows = self.parent(row, known);
        if follows.is_some() {
            weight = weight.min(FOLLOWS);
        }
        let slower = known.map_or_else(Vec::new, |known| self.slower(row, known));
        let change = self.pair(row, &slower).and_then(|(from, to)| {
            let hosts = named(&from.hosts, self.ids);
            change::change(row.key, row.class, known, hosts, (&from.value, &to.value))
        });
        Difference {
            key: row.key.to_owned(),
            area: row.area,
            class: row.class,
            severity: severity(weight),
            weight,
            what: known.map(|known| known.what.to_owned()),
            values: held(&row.camps, self.ids),
            unknown_on: row.unknown.iter().map(|(host, _)| self.ids[*host].clone()).collect(),
            slows: named(&slower, self.ids),
            effects: known.map_or_else(Vec::new, |known| known.slows.to_vec()),
            why: known.map(|known| known.why.to_owned()),
            cautions,
            follows,
            group: match known.map(|known| known.group) {
                None | Some("") => default_group(row.area, row.key),
                Some(group) => group.to_owned(),
            },
            look: change::look(row.key, known),
            change,
            explains: None,
            supported_by: vec![],
            test: None,
        }
    }

    /// The weight of a parameter that has an effect only under certain drivers: reduced if none of them is in charge
    /// on any host. Adds a caution for each host without effect, or where the driver is not known.
    fn in_charge(
        &self,
        row: &Row<'_>,
        who: RequiredDriver,
        weight: u8,
        cautions: &mut Vec<String>,
    ) -> u8 {
        let name = row.key.rsplit(['#', '/']).next().unwrap_or(row.key);
        let (mut somewhere, mut unknown) = (false, Vec::new());
        for &host in row.camps.iter().flat_map(|camp| &camp.hosts) {
            match self.drivers[host].answers(who) {
                Some(it) if it.is_required => somewhere = true,
                Some(it) => cautions.push(format!(
                    "`{name}` says nothing on {}: its {} driver is `{}`",
                    self.ids[host], it.kind, it.driver
                )),
                None => unknown.push(self.ids[host].clone()),
            }
        }
        if !unknown.is_empty() {
            let which = if matches!(who, RequiredDriver::Idle(_)) { "idle" } else { "frequency" };
            cautions.push(format!(
                "whether `{name}` says anything on {} is not known: nor is the {which} driver there",
                unknown.join(", ")
            ));
            somewhere = true;
        }
        cautions.sort();
        if somewhere { weight } else { SAYS_NOTHING }
    }

    /// Key of the difference that this one follows from: hosts that agree on that one also agree on this one. A
    /// parameter of a module follows from the module.
    fn parent(&self, row: &Row<'_>, known: Option<&Knowledge>) -> Option<String> {
        let module = row.key.strip_prefix("/sys/module/").and_then(|rest| rest.split('/').next());
        let module = module.map(|module| format!("/proc/modules#{module}"));
        let mut patterns: Vec<&str> = known.map_or(&[][..], |known| known.follows).to_vec();
        patterns.extend(module.as_deref());
        // Files that only a driver creates do not exist where the driver is missing.
        let partly = row.camps.iter().any(|camp| camp.value == Value::Absent);
        if partly && known.is_none_or(|known| !known.alone) {
            patterns.extend(match row.area {
                Area::Frequency => Some(drivers::FREQUENCY_DRIVER),
                Area::Idle => Some(drivers::IDLE_DRIVER),
                _ => None,
            });
        }
        let coarser = |parent: &&Row<'_>| {
            parent.key != row.key
                && parent.camps.iter().all(|camp| {
                    row.camps
                        .iter()
                        .any(|own| camp.hosts.iter().all(|host| own.hosts.contains(host)))
                })
        };
        let first = |pattern: &&str| self.matching(pattern).find(coarser);
        patterns.iter().filter_map(first).map(|parent| parent.key).min().map(str::to_owned)
    }

    /// The rows whose keys match a pattern. Rows are in the order of keys, so that only those that begin like the pattern
    /// are looked at.
    fn matching(&self, pattern: &str) -> impl Iterator<Item = &Row<'_>> {
        let begin = pattern.split('*').next().unwrap_or_default();
        let from = self.rows.partition_point(|row| row.key < begin);
        self.rows[from..]
            .iter()
            .take(MAX_PARENTS)
            .take_while(move |row| row.key.starts_with(begin))
            .filter(move |row| knowledge::fits(pattern, row.key))
    }

    /// Hosts with the value that is known to be the slowest; empty if all values are equally slow or that is not known.
    fn slower(&self, row: &Row<'_>, known: &Knowledge) -> Vec<usize> {
        let ranks: Vec<Option<i128>> =
            row.camps.iter().map(|camp| slowness(&camp.value, known.slower)).collect();
        let Some(ranks) = ranks.into_iter().collect::<Option<Vec<i128>>>() else { return vec![] };
        let (Some(most), Some(least)) = (ranks.iter().max(), ranks.iter().min()) else {
            return vec![];
        };
        if most == least {
            return vec![];
        }
        let mut hosts: Vec<usize> = row
            .camps
            .iter()
            .zip(&ranks)
            .filter(|(_, rank)| *rank == most)
            .flat_map(|(camp, _)| camp.hosts.clone())
            .collect();
        if let Some(who) = known.only_with {
            hosts.retain(|&host| self.drivers[host].answers(who).is_none_or(|it| it.is_required));
        }
        hosts.sort_unstable();
        hosts
    }

    /// Which camp to change, and to the value of which other camp. If there is a golden host, to its value. Otherwise
    /// the camp to change is the one with most slow hosts, then with most hosts that the difference is known to slow
    /// down, then the smallest, then the last; the camp to copy is the one with most fast hosts, then with fewest
    /// slowed down, then the largest.
    fn pair(&self, row: &Row<'_>, slower: &[usize]) -> Option<(AgreeingHosts, AgreeingHosts)> {
        if let Some(golden) = self.golden {
            let is = |camp: &&AgreeingHosts| camp.hosts.contains(&golden);
            let to = row.camps.iter().find(is)?;
            return Some((row.camps.iter().find(|camp| !is(camp))?.clone(), to.clone()));
        }
        let share = |camp: &AgreeingHosts, of: &dyn Fn(usize) -> bool| {
            camp.hosts.iter().filter(|&&host| of(host)).count()
        };
        let is_slow = |host: usize| self.slow[host] == Some(true);
        let is_slower = |host: usize| slower.contains(&host);
        let score = |camp: &AgreeingHosts| (share(camp, &is_slow), share(camp, &is_slower));
        let from = row.camps.iter().enumerate().rev().max_by(|(i, a), (j, b)| {
            let fewest = b.hosts.len().cmp(&a.hosts.len()).then(i.cmp(j));
            score(a).cmp(&score(b)).then(fewest)
        })?;
        let others = row.camps.iter().enumerate().filter(|(at, _)| *at != from.0);
        let fast = |camp: &AgreeingHosts| {
            let healthy = share(camp, &|host| self.slow[host] == Some(false));
            (healthy, std::cmp::Reverse(share(camp, &is_slower)), camp.hosts.len())
        };
        let to = others.rev().max_by(|(_, a), (_, b)| fast(a).cmp(&fast(b)))?;
        Some((from.1.clone(), to.1.clone()))
    }
}

/// The group of a difference where the knowledge table has none: settings of frequencies and of idle states depend on
/// each other, any other fact is independent.
fn default_group(area: Area, key: &str) -> String {
    match area {
        Area::Frequency | Area::Idle => area.name().to_owned(),
        _ => key.to_owned(),
    }
}

/// How slow a value makes a host: larger is slower; `None` if that is not known.
fn slowness(value: &Value, slower: SlowerSide) -> Option<i128> {
    let number = || -> Option<i128> {
        match value {
            // The slowest CPU decides.
            Value::Each(parts) => {
                let numbers: Option<Vec<i128>> =
                    parts.iter().map(|part| amount(&part.value)).collect();
                let numbers = numbers?;
                if slower == SlowerSide::Lower {
                    numbers.into_iter().min()
                } else {
                    numbers.into_iter().max()
                }
            }
            value => amount(value),
        }
    };
    match slower {
        SlowerSide::Unknown => None,
        SlowerSide::Higher => number(),
        SlowerSide::Lower => number().map(i128::saturating_neg),
        SlowerSide::Present => Some(i128::from(*value != Value::Absent)),
        SlowerSide::Text(texts) => {
            let text = value_text::plain(value)?;
            let is = |pattern: &&str| knowledge::fits(pattern, &text);
            Some(i128::from(texts.iter().any(is)))
        }
    }
}

fn amount(value: &Value) -> Option<i128> {
    match value {
        Value::Integer(integer) => Some(integer.amount),
        Value::Boolean(on) => Some((*on).into()),
        Value::Text(text) => text.trim().parse().ok(),
        _ => None,
    }
}
