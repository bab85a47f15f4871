// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the scheduler rules share: a group's loss, and the numbers that go under a claim about it.

use crate::finding::{Cost, Evidence, Unit};
use crate::recording::{PsiResource, Source, TargetSpec};
use crate::render::units;
use crate::rules::words::evidence;
use crate::view::{Group, View, waits};

/// A group that nearly never sleeps is batch work: it wants all the CPU time there is.
pub(super) const BATCH_SHARE: f64 = 0.9;

/// What a group lost to waiting for a CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loss {
    /// Nanoseconds in the window.
    pub(super) ns: u64,
    /// The same per second of wall time.
    pub(super) ns_per_s: u64,
    /// Of the time in which it wanted to run.
    pub(super) share: f64,
    /// Of its threads' wall time: time in which it wanted to run.
    pub(super) wanted_of_wall: f64,
}

impl Loss {
    pub(super) fn new(view: &View, ns: u64, wanted_ns: u64, wall_ns: u64) -> Self {
        let ratio = |part: u64, whole: u64| match whole {
            0 => 0.0,
            whole => (part as f64 / whole as f64).min(1.0),
        };
        Self {
            ns,
            ns_per_s: view.per_second(ns),
            share: ratio(ns, wanted_ns),
            wanted_of_wall: ratio(wanted_ns, wall_ns),
        }
    }

    pub(super) fn is_batch(&self) -> bool {
        self.wanted_of_wall >= BATCH_SHARE
    }
}

/// Whether the whole host is looked at, so that victims have to be told from those who merely share.
pub(super) fn target_is_host(view: &View) -> bool {
    view.meta().is_none_or(|meta| meta.target == TargetSpec::Host)
}

/// Whether a group may be a victim: the observer is none, and kernel threads only if they were asked for.
pub(super) fn may_suffer(view: &View, group: &Group<'_>) -> bool {
    group.in_target && !group.is_observer() && !(group.is_kernel() && target_is_host(view))
}

/// The cost with the percentiles that the probe's histogram allows.
pub(super) fn cost(loss: &Loss, group: &Group<'_>) -> Cost {
    let usage = group.usage.as_ref();
    let percentile =
        |p| usage.and_then(|usage| waits::percentile_ns(&usage.waits, p, usage.wait_max_ns));
    Cost {
        lost_ns_per_s: loss.ns_per_s,
        share: loss.share,
        p50_ns: percentile(0.5),
        p99_ns: percentile(0.99),
        max_ns: usage.map(|usage| usage.wait_max_ns).filter(|&ns| ns > 0),
    }
}

/// How full the host was: busy CPUs, waiting threads, pressure, steal.
pub(super) fn host_lines(view: &View) -> Vec<Evidence> {
    let mut lines = Vec::new();
    if let Some(totals) = view.cpu_totals() {
        let label = Source::ProcStat.label();
        if let Some(busy) = totals.busy_share() {
            let note = format!("of {}", units::counted(view.cpu_count().into(), "CPU", "CPUs"));
            lines.push(evidence(view, "host CPUs busy", busy, Unit::Ratio, label, note));
        }
        if totals.steal_ns > 0 {
            let steal = totals.steal_ns as f64;
            let whole = steal + (totals.busy_ns + totals.idle_ns) as f64;
            let note = "of all CPU time: the hypervisor ran somebody else".to_owned();
            lines.push(evidence(view, "steal", steal / whole, Unit::Ratio, label, note));
        }
    }
    let queued_ns = view.host_load().queued.total();
    if queued_ns > 0 && view.window_ns() > 0 {
        let mean = queued_ns as f64 / view.window_ns() as f64;
        let note = view.host_load().queued.fullest().map(|(t0, t1, ns)| {
            let most = ns as f64 / t1.saturating_sub(t0).max(1) as f64;
            format!(
                "threads waiting on average; {most:.1} in the worst {}",
                units::duration((t1 - t0) as f64)
            )
        });
        lines.push(evidence(
            view,
            "host run-queue pressure",
            mean,
            Unit::Count,
            Source::Sched.label(),
            note,
        ));
    }
    if let Some(some) = view.psi(None, PsiResource::Cpu).and_then(crate::view::PsiView::some_share)
    {
        let note = "of the wall time in which some thread of the host waited for a CPU".to_owned();
        lines.push(evidence(view, "CPU pressure", some, Unit::Ratio, Source::Psi.label(), note));
    }
    lines
}
