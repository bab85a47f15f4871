// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Transfers summed by what they were for.

use super::BlockView;
use super::pattern::patterns;
use crate::recording::{CgroupId, DevId, FileId, FileState, IoOp, IoTick, IoWhat, ProcId};
use std::collections::{BTreeMap, BTreeSet};

/// Kinds of transfers that are told apart; more are summed up as [`FileId::OTHERS`] of nobody.
const MAX_SUMS: usize = 50_000;

/// What transfers are summed by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IoKey {
    /// The whole disk.
    pub device: DevId,
    /// For what.
    pub what: IoWhat,
    /// Direction.
    pub op: IoOp,
    /// Who submitted them.
    pub submitter: Option<ProcId>,
    /// The cgroup that owns the pages.
    pub owner: Option<CgroupId>,
    /// Why the kernel wrote back; `None` = no writeback.
    pub reason: Option<String>,
}

/// A sum of transfers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoSum {
    /// Transfers.
    pub ios: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Sum of their times.
    pub total_ns: u64,
    /// Longest.
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

/// By what a table is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Each file.
    File,
    /// Each directory, without those below it.
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

/// What a row is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowName {
    /// A path, directory or pattern.
    Path(String),
    /// What has no path: `journal`, `metadata`, ...
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
pub struct Row {
    /// What it is about.
    pub name: RowName,
    /// What was transferred.
    pub sum: IoSum,
    /// How many files that is; 0 where files are not counted.
    pub files: u64,
    /// Of the bytes: read.
    pub read_bytes: u64,
    /// Of the bytes: written.
    pub write_bytes: u64,
    /// Transfers by who submitted them.
    pub submitters: BTreeMap<Option<ProcId>, u64>,
    /// Transfers that are writeback, by the reason.
    pub reasons: BTreeMap<String, u64>,
    /// Files by who was seen first to dirty them; those of which nobody was seen are left out.
    pub dirtied_by: BTreeMap<ProcId, u64>,
}

impl Row {
    /// A row without any transfer.
    #[must_use]
    pub fn new(name: RowName) -> Self {
        Self {
            name,
            sum: IoSum::default(),
            files: 0,
            read_bytes: 0,
            write_bytes: 0,
            submitters: BTreeMap::new(),
            reasons: BTreeMap::new(),
            dirtied_by: BTreeMap::new(),
        }
    }

    fn add(&mut self, key: &IoKey, sum: &IoSum) {
        self.sum.merge(sum);
        match key.op {
            IoOp::Read => self.read_bytes = self.read_bytes.saturating_add(sum.bytes),
            IoOp::Write => self.write_bytes = self.write_bytes.saturating_add(sum.bytes),
            IoOp::Other => {}
        }
        let by = self.submitters.entry(key.submitter).or_default();
        *by = by.saturating_add(sum.ios);
        if let Some(reason) = &key.reason {
            let why = self.reasons.entry(reason.clone()).or_default();
            *why = why.saturating_add(sum.ios);
        }
    }

    /// Adds what another row holds.
    pub fn merge(&mut self, other: Self) {
        self.sum.merge(&other.sum);
        self.files += other.files;
        self.read_bytes = self.read_bytes.saturating_add(other.read_bytes);
        self.write_bytes = self.write_bytes.saturating_add(other.write_bytes);
        for (by, ios) in other.submitters {
            let sum = self.submitters.entry(by).or_default();
            *sum = sum.saturating_add(ios);
        }
        for (reason, ios) in other.reasons {
            let sum = self.reasons.entry(reason).or_default();
            *sum = sum.saturating_add(ios);
        }
        for (by, files) in other.dirtied_by {
            *self.dirtied_by.entry(by).or_default() += files;
        }
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
            IoWhat::File(_) => IoWhat::File(FileId::OTHERS),
            other => other,
        };
        key = IoKey { what, submitter: None, owner: None, ..key };
    }
    sums.entry(key).or_default().merge(&sum);
}

impl BlockView {
    /// All transfers.
    #[must_use]
    pub fn transfers(&self) -> u64 {
        self.sums.values().map(|sum| sum.ios).fold(0, u64::saturating_add)
    }

    /// The transfers that `only` wants, as a table: most transfers first.
    #[must_use]
    pub fn tally(&self, by: By, only: impl Fn(&IoKey) -> bool) -> Vec<Row> {
        let wanted: Vec<(&IoKey, &IoSum)> = self.sums.iter().filter(|(key, _)| only(key)).collect();
        let named = match by {
            By::File | By::Directory | By::Pattern => {
                self.named(by, wanted.iter().map(|(key, _)| key.what).collect())
            }
            By::Device | By::Process | By::Cgroup => BTreeMap::new(),
        };
        let mut rows: BTreeMap<RowName, Row> = BTreeMap::new();
        for (what, name) in &named {
            let file = matches!(what, IoWhat::File(id) if *id != FileId::OTHERS);
            let row = rows.entry(name.clone()).or_insert_with(|| Row::new(name.clone()));
            row.files += u64::from(file);
            if let Some(by) = self.dirtier(*what) {
                *row.dirtied_by.entry(by).or_default() += 1;
            }
        }
        for (key, sum) in wanted {
            let name = match by {
                By::Device => RowName::Device(key.device),
                By::Process => RowName::Process(key.submitter),
                By::Cgroup => RowName::Cgroup(key.owner),
                By::File | By::Directory | By::Pattern => named[&key.what].clone(),
            };
            rows.entry(name.clone()).or_insert_with(|| Row::new(name)).add(key, sum);
        }
        let mut rows: Vec<Row> = rows.into_values().collect();
        // Stable: of equals, the order of the names stays.
        rows.sort_by_key(|row| std::cmp::Reverse((row.sum.ios, row.sum.bytes)));
        rows
    }

    /// What the row of each is called.
    fn named(&self, by: By, whats: BTreeSet<IoWhat>) -> BTreeMap<IoWhat, RowName> {
        let (mut of, mut paths, mut named) = (Vec::new(), Vec::new(), BTreeMap::new());
        for what in whats {
            match self.path(what) {
                Some(path) => {
                    of.push(what);
                    paths.push(path);
                }
                None => {
                    named.insert(what, RowName::Class(class(what)));
                }
            }
        }
        let shown: Vec<String> = match by {
            By::Pattern => patterns(&paths.iter().map(String::as_str).collect::<Vec<_>>()),
            By::Directory => paths
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

    /// Who was seen first to dirty a file.
    fn dirtier(&self, what: IoWhat) -> Option<ProcId> {
        let IoWhat::File(id) = what else { return None };
        self.files.get(&id)?.dirtied_by
    }

    /// The path of a file as it is known; `None` of what is none and of files without a name.
    #[must_use]
    pub fn path(&self, what: IoWhat) -> Option<String> {
        let IoWhat::File(id) = what else { return None };
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

/// What transfers without a path are called.
fn class(what: IoWhat) -> &'static str {
    match what {
        IoWhat::File(FileId::OTHERS) => "many more files, summed up",
        IoWhat::File(_) => "files without a known name",
        IoWhat::Metadata => "metadata of filesystems",
        IoWhat::Journal => "journals of filesystems",
        IoWhat::Flush => "cache flushes",
        IoWhat::Discard => "discards",
        IoWhat::Swap => "swapping",
        IoWhat::RawDevice => "the device itself, without a filesystem",
        IoWhat::Unknown => "not known",
    }
}
