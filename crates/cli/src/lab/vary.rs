// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A scenario with other numbers than its file has: findings must not depend on particular numbers. The table
//! `[vary]` of the file gives the range of each number that may vary.

use super::scenario::Scenario;
use anyhow::{Result, bail, ensure};
use std::collections::BTreeMap;
use toml::{Table, Value};

/// The numbers of one run by their paths. `fault.0.shares` is the first fault's.
pub(crate) type RunNumbers = BTreeMap<String, i64>;

/// The scenario with numbers that depend only on its name, their paths, and `seed`.
pub(crate) fn varied(text: &str, seed: u64) -> Result<(Scenario, RunNumbers)> {
    with(text, |name, [least, most]| {
        let mut random = seed;
        for byte in name.bytes() {
            random = mixed(random ^ u64::from(byte));
        }
        between(least, most, random)
    })
}

/// The scenario with the numbers that `choose` picks from their ranges.
fn with(text: &str, choose: impl Fn(&str, [i64; 2]) -> i64) -> Result<(Scenario, RunNumbers)> {
    let Scenario { name: scenario, vary, .. } = Scenario::parse(text)?;
    let mut table: Table = text.parse()?;
    let mut numbers = RunNumbers::new();
    for (path, [least, most]) in vary {
        ensure!(0 < least && least <= most, "`vary.{path}`: {least} to {most} is no range");
        let number = choose(&format!("{scenario} {path}"), [least, most]);
        *place(&mut table, &path)? = Value::Integer(number);
        numbers.insert(path, number);
    }
    Ok((Scenario::of_table(table)?, numbers))
}

/// The number at a path of a table.
fn place<'t>(table: &'t mut Table, path: &str) -> Result<&'t mut Value> {
    let mut parts = path.split('.');
    let mut value = table.get_mut(parts.next().unwrap_or_default());
    for part in parts {
        value = match (value, part.parse::<usize>()) {
            (Some(Value::Array(list)), Ok(index)) => list.get_mut(index),
            (Some(Value::Table(inner)), _) => inner.get_mut(part),
            _ => None,
        };
    }
    match value {
        Some(value @ Value::Integer(_)) => Ok(value),
        _ => bail!("`vary.{path}`: the scenario has no such number"),
    }
}

/// A number in `least..=most`, log-uniformly distributed: between 1 and 100, as many are below 10 as above.
fn between(least: i64, most: i64, random: u64) -> i64 {
    let part = (random >> 11) as f64 / (1u64 << 53) as f64;
    let number = least as f64 * (most as f64 / least as f64).powf(part);
    (number.round() as i64).clamp(least, most)
}

/// The next pseudo-random number (splitmix64).
fn mixed(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::super::FILES;
    use super::*;

    const TEXT: &str = r#"
name = "example"
summary = "s"
explains = "e"
needs = []
seconds = 5
expect_first = "SCH001"

[vary]
"victim.work_us" = [100, 9000]
"fault.0.per_cpu" = [1, 64]

[victim]
cgroup = "victim"
threads = 1
work_us = 1000
period_us = 10000

[[fault]]
kind = "spinners"
comm = "spinner"
cgroup = "neighbour"
per_cpu = 2
"#;

    #[test]
    fn a_seed_gives_the_same_numbers_and_another_one_others() {
        let (scenario, numbers) = varied(TEXT, 7).unwrap();
        assert_eq!(numbers, varied(TEXT, 7).unwrap().1);
        assert_ne!(numbers, varied(TEXT, 8).unwrap().1);
        assert_eq!(i64::try_from(scenario.victim.work_us).unwrap(), numbers["victim.work_us"]);
        let work_us: Vec<_> =
            (0..200).map(|seed| varied(TEXT, seed).unwrap().1["victim.work_us"]).collect();
        assert!(work_us.iter().all(|us| (100..=9000).contains(us)));
        // Half of them are on each side of the geometric mean, 949.
        let low = work_us.iter().filter(|&&us| us < 949).count();
        assert!((70..130).contains(&low), "{low} of 200");
    }

    #[test]
    fn without_a_seed_the_file_says_the_numbers() {
        assert_eq!(Scenario::parse(TEXT).unwrap().victim.work_us, 1000);
    }

    #[test]
    fn ranges_that_cannot_work_are_refused_by_name() {
        for (from, to, named) in [
            ("victim.work_us", "victim.works", "victim.works"),
            ("fault.0.per_cpu", "fault.1.per_cpu", "fault.1.per_cpu"),
            ("victim.work_us", "victim.cgroup", "victim.cgroup"),
            ("[100, 9000]", "[9000, 100]", "victim.work_us"),
            ("[100, 9000]", "[0, 100]", "victim.work_us"),
            ("[100, 9000]", "100", "victim.work_us"),
        ] {
            let text = TEXT.replacen(from, to, 1);
            let error = format!("{:#}", varied(&text, 1).unwrap_err());
            assert!(error.contains(named), "{to}: {error}");
        }
    }

    #[test]
    fn each_scenario_can_be_run_at_both_ends_of_its_ranges() {
        for (stem, text) in FILES {
            with(text, |_, [least, _]| least).unwrap_or_else(|e| panic!("{stem}: {e:#}"));
            with(text, |_, [_, most]| most).unwrap_or_else(|e| panic!("{stem}: {e:#}"));
            let varies = !Scenario::parse(text).unwrap().vary.is_empty();
            assert!(varies, "{stem} says nothing of `vary`");
        }
    }
}
