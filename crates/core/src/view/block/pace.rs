// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests to devices over time, by originator.

use crate::recording::{DevId, IoCulprit, IoPace, ProcId};
use crate::view::Series;
use std::collections::BTreeMap;

/// Maximum number of bins of a series: at first 100 ms each (two minutes), then merged in pairs.
const SERIES_BINS: u32 = 1200;
/// Maximum number of series of a device, including [`ProcId::OTHERS`], which sums all further originators.
const MAX_SERIES: usize = 64;

/// Bytes requested over time, by device and originator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Paces(BTreeMap<DevId, BTreeMap<IoCulprit, Series>>);

/// An empty series with the bins of [`Paces`].
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

    /// Series of a device by originator, in ascending order of [`IoCulprit`]. The small originators share one series.
    pub fn of(&self, device: DevId) -> impl Iterator<Item = (IoCulprit, &Series)> {
        self.0.get(&device).into_iter().flatten().map(|(by, series)| (*by, series))
    }
}
