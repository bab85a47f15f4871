// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Invariants of what is recorded of the target in more detail: it is a part of what the ticks of its processes hold.

use super::amounts::{BINS, buckets, fits, sum};
use super::{Faults, Invariant};
use crate::recording::{ProcId, ProcessTick, Record, WaitBin};
use std::collections::BTreeMap;

pub(super) const IN_TICKS: Invariant =
    "the waits of a process in bins are among those of its ticks";

/// State between records.
#[derive(Clone, Debug, Default)]
pub(super) struct OfTarget {
    processes: BTreeMap<ProcId, Totals>,
}

/// Sums of a process.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    bins_end_ns: u64,
    waits_in_bins_ns: u64,
    waits_in_ticks_ns: u64,
}

impl OfTarget {
    pub(super) fn push(&mut self, record: &Record, faults: &mut Faults) {
        match record {
            Record::ProcessTick(tick) => self.tick(tick),
            Record::WaitBin(bin) => self.wait_bin(bin, faults),
            _ => {}
        }
    }

    /// Ends the check of a complete recording: a truncated one may lack the ticks that its last bins belong to.
    pub(super) fn finish(&self, faults: &mut Faults) {
        for (id, totals) in self.processes.iter().filter(|(id, _)| **id != ProcId::OTHERS) {
            let Totals { waits_in_bins_ns, waits_in_ticks_ns, .. } = *totals;
            faults.unless(fits(waits_in_bins_ns, waits_in_ticks_ns), IN_TICKS, || {
                format!("process {}: {waits_in_bins_ns} ns of {waits_in_ticks_ns} ns", id.0)
            });
        }
    }

    fn tick(&mut self, tick: &ProcessTick) {
        let totals = self.processes.entry(tick.proc).or_default();
        totals.waits_in_ticks_ns = totals.waits_in_ticks_ns.saturating_add(sum(&tick.waits.ns));
    }

    fn wait_bin(&mut self, bin: &WaitBin, faults: &mut Faults) {
        let totals = self.processes.entry(bin.proc).or_default();
        faults.unless(bin.t0_ns >= totals.bins_end_ns, BINS, || format!("at {} ns", bin.t0_ns));
        totals.bins_end_ns = bin.t1_ns;
        totals.waits_in_bins_ns = totals.waits_in_bins_ns.saturating_add(sum(&bin.waits.ns));
        buckets(&bin.waits, faults, || format!("process {}", bin.proc.0));
    }
}
