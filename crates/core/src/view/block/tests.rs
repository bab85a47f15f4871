// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;
use crate::recording::{
    DeviceBin, DeviceBins, DiskCounters, DiskReading, FileState, IoPace, IoPurpose, IoTick, Setting,
};
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
const DEV: DevId = DevId { major: 7, minor: 0 };

fn folded(records: impl IntoIterator<Item = BlockRecord>) -> BlockView {
    let mut view = BlockView::default();
    records.into_iter().for_each(|record| view.push(&record));
    view
}

fn pass(t0_ns: u64, t1_ns: u64, reason: &str) -> WritebackPass {
    WritebackPass {
        t0_ns,
        t1_ns,
        device: DEV,
        reason: reason.into(),
        inodes: 10,
        bytes: 40_960,
        ios: 10,
        ages: vec![(30, 8), (31, 2)],
        since_last: vec![(32, 10)],
        dirtied_by: vec![(ProcId(1), 7), (ProcId(2), 3)],
        asked_by: vec![(ProcId(3), 1)],
    }
}

fn io(what: IoPurpose, reason: Option<&str>, ios: u64) -> BlockRecord {
    BlockRecord::Io(IoTick {
        t0_ns: 0,
        t1_ns: S,
        device: DEV,
        what,
        op: IoOp::Write,
        submitter: Some(ProcId(1)),
        owner: None,
        reason: reason.map(Into::into),
        ios,
        bytes: ios * 4096,
        total_ns: ios * MS,
        max_ns: MS,
    })
}

fn file(id: u32, path: &str, state: FileState) -> BlockRecord {
    let path = path.into();
    BlockRecord::File(File {
        id: FileId(id),
        fs: DEV,
        ino: id.into(),
        generation: 0,
        path,
        state,
        dirtied_by: None,
    })
}

#[test]
fn pieces_of_a_pass_are_one_and_reasons_are_kept_apart() {
    let pieces = [
        pass(0, 100 * MS, "periodic"),
        pass(300 * MS, 400 * MS, "background"),
        pass(500 * MS, 900 * MS, "periodic"),
        pass(5 * S, 5 * S + MS, "periodic"),
    ];
    let view = folded(pieces.into_iter().map(BlockRecord::Pass));
    let spans: Vec<_> =
        view.passes().iter().map(|pass| (pass.t0_ns, pass.t1_ns, pass.inodes)).collect();
    assert_eq!(spans, [(0, 900 * MS, 20), (300 * MS, 400 * MS, 10), (5 * S, 5 * S + MS, 10)]);
    assert_eq!(view.passes()[0].ages, [(30, 16), (31, 4)]);
    assert_eq!(view.passes()[0].dirtied_by, [(ProcId(1), 14), (ProcId(2), 6)]);
}

#[test]
fn paces_are_series_and_their_number_is_bounded() {
    let pace = |t0_ns: u64, process: u32| {
        let sectors = [(IoCulprit::Process(ProcId(process)), vec![2; 10])].into();
        BlockRecord::Pace(IoPace { t0_ns, t1_ns: t0_ns + S, device: DEV, sectors })
    };
    let view = folded((1..=100).flat_map(|process| [pace(0, process), pace(2 * S, process)]));
    let series: Vec<_> = view.paces().of(DEV).collect();
    assert_eq!(series.len(), 64);
    assert_eq!(series[0].0, IoCulprit::Process(ProcId(1)));
    assert_eq!(
        series[0].1.bins()[..12],
        [1024; 10].iter().chain(&[0, 0]).copied().collect::<Vec<_>>()
    );
    let last = series.last().expect("some");
    assert_eq!(last.0, IoCulprit::Process(ProcId::OTHERS));
    let sum: u64 = series.iter().map(|(_, series)| series.total()).sum();
    assert_eq!(sum, 200 * 10 * 1024);
}

#[test]
fn transfers_are_summed_by_pattern_directory_and_class() {
    let mut records = vec![
        BlockRecord::Mount(Mount {
            fs: DEV,
            fstype: "ext4".into(),
            source: "/dev/loop0".into(),
            point: "/data".into(),
            options: "rw,commit=5".into(),
        }),
        io(IoPurpose::Journal, None, 5),
        io(IoPurpose::File(FileId::OTHERS), Some("periodic"), 3),
        file(900, "", FileState::Nameless),
        io(IoPurpose::File(FileId(900)), Some("periodic"), 2),
    ];
    for id in 1..=40 {
        records.push(file(id, &format!("hot/{id:04}"), FileState::InFilesystem));
        records.push(io(IoPurpose::File(FileId(id)), Some("periodic"), 10));
        records.push(io(IoPurpose::File(FileId(id)), None, 1));
    }
    let view = folded(records);
    let rows = view.tally(RowsBy::Pattern, |key| key.reason.is_some());
    let named: Vec<_> = rows.iter().map(|row| (row.name.clone(), row.sum.ios, row.files)).collect();
    assert_eq!(
        named,
        [
            (RowName::Path("/data/hot/*".into()), 400, 40),
            (RowName::Class("many more files, summed up"), 3, 0),
            (RowName::Class("files without a known name"), 2, 1),
        ]
    );
    let rows = view.tally(RowsBy::Directory, |_| true);
    assert_eq!((rows[0].name.clone(), rows[0].sum.ios), (RowName::Path("/data/hot".into()), 440));
    assert_eq!(view.tally(RowsBy::Device, |_| true)[0].sum.ios, 450);
    assert_eq!(view.tally(RowsBy::File, |_| true).len(), 43);
    assert_eq!(view.tally(RowsBy::Process, |_| true)[0].name, RowName::Process(Some(ProcId(1))));
}

#[test]
fn a_burst_inside_a_second_is_a_spell() {
    let bin = |busy: bool| DeviceBin {
        busy_ns: if busy { 10 * MS } else { 0 },
        depth_ns: if busy { 160 * MS } else { 0 },
        ios: 5,
        bytes: 4096,
    };
    let bins = |second: u64, busy: std::ops::Range<usize>| {
        let bins = (0..100).map(|at| bin(busy.contains(&at))).collect();
        BlockRecord::Bins(DeviceBins {
            t0_ns: second * S,
            t1_ns: (second + 1) * S,
            device: DEV,
            bins,
        })
    };
    // A spell of 200 ms across two seconds, 30 ms that are too short, and a spell that is still open at the end.
    let view = folded([bins(0, 90..100), bins(1, 0..10), bins(2, 50..53), bins(3, 80..100)]);
    let activity = &view.activity()[&DEV];
    let spells: Vec<_> = activity.spells().map(|spell| (spell.t0_ns, spell.t1_ns)).collect();
    assert_eq!(spells, [(900 * MS, 1100 * MS), (3800 * MS, 4 * S)]);
    let first = activity.spells().next().expect("a spell");
    assert!(
        (first.depth() - 16.0).abs() < 0.01 && (first.second_busy - 0.1).abs() < 0.01,
        "{first:?}"
    );
    assert!((activity.busy_share() - 0.1075).abs() < 0.001);
}

#[test]
fn settings_and_counters_are_taken_as_they_were_last() {
    let setting = |value: Option<&str>| {
        let value = value.map(Into::into);
        BlockRecord::Setting(Setting { t_ns: 0, path: "/proc/sys/vm/x".into(), value })
    };
    let disk = |t_ns, writes| {
        let counters = DiskCounters { writes, depth_ns: writes * MS, ..DiskCounters::default() };
        BlockRecord::Disk(DiskReading { t_ns, device: DEV, counters })
    };
    let view =
        folded([setting(None), setting(Some("500")), disk(0, 7), disk(S, 17), disk(2 * S, 0)]);
    assert_eq!(view.setting("/proc/sys/vm/x"), Some("500"));
    assert_eq!(view.disks()[&DEV].ios.total(), 10, "a counter that was reset says nothing");
    assert_eq!(view.disks()[&DEV].depth.bins().len(), 10);
}

#[test]
fn lists_are_bounded_and_say_what_they_dropped() {
    let stall = |t: u64| {
        BlockRecord::Stall(Stall {
            t0_ns: t,
            t1_ns: t + 1,
            proc: ProcId(1),
            kind: StallKind::Sync,
            device: None,
            file: None,
            latest_ns: None,
            within: 0,
            within_ns: 0,
        })
    };
    let passes = (0..20_000).map(|i| BlockRecord::Pass(pass(i * 2 * S, i * 2 * S + 1, "periodic")));
    let view = folded((0..15_000).map(stall).chain(passes));
    assert_eq!((view.stalls().len(), view.passes().len()), (10_000, 10_000));
    assert_eq!(view.dropped_of(), (15_000, 35_000));
}

proptest! {
    #[test]
    fn no_bins_make_it_panic(
        spans in prop::collection::vec((0..1u64 << 40, 0..1u64 << 32, prop::collection::vec((any::<u32>(), any::<u32>()), 0..20)), 0..8),
    ) {
        let records = spans.into_iter().map(|(t0_ns, length, bins)| {
            let bins = bins
                .into_iter()
                .map(|(busy, ios)| DeviceBin { busy_ns: busy.into(), depth_ns: busy.into(), ios, bytes: 1 })
                .collect();
            BlockRecord::Bins(DeviceBins { t0_ns, t1_ns: t0_ns + length, device: DEV, bins })
        });
        let view = folded(records);
        if let Some(activity) = view.activity().get(&DEV) {
            prop_assert!(activity.busy_share() <= 1.0);
            prop_assert!(activity.spells().all(|spell| spell.t1_ns >= spell.t0_ns + MIN_BUSY_STRETCH_NS));
        }
    }
}
