// SPDX-License-Identifier: Apache-2.0 OR MIT
//! JSON of sysstat: `iostat -o JSON`, `mpstat -o JSON`, `sadf -j`. Turned into the same samples as the text.

use super::iostat::{self, Iostat};
use super::sysstat::{CpuRow, QueueRow, Sysstat};
use super::{Described, Parsed, Parser, Taken};
use crate::transcript::MAX_ROWS;
use crate::transcript::engine::{Context, cut};
use crate::transcript::line::Line;
use crate::transcript::times;
use serde_json::Value;

/// Longest document: as values it takes some ten times as much memory.
const MAX_BYTES: usize = 8 << 20;

/// A document.
#[derive(Debug, Default)]
pub(in crate::transcript) struct Document {
    /// CPUs, run queues.
    pub(in crate::transcript) sysstat: Sysstat,
    /// Devices.
    pub(in crate::transcript) disks: Option<Iostat>,
    /// Number of CPUs that it names, and in which line it begins.
    pub(in crate::transcript) cpus: Option<(u32, u64)>,
    /// Why it could not be read.
    problem: Option<&'static str>,
}

#[derive(Default)]
struct Reading {
    text: String,
    from: u64,
    depth: u32,
    quoted: bool,
    escaped: bool,
    done: bool,
    too_long: bool,
}

pub(super) fn begins(line: &Line<'_>, _: &Context) -> Option<Box<dyn Parser>> {
    let begins = line.text.trim_start().starts_with('{');
    begins.then(|| Box::new(Reading { from: line.number, ..Reading::default() }) as Box<dyn Parser>)
}

impl Parser for Reading {
    fn line(&mut self, line: &Line<'_>) -> Taken {
        if self.done {
            return Taken::No;
        }
        for c in line.text.chars() {
            match c {
                _ if self.escaped => self.escaped = false,
                '\\' if self.quoted => self.escaped = true,
                '"' => self.quoted = !self.quoted,
                '{' if !self.quoted => self.depth = self.depth.saturating_add(1),
                '}' if !self.quoted => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
        // No string of sysstat runs over a line.
        (self.quoted, self.escaped) = (false, false);
        self.done = self.depth == 0;
        if self.text.len() + line.text.len() < MAX_BYTES {
            self.text.push_str(line.text);
            self.text.push('\n');
        } else {
            self.too_long = true;
        }
        Taken::Yes
    }

    fn end(self: Box<Self>) -> Parsed {
        let failed = |problem| {
            Parsed::Json(Box::new(Document { problem: Some(problem), ..Document::default() }))
        };
        if self.too_long {
            return failed("longer than 8 MiB");
        }
        let Ok(value) = serde_json::from_str::<Value>(&self.text) else {
            return failed("it is cut off, or no JSON");
        };
        match document(&value, self.from) {
            Some(document) => Parsed::Json(Box::new(document)),
            None => failed("JSON, and not of sysstat"),
        }
    }
}

fn document(value: &Value, line: u64) -> Option<Document> {
    let mut document = Document::default();
    let hosts = value.get("sysstat")?.get("hosts")?.as_array()?;
    // A document has one host; of another nobody would know whose it is.
    let host = hosts.first()?;
    let cpus = host
        .get("number-of-cpus")
        .and_then(Value::as_u64)
        .and_then(|cpus| u32::try_from(cpus).ok());
    document.cpus = cpus.map(|cpus| (cpus, line));
    let reports = host.get("statistics")?.as_array()?;
    let mut disks = Iostat::since_boot();
    let mut before = None;
    for report in reports.iter().take(MAX_ROWS) {
        let time_s = time(report.get("timestamp")).map(|s| times::after(before, s));
        before = time_s.or(before);
        add_cpus(&mut document.sysstat, report, time_s, line);
        if let Some(runnable) = report.get("queue").and_then(|queue| queue.get("runq-sz")?.as_u64())
        {
            let runnable = u32::try_from(runnable).ok()?;
            document.sysstat.queues.push(QueueRow { line, runnable });
        }
        let Some(rows) = report.get("disk").and_then(Value::as_array) else { continue };
        // `sadf` has no report since boot.
        if rows.iter().any(|row| row.get("disk-device").is_some()) {
            disks.first = 0;
        }
        disks.report(time_s);
        for row in rows {
            add_disk(&mut disks, row, line);
        }
    }
    document.disks = (!disks.times_s.is_empty()).then_some(disks);
    Some(document)
}

fn time(timestamp: Option<&Value>) -> Option<f64> {
    let text = match timestamp? {
        Value::String(text) => text.as_str(),
        other => other.get("time")?.as_str()?,
    };
    let words: Vec<&str> = text.split_whitespace().take(8).collect();
    times::alone(&words)
}

fn add_cpus(all: &mut Sysstat, report: &Value, time_s: Option<f64>, line: u64) {
    let loads =
        ["cpu-load", "cpu-load-all"].into_iter().find_map(|name| report.get(name)?.as_array());
    let Some(loads) = loads else { return };
    all.times_s.push(time_s.unwrap_or(0.0));
    let number = all.times_s.len() - 1;
    for load in loads {
        let sum =
            |names: &[&str]| names.iter().filter_map(|name| load.get(*name)?.as_f64()).sum::<f64>();
        let cpu = match load.get("cpu") {
            Some(Value::String(name)) => name.parse().ok(),
            Some(other) => other.as_u64().and_then(|cpu| u32::try_from(cpu).ok()),
            None => continue,
        };
        let row = CpuRow {
            line,
            report: number,
            cpu,
            user: sum(&["usr", "user", "nice"]),
            system: sum(&["sys", "system"]),
            irq: sum(&["irq", "soft"]),
            iowait: sum(&["iowait"]),
            steal: sum(&["steal"]),
            idle: sum(&["idle"]),
        };
        let parts = [row.user, row.system, row.irq, row.iowait, row.steal, row.idle];
        let fits = parts.iter().all(|part| (0.0..=101.0).contains(part));
        if fits && all.cpus.len() < MAX_ROWS {
            all.cpus.push(row);
        }
    }
}

fn add_disk(disks: &mut Iostat, row: &Value, line: u64) {
    let at = |names: &[&str]| {
        let value = names.iter().find_map(|name| row.get(*name)?.as_f64());
        value.filter(|value| value.is_finite() && *value >= 0.0)
    };
    let name = ["disk_device", "disk-device"].into_iter().find_map(|name| row.get(name)?.as_str());
    let (Some(name), Some(_)) = (name, at(&["aqu-sz", "avgqu-sz"])) else { return };
    let bytes = |names: &[&str]| at(names).unwrap_or(0.0) * 1024.0;
    let mean = at(&["await"]);
    disks.row(
        &cut(name),
        iostat::Row {
            line,
            ios: [at(&["r/s"]).or(at(&["tps"])).unwrap_or(0.0), at(&["w/s"]).unwrap_or(0.0)],
            bytes: [bytes(&["rkB/s", "rkB"]), bytes(&["wkB/s", "wkB"])],
            await_ms: [at(&["r_await"]).or(mean), at(&["w_await"]).or(mean)],
            queue: at(&["aqu-sz", "avgqu-sz"]),
            util: at(&["util", "util-percent"]),
            ..iostat::Row::default()
        },
    );
}

impl Document {
    pub(super) fn describe(&self) -> Described {
        let rows = self.sysstat.cpus.len() + self.sysstat.queues.len();
        let rows = rows + self.disks.as_ref().map_or(0, |disks| disks.rows.len());
        let described = match self.problem {
            Some(problem) => {
                Described::new("JSON", "not understood", 0, ["row", "rows"]).note(true, problem)
            }
            None => Described::new(
                "sysstat, JSON",
                "CPU time, run queues, devices",
                rows,
                ["row", "rows"],
            ),
        };
        described.note(
            self.disks.as_ref().is_some_and(|disks| disks.first > 0),
            "the first report of devices is an average since boot, and not used",
        )
    }
}
