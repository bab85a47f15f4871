// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules about hosts: the inputs that make each fire, stay quiet or lack data, and the output for each
//! (`fixtures/rules/CODE/KIND.txt`).

use super::{diff as differences, kept};
use crate::finding::{Finding, Severity};
use crate::host_diff::document::HostDiff;
use crate::host_diff::{HostInput, Measured};
use crate::render::{TextStyle, host_diff};
use crate::rules::{Check, RULES, diff};
use crate::snapshot::{Class, Instance, Snapshot, Value, fold};
use crate::testkit::snapshot::{host, khz, on_cpus};

const P: &str = "/sys/devices/system/cpu/cpufreq/policy*/";
const C: &str = "/sys/devices/system/cpu/cpu*/cpuidle/state";
const IDLE: &str = "/sys/devices/system/cpu/cpuidle/current_driver";

fn judged(snapshots: &[Snapshot], slow: Option<usize>) -> HostDiff {
    let given: Vec<HostInput<'_>> = snapshots
        .iter()
        .enumerate()
        .map(|(at, snapshot)| HostInput {
            snapshot,
            label: "",
            slow: slow.map(|slow| slow == at),
            golden: false,
        })
        .collect();
    diff(&given, &[], "0.1.0")
}

/// A host with that frequency driver, limit (kHz) and governor; its hardware goes up to 3.5 GHz.
fn frequencies(name: &str, driver: &str, limit: i128, governor: &str) -> Snapshot {
    host(name)
        .with(&format!("{P}scaling_driver"), on_cpus(8, &Value::text(driver)))
        .with(&format!("{P}scaling_governor"), on_cpus(8, &Value::text(governor)))
        .with(&format!("{P}scaling_max_freq"), on_cpus(8, &khz(limit)))
        .with(&format!("{P}scaling_min_freq"), on_cpus(8, &khz(1_200_000)))
        .with_fact(&format!("{P}cpuinfo_max_freq"), Class::Capability, on_cpus(8, &khz(3_500_000)))
}

/// A host with idle states of these exit latencies, in microseconds.
fn sleeping(name: &str, driver: &str, exits_us: &[i64]) -> Snapshot {
    let empty = host(name).with(IDLE, Value::text(driver));
    exits_us.iter().enumerate().fold(empty, |it, (number, us)| {
        let exit = on_cpus(8, &Value::integer(*us));
        it.with_fact(&format!("{C}{number}/latency"), Class::Capability, exit)
            .with(&format!("{C}{number}/name"), Value::text(format!("C{number}")))
            .with(&format!("{C}{number}/disable"), on_cpus(8, &Value::Boolean(false)))
    })
}

/// The comparison of hosts that makes the rule with that code give that answer.
fn scene(code: &str, kind: &str) -> Option<HostDiff> {
    let swappiness = "/proc/sys/vm/swappiness";
    let snapshots = match (code, kind) {
        ("CPU003", "fires") => vec![
            frequencies("good", "intel_pstate", 3_500_000, "powersave"),
            frequencies("bad", "acpi-cpufreq", 2_000_000, "performance"),
        ],
        ("CPU003", "quiet") => vec![
            frequencies("a", "intel_pstate", 3_500_000, "powersave"),
            frequencies("b", "intel_pstate", 3_400_000, "powersave"),
        ],
        ("CPU003", "nodata") => {
            vec![host("a"), host("b").with(&format!("{P}scaling_driver"), Value::Absent)]
        }
        ("CPU004", "fires") => vec![
            sleeping("good", "intel_idle", &[0, 2]),
            sleeping("bad", "acpi_idle", &[0, 2, 133])
                .with("/proc/cmdline#intel_idle.max_cstate", Value::integer(0)),
        ],
        ("CPU004", "quiet") => {
            vec![sleeping("a", "intel_idle", &[0, 2, 10]), sleeping("b", "none", &[])]
        }
        ("CPU004", "nodata") => vec![host("a"), host("b")],
        ("HST001", "fires") => crate::host_diff::drift().to_vec(),
        ("HST001", "quiet") => {
            let with = |value: i64| {
                host("h").with(swappiness, Value::integer(60)).with("/sys/z", Value::integer(value))
            };
            vec![with(1), with(2)]
        }
        ("HST001", "nodata") => {
            let unknown = Value::Unreadable("permission denied".into());
            let known = host("a").with(swappiness, Value::integer(60));
            vec![known, host("b").with(swappiness, unknown)]
        }
        _ => return None,
    };
    Some(judged(&snapshots, None))
}

fn about(diff: &HostDiff, code: &str) -> HostDiff {
    let mut diff = diff.clone();
    diff.findings.retain(|it| it.code == code);
    diff.ruled_out.retain(|it| it.code == code);
    diff.not_checked.retain(|it| it.code == code);
    diff.differences.clear();
    diff.aside.clear();
    diff.not_compared.clear();
    diff
}

fn shown(diff: &HostDiff, code: &str) -> String {
    let style = TextStyle { columns: 100, color: false, verbosity: 2 };
    let text = host_diff(&about(diff, code), style);
    // The first paragraph counts the differences, which are left out here.
    text.split_once("\n\n").map_or_else(String::new, |(_, rest)| rest.to_owned())
}

/// The text of a finding with that code, for its documentation.
pub(super) fn example(code: &str) -> Option<String> {
    Some(shown(&scene(code, "fires")?, code))
}

#[test]
fn hosts_yield_what_is_kept() {
    let mut found = String::new();
    for rule in RULES.iter().filter(|rule| matches!(rule.check, Check::Hosts(_))) {
        let code = rule.code;
        for kind in super::scenes::KINDS {
            let diff = scene(code, kind).unwrap_or_else(|| panic!("{code} has no `{kind}`"));
            let answer = match () {
                () if diff.findings.iter().any(|it| it.code == code) => "fires",
                () if diff.ruled_out.iter().any(|it| it.code == code) => "quiet",
                () if diff.not_checked.iter().any(|it| it.code == code) => "nodata",
                () => "nothing",
            };
            assert_eq!(answer, kind, "{code}");
            let text = shown(&diff, code);
            let path = format!("fixtures/rules/{code}/{kind}.txt");
            found += &differences(&path, &kept(&path, &text), &text);
        }
    }
    assert!(found.is_empty(), "UPDATE=1 cargo test accepts these:\n{found}");
}

fn of<'a>(diff: &'a HostDiff, code: &str) -> Option<&'a Finding> {
    diff.findings.iter().find(|it| it.code == code)
}

#[test]
fn a_cap_costs_what_is_missing() {
    let one = judged(&[frequencies("h", "acpi-cpufreq", 2_100_000, "performance")], None);
    let finding = of(&one, "CPU003").unwrap();
    assert!((finding.cost.share - 0.4).abs() < 1e-9);
    assert_eq!(finding.severity, Severity::High);
    assert!(finding.title.contains("`acpi-cpufreq`"), "{}", finding.title);
}

#[test]
fn a_parameter_of_another_driver_caps_nothing() {
    let no_turbo = "/sys/devices/system/cpu/intel_pstate/no_turbo";
    let with = |driver: &str| {
        let it = frequencies("h", driver, 3_500_000, "performance");
        judged(&[it.with(no_turbo, Value::Boolean(true))], None)
    };
    assert!(of(&with("acpi-cpufreq"), "CPU003").is_none());
    // How much turbo would add is not known here.
    assert_eq!(of(&with("intel_pstate"), "CPU003").unwrap().severity, Severity::Low);
    // With intel_pstate, `powersave` is dynamic; with acpi-cpufreq it is the lowest frequency.
    let powersave = |driver| judged(&[frequencies("h", driver, 3_500_000, "powersave")], None);
    assert!(of(&powersave("intel_pstate"), "CPU003").is_none());
    assert_eq!(of(&powersave("acpi-cpufreq"), "CPU003").unwrap().severity, Severity::High);
}

#[test]
fn one_capped_cpu_is_enough() {
    let limit = |cpu| khz(if cpu == 5 { 800_000 } else { 3_500_000 });
    let limits = (0..8).map(|cpu| (Instance::Number(cpu), limit(cpu)));
    let it = frequencies("h", "acpi-cpufreq", 3_500_000, "performance");
    let it = it.with(&format!("{P}scaling_max_freq"), fold(limits));
    assert!(of(&judged(&[it], None), "CPU003").is_some());
}

#[test]
fn deep_sleep_counts_beside_a_host_that_sleeps_less_deep() {
    let deep = sleeping("deep", "acpi_idle", &[0, 2, 133]);
    let shallow = sleeping("shallow", "intel_idle", &[0, 2]);
    let severity =
        |snapshots: &[Snapshot], slow| of(&judged(snapshots, slow), "CPU004").unwrap().severity;
    assert_eq!(severity(std::slice::from_ref(&deep), None), Severity::Info);
    assert_eq!(severity(&[deep.clone(), deep.clone()], None), Severity::Info);
    assert_eq!(severity(&[deep.clone(), shallow.clone()], None), Severity::Low);
    assert_eq!(severity(&[deep.clone(), shallow.clone()], Some(0)), Severity::Medium);
    assert_eq!(severity(&[deep.clone(), shallow], Some(1)), Severity::Low);
    let off = deep.with(&format!("{C}2/disable"), on_cpus(8, &Value::Boolean(true)));
    assert!(of(&judged(&[off], None), "CPU004").is_none());
}

#[test]
fn drift_names_the_slow_host_and_claims_no_loss_that_was_not_measured() {
    let both = crate::host_diff::drift();
    let finding = |at: usize, measured: &[Measured]| {
        let given: Vec<HostInput<'_>> = both
            .iter()
            .enumerate()
            .map(|(host, snapshot)| HostInput {
                snapshot,
                label: "",
                slow: Some(host == at),
                golden: false,
            })
            .collect();
        of(&diff(&given, measured, "0.1.0"), "HST001").unwrap().clone()
    };
    let it = finding(1, &[]);
    assert!(it.title.starts_with("`db-old-2` differs from `db-old-1`"), "{}", it.title);
    assert!(it.cost.lost_ns_per_s == 0 && it.confidence <= 0.5);
    let it = finding(1, &[Measured::time(0, 0.106, None), Measured::time(1, 5.873, None)]);
    assert!((it.cost.share - 0.98).abs() < 0.01 && it.confidence > 0.7);
    assert!(finding(0, &[]).title.starts_with("`db-old-1`"));
}

#[test]
fn only_a_module_that_a_slow_host_alone_has_is_put_to_the_test() {
    let both = |module: &str, slow: Option<usize>| {
        let key = format!("/proc/modules#{module}");
        let with = host("with").with(&key, Value::integer(28_672));
        let hosts = [host("without").with(&key, Value::Absent), with];
        let input = |(at, snapshot)| HostInput {
            snapshot,
            label: "",
            slow: slow.map(|slow| slow == at),
            golden: false,
        };
        let given: Vec<HostInput<'_>> = hosts.iter().enumerate().map(input).collect();
        of(&diff(&given, &[], "0.1.0"), "HST001").map(|it| it.prove.clone())
    };
    let it = both("acpi_cpufreq", Some(1)).unwrap().unwrap();
    assert_eq!(
        it,
        "sudo deburr prove --allow-module --set module:acpi_cpufreq=unloaded --measure probe:p50 --probe CMD"
    );
    // The slow host lacks it; nobody knows who is slow; no remedy names the module in full, or it is not known at all.
    assert_eq!(both("acpi_cpufreq", Some(0)), Some(None));
    assert_eq!(both("acpi_cpufreq", None), Some(None));
    assert_eq!(both("falcon_lsm", Some(1)), Some(None));
    assert_eq!(both("my_driver", Some(1)), None);
    // Measured instead of stated.
    let drift = crate::host_diff::drift();
    let given: Vec<HostInput<'_>> = drift
        .iter()
        .map(|snapshot| HostInput { snapshot, label: "", slow: None, golden: false })
        .collect();
    let measured = [Measured::time(0, 0.106, None), Measured::time(1, 5.873, None)];
    let prove = of(&diff(&given, &measured, "0.1.0"), "HST001").unwrap().prove.clone();
    assert!(prove.is_some_and(|it| it.contains("module:acpi_cpufreq=unloaded")));
}

#[test]
fn what_all_slow_hosts_have_is_one_finding() {
    let with = |at: u8, slow: bool| {
        let noise = Value::integer(at % 2);
        let planted = Value::integer(u8::from(slow));
        host(&format!("h{at}")).with("/sys/zzz", planted).with("/proc/sys/vm/dirty_ratio", noise)
    };
    let of_each = |n: u8| {
        let snapshots: Vec<Snapshot> = (0..2 * n).map(|at| with(at, at < n)).collect();
        let given: Vec<HostInput<'_>> = snapshots
            .iter()
            .enumerate()
            .map(|(at, snapshot)| HostInput {
                snapshot,
                label: "",
                slow: Some(at < usize::from(n)),
                golden: false,
            })
            .collect();
        let found = diff(&given, &[], "0.1.0").findings;
        assert_eq!(found.len(), 1, "{found:#?}");
        found[0].clone()
    };
    let sure = of_each(8);
    assert!(sure.title.starts_with("`/sys/zzz` separates all slow hosts"), "{}", sure.title);
    assert_eq!((sure.severity, sure.confidence), (Severity::Medium, 0.95));
    let unsure = of_each(2);
    assert!(unsure.title.contains("may be chance") && unsure.confidence < 0.5, "{unsure:#?}");
    assert_eq!(unsure.severity, Severity::Info);
}
