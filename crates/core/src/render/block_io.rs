// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The section about block devices: by default only devices that findings refer to, with -v all devices and tables.

use super::page::{Colour, Page};
use super::table::{Column, Table};
use super::words::block_io as words;
use crate::finding::{BlockIo, DeviceIo, IoLatency, IoRow, IoRowsBy, IoTable};
use crate::text::units::{bytes, count, counted, duration, share};

/// Rows of a table at verbosity 1.
const ROWS_SHORT: usize = 5;
/// Narrower pages omit some columns.
const WIDE: usize = 80;

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
            let others: Vec<_> = others.map(|table| words::by(table.by)).collect();
            page.paragraph(2, 2, Colour::Aside, &format!("(by {} with -v)", others.join(", ")));
        }
    }
    if let Some(more) = io.more.filter(|_| all) {
        page.gap();
        let text = words::more(more);
        page.paragraph(0, 2, Colour::Aside, &text);
    }
}

fn head(page: &mut Page, device: &DeviceIo, all: bool) {
    page.gap();
    page.paragraph(0, 2, Colour::Heading, &words::head(device));
    times(page, &device.latency, all);
    if let Some(text) = words::dirtied(device) {
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
        // Separate percentiles of queue and device time.
        let parts = if all { words::parts(op) } else { String::new() };
        table.row([
            words::op(op),
            count(op.requests as f64),
            words::under(op.p50_ns),
            words::under(op.p99_ns),
            duration(op.max_ns as f64),
            share(op.queue_share),
            parts,
        ]);
    }
    table.write(page, 2);
    if let Some(text) = words::sampled(latency) {
        page.paragraph(2, 2, Colour::Aside, &text);
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
    let title = format!("by {}", words::by(io.by));
    names.push(&title);
    let mut table = Table::new(&columns);
    table.heading(names);
    let shown = &io.rows[..io.rows.len().min(most)];
    for row in shown {
        table.row(cells(row, words::named(row), show));
    }
    let hidden = &io.rows[shown.len()..];
    if !hidden.is_empty() {
        let (rest, number) = words::sum(device, hidden);
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

fn cells(row: &IoRow, name: String, show: OptionalColumns) -> Vec<String> {
    let mut cells = vec![
        bytes(row.bytes as f64),
        share(row.bytes_share),
        count(row.ios as f64),
        share(row.ios_share),
    ];
    if show.read {
        cells.push(words::read(row));
    }
    if show.files {
        cells.push(words::files(row));
    }
    cells.push(name);
    cells
}
