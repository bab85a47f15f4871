// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the invariants of block IO.

use super::*;
use crate::recording::{
    BlockRecord, CgroupId, Coverage, DevId, Device, DeviceBin, DeviceBins, DeviceTick,
    DiskCounters, DiskReading, File, FileId, FileState, HeldTick, IoBlameTick, IoCulprit, IoOp,
    IoPace, IoPurpose, IoTick, IoWaitTick, JournalCommit, ProcId, Setting, Source, Stall,
    StallKind, State, WaitHist, WritebackPass,
};
use crate::testkit::{MS, S, Scene, hist, pass, transfers};
use proptest::prelude::*;

const DISK: DevId = DevId { major: 8, minor: 0 };
const NO_DISK: DevId = DevId { major: 9, minor: 9 };
const VICTIM: ProcId = ProcId(1);

fn check(records: &[Record]) -> Vec<Violation> {
    let mut checker = Checker::default();
    records.iter().for_each(|record| checker.push(record));
    checker.finish().violations
}

fn counters(t_ns: u64) -> DiskCounters {
    DiskCounters { writes: t_ns / MS, busy_ns: t_ns / 2, ..DiskCounters::default() }
}

/// Two seconds of a disk, without violations.
fn scene() -> Scene {
    let mut scene = Scene::new(2, 2 * S);
    let root = scene.cgroup("/", None, None);
    let victim = scene.process("db", Some(root));
    let flusher = scene.process("kworker/u4:1", None);
    let disk = scene.disk("sda");
    let partition = scene.partition(disk, "sda1", 2048);
    scene.mount(partition, "ext4", "/srv", "rw,relatime");
    scene.setting("/proc/sys/vm/dirty_expire_centisecs", "3000");
    let file = scene.file(partition, "/srv/index");
    for at in [0..S, S..2 * S] {
        let tick = IoTick {
            submitter: Some(flusher),
            owner: Some(root),
            reason: Some("periodic".into()),
            ..transfers(disk, IoPurpose::File(file), IoOp::Write, 10, 40_960, MS)
        };
        scene.io(at.clone(), tick);
        scene.io(at.clone(), transfers(disk, IoPurpose::Flush, IoOp::Other, 2, 0, MS));
        scene.requests(at.clone(), disk, IoOp::Write, &[(8, MS, 2 * MS), (1, 0, 30 * MS)]);
        scene.io_wait(at.clone(), victim, StallKind::Request, Some(disk), &[(3, 20 * MS)]);
        scene.io_blame(at.clone(), victim, disk, IoCulprit::Writeback(Some(root)), 50 * MS);
        scene.io_blame(at.clone(), victim, disk, IoCulprit::Process(flusher), 5 * MS);
        scene.io_blame(at.clone(), victim, disk, IoCulprit::Device, 5 * MS);
        scene.io_wait(at, victim, StallKind::Sync, None, &[(1, 40 * MS)]);
    }
    scene.pace(disk, &[IoCulprit::Process(flusher), IoCulprit::Filesystem], |_, _| 1);
    scene.bins(disk, |t_ns| match t_ns / S {
        0 => DeviceBin::default(),
        _ => DeviceBin { busy_ns: 10 * MS, depth_ns: 25 * MS, ios: 3, bytes: 4096 },
    });
    scene.diskstats(disk, counters).diskstats(partition, counters);
    let mut periodic = pass(disk, "periodic", 3, 10, 40_960);
    periodic.ages = vec![(30, 2), (34, 1)];
    periodic.dirtied_by = vec![(victim, 3)];
    scene.pass(MS..S, periodic).commit(MS..S, partition, "jbd2");
    scene.stall(MS..41 * MS, victim, StallKind::Sync, Some(disk), Some(file));
    scene
}

/// The violations when `record` is inserted before the end.
fn violated_by(record: BlockRecord) -> Vec<String> {
    let mut scene = scene();
    scene.block(record);
    check(&scene.records()).into_iter().map(|violation| violation.to_string()).collect()
}

fn io(change: impl FnOnce(&mut IoTick)) -> BlockRecord {
    let mut tick = transfers(DISK, IoPurpose::Metadata, IoOp::Write, 1, 4096, MS);
    change(&mut tick);
    BlockRecord::Io(tick)
}

fn bins(change: impl FnOnce(&mut DeviceBins)) -> BlockRecord {
    let bin = DeviceBin { busy_ns: 10 * MS, depth_ns: 10 * MS, ios: 1, bytes: 512 };
    let mut bins = DeviceBins { t0_ns: 2 * S, t1_ns: 3 * S, device: DISK, bins: vec![bin; 100] };
    change(&mut bins);
    BlockRecord::Bins(bins)
}

fn requests(change: impl FnOnce(&mut DeviceTick)) -> BlockRecord {
    let mut tick = DeviceTick {
        t0_ns: 2 * S,
        t1_ns: 3 * S,
        device: DISK,
        op: IoOp::Read,
        total: hist(&[(4, 20 * MS)]),
        queue: hist(&[(4, 5 * MS)]),
        device_time: hist(&[(4, 15 * MS)]),
        max_ns: 20 * MS,
        before: Some(hist(&[(4, MS)])),
        sampled_one_in: 1,
    };
    change(&mut tick);
    BlockRecord::DeviceTick(tick)
}

fn held(change: impl FnOnce(&mut HeldTick)) -> BlockRecord {
    let mut tick = HeldTick {
        t0_ns: 2 * S,
        t1_ns: 3 * S,
        device: DISK,
        op: IoOp::Read,
        cgroup: None,
        ios: 4,
        bytes: 16384,
        service_ns: Some(MS),
        members: vec![VICTIM],
    };
    change(&mut tick);
    BlockRecord::Held(tick)
}

fn wait(change: impl FnOnce(&mut IoWaitTick)) -> BlockRecord {
    let mut tick = IoWaitTick {
        t0_ns: 2 * S,
        t1_ns: 3 * S,
        proc: VICTIM,
        kind: StallKind::Sync,
        device: Some(DISK),
        waits: hist(&[(4, 20 * MS)]),
        max_ns: 20 * MS,
        unmeasured: 0,
    };
    change(&mut tick);
    BlockRecord::Wait(tick)
}

fn pace(change: impl FnOnce(&mut IoPace)) -> BlockRecord {
    let sectors = [(IoCulprit::Process(VICTIM), vec![8; 10])].into();
    let mut pace = IoPace { t0_ns: 2 * S, t1_ns: 3 * S, device: DISK, sectors };
    change(&mut pace);
    BlockRecord::Pace(pace)
}

fn blame(t0_ns: u64, culprit: IoCulprit, ns: u64) -> BlockRecord {
    let t1_ns = t0_ns + S;
    BlockRecord::Blame(IoBlameTick { t0_ns, t1_ns, victim: VICTIM, device: DISK, culprit, ns })
}

fn flush(change: impl FnOnce(&mut WritebackPass)) -> BlockRecord {
    let mut pass = pass(DISK, "sync", 1, 1, 512);
    change(&mut pass);
    BlockRecord::Pass(pass)
}

fn reading(t_ns: u64, counters: DiskCounters) -> BlockRecord {
    BlockRecord::Disk(DiskReading { t_ns, device: DISK, counters })
}

fn gone() -> Device {
    Device {
        dev: DISK,
        name: "sda".into(),
        disk: None,
        start_sector: None,
        sectors: None,
        backing: None,
        gone: true,
    }
}

#[test]
fn a_good_recording_has_no_violation_however_short() {
    let records = scene().records();
    for length in 1..=records.len() {
        assert_eq!(check(&records[..length]), [], "{length}");
    }
    for record in [
        io(|_| ()),
        bins(|_| ()),
        requests(|_| ()),
        wait(|_| ()),
        flush(|_| ()),
        pace(|_| ()),
        held(|_| ()),
        requests(|t| t.before = None),
        pace(|p| p.t1_ns -= 10 * MS),
        reading(2 * S, counters(2 * S)),
    ] {
        assert_eq!(violated_by(record), [] as [&str; 0]);
    }
}

#[test]
fn amounts_that_cannot_be() {
    let cases = [
        ("longest transfer", io(|t| t.max_ns = 100 * MS)),
        ("longest transfer", io(|t| t.ios = 0)),
        ("bins do not overlap", bins(|b| (b.t0_ns, b.t1_ns) = (S, 2 * S))),
        ("equal length", bins(|b| b.bins.truncate(99))),
        ("equal length", bins(|b| b.bins.clear())),
        ("bins do not overlap", pace(|p| (p.t0_ns, p.t1_ns) = (S / 2, S + S / 2))),
        ("bins of a pace", pace(|p| p.t1_ns += 10 * MS)),
        ("the time before a request", requests(|t| t.before = Some(hist(&[(5, MS)])))),
        ("what a limit held back", held(|t| t.ios = 0)),
        ("what a limit held back", held(|t| t.members = vec![VICTIM; 65])),
        ("bins of a pace", pace(|p| p.sectors.values_mut().for_each(Vec::clear))),
        ("busy in a bin", bins(|b| b.bins[5].busy_ns = 12 * MS)),
        ("busy in a bin", bins(|b| b.bins[5].depth_ns = 8 * MS)),
        ("bucket", requests(|t| t.queue.ns[3] = 1)),
        ("bucket", requests(|t| t.device_time.count[3] = 1)),
        ("longest wait", requests(|t| t.max_ns = 100 * MS)),
        ("exceed the whole", requests(|t| t.queue = hist(&[(4, 10 * MS)]))),
        ("looked at", requests(|t| t.sampled_one_in = 0)),
        ("longest wait", wait(|t| t.waits = WaitHist::default())),
        ("ascending", flush(|p| p.ages = vec![(3, 1), (2, 1)])),
        ("ascending", flush(|p| p.since_last = vec![(3, 1), (3, 1)])),
        ("at most 16", flush(|p| p.dirtied_by = vec![(VICTIM, 1); 17])),
        ("backwards", reading(2 * S, counters(S))),
        ("backwards", reading(S, counters(2 * S))),
        ("is blamed", blame(S, IoCulprit::Filesystem, 10 * MS)),
        ("is blamed", blame(2 * S, IoCulprit::Filesystem, 10 * MS)),
        ("does not end before", blame(S, IoCulprit::Device, 0).reversed()),
    ];
    for (expected, record) in cases {
        let violated = violated_by(record.clone());
        assert!(
            violated.iter().any(|text| text.contains(expected)),
            "{expected}: {violated:?} {record:?}"
        );
    }
}

impl BlockRecord {
    /// A blame record that ends before it starts.
    fn reversed(mut self) -> Self {
        if let Self::Blame(tick) = &mut self {
            std::mem::swap(&mut tick.t0_ns, &mut tick.t1_ns);
        }
        self
    }
}

#[test]
fn waiting_that_is_not_blamed_in_its_own_tick() {
    let mut scene = scene();
    scene.io_wait(2 * S..3 * S, VICTIM, StallKind::Request, Some(DISK), &[(1, 90 * MS)]);
    scene.io_blame(3 * S..4 * S, VICTIM, DISK, IoCulprit::Device, 90 * MS);
    let unblamed = check(&scene.records());
    assert!(unblamed.iter().any(|v| v.first.contains("90000000 ns of 0 ns")), "{unblamed:?}");
}

#[test]
fn a_device_that_takes_the_number_of_another_counts_from_0() {
    let mut replaced = scene();
    replaced.block(reading(2 * S, counters(2 * S))).block(BlockRecord::Device(gone()));
    replaced.block(reading(2 * S, DiskCounters::default()));
    assert_eq!(check(&replaced.records()), []);
    let mut same = scene();
    same.block(reading(2 * S, DiskCounters::default()));
    assert_eq!(check(&same.records()).len(), 1);
}

#[test]
fn references_that_lead_nowhere() {
    let (proc, file, cgroup) = (ProcId(77), FileId(77), CgroupId(77));
    let file_record = |id| {
        let (path, state) = (String::new(), FileState::Nameless);
        BlockRecord::File(File {
            id: FileId(id),
            fs: DISK,
            ino: 1,
            generation: 0,
            path,
            state,
            dirtied_by: None,
        })
    };
    let stall = |proc, device, file| {
        let kind = StallKind::Sync;
        let (t0_ns, t1_ns) = (0, S);
        let (latest_ns, within, within_ns) = (None, 0, 0);
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
    };
    let commit =
        JournalCommit { t0_ns: 0, t1_ns: 1, device: NO_DISK, kind: "jbd2".into(), blocks: None };
    let cases = [
        ("a device", BlockRecord::Device(Device { disk: Some(NO_DISK), ..gone() })),
        ("a device", io(|t| t.device = NO_DISK)),
        ("a file", io(|t| t.what = IoPurpose::File(file))),
        ("a process", io(|t| t.submitter = Some(proc))),
        ("a cgroup", io(|t| t.owner = Some(cgroup))),
        ("a device", bins(|b| b.device = NO_DISK)),
        ("a device", requests(|t| t.device = NO_DISK)),
        ("a device", pace(|p| p.device = NO_DISK)),
        ("a device", held(|t| t.device = NO_DISK)),
        ("a process", held(|t| t.members = vec![proc])),
        ("a process", pace(|p| p.sectors = [(IoCulprit::Process(proc), vec![0; 10])].into())),
        (
            "a device",
            BlockRecord::Disk(DiskReading { t_ns: 0, device: NO_DISK, counters: counters(0) }),
        ),
        ("a device", flush(|p| p.device = NO_DISK)),
        ("a process", flush(|p| p.dirtied_by = vec![(proc, 1)])),
        ("a device", BlockRecord::Commit(commit)),
        ("a process", wait(|t| t.proc = proc)),
        ("a device", wait(|t| t.device = Some(NO_DISK))),
        ("a process", stall(proc, None, None)),
        ("a device", stall(VICTIM, Some(NO_DISK), None)),
        ("a file", stall(VICTIM, None, Some(file))),
        ("a process", blame(0, IoCulprit::Process(proc), 0)),
        ("a cgroup", blame(0, IoCulprit::Writeback(Some(cgroup)), 0)),
        ("no file has", file_record(0)),
        ("no file has", file_record(u32::MAX)),
    ];
    for (expected, record) in cases {
        let violated = violated_by(record.clone());
        assert!(
            violated.iter().any(|text| text.contains(expected)),
            "{expected}: {violated:?} {record:?}"
        );
    }
    let others =
        io(|t| (t.what, t.submitter) = (IoPurpose::File(FileId::OTHERS), Some(ProcId::OTHERS)));
    assert_eq!(violated_by(others), [] as [&str; 0]);
    // A pass may be on a filesystem without a device.
    let mut scene = scene();
    scene.mount(DevId { major: 0, minor: 39 }, "btrfs", "/b", "rw");
    scene.block(flush(|p| p.device = DevId { major: 0, minor: 39 }));
    assert_eq!(check(&scene.records()), []);
}

#[test]
fn a_source_of_block_io_that_saw_nothing_yields_nothing() {
    // Number of records of the scene from each source.
    for (source, count) in [
        (Source::Block, 2 * (2 + 1 + 1 + 1 + 3) + 1),
        (Source::Writeback, 5),
        (Source::Diskstats, 42),
        (Source::Settings, 2),
    ] {
        let mut records = scene().records();
        for record in &mut records {
            if let Record::Coverage(Coverage { source: of, state, .. }) = record
                && *of == source
            {
                *state = State::Missing { reason: "x".into(), gain: "y".into() };
            }
        }
        let violations = check(&records);
        assert_eq!(violations.len(), 1, "{source:?}: {violations:?}");
        assert_eq!(violations[0].count, count, "{source:?}");
    }
}

#[test]
fn sources_of_a_version_are_demanded_together() {
    let covers = |record: &Record, wanted: fn(Source) -> bool| match record {
        Record::Coverage(coverage) => wanted(coverage.source),
        Record::Block(_) => false,
        _ => true,
    };
    let mut first = scene().records();
    first.retain(|record| covers(record, |source| source.since_version() == 1));
    assert_eq!(check(&first), [], "a recording of version 1");
    let mut second = scene().records();
    second.retain(|record| covers(record, |source| source != Source::Diskstats));
    assert!(check(&second)[0].first.contains("/proc/diskstats"));
}

proptest! {
    #[test]
    fn no_amount_of_io_makes_it_panic(n in any::<[u64; 12]>(), small in any::<[u32; 3]>(), length in 0usize..3) {
        let mut waits = WaitHist::default();
        (waits.count[23], waits.ns[23], waits.count[0], waits.ns[0]) = (n[0], n[1], n[2], n[3]);
        let bin = DeviceBin { busy_ns: n[4], depth_ns: n[5], ios: small[0], bytes: n[6] };
        let times = |t0_ns: &mut u64, t1_ns: &mut u64| (*t0_ns, *t1_ns) = (n[7], n[8]);
        let counters = DiskCounters { reads: n[4], busy_ns: n[5], ..DiskCounters::default() };
        let records = [
            io(|t| {
                times(&mut t.t0_ns, &mut t.t1_ns);
                (t.ios, t.bytes, t.total_ns, t.max_ns) = (n[0], n[1], n[2], n[3]);
            }),
            bins(|b| {
                times(&mut b.t0_ns, &mut b.t1_ns);
                b.bins = vec![bin; length];
            }),
            requests(|t| {
                (t.total, t.queue, t.device_time) = (waits.clone(), waits.clone(), waits.clone());
                (t.max_ns, t.sampled_one_in) = (n[9], small[1]);
            }),
            wait(|t| (t.kind, t.waits, t.max_ns) = (StallKind::Request, waits.clone(), n[9])),
            blame(n[7] / 2, IoCulprit::Device, n[10]),
            flush(|p| p.ages = vec![(small[1], small[2]); length]),
            reading(n[7], counters),
            BlockRecord::Setting(Setting { t_ns: n[8], path: String::new(), value: None }),
        ];
        let twice = records.iter().chain(&records);
        let mut records: Vec<Record> = twice.map(|r| Record::Block(Box::new(r.clone()))).collect();
        records.push(Record::End { window_ns: n[11] });
        check(&records);
    }
}
