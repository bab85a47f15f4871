// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks and partitions that vanish, and filesystems that are unmounted, while they are observed.

use super::{Recording, near, number, shown, with_disk};
use crate::common;
use crate::disk::{Disk, fs_of};

const MIB: i64 = 1 << 20;

#[test]
fn a_filesystem_that_is_unmounted_and_its_loop_device_detached() {
    let test = "a_filesystem_that_is_unmounted_and_its_loop_device_detached";
    with_disk(test, 128, "ext4", |disk, point| {
        let device = number(&disk.device);
        let script = r#"
            dd if=/dev/zero of="$POINT/a" bs=1M count=8 conv=fsync 2>&1
            dd if=/dev/zero of="$POINT/late" bs=1M count=4 2>&1
            umount "$POINT"; losetup -d "$DEVICE""#;
        let vars = [("POINT", point.as_os_str()), ("DEVICE", disk.device.as_ref())];
        let recording = Recording::of(script, &vars);
        recording.assert_classes_sum(&device);
        let known = point.join("a");
        let bytes = recording.bytes(&device, "write", &known);
        assert!(near(bytes, 8 * MIB), "{bytes} bytes");
        assert_eq!(recording.state(&known).as_deref(), Some("linked"), "while it was mounted");
        // The unmount writes the rest after it dropped the names; these bytes still count as those of a file.
        let data = recording.class(&device, "write", "file");
        assert!(near(data, 12 * MIB), "{data} bytes of files");
        let text = recording.report(&[]);
        assert!(!text.contains("error"), "{text}");
        // The script has undone all that the guard would undo.
        std::mem::forget(disk);
    });
}

#[test]
fn a_disk_that_appears_and_goes_within_the_window() {
    let test = "a_disk_that_appears_and_goes_within_the_window";
    if !common::root_or_skip("kernel", test) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let script = r#"
        truncate -s 64M "$DIR/image"; mkfs.ext4 -q -F -E lazy_itable_init=0 "$DIR/image"; mkdir "$DIR/mnt"
        device=$(losetup --find --show "$DIR/image"); echo "$device" >"$DIR/device"
        mount "$device" "$DIR/mnt"; dd if=/dev/zero of="$DIR/mnt/a" bs=1M count=8 conv=fsync 2>&1
        sleep 1.1; umount "$DIR/mnt"; losetup -d "$device"
        # Nothing with that number is there any more.
        ! command -v python3 >"$DIR/python3" || python3 -c 'import fcntl, sys
with open("/dev/loop-control") as control: fcntl.ioctl(control, 0x4c81, int(sys.argv[1]))' "${device#/dev/loop}""#;
    let recording = Recording::of(script, &[("DIR", dir.path().as_os_str())]);
    let device = std::fs::read_to_string(dir.path().join("device")).unwrap();
    let minor = device.trim().strip_prefix("/dev/loop").unwrap();
    let device = format!("7:{minor}");
    let file = dir.path().join("mnt/a");
    let bytes = recording.bytes(&device, "write", &file);
    assert!(near(bytes, 8 * MIB), "{bytes} bytes of {}", recording.classes(&device, "write"));
    recording.assert_classes_sum(&device);
    let sql = "SELECT fstype FROM mount WHERE fs = ?1";
    assert_eq!(recording.value::<String>(sql, &[&device]).as_deref(), Some("ext4"));
    if std::fs::metadata(dir.path().join("python3")).is_ok_and(|found| found.len() > 0) {
        let gone = "SELECT gone FROM devices WHERE device = ?1";
        assert_eq!(recording.number(gone, &[&device]), 1, "it vanished");
    }
}

#[test]
fn partitions_are_of_their_disk_and_may_go() {
    let test = "partitions_are_of_their_disk_and_may_go";
    if !common::root_or_skip("kernel", test) {
        return;
    }
    let divided = || {
        let mut disk = Disk::new(192)?;
        let parts = [(1, 2048), (2, 196_608)].map(|(n, start)| disk.partition(n, start, 180_000));
        let [first, second] = parts;
        let points = [disk.mount(&first?, "ext4")?, disk.mount(&second?, "ext4")?];
        Ok::<_, String>((disk, points))
    };
    let (disk, points) = match divided() {
        Ok(made) => made,
        Err(reason) => return common::skip_or_fail("kernel", test, &reason),
    };
    let filesystems = points.each_ref().map(|point| fs_of(point).to_string());
    // Files with the same inode number on both partitions, one of which is then removed at once.
    let script = r#"
        dd if=/dev/zero of="$FIRST/same" bs=1M count=6 conv=fsync 2>&1
        dd if=/dev/zero of="$SECOND/same" bs=1M count=10 conv=fsync 2>&1
        umount "$FIRST"; delpart "$DEVICE" 1"#;
    let vars = [
        ("FIRST", points[0].as_os_str()),
        ("SECOND", points[1].as_os_str()),
        ("DEVICE", disk.device.as_ref()),
    ];
    let recording = Recording::of(script, &vars);
    let device = number(&disk.device);
    for ((point, fs), mib) in points.iter().zip(&filesystems).zip([6, 10]) {
        let bytes = recording.bytes(&device, "write", &point.join("same"));
        assert!(near(bytes, mib * MIB), "{fs}: {bytes} bytes");
        let sql = "SELECT fs FROM files WHERE path = ?1";
        let told: Option<String> = recording.value(sql, &[&shown(&point.join("same"))]);
        assert_eq!(told.as_deref(), Some(fs.as_str()));
    }
    recording.assert_classes_sum(&device);
    let gone =
        "SELECT group_concat(gone) FROM (SELECT gone FROM device WHERE device = ?1 ORDER BY seq)";
    assert_eq!(recording.value::<String>(gone, &[&filesystems[0]]).as_deref(), Some("0,1"));
    let partitions = "SELECT count(*) FROM io_tick WHERE device IN (?1, ?2)";
    assert_eq!(recording.number(partitions, &[&filesystems[0], &filesystems[1]]), 0, "disks only");
}

#[test]
fn a_loop_device_on_a_loop_devices_filesystem() {
    let test = "a_loop_device_on_a_loop_devices_filesystem";
    with_disk(test, 256, "ext4", |disk, point| {
        let upper = || {
            let upper = Disk::at(&point.join("image"), 128)?;
            Ok::<_, String>(upper)
        };
        let mut upper = match upper() {
            Ok(upper) => upper,
            Err(reason) => return common::skip_or_fail("kernel", test, &reason),
        };
        let node = upper.device.clone();
        let on_it = upper.mount(&node, "ext4").unwrap();
        let script = r#"dd if=/dev/zero of="$UPPER/a" bs=1M count=16 conv=fsync 2>&1; sync -f "$LOWER/image""#;
        let vars = [("UPPER", on_it.as_os_str()), ("LOWER", point.as_os_str())];
        let recording = Recording::of(script, &vars);
        // The same bytes are written twice: as the file's on the upper device, as the image's on the lower one.
        let above = recording.bytes(&number(&upper.device), "write", &on_it.join("a"));
        assert!(near(above, 16 * MIB), "{above} bytes above");
        let below = recording.bytes(&number(&disk.device), "write", &point.join("image"));
        let all_above: i64 = recording.number(
            "SELECT sum(bytes) FROM io_tick WHERE device = ?1 AND op = 'write'",
            &[&number(&upper.device)],
        );
        // Earlier writes that were not on the disk yet come on top; blocks written twice above may be written once
        // below.
        assert!(below >= 16 * MIB && below <= 2 * all_above, "{below} below, {all_above} above");
        assert_eq!(recording.bytes(&number(&disk.device), "write", &on_it.join("a")), 0);
        for device in [&upper.device, &disk.device] {
            recording.assert_classes_sum(&number(device));
        }
        let backing = "SELECT backing FROM devices WHERE device = ?1";
        let backing: Option<String> = recording.value(backing, &[&number(&upper.device)]);
        assert_eq!(backing, Some(shown(&point.join("image"))));
        drop(upper);
    });
}

#[test]
fn a_request_that_takes_seconds_is_waited_for_from_its_beginning() {
    let test = "a_request_that_takes_seconds_is_waited_for_from_its_beginning";
    if !common::root_or_skip("kernel", test) {
        return;
    }
    let mut disk = match Disk::slow(64) {
        Ok(disk) => disk,
        Err(reason) => return common::skip_or_fail("kernel", test, &reason),
    };
    disk.take_us(4_500_000);
    let dir = tempfile::tempdir().unwrap();
    let took = dir.path().join("took");
    // The witness is the reader's own clock.
    let script = r#"
        begin=$(date +%s%N)
        dd if="$DEVICE" of=/dev/null bs=4k count=1 iflag=direct 2>&1
        echo $(($(date +%s%N) - begin)) >"$TOOK""#;
    let vars = [("DEVICE", disk.device.as_ref()), ("TOOK", took.as_os_str())];
    let recording = Recording::of(script, &vars);
    let took_ns: i64 = std::fs::read_to_string(took).unwrap().trim().parse().unwrap();
    assert!(took_ns > 4_000_000_000, "the disk is slow: {took_ns}");
    let device = number(&disk.device);
    let sql = "SELECT max(t1_ns - t0_ns) FROM stall WHERE device = ?1 AND kind = 'request'";
    let longest_ns = recording.number(sql, &[&device]);
    // What starting `dd` takes is not waiting for the disk: a tenth at most, on a busy machine too.
    assert!((took_ns * 9 / 10..=took_ns).contains(&longest_ns), "{longest_ns} of {took_ns} ns");
    let report = recording.report(&["--json"]);
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let name = disk.device.strip_prefix("/dev/").unwrap();
    let is_of_it = |it: &&serde_json::Value| it["code"] == "BLK003" && it["device"] == name;
    let found: Vec<_> = findings.iter().filter(is_of_it).collect();
    assert_eq!(found.len(), 1, "{report:#}");
    assert!(found[0]["title"].as_str().unwrap().contains("ended none"), "{}", found[0]["title"]);
}
