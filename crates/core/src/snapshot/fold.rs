// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Groups the values of CPUs, nodes or disks, so that instances with the same value are written once.

use super::{Part, Value};
use crate::procfs::cpu_list;
use std::collections::BTreeMap;

/// An instance that the `*` in a key stands for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Instance {
    /// A CPU or node.
    Number(u32),
    /// A disk or network card.
    Name(String),
}

/// Groups the values of instances. Instances with the same value become one part, in which consecutive numbers become a
/// range. Parts are in the order of their first instance. If an instance is given twice, its last value counts. Without
/// any instance the result is [`Value::Absent`].
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

/// Instances as text: ranges of numbers, then names.
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
