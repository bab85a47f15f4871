// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who waits for a disk that does only what it asked for, and who waits for another reason.

use super::disks::{host, requests, syncs};
use super::judged;
use crate::finding::{Report, Severity};
use crate::recording::{
    DevId, DeviceBin, IoCulprit, ProcId, SleepState, Slept, SleptOn, StallKind, WokenBy,
};
use crate::testkit::{MS, ProcessActivity, S, Scene, US};

/// The first process of a scene.
const STORE: ProcId = ProcId(1);

fn has(report: &Report) -> bool {
    report.findings.iter().any(|it| it.code == "BLK008")
}

#[test]
fn who_waits_for_its_own_requests_has_a_remark_with_the_calls() {
    let mut scene = syncs();
    scene.target(STORE);
    let path = Some("/data/appendonly.aof".into());
    let on = SleptOn::File { device: "8:0".into(), inode: 7, path, served: false };
    let (state, call) = (SleepState::BlockIo, "fdatasync".into());
    let slept = Slept { state, call, on, woken: WokenBy::Disk };
    scene.slept(STORE, "store", (slept, vec![]), 12 * S);
    let report = judged(&scene);
    let it = report.findings.iter().find(|it| it.code == "BLK008").expect("BLK008");
    assert_eq!(it.severity, Severity::Info);
    assert!(it.title.contains("waits 400 ms of every second for `sda`"), "{}", it.title);
    let notes = it.evidence.iter().filter_map(|it| it.note.as_deref());
    assert!(notes.into_iter().any(|it| it.contains("`fdatasync` of `/data/appendonly.aof`")));
}

/// With libaio and io_uring the wait is no block IO for the kernel.
#[test]
fn who_waits_for_its_own_requests_in_a_later_call_has_the_same_remark() {
    let lost_ns_per_s = |on: SleptOn| {
        let (mut scene, disk) = host(30);
        let store = scene.process("store", None);
        scene.did(store, &ProcessActivity { on_cpu_ns: S, ..ProcessActivity::default() });
        let calm = DeviceBin { busy_ns: 4 * MS, depth_ns: 4 * MS, ios: 20, bytes: 81_920 };
        scene.bins(disk, |_| calm);
        requests(&mut scene, store, disk, &[(6_000, 2 * MS)], &[(IoCulprit::Device, 100)]);
        scene.target(store);
        let (state, call) = (SleepState::Asleep, "io_getevents".into());
        scene.slept(
            store,
            "store",
            (Slept { state, call, on, woken: WokenBy::Disk }, vec![]),
            9 * S,
        );
        let report = judged(&scene);
        let it = report.findings.iter().find(|it| it.code == "BLK008");
        it.map(|it| it.cost.lost_ns_per_s)
    };
    assert_eq!(lost_ns_per_s(SleptOn::Transfers), Some(300 * MS), "no more than its threads slept");
    assert_eq!(lost_ns_per_s(SleptOn::NotKnown), None, "it may be at rest");
}

/// A sync waits for a flush of the disk's cache, too, which is for all that sync there.
#[test]
fn what_syncs_take_beyond_their_requests_is_their_own_where_nobody_else_syncs() {
    let lost_ns_per_s = |slept_ns: u64, others_waits: u64| {
        let mut scene = syncs();
        scene.did(STORE, &ProcessActivity { block_io_ns: slept_ns, ..ProcessActivity::default() });
        let sda = Some(DevId { major: 8, minor: 0 });
        scene.io_wait(0..S, STORE, StallKind::Sync, sda, &[(60_000, 250 * US)]);
        let other = scene.process("other", None);
        scene.io_wait(0..S, other, StallKind::Sync, sda, &[(others_waits, MS)]);
        let report = judged(&scene);
        let it = report.findings.iter().find(|it| it.code == "BLK008");
        it.map(|it| it.cost.lost_ns_per_s)
    };
    assert_eq!(lost_ns_per_s(6 * S, 10), Some(500 * MS));
    assert_eq!(lost_ns_per_s(6 * S, 1_000), Some(360 * MS));
    assert_eq!(lost_ns_per_s(0, 10), Some(400 * MS), "no more than the ledger has");
}

/// The same waiting, with a reason that has a rule of its own.
#[test]
fn who_waits_for_another_reason_has_no_remark_about_its_own_requests() {
    let of =
        |beside: &dyn Fn(&mut Scene) -> Vec<(IoCulprit, u64)>, bin: DeviceBin, wait: (u64, u64)| {
            let (mut scene, disk) = host(30);
            let store = scene.process("store", None);
            let (count, ns) = wait;
            let waits = vec![(count, 5 * US)];
            let block_io_ns = count * ns;
            scene.did(
                store,
                &ProcessActivity { on_cpu_ns: S, block_io_ns, waits, ..ProcessActivity::default() },
            );
            let beside = beside(&mut scene);
            scene.bins(disk, |_| bin);
            requests(&mut scene, store, disk, &[wait], &beside);
            has(&judged(&scene))
        };
    let calm = DeviceBin { busy_ns: 4 * MS, depth_ns: 4 * MS, ios: 20, bytes: 81_920 };
    let alone = |_: &mut Scene| vec![(IoCulprit::Device, 100)];
    let own = |_: &mut Scene| vec![(IoCulprit::Process(STORE), 100)];
    let other = |scene: &mut Scene| {
        let backup = scene.process("backup", None);
        vec![(IoCulprit::Device, 50), (IoCulprit::Process(backup), 50)]
    };
    assert!(of(&alone, calm, (60_000, 200 * US)));
    assert!(of(&own, calm, (60_000, 200 * US)));
    assert!(!of(&other, calm, (60_000, 200 * US)), "beside others");
    let unowned = |_: &mut Scene| vec![(IoCulprit::Device, 50), (IoCulprit::Writeback(None), 50)];
    assert!(!of(&unowned, calm, (60_000, 200 * US)), "it is not known whose they are");
    let journal = |scene: &mut Scene| {
        let sda = DevId { major: 8, minor: 0 };
        let other = scene.process("other", None);
        scene.io_wait(0..S, other, StallKind::Sync, Some(sda), &[(100, MS)]);
        vec![(IoCulprit::Device, 50), (IoCulprit::Filesystem, 50)]
    };
    assert!(!of(&journal, calm, (60_000, 200 * US)), "the journal may work for others");
    assert!(!of(&alone, calm, (600, 200 * US)), "too little");
    let full = DeviceBin { busy_ns: 10 * MS, depth_ns: 100 * MS, ios: 20, bytes: 81_920 };
    assert!(!of(&own, full, (1_000, 12 * MS)), "the disk is full");
}
