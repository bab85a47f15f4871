// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the devices did, independent of findings: how busy and slow each was, and its transfers by process, cgroup,
//! pattern, directory and file.

use crate::finding::{
    Area, BlockIo, Cause, DeviceIo, Entity, EntityKind, Finding, IoLatency, IoRow, IoRowsBy,
    IoTable, OmittedDevices, RowKind, Share, Writeback,
};
use crate::recording::{DevId, IoOp, IoPurpose, ProcId};
use crate::rules::words::{cgroup_entity, cgroup_path, group_entity};
use crate::view::block::{Latency, Row, RowName, RowsBy, dirtied_inodes};
use crate::view::{Groups, View, waits};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

const MAX_DEVICES: usize = 8;
/// Maximum number of rows of a table: those with most bytes, ...
const BY_BYTES: usize = 16;
/// ... and those with most transfers that are not among them.
const BY_IOS: usize = 8;
const MAX_SUBMITTERS: usize = 2;
const MAX_DIRTIERS: usize = 4;
/// A table by cgroup explains a finding if a cgroup has at least this share of the bytes.
const MIN_EXPLAINS: f64 = 0.05;

const TABLES: [(IoRowsBy, RowsBy); 5] = [
    (IoRowsBy::Process, RowsBy::Process),
    (IoRowsBy::Cgroup, RowsBy::Cgroup),
    (IoRowsBy::Pattern, RowsBy::Pattern),
    (IoRowsBy::Directory, RowsBy::Directory),
    (IoRowsBy::File, RowsBy::File),
];

/// The block IO section of the report; `None` if no transfer and no activity was recorded.
pub(in crate::rules) fn of(view: &View, findings: &[Finding]) -> Option<BlockIo> {
    let block = view.block();
    let groups = view.groups();
    let mut sums: BTreeMap<DevId, (u64, u64)> =
        block.activity().keys().map(|device| (*device, (0, 0))).collect();
    for (key, sum) in block.sums() {
        let (ios, bytes) = sums.entry(key.device).or_default();
        *ios = ios.saturating_add(sum.ios);
        if key.what != IoPurpose::Discard {
            *bytes = bytes.saturating_add(sum.bytes);
        }
    }
    let mut sorted: Vec<(DevId, (u64, u64))> = sums.into_iter().collect();
    sorted.sort_by_key(|&(device, (ios, bytes))| (Reverse((bytes, ios)), device));
    let rest = sorted.split_off(sorted.len().min(MAX_DEVICES));
    let more = (!rest.is_empty()).then(|| OmittedDevices {
        devices: rest.len() as u64,
        ios: rest.iter().map(|it| it.1.0).fold(0, u64::saturating_add),
        bytes: rest.iter().map(|it| it.1.1).fold(0, u64::saturating_add),
    });
    let mut devices: Vec<DeviceIo> =
        sorted.into_iter().map(|(device, _)| device_io(view, &groups, device)).collect();
    explain(&mut devices, findings);
    (!devices.is_empty()).then_some(BlockIo { devices, more })
}

fn device_io(view: &View, groups: &Groups<'_>, device: DevId) -> DeviceIo {
    let block = view.block();
    let mut all = Row::new(RowName::Device(device));
    let rows = block.tally(RowsBy::Device, |key| key.device == device);
    rows.into_iter().for_each(|row| all.merge(row));
    let activity = block.activity().get(&device).filter(|activity| activity.seen_ns > 0);
    let latency = [IoOp::Read, IoOp::Write, IoOp::Other].into_iter().filter_map(|op| {
        let latency = block.latency().get(&(device, op))?;
        (latency.total.total_count() > 0).then(|| took(op.name(), latency))
    });
    let tables = TABLES.into_iter().map(|(by, tally)| {
        let rows = block.tally(tally, |key| key.device == device);
        IoTable { by, rows: table(view, groups, rows, &all) }
    });
    DeviceIo {
        device: block.device_name(device),
        number: device.to_string(),
        ios: all.sum.ios,
        bytes: all.sum.bytes,
        read_bytes: all.bytes(IoOp::Read),
        write_bytes: all.bytes(IoOp::Write),
        discarded_bytes: Some(all.discarded_bytes()).filter(|&bytes| bytes > 0),
        busy_share: activity.map(|activity| activity.busy_share().min(1.0)),
        depth: activity
            .filter(|activity| activity.busy_ns > 0)
            .map(|activity| activity.depth.total() as f64 / activity.busy_ns as f64),
        latency: latency.collect(),
        dirtied_by: dirtied_by(view, groups, device),
        tables: if all.sum.ios > 0 { tables.collect() } else { vec![] },
        explained_by: None,
    }
}

fn took(op: &str, latency: &Latency) -> IoLatency {
    let (requests, total_ns) = (latency.total.total_count(), latency.total.total_ns());
    let percentile = |hist, p| waits::percentile_ns(hist, p, latency.max_ns);
    IoLatency {
        op: op.to_owned(),
        requests,
        sampled_one_in: latency.sampled_one_in,
        mean_ns: total_ns / requests.max(1),
        queue_share: (latency.queue.total_ns() as f64 / total_ns.max(1) as f64).min(1.0),
        p50_ns: percentile(&latency.total, 0.5),
        p99_ns: percentile(&latency.total, 0.99),
        queue_p99_ns: percentile(&latency.queue, 0.99),
        device_p99_ns: percentile(&latency.device_time, 0.99),
        max_ns: latency.max_ns,
    }
}

/// The groups that first dirtied the inodes that the flusher wrote to a disk, with shares of the inodes whose dirtier
/// is known.
fn dirtied_by(view: &View, groups: &Groups<'_>, device: DevId) -> Vec<Cause> {
    let passes: Vec<_> = view
        .block()
        .passes()
        .iter()
        .filter(|pass| view.block().disk_of(pass.device) == device)
        .collect();
    let (by_group, known) = dirtied_inodes(groups, &passes);
    let causes = by_group.into_iter().take(MAX_DIRTIERS);
    causes
        .map(|(at, inodes)| Cause {
            entity: who(view, groups, at),
            share: Share::of(inodes, known),
        })
        .collect()
}

/// The group at that index as an entity; `None` stands for unknown processes.
fn who(view: &View, groups: &Groups<'_>, at: Option<usize>) -> Entity {
    match at {
        Some(at) => group_entity(view, &groups.list()[at]),
        None => Entity {
            note: Some("processes that are not known".into()),
            ..Entity::new(EntityKind::Unknown)
        },
    }
}

/// The rows to show, and the rest as one row.
fn table(view: &View, groups: &Groups<'_>, rows: Vec<Row<'_>>, all: &Row<'_>) -> Vec<IoRow> {
    let mut rows = together(groups, rows);
    rows.sort_by_key(|row| Reverse((row.sum.bytes, row.sum.ios)));
    let mut by_ios: Vec<usize> = (BY_BYTES.min(rows.len())..rows.len()).collect();
    by_ios.sort_by_key(|&at| Reverse((rows[at].sum.ios, rows[at].sum.bytes)));
    by_ios.truncate(BY_IOS);
    let kept: BTreeSet<usize> = (0..BY_BYTES.min(rows.len())).chain(by_ios).collect();
    let mut shown = Vec::new();
    let (mut rest, mut left) = (Row::new(RowName::Class("others")), 0);
    for (at, row) in rows.into_iter().enumerate() {
        if kept.contains(&at) {
            shown.push(io_row(view, groups, &row, all));
        } else {
            left += 1;
            rest.merge(row);
        }
    }
    if left > 0 {
        let rest = io_row(view, groups, &rest, all);
        shown.push(IoRow { kind: RowKind::Rest, count: left, ..rest });
    }
    shown
}

/// Merges the rows of processes of a group, as everywhere in a report.
fn together<'v>(groups: &Groups<'_>, rows: Vec<Row<'v>>) -> Vec<Row<'v>> {
    let mut first: BTreeMap<Option<usize>, usize> = BTreeMap::new();
    let mut merged: Vec<Row<'v>> = Vec::new();
    for row in rows {
        let RowName::Process(id) = row.name else {
            merged.push(row);
            continue;
        };
        let group = id.and_then(|id| groups.index_of(id));
        match first.get(&group) {
            Some(&at) => merged[at].merge(row),
            None => {
                first.insert(group, merged.len());
                merged.push(row);
            }
        }
    }
    merged
}

fn io_row(view: &View, groups: &Groups<'_>, row: &Row<'_>, all: &Row<'_>) -> IoRow {
    let class = |name: &str| (RowKind::Class, Some(name.to_owned()), None);
    let group = |id: Option<ProcId>| id.and_then(|id| groups.index_of(id));
    let (kind, name, entity) = match &row.name {
        RowName::Path(path) => (RowKind::Path, Some(path.clone()), None),
        RowName::Class(name) => class(name),
        RowName::Process(id) => match group(*id) {
            Some(at) => (RowKind::Process, None, Some(who(view, groups, Some(at)))),
            None => class("processes that are not known"),
        },
        RowName::Cgroup(Some(id)) if cgroup_path(view, *id).is_some() => {
            (RowKind::Cgroup, None, Some(cgroup_entity(view, *id)))
        }
        RowName::Cgroup(_) => class("no cgroup that is known"),
        RowName::Device(device) => class(&device.to_string()),
    };
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    let mut submitters: BTreeMap<Option<usize>, u64> = BTreeMap::new();
    let mut dirtiers: BTreeMap<Option<usize>, u64> = BTreeMap::new();
    for (key, sum) in &row.parts {
        *submitters.entry(group(key.submitter)).or_default() += sum.ios;
        let Some(reason) = &key.reason else { continue };
        *reasons.entry(reason).or_default() += sum.ios;
        *dirtiers.entry(group(view.block().dirtier(key.what))).or_default() += sum.ios;
    }
    let mut writeback: Vec<Writeback> = reasons
        .into_iter()
        .map(|(reason, n)| Writeback { reason: reason.to_owned(), share: part(n, row.sum.ios) })
        .collect();
    writeback.sort_by(|a, b| b.share.total_cmp(&a.share));
    let most = |by: BTreeMap<Option<usize>, u64>| -> Vec<Cause> {
        let mut by: Vec<(usize, u64)> =
            by.into_iter().filter_map(|(at, n)| Some((at?, n))).collect();
        by.sort_by_key(|&(at, n)| (Reverse(n), at));
        by.truncate(MAX_SUBMITTERS);
        let cause = |(at, n)| Cause {
            entity: who(view, groups, Some(at)),
            share: Share::of(n, row.sum.ios),
        };
        by.into_iter().map(cause).collect()
    };
    IoRow {
        kind,
        name,
        entity,
        count: row.files,
        ios: row.sum.ios,
        ios_share: part(row.sum.ios, all.sum.ios),
        bytes: row.sum.bytes,
        bytes_share: part(row.sum.bytes, all.sum.bytes),
        read_bytes: row.bytes(IoOp::Read),
        write_bytes: row.bytes(IoOp::Write),
        submitted_by: if kind == RowKind::Process { vec![] } else { most(submitters) },
        dirtied_by: most(dirtiers),
        writeback,
    }
}

fn part(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// Marks each device that a finding is about with the table that explains the finding.
fn explain(devices: &mut [DeviceIo], findings: &[Finding]) {
    for finding in findings.iter().filter(|finding| finding.area == Area::Block) {
        let is_about = |device: &DeviceIo| finding.device.as_ref() == Some(&device.device);
        // A finding without a device is about all disks together: the first one, with most bytes, says most.
        let at = devices.iter().position(is_about).unwrap_or(0);
        if let Some(device) = devices.get_mut(at).filter(|device| device.explained_by.is_none()) {
            device.explained_by = best(device, &finding.code);
        }
    }
}

fn best(device: &DeviceIo, code: &str) -> Option<IoRowsBy> {
    let owned = device.tables.iter().filter(|table| table.by == IoRowsBy::Cgroup).any(|table| {
        let known = |row: &IoRow| row.kind == RowKind::Cgroup && row.bytes_share >= MIN_EXPLAINS;
        table.rows.iter().any(known)
    });
    match code {
        _ if device.tables.is_empty() => None,
        // The flusher submits these transfers, so the owner of the pages says more. The files are in the finding.
        "BLK001" | "BLK002" | "BLK006" if owned => Some(IoRowsBy::Cgroup),
        _ => Some(IoRowsBy::Process),
    }
}
