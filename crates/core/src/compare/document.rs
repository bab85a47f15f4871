// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The result of a comparison as data: the document `deburr.compare/1` (`docs/compare.md`). Field names are stable; fields
//! are only added.

use crate::finding::{
    Entity, Host, IoLatency, LedgerState, RowKind, Severity, SizeClass, Target, Tool, Window,
};
use crate::host_diff::document::{Counts, Difference};
use crate::stats::Interval;
use crate::text::{Share, Unit};
use serde::{Deserialize, Serialize};

/// Identifier of the document's schema.
pub const SCHEMA: &str = "deburr.compare/1";

/// How two recordings differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// [`SCHEMA`].
    pub schema: String,
    /// The version of deburr that compared.
    pub tool: Tool,
    /// The first recording: healthy, or before.
    pub a: Recording,
    /// The second recording: slow, or after.
    pub b: Recording,
    /// The result in one sentence.
    pub verdict: Verdict,
    /// How differences were told from chance.
    pub method: Method,
    /// Findings of both, side by side: what B has and A has not first.
    pub findings: Vec<FindingPair>,
    /// Processes that are in both recordings and lose time in one of them, or use a CPU: largest differences first.
    pub processes: Vec<ProcessPair>,
    /// Processes that are in one of the recordings only, those that lose or run most.
    pub unpaired: Vec<Unpaired>,
    /// What is measured of the hosts and their devices: latency of requests, pressure, steal.
    pub measures: Vec<Measure>,
    /// Block devices that transferred something.
    pub devices: Vec<DevicePair>,
    /// Files whose transfers differ most; not tested.
    pub files: Vec<FilePair>,
    /// Cgroups with a CPU quota in one of the recordings.
    pub quotas: Vec<QuotaPair>,
    /// Settings of the kernel that the recordings hold and that differ.
    pub settings: Vec<SettingPair>,
    /// How the hosts differ in what they are and how they are configured; absent unless both recordings say that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<Configuration>,
    /// Further remarks, as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// How two hosts differ in what they are and how they are configured. Not tested: a difference need not be the reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Configuration {
    /// Numbers of facts by the outcome of their comparison.
    pub facts: Counts,
    /// Facts that differ and should not, most important first; hosts are `A` and `B`.
    pub differences: Vec<Difference>,
}

/// One of the recordings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// The file, as it was named.
    pub file: String,
    /// The host that was observed.
    pub host: Host,
    /// The time range that was observed.
    pub window: Window,
    /// The processes that were observed.
    pub target: Target,
}

/// What the comparison comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// B loses what A does not.
    Worse,
    /// A loses what B does not.
    Better,
    /// B loses more of some, and less of others.
    Mixed,
    /// No difference that this much data can show.
    NoDifference,
    /// The data cannot show anything: a recording is too short, or nothing is in both.
    NotComparable,
}

/// The result in one sentence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// What it comes to.
    pub outcome: Outcome,
    /// What B loses that A does not, and to whom. Names in backticks.
    pub sentence: String,
    /// The process that loses most more, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub victim: Option<Entity>,
    /// Whom it loses that to: the largest share first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Behind>,
    /// Without a difference: the smallest that would have been seen in four of five such pairs, of the process that the
    /// data show best.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub could_have_seen: Option<Detectable>,
}

/// A difference that would have been seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Detectable {
    /// What is compared: `queued: api`.
    pub of: String,
    /// Time lost in A, in nanoseconds of each second.
    pub a_ns_per_s: f64,
    /// The difference, in nanoseconds of each second.
    pub ns_per_s: f64,
}

/// How differences were told from chance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Method {
    /// Name of the test.
    pub test: String,
    /// Probability of one or more false differences that was aimed at.
    pub level: f64,
    /// Correction for many comparisons.
    pub correction: String,
    /// Number of comparisons.
    pub comparisons: u64,
    /// Least correlation of successive seconds that was assumed.
    pub least_correlation: f64,
}

/// How a finding or a loss changed from A to B.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Only in B, where A was quiet.
    New,
    /// More in B, beyond chance.
    Grown,
    /// Less in B, beyond chance.
    Shrunk,
    /// Only in A, where B was quiet.
    Gone,
    /// No difference that the data can show.
    Alike,
    /// More or less in B in proportion to the CPU time that was used: another load, no other wait.
    OtherLoad,
    /// In both; whether its loss differs was not tested.
    InBoth,
    /// It cannot be said: one of the recordings is too short, or has no data.
    NotComparable,
}

/// A finding of A, of B, or of both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FindingPair {
    /// Code of the rule.
    pub code: String,
    /// Name of the rule.
    pub name: String,
    /// How it changed.
    pub change: Change,
    /// Whether the victim's loss differs beyond chance; absent where that was not tested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beyond_chance: Option<bool>,
    /// The victim, as B has it; as A has it if it is in A only.
    pub victim: Entity,
    /// Name of the block device that it is about, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// What A says; absent if it does not find it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub a: Option<Told>,
    /// What B says; absent if it does not find it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub b: Option<Told>,
    /// Why the recording that does not find it does not: how near it came, or what it lacked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent_because: Option<String>,
}

/// What one recording says of a finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Told {
    /// Severity.
    pub severity: Severity,
    /// Its title.
    pub title: String,
    /// Time that the victim loses, in nanoseconds of each second.
    pub lost_ns_per_s: u64,
    /// Share of the time in which the victim wanted to run.
    pub share: f64,
}

/// What time is lost to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// Waiting on a run queue behind other threads.
    Queued,
    /// Waiting for an idle CPU to wake up.
    WakeUp,
    /// Runnable, but out of CPU quota.
    Throttled,
    /// Queued or throttled: the source cannot tell.
    QueuedOrThrottled,
    /// Waiting for block IO, by the states of its threads.
    BlockIo,
    /// Held up in calls that wait until something is on the disk (`fsync` and its kin), for whatever reason.
    Sync,
    /// Paused by the kernel because too many pages were dirty.
    DirtyThrottle,
    /// Until its own requests to disks were done, whether a thread waited for them or not.
    Requests,
    /// Waiting for memory.
    MemStall,
}

/// How processes of two recordings were found to be the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MatchedBy {
    /// Same comm and same cgroup path.
    Cgroup,
    /// Same comm, and cgroup paths that differ in ids and numbers only.
    SimilarCgroup,
    /// Same comm, of which there is one group in each recording.
    Comm,
}

/// Processes of one name and cgroup that are in both recordings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessPair {
    /// How they were matched.
    pub matched_by: MatchedBy,
    /// In A.
    pub a: ProcessSide,
    /// In B.
    pub b: ProcessSide,
    /// What is lost, by what it is lost to; only where it reaches 1 ms of each second in one of them.
    pub losses: Vec<LossChange>,
    /// Where the time of their threads went; empty without the scheduler probe. Not tested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ledger: Vec<LedgerPair>,
}

/// A line of the ledgers of both.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LedgerPair {
    /// The state.
    pub state: LedgerState,
    /// Time in that state in A, in nanoseconds of each second of the window.
    pub a_ns_per_s: f64,
    /// Time in that state in B, likewise.
    pub b_ns_per_s: f64,
}

/// Processes of one name and cgroup in one recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessSide {
    /// The processes.
    pub process: Entity,
    /// Largest number of their threads.
    pub threads: u32,
    /// Whole seconds from their first to their last one, or wider blocks in a long recording.
    pub blocks: u32,
    /// Length of such a block.
    pub block_ns: u64,
    /// Time on CPUs, in nanoseconds of each second.
    pub on_cpu_ns_per_s: f64,
    /// Their run-queue waits by length; empty without the scheduler probe.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<SizeClass>,
    /// Median of the waits: upper bound of the histogram bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<u64>,
    /// 99th percentile of the waits, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<u64>,
    /// Longest wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ns: Option<u64>,
}

/// How a loss changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossChange {
    /// What the time is lost to.
    pub loss: Loss,
    /// How it changed.
    pub change: Change,
    /// Time lost in A, in nanoseconds of each second.
    pub a_ns_per_s: f64,
    /// Time lost in B, in nanoseconds of each second.
    pub b_ns_per_s: f64,
    /// Difference, B minus A, with its 95 % interval; absent if a recording is too short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference_ns_per_s: Option<Interval>,
    /// Ratio, B to A, with its 95 % interval; absent also if a mean cannot be told from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Interval>,
    /// Ratio, B to A, of the loss for each second on a CPU, with its 95 % interval; absent likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio_by_work: Option<Interval>,
    /// Probability of such a difference by chance, corrected for the number of comparisons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chance: Option<f64>,
    /// The smallest difference that would have been seen in four of five such pairs, in nanoseconds of each second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detectable_ns_per_s: Option<f64>,
    /// Behind whom the difference was waited: only for a difference beyond chance, where that is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<Behind>,
}

/// What is measured of a host or a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeasureOf {
    /// Mean latency of reads of a device.
    ReadLatency,
    /// Mean latency of writes of a device.
    WriteLatency,
    /// Time that the hypervisor ran something else while CPUs had something to run.
    Steal,
    /// Time in which some task waited for a CPU (pressure-stall file).
    CpuPressure,
    /// Time in which some task waited for IO (pressure-stall file).
    IoPressure,
    /// Time in which some task waited for memory (pressure-stall file).
    MemoryPressure,
}

/// How something that is measured of a host or a device changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// What is measured.
    pub what: MeasureOf,
    /// The host or the device.
    pub of: Entity,
    /// Unit of the numbers: nanoseconds for latency, nanoseconds of each second for the rest.
    pub unit: Unit,
    /// How it changed.
    pub change: Change,
    /// In A.
    pub a: f64,
    /// In B.
    pub b: f64,
    /// Difference, B minus A, with its 95 % interval; absent if a recording is too short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<Interval>,
    /// Ratio, B to A, with its 95 % interval; absent also if a mean cannot be told from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Interval>,
    /// Probability of such a difference by chance, corrected for the number of comparisons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chance: Option<f64>,
    /// The smallest difference that would have been seen in four of five such pairs, in the same unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detectable: Option<f64>,
}

/// A block device in both recordings or in one of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DevicePair {
    /// Its name.
    pub device: String,
    /// In A; absent if it transferred nothing there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub a: Option<DeviceSide>,
    /// In B; absent if it transferred nothing there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub b: Option<DeviceSide>,
}

/// What a device did in one recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceSide {
    /// Transfers per second.
    pub ios_per_s: f64,
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// Share of the time with at least one request queued or in the device; absent where not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_share: Option<f64>,
    /// Latency of its requests, by direction, as in a report.
    pub latency: Vec<IoLatency>,
    /// The same requests by their latency; empty without the block probe.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<RequestSizes>,
}

/// The requests of a device in one direction, by the time from their creation to their completion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestSizes {
    /// `read`, `write` or `other` (flush, discard).
    pub op: String,
    /// Classes that are a factor of 2 wide, from the shortest to the longest; requests that were not measured are not in them.
    pub sizes: Vec<SizeClass>,
}

/// A file in both recordings or in one of them. Only the files with most transfers are known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FilePair {
    /// Name of the device.
    pub device: String,
    /// Whether `path` is the path of a file, or says what the transfers were for.
    pub kind: RowKind,
    /// Path, or what the transfers were for: journal, metadata.
    pub path: String,
    /// Bytes per second in A; absent if it is not among the files with most transfers there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub a_bytes_per_s: Option<f64>,
    /// Bytes per second in B; absent likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub b_bytes_per_s: Option<f64>,
}

/// A cgroup with a CPU quota.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QuotaPair {
    /// Its path.
    pub cgroup: String,
    /// In A; absent if it was not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub a: Option<QuotaSide>,
    /// In B; absent if it was not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub b: Option<QuotaSide>,
}

/// The quota of a cgroup in one recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QuotaSide {
    /// CPUs that it may use; absent without a quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    /// Share of its periods in which the quota ran out; absent if none was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled_share: Option<f64>,
}

/// A setting that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingPair {
    /// The file of the kernel that holds it.
    pub path: String,
    /// Its content in A; absent if it does not exist there, or cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub a: Option<String>,
    /// Its content in B; absent likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub b: Option<String>,
}

/// Part of a difference that was waited behind one group of processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Behind {
    /// Behind whom.
    pub process: Entity,
    /// Time waited behind it in A, in nanoseconds of each second.
    pub a_ns_per_s: f64,
    /// Time waited behind it in B, in nanoseconds of each second.
    pub b_ns_per_s: f64,
    /// Its share of all that was waited more, or less if the loss shrank.
    pub share: Share,
}

/// Processes of one name and cgroup that are in one of the recordings only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unpaired {
    /// `a` or `b`: the recording that they are in.
    pub only_in: String,
    /// The processes.
    pub process: Entity,
    /// Time on CPUs, in nanoseconds of each second of the window.
    pub on_cpu_ns_per_s: f64,
    /// Time lost (queued, throttled, block IO, memory), in nanoseconds of each second of the window.
    pub lost_ns_per_s: f64,
}
