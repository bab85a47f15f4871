// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long limits of IO held threads back, and which limits they are.

use super::knobs;
use crate::recording::{DevId, IoOp, ProcId, StallKind};
use crate::view::block::HeldBack;
use crate::view::{Series, View};
use std::collections::{BTreeMap, BTreeSet};

/// What was held back of one cgroup.
#[derive(Clone, Debug, Default)]
pub(in crate::rules::block) struct OfCgroup<'v> {
    /// By device and direction.
    pub(in crate::rules::block) kinds: BTreeMap<(DevId, IoOp), &'v HeldBack>,
    /// The time of its processes in which nothing else explains that they waited for block IO.
    pub(in crate::rules::block) members: BTreeMap<ProcId, u64>,
}

/// All cgroups of which anything was held back, by their directories.
pub(in crate::rules::block) fn by_cgroup(view: &View) -> BTreeMap<&str, OfCgroup<'_>> {
    let mut all: BTreeMap<&str, OfCgroup<'_>> = BTreeMap::new();
    for ((device, op, cgroup), held) in view.block().held().by_key() {
        if let Some(cgroup) = cgroup {
            all.entry(cgroup).or_default().kinds.insert((*device, *op), held);
        }
    }
    for of in all.values_mut() {
        let ids: BTreeSet<ProcId> =
            of.kinds.values().flat_map(|held| held.members.iter().copied()).collect();
        of.members = unexplained(view, of.kinds.values().copied(), &ids);
    }
    all
}

/// Transfers that were held back, in all.
pub(in crate::rules::block) fn transfers(view: &View) -> u64 {
    let held = view.block().held().by_key().values();
    held.map(|held| held.ios.total()).fold(0, u64::saturating_add)
}

/// The waiting for block IO of some processes that neither their own requests explain nor the service of what was
/// let go, in the seconds in which something was let go and those before them.
fn unexplained<'v>(
    view: &View,
    held: impl Iterator<Item = &'v HeldBack> + Clone,
    ids: &BTreeSet<ProcId>,
) -> BTreeMap<ProcId, u64> {
    let block = view.block();
    let ledger = |id: &ProcId| view.processes().get(id)?.usage.as_ref();
    let series = ids.iter().filter_map(|id| Some(&ledger(id)?.block_io));
    let others = ids.iter().filter_map(|id| block.held_up(*id));
    let own = held.clone().flat_map(|held| [&held.ios, &held.service_ns]);
    let width_ns = series.chain(others).chain(own).map(Series::width_ns).max().unwrap_or(1);
    let mut open = BTreeSet::new();
    for (bin, ios) in held.clone().flat_map(|held| bins(&held.ios, width_ns)) {
        if ios > 0 {
            open.insert(bin);
            // What is let go early in a second was held back in the one before.
            open.insert(bin.saturating_sub(1));
        }
    }
    let inside = |series: &Series| -> u64 {
        bins(series, width_ns).filter(|(bin, _)| open.contains(bin)).map(|(_, n)| n).sum()
    };
    let mut times: BTreeMap<ProcId, u64> = BTreeMap::new();
    for id in ids {
        let waited_ns = match ledger(id) {
            Some(usage) => inside(&usage.block_io),
            // Without the ledger, only syncs tell.
            None => syncs_ns(view, *id),
        };
        let known_ns = block.held_up(*id).map_or(0, inside);
        times.insert(*id, waited_ns.saturating_sub(known_ns));
    }
    let all_ns: u64 = times.values().sum();
    let served_ns: u64 = held.map(|held| inside(&held.service_ns)).sum();
    let left = all_ns.saturating_sub(served_ns) as f64 / all_ns.max(1) as f64;
    times.values_mut().for_each(|ns| *ns = (*ns as f64 * left) as u64);
    times
}

/// Amounts of a series in bins of a width that is a multiple of its own.
fn bins(series: &Series, width_ns: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
    let each_ns = series.width_ns();
    series.bins().iter().enumerate().map(move |(i, &n)| (i as u64 * each_ns / width_ns, n))
}

fn syncs_ns(view: &View, id: ProcId) -> u64 {
    let of = view.block().waits().iter().filter(|(key, _)| (key.0, key.1) == (id, StallKind::Sync));
    of.map(|(_, waits)| waits.waits.total_ns()).sum()
}

/// A limit that is in force: where it is written, and its line there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::rules::block) struct InForce<'v> {
    /// The file.
    pub(in crate::rules::block) path: &'v str,
    /// What it says of the device.
    pub(in crate::rules::block) line: &'v str,
}

/// The limits on a device and direction that hold for a cgroup: its own before those of its parents.
pub(in crate::rules::block) fn limits<'v>(
    view: &'v View,
    cgroup: &str,
    (device, op): (DevId, IoOp),
) -> Vec<InForce<'v>> {
    let word = match op {
        IoOp::Read => ".read_",
        IoOp::Write | IoOp::Other => ".write_",
    };
    let dir = |path: &'v str| path.rsplit_once('/').map_or("", |(dir, _)| dir);
    let holds = |path: &'v str| {
        let above = cgroup.strip_prefix(dir(path));
        let right = path.ends_with("/io.max") || path.contains(word);
        right && above.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let number = format!("{device} ");
    let mut found: Vec<InForce<'v>> = knobs::limits(view)
        .into_iter()
        .filter(|(path, _)| holds(path))
        .flat_map(|(path, value)| {
            value.lines().map(move |line| InForce { path, line: line.trim() })
        })
        .filter(|limit| limit.line.starts_with(&number))
        .collect();
    found.sort_by_key(|limit| std::cmp::Reverse(dir(limit.path).len()));
    found
}

/// The line of a limit with its numbers doubled; `None` of one that is not understood.
pub(in crate::rules::block) fn doubled(line: &str) -> Option<String> {
    let (device, rest) = line.split_once(' ')?;
    let twice = |word: &str| -> Option<String> {
        match word.split_once('=') {
            Some((_, "max")) => Some(word.to_owned()),
            Some((key, number)) => {
                Some(format!("{key}={}", number.parse::<u64>().ok()?.saturating_mul(2)))
            }
            None => Some(word.parse::<u64>().ok()?.saturating_mul(2).to_string()),
        }
    };
    let words: Option<Vec<String>> = rest.split_whitespace().map(twice).collect();
    Some(format!("{device} {}", words.filter(|words| !words.is_empty())?.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::doubled;

    #[test]
    fn what_is_understood_of_a_limit_is_doubled() {
        assert_eq!(doubled("8:0 2000").as_deref(), Some("8:0 4000"));
        let v2 = "8:0 rbps=1048576 wbps=max riops=max wiops=max";
        assert_eq!(doubled(v2).unwrap(), "8:0 rbps=2097152 wbps=max riops=max wiops=max");
        assert_eq!([doubled("8:0"), doubled("8:0 "), doubled("8:0 a")], [None, None, None]);
    }
}
