// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The plots of a comparison: how long waits and requests are in both recordings. Each is shown once, below the first
//! claim that it belongs to.

use super::lengths::Compared;
use super::names;
use super::page::Page;
use crate::compare::document::{Change, Comparison, FindingPair, Measure, ProcessPair};
use crate::compare::sizes;
use crate::finding::EntityKind;
use crate::text::escape::identifier;
use crate::text::units::count;
use std::collections::BTreeSet;

/// Width of the names of recordings and devices.
const FILE_COLUMNS: usize = 60;
const DEVICE_COLUMNS: usize = 14;

/// The plots of a comparison, and which of them are on the page already.
pub(super) struct Plots<'c> {
    it: &'c Comparison,
    processes: BTreeSet<usize>,
    requests: BTreeSet<(&'c str, &'static str)>,
}

impl<'c> Plots<'c> {
    pub(super) fn of(it: &'c Comparison) -> Self {
        Self { it, processes: BTreeSet::new(), requests: BTreeSet::new() }
    }

    fn names(&self) -> [String; 2] {
        [&self.it.a, &self.it.b].map(|it| identifier(&it.file, FILE_COLUMNS))
    }

    /// What the verdict is about; without a difference, the process that waits most for a CPU.
    pub(super) fn verdict(&mut self, page: &mut Page) {
        let it = self.it;
        match &it.verdict.victim {
            Some(victim) if victim.kind == EntityKind::Process => {
                let is_it =
                    |pair: &ProcessPair| pair.b.process == *victim && sizes::is_about_cpus(pair);
                if let Some(at) = it.processes.iter().position(is_it) {
                    self.process(page, at);
                }
            }
            Some(victim) => {
                let is_it = |measure: &&Measure| {
                    let changed = matches!(measure.change, Change::Grown | Change::Shrunk);
                    changed && measure.of == *victim
                };
                if let Some(measure) = it.measures.iter().find(is_it) {
                    self.measure(page, measure);
                }
            }
            None => {
                if let Some(at) = it.processes.iter().position(sizes::is_about_cpus) {
                    self.process(page, at);
                }
            }
        }
    }

    /// What a finding is about: the waits of its victim, or the requests to its device.
    pub(super) fn finding(&mut self, page: &mut Page, finding: &'c FindingPair) {
        if let Some(at) = sizes::waiting(finding, &self.it.processes) {
            self.process(page, at);
        }
        if let Some(device) = &finding.device {
            ["read", "write"].into_iter().for_each(|op| self.requests(page, device, op));
        }
    }

    /// The run-queue waits of a process. `false` if the page has no plots.
    pub(super) fn process(&mut self, page: &mut Page, at: usize) -> bool {
        let Some(pair) = self.it.processes.get(at) else { return false };
        page.plot(|| {
            let pairs = sizes::waits(pair);
            let plot = Compared {
                caption: format!("how long {} waited for a CPU", names::entity(&pair.b.process)),
                many: "waits",
                names: self.names(),
                is_per_second: true,
                pairs: &pairs,
            };
            self.processes.insert(at).then(|| plot.lengths()).flatten()
        })
    }

    /// The requests that a measure is of.
    pub(super) fn measure(&mut self, page: &mut Page, measure: &'c Measure) {
        if let (Some(op), Some(device)) = (sizes::requests_of(measure.what), &measure.of.device) {
            self.requests(page, device, op);
        }
    }

    fn requests(&mut self, page: &mut Page, device: &'c str, op: &'static str) {
        page.plot(|| {
            let pairs = sizes::requests(self.it, device, op);
            let mut caption =
                format!("how long {op}s of {} took", identifier(device, DEVICE_COLUMNS));
            for (letter, sampled) in ["A", "B"].into_iter().zip(self.sampled(device, op)) {
                if sampled > 1 {
                    caption +=
                        &format!("; {letter}: one in {} was measured", count(sampled.into()));
                }
            }
            let names = self.names();
            let plot =
                Compared { caption, many: "requests", names, is_per_second: false, pairs: &pairs };
            self.requests.insert((device, op)).then(|| plot.lengths()).flatten()
        });
    }

    /// One in how many requests was measured.
    fn sampled(&self, device: &str, op: &str) -> [u32; 2] {
        let pair = self.it.devices.iter().find(|it| it.device == device);
        [pair.and_then(|it| it.a.as_ref()), pair.and_then(|it| it.b.as_ref())].map(|side| {
            let mut latency = side.into_iter().flat_map(|side| &side.latency);
            latency.find(|it| it.op == op).map_or(1, |it| it.sampled_one_in)
        })
    }
}
