// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When devices were asked for something, and by whom.

use crate::recording::{DevId, IoCulprit, IoPace, ProcId};
use crate::view::Series;
use std::collections::BTreeMap;

/// Bins of 100 ms before they are merged in pairs: two minutes.
const SERIES_BINS: usize = 1200;
/// Those of a device that are told apart; more are [`ProcId::OTHERS`].
const MAX_SERIES: usize = 64;

/// Bytes asked for over time, by device and by whom.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Paces(BTreeMap<DevId, BTreeMap<IoCulprit, Series>>);

/// An empty series as those of [`Paces`].
#[must_use]
pub fn pace_series() -> Series {
    Series::new(IoPace::BIN_NS, SERIES_BINS)
}

impl Paces {
    pub(super) fn push(&mut self, pace: &IoPace) {
        let device = self.0.entry(pace.device).or_default();
        for (&by, sectors) in &pace.sectors {
            let by = match device.len() {
                known if known + 1 < MAX_SERIES || device.contains_key(&by) => by,
                _ => IoCulprit::Process(ProcId::OTHERS),
            };
            let series = device.entry(by).or_insert_with(pace_series);
            for (bin, &sectors) in sectors.iter().enumerate() {
                let t0_ns = pace.t0_ns.saturating_add(bin as u64 * IoPace::BIN_NS);
                let t1_ns = t0_ns.saturating_add(IoPace::BIN_NS).min(pace.t1_ns);
                series.add(t0_ns, t1_ns, sectors.saturating_mul(512));
            }
        }
    }

    /// Those of a device, in the order of the identities; the many with little are one, if it has any.
    pub fn of(&self, device: DevId) -> impl Iterator<Item = (IoCulprit, &Series)> {
        self.0.get(&device).into_iter().flatten().map(|(by, series)| (*by, series))
    }
}
