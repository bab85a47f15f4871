// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Samples that are the kernel's own counters, as records for the rules: what a device did in each interval, added up.

use super::layouts::Parsed;
use super::layouts::iostat::{Iostat, Origin};
use super::meaning::Case;

use crate::recording::{
    BlockRecord, Coverage, DevId, Device, DiskCounters, DiskReading, Meta, Record, Source, State,
};
use std::borrow::Cow;

/// Largest number of records: a report over many devices and many intervals.
const MAX_RECORDS: usize = 1_000_000;

/// The records, and what became records.
pub(super) fn of(case: &Case<'_>) -> (Vec<Record>, Vec<String>) {
    let mut records = Vec::new();
    let mut from = Vec::new();
    let (mut end_ns, mut origin) = (0, Origin::default());
    // Several runs are not one window.
    let runs = case.sections.iter().filter_map(|section| match &section.parsed {
        Parsed::Iostat(it) => Some((section, Cow::Borrowed(it))),
        Parsed::Json(it) => it.disks.as_ref().map(|disks| (section, Cow::Borrowed(disks))),
        Parsed::Sysstat(it) => it.disks.as_ref().map(|disks| (section, Cow::Borrowed(disks))),
        Parsed::Diskstats(it) => {
            let (interval_s, _) = super::meaning::between_captures_s(case, section, it)?;
            Some((section, Cow::Owned(it.reports(interval_s))))
        }
        _ => None,
    });
    let runs = runs.filter(|(_, it)| it.reports() >= 2);
    if let Some((section, it)) = runs.max_by_key(|(_, it)| it.reports()) {
        let interval = match &section.parsed {
            Parsed::Diskstats(of) => super::meaning::between_captures_s(case, section, of),
            _ => super::meaning::interval_of_reports(case, section, &it),
        };
        if let Some((interval_s, _)) = interval {
            end_ns = disks(&it, interval_s, &mut records);
            origin = it.origin;
            from.push(format!("{} ({})", origin.name(), section.source()));
        }
    }
    if records.is_empty() {
        return (records, from);
    }
    let mut all = vec![Record::Meta(Box::new(Meta {
        cpus_online: (0..case.cpus().map_or(0, |(cpus, _)| cpus.min(8192))).collect(),
        ..Meta::default()
    }))];
    all.extend(coverage(origin));
    all.extend(records);
    all.push(Record::End { window_ns: end_ns });
    (all, from)
}

/// What the text has, and what it has not.
fn coverage(origin: Origin) -> impl Iterator<Item = Record> {
    Source::ALL.into_iter().filter(|source| !source.is_asked_for()).map(move |source| {
        let state = match source {
            Source::Diskstats => {
                let reason = match origin {
                    Origin::Iostat => "averages of iostat, rounded to hundredths",
                    Origin::Sar => {
                        "averages of sar, which tells reads from writes by their bytes only"
                    }
                    Origin::Diskstats => {
                        "captures, with what happened between the first and the last"
                    }
                };
                State::Partial { reason: reason.into() }
            }
            _ => State::Missing {
                reason: "not in the text that was read".into(),
                gain: String::new(),
            },
        };
        Record::Coverage(Coverage { t_ns: 0, source, state })
    })
}

/// Adds readings of `/proc/diskstats` as the tool must have seen them. Returns the time of the last.
fn disks(of: &Iostat, interval_s: f64, records: &mut Vec<Record>) -> u64 {
    let id = |device: usize| DevId { major: 0, minor: device as u32 };
    let reading = |t_ns, device, counters| {
        let reading = DiskReading { t_ns, device: id(device), counters };
        Record::Block(Box::new(BlockRecord::Disk(reading)))
    };
    for (index, name) in of.devices.iter().enumerate() {
        records.push(Record::Block(Box::new(BlockRecord::Device(Device {
            dev: id(index),
            name: name.clone(),
            disk: None,
            start_sector: None,
            sectors: None,
            backing: None,
            gone: false,
        }))));
        records.push(reading(0, index, DiskCounters::default()));
    }
    let mut sums = vec![DiskCounters::default(); of.devices.len()];
    let mut end_ns = 0;
    for row in of.rows.iter().take(MAX_RECORDS) {
        let amount = |rate: f64| (rate.clamp(0.0, 1e12) * interval_s) as u64;
        let time_ns = |rate: f64, ms: Option<f64>| amount(rate * ms.unwrap_or(0.0) * 1e6);
        let sum = &mut sums[row.device];
        sum.reads += amount(row.ios[0]);
        sum.writes += amount(row.ios[1]);
        sum.read_bytes += amount(row.bytes[0]);
        sum.write_bytes += amount(row.bytes[1]);
        sum.read_ns += time_ns(row.ios[0], row.await_ms[0]);
        sum.write_ns += time_ns(row.ios[1], row.await_ms[1]);
        sum.busy_ns += amount(row.util.unwrap_or(0.0).min(100.0) * 1e7);
        sum.depth_ns += amount(row.queue.unwrap_or(0.0).min(1e6) * 1e9);
        let t_ns = ((row.report - of.first + 1) as f64 * interval_s * 1e9) as u64;
        end_ns = end_ns.max(t_ns);
        records.push(reading(t_ns, row.device, *sum));
    }
    end_ns
}
