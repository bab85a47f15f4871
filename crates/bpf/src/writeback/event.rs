// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decodes entries of the writeback probe's log into events.

use crate::block::Requester;
use crate::skel::writeback::types::writeback_event;

/// Kinds of journals whose commits are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Journal {
    /// The journal of ext4 and ocfs2.
    Jbd2,
    /// The log of xfs; a commit is the write of one log buffer.
    Xfs,
    /// A transaction of btrfs.
    Btrfs,
}

/// An event. All times are nanoseconds of `CLOCK_MONOTONIC`; `fs` is `s_dev`, the kernel's `dev_t`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the same words mean the same throughout")]
pub enum Event {
    /// The flusher began a pass on the device `bdi` (such as `7:0`), for a reason as in [`crate::block::Transfer`].
    PassBegan { t_ns: u64, tid: u32, bdi: String, reason: u8 },
    /// The flusher ended a pass.
    PassEnded { t_ns: u64, tid: u32, bdi: String, reason: u8 },
    /// A thread requested work from the flusher.
    PassAsked { t_ns: u64, by: Requester, bdi: String, reason: u8 },
    /// A thread, usually the flusher, begins to write back an inode.
    InodeWritten {
        t_ns: u64,
        tid: u32,
        fs: u32,
        ino: u64,
        generation: u32,
        subvolume: u64,
        /// Time since it became dirty, a multiple of the kernel's tick.
        dirty_for_ns: Option<u64>,
        /// Time since the same inode was last written back; `None` = not seen, or evicted from the table.
        since_last_ns: Option<u64>,
    },
    /// A clean inode became dirty.
    InodeDirtied { t_ns: u64, fs: u32, ino: u64, generation: u32, subvolume: u64, by: Requester },
    /// A journal's commit.
    Commit {
        /// `None` = the kernel does not report it.
        begin_ns: Option<u64>,
        end_ns: u64,
        fs: u32,
        kind: Journal,
        blocks: Option<u64>,
    },
    /// `fsync` or `fdatasync` of a file began, and no event will report its end.
    SyncBegan { t_ns: u64, by: Requester, fs: u32, ino: u64, generation: u32, subvolume: u64 },
    /// `fsync`, `fdatasync` or another call that makes a file durable has ended.
    Sync {
        begin_ns: u64,
        end_ns: u64,
        by: Requester,
        fs: u32,
        ino: u64,
        generation: u32,
        subvolume: u64,
    },
    /// The kernel pauses a thread that dirties pages, from `t_ns` on; `pause_ns` is the intended length.
    Pause { t_ns: u64, pause_ns: u64, by: Requester, bdi: String },
}

/// `enum writeback_kind` of `writeback.h`.
const PASS_BEGAN: u8 = 1;
const PASS_ENDED: u8 = 2;
const WRITTEN: u8 = 3;
const DIRTIED: u8 = 4;
const COMMIT: u8 = 5;
const SYNC: u8 = 6;
const PAUSE: u8 = 7;
const SYNC_BEGAN: u8 = 8;
const ASKED: u8 = 9;

/// `enum writeback_journal` of `writeback.h`.
const XFS: u8 = 1;
const BTRFS: u8 = 2;

/// Decodes an entry; `None` = it was not written yet.
pub(super) fn decode(event: &writeback_event, ns_per_jiffy: u64) -> Option<Event> {
    let writeback_event { t_ns, begin_ns, amount, ino, subvolume, fs, generation, tid, .. } =
        *event;
    let reason = u8::try_from(event.reason).unwrap_or(u8::MAX);
    let by =
        Requester { tid, tgid: event.tgid, leader_boot_ns: event.leader_boot_ns, comm: event.comm };
    Some(match event.kind {
        PASS_BEGAN => Event::PassBegan { t_ns, tid, bdi: bdi(event), reason },
        PASS_ENDED => Event::PassEnded { t_ns, tid, bdi: bdi(event), reason },
        ASKED => Event::PassAsked { t_ns, by, bdi: bdi(event), reason },
        WRITTEN => Event::InodeWritten {
            t_ns,
            tid,
            fs,
            ino,
            generation,
            subvolume,
            dirty_for_ns: (amount != u64::MAX).then(|| amount.saturating_mul(ns_per_jiffy)),
            since_last_ns: (begin_ns != 0).then(|| t_ns.saturating_sub(begin_ns)),
        },
        DIRTIED => Event::InodeDirtied { t_ns, fs, ino, generation, subvolume, by },
        COMMIT => Event::Commit {
            begin_ns: (begin_ns != 0).then_some(begin_ns),
            end_ns: t_ns,
            fs,
            kind: match event.journal {
                XFS => Journal::Xfs,
                BTRFS => Journal::Btrfs,
                _ => Journal::Jbd2,
            },
            blocks: amount.checked_sub(1),
        },
        SYNC_BEGAN => Event::SyncBegan { t_ns, by, fs, ino, generation, subvolume },
        SYNC => Event::Sync { begin_ns, end_ns: t_ns, by, fs, ino, generation, subvolume },
        PAUSE => {
            let pause_ns = amount.saturating_mul(ns_per_jiffy);
            Event::Pause { t_ns, pause_ns, by, bdi: bdi(event) }
        }
        _ => return None,
    })
}

fn bdi(event: &writeback_event) -> String {
    let end = event.bdi.iter().position(|byte| *byte == 0).unwrap_or(event.bdi.len());
    String::from_utf8_lossy(&event.bdi[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_none() {
        let mut entry = writeback_event { kind: WRITTEN, t_ns: 100, ..writeback_event::default() };
        entry.amount = u64::MAX;
        let Some(Event::InodeWritten { dirty_for_ns, since_last_ns, .. }) = decode(&entry, 4)
        else {
            panic!("another event")
        };
        assert_eq!((dirty_for_ns, since_last_ns), (None, None));
        entry.amount = 3;
        entry.begin_ns = 90;
        let Some(Event::InodeWritten { dirty_for_ns, since_last_ns, .. }) = decode(&entry, 4)
        else {
            panic!("another event")
        };
        assert_eq!((dirty_for_ns, since_last_ns), (Some(12), Some(10)));
        assert_eq!(decode(&writeback_event::default(), 4), None);
    }

    #[test]
    fn a_commit_without_a_count_has_no_blocks() {
        let blocks = |amount| {
            let entry = writeback_event { kind: COMMIT, amount, ..writeback_event::default() };
            match decode(&entry, 1) {
                Some(Event::Commit { blocks, .. }) => blocks,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!((blocks(0), blocks(1), blocks(8)), (None, Some(0), Some(7)));
    }
}
