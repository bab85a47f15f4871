// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What tools print: one module per layout, each with a parser that finds columns by their names.

pub(super) mod biosnoop;
pub(super) mod cgroup;
pub(super) mod counters;
pub(super) mod counts;
pub(super) mod debugfs;
pub(super) mod diskstats;
pub(super) mod fdisk;
pub(super) mod histogram;
pub(super) mod host;
pub(super) mod iostat;
pub(super) mod json;
pub(super) mod processes;
pub(super) mod runqslower;
pub(super) mod strace;
pub(super) mod sysstat;
pub(super) mod time;
pub(super) mod vmstat;
pub(super) mod writeback;

use super::document::FileRead;
use super::engine::{Context, Section};
use super::line::{Line, whole};
use super::times;
use crate::text::units;

/// What a parser made of a line.
pub(super) enum Taken {
    /// It belongs to the section.
    Yes,
    /// It is of another kind: it may begin another section.
    No,
    /// It looks like a line of the section, and cannot be read, for this reason.
    Unread(&'static str),
}

/// Reads the lines of one section.
pub(super) trait Parser: Send {
    /// Reads a line that is not empty.
    fn line(&mut self, line: &Line<'_>) -> Taken;
    /// An empty line.
    fn blank(&mut self) {}
    /// The samples.
    fn end(self: Box<Self>) -> Parsed;
}

/// The samples of a section.
#[derive(Debug)]
pub(super) enum Parsed {
    Vmstat(vmstat::Vmstat),
    Histograms(histogram::Histograms),
    Iostat(iostat::Iostat),
    Diskstats(diskstats::Captures),
    Writeback(writeback::Passes),
    Counts(counts::Counts),
    Processes(processes::Processes),
    Cgroup(cgroup::Memberships),
    Mounts(cgroup::Mounts),
    Time(time::Times),
    Fdisk(fdisk::Partitions),
    Debugfs(debugfs::Answers),
    Biosnoop(biosnoop::Requests),
    Sysstat(sysstat::Sysstat),
    Json(Box<json::Document>),
    Strace(strace::Calls),
    Runqslower(runqslower::Waits),
    Facts(host::Facts),
    Counters(counters::Counters),
}

/// A section in words.
pub(super) struct Described {
    /// The tool, or the file of the kernel.
    pub(super) tool: &'static str,
    /// The layout.
    pub(super) layout: String,
    /// How many samples of what.
    pub(super) samples: String,
    /// What was left out.
    pub(super) notes: Vec<String>,
}

impl Described {
    fn new(tool: &'static str, layout: impl Into<String>, n: usize, of: [&str; 2]) -> Self {
        let samples = units::counted(n as u64, of[0], of[1]);
        Self { tool, layout: layout.into(), samples, notes: Vec::new() }
    }

    fn note(mut self, is_so: bool, note: impl Into<String>) -> Self {
        self.notes.extend(is_so.then(|| note.into()));
        self
    }
}

impl Parsed {
    /// The section in words.
    pub(super) fn describe(&self, section: &Section) -> Described {
        let described = match self {
            Self::Vmstat(it) => it.describe(),
            Self::Histograms(it) => it.describe(section),
            Self::Iostat(it) => it.describe(),
            Self::Diskstats(it) => it.describe(),
            Self::Writeback(it) => it.describe(),
            Self::Counts(it) => it.describe(),
            Self::Processes(it) => it.describe(),
            Self::Cgroup(it) => it.describe(),
            Self::Mounts(it) => it.describe(),
            Self::Time(it) => it.describe(),
            Self::Fdisk(it) => it.describe(),
            Self::Debugfs(it) => it.describe(),
            Self::Biosnoop(it) => it.describe(),
            Self::Sysstat(it) => it.describe(),
            Self::Json(it) => it.describe(),
            Self::Strace(it) => it.describe(),
            Self::Runqslower(it) => it.describe(),
            Self::Facts(it) => it.describe(),
            Self::Counters(it) => it.describe(),
        };
        described.note(section.elided, "lines were left out of the text")
    }
}

/// Begins a section with its first line, if it knows it.
type Opener = fn(&Line<'_>, &Context) -> Option<Box<dyn Parser>>;

/// Begins a section with a line that no open section knows.
pub(super) fn begins(line: &Line<'_>, context: &Context) -> Option<Box<dyn Parser>> {
    let openers: [Opener; 19] = [
        vmstat::begins,
        iostat::begins,
        diskstats::begins,
        writeback::begins,
        biosnoop::begins,
        histogram::begins,
        processes::begins,
        counts::begins,
        cgroup::begins,
        cgroup::mounts_begin,
        time::begins,
        fdisk::begins,
        debugfs::begins,
        sysstat::begins,
        strace::begins,
        runqslower::begins,
        counters::begins,
        host::begins,
        json::begins,
    ];
    openers.iter().find_map(|opener| opener(line, context))
}

/// Whether a command is one of the tools whose output is read, or prints a file that is.
pub(super) fn is_tool(name: &str) -> bool {
    const TOOLS: &[&str] = &[
        "vmstat",
        "iostat",
        "mpstat",
        "pidstat",
        "sar",
        "sadf",
        "top",
        "ps",
        "runqlat",
        "runqslower",
        "biolatency",
        "biosnoop",
        "writeback",
        "strace",
        "time",
        "cat",
        "lscpu",
        "cpupower",
        "fdisk",
        "debugfs",
        "lsmod",
        "lc",
        "bpftrace",
        "watch",
    ];
    TOOLS.contains(&name)
}

/// Whether a line is known and says nothing by itself: banners, what is typed to end a tool. Some of it tells about what
/// follows.
pub(super) fn is_about(line: &Line<'_>, context: &mut Context, file: Option<&FileRead>) -> bool {
    let (text, words) = (line.text.trim(), line.words.as_slice());
    if let Some(tool) = tracing(text) {
        context.tracing = Some(tool);
        return true;
    }
    if words.first() == Some(&"Linux") && text.contains("CPU)") {
        let cpus = words.iter().rev().find_map(|word| word.strip_prefix('('));
        if let (Some(cpus), Some(file)) = (cpus.and_then(whole::<u32>), file) {
            context.cpus = Some((cpus, format!("{}:{}", file.name, line.number)));
        }
        return true;
    }
    if let Some(time_s) = times::alone(words) {
        context.time_s = Some(time_s);
        return true;
    }
    if let Some(path) = text.strip_prefix("==> ").and_then(|rest| rest.strip_suffix(" <==")) {
        context.path = Some(path.to_owned());
        return true;
    }
    matches!(text, "^C" | "^Z" | "^D" | "exit" | "logout" | "Terminated")
        || line.begins(&["Attaching"])
        || text.starts_with("Detaching")
        || text.ends_with("Hit Ctrl-C to end.")
        || text.ends_with("Ctrl-C to end.")
}

/// The tool that announces itself with a line.
fn tracing(text: &str) -> Option<&'static str> {
    const ANNOUNCED: &[(&str, &str)] = &[
        ("Tracing run queue latency", "runqlat"),
        ("Tracing CPU scheduler", "runqlat"),
        ("Tracing block device I/O", "biolatency"),
        ("Tracing block I/O", "biolatency"),
        ("Tracing high run queue latency", "runqslower"),
        ("Tracing run queue latency higher than", "runqslower"),
        ("Tracing writeback", "writeback"),
    ];
    // The longest that fits: one begins like another.
    let fits = ANNOUNCED.iter().filter(|(begin, _)| text.starts_with(begin));
    fits.max_by_key(|(begin, _)| begin.len()).map(|(_, tool)| *tool)
}

/// The column of the first of several names that a header has.
fn column(header: &[String], names: &[&str]) -> Option<usize> {
    names.iter().find_map(|name| header.iter().position(|own| own == name))
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}
