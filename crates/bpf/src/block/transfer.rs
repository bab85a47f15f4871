// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a transfer is, out of an entry of the probe's log.

use super::plan::Bits;
use crate::skel::block::types::block_entry;

/// Who submitted a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requester {
    /// The thread; 0 = not known.
    pub tid: u32,
    /// Its process.
    pub tgid: u32,
    /// When its process began, `CLOCK_BOOTTIME`: with `tgid` an identity that is not used again.
    pub leader_boot_ns: u64,
    /// The thread's name.
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
        /// The subvolume of btrfs, in which the number is unique; 0 = none.
        subvolume: u64,
    },
    /// The page cache of the device, or a filesystem's own buffers: metadata, or a journal that is not told apart.
    BlockDevice,
    /// Memory of a process: `O_DIRECT` on the device itself, or swap; also `O_DIRECT` on a file where the
    /// filesystem does not use iomap.
    Anonymous,
    /// A filesystem's journal or log.
    Journal,
    /// No data: flush, discard.
    NoPages,
    /// Memory of the kernel of which it is not known what it is for, or the rest of a request with very many parts.
    Unknown,
}

/// Direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// From the device.
    Read,
    /// To the device.
    Write,
    /// A cache flush without data. A request for one, which has a submitter, leads to one of the block layer's
    /// own, which has none.
    Flush,
    /// Discard, secure erase, or zeroes without data.
    Discard,
    /// Zone and driver commands.
    Other,
}

/// A request, or that part of it that belongs to one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Its bio was queued, `CLOCK_MONOTONIC`: from then on it waited for its request. Of a request that others were
    /// merged into, the first one's. `None` = not seen.
    pub queued_ns: Option<u64>,
    /// The request was created, `CLOCK_MONOTONIC`.
    pub start_ns: u64,
    /// It was issued to the driver, last; 0 = not seen.
    pub issue_ns: u64,
    /// It, or this part of it, was completed.
    pub done_ns: u64,
    /// The same for all parts of a request.
    pub request: u64,
    /// The first part of a request that is told: true once for each request.
    pub first: bool,
    /// The whole disk (the kernel's `dev_t`).
    pub disk: u32,
    /// First sector on the disk, in units of 512 bytes.
    pub sector: u64,
    /// Bytes of this part.
    pub bytes: u32,
    /// Direction.
    pub op: Op,
    /// Somebody waits for it.
    pub sync: bool,
    /// The filesystem says it is metadata.
    pub meta: bool,
    /// Swapping.
    pub swap: bool,
    /// Who submitted the request; not known of the block layer's own flushes.
    pub submitter: Requester,
    /// The cgroup that the first page is charged to (kernfs id in the memory controller's hierarchy); 0 = not known.
    pub owner_cgroup: u64,
    /// What it is for.
    pub target: Target,
    /// Why the kernel wrote back: 0 = it did not, else the number of the reason + 1.
    pub reason: u8,
    /// A limit of IO held it back, and one of the kernel's workers submitted it when it let it go: `submitter` is
    /// that worker. How long it was held back is not known.
    pub held: bool,
    /// It stands for so many.
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

pub(super) fn decode(entry: &block_entry, bits: Bits) -> Transfer {
    let flag = |bit: Option<u32>| bit.is_some_and(|bit| entry.cmd_flags >> bit & 1 == 1);
    let op = op(entry, bits);
    let meta = flag(bits.meta);
    // Marked so by XFS of its log, and not of its other buffers.
    let log = op == Op::Write && meta && flag(bits.sync) && flag(bits.idle);
    Transfer {
        queued_ns: queued_ns(entry),
        start_ns: entry.start_ns,
        issue_ns: entry.issue_ns,
        done_ns: entry.done_ns,
        request: entry.request,
        first: entry.first != 0,
        disk: entry.disk,
        sector: entry.sector,
        bytes: entry.bytes,
        op,
        sync: op == Op::Read || flag(bits.sync),
        meta,
        // Only swapping out is marked so.
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

/// The time before the request is told in units of 32 ns, + 1.
fn queued_ns(entry: &block_entry) -> Option<u64> {
    let units = entry.before.checked_sub(1)?;
    Some(entry.start_ns.saturating_sub(u64::from(units) << BEFORE_SHIFT))
}

/// The low values of `enum req_op` never changed.
fn op(entry: &block_entry, bits: Bits) -> Op {
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
    // A kernel thread, for any process may take the name.
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

    const BITS: Bits = Bits {
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
