// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The column of an `io_pace`: how much each culprit asked of a device per bin, as packed bytes.
//!
//! Packed numbers: the number of bins, then for each series its culprit (0: a process, with its identity;
//! 1: writeback, with the cgroup; 2: writeback for an unknown cgroup; 3: the filesystem; 4: the device) and its bins.

use super::column::{Cell, Cells, Column, Columns, Result};
use super::packed;
use deburr_core::recording::{CgroupId, IoCulprit, ProcId};
use deburr_core::sqlite::Value;
use serde_json::json;
use std::collections::BTreeMap;

/// Limit against damaged files: a wrong number must not make the reader allocate all memory. A second has 10 bins.
const MOST_BINS: u64 = 4_096;

impl Columns for BTreeMap<IoCulprit, Vec<u64>> {
    fn columns(name: &'static str, to: &mut Vec<Column>) {
        to.push(Column::new(name, "BLOB"));
    }

    fn write<'a>(&'a self, to: &mut Vec<Cell<'a>>) {
        to.push(Cell::Blob(blob(self)));
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self> {
        let series = match cells.next()? {
            Value::Blob(bytes) => read(bytes),
            _ => None,
        };
        series.ok_or_else(|| cells.damage("expected the bins of an `io_pace`"))
    }
}

/// Packs the series.
fn blob(series: &BTreeMap<IoCulprit, Vec<u64>>) -> Vec<u8> {
    let count = series.values().map(Vec::len).max().unwrap_or(0);
    let mut numbers = vec![count as u64];
    for (by, bins) in series {
        match by {
            IoCulprit::Process(id) => numbers.extend([0, id.0.into()]),
            IoCulprit::Writeback(Some(id)) => numbers.extend([1, id.0]),
            IoCulprit::Writeback(None) => numbers.push(2),
            IoCulprit::Filesystem => numbers.push(3),
            IoCulprit::Device => numbers.push(4),
        }
        numbers.extend(bins.iter().chain(std::iter::repeat(&0)).take(count));
    }
    packed::bytes(numbers)
}

/// Unpacks the series; `None` if the bytes are anything else.
fn read(bytes: &[u8]) -> Option<BTreeMap<IoCulprit, Vec<u64>>> {
    let mut numbers = packed::numbers(bytes)?.into_iter();
    let count = numbers.next().filter(|count| *count <= MOST_BINS)?;
    let mut series = BTreeMap::new();
    while let Some(word) = numbers.next() {
        let by = match word {
            0 => IoCulprit::Process(ProcId(numbers.next()?.try_into().ok()?)),
            1 => IoCulprit::Writeback(Some(CgroupId(numbers.next()?))),
            2 => IoCulprit::Writeback(None),
            3 => IoCulprit::Filesystem,
            4 => IoCulprit::Device,
            _ => return None,
        };
        let bins: Vec<u64> = numbers.by_ref().take(count as usize).collect();
        if bins.len() as u64 != count || series.insert(by, bins).is_some() {
            return None;
        }
    }
    Some(series)
}

/// The series as JSON: a list of objects with `culprit`, `proc` or `cgroup` where it has one, and `bins`. `None` if the
/// bytes are anything else.
pub(super) fn json(bytes: &[u8]) -> Option<String> {
    let series = read(bytes)?.into_iter().map(|(by, bins)| match by {
        IoCulprit::Process(id) => json!({"culprit": "process", "proc": id.0, "bins": bins}),
        IoCulprit::Writeback(Some(id)) => {
            json!({"culprit": "writeback", "cgroup": id.0, "bins": bins})
        }
        IoCulprit::Writeback(None) => json!({"culprit": "writeback", "bins": bins}),
        IoCulprit::Filesystem => json!({"culprit": "filesystem", "bins": bins}),
        IoCulprit::Device => json!({"culprit": "device", "bins": bins}),
    });
    Some(serde_json::Value::from_iter(series).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_series_is_refused() {
        let series = BTreeMap::from([(IoCulprit::Process(ProcId(7)), vec![0, 300])]);
        let bytes = blob(&series);
        assert_eq!(bytes, [2, 0, 7, 0, 0xac, 0x02]);
        assert_eq!(read(&bytes), Some(series));
        for wrong in [
            &[][..],
            &[2, 0, 7, 0],
            &[2, 5],
            &[2, 5, 0, 0],
            &[1, 3, 0, 3, 0],
            &[0xff, 0xff, 0xff, 0x7f],
        ] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_get_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = read(&bytes);
        }
    }
}
