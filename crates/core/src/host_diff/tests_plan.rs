// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measurements, and the explanations and plans that follow from them.

use super::*;
use crate::snapshot::Value;
use crate::syscalls::Profile;
use crate::testkit::snapshot::host;
use proptest::prelude::*;
use std::collections::BTreeSet;

const GOVERNOR: &str = "/sys/devices/system/cpu/cpufreq/policy*/scaling_governor";
const SCHEDULER: &str = "/sys/block/*/queue/scheduler";

fn of(snapshots: &[Snapshot], measured: &[Measured]) -> HostDiff {
    let slow = slow(measured, snapshots.len());
    let given: Vec<HostInput<'_>> = snapshots
        .iter()
        .zip(slow)
        .map(|(snapshot, slow)| HostInput { snapshot, label: "", slow, golden: false })
        .collect();
    crate::rules::diff(&given, measured, "0.1.0")
}

fn two() -> [Snapshot; 2] {
    let with = |governor: &str, scheduler: &str| {
        host("h").with(GOVERNOR, Value::text(governor)).with(SCHEDULER, Value::text(scheduler))
    };
    [with("performance", "none"), with("powersave", "bfq")]
}

/// Captured figures of `time lscpu`: see `fixtures/README.md`.
#[test]
fn the_incident_is_explained_by_time_in_the_kernel() {
    let measured = [
        Measured::time(0, 0.106, Some([0.010, 0.096])),
        Measured::time(1, 5.873, Some([0.046, 5.799])),
    ];
    let diff = of(&drift(), &measured);
    let explanation = diff.measured.as_ref().unwrap();
    assert_eq!((&*explanation.slow, &*explanation.fast), ("B", "A"));
    assert_eq!(explanation.parts[0].name, "CPU time in the kernel");
    assert!(explanation.parts[0].share > 0.98);
    assert_eq!(diff.hosts[1].slow, Some(true));
    let plan = diff.plan.as_ref().unwrap();
    let tested: BTreeSet<&str> =
        plan.steps.iter().flat_map(|step| &step.groups).map(|group| &*group.name).collect();
    // What the engineers finally tried by hand: the module, and idle states.
    for group in ["frequency", "idle", "thermal"] {
        assert!(tested.contains(group), "{tested:?}");
    }
    let unload = plan.steps.iter().flat_map(|step| &step.groups).flat_map(|group| &group.changes);
    let commands: Vec<&str> = unload.map(|it| &*it.change.text).collect();
    assert!(commands.contains(&"sudo modprobe -r -- acpi_cpufreq"), "{commands:?}");
}

#[test]
fn what_costs_other_time_is_no_reason() {
    for (user, waiting, reason) in [(9.0, 1.0, GOVERNOR), (1.0, 9.0, SCHEDULER)] {
        let measured = [
            Measured::time(0, 2.0, Some([1.0, 0.0])),
            Measured::time(1, user + waiting, Some([user, 0.0])),
        ];
        let diff = of(&two(), &measured);
        assert_eq!(diff.differences[0].key, reason);
        assert!(!diff.differences[0].cannot_explain() && diff.differences[1].cannot_explain());
        let keys: Vec<&str> = diff
            .plan
            .iter()
            .flat_map(|plan| &plan.steps)
            .flat_map(|step| &step.groups)
            .flat_map(|group| &group.changes)
            .map(|it| &*it.key)
            .collect();
        assert_eq!(keys, [reason]);
    }
}

#[test]
fn what_slows_the_fast_host_is_no_reason() {
    let measured = [Measured::time(0, 9.0, None), Measured::time(1, 1.0, None)];
    let diff = of(&two(), &measured);
    let governor = diff.differences.iter().find(|it| it.key == GOVERNOR).unwrap();
    // `powersave` is set on B, which is fast.
    assert_eq!((governor.explains, &*governor.slows), (Some(0.0), &["B".to_owned()][..]));
}

#[test]
fn times_that_hardly_differ_explain_nothing() {
    let measured = [Measured::time(0, 1.0, None), Measured::time(1, 1.05, None)];
    let diff = of(&two(), &measured);
    assert!(diff.measured.unwrap().summary.contains("nothing to explain"));
    assert!(diff.plan.is_none() && diff.differences.iter().all(|it| it.explains.is_none()));
}

#[test]
fn of_many_hosts_those_near_the_slowest_are_slow() {
    let measured: Vec<Measured> = [1.0, 8.0, 1.5, 10.0]
        .into_iter()
        .enumerate()
        .map(|(host, wall)| Measured::time(host, wall, None))
        .collect();
    assert_eq!(slow(&measured, 5), [Some(false), Some(true), Some(false), Some(true), None]);
}

/// Two hosts that differ in this many equally likely settings.
fn many(settings: u64) -> HostDiff {
    // Settings that a command can change.
    let numbers = crate::snapshot::whitelist::entries().iter().filter(|entry| {
        let is_known = || knowledge::find(entry.path).is_some_and(|known| known.change.is_none());
        entry.path.starts_with("/proc/sys/")
            && !entry.path.contains("{}")
            && entry.part.is_none()
            && is_known()
    });
    let keys: Vec<&str> = numbers.map(|entry| entry.path).take(settings as usize).collect();
    assert_eq!(keys.len() as u64, settings);
    let with =
        |value: u64| keys.iter().fold(host("h"), |it, key| it.with(key, Value::integer(value)));
    let given = [with(1), with(2)];
    let given: Vec<HostInput<'_>> = given
        .iter()
        .zip([false, true])
        .map(|(snapshot, slow)| HostInput { snapshot, label: "", slow: Some(slow), golden: false })
        .collect();
    // Make the settings independent: in the table they form one group.
    let mut diff = crate::rules::diff(&given, &[], "0.1.0");
    for it in &mut diff.differences {
        it.group.clone_from(&it.key);
        it.weight = 60;
    }
    diff.plan = test_plan::plan(&diff);
    diff
}

#[test]
fn independent_changes_are_halved() {
    let plan = many(8).plan.unwrap();
    assert_eq!(plan.steps[0].groups.len(), 4, "{plan:#?}");
    // Three tests if the reason is one of them, at most one more if it is none.
    assert!(plan.expected_cost < 3.5, "{}", plan.expected_cost);
    assert!(plan.one_by_one_cost > 4.5, "{}", plan.one_by_one_cost);
    assert_eq!(many(20).plan.unwrap().left_out.len(), 8);
}

/// Collects the groups found at the ends of all paths; returns how many paths end with none of them.
fn walk(plan: &Plan, next: &AfterTest, seen: &mut Vec<String>, depth: usize) -> usize {
    assert!(depth <= plan.steps.len());
    match next {
        AfterTest::Found(name) => {
            seen.push(name.clone());
            0
        }
        AfterTest::NoneOfThem => 1,
        AfterTest::Step(number) => {
            let step = &plan.steps[*number as usize - 1];
            walk(plan, &step.if_faster, seen, depth + 1) + walk(plan, &step.if_not, seen, depth + 1)
        }
    }
}

proptest! {
    #[test]
    fn every_group_is_found_on_one_way_and_it_is_never_dearer_than_one_by_one(
        facts in prop::collection::btree_set(0usize..12, 1..9),
    ) {
        let keys = [
            "/proc/cmdline#processor.max_cstate", "/proc/cmdline#foo", "/proc/modules#thermal", "/proc/sys/vm/swappiness",
            "/proc/sys/vm/dirty_ratio", GOVERNOR, SCHEDULER, "/sys/class/dmi/id/bios_version", "/proc/sys/kernel/osrelease",
            "/sys/kernel/mm/ksm/run", "/proc/sys/net/ipv4/tcp_congestion_control", "/sys/devices/system/cpu/smt/control",
        ];
        let with = |value: &str| facts.iter().fold(host("h"), |it, fact| it.with(keys[*fact], Value::text(value)));
        let diff = of(&[with("a"), with("b")], &[Measured::time(0, 1.0, None), Measured::time(1, 9.0, None)]);
        let Some(plan) = diff.plan else { return Ok(()) };
        let mut found = Vec::new();
        prop_assert_eq!(walk(&plan, &AfterTest::Step(1), &mut found, 0), 1);
        let groups: BTreeSet<String> = plan.steps.iter().flat_map(|step| &step.groups).map(|group| group.name.clone()).collect();
        prop_assert_eq!(found.len(), groups.len());
        prop_assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), groups);
        prop_assert!(plan.expected_cost <= plan.one_by_one_cost + 1e-9, "{} {}", plan.expected_cost, plan.one_by_one_cost);
    }
}

/// Profiles of one command on two hosts: see `fixtures/README.md`.
#[test]
fn a_file_that_is_slow_there_speaks_for_what_it_belongs_to() {
    let profile = |host: usize, document: &str| {
        Measured::profile(host, &Profile::parse(document).unwrap()).unwrap()
    };
    let measured = [
        profile(0, include_str!("../../../../fixtures/syscalls/good.json")),
        profile(1, include_str!("../../../../fixtures/syscalls/bad.json")),
    ];
    let diff = of(&drift(), &measured);
    let first = &diff.differences[0];
    assert!(!first.supported_by.is_empty(), "{first:#?}");
    assert_eq!(first.group, "frequency");
    let others = diff.differences.iter().filter(|it| it.group != "frequency");
    assert_eq!(others.filter(|it| !it.supported_by.is_empty()).count(), 0);
}

/// Reading a sensor runs code in the firmware's tables: a differing table comes before a differing module.
#[test]
fn a_slow_sensor_speaks_for_the_firmware() {
    let table = "/sys/firmware/acpi/tables/SSDT";
    let with = |hash: &str, module: Value| {
        host("h").with(table, Value::text(hash)).with("/proc/modules#acpi_cpufreq", module)
    };
    let profile = |host: usize, document: &str| {
        let document =
            document.replace("cpu/cpu0/cpufreq/scaling_cur_freq", "thermal/thermal_zone0/temp");
        Measured::profile(host, &Profile::parse(&document).unwrap()).unwrap()
    };
    let measured = [
        profile(0, include_str!("../../../../fixtures/syscalls/good.json")),
        profile(1, include_str!("../../../../fixtures/syscalls/bad.json")),
    ];
    let diff = of(&[with("a", Value::Absent), with("b", Value::integer(1))], &measured);
    assert_eq!(diff.differences[0].key, table);
    assert!(diff.differences[0].supported_by[0].contains("thermal_zone0/temp"));
}
