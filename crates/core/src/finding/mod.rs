// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report as data: the [`Report`] that every renderer shows and `--json` prints.
//!
//! The types serialise to the document `deburr.report/1` (`docs/report.schema.json`). Field names are stable: fields
//! are only ever added. Nothing is computed or formatted here.

mod asleep;
mod blame;
mod block_io;
mod entity;
mod evidence;
mod interrupted;
mod ledger;
mod longest_wait;
mod memory;
mod profile;
mod question;

pub use asleep::{SleepKind, SleepLink, SleepPart};
pub use blame::{BlameDistribution, BlamedProcess};
pub use block_io::{
    BlockIo, DeviceIo, IoLatency, IoRow, IoRowsBy, IoTable, OmittedDevices, RowKind, Writeback,
};
pub use entity::{Entity, EntityKind};
pub use evidence::{
    Chart, ChartKind, ChartRow, Cost, Evidence, FileShare, FileTable, SizeClass, Tail, TailOf,
};
pub use interrupted::InterruptPart;
pub use ledger::{Ledger, LedgerPart, LedgerState};
pub use longest_wait::{LongestWait, WaitPart};
pub use memory::{MemoryPart, MemoryWait};
pub use profile::{
    FunctionShare, ProcessProfile, Profile, SleepProfile, SleepStackShare, StackShare,
};
pub use question::{Answer, Question, QuestionAnswer};

pub use crate::text::{Share, Unit};

use crate::recording::Entry;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Identifier of the JSON document's schema.
pub const REPORT_SCHEMA: &str = "deburr.report/1";

/// The complete result of one analysis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`REPORT_SCHEMA`].
    pub schema: String,
    /// The program that made the report.
    pub tool: Tool,
    /// The host that was observed.
    pub host: Host,
    /// The time range that was observed.
    pub window: Window,
    /// The processes that were observed.
    pub target: Target,
    /// The questions that a reader comes with, and their answers; empty in reports from before there were any.
    #[serde(default)]
    pub questions: Vec<QuestionAnswer>,
    /// Findings, worst first.
    pub findings: Vec<Finding>,
    /// Rules that were checked and found nothing.
    pub ruled_out: Vec<RuledOut>,
    /// Rules that could not be checked.
    pub not_checked: Vec<NotChecked>,
    /// Where the wall time of the victims and of the target went.
    pub ledger: Vec<Ledger>,
    /// Activity of the block devices; absent if block IO was not observed, or there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_io: Option<BlockIo>,
    /// In what functions CPU time is spent; absent where no profile was asked for, or nothing ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// Overhead and lost data of the observer.
    pub observer: Observer,
}

/// The program that made the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// Version of deburr that made the report, which may differ from the version that recorded.
    pub version: String,
}

/// The observed host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Host name.
    pub name: String,
    /// Kernel release.
    pub kernel: String,
    /// Number of online CPUs.
    pub cpus: u32,
    /// cgroup layout: `v1`, `v2`, `mixed`, `none`.
    pub cgroup: String,
}

/// The observed time range.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// RFC 3339 start time in UTC.
    pub start: String,
    /// Length in seconds.
    pub seconds: f64,
    /// `live`, or `recording`.
    pub source: String,
    /// Events of the session, as sentences: interrupted, clock jump, ...
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<String>,
}

/// The observed target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// `host`, `process`, `comm`, `cgroup`, `container`, `command`.
    pub kind: String,
    /// Name of the target; absent for the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Process id, for `process` and `command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Number of processes that belonged to the target within the window.
    pub processes: u32,
    /// Which of its threads serve requests, as the user said; empty if nothing was said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<TargetEntry>,
}

/// Threads of the target that serve requests, as the user said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetEntry {
    /// How they were named: by `tid`, `name` or `port`.
    #[serde(flatten)]
    pub entry: Entry,
    /// How long they were seen asleep, in nanoseconds; 0 = none of them was seen, absent = sleep was not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asleep_ns: Option<u64>,
}

/// How much a finding matters, by the time that its victims lose. Each rule states its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// A small loss, or one close to the limit.
    Low,
    /// A clearly noticeable loss.
    Medium,
    /// The likely reason for a complaint.
    High,
}

/// The subsystem that a finding is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Area {
    /// Waiting for block IO.
    Block,
    /// Speed and capacity of the CPUs.
    Cpu,
    /// Configuration of a host.
    Host,
    /// Time that interrupts take.
    Interrupts,
    /// Waiting for memory.
    Memory,
    /// What the network lost.
    Network,
    /// The observation itself.
    #[default]
    Observer,
    /// Waiting for a CPU.
    Sched,
    /// Cost of system calls.
    Syscalls,
    /// Waiting for other threads and processes.
    Waiting,
}

impl Area {
    /// The letters that the codes of its rules begin with.
    #[must_use]
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Block => "BLK",
            Self::Cpu => "CPU",
            Self::Host => "HST",
            Self::Interrupts => "IRQ",
            Self::Memory => "MEM",
            Self::Network => "NET",
            Self::Observer => "OBS",
            Self::Sched => "SCH",
            Self::Syscalls => "SYS",
            Self::Waiting => "OFF",
        }
    }
}

/// One detected problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Code of the rule: `SCH001`.
    pub code: String,
    /// Subsystem.
    #[serde(default)]
    pub area: Area,
    /// Name of the rule: `run-queue-contention`.
    pub name: String,
    /// Severity.
    pub severity: Severity,
    /// Confidence in the finding, 0..1, given coverage, lost data and sample counts.
    pub confidence: f64,
    /// One lowercase sentence with identifiers in backticks, no final period.
    pub title: String,
    /// Name of the block device that the finding is about, as in the report's tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The victim.
    pub victim: Entity,
    /// What the victim loses.
    pub cost: Cost,
    /// Culprits. Shares are of the victim's loss and sum to at most 1.
    pub causes: Vec<Cause>,
    /// The numbers that support the finding.
    pub evidence: Vec<Evidence>,
    /// Histogram of the victim's waits, by count and by time; empty where it does not apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<SizeClass>,
    /// The longest of these waits, told whole; absent where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest: Option<LongestWait>,
    /// Files that the device's IO was for; absent where it does not apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<FileTable>,
    /// Interval at which the loss comes back, in nanoseconds; absent where none was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rhythm_ns: Option<u64>,
    /// Time line; absent where it does not apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chart: Option<Chart>,
    /// Remedies.
    pub fix: Vec<Fix>,
    /// How to confirm the finding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<Confirm>,
    /// A command for a shell: the experiment that puts the cause to the test. It says what it will change, and asks. If it
    /// [ends with `COMMAND`](Self::blank_in_prove), the reader has to put in how the program is started; if with `PID` or
    /// `CMD`, which process or command of that host is measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prove: Option<String>,
}

impl Finding {
    /// The word in the experiment's command that the reader has to replace, if there is one: `COMMAND`, `PID` or `CMD`.
    #[must_use]
    pub fn blank_in_prove(&self) -> Option<&'static str> {
        let last = self.prove.as_deref()?.rsplit(' ').next()?;
        ["COMMAND", "PID", "CMD"].into_iter().find(|blank| *blank == last)
    }
}

/// A culprit and its share of the victim's loss.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cause {
    /// The culprit.
    #[serde(flatten)]
    pub entity: Entity,
    /// Share of the victim's loss, 0..1.
    pub share: Share,
}

/// A remedy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fix {
    /// What to do, in words.
    pub action: String,
    /// A command that can be pasted, where there is one. Names in it are quoted for the shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Risks and side effects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<String>,
    /// Promised effect, if any. The lab applies remedies and verifies their promises.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<Promise>,
}

/// How much of a finding's loss remains after a remedy was applied, while the load stays the same.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Promise {
    /// Largest part of the loss that remains, 0..1.
    pub left_at_most: f64,
    /// How the loss is measured.
    #[serde(default, skip_serializing_if = "LossBasis::is_second")]
    pub of: LossBasis,
}

/// What a loss is measured over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossBasis {
    /// Loss per second of wall time.
    #[default]
    Second,
    /// Wait per transfer of the victim. A process that syncs in a closed loop waits as long per second as before, but
    /// completes more transfers.
    Transfer,
}

impl LossBasis {
    fn is_second(&self) -> bool {
        *self == Self::Second
    }
}

impl Promise {
    /// A promise about the loss per second.
    #[must_use]
    pub fn left_at_most(part: f64) -> Self {
        Self { left_at_most: part, of: LossBasis::Second }
    }

    /// A promise about the wait per transfer of the victim.
    #[must_use]
    pub fn each_transfer_left_at_most(part: f64) -> Self {
        Self { left_at_most: part, of: LossBasis::Transfer }
    }
}

/// How to confirm a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirm {
    /// A command that can be pasted.
    pub command: String,
    /// What the command is expected to show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<String>,
}

/// A rule that was checked and found nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuledOut {
    /// Code of the rule.
    pub code: String,
    /// Subsystem.
    #[serde(default)]
    pub area: Area,
    /// Name of the rule.
    pub name: String,
    /// The case that came closest to the rule's limits, with numbers.
    pub closest: String,
}

/// A rule that could not be checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotChecked {
    /// Code of the rule.
    pub code: String,
    /// Subsystem.
    #[serde(default)]
    pub area: Area,
    /// Name of the rule.
    pub name: String,
    /// Data that were missing, and why.
    pub missing: Vec<String>,
}

/// Coverage of a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum SourceCoverage {
    /// Full coverage.
    Whole,
    /// Partial or no coverage, with the reason as a sentence.
    Less(String),
}

/// Text of [`Sight::Whole`] in the JSON document.
const WHOLE: &str = "active";

impl SourceCoverage {
    /// Text in the JSON document.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Whole => WHOLE,
            Self::Less(why) => why,
        }
    }
}

impl From<String> for SourceCoverage {
    fn from(text: String) -> Self {
        if text == WHOLE { Self::Whole } else { Self::Less(text) }
    }
}

impl From<SourceCoverage> for String {
    fn from(sight: SourceCoverage) -> Self {
        sight.text().to_owned()
    }
}

/// Overhead and lost data of the observer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Observer {
    /// CPU time of the observer's process within the window.
    pub cpu_seconds: f64,
    /// Estimated run time of its BPF programs within the window, from samples; absent where not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bpf_run_ns: Option<u64>,
    /// Runs of its BPF programs within the window.
    pub bpf_runs: u64,
    /// Largest resident set size.
    pub rss_bytes: u64,
    /// Kernel memory of its BPF maps.
    pub bpf_map_bytes: u64,
    /// Losses by source, as counts.
    pub lost: BTreeMap<String, u64>,
    /// Lost amounts by name; only those that are not 0. Names that end in `_ns` are nanoseconds, all others are counts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lost_detail: BTreeMap<String, u64>,
    /// Coverage of each source: `bpf:sched` -> `active`, `partial: ...`, `missing: ...`.
    pub coverage: BTreeMap<String, SourceCoverage>,
}
