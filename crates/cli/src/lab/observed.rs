// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One run of a scenario, as measured by the report and by the victim, and which findings are due to the lab.

use super::disk::WritesByMark;
use super::fitness::Machine;
use super::service::Periods;
use super::victim::{Stall, Summary};
use deburr_core::finding::{Area, Cause, EntityKind, Finding, LedgerState, Report, Severity};
use serde::Serialize;
use std::path::Path;

/// The measurements of one run, by both channels.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Observed {
    /// Process id of the victim.
    pub(crate) victim_pid: u32,
    /// The lab's cgroup in that run.
    pub(crate) lab_cgroup: String,
    /// CPUs that the victim may use.
    pub(crate) victim_cpus: Vec<usize>,
    /// What the machine was like during the run.
    pub(crate) machine: Machine,
    /// What the victim measured itself.
    pub(crate) victim: Summary,
    /// What was written to the run's own disk, if it had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) written: Option<WritesByMark>,
    /// Periods of the service's CPU limit, if the lab calibrated one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) periods: Option<Periods>,
    /// The stalls of the victim's syncs that `deburr` recorded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) recorded: Vec<Stall>,
    /// What `deburr` reported about the victim.
    pub(crate) report: Report,
}

impl Observed {
    /// Time per second of wall time in which the victim was ready but not running, by the report's ledger: it waited for a CPU,
    /// was throttled or stopped. `None` without a ledger.
    pub(crate) fn reported_ns_per_s(&self) -> Option<f64> {
        let ledger =
            self.report.ledger.iter().find(|ledger| ledger.victim.pid == Some(self.victim_pid))?;
        use LedgerState::{Queued, QueuedOrThrottled, Stopped, Throttled};
        // The first thread only waits for the end: a stop keeps it from nothing.
        let serving = |ns: u64| ns - ns / u64::from(ledger.threads.max(1));
        let waited_ns: u64 = ledger
            .parts
            .iter()
            .map(|part| match part.state {
                Queued | Throttled | QueuedOrThrottled => part.ns,
                Stopped => serving(part.ns),
                _ => 0,
            })
            .sum();
        Some(waited_ns as f64 / self.report.window.seconds)
    }

    /// Upper bound of the time that the hypervisor took from the victim, per second of wall time: all that it took
    /// from the CPUs that the victim may use.
    pub(super) fn stolen_ns_per_s(&self) -> f64 {
        let stolen_ns = self.machine.stolen_from_ns(&self.victim_cpus);
        stolen_ns as f64 / self.victim.wall_ns.max(1) as f64 * 1e9
    }

    /// Findings above `info` about what the lab did. Findings about the observation, and about what the rest of the
    /// host did to the victim, are left out. The latter are true, but say nothing about the scenario.
    pub(super) fn complaints(&self) -> impl Iterator<Item = &Finding> {
        self.report
            .findings
            .iter()
            .filter(|finding| finding.severity > Severity::Info && finding.area != Area::Observer)
            .filter(|finding| !self.is_of_the_rest_of_the_host(finding))
    }

    /// Whether processes outside of the lab contribute more to a finding than those in it. Stolen time (CPU001) is
    /// never due to the lab.
    pub(crate) fn is_of_the_rest_of_the_host(&self, finding: &Finding) -> bool {
        if finding.code == "CPU001" {
            return true;
        }
        let inside: f64 = finding
            .causes
            .iter()
            .filter(|cause| !self.is_outside(cause))
            .map(|c| c.share.get())
            .sum();
        self.outside_share(finding) > inside
    }

    /// Share of a finding's loss that is due to processes outside of the lab.
    pub(super) fn outside_share(&self, finding: &Finding) -> f64 {
        finding
            .causes
            .iter()
            .filter(|cause| self.is_outside(cause))
            .map(|cause| cause.share.get())
            .sum()
    }

    fn is_outside(&self, cause: &Cause) -> bool {
        // Reports leave out the cgroup of processes in the root. None of the lab's processes is there.
        let path = cause.entity.cgroup.as_deref().unwrap_or("/");
        let process = matches!(cause.entity.kind, EntityKind::Process | EntityKind::Thread);
        process && !Path::new(path).starts_with(&self.lab_cgroup)
    }
}
