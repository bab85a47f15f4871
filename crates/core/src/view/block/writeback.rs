// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who is behind writeback: the groups that requested it, and those that dirtied the pages. Added up once for all
//! victims.

use crate::recording::{CgroupId, DevId, IoPurpose};
use crate::view::{Groups, View};
use std::collections::BTreeMap;

/// Writeback by disk.
#[derive(Clone, Debug, Default)]
pub(in crate::view) struct Writeback {
    passes: BTreeMap<DevId, BTreeMap<String, Passes>>,
    /// Bytes by owner of the pages and reason.
    owners: BTreeMap<(DevId, Option<CgroupId>), BTreeMap<String, u64>>,
    /// Bytes by owner, and by the group that first dirtied their file.
    dirtied: BTreeMap<(DevId, CgroupId), BTreeMap<usize, u64>>,
}

/// Passes with one reason.
#[derive(Clone, Debug, Default)]
struct Passes {
    /// Bytes of all of them.
    bytes: u64,
    /// The part that each group requested.
    by_group: BTreeMap<usize, u64>,
}

impl Writeback {
    pub(in crate::view) fn of(view: &View, groups: &Groups<'_>) -> Self {
        let mut all = Self::default();
        for pass in view.block().passes() {
            let disk = view.block().disk_of(pass.device);
            let passes =
                all.passes.entry(disk).or_default().entry(pass.reason.clone()).or_default();
            passes.bytes += pass.bytes;
            // Several processes may have requested one pass: its bytes are split by number of requests.
            let times: u64 = pass.asked_by.iter().map(|&(_, times)| u64::from(times)).sum();
            for &(id, of) in &pass.asked_by {
                if let Some(at) = groups.index_of(id) {
                    *passes.by_group.entry(at).or_default() +=
                        pass.bytes / times.max(1) * u64::from(of);
                }
            }
        }
        // The flusher's transfers have a reason.
        for (key, sum) in view.block().sums() {
            let Some(reason) = &key.reason else { continue };
            let of_owner = all.owners.entry((key.device, key.owner)).or_default();
            *of_owner.entry(reason.clone()).or_default() += sum.bytes;
            let (Some(owner), IoPurpose::File(file)) = (key.owner, key.what) else { continue };
            let dirtier = view.block().files().get(&file).and_then(|file| file.dirtied_by);
            if let Some(at) = dirtier.and_then(|id| groups.index_of(id)) {
                let by_group = all.dirtied.entry((key.device, owner)).or_default();
                *by_group.entry(at).or_default() += sum.bytes;
            }
        }
        all
    }

    fn bytes(&self, disk: DevId, owner: Option<CgroupId>) -> u64 {
        self.owners.get(&(disk, owner)).map_or(0, |reasons| reasons.values().sum())
    }

    /// Shares of the writeback of one owner's pages to a disk that groups requested. Its transfers have a reason, and
    /// the flusher's passes have a reason and the processes that requested them.
    pub(in crate::view) fn asked(&self, disk: DevId, owner: Option<CgroupId>) -> Vec<(usize, f64)> {
        let (Some(passes), Some(reasons)) =
            (self.passes.get(&disk), self.owners.get(&(disk, owner)))
        else {
            return vec![];
        };
        let mut asked = BTreeMap::<usize, f64>::new();
        for (reason, bytes) in reasons {
            let Some(of_reason) = passes.get(reason) else { continue };
            for (&at, &asked_bytes) in &of_reason.by_group {
                let share = asked_bytes as f64 / of_reason.bytes.max(1) as f64;
                *asked.entry(at).or_default() += *bytes as f64 * share;
            }
        }
        let all_bytes = self.bytes(disk, owner).max(1) as f64;
        asked.into_iter().map(|(at, bytes)| (at, bytes / all_bytes)).collect()
    }

    /// Shares of the writeback of one owner's pages to a disk by the group that dirtied them. Many hosts account the
    /// memory of all processes to one cgroup. The owner then identifies no process, but the process that first dirtied
    /// a file is known. Writeback without such a process stays with the owner.
    pub(in crate::view) fn dirtied(
        &self,
        disk: DevId,
        owner: CgroupId,
    ) -> impl Iterator<Item = (usize, f64)> {
        let all_bytes = self.bytes(disk, Some(owner)).max(1) as f64;
        let by_group = self.dirtied.get(&(disk, owner)).into_iter().flatten();
        by_group.map(move |(&at, &bytes)| (at, bytes as f64 / all_bytes))
    }
}
