// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::DiskstatsCollector;
use crate::collect::fixture::Host;
use crate::collect::{Beat, BeatTime, Collector, Context};
use deburr_core::recording::{BlockRecord, DevId, Record, State};

/// The line of a device with that many completed writes.
fn line(minor: u32, name: &str, writes: u64) -> String {
    format!("8 {minor} {name} 0 0 0 0 {writes} 0 {writes} 2 0 7 9 0 0 0 0 0 0\n")
}

fn host() -> Host {
    let host = Host::empty();
    host.device("8:0", "block/sda", 1000);
    host.device("8:16", "block/sdb", 1000);
    host.write("proc/diskstats", line(0, "sda", 10) + &line(16, "sdb", 20));
    host
}

fn at(collector: &mut DiskstatsCollector, cx: &mut Context, t_ns: u64, beat: Beat) -> Vec<String> {
    let mut said = Vec::new();
    let mut emit = |record| match record {
        Record::Coverage(coverage) => said.push(format!("{:?}", coverage.state)),
        Record::Block(block) => said.push(match *block {
            BlockRecord::Device(d) if d.gone => format!("{} is gone", d.name),
            BlockRecord::Device(d) => format!("{} is there", d.name),
            BlockRecord::Disk(r) => format!("{} at {}: {}", r.device, r.t_ns, r.counters.writes),
            other => panic!("{other:?}"),
        }),
        other => panic!("{other:?}"),
    };
    collector.beat(cx, BeatTime { t_ns, beat }, &mut emit).unwrap();
    said
}

#[test]
fn mounted_devices_are_read_always_and_others_from_their_first_io_on() {
    let host = host();
    let mut cx = host.context();
    cx.devices.set_mounted([DevId { major: 8, minor: 0 }].into());
    let mut collector = DiskstatsCollector::open(&cx).unwrap();
    let start = at(&mut collector, &mut cx, 0, Beat::Start);
    assert_eq!(start, ["Active", "sda is there", "8:0 at 0: 10"]);
    assert_eq!(at(&mut collector, &mut cx, 100, Beat::Bin), ["8:0 at 100: 10"]);
    host.write("proc/diskstats", line(0, "sda", 10) + &line(16, "sdb", 21));
    // All IO since the last read is covered.
    assert_eq!(
        at(&mut collector, &mut cx, 200, Beat::Bin),
        ["8:0 at 200: 10", "sdb is there", "8:16 at 100: 20", "8:16 at 200: 21"]
    );
    assert_eq!(
        at(&mut collector, &mut cx, 300, Beat::Second),
        ["8:0 at 300: 10", "8:16 at 300: 21"]
    );
}

#[test]
fn devices_come_and_go_and_take_the_numbers_of_others() {
    let host = host();
    let mut cx = host.context();
    let mut collector = DiskstatsCollector::open(&cx).unwrap();
    assert_eq!(at(&mut collector, &mut cx, 0, Beat::Start), ["Active"]);
    host.write("proc/diskstats", line(0, "sda", 11));
    // The other device was never emitted, so its removal is not emitted either.
    assert_eq!(
        at(&mut collector, &mut cx, 100, Beat::Bin),
        ["sda is there", "8:0 at 0: 10", "8:0 at 100: 11"]
    );
    host.write("proc/diskstats", line(0, "sda", 3) + &line(32, "sdc", 1));
    assert_eq!(
        at(&mut collector, &mut cx, 200, Beat::Bin),
        ["sda is gone", "sda is there", "8:0 at 200: 3", "sdc is there", "8:32 at 200: 1"]
    );
    host.write("proc/diskstats", line(0, "sda", 3));
    assert_eq!(at(&mut collector, &mut cx, 300, Beat::Bin), ["8:0 at 300: 3", "sdc is gone"]);
}

#[test]
fn a_disk_that_does_not_count_is_said() {
    let host = host();
    host.write("sys/block/sdb/queue/iostats", "0\n");
    host.write("sys/block/sda/queue/iostats", "1\n");
    let mut cx = host.context();
    // Both were seen.
    for minor in [0, 16] {
        cx.devices.sight(DevId { major: 8, minor }, &mut |_| {});
    }
    let mut collector = DiskstatsCollector::open(&cx).unwrap();
    let start = at(&mut collector, &mut cx, 0, Beat::Start);
    assert!(start[0].contains("Partial") && start[0].contains("counted: sdb\""), "{start:?}");
}

#[test]
fn a_missing_file_is_said_and_a_damaged_one_ends_the_collector() {
    let host = Host::empty();
    assert!(matches!(
        DiskstatsCollector::open(&host.context()),
        Err(State::Missing { reason, .. }) if reason.contains("`/proc/diskstats`")
    ));
    host.write("proc/diskstats", "8 0 sda 1 2\n");
    let mut cx = host.context();
    let mut collector = DiskstatsCollector::open(&cx).unwrap();
    let error = collector.beat(&mut cx, BeatTime { t_ns: 0, beat: Beat::Bin }, &mut |_| {});
    assert!(error.unwrap_err().to_string().contains("sectors read"));
}
