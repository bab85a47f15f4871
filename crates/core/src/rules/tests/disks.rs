// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hosts with a disk, for the rules about block IO.

use crate::recording::{
    Container, DevId, DeviceBin, DiskCounters, IoCulprit, IoOp, IoPurpose, IoTick, ProcId, Source,
    StallKind, WritebackPass,
};
use crate::testkit::{MS, ProcessActivity, S, Scene, US, pass, transfers};
use std::ops::Range;

/// The recording that makes a block IO rule give that answer.
pub(super) fn scene(code: &str, kind: &str) -> Option<Scene> {
    Some(match (code, kind) {
        ("BLK001" | "BLK002", "fires") => broker(75),
        ("BLK003", "fires") => short_stretches(),
        ("BLK004", "fires") => neighbour(),
        ("BLK005", "fires") => journal(),
        ("BLK006", "fires") => throttled(),
        ("BLK007", "fires") => limited(20),
        ("BLK008", "fires") => syncs(),
        (code, "quiet") if code.starts_with("BLK") => healthy(),
        (code, "nodata") if code.starts_with("BLK") => {
            let mut scene = healthy();
            for source in [Source::Block, Source::Writeback] {
                let gain = "run as root to see whose requests wait, and for which files";
                scene.without(source, "BPF programs need root or CAP_BPF and CAP_PERFMON", gain);
            }
            scene.without(Source::Diskstats, "`/proc/diskstats` is not there", "");
            scene
        }
        _ => return None,
    })
}

/// A host with one disk, a filesystem on it, and default settings.
pub(super) fn host(seconds: u64) -> (Scene, DevId) {
    let mut scene = Scene::new(4, seconds * S);
    scene.cgroup("/", None, None);
    let disk = scene.disk("sda");
    scene.mount(disk, "ext4", "/data", "rw,relatime,commit=5");
    for (path, value) in [
        ("/proc/sys/vm/dirty_writeback_centisecs", "500"),
        ("/proc/sys/vm/dirty_expire_centisecs", "3000"),
        ("/proc/sys/vm/dirty_background_ratio", "10"),
        ("/proc/sys/vm/dirty_background_bytes", "0"),
        ("/proc/sys/vm/dirty_ratio", "20"),
        ("/proc/sys/vm/dirty_bytes", "0"),
        ("/sys/block/sda/queue/scheduler", "none [mq-deadline] kyber bfq"),
        ("/sys/block/sda/queue/nr_requests", "256"),
        ("/sys/block/sda/queue/wbt_lat_usec", "75000"),
        ("/sys/block/sda/queue/rotational", "1"),
    ] {
        scene.setting(path, value);
    }
    (scene, disk)
}

/// A service that uses a little CPU time.
pub(super) fn service(scene: &mut Scene, comm: &str, cgroup: &str, seconds: u64) -> ProcId {
    let unit = Container {
        runtime: "systemd".into(),
        id: format!("{comm}.service"),
        name: Some(format!("{comm}.service")),
        ..Container::default()
    };
    let cgroup = scene.cgroup(cgroup, None, Some(unit));
    let id = scene.process(comm, Some(cgroup));
    let waits = vec![(3_000, 10 * US)];
    scene.did(
        id,
        &ProcessActivity {
            threads: 8,
            on_cpu_ns: seconds * 30 * MS,
            waits,
            ..ProcessActivity::default()
        },
    );
    id
}

/// The span of that length from `t0_ns` on.
pub(super) fn span(t0_ns: u64, length_ns: u64) -> Range<u64> {
    t0_ns..t0_ns + length_ns
}

/// A database whose cgroup may write `per_s` times a second: it syncs and waits while the disk is idle.
pub(super) fn limited(per_s: u64) -> Scene {
    let (mut scene, disk) = host(30);
    let dir = "/sys/fs/cgroup/blkio/mongod";
    scene.setting(&format!("{dir}/blkio.throttle.write_iops_device"), &format!("8:0 {per_s}"));
    scene.setting(&format!("{dir}/blkio.throttle.read_bps_device"), "8:0 1048576");
    let cgroup = scene.cgroup("/mongod", None, None);
    let mongod = scene.process("mongod", Some(cgroup));
    let waits = vec![(3_000, 10 * US)];
    let did =
        ProcessActivity { on_cpu_ns: S, block_io_ns: 24 * S, waits, ..ProcessActivity::default() };
    scene.did(mongod, &did);
    for second in 0..30 {
        let at = span(second * S, S);
        scene.io_wait(at.clone(), mongod, StallKind::Sync, Some(disk), &[(8, 100 * MS)]);
        scene.held(at, disk, IoOp::Write, dir, per_s, &[mongod]);
    }
    scene
}

/// A store that syncs its log 2 000 times a second, on a disk that does nothing else.
pub(super) fn syncs() -> Scene {
    let (mut scene, disk) = host(30);
    let cgroup = scene.cgroup("/store", None, None);
    let store = scene.process("store", Some(cgroup));
    let waits = vec![(60_000, 5 * US)];
    let did =
        ProcessActivity { on_cpu_ns: S, block_io_ns: 12 * S, waits, ..ProcessActivity::default() };
    scene.did(store, &did);
    scene.bins(disk, |_| DeviceBin { busy_ns: 4 * MS, depth_ns: 4 * MS, ios: 20, bytes: 81_920 });
    let beside = [(IoCulprit::Device, 90), (IoCulprit::Filesystem, 10)];
    requests(&mut scene, store, disk, &[(60_000, 200 * US)], &beside);
    scene
}

/// A disk that is saturated within the spans with `depth` requests, and idle otherwise.
pub(super) fn full_within(scene: &mut Scene, disk: DevId, spans: &[Range<u64>], depth: u64) {
    scene.bins(disk, |t_ns| {
        if spans.iter().any(|span| span.contains(&t_ns)) {
            DeviceBin { busy_ns: 10 * MS, depth_ns: depth * 10 * MS, ios: 30, bytes: 122_880 }
        } else {
            DeviceBin::default()
        }
    });
}

/// A process's waits for requests, and the percentages of that time beside each culprit.
pub(super) fn requests(
    scene: &mut Scene,
    proc: ProcId,
    disk: DevId,
    waits: &[(u64, u64)],
    beside: &[(IoCulprit, u64)],
) {
    let all: u64 = waits.iter().map(|(n, ns)| n * ns).sum();
    scene.io_wait(0..S, proc, StallKind::Request, Some(disk), waits);
    for &(culprit, percent) in beside {
        scene.io_blame(0..S, proc, disk, culprit, all / 100 * percent);
    }
}

/// Passes of a flusher that wakes every 5 s and writes what has been dirty for 30 s: a cohort of 1 500 inodes comes
/// back.
pub(super) fn broker_passes(java: ProcId) -> Vec<(Range<u64>, WritebackPass)> {
    let mut t_ns = 600 * MS;
    let mut passes = Vec::new();
    for number in 1..=13u32 {
        t_ns += 5 * S;
        let cohort = number == 6 || number == 12;
        let (inodes, length_ns) = if cohort {
            (1_900, 1_500 * MS)
        } else {
            (400, (90 + 20 * u64::from(number % 4)) * MS)
        };
        let again = if number == 12 { vec![(6, 390), (32, 1_500)] } else { vec![(5, inodes / 8)] };
        let of = WritebackPass {
            ages: if cohort { vec![(30, 400), (34, 1_500)] } else { vec![(30, inodes)] },
            since_last: if number > 6 { again } else { vec![] },
            dirtied_by: vec![(java, inodes - 20)],
            ..pass(
                DevId { major: 8, minor: 0 },
                "periodic",
                inodes.into(),
                u64::from(inodes) + 30,
                u64::from(inodes) * 6_000,
            )
        };
        passes.push((span(t_ns, length_ns), of));
        t_ns += length_ns;
    }
    passes
}

/// A message broker that syncs its log and appends to many files, which the kernel writes back.
pub(super) fn broker(seconds: u64) -> Scene {
    let (mut scene, disk) = host(seconds);
    let java = service(&mut scene, "java", "/broker.service", seconds);
    let kworker = scene.process("kworker/u8:3", None);
    scene.facts(kworker, |process| process.kernel_thread = Some(true));
    let written = |what, ios, bytes| IoTick {
        submitter: Some(kworker),
        reason: Some("periodic".into()),
        ..transfers(disk, what, IoOp::Write, ios, bytes, 12 * MS)
    };
    for (directory, files, ios, bytes) in [
        ("consumequeue", 40, 110, 690_000),
        ("cold", 30, 127, 640_000),
        ("index", 1, 1_700, 9_000_000),
    ] {
        for number in 0..files {
            let path = format!("/data/store/{directory}/{number:04}/00000000");
            let file = scene.file_dirtied_by(disk, &path, Some(java));
            scene.io(0..S, written(IoPurpose::File(file), ios, bytes));
        }
    }
    scene.io(0..S, written(IoPurpose::Metadata, 100, 409_600));
    let log = scene.file(disk, "/data/store/commitlog/00000000");
    let own = transfers(disk, IoPurpose::Journal, IoOp::Write, 2_804, 11_485_184, 900 * US);
    scene.io(0..S, IoTick { submitter: None, ..own });
    let mut passes = broker_passes(java);
    passes.retain(|(at, _)| at.end < seconds * S);
    for (at, pass) in &passes {
        let length_ns = at.end - at.start;
        // One stall in the middle of each pass, most of it long.
        let stall = at.start + length_ns / 10..at.end - length_ns / 5;
        scene.pass(at.clone(), pass.clone());
        scene.stall(stall, java, StallKind::Sync, Some(disk), Some(log));
    }
    for number in 0..seconds / 5 {
        scene.commit(span(number * 5 * S + 2 * S, 9 * MS), disk, "jbd2");
    }
    scene.io_wait(
        0..S,
        java,
        StallKind::Sync,
        Some(disk),
        &[(30_000, 420 * US), (11, 85 * MS), (2, 1_050 * MS)],
    );
    let spans: Vec<Range<u64>> = passes.iter().map(|(at, _)| at.clone()).collect();
    full_within(&mut scene, disk, &spans, 24);
    scene.requests(
        0..S,
        disk,
        IoOp::Write,
        &[(2_800, 20 * US, 380 * US), (9_000, 12 * MS, 2 * MS)],
    );
    scene
}

/// A database that reads and syncs a little, which any disk can serve.
pub(super) fn healthy() -> Scene {
    let seconds = 30;
    let (mut scene, disk) = host(seconds);
    let postgres = service(&mut scene, "postgres", "/postgresql.service", seconds);
    let cron = service(&mut scene, "backup", "/backup.service", seconds);
    scene.io_wait(
        0..S,
        postgres,
        StallKind::Sync,
        Some(disk),
        &[(2_000, 3 * MS), (60, 8 * MS), (1, 14 * MS)],
    );
    scene.stall(span(7 * S, 14 * MS), postgres, StallKind::Sync, Some(disk), None);
    let beside = [
        (IoCulprit::Device, 70),
        (IoCulprit::Process(postgres), 12),
        (IoCulprit::Process(cron), 10),
        (IoCulprit::Filesystem, 8),
    ];
    requests(&mut scene, postgres, disk, &[(6_000, 400 * US), (300, 5 * MS)], &beside);
    requests(&mut scene, cron, disk, &[(900, 300 * US)], &[(IoCulprit::Device, 100)]);
    for number in 0..6 {
        let at = span(number * 5 * S + 1_300 * MS, 20 * MS);
        scene.pass(at, pass(disk, "periodic", 30, 35, 200_000));
        scene.commit(span(number * 5 * S + 400 * MS, 8 * MS), disk, "jbd2");
    }
    scene.bins(disk, |t_ns| match t_ns % (10 * S) {
        0..60_000_000 => {
            DeviceBin { busy_ns: 9_500 * US, depth_ns: 20 * MS, ios: 12, bytes: 98_304 }
        }
        500_000_000..600_000_000 => {
            DeviceBin { busy_ns: 2 * MS, depth_ns: 2 * MS, ios: 4, bytes: 32_768 }
        }
        _ => DeviceBin::default(),
    });
    scene
}

/// `/proc/diskstats` of a disk on which a request takes 50 us, and `await_ns` within the spans `busy`.
pub(super) fn counters(scene: &mut Scene, disk: DevId, busy: &[Range<u64>], await_ns: u64) {
    scene.diskstats(disk, |t_ns| {
        let mut counters = DiskCounters::default();
        for bin in 0..t_ns / (100 * MS) {
            let (from, to) = (bin * 100 * MS, (bin + 1) * 100 * MS);
            let is_busy = busy.iter().any(|span| span.start < to && from < span.end);
            let (writes, each_ns) = if is_busy { (60, await_ns) } else { (50, 50 * US) };
            counters.writes += writes;
            counters.write_bytes += writes * 4096;
            counters.write_ns += writes * each_ns;
            counters.depth_ns += writes * each_ns;
            counters.busy_ns += if is_busy { 95 * MS } else { 3 * MS };
        }
        counters
    });
}

/// The broker's host without BPF: its disk is slow at each pass.
pub(super) fn broker_by_counters(seconds: u64) -> Scene {
    let (mut scene, disk) = host(seconds);
    scene.without_bpf();
    for source in [Source::Block, Source::Writeback] {
        scene.without(source, "BPF programs need root or CAP_BPF and CAP_PERFMON", "run as root");
    }
    let passes = broker_passes(ProcId(1));
    let spans: Vec<Range<u64>> =
        passes.into_iter().map(|(at, _)| at).filter(|at| at.end < seconds * S).collect();
    counters(&mut scene, disk, &spans, 28 * MS);
    scene
}

/// A server that reads from a disk that a batch job saturates now and then.
pub(super) fn short_stretches() -> Scene {
    let (mut scene, disk) = host(30);
    let server = service(&mut scene, "mysqld", "/mysql.service", 30);
    let batch = service(&mut scene, "etl", "/etl.service", 30);
    let stretches: Vec<Range<u64>> = [2_100, 4_900, 9_300, 11_000, 16_700, 19_900, 23_200, 28_000]
        .into_iter()
        .map(|ms| span(ms * MS, 400 * MS))
        .collect();
    for at in &stretches {
        scene.stall(
            at.start + 50 * MS..at.end - 50 * MS,
            server,
            StallKind::Request,
            Some(disk),
            None,
        );
    }
    let beside = [(IoCulprit::Process(batch), 83), (IoCulprit::Device, 17)];
    requests(&mut scene, server, disk, &[(4_000, 250 * US), (8, 300 * MS)], &beside);
    requests(&mut scene, batch, disk, &[(100, 2 * MS)], &[(IoCulprit::Process(batch), 100)]);
    full_within(&mut scene, disk, &stretches, 40);
    let table = scene.file(disk, "/data/mysql/orders.ibd");
    let dump = scene.file(disk, "/data/etl/load.csv");
    let io =
        |file, ios, bytes| transfers(disk, IoPurpose::File(file), IoOp::Read, ios, bytes, 8 * MS);
    scene.io(0..S, IoTick { submitter: Some(server), ..io(table, 4_008, 65_667_072) });
    scene.io(0..S, IoTick { submitter: Some(batch), ..io(dump, 9_600, 1_258_291_200) });
    scene.requests(0..S, disk, IoOp::Read, &[(4_000, 10 * US, 240 * US), (9_600, 30 * MS, 2 * MS)]);
    scene
}

/// Two busy processes in units of their own on one disk, and writeback for a third.
pub(super) fn neighbour() -> Scene {
    let (mut scene, disk) = host(30);
    let postgres = service(&mut scene, "postgres", "/postgresql.service", 30);
    let rsync = service(&mut scene, "rsync", "/backup.service", 30);
    let logger = scene.cgroup("/logger.service", None, None);
    let beside = [
        (IoCulprit::Process(rsync), 58),
        (IoCulprit::Writeback(Some(logger)), 14),
        (IoCulprit::Process(postgres), 9),
        (IoCulprit::Filesystem, 3),
        (IoCulprit::Device, 16),
    ];
    requests(
        &mut scene,
        postgres,
        disk,
        &[(2_400, 400 * US), (1_500, 6 * MS), (40, 60 * MS)],
        &beside,
    );
    let own = [
        (IoCulprit::Process(rsync), 70),
        (IoCulprit::Process(postgres), 10),
        (IoCulprit::Device, 20),
    ];
    requests(&mut scene, rsync, disk, &[(20_000, 4 * MS)], &own);
    let heap = scene.file(disk, "/data/pg/base/16384/2619");
    let backup = scene.file(disk, "/data/backup/full.tar");
    let io =
        |file, ios, bytes| transfers(disk, IoPurpose::File(file), IoOp::Read, ios, bytes, 3 * MS);
    scene.io(0..S, IoTick { submitter: Some(postgres), ..io(heap, 3_940, 32_276_480) });
    scene.io(0..S, IoTick { submitter: Some(rsync), ..io(backup, 20_000, 2_621_440_000) });
    scene.requests(0..S, disk, IoOp::Read, &[(20_000, 2 * MS, MS), (3_900, 3 * MS, MS)]);
    scene
}

/// A mail server whose syncs wait for long commits every 5 s; the flusher does little, at other times.
pub(super) fn journal() -> Scene {
    journal_of("jbd2")
}

/// The same, with commits of that kind.
pub(super) fn journal_of(kind: &str) -> Scene {
    let (mut scene, disk) = host(40);
    let mail = service(&mut scene, "dovecot", "/dovecot.service", 40);
    for number in 0..8 {
        let at = span(number * 5 * S + 800 * MS, 420 * MS);
        scene.commit(at.clone(), disk, kind);
        scene.stall(at.start + 20 * MS..at.end, mail, StallKind::Sync, Some(disk), None);
        scene.pass(
            span(number * 5 * S + 3_100 * MS, 15 * MS),
            pass(disk, "periodic", 20, 22, 120_000),
        );
    }
    scene.io_wait(0..S, mail, StallKind::Sync, Some(disk), &[(900, 2 * MS), (8, 400 * MS)]);
    let journal = transfers(disk, IoPurpose::Journal, IoOp::Write, 2_100, 8_601_600, 2 * MS);
    scene.io(0..S, journal);
    let inbox = scene.file(disk, "/data/mail/u17/inbox");
    scene.io(
        0..S,
        IoTick {
            submitter: Some(mail),
            ..transfers(disk, IoPurpose::File(inbox), IoOp::Write, 950, 3_891_200, MS)
        },
    );
    scene
}

/// A copy to a disk with a small dirty limit of its own.
pub(super) fn throttled() -> Scene {
    let (mut scene, disk) = host(20);
    let dd = service(&mut scene, "dd", "/import.service", 20);
    scene.setting("/sys/class/bdi/8:0/max_ratio", "1");
    scene.setting("/sys/class/bdi/8:0/strict_limit", "0");
    scene.io_wait(0..S, dd, StallKind::DirtyThrottle, Some(disk), &[(86, 150 * MS)]);
    for number in 0..86 {
        let at = span(number * 220 * MS, 150 * MS);
        scene.stall(at, dd, StallKind::DirtyThrottle, Some(disk), None);
    }
    let image = scene.file(disk, "/data/import/image.raw");
    let io = transfers(disk, IoPurpose::File(image), IoOp::Write, 4_000, 2_097_152_000, 9 * MS);
    scene.io(0..S, IoTick { reason: Some("background".into()), ..io });
    scene
}

/// The flusher looks at many inodes without a transfer, as after files were deleted.
#[test]
fn events_of_writeback_are_compared_with_such_events() {
    let (mut scene, disk) = host(10);
    scene.pass(S..2 * S, pass(disk, "periodic", 250, 0, 0));
    let lost = [("writeback_log_overrun".to_owned(), 750)].into();
    scene.observer(crate::recording::ObserverTick {
        lost,
        ..crate::recording::ObserverTick::default()
    });
    let report = super::judged(&scene);
    let title = &report.findings.iter().find(|it| it.code == "OBS001").unwrap().title;
    assert!(title.ends_with("75 % of the events of writeback"), "{title}");
}
