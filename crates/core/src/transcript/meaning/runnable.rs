// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vmstat`: are more tasks runnable than there are CPUs, and is time idle meanwhile?

use super::Case;
use crate::text::Unit;
use crate::text::units;
use crate::transcript::document::{Statement, Weight};
use crate::transcript::engine::Section;
use crate::transcript::layouts::vmstat::{Row, Vmstat};

/// Percent of the CPU time that must be idle for a row in which the CPUs were not short of time on average.
const IDLE: f64 = 10.0;
/// Fewer rows with too many tasks may be chance.
const MIN_ROWS: usize = 3;
/// Share of the rows.
const MIN_SHARE: f64 = 0.2;

fn idle(row: &Row) -> f64 {
    row.idle + row.iowait
}

pub(super) fn statement(case: &Case<'_>, section: &Section, of: &Vmstat) -> Option<Statement> {
    let rows = of.rows.as_slice();
    let most = rows.iter().map(|row| row.runnable).max()?;
    let source = section.source_of((rows[0].line, rows[rows.len() - 1].line));
    let n = units::counted(rows.len() as u64, "row", "rows");
    let Some((cpus, cpus_from)) = case.cpus() else {
        let title = format!(
            "up to {most} tasks were runnable at once in {n}: too many, or not, by the number of CPUs"
        );
        return Some(
            Statement::new("runnable-tasks", Weight::Open, title)
                .number("most runnable", f64::from(most), Unit::Count, &source)
                .cannot("whether that is more than there are CPUs: the text does not say how many there are")
                .settled_by("deburr read --cpus N ..."),
        );
    };
    let over: Vec<&Row> = rows.iter().filter(|row| row.runnable > cpus).collect();
    let calm: Vec<&Row> = over.iter().copied().filter(|row| idle(row) >= IDLE).collect();
    let enough = |some: &[&Row]| {
        some.len() >= MIN_ROWS && some.len() as f64 >= MIN_SHARE * rows.len() as f64
    };
    let of_cpus = units::counted(cpus.into(), "CPU", "CPUs");
    let numbers = |statement: Statement| {
        let mean = rows.iter().map(idle).sum::<f64>() / rows.len() as f64;
        let stolen: Vec<f64> = rows.iter().filter_map(|row| row.steal).collect();
        let statement = statement
            .number("rows with more tasks than CPUs", over.len() as f64, Unit::Count, &source)
            .note(format!("of {}; CPUs: {cpus}, from {cpus_from}", rows.len()))
            .number("most runnable", f64::from(most), Unit::Count, &source)
            .note("running ones included; counted at the moment of the report")
            .number("idle", mean / 100.0, Unit::Ratio, &source)
            .note("of the time of all CPUs, waiting for IO included; percent without decimals");
        match stolen.iter().sum::<f64>() {
            steal if steal > 0.0 => statement.number(
                "stolen by the hypervisor",
                steal / stolen.len() as f64 / 100.0,
                Unit::Ratio,
                &source,
            ),
            _ => statement,
        }
    };
    let number_of = |some: &[&Row]| format!("{} of {n}", some.len());
    let statement = if enough(&calm) {
        let range = |pick: fn(f64, f64) -> f64, from: f64| {
            calm.iter().map(|row| idle(row)).fold(from, pick)
        };
        let title = format!(
            "load comes in bursts: more tasks are runnable than the {of_cpus} in {}, although {:.0} to {:.0} % of the CPU \
             time is idle",
            number_of(&calm),
            range(f64::min, 100.0),
            range(f64::max, 0.0)
        );
        numbers(Statement::new("runnable-bursts", Weight::Found, title))
            .cannot("which tasks wait, for how long, and behind which")
            .cannot("whether the tasks may run on all CPUs: some that are bound to a few CPUs look the same")
            .settled_by("deburr -d 30")
    } else if enough(&over) {
        let title = format!(
            "the CPUs are short of time throughout: more tasks are runnable than the {of_cpus} in {}, and hardly any time \
             is idle",
            number_of(&over)
        );
        numbers(Statement::new("cpus-full", Weight::Found, title))
            .cannot("which tasks wait, for how long, and behind which")
            .settled_by("deburr -d 30")
    } else {
        let title = match over.len() {
            0 => format!("never more tasks were runnable than the {of_cpus}, in {n}"),
            _ => {
                format!("more tasks were runnable than the {of_cpus} in {} only", number_of(&over))
            }
        };
        let weight = if rows.len() >= MIN_ROWS { Weight::RuledOut } else { Weight::Open };
        numbers(Statement::new("runnable-tasks", weight, title)).cannot(
            "what happened between the reports: the number of runnable tasks is of one moment",
        )
    };
    Some(statement)
}
