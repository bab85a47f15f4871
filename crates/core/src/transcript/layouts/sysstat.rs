// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables of sysstat: `mpstat`, `pidstat`, `sar`. Every line begins with a time; columns by their names.

use super::iostat::{Iostat, Origin, Row};
use super::{Described, Parsed, Parser, Taken, column, owned};
use crate::transcript::MAX_ROWS;
use crate::transcript::engine::{Context, cut};
use crate::transcript::line::{Line, number, whole};
use crate::transcript::times;

/// CPU time of one CPU, or of all, in percent of an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::transcript) struct CpuRow {
    /// Its line.
    pub(in crate::transcript) line: u64,
    /// Number of the report, from 0.
    pub(in crate::transcript) report: usize,
    /// The CPU; `None` = all together.
    pub(in crate::transcript) cpu: Option<u32>,
    /// user + nice, system, irq + softirq, iowait, steal, idle; guest time is part of user.
    pub(in crate::transcript) user: f64,
    pub(in crate::transcript) system: f64,
    pub(in crate::transcript) irq: f64,
    pub(in crate::transcript) iowait: f64,
    pub(in crate::transcript) steal: f64,
    pub(in crate::transcript) idle: f64,
}

/// CPU time and waiting of a process or thread, in percent of an interval.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::transcript) struct TaskRow {
    /// Its line.
    pub(in crate::transcript) line: u64,
    /// Its pid, or thread id.
    pub(in crate::transcript) pid: u32,
    /// Whether it is a thread (`pidstat -t`).
    pub(in crate::transcript) thread: bool,
    /// Its name.
    pub(in crate::transcript) comm: String,
    /// Percent of a CPU that it used.
    pub(in crate::transcript) used: f64,
    /// Percent of the time that it waited for a CPU; `None` in old versions.
    pub(in crate::transcript) waited: Option<f64>,
}

/// Length of the run queue at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::transcript) struct QueueRow {
    /// Its line.
    pub(in crate::transcript) line: u64,
    /// Tasks that run or wait for a CPU.
    pub(in crate::transcript) runnable: u32,
}

/// The tables of one run.
#[derive(Debug, Default)]
pub(in crate::transcript) struct Sysstat {
    /// CPU time.
    pub(in crate::transcript) cpus: Vec<CpuRow>,
    /// Processes and threads.
    pub(in crate::transcript) tasks: Vec<TaskRow>,
    /// Run queues.
    pub(in crate::transcript) queues: Vec<QueueRow>,
    /// Devices (`sar -d`).
    pub(in crate::transcript) disks: Option<Iostat>,
    /// Time of each report of CPU time, in seconds.
    pub(in crate::transcript) times_s: Vec<f64>,
    /// Rows of which nothing is said.
    other: usize,
    dropped: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    Cpu,
    Task,
    Queue,
    Disk,
    #[default]
    Other,
}

#[derive(Default)]
struct Reading {
    header: Vec<String>,
    kind: Kind,
    /// Rows of averages follow, which are not used.
    averages: bool,
    last_s: Option<f64>,
    all: Sysstat,
}

/// The words after the time, and the time; `None` for a line of averages.
fn after_time<'w, 't>(line: &'w Line<'t>) -> Option<(Option<f64>, &'w [&'t str])> {
    let words = line.words.as_slice();
    let words = if words.first() == Some(&"#") { &words[1..] } else { words };
    let first = *words.first()?;
    if let Some(time_s) = times::of_day(first, words.get(1).copied()) {
        let half = matches!(words.get(1), Some(&("AM" | "PM" | "am" | "pm")));
        return Some((Some(time_s), &words[1 + usize::from(half)..]));
    }
    // `pidstat -h` has a column of its own for the time.
    if first == "Time" {
        return Some((Some(0.0), &words[1..]));
    }
    // The label of the averages in some language, maybe with a blank before the colon.
    let end = words.iter().take(2).position(|word| word.ends_with(':'))?;
    let is_word = words[0].trim_end_matches(':').chars().all(|c| c.is_alphabetic() || c == '.');
    is_word.then(|| (None, &words[end + 1..]))
}

fn kind(names: &[&str]) -> Option<Kind> {
    let has = |name: &str| names.contains(&name);
    if names.first() == Some(&"CPU") && has("%idle") {
        return Some(Kind::Cpu);
    }
    if has("PID") || has("TGID") {
        return Some(if has("%CPU") { Kind::Task } else { Kind::Other });
    }
    if has("runq-sz") {
        return Some(Kind::Queue);
    }
    // With `-p` or long names it is the last column.
    if has("DEV") && has("tps") && has("%util") {
        return Some(Kind::Disk);
    }
    let names_of_sar =
        ["DEV", "IFACE", "kbmemfree", "pswpin/s", "pgpgin/s", "proc/s", "tps", "CPU", "INTR"];
    names.first().is_some_and(|name| names_of_sar.contains(name)).then_some(Kind::Other)
}

/// The kind of table that a header begins: a time, then names of columns, none of them a number.
fn header(line: &Line<'_>) -> Option<(Kind, Vec<String>)> {
    let (_, names) = after_time(line)?;
    let is_name = |word: &str| number(word).is_none();
    if names.len() < 2 || !names.iter().all(|word| is_name(word)) {
        return None;
    }
    Some((kind(names)?, owned(names)))
}

pub(super) fn begins(line: &Line<'_>, _: &Context) -> Option<Box<dyn Parser>> {
    header(line).map(|_| Box::new(Reading::default()) as Box<dyn Parser>)
}

impl Reading {
    fn row(&mut self, number_of_line: u64, time_s: f64, words: &[&str]) -> Taken {
        let header = &self.header;
        let of = |names: &[&str]| column(header, names);
        // The name of a command is last, and may have blanks.
        let last = of(&["Command"]);
        if words.len() < header.len() || (last.is_none() && words.len() > header.len()) {
            return Taken::Unread("a row of sysstat with other columns than its header: cut off");
        }
        let at = |names: &[&str]| words.get(of(names)?).and_then(|word| number(word));
        let rows = self.all.cpus.len() + self.all.tasks.len() + self.all.queues.len();
        let rows = rows + self.all.disks.as_ref().map_or(0, |disks| disks.rows.len());
        if rows >= MAX_ROWS {
            self.all.dropped += 1;
            return Taken::Yes;
        }
        let line = number_of_line;
        match self.kind {
            Kind::Cpu => {
                let cpu = words.first().and_then(|word| whole(word));
                let all = words.first() == Some(&"all") || words.first() == Some(&"-1");
                let Some(idle) = at(&["%idle"]).filter(|_| all || cpu.is_some()) else {
                    return Taken::Unread("not a row of CPU time");
                };
                let sum = |names: &[&str]| names.iter().filter_map(|name| at(&[name])).sum::<f64>();
                let user = sum(&["%usr", "%user", "%nice"]);
                let system = sum(&["%sys", "%system"]);
                let irq = sum(&["%irq", "%soft"]);
                let (iowait, steal) = (sum(&["%iowait"]), sum(&["%steal"]));
                let parts = [user, system, irq, iowait, steal, idle];
                if parts.iter().any(|part| !(0.0..=101.0).contains(part)) {
                    return Taken::Unread("not a row of CPU time: more than 100 %");
                }
                if self.last_s != Some(time_s) {
                    self.all.times_s.push(times::after(self.all.times_s.last().copied(), time_s));
                    self.last_s = Some(time_s);
                }
                let report = self.all.times_s.len().saturating_sub(1);
                self.all.cpus.push(CpuRow {
                    line,
                    report,
                    cpu,
                    user,
                    system,
                    irq,
                    iowait,
                    steal,
                    idle,
                });
            }
            Kind::Task => {
                let id = |name: &str| words.get(of(&[name])?).and_then(|word| whole::<u32>(word));
                let tid = id("TID");
                let Some(pid) = id("PID").or_else(|| id("TGID")).or(tid) else {
                    return Taken::Unread("not a row of pidstat: no number below `PID`");
                };
                let Some(used) = at(&["%CPU"]) else {
                    return Taken::Unread("not a row of pidstat: no number below `%CPU`");
                };
                let comm = last.map_or(String::new(), |at| words[at..].join(" "));
                let (comm, thread) = (comm.strip_prefix("|__").unwrap_or(&comm), tid.is_some());
                let (comm, waited) = (cut(comm), at(&["%wait"]));
                self.all.tasks.push(TaskRow { line, pid, thread, comm, used, waited });
            }
            Kind::Queue => {
                let Some(runnable) =
                    words.get(of(&["runq-sz"]).unwrap_or(0)).and_then(|word| whole(word))
                else {
                    return Taken::Unread("not a row of `sar -q`");
                };
                self.all.queues.push(QueueRow { line, runnable });
            }
            Kind::Disk => return self.disk(line, time_s, words),
            Kind::Other => self.all.other += 1,
        }
        Taken::Yes
    }
}

impl Reading {
    /// A row of `sar -d`: its requests are reads or writes if only such bytes were moved; otherwise they share number and
    /// time.
    fn disk(&mut self, line: u64, time_s: f64, words: &[&str]) -> Taken {
        let at =
            |names: &[&str]| words.get(column(&self.header, names)?).and_then(|word| number(word));
        let bytes = |kilo: &str, sectors: &str| {
            at(&[kilo]).map(|it| it * 1024.0).or(at(&[sectors]).map(|it| it * 512.0))
        };
        let device = column(&self.header, &["DEV"]).and_then(|at| words.get(at));
        let (Some(device), Some(tps), Some(util)) = (device, at(&["tps"]), at(&["%util"])) else {
            return Taken::Unread("not a row of `sar -d`");
        };
        let moved = [bytes("rkB/s", "rd_sec/s"), bytes("wkB/s", "wr_sec/s")];
        let moved = moved.map(|bytes| bytes.unwrap_or(0.0));
        let part = if moved[0] + moved[1] > 0.0 { moved[0] / (moved[0] + moved[1]) } else { 0.0 };
        let await_ms = at(&["await"]);
        let row = Row {
            line,
            ios: [tps * part, tps * (1.0 - part)],
            bytes: moved,
            await_ms: [await_ms; 2],
            queue: at(&["aqu-sz", "avgqu-sz"]),
            util: Some(util),
            ..Row::default()
        };
        let disks = self.all.disks.get_or_insert_with(|| Iostat::of(Origin::Sar));
        let last_s = disks.times_s.last().copied().flatten();
        let time_s = times::after(last_s, time_s);
        if last_s != Some(time_s) {
            disks.report(Some(time_s));
        }
        match disks.row(device, row) {
            true => Taken::Yes,
            false => Taken::Unread("more than 1000 devices"),
        }
    }
}

impl Parser for Reading {
    fn line(&mut self, line: &Line<'_>) -> Taken {
        if let Some((kind, names)) = header(line) {
            (self.kind, self.header, self.averages) = (kind, names, false);
            // Averages repeat the header, with the label in place of the time.
            self.averages = after_time(line).is_some_and(|(time, _)| time.is_none());
            return Taken::Yes;
        }
        match after_time(line) {
            Some((Some(time_s), words)) if !self.averages && !words.is_empty() => {
                self.row(line.number, time_s, words)
            }
            Some((None, words)) if words.len() >= 2 => Taken::Yes,
            _ => Taken::No,
        }
    }

    fn end(self: Box<Self>) -> Parsed {
        Parsed::Sysstat(self.all)
    }
}

impl Sysstat {
    pub(super) fn describe(&self) -> Described {
        let (tool, layout) =
            match (self.cpus.is_empty(), self.tasks.is_empty(), self.queues.is_empty()) {
                (_, false, _) => ("pidstat", "CPU time of tasks"),
                (false, ..) => ("mpstat, sar", "CPU time"),
                (.., false) => ("sar", "run queue"),
                _ if self.disks.is_some() => ("sar", "devices"),
                _ => ("sar", "columns of which nothing is said"),
            };
        let disks = self.disks.as_ref().map_or(0, |disks| disks.rows.len());
        let rows = self.cpus.len() + self.tasks.len() + self.queues.len() + disks;
        Described::new(tool, layout, rows, ["row", "rows"])
            .note(
                self.other > 0,
                format!("{} rows of other tables, of which nothing is said", self.other),
            )
            .note(self.dropped > 0, format!("{} more rows are not used", self.dropped))
    }
}
