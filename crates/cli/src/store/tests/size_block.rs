// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A busy second of block IO: four disks that are never idle, and many files.

use super::size::{Amounts, PROCESSES, SECOND_NS};
use deburr_core::recording::{
    BlockRecord, CgroupId, DevId, DeviceBin, DeviceBins, DeviceTick, DiskCounters, DiskReading,
    FileId, IoBlameTick, IoCulprit, IoOp, IoPace, IoPurpose, IoTick, IoWaitTick, ProcId, Record,
    Stall, StallKind, WaitHist,
};

const DISKS: u32 = 4;
/// Files that are read or written in every second.
const FILES: u32 = 500;
/// Processes that wait for requests or syncs, and the number of culprits of each.
const WAITING: u32 = 20;
const CULPRITS: u32 = 5;
/// Culprits in the pace of a disk, one of them for all the small ones.
const PACES: u32 = 5;
/// Stalls of 10 ms and more: as many as are emitted per second.
const STALLS: u32 = 200;
/// Bins of 100 in which a disk did anything.
const ACTIVE: u64 = 60;

fn disk(at: u32) -> DevId {
    DevId { major: 8, minor: 16 * (at % DISKS) }
}

fn proc(n: &mut Amounts) -> ProcId {
    ProcId(n.below(PROCESSES.into()) as u32)
}

fn waits(n: &mut Amounts, sizes_us: &[u64]) -> WaitHist {
    let mut waits = WaitHist::default();
    for size_us in sizes_us {
        for _ in 0..1 + n.below(40) {
            waits.add(size_us * (500 + n.below(500)));
        }
    }
    waits
}

fn transfer(n: &mut Amounts, t0_ns: u64, at: u32) -> BlockRecord {
    let writeback = n.below(2) == 0;
    BlockRecord::Io(IoTick {
        t0_ns,
        t1_ns: t0_ns + SECOND_NS,
        device: disk(at),
        what: IoPurpose::File(FileId(n.below(20_000) as u32)),
        op: if writeback || n.below(2) == 0 { IoOp::Write } else { IoOp::Read },
        submitter: Some(proc(n)),
        owner: Some(CgroupId(100_000 + n.below(100))),
        reason: writeback.then(|| "periodic".into()),
        ios: n.below(300),
        bytes: 4096 * n.below(10_000),
        total_ns: n.below(SECOND_NS),
        max_ns: n.below(30_000_000),
    })
}

fn devices(n: &mut Amounts, t0_ns: u64, take: &mut impl FnMut(BlockRecord)) {
    let t1_ns = t0_ns + SECOND_NS;
    for device in (0..DISKS).map(disk) {
        for op in [IoOp::Read, IoOp::Write] {
            take(BlockRecord::DeviceTick(DeviceTick {
                t0_ns,
                t1_ns,
                device,
                op,
                total: waits(n, &[60, 300, 2_000, 5_000, 9_000, 30_000]),
                queue: waits(n, &[1, 10, 300, 2_000, 9_000]),
                device_time: waits(n, &[60, 300, 2_000, 5_000]),
                max_ns: n.below(30_000_000),
                // No request waits for a tag.
                before: Some(WaitHist::default()),
                sampled_one_in: 1,
            }));
        }
        let mut bin = || {
            if n.below(100) >= ACTIVE {
                return DeviceBin::default();
            }
            DeviceBin {
                busy_ns: n.below(10_000_000),
                depth_ns: n.below(100_000_000),
                // Up to 20 000 a second, and 400 MB.
                ios: n.below(200) as u32,
                bytes: 4096 * n.below(1000),
            }
        };
        let bins = (0..100).map(|_| bin()).collect();
        take(BlockRecord::Bins(DeviceBins { t0_ns, t1_ns, device, bins }));
        let mut series = || (0..10).map(|_| 8 * n.below(10_000)).collect();
        let sectors = (0..PACES).map(|at| (IoCulprit::Process(ProcId(at * 50)), series()));
        let sectors = sectors.collect();
        take(BlockRecord::Pace(IoPace { t0_ns, t1_ns, device, sectors }));
        // The disk and a partition.
        for (tenth, minor) in (0..10).flat_map(|tenth| [(tenth, 0), (tenth, 1)]) {
            let t_ns = t0_ns + tenth * SECOND_NS / 10;
            let mut counter = || t_ns + n.below(100 * SECOND_NS);
            let counters = DiskCounters {
                reads: counter() / 100_000,
                read_bytes: counter(),
                read_ns: counter(),
                writes: counter() / 100_000,
                write_bytes: counter(),
                write_ns: counter(),
                discard_bytes: 0,
                flushes: counter() / 1_000_000,
                busy_ns: counter(),
                depth_ns: counter(),
                in_flight: n.below(30),
            };
            let device = DevId { minor: device.minor + minor, ..device };
            take(BlockRecord::Disk(DiskReading { t_ns, device, counters }));
        }
    }
}

fn hold_ups(n: &mut Amounts, t0_ns: u64, at: u32, take: &mut impl FnMut(BlockRecord)) {
    let (t1_ns, victim, device) = (t0_ns + SECOND_NS, proc(n), disk(at));
    for kind in [StallKind::Request, StallKind::Sync] {
        take(BlockRecord::Wait(IoWaitTick {
            t0_ns,
            t1_ns,
            proc: victim,
            kind,
            device: Some(device),
            waits: waits(n, &[300, 2_000, 9_000]),
            max_ns: n.below(30_000_000),
            unmeasured: 0,
        }));
    }
    for _ in 0..CULPRITS {
        let culprit = match n.below(3) {
            0 => IoCulprit::Writeback(Some(CgroupId(100_000 + n.below(100)))),
            _ => IoCulprit::Process(proc(n)),
        };
        let ns = n.below(SECOND_NS);
        take(BlockRecord::Blame(IoBlameTick { t0_ns, t1_ns, victim, device, culprit, ns }));
    }
}

fn stall(n: &mut Amounts, t0_ns: u64, at: u32) -> BlockRecord {
    let (t0_ns, kind) = (t0_ns + n.below(SECOND_NS), n.below(3));
    // One in two syncs is on a filesystem where the end of a sync is not reported.
    let is_looked_at = kind == 1 && n.below(2) == 0;
    let t1_ns = t0_ns + 10_000_000 + n.below(300_000_000);
    // Most are merged with others.
    let within = n.below(8);
    BlockRecord::Stall(Stall {
        t0_ns,
        t1_ns,
        proc: proc(n),
        kind: if kind == 0 { StallKind::Request } else { StallKind::Sync },
        device: Some(disk(at)),
        file: Some(FileId(n.below(20_000) as u32)),
        latest_ns: is_looked_at.then(|| t1_ns + n.below(100_000_000)),
        within,
        within_ns: within * (10_000_000 + n.below(100_000_000)),
    })
}

pub(super) fn busy_second(n: &mut Amounts, t0_ns: u64, take: &mut impl FnMut(Record)) {
    let mut take = |record| take(Record::Block(Box::new(record)));
    devices(n, t0_ns, &mut take);
    for at in 0..FILES {
        take(transfer(n, t0_ns, at));
    }
    for at in 0..WAITING {
        hold_ups(n, t0_ns, at, &mut take);
    }
    for at in 0..STALLS {
        take(stall(n, t0_ns, at));
    }
}
