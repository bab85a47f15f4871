// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `biosnoop`: whose requests, and, with a partition table and the answers of `debugfs`, which file a sector belongs to.

use super::Case;
use crate::recording::{WaitHist, bucket_range_ns};
use crate::text::Unit;
use crate::text::ticked;
use crate::text::units::{self, duration, share};
use crate::transcript::document::{Statement, Weight};
use crate::transcript::engine::Section;
use crate::transcript::layouts::Parsed;
use crate::transcript::layouts::biosnoop::{Request, Requests};
use crate::transcript::layouts::fdisk::Partition;

/// Originators that are told one by one.
const MAX_WHO: usize = 8;
/// Sectors that are explained.
const MAX_SECTORS: usize = 5;
/// Sizes of a block of a filesystem, in sectors of 512 bytes: 4, 1 and 2 KiB, the usual one first.
const BLOCKS: [u64; 3] = [8, 2, 4];

pub(super) fn statements(case: &Case<'_>, section: &Section, of: &Requests) -> Vec<Statement> {
    let mut all: Vec<Statement> = summary(section, of).into_iter().collect();
    all.extend(files(case, section, of));
    all
}

fn summary(section: &Section, of: &Requests) -> Option<Statement> {
    let mut by: Vec<_> = of.by.iter().collect();
    by.sort_by_key(|(_, sum)| std::cmp::Reverse((sum.bytes, sum.ios)));
    let (most, sum) = by.first()?;
    let bytes: u64 = of.by.values().fold(0, |all, sum| all.saturating_add(sum.bytes));
    let (from_s, to_s) = of.range_s?;
    let source = section.source();
    let title = format!(
        "{} in {}: {} has most of the bytes, {}",
        units::counted(of.ios, "request", "requests"),
        duration((to_s - from_s) * 1e9),
        ticked(&most.comm),
        share(sum.bytes as f64 / bytes.max(1) as f64)
    );
    let mut statement = Statement::new("requests-by-thread", Weight::Fact, title);
    for (who, sum) in by.iter().take(MAX_WHO) {
        let p99 = p99_ns(&sum.latency)
            .map_or(String::new(), |ns| format!("99 % below {}, ", duration(ns as f64)));
        let name = format!("{} on {}, {}", ticked(&who.comm), who.disk, who.op);
        statement = statement.number(&name, sum.ios as f64, Unit::Count, &source).note(format!(
            "requests, {}; {p99}the longest {}",
            units::bytes(sum.bytes as f64),
            duration(sum.max_ns as f64)
        ));
    }
    if section.elided {
        statement =
            statement.cannot("how often anything happened: lines were left out of the text");
    }
    Some(
        statement
            .cannot("whose data they are: the thread that submits a write is often not the one that made it")
            .settled_by("deburr -d 60"),
    )
}

/// Upper edge of the row with the 99th percentile; `None` with fewer than 100.
fn p99_ns(latency: &WaitHist) -> Option<u64> {
    let all = latency.total_count();
    if all < 100 {
        return None;
    }
    let mut seen = 0;
    let row = latency.count.iter().position(|count| {
        seen += count;
        seen as f64 >= 0.99 * all as f64
    })?;
    Some(bucket_range_ns(row).1).filter(|ns| *ns != u64::MAX)
}

/// The partition that a sector of a disk is in, and its section.
fn partition<'s>(case: &Case<'s>, request: &Request) -> Option<(&'s Section, &'s Partition)> {
    case.sections.iter().find_map(|section| match &section.parsed {
        Parsed::Fdisk(it) => {
            let of_disk = |part: &&Partition| {
                let rest =
                    part.name.strip_prefix(&request.disk).map(|rest| rest.trim_start_matches('p'));
                let is_number = rest.is_some_and(|rest| {
                    !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit())
                });
                is_number && !part.extended && (part.start..=part.end).contains(&request.sector)
            };
            it.all.iter().find(of_disk).map(|part| (section, part))
        }
        _ => None,
    })
}

/// The inode of a block and its path, by the answers of `debugfs`, with their lines.
fn named<'s>(case: &Case<'s>, block: u64) -> Option<(&'s Section, u64, u64, Option<&'s str>)> {
    case.sections.iter().find_map(|section| match &section.parsed {
        Parsed::Debugfs(it) => {
            let (line, _, inode) = it.blocks.iter().find(|(_, own, _)| *own == block)?;
            let path =
                it.paths.iter().find(|(_, own, _)| own == inode).map(|(.., path)| path.as_str());
            Some((section, *line, *inode, path))
        }
        _ => None,
    })
}

fn files(case: &Case<'_>, section: &Section, of: &Requests) -> Vec<Statement> {
    let placed: Vec<_> =
        of.first.iter().filter_map(|request| Some((request, partition(case, request)?))).collect();
    // Those whose file is known first; without any, one says how to go on.
    let mut found: Vec<Statement> = placed
        .iter()
        .filter_map(|(request, (table, part))| {
            let offset = request.sector - part.start;
            let block = BLOCKS.iter().filter(|size| offset.is_multiple_of(**size));
            let (size, answer) =
                block.clone().find_map(|size| Some((*size, named(case, offset / size)?)))?;
            let (answers, line, inode, path) = answer;
            let file = path.map_or(format!("inode {inode}"), |path| {
                format!("{}, inode {inode}", ticked(path))
            });
            let title = format!(
                "sector {} of {}, written or read by {}, is a block of {file}",
                request.sector,
                ticked(&request.disk),
                ticked(&request.comm)
            );
            Some(
                Statement::new("file-of-sector", Weight::Fact, title)
                    .number(
                        "sector",
                        request.sector as f64,
                        Unit::Count,
                        &section.source_of((request.line, request.line)),
                    )
                    .number(
                        "start of the partition",
                        part.start as f64,
                        Unit::Count,
                        &table.source_of((part.line, part.line)),
                    )
                    .note(format!("{}, in sectors of 512 bytes", part.name))
                    .number(
                        "block",
                        (offset / size) as f64,
                        Unit::Count,
                        &answers.source_of((line, line)),
                    )
                    .note(format!(
                        "(sector - start) / {size}: blocks of {}",
                        units::bytes((size * 512) as f64)
                    ))
                    .cannot(
                        "whether the file is still there: blocks are freed and given to others",
                    ),
            )
        })
        .take(MAX_SECTORS)
        .collect();
    if let (true, Some((request, (table, part)))) = (found.is_empty(), placed.first()) {
        let title = format!(
            "sector {} of {} is in partition {}, {} sectors from its start",
            request.sector,
            ticked(&request.disk),
            ticked(&part.name),
            request.sector - part.start
        );
        found.push(
            Statement::new("file-of-sector", Weight::Fact, title)
                .number(
                    "start of the partition",
                    part.start as f64,
                    Unit::Count,
                    &table.source_of((part.line, part.line)),
                )
                .cannot("which file it belongs to: that takes the filesystem")
                .settled_by(format!("deburr sector {} {}", request.disk, request.sector)),
        );
    }
    found
}
