// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The limits of cgroups at which groups of processes freed memory.

use crate::finding::{Evidence, Fix, Unit};
use crate::recording::{CgroupId, MemoryBound, ReclaimKind, Source};
use crate::rules::remedy;
use crate::rules::words::{self, evidence, ticked};
use crate::text::units;
use crate::view::{Group, ReclaimKey, View};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A limit at which threads freed memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Level {
    /// The cgroup whose limit it is; `None` = not known.
    pub(super) cgroup: Option<CgroupId>,
    /// Which limit of it.
    pub(super) bound: Option<MemoryBound>,
    /// For how long.
    pub(super) ns: u64,
}

pub(super) fn at_limit(key: &ReclaimKey) -> bool {
    key.kind == ReclaimKind::Limit
}

/// The limits at which a group freed memory, the one at which it did so longest first.
pub(super) fn levels(view: &View, group: &Group<'_>) -> Vec<Level> {
    let mut sums: BTreeMap<_, u64> = BTreeMap::new();
    for (id, _) in &group.members {
        for (key, of) in view.reclaim().of(*id).filter(|(key, _)| at_limit(key)) {
            *sums.entry((key.cgroup, key.bound)).or_default() += of.ns;
        }
    }
    let mut levels: Vec<_> =
        sums.into_iter().map(|((cgroup, bound), ns)| Level { cgroup, bound, ns }).collect();
    levels.sort_by_key(|level| Reverse(level.ns));
    levels
}

pub(super) fn file_of(bound: Option<MemoryBound>) -> &'static str {
    match bound {
        Some(MemoryBound::High) => "`memory.high`",
        _ => "`memory.max` (v1: `memory.limit_in_bytes`)",
    }
}

/// `` `/shop` (64 MiB) ``.
pub(super) fn in_words(view: &View, cgroup: Option<CgroupId>) -> String {
    let path = cgroup.and_then(|id| words::cgroup_path(view, id));
    let limit = cgroup.and_then(|id| view.reclaim().level(id).limit_bytes);
    match (path, limit) {
        (Some(path), Some(bytes)) => format!("{} ({})", ticked(&path), units::bytes(bytes as f64)),
        (Some(path), None) => ticked(&path),
        (None, _) => "a cgroup".into(),
    }
}

/// Of the pages that anybody freed at a limit, the part that was needed again a short while later, 0..1. `None` if that is not
/// known, or none were freed.
pub(super) fn came_back(view: &View, level: &Level) -> Option<f64> {
    let id = level.cgroup?;
    let pages = view.reclaim().counters(Some(id))?.refaults()?;
    let freed = view.reclaim().freed_at(id);
    (freed > 0).then(|| (pages as f64 / freed as f64).min(1.0))
}

/// What is known of a limit, and which part it has of `all_ns`; `of` says in words of what.
pub(super) fn line(view: &View, level: &Level, all_ns: u64, of: &str) -> Evidence {
    let label = Source::Reclaim.label();
    let Some(known) = level.cgroup.map(|id| view.reclaim().level(id)) else {
        let note = "at a limit that is not known: that of a cgroup which is gone, or of another than its own"
            .to_owned();
        return evidence(view, "limit not known", level.ns as f64, Unit::Ns, label, note);
    };
    let part = units::share(level.ns as f64 / all_ns.max(1) as f64);
    let usage = known
        .usage_bytes
        .map_or_else(|| "an unknown amount".into(), |bytes| units::bytes(bytes as f64));
    let name = in_words(view, level.cgroup);
    let note =
        format!("{} of {name}, {usage} in use when it bound; {part} {of}", file_of(level.bound));
    let bytes = known.limit_bytes.unwrap_or(0) as f64;
    evidence(view, "limit", bytes, Unit::Bytes, label, note)
}

/// Raises a limit: by a command, if all that it needs is known.
pub(super) fn raise(view: &View, level: Option<&Level>) -> Fix {
    let command = level.and_then(|it| remedy::raise_limit(view, it.cgroup?, it.bound?));
    command.unwrap_or_else(|| Fix {
        action: format!(
            "raise {} of {}",
            file_of(level.and_then(|it| it.bound)),
            in_words(view, level.and_then(|it| it.cgroup))
        ),
        command: None,
        risk: Some("the memory that it gets is taken from the host's other processes".into()),
        expect: None,
    })
}
