// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report's block IO tables: they sum to what the devices did, whatever it was.

use super::{disks, judged};
use crate::finding::{BlockIo, DeviceIo, IoRowsBy, IoTable, RowKind};
use crate::recording::{FileId, IoOp, IoPurpose, IoTick};
use crate::render::{TextStyle, text};
use crate::testkit::{MS, S, Scene, transfers};
use proptest::prelude::*;

fn io(scene: &Scene) -> BlockIo {
    judged(scene).block_io.expect("block IO was seen")
}

fn table(device: &DeviceIo, by: IoRowsBy) -> &IoTable {
    device.tables.iter().find(|table| table.by == by).expect("each table is there")
}

fn assert_sums(device: &DeviceIo) {
    for table in &device.tables {
        let sum = |of: fn(&crate::finding::IoRow) -> u64| table.rows.iter().map(of).sum::<u64>();
        assert_eq!(sum(|row| row.ios), device.ios, "{:?}", table.by);
        assert_eq!(sum(|row| row.bytes), device.bytes, "{:?}", table.by);
        assert_eq!(sum(|row| row.read_bytes), device.read_bytes, "{:?}", table.by);
        assert_eq!(sum(|row| row.write_bytes), device.write_bytes, "{:?}", table.by);
        let shares: f64 = table.rows.iter().map(|row| row.bytes_share).sum();
        assert!(device.bytes == 0 || (shares - 1.0).abs() < 1e-9, "{:?}: {shares}", table.by);
        assert!(table.rows.len() <= 25, "{:?}: {}", table.by, table.rows.len());
        let last = table.rows.len().saturating_sub(1);
        for (at, row) in table.rows.iter().enumerate() {
            assert!(row.kind != RowKind::Rest || at == last, "the rest comes last");
        }
    }
}

#[test]
fn every_table_is_of_all_that_the_disk_did() {
    let io = io(&disks::broker(75));
    let [device] = &io.devices[..] else { panic!("{io:?}") };
    assert_eq!((device.device.as_str(), device.number.as_str()), ("sda", "8:0"));
    let order: Vec<IoRowsBy> = device.tables.iter().map(|table| table.by).collect();
    use IoRowsBy::{Cgroup, Directory, File, Pattern, Process};
    assert_eq!(order, [Process, Cgroup, Pattern, Directory, File]);
    assert_sums(device);
    let files = &table(device, File).rows;
    let rest = files.last().expect("rows");
    assert_eq!((rest.kind, rest.count), (RowKind::Rest, 73 - 24), "71 files and two classes");
    let classes = |by| {
        let rows = table(device, by).rows.iter().filter(|row| row.kind == RowKind::Class);
        rows.filter_map(|row| row.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(classes(Pattern), ["journals of filesystems", "metadata of filesystems"]);
    let process = &table(device, Process).rows[0];
    assert_eq!(process.entity.as_ref().and_then(|it| it.comm.as_deref()), Some("kworker/u8:3"));
    assert_eq!(process.writeback[0].reason, "periodic");
    assert!(process.submitted_by.is_empty());
    let pattern = &table(device, Pattern).rows[0];
    assert_eq!(pattern.name.as_deref(), Some("/data/store/consumequeue/*/00000000"));
    assert_eq!(pattern.submitted_by[0].entity.comm.as_deref(), Some("kworker/u8:3"));
    assert_eq!(device.dirtied_by[0].entity.comm.as_deref(), Some("java"));
    assert_eq!(device.explained_by, Some(Process));
    let writes = &device.latency[0];
    assert_eq!((writes.op.as_str(), writes.requests), ("write", 11_800));
    assert!(writes.requests <= device.ios, "a request is for one transfer or more");
    assert!(writes.queue_p99_ns > writes.device_p99_ns && writes.queue_share > 0.5, "{writes:?}");
    assert!(device.busy_share.is_some_and(|busy| busy > 0.0 && busy < 1.0));
}

#[test]
fn who_dirtied_a_file_is_said_where_it_was_seen() {
    let path = "/data/store/index/0000/00000000";
    let report = judged(&disks::broker(75));
    let io = report.block_io.as_ref().expect("block IO was seen");
    let rows = &table(&io.devices[0], IoRowsBy::File).rows;
    let row = rows.iter().find(|row| row.name.as_deref() == Some(path)).expect("it is there");
    assert_eq!(row.dirtied_by[0].entity.comm.as_deref(), Some("java"));
    assert_eq!(row.submitted_by[0].entity.comm.as_deref(), Some("kworker/u8:3"));
    let text = text(&report, TextStyle { columns: 100, color: false, verbosity: 2 });
    // Lines are wrapped.
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = format!("`{path}`: periodic 100 %, dirtied by `java`");
    assert!(text.contains(&line), "{text}");
    let classes = rows.iter().filter(|row| row.kind == RowKind::Class);
    assert!(classes.clone().count() > 0 && classes.clone().all(|row| row.dirtied_by.is_empty()));
}

#[test]
fn what_has_few_bytes_and_many_transfers_is_a_row_too() {
    let (mut scene, disk) = disks::host(30);
    for number in 0..100 {
        let file = scene.file(disk, &format!("/data/{number:03}/x{number}"));
        let io = transfers(disk, IoPurpose::File(file), IoOp::Write, 10, 1_000_000 + number, MS);
        scene.io(0..S, io);
    }
    scene.io(0..S, transfers(disk, IoPurpose::Flush, IoOp::Other, 5_000, 0, MS));
    let io = io(&scene);
    assert_sums(&io.devices[0]);
    let rows = &table(&io.devices[0], IoRowsBy::File).rows;
    assert_eq!(rows.len(), 16 + 8 + 1);
    assert!(rows.windows(2).take(23).all(|pair| pair[0].bytes >= pair[1].bytes));
    let flushes = rows.iter().find(|row| row.name.as_deref() == Some("cache flushes"));
    assert_eq!(flushes.map(|row| (row.ios, row.bytes)), Some((5_000, 0)));
}

#[test]
fn discards_are_in_the_heading_and_in_no_share_of_bytes() {
    let (mut scene, disk) = disks::host(30);
    let file = scene.file(disk, "/data/target/x");
    scene.io(0..S, transfers(disk, IoPurpose::File(file), IoOp::Write, 10, 1 << 20, MS));
    scene.io(0..S, transfers(disk, IoPurpose::Discard, IoOp::Other, 5, 256 << 20, MS));
    let report = judged(&scene);
    let device = &report.block_io.as_ref().expect("block IO was seen").devices[0];
    assert_sums(device);
    assert_eq!((device.ios, device.bytes, device.discarded_bytes), (15, 1 << 20, Some(256 << 20)));
    let rows = &table(device, IoRowsBy::Pattern).rows;
    assert!((rows[0].bytes_share - 1.0).abs() < 1e-9, "{rows:?}");
    assert_eq!((rows[1].ios, rows[1].bytes), (5, 0), "{rows:?}");
    let text = text(&report, TextStyle { columns: 100, color: false, verbosity: 2 });
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("1.0 MiB written, 256 MiB discarded"), "{text}");
}

#[test]
fn the_tables_are_short_by_default_and_whole_when_asked_for() {
    let report = judged(&disks::broker(75));
    let style = |verbosity| TextStyle { columns: 100, color: false, verbosity };
    let quiet = text(&report, style(0));
    assert!(!quiet.contains("block IO of"), "{quiet}");
    let default = text(&report, style(1));
    assert!(default.contains("block IO of `sda`") && default.contains("by process"), "{default}");
    assert!(!default.contains("  by directory\n"), "{default}");
    let whole = text(&report, style(2));
    for by in
        ["by process", "by cgroup of the pages", "by pattern of paths", "by directory", "by file"]
    {
        assert!(whole.contains(&format!("  {by}\n")), "{by}: {whole}");
    }
    let healthy = text(&judged(&disks::healthy()), style(1));
    assert!(!healthy.contains("block IO of"), "nothing was found: {healthy}");
}

#[test]
fn many_disks_are_bounded_and_the_rest_is_summed() {
    let (mut scene, _) = disks::host(30);
    for number in 0..12 {
        let disk = scene.disk(&format!("sd{number}"));
        scene.io(0..S, transfers(disk, IoPurpose::RawDevice, IoOp::Read, 10, 100 + number, MS));
    }
    let io = io(&scene);
    assert_eq!(io.devices.len(), 8);
    assert_eq!(io.devices[0].device, "sd11");
    let more = io.more.expect("four more");
    assert_eq!((more.devices, more.ios, more.bytes), (4, 40, 100 + 101 + 102 + 103));
}

#[test]
fn without_the_probe_there_is_no_section() {
    assert_eq!(judged(&disks::broker_by_counters(75)).block_io, None);
}

fn any_transfer() -> impl Strategy<Value = (u8, u32, u8, u32, u64, u64, u8)> {
    (0..8u8, 0..60u32, 0..3u8, 0..5u32, 1..1_000_000u64, 0..u64::from(u32::MAX), 0..3u8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn tables_sum_for_any_transfers(
        all in prop::collection::vec(any_transfer(), 1..120),
        names in prop::collection::vec(any::<String>(), 60),
    ) {
        let (mut scene, sda) = disks::host(10);
        let sdb = scene.disk("sdb");
        let by: Vec<_> = (0..5).map(|n| scene.process(["a", "b", "a", "c`\n", "d"][n], None)).collect();
        let files: Vec<_> = names.iter().map(|name| scene.file(sda, &format!("/{name}"))).collect();
        for (what, file, op, process, ios, bytes, reason) in all {
            let what = match what {
                0 => IoPurpose::Metadata,
                1 => IoPurpose::Journal,
                2 => IoPurpose::Unknown,
                3 => IoPurpose::File(FileId::OTHERS),
                _ => IoPurpose::File(files[file as usize]),
            };
            let op = [IoOp::Read, IoOp::Write, IoOp::Other][usize::from(op)];
            let disk = if file % 2 == 0 { sda } else { sdb };
            let submitter = by.get(process as usize).copied().filter(|_| process != 4);
            let reason = ["periodic", "sync"].get(usize::from(reason)).map(|it| (*it).to_owned());
            let tick = transfers(disk, what, op, ios, bytes, MS);
            scene.io(0..S, IoTick { submitter, reason, ..tick });
        }
        let report = judged(&scene);
        report.block_io.as_ref().expect("some").devices.iter().for_each(assert_sums);
        let text = text(&report, TextStyle { columns: 100, color: false, verbosity: 2 });
        prop_assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{}", text);
    }
}
