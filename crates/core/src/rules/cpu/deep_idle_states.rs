// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU004: idle CPUs enter states so deep that waking them takes long.

use crate::finding::{Area, Confirm, Cost, Evidence, Finding, Fix, Question, Severity, Unit};
use crate::host_diff::document::Host;
use crate::host_diff::{Drivers, knowledge};
use crate::rules::hosts::{Hosts, least, most, read, victim};
use crate::rules::{Check, Limit, Rule, Status, Verdict};
use crate::snapshot::{Snapshot, Value};

const DEEP: Limit = Limit {
    name: "deep_from",
    value: 50.0,
    unit: "us to wake up is the exit latency from which on a state is deep",
    why: "more than a switch between threads and a request to a fast disk; states that only halt take 1 to 2 us",
};
const TIMES: Limit = Limit {
    name: "deeper_by",
    value: 2.0,
    unit: "times the exit latency of the shallowest other host is what counts as deeper",
    why: "tables of drivers and firmware for the same processor differ by less",
};

pub(in crate::rules) static RULE: Rule = Rule {
    code: "CPU004",
    area: Area::Cpu,
    question: Question::CpuSpeed,
    name: "deep-idle-states",
    summary: "idle CPUs may sleep so deep that waking them takes tens of microseconds and more",
    any_of: &[],
    helps: &[],
    limits: &[&[DEEP, TIMES]],
    status: Status::Preview("0.1"),
    doc: include_str!("deep_idle_states.md"),
    file: file!(),
    check: Check::Hosts(check),
};

const STATES: &str = "/sys/devices/system/cpu/cpu*/cpuidle/state";
/// Parameters, and the only driver that honours each.
const PARAMETERS: [(&str, &str); 4] = [
    ("/proc/cmdline#intel_idle.max_cstate", "intel_idle"),
    ("/sys/module/intel_idle/parameters/max_cstate", "intel_idle"),
    ("/proc/cmdline#processor.max_cstate", "acpi_idle"),
    ("/sys/module/processor/parameters/max_cstate", "acpi_idle"),
];

/// The deepest idle state that is not disabled.
struct DeepestState {
    number: u32,
    name: String,
    exit_us: i128,
    driver: String,
}

fn check(hosts: &Hosts<'_>) -> Verdict {
    let of: Vec<Result<Option<DeepestState>, String>> =
        hosts.snapshots.iter().map(|it| deepest(it)).collect();
    let (mut fired, mut quiet, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    for (at, (host, found)) in hosts.diff.hosts.iter().zip(&of).enumerate() {
        let name = hosts.diff.called(host);
        match found {
            Err(why) => missing.push(format!("`{name}`: {why}")),
            Ok(Some(deepest)) if deepest.exit_us as f64 >= DEEP.value => {
                let others = of.iter().enumerate().filter(|(other, _)| *other != at);
                let shallowest = others
                    .filter_map(|(_, it)| it.as_ref().ok())
                    .map(|it| it.as_ref().map_or(0, |it| it.exit_us))
                    .min();
                fired.push(finding(hosts, at, host, deepest, shallowest));
            }
            Ok(Some(deepest)) => quiet.push(format!(
                "`{name}` sleeps no deeper than `{}`, {} us (driver `{}`)",
                deepest.name.replace('`', "'"),
                deepest.exit_us,
                deepest.driver.replace('`', "'")
            )),
            Ok(None) => quiet.push(format!("`{name}` has no idle state beyond halting")),
        }
    }
    match (fired.is_empty(), quiet.is_empty()) {
        (false, _) => Verdict::Fired(fired),
        (true, false) => Verdict::Quiet { closest: quiet.join("; ") },
        (true, true) => Verdict::NoData { missing },
    }
}

/// The deepest idle state; `None` if there is none, `Err` with the reason if the states are not known.
fn deepest(snapshot: &Snapshot) -> Result<Option<DeepestState>, String> {
    let driver = match Drivers::of(snapshot).idle {
        None => return Err("it is not known which driver is in charge of idle states".into()),
        // Then CPUs just halt; what that means in a virtual machine is up to the hypervisor.
        Some(driver) if driver == "none" => return Ok(None),
        Some(driver) => driver,
    };
    let mut deepest: Option<DeepestState> = None;
    let mut known = false;
    for fact in &snapshot.facts {
        let Some(rest) = fact.key.strip_prefix(STATES) else { continue };
        let Some(number) = rest.strip_suffix("/latency").and_then(|number| number.parse().ok())
        else {
            continue;
        };
        let Some(exit_us) = most(fact) else { continue };
        known = true;
        let part = |part: &str| snapshot.fact(&format!("{STATES}{number}/{part}"));
        // Disabled on all CPUs.
        if part("disable").and_then(least).is_some_and(|off| off > 0) {
            continue;
        }
        if deepest.as_ref().is_none_or(|it| it.exit_us < exit_us) {
            let name = match part("name").and_then(|fact| fact.value.uniform()) {
                Some(Value::Text(name)) => name.clone(),
                _ => format!("state{number}"),
            };
            deepest = Some(DeepestState { number, name, exit_us, driver: driver.clone() });
        }
    }
    match known {
        true => Ok(deepest),
        false => Err(format!("the states of `{driver}` are not in the snapshot")),
    }
}

fn finding(
    hosts: &Hosts<'_>,
    at: usize,
    host: &Host,
    deepest: &DeepestState,
    shallowest: Option<i128>,
) -> Finding {
    let name = hosts.diff.called(host);
    let deeper =
        shallowest.is_some_and(|us| deepest.exit_us as f64 >= TIMES.value * us.max(1) as f64);
    let slow = host.slow == Some(true);
    // Deep states are normal for idle CPUs: by itself, this is only information.
    let severity = match (deeper, slow) {
        (true, true) => Severity::Medium,
        (true, false) => Severity::Low,
        (false, _) => Severity::Info,
    };
    let state = deepest.name.replace('`', "'");
    let driver = deepest.driver.replace('`', "'");
    let mut evidence = vec![read(
        "deepest state",
        deepest.exit_us as f64,
        Unit::Us,
        &format!("{STATES}{}/latency", deepest.number),
        format!("`{state}`, of driver `{driver}`: so long it takes to leave it"),
    )];
    if let Some(us) = shallowest {
        let note = "the same of the shallowest other host; 0 where CPUs only halt".to_owned();
        evidence.push(read("elsewhere", us as f64, Unit::Us, "deburr snapshot", note));
    }
    if let Some(snapshot) = hosts.snapshots.get(at) {
        evidence.extend(parameters(snapshot, &driver));
    }
    let disable = format!("echo 1 | sudo tee {STATES}{}/disable", deepest.number);
    Finding {
        title: format!(
            "idle CPUs of `{name}` may sleep in `{state}`, which takes {} us to leave (driver `{driver}`)",
            deepest.exit_us
        ),
        victim: victim(&name),
        cost: Cost::default(),
        evidence,
        fix: vec![
            Fix {
                action: format!("try without `{state}`; writing 0 undoes it"),
                command: Some(disable),
                risk: Some("idle CPUs use more power; a package may lose its highest turbo".into()), expect: None,
            },
            Fix {
                action: "a program that must be fast holds `/dev/cpu_dma_latency` open with the latency that it bears".into(),
                command: None,
                risk: Some("it holds for the whole host while the file is open".into()), expect: None,
            },
        ],
        confirm: Some(Confirm {
            command: "cpupower idle-info".into(),
            expect: Some("the state is used; without it, wake-ups take less".into()),
        }),
        prove: Some("sudo deburr prove --set cpu:dma_latency_us=0 --measure wait:p50 -p PID".into()),
        ..RULE.finding(severity, if deeper && slow { 0.6 } else { 0.5 })
    }
}

/// Evidence lines: the parameters that are set, and whether the driver in charge honours them.
fn parameters(snapshot: &Snapshot, driver: &str) -> Vec<Evidence> {
    let lines = PARAMETERS.iter().filter_map(|(key, listens)| {
        let fact = snapshot.facts.iter().find(|fact| knowledge::fits(key, &fact.key))?;
        let value = match fact.value.uniform()? {
            Value::Integer(integer) => integer.amount.to_string(),
            Value::Text(text) => text.replace('`', "'"),
            _ => return None,
        };
        let note = match *listens == driver {
            true => format!("set to {value}"),
            false => {
                format!("set to {value}: says nothing here, the driver in charge is `{driver}`")
            }
        };
        Some(read("parameter", 0.0, Unit::Text, key, note))
    });
    lines.collect()
}
