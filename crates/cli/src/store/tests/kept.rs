// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recordings of version 2 that are kept in `fixtures` are read as they were written.

use super::{read, write};
use deburr_core::recording::{
    BlockRecord, CpuCheckRecord, CpuDistance, DevId, Device, DeviceBin, DiskCounters, File, FileId,
    FileState, IoCulprit, IoOp, IoPurpose, IoTick, ProcId, Record, Source, StallKind,
};
use deburr_core::testkit::{MS, Machine, S, Scene, pass, transfers};
use std::path::Path;

/// Five seconds of a database that syncs its log on the disk that the flusher writes to: every kind of block IO record,
/// and every word that a column may hold.
fn made_up() -> Vec<Record> {
    let mut scene = Scene::new(2, 5 * S);
    scene.without(Source::Timeline, "made up", "nothing");
    let root = scene.cgroup("/", None, None);
    let service = scene.cgroup("/db.service", Some(50_000), None);
    let db = scene.process("db", Some(service));
    let flusher = scene.process("kworker/u4:1\u{1b}[31m", None);
    let disk = scene.disk("sda");
    let partition = scene.partition(disk, "sda1", 2048);
    let looped = DevId { major: 7, minor: 0 };
    let device = Device {
        dev: looped,
        name: "loop0".into(),
        disk: None,
        start_sector: None,
        sectors: None,
        backing: Some("/srv/a\\xff b".into()),
        gone: false,
    };
    scene.block(BlockRecord::Device(device.clone()));
    scene.mount(partition, "ext4", "/srv", "rw,relatime");
    scene.setting("/proc/sys/vm/dirty_expire_centisecs", "3000");
    scene.setting_at(2 * S, "/proc/sys/vm/dirty_expire_centisecs", "");
    let log = scene.file(partition, "/srv/log \"1\"\n");
    for (id, state) in
        [(2, FileState::Deleted), (3, FileState::InFilesystem), (4, FileState::Nameless)]
    {
        let (id, path) = (FileId(id), String::new());
        scene.block(BlockRecord::File(File {
            id,
            fs: partition,
            ino: u64::MAX,
            generation: u32::MAX,
            path,
            state,
            dirtied_by: None,
        }));
    }
    for second in 0..5 {
        seconds(&mut scene, second, (db, flusher), disk, log);
    }
    scene.bins(disk, |t_ns| match t_ns / MS % 1000 {
        300..500 => DeviceBin { busy_ns: 10 * MS, depth_ns: 80 * MS, ios: 12, bytes: 98_304 },
        _ => DeviceBin::default(),
    });
    scene.diskstats(disk, |t_ns| DiskCounters {
        writes: t_ns / MS,
        write_bytes: t_ns / MS * 4096,
        write_ns: t_ns,
        busy_ns: t_ns / 2,
        depth_ns: 3 * t_ns,
        in_flight: 7,
        ..DiskCounters::default()
    });
    let mut periodic = pass(disk, "periodic", 3, 40, 163_840);
    (periodic.ages, periodic.since_last) = (vec![(30, 2), (34, 1)], vec![(5, 3)]);
    periodic.dirtied_by = vec![(db, 2), (ProcId::OTHERS, 1)];
    scene.pass(S..2 * S, periodic);
    scene.commit(S..S + 40 * MS, partition, "jbd2");
    scene.stall(S..S + 60 * MS, db, StallKind::Sync, Some(disk), Some(log));
    scene.stall(2 * S..3 * S, db, StallKind::DirtyThrottle, None, None);
    for culprit in [
        IoCulprit::Writeback(Some(root)),
        IoCulprit::Writeback(None),
        IoCulprit::Process(flusher),
        IoCulprit::Filesystem,
        IoCulprit::Device,
    ] {
        scene.io_blame(0..S, db, disk, culprit, 4 * MS);
    }
    scene.block(BlockRecord::Device(Device { gone: true, ..device }));
    scene.records()
}

fn seconds(
    scene: &mut Scene,
    second: u64,
    (db, flusher): (ProcId, ProcId),
    disk: DevId,
    log: FileId,
) {
    let at = || second * S..(second + 1) * S;
    for (i, what) in [
        IoPurpose::File(log),
        IoPurpose::File(FileId::OTHERS),
        IoPurpose::Metadata,
        IoPurpose::Journal,
        IoPurpose::Flush,
        IoPurpose::Discard,
        IoPurpose::Swap,
        IoPurpose::RawDevice,
        IoPurpose::Unknown,
    ]
    .into_iter()
    .enumerate()
    {
        let op = [IoOp::Write, IoOp::Read, IoOp::Other][i % 3];
        let tick = transfers(disk, what, op, 10 + i as u64, 40_960, MS);
        let reason = (i == 0).then(|| "periodic".into());
        scene.io(at(), IoTick { submitter: Some(flusher), reason, ..tick });
    }
    scene.requests(at(), disk, IoOp::Write, &[(8, MS, 2 * MS), (1, 0, 30 * MS)]);
    if second == 0 {
        scene.io_wait(at(), db, StallKind::Request, Some(disk), &[(1, 20 * MS)]);
    }
    scene.io_wait(at(), db, StallKind::Sync, None, &[(1, 40 * MS), (3, MS)]);
}

/// A check of four CPUs that are two cores, in the tables that were added to version 2 for it.
fn checked() -> Vec<Record> {
    let mut scene = Machine { sliced: true, ..Machine::siblings(4) }.checked();
    let distance = CpuDistance { t_ns: 7, a: 0, b: 3, one_way_ns: 195 };
    scene.check(CpuCheckRecord::Distance(distance));
    scene.records()
}

#[test]
fn kept_recordings_of_version_2_are_read_as_they_were_written() {
    // The first one was made before lists of numbers were packed.
    is_kept("made-up", &made_up());
    is_kept("packed", &made_up());
    is_kept("cpu-check", &checked());
}

fn is_kept(name: &str, made_up: &[Record]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/recordings/v2");
    let path = folder.join(format!("{name}.deburr"));
    // Only a missing recording is written: existing ones, made by older versions, are never replaced.
    if std::env::var_os("UPDATE").is_some() && !path.exists() {
        std::fs::create_dir_all(folder).unwrap();
        write(&path, made_up);
    }
    assert_eq!(read(&path).unwrap(), made_up);
}
