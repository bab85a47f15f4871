// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sums of transfers, and tables of them by file, directory, pattern, device, process or cgroup.

use super::BlockView;
use super::pattern::patterns;
use crate::recording::{CgroupId, DevId, FileId, FileState, IoOp, IoPurpose, IoTick, ProcId};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of kinds of transfers before further ones are summed without submitter and owner, and without their
/// file ([`FileId::OTHERS`]).
const MAX_SUMS: usize = 50_000;

/// Kind of transfers: each kind has one sum.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IoKey {
    /// The whole disk.
    pub device: DevId,
    /// What the transfers were for.
    pub what: IoPurpose,
    /// Direction.
    pub op: IoOp,
    /// The process that submitted them; a kernel thread for writeback.
    pub submitter: Option<ProcId>,
    /// The cgroup that owns the pages, or the submitter's where pages are not accounted.
    pub owner: Option<CgroupId>,
    /// The kernel's reason for writeback; `None` = no writeback.
    pub reason: Option<String>,
}

/// A sum of transfers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoSum {
    /// Number of transfers.
    pub ios: u64,
    /// Bytes of these transfers.
    pub bytes: u64,
    /// Sum of the latencies of their requests, in nanoseconds.
    pub total_ns: u64,
    /// Longest latency, in nanoseconds.
    pub max_ns: u64,
}

impl IoSum {
    /// Adds another sum.
    pub fn merge(&mut self, other: &Self) {
        self.ios = self.ios.saturating_add(other.ios);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }
}

/// What each row of a table stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowsBy {
    /// Each file.
    File,
    /// Each directory, without its subdirectories.
    Directory,
    /// Files whose paths differ in a component that varies.
    Pattern,
    /// Each device.
    Device,
    /// Each submitting process.
    Process,
    /// Each cgroup that owns the pages.
    Cgroup,
}

/// Identity of a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowName {
    /// A path, directory or pattern.
    Path(String),
    /// Transfers without a path: journals, metadata, ...
    Class(&'static str),
    /// A device.
    Device(DevId),
    /// A process.
    Process(Option<ProcId>),
    /// A cgroup.
    Cgroup(Option<CgroupId>),
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row<'v> {
    /// Identity of the row.
    pub name: RowName,
    /// Sum of the transfers. Discards count as transfers, but add no bytes.
    pub sum: IoSum,
    /// Number of files; 0 where files are not counted.
    pub files: u64,
    /// The kinds of transfers in the sum.
    pub parts: Vec<(&'v IoKey, &'v IoSum)>,
}

impl<'v> Row<'v> {
    /// A row without any transfer.
    #[must_use]
    pub fn new(name: RowName) -> Self {
        Self { name, sum: IoSum::default(), files: 0, parts: Vec::new() }
    }

    fn add(&mut self, key: &'v IoKey, sum: &'v IoSum) {
        // Discards move no data: the length of discarded ranges would hide what was read and written.
        let bytes = if key.what == IoPurpose::Discard { 0 } else { sum.bytes };
        self.sum.merge(&IoSum { bytes, ..*sum });
        self.parts.push((key, sum));
    }

    /// Adds the transfers of another row.
    pub fn merge(&mut self, other: Self) {
        self.sum.merge(&other.sum);
        self.files += other.files;
        self.parts.extend(other.parts);
    }

    /// Bytes discarded; `sum` does not include them.
    #[must_use]
    pub fn discarded_bytes(&self) -> u64 {
        let of = self.parts.iter().filter(|(key, _)| key.what == IoPurpose::Discard);
        of.map(|(_, sum)| sum.bytes).fold(0, u64::saturating_add)
    }

    /// Bytes in one direction.
    #[must_use]
    pub fn bytes(&self, op: IoOp) -> u64 {
        let of = self.parts.iter().filter(|(key, _)| key.op == op);
        of.map(|(_, sum)| sum.bytes).fold(0, u64::saturating_add)
    }
}

pub(super) fn add(sums: &mut BTreeMap<IoKey, IoSum>, tick: &IoTick) {
    let mut key = IoKey {
        device: tick.device,
        what: tick.what,
        op: tick.op,
        submitter: tick.submitter,
        owner: tick.owner,
        reason: tick.reason.clone(),
    };
    let sum =
        IoSum { ios: tick.ios, bytes: tick.bytes, total_ns: tick.total_ns, max_ns: tick.max_ns };
    if sums.len() >= MAX_SUMS && !sums.contains_key(&key) {
        let what = match key.what {
            IoPurpose::File(_) => IoPurpose::File(FileId::OTHERS),
            other => other,
        };
        key = IoKey { what, submitter: None, owner: None, ..key };
    }
    sums.entry(key).or_default().merge(&sum);
}

impl BlockView {
    /// Number of all transfers.
    #[must_use]
    pub fn transfers(&self) -> u64 {
        self.sums.values().map(|sum| sum.ios).fold(0, u64::saturating_add)
    }

    /// Table of the transfers whose kind satisfies `only`, most transfers first.
    #[must_use]
    pub fn tally(&self, by: RowsBy, only: impl Fn(&IoKey) -> bool) -> Vec<Row<'_>> {
        let wanted: Vec<(&IoKey, &IoSum)> = self.sums.iter().filter(|(key, _)| only(key)).collect();
        let mut rows: Vec<Row<'_>> = Vec::new();
        let mut places: BTreeMap<RowName, usize> = BTreeMap::new();
        let mut place = |rows: &mut Vec<Row<'_>>, name: RowName| match places.get(&name) {
            Some(&at) => at,
            None => {
                places.insert(name.clone(), rows.len());
                rows.push(Row::new(name));
                rows.len() - 1
            }
        };
        let mut of: BTreeMap<IoPurpose, usize> = BTreeMap::new();
        if matches!(by, RowsBy::File | RowsBy::Directory | RowsBy::Pattern) {
            for (what, name) in self.named(by, wanted.iter().map(|(key, _)| key.what).collect()) {
                let at = place(&mut rows, name);
                let file = matches!(what, IoPurpose::File(id) if id != FileId::OTHERS);
                rows[at].files += u64::from(file);
                of.insert(what, at);
            }
        }
        for (key, sum) in wanted {
            let at = match by {
                RowsBy::Device => place(&mut rows, RowName::Device(key.device)),
                RowsBy::Process => place(&mut rows, RowName::Process(key.submitter)),
                RowsBy::Cgroup => place(&mut rows, RowName::Cgroup(key.owner)),
                RowsBy::File | RowsBy::Directory | RowsBy::Pattern => of[&key.what],
            };
            rows[at].add(key, sum);
        }
        // Ties are ordered by bytes, then by name.
        rows.sort_by(|a, b| {
            (b.sum.ios, b.sum.bytes)
                .cmp(&(a.sum.ios, a.sum.bytes))
                .then_with(|| a.name.cmp(&b.name))
        });
        rows
    }

    /// Identity of the row to which each of `whats` belongs.
    fn named(&self, by: RowsBy, whats: BTreeSet<IoPurpose>) -> Vec<(IoPurpose, RowName)> {
        let (mut of, mut paths, mut named) = (Vec::new(), Vec::new(), Vec::new());
        for what in whats {
            match self.path(what) {
                Some(path) => {
                    of.push(what);
                    paths.push(path);
                }
                None => {
                    named.push((what, RowName::Class(class(what))));
                }
            }
        }
        let shown: Vec<String> = match by {
            RowsBy::Pattern => patterns(&paths.iter().map(String::as_str).collect::<Vec<_>>()),
            RowsBy::Directory => paths
                .iter()
                .map(|path| match path.rsplit_once('/') {
                    Some(("", _)) => "/".to_owned(),
                    Some((directory, _)) => directory.to_owned(),
                    None => path.clone(),
                })
                .collect(),
            _ => paths,
        };
        named.extend(of.into_iter().zip(shown.into_iter().map(RowName::Path)));
        named
    }

    /// The first process that was seen to dirty a file.
    #[must_use]
    pub fn dirtier(&self, what: IoPurpose) -> Option<ProcId> {
        let IoPurpose::File(id) = what else { return None };
        self.files.get(&id)?.dirtied_by
    }

    /// Number of a row's files by the first process that was seen to dirty them. Files without such a process are left
    /// out.
    #[must_use]
    pub fn dirtiers(&self, row: &Row<'_>) -> BTreeMap<ProcId, u64> {
        let files: BTreeSet<IoPurpose> = row.parts.iter().map(|(key, _)| key.what).collect();
        let mut dirtiers: BTreeMap<ProcId, u64> = BTreeMap::new();
        for by in files.into_iter().filter_map(|what| self.dirtier(what)) {
            *dirtiers.entry(by).or_default() += 1;
        }
        dirtiers
    }

    /// Path of a file as far as it is known. `None` if `what` is not a file, or if no name of the file is known.
    #[must_use]
    pub fn path(&self, what: IoPurpose) -> Option<String> {
        let IoPurpose::File(id) = what else { return None };
        let file = self.files.get(&id)?;
        if file.path.is_empty() || file.state == FileState::Nameless {
            return None;
        }
        if file.state != FileState::InFilesystem {
            return Some(file.path.clone());
        }
        let inside = file.path.trim_start_matches('/');
        Some(match self.mounts.get(&file.fs) {
            Some(mount) => format!("{}/{inside}", mount.point.trim_end_matches('/')),
            None => inside.to_owned(),
        })
    }
}

/// Row name of transfers without a path.
fn class(what: IoPurpose) -> &'static str {
    match what {
        IoPurpose::File(FileId::OTHERS) => "many more files, summed up",
        IoPurpose::File(_) => "files without a known name",
        IoPurpose::Metadata => "metadata of filesystems",
        IoPurpose::Journal => "journals of filesystems",
        IoPurpose::Flush => "cache flushes",
        IoPurpose::Discard => "discards",
        IoPurpose::Swap => "swapping",
        IoPurpose::RawDevice => "the device itself, without a filesystem",
        IoPurpose::Unknown => "not known",
    }
}
