// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::{Limits, SettingsCollector};
use crate::collect::fixture::{Host, beat};
use crate::collect::{Beat, Context};
use deburr_core::recording::{BlockRecord, Record, State};

const MOUNTS: &str = "20 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw,errors=remount-ro\n\
    21 20 8:1 /var /srv/b\\040c rw - ext4 /dev/sda1 rw\n\
    22 20 0:5 / /proc rw - proc proc rw\n\
    30 20 0:30 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n\
    31 20 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

fn host() -> Host {
    let host = Host::empty();
    host.write("proc/self/mountinfo", MOUNTS);
    host.write("proc/sys/vm/dirty_ratio", "20\n");
    host.write("proc/sys/kernel/sched_autogroup_enabled", "1\n");
    host.write("sys/kernel/mm/transparent_hugepage/defrag", "always defer [madvise] never\n");
    host.write("proc/sys/vm/dirty_writeback_centisecs", "500\n");
    host.device("8:0", "block/sda", 1000);
    host.device("8:1", "block/sda/sda1", 900);
    host.write("sys/devices/block/sda/sda1/start", "8\n");
    host.write("sys/block/sda/queue/scheduler", "none [mq-deadline]\n");
    host.write("sys/class/bdi/8:0/max_ratio", "100\n");
    host
}

/// Settings as `path=value`, and mounts and devices by their names.
fn said(records: Vec<Record>) -> Vec<String> {
    let text = |record| match record {
        Record::Coverage(coverage) => format!("{:?}", coverage.state),
        Record::Block(block) => match *block {
            BlockRecord::Setting(s) => {
                format!("{}={}", s.path, s.value.as_deref().unwrap_or("(none)"))
            }
            BlockRecord::Mount(m) => format!("{} {} {} {}", m.fs, m.fstype, m.point, m.options),
            BlockRecord::Device(d) => d.name,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    records.into_iter().map(text).collect()
}

fn start(cx: &mut Context) -> (SettingsCollector, Vec<String>) {
    let mut collector = SettingsCollector::open(cx);
    let records = beat(&mut collector, cx, Beat::Start);
    (collector, said(records))
}

#[test]
fn settings_of_writeback_and_of_mounted_disks_are_there_from_the_start() {
    let host = host();
    let (_, said) = start(&mut host.context());
    assert_eq!(said[0], "Active");
    // The disk before its partition, and the mount of the filesystem's own root.
    assert_eq!(said[1..4], ["8:1 ext4 / rw,relatime,errors=remount-ro", "sda", "sda1"]);
    for expected in [
        "/proc/sys/kernel/sched_autogroup_enabled=1",
        "/sys/kernel/mm/transparent_hugepage/defrag=always defer [madvise] never",
        "/proc/sys/vm/dirty_ratio=20",
        "/proc/sys/vm/dirty_writeback_centisecs=500",
        "/proc/sys/vm/dirty_expire_centisecs=(none)",
        "/sys/block/sda/queue/scheduler=none [mq-deadline]",
        "/sys/block/sda/queue/wbt_lat_usec=(none)",
        "/sys/class/bdi/8:0/max_ratio=100",
    ] {
        assert!(said.iter().any(|text| text == expected), "{expected}: {said:?}");
    }
}

#[test]
fn what_changes_is_said_and_nothing_else() {
    let host = host();
    let mut cx = host.context();
    let (mut collector, _) = start(&mut cx);
    assert_eq!(beat(&mut collector, &mut cx, Beat::Bin), []);
    assert_eq!(beat(&mut collector, &mut cx, Beat::Second), []);
    host.write("proc/sys/vm/dirty_ratio", "10\n");
    host.write("sys/block/sda/queue/scheduler", "[none] mq-deadline\n");
    assert_eq!(
        said(beat(&mut collector, &mut cx, Beat::Second)),
        ["/proc/sys/vm/dirty_ratio=10", "/sys/block/sda/queue/scheduler=[none] mq-deadline"]
    );
    std::fs::remove_file(host.path("proc/sys/vm/dirty_ratio")).unwrap();
    assert_eq!(
        said(beat(&mut collector, &mut cx, Beat::Second)),
        ["/proc/sys/vm/dirty_ratio=(none)"]
    );
    let remounted = MOUNTS.replace("rw,relatime", "ro,relatime");
    host.write("proc/self/mountinfo", remounted);
    let said: Vec<String> =
        (0..5).flat_map(|_| said(beat(&mut collector, &mut cx, Beat::Second))).collect();
    assert_eq!(said, ["8:1 ext4 / ro,relatime,rw,errors=remount-ro"]);
}

#[test]
fn what_the_kernel_computes_is_said_with_the_setting_that_it_follows() {
    let host = host();
    host.write("sys/class/bdi/8:0/max_bytes", "4000\n");
    host.write("sys/class/bdi/8:0/max_ratio_fine", "1000000\n");
    let mut cx = host.context();
    let (mut collector, _) = start(&mut cx);
    host.write("sys/class/bdi/8:0/max_bytes", "3990\n");
    assert_eq!(beat(&mut collector, &mut cx, Beat::Second), []);
    host.write("sys/class/bdi/8:0/max_ratio_fine", "500000\n");
    assert_eq!(
        said(beat(&mut collector, &mut cx, Beat::Second)),
        ["/sys/class/bdi/8:0/max_ratio_fine=500000", "/sys/class/bdi/8:0/max_bytes=3990"]
    );
}

#[test]
fn limits_of_cgroups_are_found_where_there_are_any() {
    let host = host();
    let (v1, v2) = ("sys/fs/cgroup/blkio", "sys/fs/cgroup/unified");
    host.write(&format!("{v1}/blkio.throttle.write_bps_device"), "");
    host.write(&format!("{v1}/a/b/blkio.throttle.write_iops_device"), "8:0 2000\n");
    host.write(&format!("{v2}/a/io.weight"), "default 100\n");
    host.write(&format!("{v2}/b/io.weight"), "default 50\n");
    host.write(&format!("{v2}/b/io.max"), "\n");
    let mut cx = host.context();
    let (mut collector, found) = start(&mut cx);
    let limits: Vec<&String> = found.iter().filter(|text| text.contains("/cgroup/")).collect();
    assert_eq!(
        limits,
        [
            "/sys/fs/cgroup/blkio/a/b/blkio.throttle.write_iops_device=8:0 2000",
            "/sys/fs/cgroup/unified/b/io.weight=default 50"
        ]
    );
    // Removing a limit is a change, too.
    host.write(&format!("{v1}/a/b/blkio.throttle.write_iops_device"), "");
    assert_eq!(
        said(beat(&mut collector, &mut cx, Beat::Second)),
        ["/sys/fs/cgroup/blkio/a/b/blkio.throttle.write_iops_device="]
    );
}

#[test]
fn limits_of_removed_cgroups_are_told_to_be_gone_and_forgotten() {
    let host = host();
    let mut cx = host.context();
    let (mut collector, _) = start(&mut cx);
    let known = collector.values.len();
    for round in 0..10 {
        let dirs: Vec<String> =
            (0..20).map(|at| format!("sys/fs/cgroup/unified/{round}-{at}")).collect();
        for dir in &dirs {
            host.write(&format!("{dir}/io.weight"), "default 50\n");
        }
        collector.limits = Limits::open(&host.roots);
        assert_eq!(said(beat(&mut collector, &mut cx, Beat::Second)).len(), 20);
        assert_eq!(collector.values.len(), known + 20);
        for dir in &dirs {
            std::fs::remove_dir_all(host.path(dir)).unwrap();
        }
        let gone = (0..10).flat_map(|_| said(beat(&mut collector, &mut cx, Beat::Second)));
        assert_eq!(gone.filter(|text| text.ends_with("=(none)")).count(), 20);
        assert_eq!(collector.values.len(), known);
    }
}

#[test]
fn a_tree_that_is_too_large_is_looked_at_in_part_and_that_is_said_once() {
    let host = host();
    for i in 0..1000 {
        host.write(&format!("sys/fs/cgroup/blkio/{i}/blkio.throttle.read_bps_device"), "8:0 1\n");
    }
    let mut cx = host.context();
    let (mut collector, found) = start(&mut cx);
    assert_eq!(found.iter().filter(|text| text.ends_with("=8:0 1")).count(), 999);
    assert!(found.last().unwrap().contains("in 1000 cgroups"), "{:?}", found.last());
    assert_eq!(beat(&mut collector, &mut cx, Beat::Second), []);
}

#[test]
fn a_long_value_is_cut_and_hostile_bytes_are_decoded() {
    let host = host();
    host.write("proc/sys/vm/dirty_bytes", [b"\xff".as_slice(), &[b'x'; 400]].concat());
    let (_, said) = start(&mut host.context());
    let long = said.iter().find(|text| text.starts_with("/proc/sys/vm/dirty_bytes=")).unwrap();
    let value = long.split_once('=').unwrap().1;
    assert!(value.starts_with("\\xffxxx") && value.len() == 256, "{long}");
}

#[test]
fn what_is_not_there_is_said() {
    let host = Host::empty();
    let (_, nothing) = start(&mut host.context());
    assert!(nothing.len() == 1 && nothing[0].starts_with("Missing"), "{nothing:?}");
    host.write("proc/sys/vm/dirty_ratio", "20\n");
    let mut cx = host.context();
    let records = beat(&mut SettingsCollector::open(&cx), &mut cx, Beat::Start);
    let Record::Coverage(coverage) = &records[0] else { panic!("{records:?}") };
    assert!(matches!(&coverage.state, State::Partial { reason } if reason.contains("/sys/block")));
}
