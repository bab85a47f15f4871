// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Facts of a host and captures of its counters: CPUs, frequency limits, pressure, throttling, run-queue delay.

use crate::procfs::schedstat::Schedstat;
use crate::text::Unit;
use crate::text::ticked;
use crate::text::units::{self, duration, share};
use crate::transcript::document::{Statement, Weight};
use crate::transcript::engine::Section;
use crate::transcript::layouts::counters::{Counters, CpuStat, Stall};
use crate::transcript::layouts::host::{Facts, Kind};

/// A policy below this part of what the hardware can do is a cap.
const CAPPED: f64 = 0.95;
/// Percent of the time from which pressure is told.
const PRESSURE: f64 = 5.0;
/// Share of the periods in which a cgroup may be stopped.
const THROTTLED: f64 = 0.01;
/// Share of the time that a thread wants to run.
const DELAYED: f64 = 0.05;
/// Parameters of the kernel that change how CPUs sleep, clock, or are shared.
const PARAMETERS: &[&str] = &[
    "processor.max_cstate",
    "intel_idle.max_cstate",
    "idle",
    "cpuidle.off",
    "cpufreq.off",
    "intel_pstate",
    "amd_pstate",
    "isolcpus",
    "nohz_full",
    "rcu_nocbs",
    "mitigations",
    "nosmt",
    "maxcpus",
    "nr_cpus",
    "transparent_hugepage",
    "skew_tick",
    "clocksource",
    "tsc",
    "cgroup_disable",
    "elevator",
    "preempt",
    "nowatchdog",
    "threadirqs",
];

pub(super) fn facts(section: &Section, of: &Facts) -> Vec<Statement> {
    let statement = match of.kind {
        Kind::Lscpu => topology(section, of),
        Kind::Cpupower => frequency(section, of),
        Kind::Lsmod => modules(section, of),
        Kind::Cmdline => parameters(section, of),
    };
    statement.into_iter().collect()
}

fn text(statement: Statement, section: &Section, of: &Facts, names: &[&str]) -> Statement {
    names.iter().fold(statement, |statement, name| match of.get(name) {
        Some((value, line)) => {
            let source = section.source_of((line, line));
            statement.number(name, 0.0, Unit::Text, &source).note(value.to_owned())
        }
        None => statement,
    })
}

fn topology(section: &Section, of: &Facts) -> Option<Statement> {
    let (cpus, _) = of.get("CPU(s)")?;
    let threads = of.get("Thread(s) per core").map(|(value, _)| value);
    let guest = of.get("Hypervisor vendor").is_some();
    let title = match (threads, guest) {
        (Some("1"), true) => {
            format!("{cpus} CPUs of a virtual machine, each shown as a core of its own")
        }
        (Some(threads), true) => {
            format!("{cpus} CPUs of a virtual machine, {threads} for each core that it shows")
        }
        (Some("1"), false) => format!("{cpus} CPUs, each a core of its own"),
        (Some(threads), false) => format!("{cpus} CPUs, {threads} for each core"),
        (None, _) => format!("{cpus} CPUs"),
    };
    let names = [
        "CPU(s)",
        "Thread(s) per core",
        "Core(s) per socket",
        "Model name",
        "Hypervisor vendor",
        "CPU max MHz",
        "CPU MHz",
    ];
    let statement = text(Statement::new("cpus", Weight::Fact, title), section, of, &names);
    Some(match guest {
        true => statement
            .cannot("which CPUs share a core: hypervisors may hide it")
            .settled_by("deburr cpu-check"),
        false => statement,
    })
}

/// Hertz of `2.00 GHz`.
fn hertz(words: &str) -> Option<f64> {
    let mut words = words.split_whitespace();
    let value = crate::transcript::line::number(words.next()?)?;
    let unit = match words.next()?.trim_end_matches('.') {
        "GHz" => 1e9,
        "MHz" => 1e6,
        "kHz" => 1e3,
        _ => return None,
    };
    Some(value * unit)
}

fn frequency(section: &Section, of: &Facts) -> Option<Statement> {
    let limits = of.get("hardware limits").map(|(value, _)| value);
    let policy = of.get("current policy").map(|(value, _)| value);
    let most = limits.and_then(|limits| hertz(limits.split(" - ").nth(1)?));
    let allowed = policy.and_then(|policy| hertz(policy.split(" and ").nth(1)?));
    let shown = |hz: f64| format!("{:.2} GHz", hz / 1e9);
    let (weight, title) = match (most, allowed) {
        (Some(most), Some(allowed)) if allowed < CAPPED * most => (
            Weight::Found,
            format!(
                "the policy allows {} of the {} that the hardware can do",
                shown(allowed),
                shown(most)
            ),
        ),
        (Some(most), Some(_)) => {
            (Weight::Fact, format!("the policy allows what the hardware can do, {}", shown(most)))
        }
        _ => (Weight::Fact, "a driver for frequencies is loaded".to_owned()),
    };
    let names = [
        "driver",
        "hardware limits",
        "current policy",
        "current CPU frequency",
        "maximum transition latency",
    ];
    let statement = text(Statement::new("frequency", weight, title), section, of, &names);
    Some(
        statement
            .cannot(
                "whether the hardware's own limit is that of its data sheet: firmware may lower it",
            )
            .settled_by("deburr diff GOOD BAD, of snapshots of two hosts"),
    )
}

fn modules(section: &Section, of: &Facts) -> Option<Statement> {
    let drivers = [
        "acpi_cpufreq",
        "pcc_cpufreq",
        "intel_pstate",
        "amd_pstate",
        "powernow_k8",
        "speedstep_lib",
    ];
    let loaded: Vec<&str> = drivers.into_iter().filter(|name| of.get(name).is_some()).collect();
    if loaded.is_empty() {
        return None;
    }
    let names: Vec<String> = loaded.iter().map(|name| ticked(name)).collect();
    let (weight, title) = match loaded.len() {
        1 => (Weight::Fact, format!("the module {} drives frequencies", names[0])),
        _ => (
            Weight::Open,
            format!("{} are loaded, and drive the same frequencies", names.join(" and ")),
        ),
    };
    let statement =
        loaded.iter().fold(Statement::new("modules", weight, title), |statement, name| {
            let (size, line) = of.get(name).unwrap_or(("", 0));
            statement
                .number(name, 0.0, Unit::Text, &section.source_of((line, line)))
                .note(format!("{size} bytes"))
        });
    Some(
        statement
            .cannot("which of them is in use, and what it costs")
            .settled_by("deburr diff GOOD BAD, of snapshots of two hosts"),
    )
}

fn parameters(section: &Section, of: &Facts) -> Option<Statement> {
    let there: Vec<&str> =
        PARAMETERS.iter().copied().filter(|name| of.get(name).is_some()).collect();
    if there.is_empty() {
        return None;
    }
    let title = format!(
        "{} of the kernel that change how CPUs sleep, clock or are shared",
        units::counted(there.len() as u64, "parameter", "parameters")
    );
    let statement =
        text(Statement::new("kernel-parameters", Weight::Fact, title), section, of, &there);
    Some(
        statement
            .cannot("what they do on this hardware")
            .settled_by("deburr diff GOOD BAD, of snapshots of two hosts"),
    )
}

pub(super) fn counters(section: &Section, of: &Counters) -> Option<Statement> {
    match of {
        Counters::Pressure(resource, all) => pressure(section, resource.as_deref(), all),
        Counters::CpuStat(all) => throttling(section, all),
        Counters::Schedstat(all) => delay(section, all),
    }
}

fn pressure(section: &Section, resource: Option<&str>, all: &[Stall]) -> Option<Statement> {
    let worst = all.iter().filter(|it| it.some.is_some()).max_by(|a, b| {
        let of = |it: &Stall| it.some.map_or(0.0, |some| some[0]);
        of(a).total_cmp(&of(b))
    })?;
    let some = worst.some?;
    let what = resource.map_or("an unknown resource".to_owned(), str::to_owned);
    let weight = if some[0] >= PRESSURE { Weight::Found } else { Weight::RuledOut };
    let title = format!(
        "in {:.1} % of 10 s some task waited for {what}{}",
        some[0],
        if all.len() > 1 { ", in the worst capture" } else { "" }
    );
    let source = section.source_of(worst.lines);
    let mut statement = Statement::new("pressure", weight, title);
    for (name, value) in ["some, of 10 s", "some, of 60 s", "some, of 300 s"].into_iter().zip(some)
    {
        statement = statement.number(name, value / 100.0, Unit::Ratio, &source);
    }
    if let Some(full) = worst.full {
        statement = statement.number("all tasks, of 10 s", full[0] / 100.0, Unit::Ratio, &source);
    }
    if resource.is_none() {
        statement = statement.cannot("which resource it is: the text does not name the file");
    }
    Some(
        statement
            .cannot("which tasks waited, and whether it is of the host or of a cgroup")
            .settled_by("deburr -d 30"),
    )
}

fn throttling(section: &Section, all: &[CpuStat]) -> Option<Statement> {
    let (first, last) = (all.first()?, all.last()?);
    // Of one capture all since the cgroup was made; of several what happened between the first and the last.
    let since = |of: fn(&CpuStat) -> Option<u64>| match all.len() {
        1 => of(last),
        _ => of(last)?.checked_sub(of(first)?),
    };
    let periods = since(|it| it.stat.nr_periods)?;
    let throttled = since(|it| it.stat.nr_throttled)?;
    let stopped_ns = since(|it| it.stat.throttled_ns);
    let part = throttled as f64 / periods.max(1) as f64;
    let when =
        if all.len() == 1 { "since it was made" } else { "between the first and the last capture" };
    let weight = match () {
        () if periods == 0 => Weight::RuledOut,
        () if part >= THROTTLED && all.len() > 1 => Weight::Found,
        // What was long ago is not what hurts now.
        () if part >= THROTTLED => Weight::Open,
        () => Weight::RuledOut,
    };
    let title = match periods {
        0 => format!("the cgroup has no quota, or did nothing, {when}"),
        _ => format!(
            "the quota stopped the cgroup in {} of its periods, {when}",
            share(part.min(1.0))
        ),
    };
    let source = section.source_of((first.lines.0, last.lines.1));
    let mut statement = Statement::new("throttled", weight, title)
        .number("periods", periods as f64, Unit::Count, &source)
        .number("periods in which it was stopped", throttled as f64, Unit::Count, &source);
    if let Some(ns) = stopped_ns {
        statement = statement
            .number("stopped", ns as f64, Unit::Ns, &source)
            .note("summed over the run queues of all CPUs: more than the time that passed, if several were stopped");
    }
    if all.len() == 1 {
        statement = statement
            .cannot("when: counters are sums since the cgroup was made; two captures tell")
            .settled_by("deburr -d 30");
    } else {
        statement = statement.settled_by("deburr -d 30");
    }
    Some(statement.cannot("which threads were stopped, and for how long at a time"))
}

fn delay(section: &Section, all: &[(u64, Schedstat)]) -> Option<Statement> {
    let (first, last) = (all.first()?, all.last()?);
    let before = if all.len() == 1 { Schedstat::default() } else { first.1 };
    let ran_ns = last.1.on_cpu_ns.checked_sub(before.on_cpu_ns)?;
    let waited_ns = last.1.delay_ns.checked_sub(before.delay_ns)?;
    let slices = last.1.slices.checked_sub(before.slices)?;
    let part = waited_ns as f64 / (ran_ns.saturating_add(waited_ns)).max(1) as f64;
    let when =
        if all.len() == 1 { "since it began" } else { "between the first and the last capture" };
    let weight = if part < DELAYED {
        Weight::RuledOut
    } else if all.len() == 1 {
        Weight::Open
    } else {
        Weight::Found
    };
    let title = format!(
        "the thread waited for a CPU in {} of the time in which it wanted to run, {when}",
        share(part)
    );
    let source = section.source_of((first.0, last.0));
    Some(
        Statement::new("run-delay", weight, title)
            .number("waited", waited_ns as f64, Unit::Ns, &source)
            .number("ran", ran_ns as f64, Unit::Ns, &source)
            .number("mean wait", waited_ns as f64 / slices.max(1) as f64, Unit::Ns, &source)
            .note(format!("{}; {}", units::counted(slices, "turn", "turns"), duration(waited_ns as f64)))
            .cannot("whether it was queued behind others or stopped by a quota: the file does not tell them apart")
            .settled_by("deburr -d 30 -p PID"),
    )
}
