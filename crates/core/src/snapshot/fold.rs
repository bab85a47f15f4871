// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One value for each CPU, node or disk, as few parts.

use super::{Part, Value};
use crate::procfs::cpu_list;
use std::collections::BTreeMap;

/// What a `*` in a key stands for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Instance {
    /// A CPU, a node.
    Number(u32),
    /// A disk, a network card.
    Name(String),
}

/// Folds values of instances: those that have the same value become one part, numbers in a row a range. Parts come in
/// the order of their first instance. Of an instance that is given twice the last value counts; no instances are
/// [`Value::Absent`].
#[must_use]
pub fn fold(values: impl IntoIterator<Item = (Instance, Value)>) -> Value {
    let by_instance: BTreeMap<Instance, Value> = values.into_iter().collect();
    let mut by_value: BTreeMap<Value, Vec<Instance>> = BTreeMap::new();
    for (instance, value) in by_instance {
        by_value.entry(value).or_default().push(instance);
    }
    let mut groups: Vec<(Vec<Instance>, Value)> =
        by_value.into_iter().map(|(value, of)| (of, value)).collect();
    groups.sort();
    if groups.is_empty() {
        return Value::Absent;
    }
    Value::Each(groups.into_iter().map(|(of, value)| Part { of: shown(of), value }).collect())
}

/// Ranges of numbers, then names.
fn shown(instances: Vec<Instance>) -> Vec<String> {
    let (mut numbers, mut names) = (Vec::new(), Vec::new());
    for instance in instances {
        match instance {
            Instance::Number(number) => numbers.push(number),
            Instance::Name(name) => names.push(name),
        }
    }
    let ranges = cpu_list::format(&numbers);
    ranges.split(',').filter(|range| !range.is_empty()).map(str::to_owned).chain(names).collect()
}
