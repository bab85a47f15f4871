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
pub struct Row<'v> {
    /// What it is about.
    pub name: RowName,
    /// What was transferred: discards count as transfers, not as bytes.
    pub sum: IoSum,
    /// How many files that is; 0 where files are not counted.
    pub files: u64,
    /// The kinds of transfers that it sums up.
    pub parts: Vec<(&'v IoKey, &'v IoSum)>,
}

impl<'v> Row<'v> {
    /// A row without any transfer.
    #[must_use]
    pub fn new(name: RowName) -> Self {
        Self { name, sum: IoSum::default(), files: 0, parts: Vec::new() }
    }

    fn add(&mut self, key: &'v IoKey, sum: &'v IoSum) {
        // Discards move nothing: sectors that are given back would hide what was read and written.
        let bytes = if key.what == IoWhat::Discard { 0 } else { sum.bytes };
        self.sum.merge(&IoSum { bytes, ..*sum });
        self.parts.push((key, sum));
    }

    /// Adds what another row holds.
    pub fn merge(&mut self, other: Self) {
        self.sum.merge(&other.sum);
        self.files += other.files;
        self.parts.extend(other.parts);
    }

    /// Bytes discarded, which are not among those of `sum`.
    #[must_use]
    pub fn discarded_bytes(&self) -> u64 {
        let of = self.parts.iter().filter(|(key, _)| key.what == IoWhat::Discard);
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
    pub fn tally(&self, by: By, only: impl Fn(&IoKey) -> bool) -> Vec<Row<'_>> {
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
        let mut of: BTreeMap<IoWhat, usize> = BTreeMap::new();
        if matches!(by, By::File | By::Directory | By::Pattern) {
            for (what, name) in self.named(by, wanted.iter().map(|(key, _)| key.what).collect()) {
                let at = place(&mut rows, name);
                let file = matches!(what, IoWhat::File(id) if id != FileId::OTHERS);
                rows[at].files += u64::from(file);
                of.insert(what, at);
            }
        }
        for (key, sum) in wanted {
            let at = match by {
                By::Device => place(&mut rows, RowName::Device(key.device)),
                By::Process => place(&mut rows, RowName::Process(key.submitter)),
                By::Cgroup => place(&mut rows, RowName::Cgroup(key.owner)),
                By::File | By::Directory | By::Pattern => of[&key.what],
            };
            rows[at].add(key, sum);
        }
        // Of equals, by name.
        rows.sort_by(|a, b| {
            (b.sum.ios, b.sum.bytes)
                .cmp(&(a.sum.ios, a.sum.bytes))
                .then_with(|| a.name.cmp(&b.name))
        });
        rows
    }

    /// What the row of each is called.
    fn named(&self, by: By, whats: BTreeSet<IoWhat>) -> Vec<(IoWhat, RowName)> {
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
    #[must_use]
    pub fn dirtier(&self, what: IoWhat) -> Option<ProcId> {
        let IoWhat::File(id) = what else { return None };
        self.files.get(&id)?.dirtied_by
    }

    /// The files of a row by who was seen first to dirty them; those of which nobody was seen are left out.
    #[must_use]
    pub fn dirtiers(&self, row: &Row<'_>) -> BTreeMap<ProcId, u64> {
        let files: BTreeSet<IoWhat> = row.parts.iter().map(|(key, _)| key.what).collect();
        let mut dirtiers: BTreeMap<ProcId, u64> = BTreeMap::new();
        for by in files.into_iter().filter_map(|what| self.dirtier(what)) {
            *dirtiers.entry(by).or_default() += 1;
        }
        dirtiers
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
