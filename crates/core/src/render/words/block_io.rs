// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a report says about block devices and their IO.

use super::super::names;
use super::portion;
use crate::finding::{Cause, DeviceIo, IoLatency, IoRow, IoRowsBy, OmittedDevices, RowKind};
use crate::text::escape::{identifier, label, sentence};
use crate::text::units::{bytes, count, counted, duration, share};

const DEVICE_COLUMNS: usize = 40;
const PATH_COLUMNS: usize = 100;
const REASON_COLUMNS: usize = 20;
/// Reasons and processes with a smaller share of a row are omitted.
const MIN_SHARE: f64 = 0.05;

/// What a device did.
pub(in super::super) fn head(device: &DeviceIo) -> String {
    let name = identifier(&device.device, DEVICE_COLUMNS);
    let mut parts = vec![
        counted(device.ios, "IO", "IOs"),
        format!("{} read", bytes(device.read_bytes as f64)),
        format!("{} written", bytes(device.write_bytes as f64)),
    ];
    if let Some(discarded) = device.discarded_bytes {
        parts.push(format!("{} discarded", bytes(discarded as f64)));
    }
    if let Some(busy) = device.busy_share {
        let depth =
            device.depth.map_or(String::new(), |depth| format!(", {depth:.1} at once then"));
        parts.push(format!("busy {} of the time{depth}", share(busy)));
    }
    format!("block IO of {name}: {}", parts.join(", "))
}

/// Who dirtied what was written back, if that is known.
pub(in super::super) fn dirtied(device: &DeviceIo) -> Option<String> {
    let names: Vec<String> = device.dirtied_by.iter().map(who).collect();
    (!names.is_empty())
        .then(|| format!("dirtied by {} (of the inodes that the flusher wrote)", names.join(", ")))
}

/// The name of a direction.
pub(in super::super) fn op(latency: &IoLatency) -> String {
    let name = match latency.op.as_str() {
        "read" => "reads",
        "write" => "writes",
        "other" => "others",
        other => other,
    };
    label(name, 10)
}

/// A percentile: the upper bound of its bucket.
pub(in super::super) fn under(ns: Option<u64>) -> String {
    ns.map_or("-".into(), |ns| format!("< {}", duration(ns as f64)))
}

/// The 99th percentiles of queue and device.
pub(in super::super) fn parts(latency: &IoLatency) -> String {
    let (queue, device) = (under(latency.queue_p99_ns), under(latency.device_p99_ns));
    format!("99 %: {queue} in queue, {device} in device")
}

/// That only some requests were measured, if so.
pub(in super::super) fn sampled(latency: &[IoLatency]) -> Option<String> {
    let sampled = latency.iter().map(|op| op.sampled_one_in).max().unwrap_or(1);
    (sampled > 1).then(|| {
        format!(
            "(of the requests that were looked at: while it was busiest, 1 in {sampled}; IOs and bytes in the other tables are \
             scaled up to all)"
        )
    })
}

/// The disks that have no section.
pub(in super::super) fn more(more: OmittedDevices) -> String {
    format!(
        "{} more: {}, {}",
        counted(more.devices, "disk", "disks"),
        counted(more.ios, "IO", "IOs"),
        bytes(more.bytes as f64)
    )
}

/// What the rows of a table stand for.
pub(in super::super) fn by(by: IoRowsBy) -> &'static str {
    match by {
        IoRowsBy::Process => "process",
        IoRowsBy::Cgroup => "cgroup of the pages",
        IoRowsBy::Pattern => "pattern of paths",
        IoRowsBy::Directory => "directory",
        IoRowsBy::File => "file",
    }
}

/// The name of a row, and what its IO was for.
pub(in super::super) fn named(row: &IoRow) -> String {
    let (name, purpose) = (row_name(row), purpose(row));
    if purpose.is_empty() { name } else { format!("{name}: {purpose}") }
}

/// Share of reads in the bytes of a row.
pub(in super::super) fn read(row: &IoRow) -> String {
    if row.bytes > 0 { share(row.read_bytes as f64 / row.bytes.max(1) as f64) } else { "-".into() }
}

/// Number of files of a row; empty where they are not counted.
pub(in super::super) fn files(row: &IoRow) -> String {
    let counted = row.kind != RowKind::Rest && row.count > 0;
    if counted { count(row.count as f64) } else { String::new() }
}

fn row_name(row: &IoRow) -> String {
    let name = row.name.as_deref().unwrap_or("not known");
    match (&row.entity, row.kind) {
        (_, RowKind::Rest) => counted(row.count, "other", "others"),
        (Some(entity), _) => names::entity(entity),
        (None, RowKind::Path) => identifier(name, PATH_COLUMNS),
        (None, _) => sentence(name),
    }
}

/// The omitted rows summed up into one, and the number of items that they represent.
pub(in super::super) fn sum(device: &DeviceIo, rows: &[IoRow]) -> (IoRow, u64) {
    let all = |of: fn(&IoRow) -> u64| rows.iter().map(of).fold(0, u64::saturating_add);
    let (ios, bytes) = (all(|row| row.ios), all(|row| row.bytes));
    let rest = IoRow {
        kind: RowKind::Rest,
        name: None,
        entity: None,
        count: 0,
        ios,
        ios_share: portion(ios, device.ios),
        bytes,
        bytes_share: portion(bytes, device.bytes),
        read_bytes: all(|row| row.read_bytes),
        write_bytes: all(|row| row.write_bytes),
        submitted_by: vec![],
        dirtied_by: vec![],
        writeback: vec![],
    };
    (rest, all(|row| if row.kind == RowKind::Rest { row.count } else { 1 }))
}

/// Why the kernel wrote back, and which processes dirtied the pages or, if not known, submitted the IO.
fn purpose(row: &IoRow) -> String {
    let reasons = row.writeback.iter().filter(|it| it.share >= MIN_SHARE);
    let mut parts: Vec<String> = reasons
        .map(|it| format!("{} {}", label(&it.reason, REASON_COLUMNS), share(it.share)))
        .collect();
    let most = |by: &[Cause]| -> Vec<String> {
        by.iter().filter(|it| it.share.get() >= MIN_SHARE).map(who).collect()
    };
    let dirtied = most(&row.dirtied_by);
    if dirtied.is_empty() {
        parts.extend(most(&row.submitted_by));
    } else {
        // More informative than the submitter, which is the flusher.
        parts.push(format!("dirtied by {}", dirtied.join(", ")));
    }
    parts.join(", ")
}

fn who(cause: &Cause) -> String {
    let name = names::entity(&cause.entity);
    let part = cause.share.get();
    if part > 0.995 { name } else { format!("{name} {}", share(part)) }
}
