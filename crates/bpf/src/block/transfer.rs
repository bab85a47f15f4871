// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decodes an entry of the probe's log into a [`Transfer`].

use super::plan::RequestFlags;
use crate::skel::block::types::block_entry;

/// Who submitted a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requester {
    /// Thread id; 0 = not known.
    pub tid: u32,
    /// Thread-group id of its process.
    pub tgid: u32,
    /// Start time of its process in nanoseconds of `CLOCK_BOOTTIME`: with `tgid`, an identity that is never reused.
    pub leader_boot_ns: u64,
    /// Comm of the thread.
    pub comm: [u8; 16],
}

/// What the pages of a transfer belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// Data of a file.
    File {
        /// Its filesystem (`s_dev`, the kernel's `dev_t`).
        fs: u32,
        /// Inode number.
        ino: u64,
        /// Inode generation.
        generation: u32,
        /// The btrfs subvolume within which the inode number is unique; 0 = none.
        subvolume: u64,
    },
    /// The page cache of the device, or a filesystem's own buffers: metadata, or a
    /// journal that is not recognised as one.
    BlockDevice,
    /// Memory of a process: `O_DIRECT` on the device itself, or swap; also `O_DIRECT` on a file of a filesystem that
    /// does not use iomap.
    Anonymous,
    /// A filesystem's journal or log.
    Journal,
    /// No data: flush, discard.
    NoPages,
    /// Kernel memory of unknown purpose, or the rest of a request with too many bios.
    Unknown,
}

/// Operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// From the device.
    Read,
    /// To the device.
    Write,
    /// A cache flush without data. A submitted flush request leads to one of the block
    /// layer's own, which has no known submitter.
    Flush,
    /// Discard, secure erase, or zeroes without data.
    Discard,
    /// Any other operation, such as zone and driver commands.
    Other,
}

/// A request, or the part of it that belongs to one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// When its bio was queued, in nanoseconds of `CLOCK_MONOTONIC`: from then on it waited for its request. For a
    /// request of several merged bios, the first one's. `None` = not seen.
    pub queued_ns: Option<u64>,
    /// When the request was created, in nanoseconds of `CLOCK_MONOTONIC`.
    pub start_ns: u64,
    /// When it was last issued to the driver; 0 = not seen.
    pub issue_ns: u64,
    /// When it, or this part of it, was completed.
    pub done_ns: u64,
    /// This is the first reported part of its request: true once for each request.
    pub first: bool,
    /// The whole disk (the kernel's `dev_t`).
    pub disk: u32,
    /// Size of this part, in bytes.
    pub bytes: u32,
    /// Operation.
    pub op: Op,
    /// A read, or a write marked `REQ_SYNC`: a thread presumably waits for it.
    pub sync: bool,
    /// Marked by the filesystem as metadata (`REQ_META`).
    pub meta: bool,
    /// Swap-in or swap-out.
    pub swap: bool,
    /// Who submitted the request; not known for the block layer's own flushes.
    pub submitter: Requester,
    /// The cgroup that the first page is charged to (kernfs id in the memory controller's hierarchy); 0 = not known.
    pub owner_cgroup: u64,
    /// What the pages belong to.
    pub target: Target,
    /// Why the kernel wrote back: 0 = not writeback, otherwise the number of the kernel's reason + 1.
    pub reason: u8,
    /// It was throttled by an IO limit, and a kernel worker submitted it when the limit allowed it: `submitter` is that
    /// worker. How long it was throttled is not known.
    pub held: bool,
    /// Number of requests that this one represents: 1 unless requests are sampled.
    pub weight: u32,
}

/// `BLOCK_BEFORE_SHIFT` of `block.h`.
const BEFORE_SHIFT: u32 = 5;

/// `enum block_by` of `block.h`.
const BY_KERNEL: u8 = 1;
const BY_LIMIT: u8 = 2;

/// `enum block_kind` of `block.h`.
const FILE: u8 = 1;
const DEVICE: u8 = 2;
const ANON: u8 = 3;
const NO_PAGES: u8 = 4;
const PRIVATE: u8 = 5;
const SWAP: u8 = 6;

pub(super) fn decode(entry: &block_entry, bits: RequestFlags) -> Transfer {
    let flag = |bit: Option<u32>| bit.is_some_and(|bit| entry.cmd_flags >> bit & 1 == 1);
    let op = op(entry, bits);
    let meta = flag(bits.meta);
    // XFS marks writes of its log like this, and not its other buffers.
    let log = op == Op::Write && meta && flag(bits.sync) && flag(bits.idle);
    Transfer {
        queued_ns: queued_ns(entry),
        start_ns: entry.start_ns,
        issue_ns: entry.issue_ns,
        done_ns: entry.done_ns,
        first: entry.first != 0,
        disk: entry.disk,
        bytes: entry.bytes,
        op,
        sync: op == Op::Read || flag(bits.sync),
        meta,
        // The flag marks swap-out only.
        swap: flag(bits.swap) || entry.kind == SWAP,
        submitter: Requester {
            tid: entry.tid,
            tgid: entry.tgid,
            leader_boot_ns: entry.leader_boot_ns,
            comm: entry.comm,
        },
        owner_cgroup: entry.owner_cgroup,
        target: target(entry, meta, log),
        reason: entry.reason,
        held: entry.by == BY_LIMIT,
        weight: entry.weight,
    }
}

/// When the bio was queued. `before` holds the time until its request in units of 32 ns, + 1; 0 = not known.
fn queued_ns(entry: &block_entry) -> Option<u64> {
    let units = entry.before.checked_sub(1)?;
    Some(entry.start_ns.saturating_sub(u64::from(units) << BEFORE_SHIFT))
}

/// The operation. The low values of `enum req_op` are the same in all kernels.
fn op(entry: &block_entry, bits: RequestFlags) -> Op {
    match entry.cmd_flags & 0xff {
        0 => Op::Read,
        1 if entry.bytes == 0 => Op::Flush,
        1 => Op::Write,
        2 => Op::Flush,
        3 | 5 | 9 => Op::Discard,
        op if Some(op) == bits.zone_append => Op::Write,
        _ => Op::Other,
    }
}

fn target(entry: &block_entry, meta: bool, log: bool) -> Target {
    // Only if submitted by a kernel thread: any process may take that name.
    let jbd2 = entry.by == BY_KERNEL && entry.comm.starts_with(b"jbd2/");
    match entry.kind {
        FILE => Target::File {
            fs: entry.fs,
            ino: entry.ino,
            generation: entry.generation,
            subvolume: entry.subvolume,
        },
        DEVICE | PRIVATE if jbd2 => Target::Journal,
        DEVICE => Target::BlockDevice,
        ANON | SWAP => Target::Anonymous,
        NO_PAGES => Target::NoPages,
        PRIVATE if log => Target::Journal,
        PRIVATE if meta => Target::BlockDevice,
        _ => Target::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BITS: RequestFlags = RequestFlags {
        sync: Some(11),
        meta: Some(12),
        idle: Some(15),
        swap: Some(24),
        zone_append: Some(7),
    };

    fn entry(kind: u8, cmd_flags: u32) -> block_entry {
        block_entry { kind, cmd_flags, bytes: 4096, ..block_entry::default() }
    }

    #[test]
    fn only_the_kernels_own_jbd2_writes_a_journal() {
        let mut journal = entry(DEVICE, 1);
        journal.comm[..5].copy_from_slice(b"jbd2/");
        assert_eq!(decode(&journal, BITS).target, Target::BlockDevice);
        journal.by = BY_KERNEL;
        assert_eq!(decode(&journal, BITS).target, Target::Journal);
        journal.kind = FILE;
        assert!(matches!(decode(&journal, BITS).target, Target::File { .. }));
    }

    #[test]
    fn a_bio_that_was_not_seen_did_not_wait_for_nothing() {
        let queued = |before| {
            decode(&block_entry { start_ns: 1000, before, ..entry(FILE, 0) }, BITS).queued_ns
        };
        assert_eq!([queued(0), queued(1), queued(11)], [None, Some(1000), Some(1000 - 320)]);
    }

    #[test]
    fn flags_tell_the_log_of_xfs_from_its_buffers() {
        let target = |flags: u32| decode(&entry(PRIVATE, flags), BITS).target;
        assert_eq!(target(1 | 1 << 11 | 1 << 12 | 1 << 15), Target::Journal);
        assert_eq!(target(1 | 1 << 12), Target::BlockDevice);
        assert_eq!(target(1 << 12), Target::BlockDevice);
        assert_eq!(target(1), Target::Unknown);
    }

    #[test]
    fn a_write_without_bytes_is_a_flush_and_a_read_is_waited_for() {
        let empty = block_entry { bytes: 0, ..entry(NO_PAGES, 1) };
        assert_eq!(decode(&empty, BITS).op, Op::Flush);
        let read = decode(&entry(FILE, 0), BITS);
        assert_eq!((read.op, read.sync), (Op::Read, true));
        let swap = decode(&entry(ANON, 1 | 1 << 24), BITS);
        assert!(swap.swap && !swap.sync && !swap.meta);
        let swapped_in = decode(&entry(SWAP, 0), BITS);
        assert!(swapped_in.swap && swapped_in.target == Target::Anonymous);
        assert_eq!(decode(&entry(FILE, 7), BITS).op, Op::Write);
    }
}
