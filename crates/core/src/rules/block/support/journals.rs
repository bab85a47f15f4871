// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kinds of journals: what they are called, how often they commit by themselves, and what can be changed.

use crate::finding::Fix;
use crate::recording::{DevId, Mount};
use crate::rules::words::ticked;
use crate::view::View;

/// A kind of journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rules::block) enum Journal {
    /// jbd2, of ext4 and ocfs2. Also stands for unknown kinds.
    Jbd2,
    /// The log of xfs.
    Xfs,
    /// Transactions of btrfs.
    Btrfs,
}

impl Journal {
    /// The kind that most of a disk's commits have.
    pub(in crate::rules::block) fn of(view: &View, device: DevId) -> Self {
        let mut counts = [0u32; 3];
        for commit in view.block().commits_on(device) {
            counts[Self::from_kind(&commit.kind) as usize] += 1;
        }
        let all = [Self::Jbd2, Self::Xfs, Self::Btrfs];
        // Of equals, `max_by_key` takes the last one, so jbd2 comes last; it is also the answer without any commits.
        all.into_iter().rev().max_by_key(|it| counts[*it as usize]).unwrap_or(Self::Jbd2)
    }

    fn from_kind(kind: &str) -> Self {
        match kind {
            "xfs" => Self::Xfs,
            "btrfs" => Self::Btrfs,
            _ => Self::Jbd2,
        }
    }

    /// What it does, for a title after `stalls ..., while`.
    pub(in crate::rules::block) fn works(self, device: &str) -> String {
        let device = ticked(device);
        match self {
            Self::Jbd2 => format!("the journal of {device} commits"),
            Self::Xfs => format!("the log of xfs on {device} is written"),
            Self::Btrfs => format!("btrfs on {device} commits a transaction"),
        }
    }

    /// Interval at which it commits by itself, in nanoseconds, from the mount option `commit=` or the filesystem's
    /// default. `None` for xfs, which has no such option.
    pub(in crate::rules::block) fn interval_ns(self, view: &View, device: DevId) -> Option<u64> {
        // Defaults of the filesystems.
        let default_s = match self {
            Self::Jbd2 => 5,
            Self::Btrfs => 30,
            Self::Xfs => return None,
        };
        let block = view.block();
        let name = format!("/dev/{}", block.device_name(device));
        // A btrfs has a device number of its own, so its source is compared.
        let here = |mount: &&Mount| {
            let btrfs = mount.fstype == "btrfs";
            let there =
                block.disk_of(mount.fs) == device || btrfs && mount.source.starts_with(&name);
            there && btrfs == (self == Self::Btrfs)
        };
        let option = |mount: &Mount| {
            mount.options.split(',').find_map(|option| option.strip_prefix("commit=")?.parse().ok())
        };
        let seconds: Option<u64> = block.mounts().values().filter(here).find_map(option);
        Some(seconds.filter(|&s| s > 0).unwrap_or(default_s).saturating_mul(1_000_000_000))
    }

    /// The remedies.
    pub(in crate::rules::block) fn fixes(self, view: &View, device: DevId) -> Vec<Fix> {
        let fix = |action: String, risk: &str| Fix {
            action,
            command: None,
            risk: Some(risk.into()),
            expect: None,
        };
        let mut fixes = vec![
            fix(
                "sync less often, or several files at once: each sync forces a commit, which every process on that filesystem \
                 waits for"
                    .into(),
                "what is not synced is lost when the power fails",
            ),
            fix(
                "write into files that are already allocated (`fallocate`, reused logs): `fdatasync` then needs no commit".into(),
                "blocks that were never written still cost a commit the first time",
            ),
        ];
        match self {
            Self::Jbd2 => fixes.push(fix(
                "put the journal (`mke2fs -O journal_dev`), or the processes that make many small changes, on another device".into(),
                "the filesystem does not mount without its journal's device",
            )),
            Self::Xfs => fixes.push(fix(
                "put the log (`mkfs.xfs -l logdev=DEVICE`), or the processes that make many small changes, on another device".into(),
                "the log's location is fixed when the filesystem is created, and it does not mount without its log",
            )),
            Self::Btrfs => fixes.push(fix(
                "put those who make many small changes on another filesystem, and files that are overwritten into a directory \
                 without copy on write (`chattr +C`)"
                    .into(),
                "without copy on write there are no checksums of the data, and the flag applies to new files only",
            )),
        }
        if let Some(ns) = self.interval_ns(view, device) {
            fixes.push(fix(
                format!("a longer `commit=` (now {} s) makes commits rarer and bigger", ns / 1_000_000_000),
                "up to that many seconds of changes are lost when the power fails; a larger commit stalls for longer",
            ));
        }
        fixes
    }

    /// What to expect if the journal is the cause.
    pub(in crate::rules::block) fn expect(self) -> String {
        match self {
            Self::Jbd2 | Self::Btrfs => {
                "after a remount with another `commit=`, the rhythm of the stalls moves with it; if it does not, the journal \
                 is not the reason"
            }
            Self::Xfs => {
                "while those who sync, create and remove files on that xfs are stopped, the stalls are gone; if they are not, \
                 its log is not the reason"
            }
        }
        .into()
    }
}
