// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The block devices: what they did, how long requests took, and what the IO was for.

use super::super::words::block_io as words;
use super::markup::{Markup, class, none};
use super::{Cell, table};
use crate::finding::{BlockIo, DeviceIo, IoLatency, IoRow, IoRowsBy, IoTable};
use crate::text::units::{bytes, count, duration, share};

pub(super) fn all(to: &mut Markup, io: &BlockIo) {
    for device in &io.devices {
        to.element("div", &class("device"), |to| {
            to.prose("h3", &none(), &words::head(device));
            times(to, &device.latency);
            if let Some(text) = words::dirtied(device) {
                to.prose("p", &none(), &text);
            }
            for table in &device.tables {
                rows(to, device, table);
            }
        });
    }
    if let Some(more) = io.more {
        to.tag("p", &class("aside"), &words::more(more));
    }
}

/// How long requests took, and how much of that they spent in the queue.
fn times(to: &mut Markup, latency: &[IoLatency]) {
    if latency.is_empty() {
        return;
    }
    let cells = |op: &IoLatency| {
        vec![
            Cell::Words(words::op(op)),
            Cell::Number(count(op.requests as f64)),
            Cell::Number(words::under(op.p50_ns)),
            Cell::Number(words::under(op.p99_ns)),
            Cell::Number(duration(op.max_ns as f64)),
            Cell::Number(share(op.queue_share)),
            Cell::Words(words::parts(op)),
        ]
    };
    let headings = ["", "requests", "50 %", "99 %", "longest", "in queue", ""];
    table(to, &headings, latency.iter().map(cells).collect());
    if let Some(text) = words::sampled(latency) {
        to.tag("p", &class("aside"), &text);
    }
}

/// A table of transfers. Open where it explains a finding.
fn rows(to: &mut Markup, device: &DeviceIo, io: &IoTable) {
    let attributes = match device.explained_by == Some(io.by) {
        true => none().and("open", ""),
        false => none(),
    };
    let by = format!("by {}", words::by(io.by));
    let has_files = matches!(io.by, IoRowsBy::Pattern | IoRowsBy::Directory);
    let cells = |row: &IoRow| {
        let mut cells = vec![
            Cell::Number(bytes(row.bytes as f64)),
            Cell::Number(share(row.bytes_share)),
            Cell::Bar(row.bytes_share, "c-bytes"),
            Cell::Number(count(row.ios as f64)),
            Cell::Number(share(row.ios_share)),
            Cell::Bar(row.ios_share, "c-count"),
            Cell::Number(words::read(row)),
        ];
        if has_files {
            cells.push(Cell::Number(words::files(row)));
        }
        cells.push(Cell::Words(words::named(row)));
        cells
    };
    let mut headings = vec!["bytes", "", "", "IOs", "", "", "read"];
    headings.extend(has_files.then_some("files"));
    headings.push(&by);
    to.element("details", &attributes, |to| {
        to.tag("summary", &none(), &by);
        table(to, &headings, io.rows.iter().map(cells).collect());
    });
}
