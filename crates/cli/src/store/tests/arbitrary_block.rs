// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arbitrary records of block IO.

use super::arbitrary::{maybe, proc_id, range, text, waits};
use deburr_core::recording::{
    BlockRecord, CgroupId, DevId, Device, DeviceBin, DeviceBins, DeviceTick, DiskCounters,
    DiskReading, File, FileId, FileState, HeldTick, IoBlameTick, IoCulprit, IoOp, IoPace, IoTick,
    IoWaitTick, IoWhat, JournalCommit, Mount, ProcId, Record, Setting, Stall, StallKind,
    WritebackPass,
};
use proptest::prelude::*;
use proptest::sample::select;

fn dev() -> impl Strategy<Value = DevId> {
    any::<(u32, u32)>().prop_map(|(major, minor)| DevId { major, minor })
}

fn op() -> impl Strategy<Value = IoOp> {
    select(vec![IoOp::Read, IoOp::Write, IoOp::Other])
}

fn file_id() -> impl Strategy<Value = FileId> {
    prop_oneof![any::<u32>().prop_map(FileId), Just(FileId::OTHERS)]
}

fn stall_kind() -> impl Strategy<Value = StallKind> {
    select(vec![StallKind::Sync, StallKind::DirtyThrottle, StallKind::Request])
}

fn facts() -> impl Strategy<Value = BlockRecord> {
    let numbers = any::<(Option<u64>, Option<u64>, bool)>();
    let device = (dev(), text(), maybe(dev()), maybe(text()), numbers).prop_map(
        |(dev, name, disk, backing, (start_sector, sectors, gone))| {
            BlockRecord::Device(Device { dev, name, disk, start_sector, sectors, backing, gone })
        },
    );
    let mount =
        (dev(), text(), text(), text(), text()).prop_map(|(fs, fstype, source, point, options)| {
            BlockRecord::Mount(Mount { fs, fstype, source, point, options })
        });
    let setting = (any::<u64>(), text(), maybe(text()))
        .prop_map(|(t_ns, path, value)| BlockRecord::Setting(Setting { t_ns, path, value }));
    let state = select(vec![
        FileState::Linked,
        FileState::Deleted,
        FileState::InFilesystem,
        FileState::Nameless,
    ]);
    let file = (file_id(), dev(), any::<(u64, u32)>(), text(), state, maybe(proc_id())).prop_map(
        |(id, fs, (ino, generation), path, state, dirtied_by)| {
            BlockRecord::File(File { id, fs, ino, generation, path, state, dirtied_by })
        },
    );
    prop_oneof![device, mount, setting, file]
}

fn io() -> impl Strategy<Value = BlockRecord> {
    let what = prop_oneof![
        file_id().prop_map(IoWhat::File),
        select(vec![
            IoWhat::Metadata,
            IoWhat::Journal,
            IoWhat::Flush,
            IoWhat::Discard,
            IoWhat::Swap,
            IoWhat::RawDevice,
            IoWhat::Unknown,
        ])
    ];
    let who = (maybe(proc_id()), any::<Option<u64>>(), maybe(text()));
    (range(), dev(), what, op(), who, any::<[u64; 4]>()).prop_map(
        |((t0_ns, t1_ns), device, what, op, (submitter, owner, reason), n)| {
            BlockRecord::Io(IoTick {
                t0_ns,
                t1_ns,
                device,
                what,
                op,
                submitter,
                owner: owner.map(CgroupId),
                reason,
                ios: n[0],
                bytes: n[1],
                total_ns: n[2],
                max_ns: n[3],
            })
        },
    )
}

fn devices() -> impl Strategy<Value = BlockRecord> {
    let hists = [waits(), waits(), waits()];
    let numbers = any::<(u64, u32)>();
    let tick = (range(), dev(), op(), hists, numbers, maybe(waits())).prop_map(
        |((t0_ns, t1_ns), device, op, hists, (max_ns, sampled_one_in), before)| {
            let [total, queue, device_time] = hists;
            BlockRecord::DeviceTick(DeviceTick {
                t0_ns,
                t1_ns,
                device,
                op,
                total,
                queue,
                device_time,
                max_ns,
                before,
                sampled_one_in,
            })
        },
    );
    let members = prop::collection::vec(proc_id(), 0..4);
    let numbers = any::<(u64, u64, Option<u64>)>();
    let held = (range(), dev(), op(), maybe(text()), numbers, members).prop_map(
        |((t0_ns, t1_ns), device, op, cgroup, (ios, bytes, service_ns), members)| {
            BlockRecord::Held(HeldTick {
                t0_ns,
                t1_ns,
                device,
                op,
                cgroup,
                ios,
                bytes,
                service_ns,
                members,
            })
        },
    );
    let bin = prop_oneof![
        Just(DeviceBin::default()),
        any::<(u64, u64, u32, u64)>().prop_map(|(busy_ns, depth_ns, ios, bytes)| DeviceBin {
            busy_ns,
            depth_ns,
            ios,
            bytes,
        })
    ];
    let bins = (range(), dev(), prop::collection::vec(bin, 0..6)).prop_map(
        |((t0_ns, t1_ns), device, bins)| {
            BlockRecord::Bins(DeviceBins { t0_ns, t1_ns, device, bins })
        },
    );
    let disk = (dev(), any::<[u64; 12]>()).prop_map(|(device, n)| {
        let counters = DiskCounters {
            reads: n[1],
            read_bytes: n[2],
            read_ns: n[3],
            writes: n[4],
            write_bytes: n[5],
            write_ns: n[6],
            discard_bytes: n[7],
            flushes: n[8],
            busy_ns: n[9],
            depth_ns: n[10],
            in_flight: n[11],
        };
        BlockRecord::Disk(DiskReading { t_ns: n[0], device, counters })
    });
    prop_oneof![held, tick, bins, disk]
}

fn writeback() -> impl Strategy<Value = BlockRecord> {
    let ages = || prop::collection::vec(any::<(u32, u32)>(), 0..4);
    let pass = (any::<[u64; 5]>(), dev(), text(), ages(), ages(), ages()).prop_map(
        |(n, device, reason, ages, since_last, by)| {
            BlockRecord::Pass(WritebackPass {
                t0_ns: n[0],
                t1_ns: n[1],
                device,
                reason,
                inodes: n[2],
                bytes: n[3],
                ios: n[4],
                ages,
                since_last,
                asked_by: by.iter().take(1).map(|&(proc, times)| (ProcId(proc), times)).collect(),
                dirtied_by: by.into_iter().map(|(proc, inodes)| (ProcId(proc), inodes)).collect(),
            })
        },
    );
    let commit = (any::<(u64, u64, Option<u64>)>(), dev(), text()).prop_map(
        |((t0_ns, t1_ns, blocks), device, kind)| {
            BlockRecord::Commit(JournalCommit { t0_ns, t1_ns, device, kind, blocks })
        },
    );
    prop_oneof![pass, commit]
}

fn hold_ups() -> impl Strategy<Value = BlockRecord> {
    let wait = (range(), proc_id(), stall_kind(), maybe(dev()), waits(), any::<[u64; 2]>())
        .prop_map(|((t0_ns, t1_ns), proc, kind, device, waits, [max_ns, unmeasured])| {
            BlockRecord::Wait(IoWaitTick {
                t0_ns,
                t1_ns,
                proc,
                kind,
                device,
                waits,
                max_ns,
                unmeasured,
            })
        });
    let times = any::<([u64; 2], Option<u64>, [u64; 2])>();
    let stall = (times, proc_id(), stall_kind(), maybe(dev()), maybe(file_id())).prop_map(
        |(([t0_ns, t1_ns], latest_ns, [within, within_ns]), proc, kind, device, file)| {
            BlockRecord::Stall(Stall {
                t0_ns,
                t1_ns,
                proc,
                kind,
                device,
                file,
                latest_ns,
                within,
                within_ns,
            })
        },
    );
    let culprit = || {
        prop_oneof![
            proc_id().prop_map(IoCulprit::Process),
            any::<Option<u64>>().prop_map(|owner| IoCulprit::Writeback(owner.map(CgroupId))),
            Just(IoCulprit::Filesystem),
            Just(IoCulprit::Device),
        ]
    };
    // As many bins for each.
    let bins = prop::collection::vec(any::<u64>(), 12);
    let series = (prop::collection::btree_map(culprit(), bins, 1..5), 0..12usize);
    let pace =
        (range(), dev(), series).prop_map(|((t0_ns, t1_ns), device, (mut sectors, count))| {
            sectors.values_mut().for_each(|bins| bins.truncate(count));
            BlockRecord::Pace(IoPace { t0_ns, t1_ns, device, sectors })
        });
    let blame = (range(), proc_id(), dev(), culprit(), any::<u64>()).prop_map(
        |((t0_ns, t1_ns), victim, device, culprit, ns)| {
            BlockRecord::Blame(IoBlameTick { t0_ns, t1_ns, victim, device, culprit, ns })
        },
    );
    prop_oneof![wait, stall, blame, pace]
}

/// Any record of block IO, made sense or not.
pub(super) fn record() -> impl Strategy<Value = Record> {
    // Boxed: unboxed, the strategies are larger than the stack of a test.
    prop_oneof![
        facts().boxed(),
        io().boxed(),
        devices().boxed(),
        writeback().boxed(),
        hold_ups().boxed()
    ]
    .prop_map(|record| Record::Block(Box::new(record)))
}
