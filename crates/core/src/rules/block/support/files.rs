// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which files a disk's IO was for, as a table, and which processes dirtied them.

use crate::finding::{FileShare, FileTable};
use crate::recording::WritebackPass;
use crate::rules::words::{group_name, ticked};
use crate::text::units;
use crate::view::block::{IoKey, IoSum, Row, RowName, RowsBy, dirtied_inodes};
use crate::view::{Groups, View};
use std::collections::BTreeMap;

/// Maximum number of rows of a table; further ones add little.
const MAX_ROWS: usize = 8;
/// A row needs at least this share of the transfers or of the bytes.
const MIN_SHARE: f64 = 0.005;
const MAX_DIRTIERS: usize = 3;
const MAX_PATTERNS: usize = 3;

/// A table of the transfers that `only` selects, by file pattern; `None` if there are none.
pub(in crate::rules::block) fn table(
    view: &View,
    of: &str,
    only: impl Fn(&IoKey) -> bool,
) -> Option<FileTable> {
    let rows = view.block().tally(RowsBy::Pattern, only);
    let mut all = IoSum::default();
    rows.iter().for_each(|row| all.merge(&row.sum));
    if all.ios == 0 {
        return None;
    }
    let part = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    let share = |row: &Row<'_>| (part(row.sum.ios, all.ios), part(row.sum.bytes, all.bytes));
    let is_shown = |row: &&Row<'_>| share(row).0.max(share(row).1) >= MIN_SHARE;
    let (mut shown, mut rest) = (Vec::new(), (IoSum::default(), 0));
    for row in &rows {
        if shown.len() < MAX_ROWS && is_shown(&row) {
            let (ios_share, bytes_share) = share(row);
            shown.push(FileShare {
                name: name(&row.name),
                is_path: matches!(row.name, RowName::Path(_)),
                files: row.files,
                ios: row.sum.ios,
                ios_share,
                bytes: row.sum.bytes,
                bytes_share,
            });
        } else {
            rest.0.merge(&row.sum);
            rest.1 += row.files;
        }
    }
    if rest.0.ios > 0 {
        shown.push(FileShare {
            name: "others".into(),
            is_path: false,
            files: rest.1,
            ios: rest.0.ios,
            ios_share: part(rest.0.ios, all.ios),
            bytes: rest.0.bytes,
            bytes_share: part(rest.0.bytes, all.bytes),
        });
    }
    Some(FileTable { of: of.into(), ios: all.ios, bytes: all.bytes, rows: shown })
}

fn name(name: &RowName) -> String {
    match name {
        RowName::Path(path) => path.clone(),
        RowName::Class(class) => (*class).to_owned(),
        // These do not occur in a table by pattern.
        RowName::Device(_) | RowName::Process(_) | RowName::Cgroup(_) => String::new(),
    }
}

/// For each file pattern among the transfers that `only` selects, the processes that were seen to dirty its files
/// first, patterns with most transfers first: `` `/data/queue/*` by `java` ``. Empty if no process was seen.
pub(in crate::rules::block) fn dirtied_patterns(
    view: &View,
    groups: &Groups<'_>,
    only: impl Fn(&IoKey) -> bool,
) -> Vec<String> {
    let line = |row: &Row<'_>| {
        let RowName::Path(path) = &row.name else { return None };
        let mut by_name: BTreeMap<String, u64> = BTreeMap::new();
        for (proc, files) in view.block().dirtiers(row) {
            let name = groups.index_of(proc).map(|at| ticked(groups.list()[at].comm));
            *by_name.entry(name.unwrap_or("others".into())).or_default() += files;
        }
        let mut names: Vec<(String, u64)> = by_name.into_iter().collect();
        names.sort_by_key(|(_, files)| std::cmp::Reverse(*files));
        names.truncate(MAX_DIRTIERS);
        let names: Vec<String> = names.into_iter().map(|(name, _)| name).collect();
        (!names.is_empty()).then(|| format!("{} by {}", ticked(path), names.join(", ")))
    };
    view.block().tally(RowsBy::Pattern, only).iter().filter_map(line).take(MAX_PATTERNS).collect()
}

/// Names of the groups that first dirtied the inodes that passes wrote, with shares of the inodes whose dirtier is
/// known. And the share of the inodes for which it is known, 0..1.
pub(in crate::rules::block) fn dirtiers(
    groups: &Groups<'_>,
    passes: &[&WritebackPass],
) -> Option<(String, f64)> {
    let (sorted, known) = dirtied_inodes(groups, passes);
    let inodes: u64 = passes.iter().map(|pass| pass.inodes).sum();
    let names: Vec<String> = sorted
        .iter()
        .take(MAX_DIRTIERS)
        .map(|(at, inodes)| {
            let name = at
                .map_or("processes that are not known".into(), |at| group_name(&groups.list()[at]));
            format!("{name} {}", units::share(*inodes as f64 / known.max(1) as f64))
        })
        .collect();
    (known > 0).then(|| (names.join(", "), known as f64 / inodes.max(known).max(1) as f64))
}
