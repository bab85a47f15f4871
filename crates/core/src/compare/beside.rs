// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is put side by side and not tested: devices, files, quotas, settings.

use super::document::{DevicePair, DeviceSide, FilePair, QuotaPair, RequestSizes, SettingPair};
use super::summary::Summary;
use crate::finding::{IoRowsBy, Report, RowKind};
use std::collections::BTreeMap;

/// Most files that are told.
const MOST_FILES: usize = 10;
/// Least difference of a file's transfers that is told, in bytes per second.
const LEAST_BYTES_PER_S: f64 = 10_000.0;
/// Most settings and quotas that are told.
const MOST_ROWS: usize = 50;

/// Joins what two sides hold by key.
fn joined<K: Ord + Clone, V: Clone>(
    [a, b]: [&BTreeMap<K, V>; 2],
) -> Vec<(K, Option<V>, Option<V>)> {
    let mut keys: Vec<&K> = a.keys().chain(b.keys()).collect();
    keys.sort();
    keys.dedup();
    keys.into_iter().map(|key| (key.clone(), a.get(key).cloned(), b.get(key).cloned())).collect()
}

pub(super) fn devices(sides: [&Summary; 2]) -> Vec<DevicePair> {
    let sides = sides.map(|Summary { report, requests, .. }| {
        let seconds = report.window.seconds.max(1e-9);
        let all = report.block_io.iter().flat_map(|io| &io.devices);
        let sides = all.map(|it| {
            let side = DeviceSide {
                ios_per_s: it.ios as f64 / seconds,
                bytes_per_s: it.bytes as f64 / seconds,
                busy_share: it.busy_share,
                latency: it.latency.clone(),
                requests: requests
                    .iter()
                    .filter(|((device, _), sizes)| *device == it.device && !sizes.is_empty())
                    .map(|((_, op), sizes)| RequestSizes {
                        op: (*op).to_owned(),
                        sizes: sizes.clone(),
                    })
                    .collect(),
            };
            (it.device.clone(), side)
        });
        sides.collect::<BTreeMap<_, _>>()
    });
    let pairs = joined([&sides[0], &sides[1]]);
    pairs.into_iter().map(|(device, a, b)| DevicePair { device, a, b }).collect()
}

pub(super) fn files(reports: [&Report; 2]) -> Vec<FilePair> {
    let sides = reports.map(|report| {
        let mut files: BTreeMap<(String, String), (RowKind, f64)> = BTreeMap::new();
        for device in report.block_io.iter().flat_map(|io| &io.devices) {
            let tables = device.tables.iter().filter(|table| table.by == IoRowsBy::File);
            for row in tables.flat_map(|table| &table.rows) {
                if let (RowKind::Path | RowKind::Class, Some(name)) = (row.kind, &row.name) {
                    let rate = row.bytes as f64 / report.window.seconds.max(1e-9);
                    files.insert((device.device.clone(), name.clone()), (row.kind, rate));
                }
            }
        }
        files
    });
    let difference =
        |it: &FilePair| (it.b_bytes_per_s.unwrap_or(0.0) - it.a_bytes_per_s.unwrap_or(0.0)).abs();
    let mut files: Vec<FilePair> = joined([&sides[0], &sides[1]])
        .into_iter()
        .map(|((device, path), a, b)| FilePair {
            device,
            kind: a.or(b).map_or(RowKind::Path, |(kind, _)| kind),
            path,
            a_bytes_per_s: a.map(|(_, rate)| rate),
            b_bytes_per_s: b.map(|(_, rate)| rate),
        })
        .filter(|it| difference(it) >= LEAST_BYTES_PER_S)
        .collect();
    files.sort_by(|x, y| difference(y).total_cmp(&difference(x)));
    files.truncate(MOST_FILES);
    files
}

pub(super) fn quotas(sides: [&Summary; 2]) -> Vec<QuotaPair> {
    let pairs = joined(sides.map(|side| &side.quotas));
    let pairs = pairs.into_iter().map(|(cgroup, a, b)| QuotaPair { cgroup, a, b });
    pairs.take(MOST_ROWS).collect()
}

/// Whether the kernel derives the content of a file from the memory that is free.
fn is_derived(path: &str) -> bool {
    path.ends_with("/max_bytes") || path.ends_with("/min_bytes")
}

/// Settings of which both recordings have a reading, and that differ.
pub(super) fn settings(sides: [&Summary; 2]) -> Vec<SettingPair> {
    let pairs = joined(sides.map(|side| &side.settings)).into_iter();
    let differing = pairs.filter_map(|(path, a, b)| {
        let (a, b) = (a?, b?);
        (a != b && !is_derived(&path)).then_some(SettingPair { path, a, b })
    });
    differing.take(MOST_ROWS).collect()
}
