// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The section about block devices: by default only devices that findings refer to, with -v all devices and tables.

use super::names;
use super::page::{Colour, Page};
use super::table::{Column, Table};
use crate::finding::{BlockIo, Cause, DeviceIo, IoLatency, IoRow, IoRowsBy, IoTable, RowKind};
use crate::text::escape::{identifier, label, sentence};
use crate::text::units::{bytes, count, counted, duration, share};

/// Rows of a table at verbosity 1.
const ROWS_SHORT: usize = 5;
/// Narrower pages omit some columns.
const WIDE: usize = 80;
const DEVICE_COLUMNS: usize = 40;
const PATH_COLUMNS: usize = 100;
const REASON_COLUMNS: usize = 20;
/// Reasons and processes with a smaller share of a row are omitted.
const MIN_SHARE: f64 = 0.05;

/// Writes the section: at verbosity 1 the devices that findings refer to, each with the table that explains it; from 2
/// on all tables of all devices.
pub(super) fn write(page: &mut Page, io: &BlockIo, verbosity: u8) {
    if verbosity == 0 {
        return;
    }
    let all = verbosity >= 2;
    for device in io.devices.iter().filter(|device| all || device.explained_by.is_some()) {
        head(page, device, all);
        for table in &device.tables {
            let explains = device.explained_by == Some(table.by);
            if all {
                write_table(page, device, table, usize::MAX);
            } else if explains {
                write_table(page, device, table, ROWS_SHORT);
            }
        }
        if !all && device.tables.len() > 1 {
            let others = device.tables.iter().filter(|it| device.explained_by != Some(it.by));
            let others: Vec<_> = others.map(|table| by(table.by)).collect();
            page.paragraph(2, 2, Colour::Aside, &format!("(by {} with -v)", others.join(", ")));
        }
    }
    if let Some(more) = io.more.filter(|_| all) {
        page.gap();
        let text = format!(
            "{} more: {}, {}",
            counted(more.devices, "disk", "disks"),
            counted(more.ios, "IO", "IOs"),
            bytes(more.bytes as f64)
        );
        page.paragraph(0, 2, Colour::Aside, &text);
    }
}

fn head(page: &mut Page, device: &DeviceIo, all: bool) {
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
    page.gap();
    page.paragraph(0, 2, Colour::Heading, &format!("block IO of {name}: {}", parts.join(", ")));
    times(page, &device.latency, all);
    if !device.dirtied_by.is_empty() {
        let names: Vec<String> = device.dirtied_by.iter().map(who).collect();
        let text =
            format!("dirtied by {} (of the inodes that the flusher wrote)", names.join(", "));
        page.paragraph(2, 2, Colour::Plain, &text);
    }
}

/// How long requests took, and how much of that they spent in the queue.
fn times(page: &mut Page, latency: &[IoLatency], all: bool) {
    use Column::{Left, Right};
    if latency.is_empty() {
        return;
    }
    let mut table = Table::new(&[Left(10), Right, Right, Right, Right, Right, Left(usize::MAX)]);
    let all = all && page.columns() >= WIDE;
    let names = ["", "requests", "50 %", "99 %", "longest", "in queue", ""];
    table.heading(names);
    for op in latency {
        let time =
            |ns: Option<u64>| ns.map_or("-".into(), |ns| format!("< {}", duration(ns as f64)));
        let name = match op.op.as_str() {
            "read" => "reads",
            "write" => "writes",
            "other" => "others",
            other => other,
        };
        // Separate percentiles of queue and device time.
        let parts = if all {
            format!(
                "99 %: {} in queue, {} in device",
                time(op.queue_p99_ns),
                time(op.device_p99_ns)
            )
        } else {
            String::new()
        };
        table.row([
            label(name, 10),
            count(op.requests as f64),
            time(op.p50_ns),
            time(op.p99_ns),
            duration(op.max_ns as f64),
            share(op.queue_share),
            parts,
        ]);
    }
    table.write(page, 2);
    let sampled = latency.iter().map(|op| op.sampled_one_in).max().unwrap_or(1);
    if sampled > 1 {
        let text = format!(
            "(of the requests that were looked at only, at the busiest one in {sampled}; IOs and bytes in the other tables \
             are scaled up to all)"
        );
        page.paragraph(2, 2, Colour::Aside, &text);
    }
}

fn by(by: IoRowsBy) -> &'static str {
    match by {
        IoRowsBy::Process => "process",
        IoRowsBy::Cgroup => "cgroup of the pages",
        IoRowsBy::Pattern => "pattern of paths",
        IoRowsBy::Directory => "directory",
        IoRowsBy::File => "file",
    }
}

fn write_table(page: &mut Page, device: &DeviceIo, io: &IoTable, most: usize) {
    use Column::{Left, Right};
    let of_files = matches!(io.by, IoRowsBy::Pattern | IoRowsBy::Directory);
    let show =
        OptionalColumns { read: page.columns() >= WIDE, files: of_files && page.columns() >= WIDE };
    let (mut columns, mut names) = (vec![Right; 4], vec!["bytes", "", "IOs", ""]);
    for (is_shown, name) in [(show.read, "read"), (show.files, "files")] {
        if is_shown {
            columns.push(Right);
            names.push(name);
        }
    }
    // Names come last: they can be long, and are followed by the purpose of the IO.
    columns.push(Left(usize::MAX));
    let title = format!("by {}", by(io.by));
    names.push(&title);
    let mut table = Table::new(&columns);
    table.heading(names);
    let shown = &io.rows[..io.rows.len().min(most)];
    for row in shown {
        table.row(cells(row, row_name(row), show));
    }
    let hidden = &io.rows[shown.len()..];
    if !hidden.is_empty() {
        let (rest, number) = sum(device, hidden);
        table.row(cells(&rest, counted(number, "other", "others"), show));
    }
    page.gap();
    table.write(page, 2);
}

/// Optional columns of a table.
#[derive(Clone, Copy)]
struct OptionalColumns {
    read: bool,
    files: bool,
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

fn cells(row: &IoRow, name: String, show: OptionalColumns) -> Vec<String> {
    let mut cells = vec![
        bytes(row.bytes as f64),
        share(row.bytes_share),
        count(row.ios as f64),
        share(row.ios_share),
    ];
    if show.read {
        let part = row.read_bytes as f64 / row.bytes.max(1) as f64;
        cells.push(if row.bytes > 0 { share(part) } else { "-".into() });
    }
    if show.files {
        let counted = row.kind != RowKind::Rest && row.count > 0;
        cells.push(if counted { count(row.count as f64) } else { String::new() });
    }
    let purpose = purpose(row);
    cells.push(if purpose.is_empty() { name } else { format!("{name}: {purpose}") });
    cells
}

/// The omitted rows summed up into one, and the number of items that they represent.
fn sum(device: &DeviceIo, rows: &[IoRow]) -> (IoRow, u64) {
    let all = |of: fn(&IoRow) -> u64| rows.iter().map(of).fold(0, u64::saturating_add);
    let part = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    let (ios, bytes) = (all(|row| row.ios), all(|row| row.bytes));
    let rest = IoRow {
        kind: RowKind::Rest,
        name: None,
        entity: None,
        count: 0,
        ios,
        ios_share: part(ios, device.ios),
        bytes,
        bytes_share: part(bytes, device.bytes),
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
