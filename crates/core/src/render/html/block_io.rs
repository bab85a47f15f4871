// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The block devices: what they did, how long requests took, and what the IO was for.

use super::super::words::block_io as words;
use super::markup::{Markup, class, none};
use super::{Cell, load, table};
use crate::finding::{BlockIo, DeviceIo, IoLatency, IoRow, IoRowsBy, IoTable};
use crate::text::units::{bytes, count, counted, duration, share};
use crate::view::{DevicePlot, Plots};

/// Devices whose tables are whole, besides those that explain a finding; of others the first rows are shown.
const WHOLE: usize = 3;
const ROWS_SHORT: usize = 6;

pub(super) fn all(to: &mut Markup, io: &BlockIo, plots: Option<&Plots>) {
    for (i, device) in io.devices.iter().enumerate() {
        to.element("div", &class("device"), |to| {
            to.prose("h3", &none(), &words::head(device));
            times(to, &device.latency);
            if let Some(text) = words::dirtied(device) {
                to.prose("p", &none(), &text);
            }
            let same = |it: &&DevicePlot| it.device == device.device;
            if let Some((plot, all)) =
                plots.and_then(|it| Some((it.devices.iter().find(same)?, it)))
            {
                load::device(to, plot, all.window_ns);
            }
            for table in &device.tables {
                let is_whole = i < WHOLE || device.explained_by.is_some();
                rows(to, device, table, if is_whole { usize::MAX } else { ROWS_SHORT });
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
fn rows(to: &mut Markup, device: &DeviceIo, io: &IoTable, most: usize) {
    let attributes = match device.explained_by == Some(io.by) {
        true => none().and("open", ""),
        false => none(),
    };
    let by = format!("by {}", words::by(io.by));
    let has_files = matches!(io.by, IoRowsBy::Pattern | IoRowsBy::Directory);
    let cells = |row: &IoRow, name: String| {
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
        cells.push(Cell::Words(name));
        cells
    };
    let mut headings = vec!["bytes", "", "", "IOs", "", "", "read"];
    headings.extend(has_files.then_some("files"));
    headings.push(&by);
    to.element("details", &attributes, |to| {
        to.tag("summary", &none(), &by);
        let (shown, hidden) = io.rows.split_at(io.rows.len().min(most));
        let mut rows: Vec<_> = shown.iter().map(|row| cells(row, words::named(row))).collect();
        if !hidden.is_empty() {
            let (rest, number) = words::sum(device, hidden);
            rows.push(cells(&rest, counted(number, "other", "others")));
        }
        table(to, &headings, rows);
    });
}
