// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The effect of limits: of cgroups on block IO, of tags, of dirty memory.

use super::*;

#[test]
fn a_limit_that_no_request_shows_is_not_ruled_out() {
    let mut scene = disks::healthy();
    let limited = disks::service(&mut scene, "mongod", "/mongod.service", 30);
    scene.setting(
        "/sys/fs/cgroup/mongod.service/io.max",
        "8:0 rbps=max wbps=1048576 riops=max wiops=20",
    );
    scene.io_wait(0..S, limited, StallKind::Sync, Some(SDA), &[(300, 78 * MS)]);
    disks::requests(&mut scene, limited, SDA, &[(300, 740 * US)], &[(IoCulprit::Device, 100)]);
    let report = judged(&scene);
    let missing = unchecked(&report, "BLK004");
    assert!(missing.contains("`mongod`") && missing.contains("io.max"), "{missing}");
    assert!(missing.contains("before a request exists"), "{missing}");
}

#[test]
fn what_a_limit_holds_back_is_lost_to_the_limit_of_that_direction() {
    let report = judged(&disks::limited(20));
    assert_eq!(codes(&report), ["BLK007"]);
    let found = finding(&report, "BLK007");
    // 24 s of waiting, less 20 requests of 1 ms in each of 30 seconds.
    assert_eq!(found.cost.lost_ns_per_s, 780 * MS);
    assert!(
        found
            .title
            .contains("`blkio.throttle.write_iops_device` of cgroup `/sys/fs/cgroup/blkio/mongod`")
    );
    assert!(note(found, "limit in force").contains("`8:0 20`"));
    assert_eq!(found.causes[0].entity.value.as_deref(), Some("8:0 20"));
    let command = found.fix[0].command.as_deref().unwrap_or_default();
    assert!(command.starts_with("echo '8:0 40' > /sys/fs/cgroup/blkio/mongod/"), "{command}");
    assert_eq!(found.evidence.iter().filter(|line| line.name == "limit in force").count(), 1);
}

#[test]
fn waiting_that_requests_explain_is_no_limits_doing() {
    let mut scene = disks::limited(20);
    let mongod = ProcId(1);
    disks::requests(&mut scene, mongod, SDA, &[], &[]);
    for second in 0..30 {
        let at = disks::span(second * S, S);
        scene.io_wait(at, mongod, StallKind::Request, Some(SDA), &[(8, 99 * MS)]);
    }
    let report = judged(&scene);
    assert!(!codes(&report).contains(&"BLK007"), "{:?}", codes(&report));
    let ruled_out = report.ruled_out.iter().find(|item| item.code == "BLK007").unwrap();
    assert!(ruled_out.closest.contains("600 transfers were held back"), "{}", ruled_out.closest);
}

#[test]
fn without_a_transfer_held_back_a_limit_is_nobodys_loss() {
    let mut scene = disks::healthy();
    scene.setting("/sys/fs/cgroup/blkio/a/blkio.throttle.write_iops_device", "8:0 20");
    let report = judged(&scene);
    assert_eq!(codes(&report), [""; 0]);
    let ruled_out = report.ruled_out.iter().find(|item| item.code == "BLK007").unwrap();
    assert_eq!(ruled_out.closest, "no transfer was held back; 1 limit is in force");
}

#[test]
fn waits_before_requests_name_the_tags_or_the_throttling() {
    let fix = |op, tags: &str| {
        let (mut scene, disk) = disks::host(30);
        scene.setting("/sys/block/sda/queue/nr_requests", tags);
        let victim = disks::service(&mut scene, "db", "/db.service", 30);
        disks::full_within(&mut scene, disk, &[disks::span(0, 30 * S)], 4);
        scene.waited_before(0..S, disk, op, &[(1000, MS, MS)], &[(1000, 6 * MS)]);
        disks::requests(&mut scene, victim, disk, &[(1000, 8 * MS)], &[(IoCulprit::Device, 100)]);
        let report = judged(&scene);
        let found = finding(&report, "BLK003").clone();
        let took = ["reads took", "writes took"].into_iter().find_map(|name| {
            let line = found.evidence.iter().find(|line| line.name == name)?;
            line.note.clone()
        });
        let took = took.expect("a line");
        assert!(took.contains("75 % of the time before the request, 13 % in the queue"), "{took}");
        found.fix[0].command.clone().unwrap_or_default()
    };
    assert_eq!(fix(IoOp::Read, "4"), "echo 64 > /sys/block/sda/queue/nr_requests");
    assert_eq!(fix(IoOp::Write, "4"), "echo 64 > /sys/block/sda/queue/nr_requests");
    assert_eq!(fix(IoOp::Write, "256"), "echo 0 > /sys/block/sda/queue/wbt_lat_usec");
    assert!(!fix(IoOp::Read, "256").contains("nr_requests"), "there are tags to spare");
}

#[test]
fn a_writer_that_pauses_hears_of_the_limit_that_binds() {
    let report = judged(&disks::scene("BLK006", "fires").expect("a scene"));
    let found = finding(&report, "BLK006");
    assert_eq!(found.causes[0].entity.key.as_deref(), Some("/sys/class/bdi/8:0/max_ratio"));
    assert!(note(found, "limits in force").contains("dirty_ratio` 20"));
}
