// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a transfer was for, and who is to blame for it.

use super::inode::Inode;
use deburr_bpf::block::{Op, Target, Transfer};
use deburr_core::recording::{CgroupId, IoCulprit, IoOp, IoPurpose, ProcId};

/// The inode that btrfs keeps its trees in: its page cache holds the metadata.
const BTRFS_METADATA: u64 = 1;

/// What the host's mounts show about the place that a transfer went to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DeviceFacts {
    /// Whether a filesystem lies on the device.
    pub(super) has_filesystem: bool,
    /// Whether the filesystem of the file is btrfs.
    pub(super) btrfs: bool,
}

/// What a transfer was for, before its file has an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransferPurpose {
    /// Data of that file.
    Data(Inode),
    /// Anything else.
    Other(IoPurpose),
}

/// What a transfer was for.
pub(super) fn kind(transfer: &Transfer, place: DeviceFacts) -> TransferPurpose {
    match (transfer.op, &transfer.target) {
        (Op::Flush, _) => TransferPurpose::Other(IoPurpose::Flush),
        (Op::Discard, _) => TransferPurpose::Other(IoPurpose::Discard),
        (_, _) if transfer.swap => TransferPurpose::Other(IoPurpose::Swap),
        (_, Target::File { ino: BTRFS_METADATA, .. }) if place.btrfs => {
            TransferPurpose::Other(IoPurpose::Metadata)
        }
        (_, &Target::File { fs, ino, generation, subvolume }) => {
            TransferPurpose::Data(Inode::new(fs, ino, generation, subvolume))
        }
        (_, Target::Journal) => TransferPurpose::Other(IoPurpose::Journal),
        // ext4's journal and its metadata both live in the page cache of the device; jbd2 writes the journal.
        (_, Target::BlockDevice | Target::Unknown) if is_jbd2(transfer) => {
            TransferPurpose::Other(IoPurpose::Journal)
        }
        (_, Target::BlockDevice | Target::Unknown) if place.has_filesystem => {
            TransferPurpose::Other(IoPurpose::Metadata)
        }
        (_, Target::BlockDevice | Target::Anonymous) => {
            TransferPurpose::Other(IoPurpose::RawDevice)
        }
        (_, Target::NoPages) if transfer.bytes == 0 => TransferPurpose::Other(IoPurpose::Flush),
        (_, Target::NoPages | Target::Unknown) => TransferPurpose::Other(IoPurpose::Unknown),
    }
}

fn is_jbd2(transfer: &Transfer) -> bool {
    transfer.submitter.comm.starts_with(b"jbd2/")
}

pub(super) fn direction(op: Op) -> IoOp {
    match op {
        Op::Read => IoOp::Read,
        Op::Write => IoOp::Write,
        Op::Flush | Op::Discard | Op::Other => IoOp::Other,
    }
}

/// Who is to blame for a request that `submitter` made for `what`. A process that asks for a flush has a request of
/// its own in flight until the flush is over. The block layer's own flush has no submitter: it is the device at work
/// for that request.
pub(super) fn account(
    transfer: &Transfer,
    what: IoPurpose,
    submitter: Option<ProcId>,
    by_kernel: bool,
    owner: Option<CgroupId>,
) -> IoCulprit {
    if transfer.reason != 0 {
        return IoCulprit::Writeback(owner);
    }
    match (what, submitter) {
        (IoPurpose::Flush, None) => IoCulprit::Device,
        (IoPurpose::Flush, Some(process)) if !by_kernel => IoCulprit::Process(process),
        (IoPurpose::Metadata | IoPurpose::Journal | IoPurpose::Flush, _) | (_, None) => {
            IoCulprit::Filesystem
        }
        (_, Some(process)) => IoCulprit::Process(process),
    }
}

/// Whether its submitter waits for it.
pub(super) fn is_waited_for(transfer: &Transfer) -> bool {
    transfer.reason == 0
        && match transfer.op {
            Op::Read => true,
            Op::Write => transfer.sync,
            Op::Flush => transfer.submitter.tid != 0,
            Op::Discard | Op::Other => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use deburr_bpf::block::Requester;
    use deburr_core::recording::DevId;

    fn transfer(op: Op, target: Target, comm: &[u8]) -> Transfer {
        let mut name = [0; 16];
        name[..comm.len()].copy_from_slice(comm);
        Transfer {
            queued_ns: None,
            held: false,
            start_ns: 1,
            issue_ns: 2,
            done_ns: 3,
            first: true,
            disk: 7 << 20,
            bytes: 4096,
            op,
            sync: false,
            meta: false,
            swap: false,
            submitter: Requester { tid: 1, tgid: 1, leader_boot_ns: 1, comm: name },
            owner_cgroup: 0,
            target,
            reason: 0,
            weight: 1,
        }
    }

    #[test]
    fn a_flush_is_waited_for_by_who_asked_for_it_and_the_block_layers_own_is_the_devices() {
        let asked = transfer(Op::Flush, Target::NoPages, b"java");
        let of = |by, by_kernel| account(&asked, IoPurpose::Flush, by, by_kernel, None);
        assert!(is_waited_for(&asked));
        assert_eq!(of(Some(ProcId(1)), false), IoCulprit::Process(ProcId(1)));
        assert_eq!(of(Some(ProcId(1)), true), IoCulprit::Filesystem);
        assert_eq!(of(None, false), IoCulprit::Device);
        let own = Transfer { submitter: Requester::default(), ..asked };
        assert!(!is_waited_for(&own));
    }

    #[test]
    fn every_target_has_a_class() {
        let fs = DeviceFacts { has_filesystem: true, btrfs: false };
        let bare = DeviceFacts::default();
        let file = || Target::File { fs: 7 << 20, ino: 12, generation: 3, subvolume: 5 };
        let of = |op, target, comm: &[u8], place| kind(&transfer(op, target, comm), place);
        let fs_dev = DevId { major: 7, minor: 0 };
        let inode = Inode { fs: fs_dev, ino: 12, generation: 3, subvolume: 5 };
        assert_eq!(of(Op::Write, file(), b"java", fs), TransferPurpose::Data(inode));
        for (op, target, comm, place, what) in [
            (Op::Flush, Target::NoPages, &b"java"[..], fs, IoPurpose::Flush),
            (Op::Write, Target::NoPages, b"java", fs, IoPurpose::Unknown),
            (Op::Discard, Target::NoPages, b"fstrim", fs, IoPurpose::Discard),
            (Op::Write, Target::BlockDevice, b"jbd2/loop0-8", fs, IoPurpose::Journal),
            (Op::Write, Target::BlockDevice, b"kworker/u8:1", fs, IoPurpose::Metadata),
            (Op::Read, Target::BlockDevice, b"dd", bare, IoPurpose::RawDevice),
            (Op::Write, Target::Anonymous, b"fio", fs, IoPurpose::RawDevice),
            (Op::Write, Target::Unknown, b"xfsaild/loop0", fs, IoPurpose::Metadata),
            (Op::Write, Target::Unknown, b"x", bare, IoPurpose::Unknown),
        ] {
            assert_eq!(of(op, target, comm, place), TransferPurpose::Other(what), "{what:?}");
        }
    }
}
