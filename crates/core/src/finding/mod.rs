// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What we say, as data: the [`Report`] that every renderer shows and `--json` prints.
//!
//! The types serialise to the document `deburr.report/1` (`docs/report.schema.json`). Field names are stable;
//! additions only. Nothing is computed here and nothing is formatted here.

mod block_io;
mod entity;
mod evidence;
mod ledger;
mod whom;

pub use block_io::{
    BlockIo, DeviceIo, IoBy, IoLatency, IoRow, IoTable, MoreDevices, RowKind, Writeback,
};
pub use entity::{Entity, EntityKind};
pub use evidence::{
    Chart, ChartKind, ChartRow, Cost, Evidence, FileShare, FileTable, SizeClass, Tail, TailOf,
};
pub use ledger::{Ledger, LedgerPart, LedgerState};
pub use whom::{Carrier, Whom};

pub use crate::text::{Share, Unit};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Identifier of the JSON document's schema.
pub const REPORT_SCHEMA: &str = "deburr.report/1";

/// Everything one analysis says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`REPORT_SCHEMA`].
    pub schema: String,
    /// Who says it.
    pub tool: Tool,
    /// About which host.
    pub host: Host,
    /// About which time.
    pub window: Window,
    /// About whom.
    pub target: Target,
    /// What was found, worst first.
    pub findings: Vec<Finding>,
    /// What was looked for and not found.
    pub ruled_out: Vec<RuledOut>,
    /// What could not be looked for.
    pub not_checked: Vec<NotChecked>,
    /// Where the victims' and the target's wall time went.
    pub ledger: Vec<Ledger>,
    /// What the block devices did; absent if it was not seen, or nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_io: Option<BlockIo>,
    /// What observing cost and lost.
    pub observer: Observer,
}

/// The program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// Version that made the report (not the one that recorded).
    pub version: String,
}

/// The machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Its kernel release.
    pub kernel: String,
    /// Number of online CPUs.
    pub cpus: u32,
    /// cgroup layout: `v1`, `v2`, `mixed`, `none`.
    pub cgroup: String,
}

/// The observed time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// RFC 3339 start time in UTC.
    pub start: String,
    /// Length in seconds.
    pub seconds: f64,
    /// `live`, or `recording`.
    pub source: String,
    /// Things that happened to the session: interrupted, clock jump, ... as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<String>,
}

/// What was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// `host`, `process`, `comm`, `cgroup`, `container`, `command`.
    pub kind: String,
    /// What the user named; absent for the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Pid, for `process` and `command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Number of processes that belonged to it within the window.
    pub processes: u32,
}

/// How bad: by the victims' time lost, by limits that each rule states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Small, or at the edge.
    Low,
    /// Clearly felt.
    Medium,
    /// The likely reason of a complaint.
    High,
}

/// What a finding is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Area {
    /// Waiting for block IO.
    Block,
    /// What CPUs can do.
    Cpu,
    /// How a host is set up.
    Host,
    /// Waiting for memory.
    Memory,
    /// The observation itself.
    #[default]
    Observer,
    /// Waiting for a CPU.
    Sched,
    /// What system calls cost.
    Syscalls,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// `SCH001`.
    pub code: String,
    /// What it is about.
    #[serde(default)]
    pub area: Area,
    /// `run-queue-contention`.
    pub name: String,
    /// How bad.
    pub severity: Severity,
    /// 0..1: how sure we are that this is so, given coverage, losses and sample counts.
    pub confidence: f64,
    /// One lowercase sentence with identifiers in backticks, no final period.
    pub title: String,
    /// The block device that it is about, as the report's tables call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Who suffers.
    pub victim: Entity,
    /// How much.
    pub cost: Cost,
    /// Who or what is to blame; shares are of the victim's loss and sum to at most 1.
    pub causes: Vec<Cause>,
    /// The numbers it rests on.
    pub evidence: Vec<Evidence>,
    /// Sizes of the victim's waits, by count and by time; empty where it makes no sense.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<SizeClass>,
    /// What the disk's IO was for; absent where it makes no sense.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<FileTable>,
    /// When it happened; absent where it makes no sense.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chart: Option<Chart>,
    /// What to do.
    pub fix: Vec<Fix>,
    /// How to confirm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<Confirm>,
}

/// A share of the blame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cause {
    /// Who or what.
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
    /// What may go wrong, or what it costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<String>,
    /// What it promises, where it promises anything: the lab holds it to that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<Promise>,
}

/// What becomes of a finding's loss by a remedy, while the load stays what it is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Promise {
    /// At most this part of it is left, 0..1.
    pub left_at_most: f64,
    /// Of which loss.
    #[serde(default, skip_serializing_if = "LossOf::is_second")]
    pub of: LossOf,
}

/// Over what a loss is reckoned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossOf {
    /// All of it in a second.
    #[default]
    Second,
    /// What each of the victim's transfers waits: who syncs again as soon as it may waits as much in a second as before,
    /// and gets more done.
    Transfer,
}

impl LossOf {
    fn is_second(&self) -> bool {
        *self == Self::Second
    }
}

impl Promise {
    /// That promise, of the loss in a second.
    #[must_use]
    pub fn left_at_most(part: f64) -> Self {
        Self { left_at_most: part, of: LossOf::Second }
    }

    /// That promise, of what each of the victim's transfers waits.
    #[must_use]
    pub fn each_transfer_left_at_most(part: f64) -> Self {
        Self { left_at_most: part, of: LossOf::Transfer }
    }
}

/// How to make sure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirm {
    /// A command that can be pasted.
    pub command: String,
    /// What to expect from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<String>,
}

/// A rule that looked and found nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuledOut {
    /// Code.
    pub code: String,
    /// What it is about.
    #[serde(default)]
    pub area: Area,
    /// Name.
    pub name: String,
    /// How near it came, with numbers.
    pub closest: String,
}

/// A rule that could not look.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotChecked {
    /// Code.
    pub code: String,
    /// What it is about.
    #[serde(default)]
    pub area: Area,
    /// Name.
    pub name: String,
    /// What was missing and why.
    pub missing: Vec<String>,
}

/// How much of a source was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Sight {
    /// All of it.
    Whole,
    /// Less, and why, as a sentence.
    Less(String),
}

/// What the document says of a source of which all was seen.
const WHOLE: &str = "active";

impl Sight {
    /// As the document says it.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Whole => WHOLE,
            Self::Less(why) => why,
        }
    }
}

impl From<String> for Sight {
    fn from(text: String) -> Self {
        if text == WHOLE { Self::Whole } else { Self::Less(text) }
    }
}

impl From<Sight> for String {
    fn from(sight: Sight) -> Self {
        sight.text().to_owned()
    }
}

/// What observing cost and lost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Observer {
    /// CPU time of the observer's process within the window.
    pub cpu_seconds: f64,
    /// Estimated time of its BPF programs within the window (sampled); absent where not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bpf_run_ns: Option<u64>,
    /// Runs of its BPF programs within the window.
    pub bpf_runs: u64,
    /// Largest resident memory.
    pub rss_bytes: u64,
    /// Kernel memory of its BPF maps.
    pub bpf_map_bytes: u64,
    /// What was lost, by source.
    pub lost: BTreeMap<String, u64>,
    /// The same in detail, by name; only what is not 0.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lost_detail: BTreeMap<String, u64>,
    /// What each source could see: `bpf:sched` -> `active`, `partial: ...`, `missing: ...`.
    pub coverage: BTreeMap<String, Sight>,
}
