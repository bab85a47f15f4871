// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `mpstat`, `pidstat`, `sar`: does the hypervisor take time, is one CPU full while others idle, and which tasks wait?

use super::{Case, device};
use crate::text::Unit;
use crate::text::units::{self, share};
use crate::text::{shell_quote, ticked};
use crate::transcript::document::{Statement, Weight};
use crate::transcript::engine::Section;
use crate::transcript::layouts::sysstat::{CpuRow, Sysstat, TaskRow};
use std::collections::BTreeMap;

/// Share of the CPU time that the hypervisor may take without anybody noticing.
const STEAL: f64 = 0.02;
/// Percent of the time from which a CPU has no room; and below which all together have a lot.
const FULL: f64 = 90.0;
const ROOM: f64 = 60.0;
/// Fewer reports may be chance.
const MIN_REPORTS: usize = 3;
/// Share of the time that a task waits for a CPU from which that is told.
const WAITS: f64 = 0.05;
/// Tasks and CPUs that are told one by one.
const MAX_ROWS: usize = 6;

pub(super) fn statements(case: &Case<'_>, section: &Section, of: &Sysstat) -> Vec<Statement> {
    let all =
        [steal(section, of), one_full(section, of), waits(section, of), queue(case, section, of)];
    let disks = of.disks.iter().flat_map(|disks| device::statements(case, section, disks));
    all.into_iter().flatten().chain(disks).collect()
}

fn source<'r>(section: &Section, lines: impl Iterator<Item = u64> + Clone + 'r) -> String {
    section.source_of((lines.clone().min().unwrap_or(0), lines.max().unwrap_or(0)))
}

/// The rows of all CPUs together, or those of each CPU.
fn together(of: &Sysstat) -> Vec<&CpuRow> {
    let all: Vec<&CpuRow> = of.cpus.iter().filter(|row| row.cpu.is_none()).collect();
    if all.is_empty() { of.cpus.iter().collect() } else { all }
}

fn mean(rows: &[&CpuRow], value: fn(&CpuRow) -> f64) -> f64 {
    rows.iter().map(|row| value(row)).sum::<f64>() / rows.len().max(1) as f64
}

fn steal(section: &Section, of: &Sysstat) -> Option<Statement> {
    let rows = together(of);
    if rows.is_empty() {
        return None;
    }
    let (stolen, idle) =
        (mean(&rows, |row| row.steal) / 100.0, mean(&rows, |row| row.idle) / 100.0);
    let source = source(section, rows.iter().map(|row| row.line));
    let most = of.cpus.iter().max_by(|a, b| a.steal.total_cmp(&b.steal))?;
    let n = units::counted(of.times_s.len() as u64, "report", "reports");
    let (weight, title) = match stolen >= STEAL && rows.len() >= MIN_REPORTS {
        true => (
            Weight::Found,
            format!(
                "the hypervisor took {} of the CPU time while there was work, in {n}",
                share(stolen)
            ),
        ),
        false => (
            Weight::RuledOut,
            format!(
                "the hypervisor took {} of the CPU time, by its own account, in {n}",
                share(stolen)
            ),
        ),
    };
    Some(
        Statement::new("steal", weight, title)
            .number("stolen", stolen, Unit::Ratio, &source)
            .number("idle", idle, Unit::Ratio, &source)
            .number(
                "most stolen in a row",
                most.steal / 100.0,
                Unit::Ratio,
                &section.source_of((most.line, most.line)),
            )
            .note(most.cpu.map_or("of all CPUs".to_owned(), |cpu| format!("of CPU {cpu}")))
            .cannot("what the hypervisor does not count: two CPUs that are threads of one core")
            .settled_by("deburr cpu-check"),
    )
}

fn one_full(section: &Section, of: &Sysstat) -> Option<Statement> {
    let mut by: BTreeMap<u32, Vec<&CpuRow>> = BTreeMap::new();
    for row in &of.cpus {
        if let Some(cpu) = row.cpu {
            by.entry(cpu).or_default().push(row);
        }
    }
    if by.len() < 2 {
        return None;
    }
    let busy = |rows: &[&CpuRow]| 100.0 - mean(rows, |row| row.idle + row.iowait);
    let all = by.values().map(|rows| busy(rows)).sum::<f64>() / by.len() as f64;
    let full: Vec<(u32, &Vec<&CpuRow>)> = by
        .iter()
        .filter(|(_, rows)| {
            rows.len() >= MIN_REPORTS
                && rows.iter().all(|row| row.idle + row.iowait <= 100.0 - FULL)
        })
        .map(|(cpu, rows)| (*cpu, rows))
        .collect();
    if full.is_empty() || all >= ROOM {
        return None;
    }
    let names: Vec<String> = full.iter().take(MAX_ROWS).map(|(cpu, _)| cpu.to_string()).collect();
    let what = if full.len() == 1 { "CPU" } else { "CPUs" };
    let title = format!(
        "{what} {} of {} never had a pause, while all together were {} busy",
        names.join(", "),
        by.len(),
        share(all / 100.0)
    );
    let mut statement = Statement::new("one-cpu-full", Weight::Found, title);
    for (cpu, rows) in full.iter().take(MAX_ROWS) {
        let source = source(section, rows.iter().map(|row| row.line));
        let irq = mean(rows, |row| row.irq) / 100.0;
        statement = statement
            .number(&format!("busy, CPU {cpu}"), busy(rows) / 100.0, Unit::Ratio, &source)
            .note(format!("{} of the time in interrupts", share(irq.clamp(0.0, 1.0))));
    }
    Some(
        statement
            .cannot("whether something waited there: one thread that computes all the time looks the same")
            .settled_by("deburr -d 30"),
    )
}

fn waits(section: &Section, of: &Sysstat) -> Option<Statement> {
    let mut by: BTreeMap<(u32, bool, &str), Vec<&TaskRow>> = BTreeMap::new();
    for row in of.tasks.iter().filter(|row| row.waited.is_some()) {
        by.entry((row.pid, row.thread, row.comm.as_str())).or_default().push(row);
    }
    let mean = |rows: &[&TaskRow]| {
        rows.iter().filter_map(|row| row.waited).sum::<f64>() / rows.len() as f64 / 100.0
    };
    let mut all: Vec<_> = by.iter().map(|(who, rows)| (mean(rows), who, rows)).collect();
    all.sort_by(|(a, ..), (b, ..)| b.total_cmp(a));
    let (most, (pid, ..), _) = all.first()?;
    let name = |pid: &u32, comm: &str, thread: &bool| match thread {
        true => format!("{} (thread {pid})", ticked(comm)),
        false => format!("{} (pid {pid})", ticked(comm)),
    };
    let enough = all[0].2.len() >= MIN_REPORTS;
    let who = name(pid, all[0].1.2, &all[0].1.1);
    let (weight, title) = match (*most >= WAITS, enough) {
        (true, true) => {
            (Weight::Found, format!("{who} waits {} of the time for a CPU", units::percent(*most)))
        }
        (true, false) => {
            let rows = units::counted(all[0].2.len() as u64, "row", "rows");
            (
                Weight::Open,
                format!(
                    "{who} waited {} of the time for a CPU, in {rows} only",
                    units::percent(*most)
                ),
            )
        }
        (false, _) => {
            let weight = if enough { Weight::RuledOut } else { Weight::Open };
            (
                weight,
                format!("no task waited more than {} of the time for a CPU", units::percent(*most)),
            )
        }
    };
    let mut statement = Statement::new("task-waits", weight, title);
    for (waited, (pid, thread, comm), rows) in all.iter().take(MAX_ROWS) {
        let used = rows.iter().map(|row| row.used).sum::<f64>() / rows.len() as f64 / 100.0;
        let source = source(section, rows.iter().map(|row| row.line));
        statement = statement
            .number(&name(pid, comm, thread), waited.clamp(0.0, 1.0), Unit::Ratio, &source)
            .note(format!(
                "of the time waited for a CPU, {} of a CPU used; {}",
                units::percent(used),
                units::counted(rows.len() as u64, "row", "rows")
            ));
    }
    if of.tasks.iter().all(|row| !row.thread) {
        statement =
            statement.cannot("what threads other than the main one wait: that takes pidstat -t");
    }
    Some(
        statement
            .cannot("behind which tasks they waited, and whether a CPU quota held them up")
            .settled_by(match all[0].1.1 {
                true => format!("deburr -d 30 --comm {}", shell_quote(all[0].1.2)),
                false => format!("deburr -d 30 -p {pid}"),
            }),
    )
}

fn queue(case: &Case<'_>, section: &Section, of: &Sysstat) -> Option<Statement> {
    let most = of.queues.iter().map(|row| row.runnable).max()?;
    let source = source(section, of.queues.iter().map(|row| row.line));
    let n = units::counted(of.queues.len() as u64, "report", "reports");
    let Some((cpus, from)) = case.cpus() else {
        return Some(
            Statement::new("runnable-tasks", Weight::Open, format!("up to {most} tasks were runnable at once in {n}"))
                .number("most runnable", f64::from(most), Unit::Count, &source)
                .cannot("whether that is more than there are CPUs: the text does not say how many there are")
                .settled_by("deburr read --cpus N ..."),
        );
    };
    let over = of.queues.iter().filter(|row| row.runnable > cpus).count();
    let weight = match over {
        0 if of.queues.len() >= MIN_REPORTS => Weight::RuledOut,
        _ => Weight::Open,
    };
    let title = format!(
        "more tasks were runnable than the {} in {over} of {n}",
        units::counted(cpus.into(), "CPU", "CPUs")
    );
    Some(
        Statement::new("runnable-tasks", weight, title)
            .number("most runnable", f64::from(most), Unit::Count, &source)
            .note(format!("CPUs: {cpus}, from {from}"))
            .cannot("whether CPUs were idle meanwhile: that takes `vmstat` or `sar -u` of the same time")
            .settled_by("deburr -d 30"),
    )
}
